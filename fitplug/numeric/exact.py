"""Exact numbers: rational ones as they are given, and products of integers without rounding."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from fitplug.numeric.arrays import AnyArray

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


def exact_product(a: AnyArray, b: AnyArray) -> AnyArray:
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


def largest(a: AnyArray) -> int:
    """The largest absolute value, exact."""
    # Not through abs, which wraps at -2**63.
    return max(int(a.max()), -int(a.min()))
