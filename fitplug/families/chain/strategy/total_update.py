"""The total of a chain, measured beside it: what its answer does to estimates and variances.

Let E y estimate the cells and y_0 = k 1'x + z_0 be the answer of the total. With any shares s,

    E y + s (y_0 - k 1'E y)

is unbiased too. With the covariances c = E E'1 of the cells with their total, and V = 1'c, a query
w has then the variance

    |w E|^2 - 2 k (w s) (w c) + (w s)^2 (1 + k^2 V)

which is least for s = k c / (1 + k^2 V). The shares are floats, and the variances are those of the
shares that are used (docs/theory/chains.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fitplug.families.chain.strategy.toeplitz_inverse import ToeplitzInverse
from fitplug.numeric import (
    FloatArray,
    IntArray,
    convolve,
    correlate,
    gamma,
    upper_convolution_error,
    upper_norm,
)


@dataclass(frozen=True, eq=False)
class TotalUpdate:
    """The shares of the cells, and the covariances of the prefixes with the total.

    Attributes:
        weight: k.
        shares: s of the cells, shape (n,).
        prefix_shares: Their prefix sums, shape (n,).
        covariances: The covariance of each prefix with the total, shape (n,).
        error: A bound on the error of each covariance.
    """

    weight: int
    shares: FloatArray
    prefix_shares: FloatArray
    covariances: FloatArray
    error: float

    def update_cells(self, variances: FloatArray) -> FloatArray:
        """Update bounds on the variances of the cells, shape (n,)."""
        own = np.diff(self.covariances, prepend=0.0)
        error = 2 * self.error + gamma(2) * float(np.abs(self.covariances).max())
        return self._update(variances, self.shares, own, error, 0.0)

    def update_prefixes(self, variances: FloatArray) -> FloatArray:
        """Update bounds on the variances of the prefixes, shape (n,)."""
        # The shares are rounded differences: their exact prefixes are off by this.
        off = gamma(2) * float(np.abs(self.shares).sum()) * (1 + gamma(len(variances)))
        return self._update(variances, self.prefix_shares, self.covariances, self.error, off)

    def _update(
        self,
        variances: FloatArray,
        shares: FloatArray,
        covariances: FloatArray,
        error: float,
        off: float,
    ) -> FloatArray:
        """Update variances for shares that are off by `off`, and covariances by `error`."""
        k = float(self.weight)
        spread = 1 + k * k * (float(self.covariances[-1]) + self.error)
        found = variances - 2 * k * shares * covariances + shares * shares * spread
        sizes = variances + 2 * k * np.abs(shares * covariances) + shares * shares * spread
        # The derivative along a share that is off is at most this.
        slope = 2 * (k * (np.abs(covariances) + error) + (np.abs(shares) + off) * spread)
        wrong = 2 * k * np.abs(shares) * error + slope * off + gamma(16) * sizes
        return np.asarray((np.maximum(found, 0.0) + wrong) * (1 + gamma(8)))


def find_total_update(
    inverse: ToeplitzInverse, row_weights: FloatArray, column_weights: IntArray, weight: int
) -> TotalUpdate:
    """Find the shares and covariances of a chain.

    Args:
        inverse: The sequences of T^-1.
        row_weights: r, shape (n,).
        column_weights: m, shape (n,).
        weight: k, above 0.
    """
    covariances, error = find_total_covariances(
        inverse.u, inverse.u_error, row_weights, column_weights
    )
    shares = covariances * (weight / (1 + float(weight) ** 2 * float(covariances[-1])))
    return TotalUpdate(weight, np.diff(shares, prepend=0.0), shares, covariances, error)


def find_total_covariances(
    u: FloatArray, u_error: float, row_weights: FloatArray, column_weights: IntArray
) -> tuple[FloatArray, float]:
    """Find the covariances of the prefixes with the total, and bound their errors.

    With b = 1/m, prefixes are b_J U_J + the sum over i < J of (b_i - b_(i+1)) U_i, and the total is
    the last of them (`fitplug.families.chain.strategy.prefix_variances`). So the weights of the
    total on U are the differences of b, and the covariances with U give those with the prefixes.

    Args:
        u: The sequence of the prefix sums of T^-1, shape (n,).
        u_error: A bound on the error of each of its entries.
        row_weights: r, shape (n,).
        column_weights: m, shape (n,).

    Returns:
        Shape (n,), and a bound on the error of each.
    """
    n = len(u)
    b = 1 / column_weights.astype(np.float64)
    differences = np.append(b[:-1] - b[1:], b[-1])
    reach = float(np.abs(differences).sum()) * (1 + gamma(n))
    transform, norm_of_u = upper_convolution_error(n), float(upper_norm(u))
    # The weights of the total on z / r, and what each is off by.
    pulled = correlate(u, differences)
    off = transform * norm_of_u * float(upper_norm(differences)) + u_error * reach
    off += gamma(4) * reach * float(np.abs(u).max())
    weighted = pulled * row_weights**-2.0
    least = float(row_weights.min())
    base = convolve(u, weighted)
    norm = float(upper_norm(weighted)) * (1 + gamma(8))
    base_error = (transform * norm_of_u + u_error * n**0.5 + gamma(8) * norm_of_u) * norm
    base_error += norm_of_u * n**0.5 * off / least**2
    earlier = np.concatenate([[0.0], np.cumsum(differences[:-1] * base[:-1])])
    covariances = b * base + earlier
    size = (float(b.max()) + reach) * float(np.abs(base).max())
    error = (float(b.max()) + reach) * base_error + gamma(_count_terms(differences)) * size
    return covariances, error * (1 + gamma(16))


def _count_terms(differences: FloatArray) -> int:
    """Count the terms of a sum over differences that are not zero, and a few roundings."""
    return int(np.count_nonzero(differences)) + 16
