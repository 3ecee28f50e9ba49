"""Differences between neighbours, among the cells whose columns of A are known.

This uses only the definition of each unit of privacy: it lists or searches the sets of signed
records by which neighbours differ, and measures |A v|^2 of each.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fitplug.numeric import IntArray
from fitplug.sensitivity.columns import Columns
from fitplug.workload import ReplaceOne, Unit

Difference: TypeAlias = tuple[tuple[int, int], ...]
"""The columns of some records, each with 1 if the record is added and -1 if it is removed."""

_MEASURED_EXACTLY = 256
"""The number of differences, the costliest in floating point, to measure again in integers."""

_MOST_PRODUCTS = 2**35
"""The most multiplications for distances of all pairs of columns."""

_MOST_LISTED = 20_000
"""The most persons that are listed instead of searched."""

_SEARCHED = 2048
"""The most columns in a search for persons: the costliest, and others."""

_STARTS, _SWEEPS = 16, 4
"""The number of records from which a search starts, and how often it replaces each record."""

_ASKED_AGAIN = 3
"""The number of costliest differences that the path answers again, with other records present."""

_CHUNK = 2**22
"""The most distances in memory at a time."""

_LIMB = 21
"""The bits of integers whose squares int64 can add up over 2^20 rows."""


@dataclass(frozen=True)
class MeasuredDifferences:
    """Measured differences between neighbours.

    Attributes:
        count: The number of differences.
        is_complete: Whether these are all differences in the unit.
        largest_squared: The largest |A v|^2, exact, repetitions included.
        costliest: The costliest differences, the first with the largest |A v|^2.
        repeats: The number of times that neighbours differ by the same difference.
        has_public_change: Whether the public totals of two neighbours differ.
    """

    count: int
    is_complete: bool
    largest_squared: int
    costliest: tuple[Difference, ...]
    repeats: int = 1
    has_public_change: bool = False


def measure_differences(columns: Columns, unit: Unit) -> MeasuredDifferences:
    """Measure the differences between neighbours in a unit.

    Args:
        columns: The columns of the cells in which records may be.
        unit: The unit of privacy.
    """
    if isinstance(unit, ReplaceOne):
        return _measure_pairs(columns, unit)
    if unit.distinct:
        return _measure_persons(columns, unit.records, np.arange(len(columns.cells)))
    if unit.once_per is not None:
        periods = columns.cells[:, columns.names.index(unit.once_per)]
        return _measure_persons(columns, unit.records, periods)
    return _measure_records(columns, unit.records)


def _measure_records(columns: Columns, records: int) -> MeasuredDifferences:
    """Measure `records` records in one cell, for each cell."""
    squares = sum_squares(columns.matrix)
    order = sorted(range(len(squares)), key=lambda c: -squares[c])[:_ASKED_AGAIN]
    return MeasuredDifferences(
        count=len(squares),
        is_complete=columns.is_all,
        largest_squared=max(squares, default=0) * records**2,
        costliest=tuple(((c, 1),) for c in order),
        repeats=records,
    )


def _measure_pairs(columns: Columns, unit: ReplaceOne) -> MeasuredDifferences:
    """Measure pairs of cells between which a record may move."""
    public = [a for a, name in enumerate(columns.names) if name in unit.within]
    _, regions = np.unique(columns.cells[:, public], axis=0, return_inverse=True)
    regions = regions.ravel() if public else np.zeros(len(columns.cells), dtype=np.int64)
    is_complete, count, has_public_change = columns.is_all, 0, False
    differences: list[Difference] = []
    for region in range(int(regions.max(initial=-1)) + 1):
        members = np.flatnonzero(regions == region)
        totals = columns.totals[:, members]
        has_public_change |= bool((totals != totals[:, :1]).any())
        if len(members) ** 2 * len(columns.matrix) > _MOST_PRODUCTS:
            most = math.isqrt(_MOST_PRODUCTS // len(columns.matrix))
            members, is_complete = _take_costliest(columns, members, most), False
        count += len(members) * (len(members) - 1) // 2
        differences += _rank_pairs(columns.matrix, members)
    return _measure_exactly(columns, differences, count, is_complete, has_public_change)


def _rank_pairs(matrix: IntArray, members: IntArray) -> list[Difference]:
    """List the pairs of columns that are farthest apart, by distances in floating point."""
    # Shifting all columns leaves their distances unchanged, and fewer digits cancel.
    moved = (matrix[:, members] - matrix[:, members[:1]]).astype(np.float64)
    squares = np.einsum("ij,ij->j", moved, moved)
    step = max(1, _CHUNK // max(len(members), 1))
    ranked: list[tuple[float, int, int]] = []
    for start in range(0, len(members), step):
        part, later = slice(start, start + step), slice(start, None)
        squared = squares[part, None] + squares[later] - 2.0 * (moved[:, part].T @ moved[:, later])
        least = ranked[-1][0] if len(ranked) == _MEASURED_EXACTLY else 0.0
        costly = np.flatnonzero(squared > least)
        if len(costly) > _MEASURED_EXACTLY:
            largest = np.argpartition(squared.ravel()[costly], -_MEASURED_EXACTLY)
            costly = costly[largest[-_MEASURED_EXACTLY:]]
        first, second = np.unravel_index(costly, squared.shape)
        ranked += zip(
            squared[first, second].tolist(),
            (start + first).tolist(),
            (start + second).tolist(),
            strict=True,
        )
        ranked = sorted(ranked, reverse=True)[:_MEASURED_EXACTLY]
    return [((int(members[i]), 1), (int(members[j]), -1)) for _, i, j in ranked]


def _measure_persons(columns: Columns, records: int, periods: IntArray) -> MeasuredDifferences:
    """Measure persons with up to `records` records, at most one of each period.

    Args:
        columns: The columns.
        records: The most records of a person.
        periods: The period of each column (c,).
    """
    listed = list(itertools.islice(_list_persons(periods, records), _MOST_LISTED + 1))
    if len(listed) <= _MOST_LISTED:
        persons, count, is_complete = listed, len(listed), columns.is_all
    else:
        persons, count = _search_persons(columns, records, periods)
        is_complete = False
    differences = [tuple((c, 1) for c in person) for person in persons]
    return _measure_exactly(columns, differences, count, is_complete)


def _list_persons(periods: IntArray, records: int) -> Iterator[tuple[int, ...]]:
    """List the records of all persons, as columns."""
    of_period = [np.flatnonzero(periods == t).tolist() for t in np.unique(periods)]
    for number in range(1, min(records, len(of_period)) + 1):
        for chosen in itertools.combinations(of_period, number):
            yield from itertools.product(*chosen)


def _search_persons(
    columns: Columns, records: int, periods: IntArray
) -> tuple[list[tuple[int, ...]], int]:
    """Search costly persons: records are added one by one, and then each is replaced.

    Returns:
        Persons, and the number of persons that were compared.
    """
    members = _take_costliest(columns, np.arange(len(columns.cells)), _SEARCHED)
    matrix = columns.matrix[:, members].astype(np.float64)
    of_member, products = periods[members], matrix.T @ matrix
    squares = products.diagonal()
    order = np.argsort(-squares, kind="stable")
    spread = np.linspace(0, len(order) - 1, _STARTS // 2).astype(np.int64)
    starts = dict.fromkeys([*order[: _STARTS // 2].tolist(), *order[spread].tolist()])
    persons: dict[tuple[int, ...], None] = {}
    looked_at = 0
    for start in starts:
        person = [start]
        for turn in range(records - 1 + _SWEEPS * records):
            rest = person
            if turn >= records - 1:  # from now on, a record is taken out and added again
                rest = person[1:]
            gains = squares + 2 * products[rest].sum(axis=0)
            free = ~np.isin(of_member, of_member[rest])
            looked_at += int(free.sum())
            gains[~free] = -np.inf
            best = int(gains.argmax())
            if gains[best] > 0 or rest is not person:
                person = [*rest, best] if gains[best] > 0 else rest
            if not person:
                break
        persons[tuple(sorted(members[person].tolist()))] = None
    return list(persons), looked_at


def _take_costliest(columns: Columns, members: IntArray, most: int) -> IntArray:
    """Take `most` columns: half of them the longest, half of them evenly from the others."""
    if len(members) <= most:
        return members
    values = columns.matrix[:, members].astype(np.float64)
    order = np.argsort(-np.einsum("ij,ij->j", values, values), kind="stable")
    spread = np.linspace(most // 2, len(order) - 1, most - most // 2).astype(np.int64)
    return members[np.unique(np.concatenate([order[: most // 2], order[spread]]))]


def _measure_exactly(
    columns: Columns,
    differences: Sequence[Difference],
    count: int,
    is_complete: bool,
    has_public_change: bool = False,
) -> MeasuredDifferences:
    """Measure differences in integers."""
    squares: list[int] = []
    for start in range(0, len(differences), _MEASURED_EXACTLY):
        some = differences[start : start + _MEASURED_EXACTLY]
        squares += sum_squares(_add_up(columns.matrix, some))
    order = sorted(range(len(squares)), key=lambda v: -squares[v])[:_ASKED_AGAIN]
    return MeasuredDifferences(
        count=count,
        is_complete=is_complete,
        largest_squared=max(squares, default=0),
        costliest=tuple(differences[v] for v in order),
        has_public_change=has_public_change,
    )


def _add_up(matrix: IntArray, differences: Iterable[Difference]) -> IntArray:
    """Compute A v (n, v) of differences."""
    return np.stack(
        [
            sum((sign * matrix[:, c] for c, sign in v), np.zeros(len(matrix), dtype=np.int64))
            for v in differences
        ],
        axis=1,
    )


def sum_squares(matrix: IntArray) -> list[int]:
    """Compute the squared length of each column of integers (n, c), exact."""
    totals = [0] * matrix.shape[1]
    for start in range(0, len(matrix), 2**20):
        left = np.abs(matrix[start : start + 2**20])
        limbs = []
        while left.any():
            limbs.append(left & (2**_LIMB - 1))
            left = left >> _LIMB
        for (i, a), (j, b) in itertools.product(enumerate(limbs), repeat=2):
            sums = (a * b).sum(axis=0).tolist()
            totals = [t + (s << _LIMB * (i + j)) for t, s in zip(totals, sums, strict=True)]
    return totals
