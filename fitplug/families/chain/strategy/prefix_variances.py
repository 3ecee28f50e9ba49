"""Variances of the prefixes of a chain, where column weights are equal over long pieces.

With the noise z on R T M x, the prefix up to J of M^-1 T^-1 R^-1 z is

    sum_(i <= J) b_i X_i = b_J U_J + sum_(pieces before that of J) (b - next b) U_(end of the piece)

with b = 1/m, X = T^-1 R^-1 z and U_J = sum_i u_(J - i) z_i / r_i. So its variance needs one
convolution for all J, and one for each piece, over the cells of the piece (docs/theory/chains.md).
"""

from __future__ import annotations

import numpy as np
from scipy import fft

from fitplug.numeric import (
    FloatArray,
    IntArray,
    convolve_with_bound,
    gamma,
    upper_convolution_error,
    upper_norm,
)

_SHORTEST = 64
"""Shorter transforms than of twice as many numbers do not pay."""


def upper_prefix_stds(
    u: FloatArray, u_error: float, row_weights: FloatArray, column_weights: IntArray
) -> FloatArray:
    """Bound the stds of all prefixes at noise of variance 1 from above.

    Args:
        u: The sequence of the prefix sums of T^-1, shape (n,).
        u_error: A bound on the error of each of its entries.
        row_weights: r, the diagonal of R, shape (n,), above 0.
        column_weights: m, the diagonal of M, shape (n,), above 0.

    Returns:
        Shape (n,).
    """
    n = len(u)
    precision = row_weights**-2.0
    b = 1 / column_weights.astype(np.float64)
    starts = np.flatnonzero(np.diff(column_weights, prepend=column_weights[:1])).tolist()
    own, own_error = convolve_with_bound(u * u, precision)
    variances = b * b * own
    errors = b * b * own_error
    products = _Products(u)
    # The part of U at the ends of the pieces so far: its weights on z_i r_i, last cell first.
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
    # What the errors of u and of the sums in `earlier` do to the norm of the weights on z.
    spread = float(upper_norm(1 / row_weights))
    narrow = float((1 / row_weights).max())
    reach = b + variation
    off = reach * (u_error * spread + gamma(terms) * u_norm * narrow)
    up = 1 + gamma(terms + 16)
    safe = np.maximum(variances, 0.0) + errors + gamma(terms) * b * b * np.abs(own)
    return np.asarray((np.sqrt(safe * up) + off) * up)


class _Products:
    """Products sum_i u_(J - i) w_i of the cells i before a piece, for each J of the piece.

    They are sums over blocks of as many cells as the piece has, counted back from its start. So all
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
        own = fft.rfft(padded.reshape(blocks, size), 2 * size)
        total = np.einsum("bk,bk->k", spectra[:blocks], np.conj(own))
        found = fft.irfft(total, 2 * size)[:length]
        # Each number of u is in two blocks, so the norms of the blocks of u come to twice the norm.
        error = (upper_convolution_error(size) + gamma(blocks + 8)) * 1.5 * self._norm
        return found, error * float(upper_norm(weights))

    def _transform(self, size: int) -> FloatArray:
        """Transform the blocks of u, each with its successor; complex, (blocks, size + 1)."""
        if size not in self._spectra:
            blocks = -(-len(self._u) // size)
            padded = np.zeros((blocks + 1) * size)
            padded[: len(self._u) - 1] = self._u[1:]
            halves = padded.reshape(blocks + 1, size)
            self._spectra[size] = fft.rfft(np.hstack([halves[:-1], halves[1:]]))
        return self._spectra[size]
