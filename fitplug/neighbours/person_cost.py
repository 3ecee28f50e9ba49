"""The largest cost of a person with several records: exact where possible, else bounded.

The cost of a difference is the sum of the products of all pairs of its records
(`fitplug.neighbours.persons`), and the largest over all differences is wanted. There may be
more differences than can be listed. Four methods are tried in this order:

1. Without symmetric attributes, if the differences are few, list them.
2. Each period is a slot for one record; a dense cell has several slots if symmetric attributes also
   distinguish periods. Each pair of slots gets its largest product. With at most 16 slots, try all
   sets of slots.
3. With more slots, the sum is at most that of k slots, where each slot counts its own product and
   the k - 1 largest positive products with other slots.
4. If this bound may be above the largest cost, a branch and bound finds the largest cost, or a
   bound within its limit of work (`fitplug.neighbours.person_search`).

The first three work with floats and with Python integers, without rounding of integers. The proofs
are in docs/theory/persons.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fitplug.neighbours.person_ascent import ascend, list_costliest_records, list_starts
from fitplug.neighbours.person_search import MOST_WORK, search_costliest
from fitplug.neighbours.person_stars import take_partners
from fitplug.neighbours.persons import PersonRecords, RecordProducts, RecordSets
from fitplug.numeric import AnyArray, IntArray

MOST_SLOTS, MOST_LISTED = 16, 1_000_000
"""The most slots for the second method, and the most differences for the first."""


@dataclass(frozen=True, eq=False)
class LargestCost:
    """Bounds on the largest cost of a person.

    Attributes:
        of_cells: A bound on the cost of persons who have a record in each dense cell, shape (D,).
        is_exact: Whether the largest of these bounds is the largest cost itself.
        costly: Costly persons that the search found, or None.
    """

    of_cells: AnyArray
    is_exact: bool
    costly: RecordSets | None = None


def upper_largest_cost(
    products: RecordProducts, claimed: int | None = None, most_work: int = MOST_WORK
) -> LargestCost:
    """Bound the costs of all differences that have a record in a dense cell from above.

    Args:
        products: The products of records, integers or floats.
        claimed: A bound on the largest cost, which is returned if the search proves it and a better
            bound would depend on the duration of the search. A plan claims one, so that programs
            that search for a longer or a shorter time can verify it.
        most_work: About the most sums of a search.
    """
    if _can_list(products.person, MOST_LISTED):
        return LargestCost(_list_costs(products), True)
    of_cells, is_exact = _upper_by_pairs(products)
    if is_exact:
        return LargestCost(of_cells, is_exact)
    searched = search_costliest(products, most_work, claimed)
    if searched is None:
        return LargestCost(of_cells, is_exact)
    return LargestCost(np.minimum(of_cells, searched.bound), searched.is_exact, searched.costly)


def _upper_by_pairs(products: RecordProducts) -> tuple[AnyArray, bool]:
    """Bound the costs by the largest products of each pair of places.

    Returns:
        `of_cells` and `is_exact` of `LargestCost`.
    """
    person, room = products.person, products.person.room
    squares, paired = merge_places(products)
    is_exact = not products.crosses
    if len(squares) * room > MOST_SLOTS:
        return _upper_by_rows(squares, paired, person)[person.places], is_exact
    # Each place has a slot for each record that a person may have there.
    slots = np.repeat(np.arange(len(squares)), room)
    paired = paired[np.ix_(slots, slots)]
    paired[np.arange(len(slots)), np.arange(len(slots))] = squares[slots]
    of_slot = find_largest_by_slot(sum_over_subsets(paired), len(slots), person.most)
    sets = len(person.differing_sets) - (person.always_differing is not None)
    return of_slot[::room][person.places], is_exact or (person.has_one_cell_each and not sets)


def count_differences(person: PersonRecords) -> int:
    """Count the differences of a person without symmetric attributes."""
    counts = [1] + [0] * person.most
    for size in np.bincount(person.periods).tolist():
        for records in range(person.most, 0, -1):
            counts[records] += counts[records - 1] * size
    return sum(counts) - 1


def find_largest_by_slot(of_set: AnyArray, count: int, most: int) -> AnyArray:
    """Find the largest value over the sets of at most k slots that contain each slot, (slots,).

    Args:
        of_set: The value of each set of slots, shape (2^slots,). The bits of an index are the set.
        count: The number of slots.
        most: k.
    """
    has = (np.arange(2**count)[:, None] >> np.arange(count)) & 1 > 0
    allowed = has.sum(axis=1) <= most
    return np.array([of_set[allowed & has_slot].max() for has_slot in has.T], dtype=of_set.dtype)


def sum_over_subsets(pairs: AnyArray) -> AnyArray:
    """Sum a symmetric matrix (T, T) over all pairs of each subset of its indices, shape (2^T,)."""
    total = np.zeros(1, dtype=pairs.dtype)
    for t, row in enumerate(pairs):
        crossing = np.zeros(1, dtype=pairs.dtype)
        for product in row[:t]:
            crossing = np.concatenate([crossing, crossing + product])
        total = np.concatenate([total, total + 2 * crossing + row[t]])
    return total


def merge_places(products: RecordProducts) -> tuple[AnyArray, AnyArray]:
    """Find the largest products of records by place.

    Returns:
        The products of a record with itself, shape (places,), and of two different records,
        (places, places). Where places have room for one record, the diagonal is meaningless.
    """
    person = products.person
    order = np.argsort(person.places, kind="stable")
    starts = np.searchsorted(person.places[order], np.arange(person.place_count))
    ordered = products.largest[np.ix_(order, order)]
    merged = np.maximum.reduceat(np.maximum.reduceat(ordered, starts, axis=0), starts, axis=1)
    return np.maximum.reduceat(np.diagonal(products.same)[order], starts), np.asarray(merged)


def list_differences(products: RecordProducts) -> tuple[IntArray, AnyArray]:
    """List all differences of a person without symmetric attributes, and their costs.

    Returns:
        The dense cells of each difference's records, shape (v, k), padded with -1; and the costs,
        (v,).
    """
    person, pairs = products.person, products.same
    order = np.argsort(person.periods, kind="stable")
    members = np.zeros((1, 0), dtype=np.int64)
    costs = np.zeros(1, dtype=pairs.dtype)
    listed, listed_costs = [], []
    for size in range(1, person.most + 1):
        longer, sums = [], []
        for cell in order.tolist():
            # Records are added in the order of their periods, so that each set is listed once.
            earlier = (
                person.periods[members[:, -1]] < person.periods[cell]
                if members.shape[1]
                else np.ones(len(members), dtype=bool)
            )
            shorter = members[earlier]
            crossing = pairs[cell][shorter].sum(axis=1) if shorter.shape[1] else 0
            longer.append(np.column_stack([shorter, np.full(len(shorter), cell)]))
            sums.append(costs[earlier] + 2 * crossing + pairs[cell, cell])
        members, costs = np.concatenate(longer), np.concatenate(sums)
        padding = np.full((len(members), person.most - size), -1, dtype=np.int64)
        listed.append(np.concatenate([members, padding], axis=1))
        listed_costs.append(costs)
    return np.concatenate(listed), np.concatenate(listed_costs)


def _list_costs(products: RecordProducts) -> AnyArray:
    """Find the largest cost of all differences with a record in each cell, by listing them."""
    best = np.diagonal(products.same).copy()
    members, costs = list_differences(products)
    for cells in members.T:
        np.maximum.at(best, cells[cells >= 0], costs[cells >= 0])
    return best


def _upper_by_rows(squares: AnyArray, paired: AnyArray, person: PersonRecords) -> AnyArray:
    """Bound the cost of k records, one of them in a given place, for each place, (places,).

    Args:
        squares: The products of a record with itself, from `merge_places`.
        paired: The products of two records, from `merge_places`.
        person: Which records a person may have.
    """
    others, crossing = person.most - 1, np.maximum(paired, 0)
    if person.room == 1:
        crossing[np.arange(len(squares)), np.arange(len(squares))] = 0
    of_row = squares + take_partners(crossing, person.room, others).sum(axis=1)
    ordered = np.repeat(np.sort(of_row)[::-1], person.room)
    # A place that is not among the k largest replaces the last of them.
    return np.asarray(ordered[:others].sum() + np.minimum(ordered[others], of_row))


_SEARCHED = 20_000_000
"""The most sums of a branch and bound."""

_DRAWS = 3
"""The number of searches for a difference with a record in each cell."""

_MOST_LISTED = 20_000
"""The most differences to list in each search: a design searches some tens of times."""


def find_costly_differences(products: RecordProducts, most: int) -> RecordSets:
    """Find differences of large cost, the costliest first.

    Args:
        products: The products of records, as floats.
        most: About the number of differences wanted.

    Returns:
        At least one difference. Without symmetric attributes, if the differences are few, the first
        one has the largest cost, up to rounding.
    """
    if _can_list(products.person):
        return _sort_by_cost(products, _search_all(products, most))
    return _sort_by_cost(products, ascend(products, list_starts(products, most)))


def find_costly_at_cells(products: RecordProducts, most: int, spread: float) -> RecordSets:
    """Find differences of large cost with a record in each of some cells, the costliest first.

    Args:
        products: The products of records, as floats.
        most: About the number of cells for which differences are wanted.
        spread: The size of random favours of cells, relative to the largest cost of a record.
            Without it, differences for different cells often have the same other records.
    """
    if _can_list(products.person):
        return _sort_by_cost(products, _search_all(products, 0))
    starts = list_costliest_records(products, most)
    starts = starts.take(np.tile(np.arange(len(starts)), _DRAWS))
    noise = np.random.default_rng(0).uniform(-spread, spread, (len(starts), len(products.same)))
    favour = noise * float(np.diagonal(products.same).max())
    return _sort_by_cost(products, ascend(products, starts, keeps_first=True, favour=favour))


def _sort_by_cost(products: RecordProducts, persons: RecordSets) -> RecordSets:
    """Sort normalised persons, without repetitions, the costliest first."""
    persons = persons.leave_out()
    return persons.take(np.argsort(-products.compute_costs(persons), kind="stable"))


def find_missed_differences(products: RecordProducts, most: int) -> RecordSets | None:
    """Find differences that the ascent may miss, by listing all or by branch and bound.

    Args:
        products: The products of records, as floats.
        most: About the number of differences wanted, if all are listed.

    Returns:
        Some differences; None where `find_costly_differences` misses none.
    """
    if _can_list(products.person):
        return None
    if _can_list(products.person, MOST_LISTED):
        return _sort_by_cost(products, _search_all(products, most))
    searched = search_costliest(products, _SEARCHED)
    return None if searched is None else searched.costly


def _can_list(person: PersonRecords, most: int = _MOST_LISTED) -> bool:
    """Tell whether a person has at most `most` differences, and no symmetric attribute."""
    return not len(person.differing_sets) and count_differences(person) <= most


def _search_all(products: RecordProducts, most: int) -> RecordSets:
    """List all differences, and take the costliest of all and the costliest at each cell."""
    members, costs = list_differences(products)
    order = np.argsort(-costs, kind="stable")
    chosen = dict.fromkeys(order[:most].tolist())
    # The last entry is for -1, no record.
    costliest = np.full(len(products.person.periods) + 1, len(order))
    for cells in members[order].T:
        np.minimum.at(costliest, cells, np.arange(len(order)))
    chosen |= dict.fromkeys(order[costliest[:-1]].tolist())
    chosen_cells = members[list(chosen)]
    shape = (*chosen_cells.shape, len(products.person.sizes))
    return RecordSets(chosen_cells, np.zeros(shape, dtype=np.int64)).normalise()
