"""Arguments: what users give, checked in one way everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np

from fitplug.numeric.arrays import AnyArray


def read_array(given: Any) -> AnyArray:
    """Convert lists or an array of any library to an array.

    Args:
        given: What a user gave as an array.

    Returns:
        The array. Its dtype is object if NumPy makes no array of what was given, such as a list of
        rows of different lengths, so that callers need only check the dtype.
    """
    try:
        return np.asarray(given)
    except (TypeError, ValueError):
        return np.asarray(None)


def is_positive_integer(value: Any) -> bool:
    """Whether a value is an int from 1, and neither a boolean nor another number."""
    return type(value) is int and value >= 1
