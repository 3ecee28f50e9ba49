"""Proven variances of the prefixes and cells of a chain measured by convolutions.

T is lower triangular with the entries t_(i - j). Its inverse has the entries v_(i - j), where t * v
= 1, 0, 0, ..., and the prefix sums of T^-1 have u_(i - j), where t * u = 1, 1, 1, ... Both are
found by Newton's iteration, and the residuals bound their errors.

With noise z on R T M x, the prefix up to J of M^-1 T^-1 R^-1 z is

    sum_(i <= J) b_i X_i = b_J U_J + sum_(pieces before that of J) (b - next b) U_(end of the piece)

with b = 1/m, X = T^-1 R^-1 z and U_J = sum_i u_(J - i) z_i / r_i. So its variance needs one
convolution for all J, and one for each piece of equal column weights, over the cells of the piece.

The total may be measured too. Let E y estimate the cells, and let y_0 = k 1'x + z_0 be the total's
answer. For any shares s, E y + s (y_0 - k 1'E y) is unbiased. With the covariances c = E E'1 of the
cells with their total, and V = 1'c, a query w then has the variance

    |w E|^2 - 2 k (w s) (w c) + (w s)^2 (1 + k^2 V)

which is least for s = k c / (1 + k^2 V). The shares are floats, and the variances are those for the
rounded shares (docs/theory/chains.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import fft

from fitplug.errors import DesignError
from fitplug.numeric import (
    UNIT_ROUNDOFF,
    FloatArray,
    IntArray,
    convolve,
    convolve_with_bound,
    correlate,
    gamma,
    upper_convolution_error,
    upper_norm,
)


@dataclass(frozen=True, eq=False)
class ToeplitzInverse:
    """The sequences of T^-1 and of its prefix sums.

    Attributes:
        v: The sequence of T^-1, shape (n,).
        u: The sequence of the prefix sums of T^-1, shape (n,).
        v_error: A bound on the error of each entry of v.
        u_error: A bound on the error of each entry of u.
    """

    v: FloatArray
    u: FloatArray
    v_error: float
    u_error: float


@np.errstate(over="ignore", invalid="ignore")
def invert_toeplitz(sequence: IntArray) -> ToeplitzInverse:
    """Invert T, whose first column is a sequence t (n,) with t_0 > 0.

    Raises:
        DesignError: If T is too ill-conditioned for proven errors.
    """
    t = sequence.astype(np.float64)
    n = len(t)
    v = np.array([1 / t[0]])
    while len(v) < n:
        length = min(2 * len(v), n)
        v = np.concatenate([v, np.zeros(length - len(v))])
        v = v + convolve(v, _find_rest(t[:length], v, np.eye(1, length)[0])[0])
    v_rest, v_worst = _find_rest(t, v, np.eye(1, n)[0])
    # With R = 1 - t * v, the exact sequence is v * (1 - R)^-1, in the algebra of absolute sums.
    R = (float(np.abs(v_rest).sum()) + n * v_worst) * (1 + gamma(n))
    if not R < 0.5:
        raise DesignError(
            "no close bound on the variances of this design could be computed. Use targets of "
            "more similar size."
        )
    total = float(np.abs(v).sum()) * (1 + gamma(n)) / (1 - R)
    u = np.cumsum(v)
    u = u + convolve(v, _find_rest(t, u, np.ones(n))[0])
    u_rest, u_worst = _find_rest(t, u, np.ones(n))
    up = 1 + gamma(8)
    return ToeplitzInverse(
        v=v,
        u=u,
        v_error=total * (float(np.abs(v_rest).max()) + v_worst) * up,
        u_error=total * (float(np.abs(u_rest).max()) + u_worst) * up,
    )


def _find_rest(t: FloatArray, v: FloatArray, wanted: FloatArray) -> tuple[FloatArray, float]:
    """Compute the residual wanted - t * v, shape (n,), and a bound on the error of each entry."""
    product, error = convolve_with_bound(t, v)
    rest = wanted - product
    return rest, error + UNIT_ROUNDOFF * float(upper_norm(rest))


_SHORTEST = 64
"""The shortest block of a transform; transforms of fewer numbers do not pay."""


def upper_prefix_stds(
    u: FloatArray, u_error: float, row_weights: FloatArray, column_weights: IntArray
) -> FloatArray:
    """Bound the stds of all prefixes at noise of variance 1 from above.

    Args:
        u: The sequence of the prefix sums of T^-1, shape (n,).
        u_error: A bound on the error of each of its entries.
        row_weights: r, the diagonal of R, shape (n,), positive.
        column_weights: m, the diagonal of M, shape (n,), positive.

    Returns:
        Shape (n,).
    """
    n = len(u)
    precision = row_weights**-2.0
    b = 1 / column_weights.astype(np.float64)
    starts = np.flatnonzero(np.diff(column_weights, prepend=column_weights[:1])).tolist()
    row_sums, row_sum_errors = convolve_with_bound(u * u, precision)
    variances = b * b * row_sums
    errors = b * b * row_sum_errors
    products = _Products(u)
    # The contribution of U at the ends of earlier pieces: its weights on z_i r_i, last cell first.
    earlier = np.zeros(n)
    variation, u_norm = 0.0, float(upper_norm(u))
    for start, end in zip(starts, [*starts, n][1:], strict=True):
        step = b[start - 1] - b[start]
        variation += abs(float(step))
        earlier[:start] += step * u[:start][::-1]
        weights = precision[:start] * earlier[:start]
        cross, cross_error = products.correlate(weights, end - start)
        fixed = float(weights @ earlier[:start])
        here = b[start]
        variances[start:end] += 2 * here * cross + fixed
        errors[start:end] += 2 * here * cross_error + gamma(n + 8) * abs(fixed)
    terms = len(starts) + 16
    # The effect of the errors of u and of the sums in `earlier` on the norm of the weights on z.
    spread = float(upper_norm(1 / row_weights))
    narrow = float((1 / row_weights).max())
    reach = b + variation
    off = reach * (u_error * spread + gamma(terms) * u_norm * narrow)
    up = 1 + gamma(terms + 16)
    safe = np.maximum(variances, 0.0) + errors + gamma(terms) * b * b * np.abs(row_sums)
    return np.asarray((np.sqrt(safe * up) + off) * up)


class _Products:
    """Products sum_i u_(J - i) w_i of the cells i before a piece, for each J of the piece.

    They are sums over blocks of as many cells as the piece, counted back from its start. So all
    pieces of one length share the transforms of u.
    """

    def __init__(self, u: FloatArray) -> None:
        self._u = u
        self._norm = float(upper_norm(u))
        self._spectra: dict[int, FloatArray] = {}

    def correlate(self, weights: FloatArray, length: int) -> tuple[FloatArray, float]:
        """Compute the products for the cells that follow the weights (s,), and bound their errors.

        Returns:
            Shape (length,), and a bound on the error of each.
        """
        size = max(_SHORTEST, 1 << (length - 1).bit_length())
        spectra = self._transform(size)
        blocks = -(-len(weights) // size)
        padded = np.zeros(blocks * size)
        padded[: len(weights)] = weights[::-1]
        spectrum = fft.rfft(padded.reshape(blocks, size), 2 * size)
        total = np.einsum("bk,bk->k", spectra[:blocks], np.conj(spectrum))
        products = fft.irfft(total, 2 * size)[:length]
        # Each number of u is in two blocks, which the factor 1.5 > sqrt(2) covers.
        error = (upper_convolution_error(size) + gamma(blocks + 8)) * 1.5 * self._norm
        return products, error * float(upper_norm(weights))

    def _transform(self, size: int) -> FloatArray:
        """Transform each block of u together with its successor; complex, (blocks, size + 1)."""
        if size not in self._spectra:
            blocks = -(-len(self._u) // size)
            padded = np.zeros((blocks + 1) * size)
            padded[: len(self._u) - 1] = self._u[1:]
            halves = padded.reshape(blocks + 1, size)
            self._spectra[size] = fft.rfft(np.hstack([halves[:-1], halves[1:]]))
        return self._spectra[size]


@dataclass(frozen=True, eq=False)
class TotalUpdate:
    """The shares of the cells, and the covariances of the prefixes with the total.

    Attributes:
        weight: k.
        shares: s of the cells, shape (n,).
        prefix_shares: The prefix sums of s, shape (n,).
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
        covariances = np.diff(self.covariances, prepend=0.0)
        error = 2 * self.error + gamma(2) * float(np.abs(self.covariances).max())
        return self._update(variances, self.shares, covariances, error, 0.0)

    def update_prefixes(self, variances: FloatArray) -> FloatArray:
        """Update bounds on the variances of the prefixes, shape (n,)."""
        # The shares are rounded differences, so their exact prefix sums are off by this.
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
        """Update variances, where shares are off by at most `off`, and covariances by `error`."""
        k = float(self.weight)
        spread = 1 + k * k * (float(self.covariances[-1]) + self.error)
        updated = variances - 2 * k * shares * covariances + shares * shares * spread
        sizes = variances + 2 * k * np.abs(shares * covariances) + shares * shares * spread
        # An upper bound on the derivative with respect to a share that is off.
        slope = 2 * (k * (np.abs(covariances) + error) + (np.abs(shares) + off) * spread)
        wrong = 2 * k * np.abs(shares) * error + slope * off + gamma(16) * sizes
        return np.asarray((np.maximum(updated, 0.0) + wrong) * (1 + gamma(8)))


def find_total_update(
    inverse: ToeplitzInverse, row_weights: FloatArray, column_weights: IntArray, weight: int
) -> TotalUpdate:
    """Find the shares and covariances of a chain.

    Args:
        inverse: The sequences of T^-1.
        row_weights: r, shape (n,).
        column_weights: m, shape (n,).
        weight: k, positive.
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
    the last of them. So the weights of the total on U are the differences of b, and the covariances
    with U determine those with the prefixes.

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
    # The weights of the total on z / r, and a bound on their errors.
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
    terms = int(np.count_nonzero(differences)) + 16
    error = (float(b.max()) + reach) * base_error + gamma(terms) * size
    return covariances, error * (1 + gamma(16))
