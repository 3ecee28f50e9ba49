"""Runs: sets of cells as sorted intervals.

Unions and intersections take time in proportion to the number of intervals, not of cells.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Runs: TypeAlias = list[tuple[int, int]]
"""A set of cells: sorted intervals that do not touch, each by its first cell and the cell after its
last one.
"""


def union(runs: Iterable[tuple[int, int]]) -> Runs:
    """Unite intervals in any order, which may overlap and be empty."""
    united: Runs = []
    for first, end in sorted(runs):
        if united and first <= united[-1][1]:
            united[-1] = united[-1][0], max(end, united[-1][1])
        elif first < end:
            united.append((first, end))
    return united


def intersection(left: Runs, right: Runs) -> Runs:
    """Intersect two sets of cells."""
    common: Runs = []
    i = j = 0
    while i < len(left) and j < len(right):
        first, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if first < end:
            common.append((first, end))
        if left[i][1] <= right[j][1]:
            i += 1
        else:
            j += 1
    return common


def complement(runs: Runs, size: int) -> Runs:
    """Return the cells of 0, ..., size - 1 that are not in a set."""
    ends = [0, *(end for run in runs for end in run), size]
    return [(a, b) for a, b in zip(ends[::2], ends[1::2], strict=True) if a < b]
