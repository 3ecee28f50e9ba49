"""Attributes: what all kinds of them have in common.

An attribute maps a value to a cell 0..size-1. A value outside the domain, or null, has no cell
(code -1) unless the attribute says which cell takes every other value.
"""

from __future__ import annotations

import datetime
from typing import TypeAlias

import numpy as np

from fitplug.numeric import AnyArray, IntArray

OUTSIDE = -1
"""The code of a value that has no cell."""

NAMES: dict[type, str] = {
    str: "strings",
    int: "integers",
    bool: "booleans",
    float: "numbers",
    datetime.date: "dates",
}
"""What values of each type an attribute may expect are called."""

Codes: TypeAlias = IntArray

Category: TypeAlias = str | int | bool


def as_int64(array: AnyArray) -> Codes:
    # Widen first: comparing or offsetting narrow or unsigned integers wraps silently.
    if array.dtype == np.uint64:
        return np.minimum(array, np.uint64(2**63 - 1)).astype(np.int64)
    return array.astype(np.int64)


def wrong_type(wanted: type, found: str) -> str:
    """Why a column cannot be coded; says nothing of its values."""
    return f"the domain expects {NAMES[wanted]}, but the column holds {found}"
