"""The costliest person by branch and bound over the records of a person.

The search decides one place of records after another: a period, or a dense cell that has room for
several records (`PersonRecords.places`). A node of the search fixes the records in the first
places; its persons have these given records, and any others in later places. A later record has a
star: its product with itself, its products with the given records, and half of what the other later
records can add to it. No person of the node costs more than the given records and the largest stars
of the later places together (docs/theory/persons.md, Lemma N2). Nodes whose bound is at most the
cost of a known person are closed, and the nodes with the largest bounds are divided next. If that
takes too long, the result is the largest bound of an open node.

Labels that no given record has are interchangeable, so a record takes a used label or the first
unused one. Records in one place are interchangeable too, so their labels ascend. All sums are of
64-bit integers, so the search is the same on every machine. Products that are too large for them
are first rounded up to fewer bits times a power of two.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import numpy as np

from fitplug.neighbours.person_ascent import ascend, list_starts
from fitplug.neighbours.person_stars import Stars
from fitplug.neighbours.persons import RecordProducts, RecordSets
from fitplug.numeric import BoolArray, IntArray, find_largest_entry

MOST_WORK = 400_000_000
"""About the most sums of a search: a few seconds."""

_CONFIRMING = 2
"""The factor on the most sums for the proof of a claimed bound."""

_OVERHEAD = 50_000
"""The number of sums that take as long as the overhead of a step."""

_CHUNK = 1_000_000
"""About the most sums that are computed at once."""

_MOST_LABELS = 4_000_000
"""The most records by which a node is divided, which are all in memory."""

_STARTS = 8
"""The most single records from which an ascent starts."""

_NOTED, _LISTED = 4, 64
"""The most persons that are noted at each step, and the most that are listed at the end."""


@dataclass(frozen=True, eq=False)
class CostliestPersons:
    """A bound on the cost of all persons, and costly persons.

    Attributes:
        bound: No person costs more: an integer where the products are integers, else a float.
        is_exact: Whether this is the largest cost.
        costly: Different persons of large cost, the costliest first.
    """

    bound: int | float
    is_exact: bool
    costly: RecordSets


def search_costliest(
    products: RecordProducts, most_work: int = MOST_WORK, claimed: int | None = None
) -> CostliestPersons | None:
    """Bound the largest cost of a person, tightly.

    Args:
        products: The products of records, integers or floats.
        most_work: About the most sums to compute.
        claimed: A bound to prove instead of finding one; the products must then be integers.

    Returns:
        The bound; None if the claimed bound was not proven, because it is wrong, too fine for the
        rounding of the products, or takes too long.
    """
    rounded, power = _round_up(products)
    search = _Search(RecordProducts(products.person, rounded))
    floats = products.to_floats()
    search.note(ascend(floats, list_starts(floats, _STARTS)))
    if claimed is not None:
        level = claimed >> power
        is_proven = search.divide(_CONFIRMING * most_work, level) <= level
        return CostliestPersons(claimed, False, search.list_costly()) if is_proven else None
    level = search.divide(most_work, 0)
    costly = search.list_costly()
    if products.products.dtype == np.float64:
        return CostliestPersons(math.ldexp(level, power), False, costly)
    return CostliestPersons(level << power, power == 0 and level == search.best, costly)


def _round_up(products: RecordProducts) -> tuple[IntArray, int]:
    """Round products up to integers that are small enough for all sums of a search.

    Returns:
        The integers, and a power: products <= integers * 2^power.
    """
    # Costs and bounds are at most 8 k^2 times the largest product.
    bits = 58 - 2 * products.person.most.bit_length()
    values = products.products
    if values.dtype == np.float64:
        power = math.frexp(float(np.abs(values).max()))[1] - bits
        return np.ceil(np.ldexp(values, -power)).astype(np.int64), power
    power = max(0, find_largest_entry(values).bit_length() - bits)
    return np.asarray(-(-values >> power)).astype(np.int64), power


@dataclass(frozen=True, eq=False)
class _Nodes:
    """Nodes of the search with equally many decided places and equally many given records.

    Attributes:
        given: The given records.
        costs: Their cost, shape (n,).
        bounds: Upper bounds on the cost of the nodes' persons, shape (n,).
    """

    given: RecordSets
    costs: IntArray
    bounds: IntArray

    def __len__(self) -> int:
        return len(self.bounds)

    def take(self, index: IntArray | BoolArray) -> _Nodes:
        """Take some of the nodes."""
        return _Nodes(self.given.take(index), self.costs[index], self.bounds[index])

    def append(self, others: _Nodes) -> _Nodes:
        """Append other nodes."""
        return _Nodes(
            self.given.append(others.given),
            np.concatenate([self.costs, others.costs]),
            np.concatenate([self.bounds, others.bounds]),
        )

    @property
    def unused(self) -> IntArray:
        """The first label of each attribute that no given record has, (n, attributes)."""
        is_given = self.given.cells >= 0
        return np.asarray(np.where(is_given[..., None], self.given.labels + 1, 0).max(axis=1))


class _Search:
    """The state of a search.

    Attributes:
        products: The products of records, int64.
        best: The largest cost of the persons found so far.
    """

    def __init__(self, products: RecordProducts) -> None:
        self.products, self.person = products, products.person
        self.best = 0
        self._stars, self._room = Stars(products), self.person.room
        self._pairs = _lower_conflicts(products)
        self._work = 0
        self._costly: list[RecordSets] = []
        self._nodes: dict[tuple[int, int], _Nodes] = {}

    def note(self, persons: RecordSets) -> None:
        """Note costly persons."""
        self._costly.append(persons)
        self.best = max(self.best, int(self.products.compute_costs(persons).max()))

    def list_costly(self) -> RecordSets:
        """List the costliest persons that were noted."""
        persons = functools.reduce(RecordSets.append, self._costly).normalise()
        order = np.argsort(-self.products.compute_costs(persons), kind="stable")
        different = persons.take(order).leave_out()
        return different.take(np.arange(min(_LISTED, len(different))))

    def divide(self, most_work: int, claimed: int) -> int:
        """Divide nodes until all are closed, or it takes too long.

        Args:
            most_work: About the most sums to compute.
            claimed: Nodes with at most this bound are closed.

        Returns:
            A bound on the cost of all persons.
        """
        k, m, zero = self.person.most, len(self.person.sizes), np.zeros(1, dtype=np.int64)
        none = RecordSets(np.full((1, k), -1, dtype=np.int64), np.zeros((1, k, m), dtype=np.int64))
        # The keys are the number of decided slots, `room` in each place, and of given records.
        self._nodes = {(0, 0): _Nodes(none, zero, zero + np.iinfo(np.int64).max)}
        while True:
            kind = max(self._nodes, key=lambda kind: int(self._nodes[kind].bounds.max(initial=0)))
            bound, closed = int(self._nodes[kind].bounds.max(initial=0)), max(self.best, claimed)
            is_over = self._work + self._stars.work >= most_work
            if bound <= closed or is_over or self.best > claimed > 0:
                return max(bound, closed)
            if self._count_labels(kind) > _MOST_LABELS:
                return bound
            self._branch(*kind, self._choose(kind), claimed)

    def _choose(self, kind: tuple[int, int]) -> _Nodes:
        """Take the nodes with the largest bounds out of the open nodes."""
        nodes = self._nodes[kind]
        self._work += len(nodes) * nodes.given.cells.shape[1]
        labels = self._list_labels(nodes)
        most = max(1, _CHUNK // (len(labels) * len(self._stars.diagonal)))
        order = np.argsort(-nodes.bounds, kind="stable")
        self._nodes[kind] = nodes.take(order[most:])
        return nodes.take(order[:most])

    def _branch(self, depth: int, count: int, nodes: _Nodes, claimed: int) -> None:
        """Divide nodes by the next record in a place, or by its absence.

        Args:
            depth: The number of decided slots in each node.
            count: The number of given records.
            nodes: The nodes.
            claimed: Children with at most this bound are left out.
        """
        room, labels = self.person.most - count, self._list_labels(nodes)
        place, next_place = depth // self._room, (depth + 1) // self._room
        stars = self._stars
        here, later = stars.cells[place], stars.later[next_place]
        crossing = self._sum_crossing(nodes, count, labels, np.concatenate([here, later]))
        near, far = crossing[:, :, : len(here)], crossing[:, :, len(here) :]
        is_next = self._find_next(nodes, count, labels, here)
        costs = nodes.costs[:, None, None] + near + self._stars.diagonal[here]
        costs = np.where(is_next[:, :, None], costs, -1)
        self._note_costliest(nodes, count, labels, here, costs)
        self._work += _OVERHEAD + crossing.size * (count + 1)
        if not len(later):
            return
        largest, closed = far.max(axis=1), max(self.best, claimed)
        others = len(later) - len(stars.later[place + 1])
        bounds = nodes.costs + stars.sum_largest(largest[:, others:], place + 1, room)
        absent = replace(nodes, bounds=np.minimum(bounds, nodes.bounds))
        absent = absent.take(absent.bounds > closed)
        self._put(((place + 1) * self._room, count), absent)
        if room == 1:
            return
        # The bound from the largest products comes first, because it does not depend on labels.
        paired = largest[:, None] + 2 * self._stars.largest[here[:, None], later]
        rough = costs + stars.sum_largest(paired, next_place, room - 1)[:, None]
        self._work += paired.size
        open_children = np.argwhere((rough > closed) & is_next[:, :, None])
        each = max(1, _CHUNK // (len(labels) * len(later)))
        for start in range(0, len(open_children), each):
            node, label, cell = open_children[start : start + each].T
            numbers = number_differing(labels[label], labels)
            sums = self._pairs[numbers[:, :, None], here[cell][:, None, None], later]
            self._work += sums.size
            sums = (far[node] + 2 * sums).max(axis=1)
            bounds = costs[node, label, cell] + stars.sum_largest(sums, next_place, room - 1)
            bounds = np.minimum(bounds, nodes.bounds[node])
            is_open = bounds > closed
            at = node[is_open], label[is_open], cell[is_open]
            given = _add_records(nodes.given.take(at[0]), count, here[at[2]], labels[at[1]])
            self._put((depth + 1, count + 1), _Nodes(given, costs[at], bounds[is_open]))

    def _put(self, kind: tuple[int, int], nodes: _Nodes) -> None:
        """Add nodes to the open nodes."""
        known = self._nodes.get(kind)
        self._nodes[kind] = nodes if known is None else known.append(nodes)

    def _sum_crossing(
        self, nodes: _Nodes, count: int, labels: IntArray, cells: IntArray
    ) -> IntArray:
        """Sum twice the products of records with the given ones, shape (n, labels, cells)."""
        total = np.zeros((len(nodes), len(labels), len(cells)), dtype=np.int64)
        for r in range(count):
            numbers = number_differing(nodes.given.labels[:, r], labels)
            given = nodes.given.cells[:, r, None, None]
            total += self._pairs[numbers[:, :, None], given, cells]
        return 2 * total

    def _list_labels(self, nodes: _Nodes) -> IntArray:
        """List labels of the next two records of some nodes, (labels, attributes).

        The next record has a used label or the first unused one.
        """
        ranges = self._find_ranges(nodes)
        shape = [len(each) for each in ranges]
        labels = np.indices(shape).reshape(len(shape), math.prod(shape)).T
        return np.asarray(labels + [each.start for each in ranges])

    def _find_ranges(self, nodes: _Nodes) -> list[range]:
        """Find the labels of each attribute that `_list_labels` combines."""
        unused = nodes.unused.max(axis=0)
        ranges = [range(min(n, u + 2)) for n, u in zip(self.person.sizes, unused, strict=True)]
        if (always := self.person.always_differing) is not None:
            ranges[always] = ranges[always][unused[always] :]
        return ranges

    def _count_labels(self, kind: tuple[int, int]) -> int:
        """Count the labels of nodes times the cells that records may have with them."""
        return math.prod(map(len, self._find_ranges(self._nodes[kind]))) * len(self._stars.diagonal)

    def _find_next(self, nodes: _Nodes, count: int, labels: IntArray, here: IntArray) -> BoolArray:
        """Find the labels that a record in a place may have in each node, shape (n, labels)."""
        unused, given = nodes.unused, nodes.given
        is_next: BoolArray = np.all(labels <= unused[:, None], axis=2)
        if not count or self._room == 1:
            return is_next
        for r in range(count):
            numbers = number_differing(given.labels[:, r], labels)
            is_next &= ~self.person.are_in_one_period(given.cells[:, r, None], here, numbers)
        # All records differ in this attribute, so it does not decide their order.
        is_after = np.ones(is_next.shape, dtype=bool)
        for a, label in enumerate(labels.T):
            last = given.labels[:, count - 1, a, None]
            if a != self.person.always_differing:
                is_after = (label > last) | ((label == last) & is_after)
        return is_next & (is_after | (given.cells[:, count - 1, None] != here))

    def _note_costliest(
        self, nodes: _Nodes, count: int, labels: IntArray, cells: IntArray, costs: IntArray
    ) -> None:
        """Note the costliest persons with one record more than the given ones, by their costs."""
        largest = costs.reshape(len(nodes), -1).max(axis=1)
        best = np.argsort(-largest, kind="stable")[:_NOTED]
        best = best[largest[best] >= 0]  # negative costs mark records that a person cannot have
        if len(best):
            label, cell = np.divmod(costs[best].reshape(len(best), -1).argmax(axis=1), len(cells))
            self.note(_add_records(nodes.given.take(best), count, cells[cell], labels[label]))


def _lower_conflicts(products: RecordProducts) -> IntArray:
    """Lower the products of records in one period so far that no costly person has such records."""
    if not products.person.apart:
        return products.products
    at, sets = np.arange(len(products.same)), np.arange(len(products.products))
    conflicts = products.person.are_in_one_period(at[:, None], at, sets[:, None, None])
    least = -2 * products.person.most * find_largest_entry(products.products)
    return np.where(conflicts, least, products.products)


def _add_records(given: RecordSets, count: int, cells: IntArray, labels: IntArray) -> RecordSets:
    """Add one record to each of some sets of `count` records."""
    more = RecordSets(given.cells.copy(), given.labels.copy())
    more.cells[:, count], more.labels[:, count] = cells, labels
    return more


def number_differing(first: IntArray, second: IntArray) -> IntArray:
    """Number the sets of attributes in which labels differ, as `RecordSets.compare_records`.

    Args:
        first: Shape (n, attributes).
        second: Shape (l, attributes).

    Returns:
        Shape (n, l).
    """
    bits = 1 << np.arange(first.shape[1], dtype=np.int64)
    return np.asarray((first[:, None] != second) @ bits)
