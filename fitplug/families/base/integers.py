"""Integers: the limits that a plan keeps, and integers of any size packed into arrays of int64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fitplug.numeric import AnyArray, IntArray, find_largest_entry

MAX_ENTRY = 2**52
"""Bound on the entries of a plan's integer matrices, which floats then hold exactly."""

LEAST_NOISE, LARGEST_NOISE = 1.0, 2.0**55
"""Least and most noise (std) of a plan. With less, answers are next to exact; with more, they might
not stay within 64 bits, 128 standard deviations away."""

SATURATION = 2**62
"""Answers of strategies are clamped here: see `IntegerStrategy.max_records`. The clamp costs no
privacy, and so nothing that is done depends on whether the exact answers reach it."""

FEWEST_RECORDS = 10**9 // 2
"""A plan whose integers hold fewer records, in whichever cells they lie, is refused."""


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
    return np.concatenate([[len(digits)], *(digit.astype(np.int64) for digit in digits)])


def unpack_integers(packed: IntArray) -> AnyArray:
    """Unpack what `pack_integers` returned: int64 or Python integers, shape (numbers,)."""
    digits = packed[1:].reshape(int(packed[0]), -1)
    if len(digits) == 1:
        return np.asarray(digits[0])
    integers = digits[-1].astype(object)
    for digit in digits[-2::-1]:
        integers = (integers << _BITS) + digit.astype(object)
    return np.asarray(integers)


class ExactTotals:
    """Totals of integers that are added piece by piece, without overflow.

    Args:
        shapes: The shape of each total.

    Attributes:
        totals: int64 or, where that might not hold them, Python integers.
    """

    def __init__(self, shapes: Sequence[tuple[int, ...]]) -> None:
        self.totals: list[AnyArray] = [np.zeros(shape, dtype=np.int64) for shape in shapes]
        self._bound, self._is_int64 = 0, True

    def make_room(self, values: AnyArray) -> None:
        """Make room for adding each of some values to one entry at most, and once."""
        if not self._is_int64 or not values.size:
            return
        self._bound += find_largest_entry(values)
        if values.dtype == object or self._bound >= 2**63:
            self.totals = [total.astype(object) for total in self.totals]
            self._is_int64 = False


def may_be_clamped(noisy: IntArray, noise_std: float) -> bool:
    """Tell whether an exact answer may have been clamped, so that estimates are biased.

    That is so if a noisy answer is within 64 standard deviations of the clamp, or beyond. The
    result depends on noisy answers alone, so it may be published. With half of `max_records` and
    a standard deviation of at most 2^54 it is True with a probability of 10^-880 at most.
    """
    return bool(noisy.size) and find_largest_entry(noisy) >= SATURATION - 64 * noise_std


def _fits(values: AnyArray) -> bool:
    """Tell whether Python integers fit into 64 bits."""
    return int(values.max()) < 2**63 and int(values.min()) >= -(2**63)
