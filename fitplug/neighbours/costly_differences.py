"""Search for costly differences: the records of a person who costs the most, or nearly.

The search gives a lower bound on the largest cost, and the differences that a design must heed.
Nothing rests on its success: `fitplug.neighbours.person_cost` bounds the cost from above.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fitplug.neighbours.person_ascent import Record, ascend, list_starts, pack_records
from fitplug.neighbours.person_cost import (
    can_partition,
    count_differences,
    list_differences,
    list_periods,
    partition_subsets,
    sum_over_subsets,
)
from fitplug.neighbours.person_records import RecordSets
from fitplug.neighbours.person_search import search_costliest
from fitplug.neighbours.record_products import RecordProducts
from fitplug.numeric import BoolArray, FloatArray, IntArray

_IMPROVED = 4
"""The number of best partitions from which a search begins, where they may not be the best."""

_SEARCHED = 20_000_000
"""The most sums of a branch and bound."""

_MOST_LISTED = 20_000
"""The most differences that are listed: a design searches some tens of times."""


def find_costly_differences(products: RecordProducts, most: int) -> RecordSets:
    """Find differences of large cost, the costliest first.

    Args:
        products: The products of records, as floats.
        most: How many differences are wanted, about.

    Returns:
        At least one. The first is a difference of the largest cost but for rounding, where each
        period is one dense cell, with at most 13 periods and one symmetric attribute, and where
        there is no symmetric attribute and the differences are few.
    """
    person = products.person
    if can_partition(person):
        found = _search_partitions(products, most)
        if sum(size > 1 for size in person.sizes) > 1:
            found += [ascend(products, start) for start in found[:_IMPROVED]]
    elif not len(person.differing_sets) and count_differences(person) <= _MOST_LISTED:
        found = _search_all(products, most)
    else:
        found = [ascend(products, start) for start in list_starts(products, most)]
    different = list(dict.fromkeys(tuple(sorted(records)) for records in found))
    sets = pack_records(person, different)
    order = np.argsort(-products.compute_costs(sets), kind="stable")
    return sets.take(order)


def find_missed_differences(products: RecordProducts) -> RecordSets | None:
    """Find differences by branch and bound, where the search record by record may miss some.

    Returns:
        Some differences; None where the search misses none.
    """
    person = products.person
    is_exact = can_partition(person) and sum(size > 1 for size in person.sizes) <= 1
    is_listed = not len(person.differing_sets) and count_differences(person) <= _MOST_LISTED
    if is_exact or is_listed:
        return None
    searched = search_costliest(products, _SEARCHED)
    return None if searched is None else searched.costly


def _search_all(products: RecordProducts, most: int) -> list[list[Record]]:
    """List all differences, and take the costliest ones, and the costliest at each cell."""
    members, costs = list_differences(products)
    order = np.argsort(-costs, kind="stable")
    chosen = dict.fromkeys(order[:most].tolist())
    for cell in range(len(products.person.periods)):
        has = (members[order] == cell).any(axis=1)
        chosen[int(order[np.argmax(has)])] = None
    unlabelled = (0,) * len(products.person.sizes)
    return [[(cell, unlabelled) for cell in members[v].tolist() if cell >= 0] for v in chosen]


def _search_partitions(products: RecordProducts, most: int) -> list[list[Record]]:
    """Find the best sets of periods, with the best partition for each symmetric attribute."""
    person = products.person
    same = products.same
    varying = [a for a, size in enumerate(person.sizes) if size > 1]
    losses = [same - products.products[1 << a] for a in varying]
    parts = [_Parts.build(loss, person.sizes[a]) for loss, a in zip(losses, varying, strict=True)]
    total = sum_over_subsets(same - sum(losses)) + sum(own.best[-1] for own in parts)
    has = list_periods(person)
    chosen = _choose_sets(total, has, person.most, most)
    cell_of = np.argsort(person.periods)
    found = []
    for number in chosen.tolist():
        labels = np.zeros((person.period_count, len(person.sizes)), dtype=np.int64)
        for a, own in zip(varying, parts, strict=True):
            labels[:, a] = own.label_periods(number, person.period_count)
        periods = np.flatnonzero(has[number]).tolist()
        found.append([(int(cell_of[t]), tuple(labels[t].tolist())) for t in periods])
    return found


def _choose_sets(total: FloatArray, has: BoolArray, most: int, wanted: int) -> IntArray:
    """Choose costly sets of periods that differ from each other, the costliest first.

    They are the costliest of all, the costliest of each size, and the costliest with and without
    each period. The costliest of all are almost equal to each other, and a design that heeds them
    alone makes others costly.

    Args:
        total: The cost of each set, shape (2^T,).
        has: Which periods it has, shape (2^T, T).
        most: The most periods of a set.
        wanted: How many of the costliest sets are chosen besides.
    """
    sizes = has.sum(axis=1)
    kinds = [sizes == size for size in range(1, most + 1)]
    kinds += [own & (sizes <= most) & (sizes > 0) for column in has.T for own in (column, ~column)]
    best = [int(np.flatnonzero(kind)[np.argmax(total[kind])]) for kind in kinds if kind.any()]
    allowed = np.where((sizes > 0) & (sizes <= most), total, -np.inf)
    costliest = np.argsort(-allowed, kind="stable")[: min(wanted, np.isfinite(allowed).sum())]
    different = np.unique([*best, *costliest.tolist()])
    return different[np.argsort(-total[different], kind="stable")]


@dataclass(frozen=True, eq=False)
class _Parts:
    """The best partitions of all subsets, and how to find them.

    Attributes:
        of_part: What each subset is worth as one part, shape (2^T,).
        best: The largest sum over partitions into at most 1, 2, ... parts, each (2^T,).
    """

    of_part: FloatArray
    best: list[FloatArray]

    @classmethod
    def build(cls, pairs: FloatArray, most: int) -> _Parts:
        """Find the best partitions into at most `most` parts of all subsets of a matrix (T, T)."""
        of_part = sum_over_subsets(pairs)
        if most >= len(pairs):
            return cls(of_part, [partition_subsets(of_part, most)] * len(pairs))
        return cls(of_part, [partition_subsets(of_part, n + 1) for n in range(most)])

    def label_periods(self, number: int, T: int) -> IntArray:
        """Number the parts of the best partition of a set of T periods, shape (T,)."""
        labels = np.zeros(T, dtype=np.int64)
        subsets = np.arange(len(self.of_part))
        for part in range(len(self.best)):
            if not number:
                break
            chosen, left = number, len(self.best) - 1 - part
            if left:
                last = 1 << (number.bit_length() - 1)
                inside = subsets[(subsets & ~number == 0) & (subsets & last > 0)]
                worth = self.of_part[inside] + self.best[left - 1][number - inside]
                chosen = int(inside[np.argmax(worth)])
            labels[[t for t in range(T) if chosen >> t & 1]] = part
            number -= chosen
        return labels
