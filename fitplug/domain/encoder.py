"""Encoders: what turns the values of columns into codes, and what codes are."""

from __future__ import annotations

import datetime
import math
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.errors import DataError
from fitplug.numeric import AnyArray, IntArray

OUTSIDE = -1
"""The code of a value that has no cell."""

TYPE_NAMES: dict[type, str] = {
    str: "strings",
    int: "integers",
    bool: "booleans",
    float: "numbers",
    datetime.date: "dates",
}
"""How messages call the values of each type that an attribute may expect."""

MOST_NUMBER = 2**53
"""Edges and bounds are below this, and up to it floats hold all integers."""

Codes: TypeAlias = IntArray


class Encoder(Protocol):
    """What turns the values of a column into codes: a codec, and the weights of rows."""

    @property
    def code_count(self) -> int:
        """Number of different codes from 0 that values may have."""

    @property
    def value_type(self) -> type:
        """Type of the values that a column must hold, one of TYPE_NAMES."""

    @property
    def null_code(self) -> int:
        """Code of null."""

    @property
    def integer_span(self) -> tuple[int, int] | None:
        """See `Codec.integer_span`."""

    def codes(self, values: npt.ArrayLike) -> Codes:
        """Compute the codes (n,) of `values` (n,)."""

    def codes_of_numbers(self, numbers: AnyArray) -> Codes:
        """Compute the codes (n,) of `numbers` (n,), as columns of files store the values."""


def widen_to_int64(array: AnyArray) -> Codes:
    """Convert integers to int64; integers that do not fit become the largest one that does."""
    # Comparing or subtracting narrow or unsigned integers wraps silently.
    if array.dtype == np.uint64:
        return np.minimum(array, np.uint64(2**63 - 1)).astype(np.int64)
    return array.astype(np.int64)


def to_float(value: Any) -> float:
    """Convert a number or null; larger integers become MOST_NUMBER, which is beyond all bounds.

    Raises:
        DataError: The value has another type.
    """
    if value is None or value != value:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise DataError(describe_wrong_type(float, type(value).__name__))
    if isinstance(value, np.floating):
        return float(value)
    return float(max(-MOST_NUMBER, min(MOST_NUMBER, value)))


def describe_wrong_type(expected: type, actual: str) -> str:
    """Say why a column cannot be coded, without a word about its values."""
    return f"the domain expects {TYPE_NAMES[expected]}, but the column has {actual}"
