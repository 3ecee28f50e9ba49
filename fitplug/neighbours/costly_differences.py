"""Search for costly differences: the records of a person who costs the most, or nearly.

The search gives a lower bound on the largest cost, and the differences that a design must heed.
Nothing rests on its success: `fitplug.neighbours.person_cost` bounds the cost from above.
"""

from __future__ import annotations

import numpy as np

from fitplug.neighbours.person_ascent import Record, ascend, list_starts, pack_records
from fitplug.neighbours.person_cost import count_differences, list_differences
from fitplug.neighbours.person_records import PersonRecords, RecordSets
from fitplug.neighbours.person_search import search_costliest
from fitplug.neighbours.record_products import RecordProducts

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
        At least one. The first is a difference of the largest cost but for rounding, where there is
        no symmetric attribute and the differences are few.
    """
    if _can_list(products.person):
        found = _search_all(products, most)
    else:
        found = [ascend(products, start) for start in list_starts(products, most)]
    different = list(dict.fromkeys(tuple(sorted(records)) for records in found))
    sets = pack_records(products.person, different)
    order = np.argsort(-products.compute_costs(sets), kind="stable")
    return sets.take(order)


def find_missed_differences(products: RecordProducts) -> RecordSets | None:
    """Find differences by branch and bound, where the search record by record may miss some.

    Returns:
        Some differences; None where the search misses none.
    """
    if _can_list(products.person):
        return None
    searched = search_costliest(products, _SEARCHED)
    return None if searched is None else searched.costly


def _can_list(person: PersonRecords) -> bool:
    """Tell whether all differences are listed."""
    return not len(person.differing_sets) and count_differences(person) <= _MOST_LISTED


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
