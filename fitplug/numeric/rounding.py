"""Outward rounding: floats that are proven to lie on the safe side of an exact number.

The bounds on rounding errors are the classical ones: a sum of n products has an error of at most
gamma(n) times the sum of the absolute products, in any order of summation (Higham, Accuracy and
Stability of Numerical Algorithms, section 3.1). They hold for BLAS, blocked or with fused
multiply-add. docs/theory/integer-mechanism.md bounds the variances of a plan with them.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from scipy.linalg import solve_triangular

from fitplug.errors import DesignError
from fitplug.numeric.arrays import FloatArray

UNIT_ROUNDOFF = 2.0**-53
"""The largest relative error of one rounded operation."""

_ILL_CONDITIONED = (
    "the strategy is too ill-conditioned to bound its variances. Use targets of more similar size."
)


def gamma(n: int) -> float:
    """Bound n u / (1 - n u) from above, the rounding of this bound included."""
    return 1.01 * (n + 4) * UNIT_ROUNDOFF


def ceil_float(exact: Fraction) -> float:
    """Return the smallest float >= `exact`; a zero has no sign."""
    value = float(exact)
    return value + 0.0 if Fraction(value) >= exact else math.nextafter(value, math.inf)


def floor_float(exact: Fraction) -> float:
    """Return the largest float <= `exact`; a zero has no sign."""
    return 0.0 - ceil_float(-exact)


def ceil_sqrt(exact: Fraction) -> float:
    """Return the smallest float whose square is >= `exact`, which is >= 0."""
    value = math.sqrt(float(exact))
    while Fraction(value) ** 2 < exact:
        value = math.nextafter(value, math.inf)
    while value > 0 and Fraction(math.nextafter(value, 0)) ** 2 >= exact:
        value = math.nextafter(value, 0)
    return value


def upper_norm(rows: FloatArray, axis: int | None = None) -> FloatArray:
    """Bound the Euclidean norms along an axis from above, or the Frobenius norm without an axis."""
    size = rows.size if axis is None else rows.shape[axis]
    squares = np.sum(rows * rows, axis=axis)
    return np.asarray(np.sqrt(squares) * (1 + gamma(size)))


def multiply_with_bound(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Compute a @ b, and a bound on the rounding error of each entry, of the same shape."""
    error = np.abs(a) @ np.abs(b)
    error *= gamma(a.shape[-1])
    return a @ b, error


def upper_solution_norms(
    L: FloatArray, M: FloatArray, *, L_error: FloatArray | None = None
) -> FloatArray:
    """Bound the Euclidean norms of the rows of L M^-1 from above, for the exact inverse.

    Let X be the computed inverse and E = I - M X. Then L M^-1 = L X (I - E)^-1, so the norms of the
    computed rows L X are wrong by the rounding of L X and by a factor of at most 1 / (1 - |E|).

    Args:
        L: Shape (m, n).
        M: Upper triangular, shape (n, n).
        L_error: Shape (m,): bounds on the norms of L - L', if the rows meant are those of L'.

    Returns:
        Shape (m,).

    Raises:
        DesignError: M is too ill-conditioned for a bound.
    """
    X = solve_triangular(M, np.eye(len(M), order="F"), overwrite_b=True)
    residual = float(_upper_residuals(M, X))
    rows, error = multiply_with_bound(L, X)
    bound = upper_norm(rows, axis=1) + upper_norm(error, axis=1)
    if L_error is not None:
        bound = bound + L_error * float(upper_norm(X))
    return np.asarray(bound / (1 - residual) * (1 + 16 * UNIT_ROUNDOFF))


def upper_inverse_norm(K: FloatArray) -> float:
    """Bound the 2-norm of K^-1 from above.

    Args:
        K: Shape (n, n).

    Raises:
        DesignError: K is too ill-conditioned for a bound.
    """
    X, residual = invert_with_residual(K)
    return float(upper_norm(X)) / (1 - residual)


def invert_with_residual(K: FloatArray) -> tuple[FloatArray, float]:
    """Compute an approximate inverse X of K, and a bound on |I - K X|_2.

    Args:
        K: Shape (n, n).

    Returns:
        X, shape (n, n), and the bound, which is less than 1/2.

    Raises:
        DesignError: K is too ill-conditioned for such a bound.
    """
    X = _invert(K)
    return X, float(_upper_residuals(K, X))


def invert_each_with_residual(K: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Compute an approximate inverse X of each K, and bounds on |I - K X|_2.

    Args:
        K: Shape (b, n, n).

    Returns:
        X, shape (b, n, n), and the bounds, which are less than 1/2, shape (b,).

    Raises:
        DesignError: One is too ill-conditioned for such a bound.
    """
    X = _invert(K)
    return X, _upper_residuals(K, X)


def _invert(K: FloatArray) -> FloatArray:
    """Compute inverses of matrices (..., n, n), approximately; zeros if one is singular."""
    try:
        return np.linalg.inv(K).astype(np.float64)
    except np.linalg.LinAlgError:
        return np.zeros_like(K)


def _upper_residuals(M: FloatArray, X: FloatArray) -> FloatArray:
    """Bound |I - M X|_2 of matrices (..., n, n) by numbers below 1/2, or raise DesignError."""
    product, error = multiply_with_bound(M, X)
    product -= np.eye(M.shape[-1])
    error += np.abs(product, out=product) * (1 + 4 * UNIT_ROUNDOFF)
    residuals = np.asarray(upper_norm(error.reshape(*M.shape[:-2], -1), axis=-1))
    if not (residuals < 0.5).all():
        raise DesignError(_ILL_CONDITIONED)
    return residuals
