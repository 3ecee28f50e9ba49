"""Packed integers: integers of any size as one array of int64, for files and other processes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fitplug.numeric import AnyArray, IntArray, find_largest_entry

_BITS = 62
"""The bits of each digit but the highest one, which has a sign."""


def pack_integers(arrays: Sequence[AnyArray]) -> IntArray:
    """Pack arrays of int64 or Python integers, one after another.

    Returns:
        int64, shape (1 + digits * numbers,): the number of digits, and then the lowest digit of all
        numbers, the next of all, and so on. Numbers that fit into 64 bits have one digit.
    """
    flat = [array.ravel() for array in arrays]
    if all(array.dtype != object for array in flat):
        return np.concatenate([[1], *flat], dtype=np.int64)
    rest = np.concatenate([array.astype(object) for array in flat])
    digits: list[AnyArray] = []
    while rest.size and not _fits(rest):
        digits.append(rest & (2**_BITS - 1))
        rest = rest >> _BITS
    digits.append(rest)
    return np.concatenate([[len(digits)], *(own.astype(np.int64) for own in digits)])


def unpack_integers(packed: IntArray) -> AnyArray:
    """Unpack what `pack_integers` returned: int64 or Python integers, shape (numbers,)."""
    digits = packed[1:].reshape(int(packed[0]), -1)
    if len(digits) == 1:
        return np.asarray(digits[0])
    found = digits[-1].astype(object)
    for own in digits[-2::-1]:
        found = (found << _BITS) + own.astype(object)
    return np.asarray(found)


def choose_sum_type(arrays: Sequence[AnyArray]) -> type:
    """Choose a type that holds every sum of some entries, at most one of each array."""
    largest = [find_largest_entry(array) for array in arrays if array.size]
    is_int64 = all(array.dtype != object for array in arrays) and sum(largest) < 2**63
    return np.int64 if is_int64 else object


def _fits(values: AnyArray) -> bool:
    """Tell whether Python integers fit into 64 bits."""
    return int(values.max()) < 2**63 and int(values.min()) >= -(2**63)
