"""Exact numbers: rational numbers as they are given, and products of integers without rounding."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from fitplug.numeric.arrays import AnyArray, IntArray
from fitplug.numeric.rounding import ceil_float

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
