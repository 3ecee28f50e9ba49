"""Arguments: checks of what users give, the same everywhere."""

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
    """Return whether a value is an int >= 1, and neither a boolean nor another kind of number."""
    return type(value) is int and value >= 1
