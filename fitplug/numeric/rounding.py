"""Exact numbers, and outward rounding: floats proven to lie on the safe side of an exact number.

The bounds on rounding errors are the classical ones: a sum of n products has an error of at most
gamma(n) times the sum of the absolute products, in any order of summation (Higham, Accuracy and
Stability of Numerical Algorithms, section 3.1). They hold for BLAS, blocked or with fused
multiply-add. docs/theory/integer-mechanism.md bounds the variances of a plan with them.

Exact are rational numbers as they are given, and products of integers without rounding.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from scipy.linalg import solve_triangular

from fitplug.errors import DesignError
from fitplug.numeric.arrays import AnyArray, FloatArray, IntArray

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


ExactNumber: TypeAlias = float | Fraction | Decimal
"""A number as people write it; `read_exact_number` says which one each stands for."""

_NUMPY_NUMBERS = frozenset(np.dtype(code).type for code in "efdbBhHiIlLqQ")


def read_python_number(value: Any) -> int | float | None:
    """Convert an int, a float or a number of NumPy to Python's own type.

    An instance of a subclass may print as one number and compare as another, so that privacy
    cannot rest on it.

    Returns:
        The number, or None for every other type, subclasses of int and float included.
    """
    if type(value) in (int, float):
        return value
    return value.item() if type(value) in _NUMPY_NUMBERS else None


def read_exact_number(value: Any) -> Fraction | None:
    """Convert a finite int, float, Fraction, Decimal or number of NumPy to a Fraction.

    A float is the shortest decimal that is read as this float, which Python prints: 0.1 is one
    tenth. This decimal may be below the float by half of its last bit, so a bound that other code
    computed is kept by `Fraction(bound)`. All other numbers are converted exactly.

    Returns:
        The number, or None for every other type, subclasses included, and for infinity and nan.
    """
    number = value if type(value) in (Fraction, Decimal) else read_python_number(value)
    try:
        if type(value) in (float, np.float64):
            return Fraction(repr(number))
        return None if number is None else Fraction(number)
    except (ValueError, OverflowError):  # not finite
        return None


def ceil_written(exact: Fraction) -> float:
    """Return the smallest float that is >= `exact`, or that `read_exact_number` reads as such."""
    value = ceil_float(exact)
    below = math.nextafter(value, -math.inf)
    return below if _read_float(below) >= exact else value


def floor_written(exact: Fraction) -> float:
    """Return the largest float that `read_exact_number` reads as a number <= `exact`."""
    value = 0.0 - ceil_float(-exact)
    above = math.nextafter(value, math.inf)
    if _read_float(above) <= exact:
        return above
    return value if _read_float(value) <= exact else math.nextafter(value, -math.inf)


def _read_float(value: float) -> Fraction:
    """Read a float as `read_exact_number` does; infinity as more than all other floats."""
    exact = read_exact_number(value)
    return Fraction(2**1024) * (1 if value > 0 else -1) if exact is None else exact


def multiply_exactly(a: AnyArray, b: AnyArray) -> AnyArray:
    """Compute a @ b without rounding or overflow.

    If floats would round, a factor is split into high and low digits, because NumPy multiplies
    integers without BLAS, which is 26 times slower at n = 1024.

    Args:
        a: Shape (..., k, m), int64 or Python integers.
        b: Shape (..., m, n), int64 or Python integers.

    Returns:
        Shape (..., k, n): int64 if m products of the largest entries cannot leave its range, else
        Python integers.
    """
    sizes = find_largest_entry(a), find_largest_entry(b)
    bound = a.shape[-1] * sizes[0] * sizes[1]
    if bound < 2**53:
        return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64)
    if sizes[0] < sizes[1]:
        return multiply_exactly(b.swapaxes(-1, -2), a.swapaxes(-1, -2)).swapaxes(-1, -2)
    shift = sizes[0].bit_length() // 2
    high, low = a >> shift, a & (2**shift - 1)
    # If the result fits into int64, an overflow in one term is undone by the sum: both are modulo
    # 2**64.
    dtype = np.int64 if bound < 2**63 else object
    upper, lower = (multiply_exactly(digits, b).astype(dtype) for digits in (high, low))
    return np.asarray(upper * 2**shift + lower)


def find_largest_entry(a: AnyArray) -> int:
    """Return the largest absolute value of an array of integers, exactly."""
    # np.abs would overflow at -2**63.
    return max(int(a.max()), -int(a.min()))


def make_room(values: AnyArray, growth: int) -> AnyArray:
    """Convert integers to Python's own, if numbers `growth` times as large may leave int64.

    If they cannot, integers of fewer bits become int64, in which the larger numbers have room.
    """
    if values.dtype.kind not in "iu":
        return values
    if not values.size or find_largest_entry(values) * growth < 2**63:
        return np.asarray(values, dtype=np.int64)
    return values.astype(object)


def multiply_numbers(values: AnyArray, numbers: IntArray) -> AnyArray:
    """Multiply entry by entry without overflow: int64 if it can hold the products."""
    if not values.size:
        return values
    room = make_room(values, find_largest_entry(numbers))
    return np.asarray(room * numbers.astype(room.dtype))
