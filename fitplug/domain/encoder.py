"""Encoders: the protocol that turns the values of columns into codes."""

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
"""The words in messages for values of each type that an attribute may expect."""

MOST_NUMBER = 2**53
"""Edges and bounds are below this, and floats hold all integers up to it."""

Codes: TypeAlias = IntArray


class Encoder(Protocol):
    """Turns the values of a column into codes: a codec, or the encoder of row weights."""

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
        """Compute the codes (n,) of the `numbers` (n,) that a file stores for values."""


def widen_to_int64(array: AnyArray) -> Codes:
    """Convert integers to int64; larger ones become the largest int64."""
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
    """Say why a column cannot be encoded, without revealing its values."""
    return (
        f"the domain expects {TYPE_NAMES[expected]}, but the column has {actual}. Convert the "
        "column, or change the domain."
    )
