"""Outward rounding: floats that are proven to lie on the safe side of an exact number.

The a-priori bounds are the classical ones: a sum of n products in any order of summation has
error at most gamma(n) times the sum of the absolute products (Higham, Accuracy and Stability of
Numerical Algorithms, section 3.1). They hold for BLAS, blocked or with fused multiply-add.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular

from fitplug.errors import DesignError

Array: TypeAlias = npt.NDArray[np.float64]

UNIT = 2.0**-53
"""Relative error of one rounded operation."""

_LAST_DIGITS = 1e-13


_NUMPY_NUMBERS = frozenset(np.dtype(code).type for code in "efdbBhHiIlLqQ")


def python_number(value: Any) -> int | float | None:
    """An int or float of exactly these types or of NumPy's, as Python's own; None for all else.

    A subclass may say one thing and compare as another, so it is no number that privacy rests on.
    """
    if type(value) in (int, float):
        return value
    return value.item() if type(value) in _NUMPY_NUMBERS else None


def exact_number(value: Any) -> Fraction | None:
    """The rational number that a finite int, float, Fraction or Decimal of exactly these types, or
    a number of NumPy, is; None for all else.
    """
    number = value if type(value) in (Fraction, Decimal) else python_number(value)
    try:
        return None if number is None else Fraction(number)
    except (ValueError, OverflowError):  # not finite
        return None


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


_WRITTEN_OUT = 1e12
"""Up to which numbers are, for people."""


def above(value: float, digits: int = 6) -> str:
    """To so many digits for people, rounded up: no cost is shown less than it is, but for the last
    digits of a float, by which a third or a tenth is never met.
    """
    least = value * (1 - _LAST_DIGITS)
    return _written(float(Context(digits, ROUND_CEILING).create_decimal(least)), digits)


def below(value: float, digits: int = 6) -> str:
    """To so many digits for people, rounded down: for bounds, and for what is left."""
    most = value * (1 + _LAST_DIGITS)
    return _written(float(Context(digits, ROUND_FLOOR).create_decimal(most)), digits)


def _written(value: float, digits: int) -> str:
    """A number of so many digits: 12,350 rather than 1.235e+04."""
    value += 0.0  # zero has no sign
    whole = 10.0**digits <= abs(value) < _WRITTEN_OUT
    return f"{value:,.0f}" if whole else f"{value:,.{digits}g}"


def ceil_sqrt(exact: Fraction) -> float:
    """The smallest float whose square is >= `exact` >= 0."""
    value = math.sqrt(float(exact))
    while Fraction(value) ** 2 < exact:
        value = math.nextafter(value, math.inf)
    while value > 0 and Fraction(math.nextafter(value, 0)) ** 2 >= exact:
        value = math.nextafter(value, 0)
    return value


def exact_product(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """a @ b without rounding or wrapping, for int64 or Python integers: int64 if no product of
    entries this large can leave it, else Python integers.

    Factors too large for floats to be exact are split into high and low digits:
    NumPy multiplies integers without BLAS, 26 times as slowly at n = 1024.
    """
    sizes = largest(a), largest(b)
    bound = a.shape[1] * sizes[0] * sizes[1]
    if bound < 2**53:
        return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64)
    if sizes[0] < sizes[1]:
        return exact_product(b.T, a.T).T
    shift = sizes[0].bit_length() // 2
    high, low = a >> shift, a & (2**shift - 1)
    # Where the whole fits into int64, a part that wraps is wrapped back by the sum.
    kind = np.int64 if bound < 2**63 else object
    upper, lower = (exact_product(part, b).astype(kind) for part in (high, low))
    return np.asarray(upper * 2**shift + lower)


def largest(a: npt.NDArray[Any]) -> int:
    """The largest absolute value, exact."""
    # Not through abs, which wraps at -2**63.
    return max(int(a.max()), -int(a.min()))


def norm_above(rows: Array, axis: int | None = None) -> Array:
    """Upper bounds on the Euclidean norms of `rows` along `axis` (None: Frobenius)."""
    size = rows.size if axis is None else rows.shape[axis]
    squares = np.sum(rows * rows, axis=axis)
    return np.asarray(np.sqrt(squares) * (1 + gamma(size)))


def product_with_bound(a: Array, b: Array) -> tuple[Array, Array]:
    """a @ b and an entrywise bound on its rounding error."""
    error = np.abs(a) @ np.abs(b)
    error *= gamma(a.shape[1])
    return a @ b, error


def inverse_norms_above(L: Array, M: Array, *, L_error: Array | None = None) -> Array:
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


def inverse_norm_above(K: Array) -> float:
    """An upper bound on |K^-1|_2 for a square K (n, n). Raises DesignError as above."""
    X, residual = inverse_with_residual(K)
    return float(norm_above(X)) / (1 - residual)


def inverse_with_residual(K: Array) -> tuple[Array, float]:
    """X (n, n) next to the inverse of K, and a bound on |I - K X|_2, below 1/2. Raises DesignError
    as above.
    """
    try:
        X: Array = np.linalg.inv(K).astype(np.float64)
    except np.linalg.LinAlgError:
        X = np.zeros_like(K)
    return X, _residual(K, X)


def _residual(M: Array, X: Array) -> float:
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
