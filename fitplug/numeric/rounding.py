"""Outward rounding: floats that are proven to lie on the safe side of an exact number.

The a-priori bounds are the classical ones: a sum of n products in any order of summation has
error at most gamma(n) times the sum of the absolute products (Higham, Accuracy and Stability of
Numerical Algorithms, section 3.1). They hold for BLAS, blocked or with fused multiply-add.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from scipy.linalg import solve_triangular

from fitplug.errors import DesignError
from fitplug.numeric.arrays import FloatArray

UNIT = 2.0**-53
"""Relative error of one rounded operation."""


def gamma(n: int) -> float:
    """n u / (1 - n u), with room for the rounding of the bound's own evaluation."""
    return 1.01 * (n + 4) * UNIT


def ceil_float(exact: Fraction) -> float:
    """The smallest float that is >= `exact`; zero has no sign."""
    value = float(exact)
    return value + 0.0 if Fraction(value) >= exact else math.nextafter(value, math.inf)


def floor_float(exact: Fraction) -> float:
    """The largest float that is <= `exact`; zero has no sign."""
    return 0.0 - ceil_float(-exact)


def ceil_sqrt(exact: Fraction) -> float:
    """The smallest float whose square is >= `exact` >= 0."""
    value = math.sqrt(float(exact))
    while Fraction(value) ** 2 < exact:
        value = math.nextafter(value, math.inf)
    while value > 0 and Fraction(math.nextafter(value, 0)) ** 2 >= exact:
        value = math.nextafter(value, 0)
    return value


def norm_above(rows: FloatArray, axis: int | None = None) -> FloatArray:
    """Upper bounds on the Euclidean norms of `rows` along `axis` (None: Frobenius)."""
    size = rows.size if axis is None else rows.shape[axis]
    squares = np.sum(rows * rows, axis=axis)
    return np.asarray(np.sqrt(squares) * (1 + gamma(size)))


def product_with_bound(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """a @ b and an entrywise bound on its rounding error."""
    error = np.abs(a) @ np.abs(b)
    error *= gamma(a.shape[1])
    return a @ b, error


def inverse_norms_above(
    L: FloatArray, M: FloatArray, *, L_error: FloatArray | None = None
) -> FloatArray:
    """Upper bounds, shape (m,), on |L_j M^-1| for the exact M, upper triangular (n, n).

    With X the computed inverse and E = I - M X: L M^-1 = L X (I - E)^-1, so the computed rows
    L X are off by their own rounding and by a factor of at most 1 / (1 - |E|).
    L_error: bounds, shape (m,), on the 2-norm by which the rows given differ from those meant.
    Raises DesignError if M is too ill-conditioned to bound.
    """
    X = solve_triangular(M, np.eye(len(M), order="F"), overwrite_b=True)
    residual = _residual(M, X)
    rows, error = product_with_bound(L, X)
    bound = norm_above(rows, axis=1) + norm_above(error, axis=1)
    if L_error is not None:
        bound = bound + L_error * float(norm_above(X))
    return np.asarray(bound / (1 - residual) * (1 + 16 * UNIT))


def inverse_norm_above(K: FloatArray) -> float:
    """An upper bound on |K^-1|_2 for a square K (n, n). Raises DesignError as above."""
    X, residual = inverse_with_residual(K)
    return float(norm_above(X)) / (1 - residual)


def inverse_with_residual(K: FloatArray) -> tuple[FloatArray, float]:
    """X (n, n) next to the inverse of K, and a bound on |I - K X|_2, below 1/2. Raises DesignError
    as above.
    """
    try:
        X: FloatArray = np.linalg.inv(K).astype(np.float64)
    except np.linalg.LinAlgError:
        X = np.zeros_like(K)
    return X, _residual(K, X)


def _residual(M: FloatArray, X: FloatArray) -> float:
    """A bound on |I - M X|_2, below 1/2."""
    product, error = product_with_bound(M, X)
    product[np.diag_indices_from(product)] -= 1
    error += np.abs(product, out=product) * (1 + 4 * UNIT)
    residual = float(norm_above(error))
    if not residual < 0.5:
        raise DesignError(
            "the strategy is too ill-conditioned to bound its variances; "
            "targets may differ by too many orders of magnitude"
        )
    return residual
