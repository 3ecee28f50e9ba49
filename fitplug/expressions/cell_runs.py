"""Runs: sets of cells as sorted runs, whose unions and parts take time for the runs alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Runs: TypeAlias = list[tuple[int, int]]
"""Runs that do not touch, in order: the first cell of each, and the one beyond its last."""


def union(runs: Iterable[tuple[int, int]]) -> Runs:
    """The cells in any of the runs, which may overlap and be empty, as sorted runs apart."""
    found: Runs = []
    for first, end in sorted(runs):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        elif first < end:
            found.append((first, end))
    return found


def intersection(left: Runs, right: Runs) -> Runs:
    """The cells in both."""
    found: Runs = []
    i = j = 0
    while i < len(left) and j < len(right):
        first, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if first < end:
            found.append((first, end))
        if left[i][1] <= right[j][1]:
            i += 1
        else:
            j += 1
    return found


def complement(runs: Runs, size: int) -> Runs:
    """The cells 0..size-1 that are in none."""
    ends = [0, *(end for run in runs for end in run), size]
    return [(a, b) for a, b in zip(ends[::2], ends[1::2], strict=True) if a < b]
