"""Strides: where the answers of a part are among all answers, in few numbers."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fitplug.numeric import IntArray


class Stride(NamedTuple):
    """Some of the strategy's answers, by their numbers: start + the sum of index times stride.

    Attributes:
        start: The number of the first answer.
        shape: The number of indices along each axis; the last axis runs fastest.
        strides: The distance between the numbers of neighbours along each axis.
    """

    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of answers."""
        return math.prod(self.shape)

    @property
    def ends(self) -> tuple[int, int]:
        """The least number, and the largest plus one."""
        reach = [(n - 1) * step for n, step in zip(self.shape, self.strides, strict=True)]
        least = sum(min(one, 0) for one in reach)
        return self.start + least, self.start + sum(max(one, 0) for one in reach) + 1

    @property
    def is_run(self) -> bool:
        """Whether the numbers follow one another."""
        step = 1
        for n, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if n > 1 and stride != step:
                return False
            step *= n
        return True

    def list_numbers(self) -> IntArray:
        """List the numbers of the answers in order, shape (size,)."""
        numbers = np.full((), self.start, dtype=np.int64)
        for n, step in zip(self.shape, self.strides, strict=True):
            numbers = np.add.outer(numbers, step * np.arange(n, dtype=np.int64))
        return np.asarray(numbers).ravel()


def describe_place(place: slice | IntArray) -> tuple[Stride, ...]:
    """Describe which answers a part has, by few strides where their numbers have a pattern.

    Args:
        place: What `PartedStrategy.place` returns: a range, or numbers in the part's order, (n,).
    """
    if isinstance(place, slice):
        assert place.step in (None, 1)
        return (Stride(place.start, (place.stop - place.start,), (1,)),)
    if not len(place):
        return ()
    # Numbers at equal distances first, then such runs at equal distances, and so on.
    strides = _list_progressions(np.asarray(place))
    while True:
        merged = _merge_strides(strides)
        if len(merged) == len(strides):
            return tuple(merged)
        strides = merged


def _list_progressions(numbers: IntArray) -> list[Stride]:
    """Split numbers into runs at equal distances, shape (n,)."""
    steps = np.diff(numbers)
    # Where the run of equal steps ends that each step is in.
    changes = np.flatnonzero(np.diff(steps)) + 1
    ends = np.append(changes, len(steps))
    last = ends[np.searchsorted(changes, np.arange(len(steps)), side="right")].tolist()
    strides, at = [], 0
    while at < len(numbers):
        end = last[at] + 1 if at < len(steps) else at + 1
        step = int(steps[at]) if end > at + 1 else 1
        strides.append(Stride(int(numbers[at]), (end - at,), (step,)))
        at = end
    return strides


def _merge_strides(strides: list[Stride]) -> list[Stride]:
    """Merge neighbours that differ only in their starts, at equal distances."""
    merged, at = [], 0
    while at < len(strides):
        first, end, step = strides[at], at + 1, 0
        while end < len(strides) and strides[end][1:] == first[1:]:
            distance = strides[end].start - strides[end - 1].start
            if end > at + 1 and distance != step:
                break
            step, end = distance, end + 1
        if end == at + 1:
            merged.append(first)
        else:
            merged.append(Stride(first.start, (end - at, *first.shape), (step, *first.strides)))
        at = end
    return merged
