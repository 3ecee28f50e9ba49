"""The largest cost of a person with several records: exact where that can be, else bounded.

The cost of a difference is the sum of the products of all pairs of its records
(`fitplug.neighbours.record_products`), and the largest over all differences is wanted. There may be
more differences than can be listed. Five ways are tried in this order:

1. There is no symmetric attribute, and the differences are few. Then they are listed.
2. Each period is one dense cell, and there are at most 13 periods. A difference is then a set S of
   periods, with a partition of S for each symmetric attribute. A dynamic programme over subsets
   finds the best partitions of all S, with 3^T additions. See `compute_partitioned`.
3. There are at most 16 periods. Each pair of periods gets its largest product, and all sets of
   periods are tried.
4. There are more. Then the sum is at most that of k periods, where each period counts its own
   product and the k - 1 largest positive products with other periods.
5. If what was found may be above the truth, a branch and bound with linear programs finds the
   largest cost, up to a rounding that is stated (`fitplug.neighbours.person_search`).

The first four work with floats and with Python integers, and are exact for integers. The proofs are
in docs/theory/persons.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fitplug.neighbours.person_records import PersonRecords, RecordSets
from fitplug.neighbours.person_search import MOST_VARIABLES, count_variables, search_costliest
from fitplug.neighbours.record_products import RecordProducts
from fitplug.numeric import AnyArray, BoolArray, IntArray

MOST_PARTITIONED, MOST_PERIODS, MOST_LISTED = 13, 16, 1_000_000
"""The most periods for the second way and for the third, and the most differences for the first."""


@dataclass(frozen=True, eq=False)
class LargestCost:
    """What is known of the largest cost of a person.

    Attributes:
        of_cells: A bound on the cost of persons who have a record in each dense cell, shape (D,).
        is_exact: Whether the largest of these bounds is the largest cost itself.
        costly: Costly persons that were found on the way, or None.
    """

    of_cells: AnyArray
    is_exact: bool
    costly: RecordSets | None = None


def upper_largest_cost(products: RecordProducts, claimed: int | None = None) -> LargestCost:
    """Bound the costs of all differences that have a record in a dense cell from above.

    Args:
        products: The products of records, integers or floats.
        claimed: A bound on the largest cost that is stated if it is proven and a better one would
            depend on how long one searches. A plan claims one, so that it can be verified by
            programs that search for a longer or a shorter time.
    """
    person, periods = products.person, products.person.periods
    if not len(person.differing_sets) and count_differences(person) <= MOST_LISTED:
        return LargestCost(_list_costs(products), True)
    of_period, is_exact = _upper_periods(products)
    if is_exact or count_variables(person) > MOST_VARIABLES:
        return LargestCost(of_period[periods], is_exact)
    searched = search_costliest(products, claimed)
    if searched is None:
        return LargestCost(of_period[periods], is_exact)
    of_cells = np.minimum(of_period[periods], searched.bound)
    return LargestCost(of_cells, searched.is_exact, searched.found)


def upper_without_search(products: RecordProducts) -> AnyArray:
    """Bound the costs of all differences with a record in each period, (T,), without programs."""
    return _upper_periods(products)[0]


def _upper_periods(products: RecordProducts) -> tuple[AnyArray, bool]:
    """Bound the costs by sets of periods; say whether the largest is that of a difference."""
    if can_partition(products.person):
        of_set, is_exact = compute_partitioned(products)
        return find_largest_by_period(of_set, products.person), is_exact
    return _upper_by_pairs(products)


def _upper_by_pairs(products: RecordProducts) -> tuple[AnyArray, bool]:
    """Bound the costs by the largest products of each pair of periods, as `LargestCost`, (T,)."""
    person = products.person
    paired = merge_periods(products.largest, person.periods)
    is_exact = not _crosses_periods(products)
    if person.period_count > MOST_PERIODS:
        return _upper_by_rows(paired, person.most), is_exact
    of_period = find_largest_by_period(sum_over_subsets(paired), person)
    return of_period, is_exact or (person.has_one_cell_each and not len(person.differing_sets))


def _crosses_periods(products: RecordProducts) -> bool:
    """Tell whether records in different periods have products other than zero."""
    periods = products.person.periods
    return bool(products.products[:, periods[:, None] != periods].any())


def can_partition(person: PersonRecords) -> bool:
    """Tell whether the second way is possible."""
    return person.has_one_cell_each and person.period_count <= MOST_PARTITIONED


def count_differences(person: PersonRecords) -> int:
    """Count the differences of a person without symmetric attributes."""
    counts = [1] + [0] * person.most
    for size in np.bincount(person.periods).tolist():
        for records in range(person.most, 0, -1):
            counts[records] += counts[records - 1] * size
    return sum(counts) - 1


def list_periods(person: PersonRecords) -> BoolArray:
    """List which periods each set of periods has, of 2^T sets by their bits, shape (2^T, T)."""
    sets = np.arange(2**person.period_count)
    return np.asarray((sets[:, None] >> np.arange(person.period_count)) & 1, dtype=bool)


def find_largest_by_period(of_set: AnyArray, person: PersonRecords) -> AnyArray:
    """Find the largest value of the sets of at most k periods that have a given one, shape (T,)."""
    has = list_periods(person)
    allowed = has.sum(axis=1) <= person.most
    return np.array(
        [of_set[allowed & has[:, t]].max() for t in range(has.shape[1])], dtype=of_set.dtype
    )


def compute_partitioned(products: RecordProducts) -> tuple[AnyArray, bool]:
    """Compute the largest cost of each set of periods, over the cells that its records may be in.

    Two bounds hold for each pair of records, and the smaller one of each set of periods is taken:

    * All pairs that differ have the largest product of such pairs. Then there is one partition, by
      the cell of all symmetric attributes together.
    * What a pair loses by differing in several attributes is the sum of what it loses by each of
      them, with an excess where the product is larger than that. Then each attribute has its own
      partition, and these do not depend on each other.

    Returns:
        The bounds, shape (2^T,), and whether they are the largest costs.
    """
    person, same = products.person, products.same
    varying = [a for a, size in enumerate(person.sizes) if size > 1]
    if not varying:
        return sum_over_subsets(same), True
    sizes = [person.sizes[a] for a in varying]
    largest = products.differing.max(axis=0)
    joint = sum_over_subsets(largest)
    joint = joint + partition_subsets(sum_over_subsets(same - largest), math.prod(sizes))
    losses = [same - products.products[1 << a] for a in varying]
    excess, adds_up = _find_excess(products, varying, losses)
    apart = sum_over_subsets(same - sum(losses) + excess)
    for loss, size in zip(losses, sizes, strict=True):
        apart = apart + partition_subsets(sum_over_subsets(loss), size)
    is_exact = adds_up or bool((products.differing == largest).all())
    return np.minimum(joint, apart), is_exact


def _find_excess(
    products: RecordProducts, varying: Sequence[int], losses: Sequence[AnyArray]
) -> tuple[AnyArray, bool]:
    """Find by how much a product can be above what attributes take away one by one.

    Returns:
        The excess E of (N6), shape (D, D), and whether what they take away always adds up.
    """
    excess, adds_up = np.zeros_like(products.same), True
    for number in products.person.differing_sets.tolist():
        lost = sum(loss for a, loss in zip(varying, losses, strict=True) if number >> a & 1)
        more = products.products[number] - (products.same - lost)
        adds_up = adds_up and not more.any()
        excess = np.maximum(excess, more)
    # A record does not differ from itself.
    excess[np.arange(len(excess)), np.arange(len(excess))] = 0
    return excess, adds_up


def sum_over_subsets(pairs: AnyArray) -> AnyArray:
    """Sum a symmetric matrix (T, T) over all pairs of each subset of its indices, shape (2^T,)."""
    total = np.zeros(1, dtype=pairs.dtype)
    for t, row in enumerate(pairs):
        crossing = np.zeros(1, dtype=pairs.dtype)
        for product in row[:t]:
            crossing = np.concatenate([crossing, crossing + product])
        total = np.concatenate([total, total + 2 * crossing + row[t]])
    return total


def partition_subsets(of_part: AnyArray, most: int) -> AnyArray:
    """Find the largest sum over a partition of each subset into at most `most` parts.

    Args:
        of_part: What each subset is worth as one part, shape (2^T,); 0 for the empty set.
        most: The most parts, at least 1.

    Returns:
        Shape (2^T,).
    """
    T = len(of_part).bit_length() - 1
    best = of_part.copy()
    if most >= T:
        # The part that has the last element is removed; the rest is a subset found before.
        for t in range(T):
            low, high = slice(0, 2**t), slice(2**t, 2 ** (t + 1))
            best[high] = unite_disjoint(of_part[high], best[low])
        return best
    for _ in range(most - 1):
        previous = best
        best = of_part.copy()
        for t in range(T):
            low, high = slice(0, 2**t), slice(2**t, 2 ** (t + 1))
            best[high] = unite_disjoint(of_part[high], previous[low])
    return best


def unite_disjoint(first: AnyArray, second: AnyArray) -> AnyArray:
    """Find the largest first[Q] + second[R] over disjoint Q and R with each union.

    Args:
        first: Of each subset of t elements, shape (2^t,).
        second: Likewise.

    Returns:
        Shape (2^t,).
    """
    t = len(first).bit_length() - 1
    one, two = first.reshape((2,) * t + (1,)), second.reshape((2,) * t + (1,))
    for axis in range(t):
        # An element is in neither set, in Q, or in R.
        one, two = one.take([0, 1, 0], axis), two.take([0, 0, 1], axis)
    total = one + two
    for axis in range(t):
        either = np.maximum(total.take(1, axis), total.take(2, axis))
        total = np.stack([total.take(0, axis), either], axis)
    return np.asarray(total.reshape(-1))


def merge_periods(pairs: AnyArray, periods: IntArray) -> AnyArray:
    """Find the largest product of each pair of periods, shape (T, T).

    Args:
        pairs: The largest products of pairs of dense cells, shape (D, D). Within a period only
            those of a cell with itself count.
        periods: The period of each dense cell, shape (D,).
    """
    order = np.argsort(periods, kind="stable")
    starts = np.searchsorted(periods[order], np.arange(int(periods.max()) + 1))
    ordered = pairs[np.ix_(order, order)]
    merged = np.maximum.reduceat(np.maximum.reduceat(ordered, starts, axis=0), starts, axis=1)
    own = np.maximum.reduceat(np.diagonal(ordered), starts)
    merged[np.arange(len(own)), np.arange(len(own))] = own
    return np.asarray(merged)


def list_differences(products: RecordProducts) -> tuple[IntArray, AnyArray]:
    """List all differences of a person without symmetric attributes, and their costs.

    Returns:
        The dense cells of each one's records, shape (v, k), padded with -1; and the costs, (v,).
    """
    person, pairs = products.person, products.same
    order = np.argsort(person.periods, kind="stable")
    members = np.zeros((1, 0), dtype=np.int64)
    costs = np.zeros(1, dtype=pairs.dtype)
    found, found_costs = [], []
    for size in range(1, person.most + 1):
        longer, sums = [], []
        for cell in order.tolist():
            # Records are added in the order of their periods, so that each set comes once.
            earlier = (
                person.periods[members[:, -1]] < person.periods[cell]
                if members.shape[1]
                else np.ones(len(members), dtype=bool)
            )
            own = members[earlier]
            crossing = pairs[cell][own].sum(axis=1) if own.shape[1] else 0
            longer.append(np.column_stack([own, np.full(len(own), cell)]))
            sums.append(costs[earlier] + 2 * crossing + pairs[cell, cell])
        members, costs = np.concatenate(longer), np.concatenate(sums)
        padding = np.full((len(members), person.most - size), -1, dtype=np.int64)
        found.append(np.concatenate([members, padding], axis=1))
        found_costs.append(costs)
    return np.concatenate(found), np.concatenate(found_costs)


def _list_costs(products: RecordProducts) -> AnyArray:
    """Find the largest cost of all differences with a record in each cell, by listing them."""
    best = np.diagonal(products.same).copy()
    members, costs = list_differences(products)
    for cells in members.T:
        np.maximum.at(best, cells[cells >= 0], costs[cells >= 0])
    return best


def _upper_by_rows(paired: AnyArray, most: int) -> AnyArray:
    """Bound the sum over any k periods of their pairs, of those that have a given one, (T,)."""
    at = np.arange(len(paired))
    crossing = np.maximum(paired, 0)
    crossing[at, at] = 0
    partners = np.sort(crossing, axis=1)[:, ::-1][:, : most - 1]
    of_row = np.diagonal(paired) + partners.sum(axis=1)
    ordered = np.sort(of_row)[::-1]
    # A period that is not among the k largest takes the place of the last of them.
    return np.asarray(ordered[: most - 1].sum() + np.minimum(ordered[most - 1], of_row))
