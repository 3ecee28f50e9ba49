"""The costliest person by branch and bound over the linear program of a person's records.

A node fixes whether some records are there, and whether some pairs of them are equal in an
attribute. The linear program bounds what its persons cost (`PersonProgram`), and its solution is
rounded to a person. Nodes are closed once their bound is no more than the largest cost of the
persons that were found. If too many nodes are needed, the largest bound of those that are open is
stated, rounded up so that it is found again more easily.

Products are rounded up to integers of about 28 bits times a power of two. If all nodes are closed,
what is stated is the largest cost of the rounded products, whatever the solver found in between.
Otherwise it depends on the number of nodes, and on the solver. So a plan is verified by proving the
bound that it claims, and not by searching for it anew.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, replace

import numpy as np

from fitplug.neighbours.person_program import Inequalities, PersonProgram
from fitplug.neighbours.person_records import PersonRecords, RecordSets
from fitplug.neighbours.record_products import RecordProducts
from fitplug.numeric import AnyArray, BoolArray, FloatArray, IntArray, find_largest_entry

MOST_VARIABLES = 8_000
"""The most variables of a program."""

_BITS = 28
"""The bits that products keep."""

_STATED_BITS = 14
"""The bits that a bound keeps if nodes are open."""

_MOST_NODES, _CONFIRMING, _SMALL = 60, 4, 1_000
"""The most nodes of a search, how many times as many prove a claimed bound, and the variables
of a program from which on a search has fewer nodes: a node takes more than twice as long if there
are twice as many."""

_ROUNDS = 40
"""The most times that inequalities are added in a node."""

_FRACTION = 1e-6
"""A variable is fractional if it is farther from 0 and from 1."""


@dataclass(frozen=True, eq=False)
class CostliestPersons:
    """A bound on the cost of all persons, and costly ones that were found.

    Attributes:
        bound: No person costs more: an integer where the products are integers, else a float.
        is_exact: Whether this is the largest cost.
        found: Persons that were found on the way, none twice; the last one is costliest in the
            rounded products.
    """

    bound: int | float
    is_exact: bool
    found: RecordSets


def count_variables(person: PersonRecords) -> int:
    """Count the variables of the linear program of a person."""
    sizes = np.bincount(person.periods).astype(object)
    pairs = (int(sizes.sum()) ** 2 - int((sizes * sizes).sum())) // 2
    return len(person.periods) + pairs * (len(person.differing_sets) + 1)


def search_costliest(
    products: RecordProducts, claimed: int | None = None
) -> CostliestPersons | None:
    """Bound the largest cost of a person, tightly.

    Args:
        products: The products of records, integers or floats.
        claimed: If not None, this bound is to be proven, and no other one. The products are
            integers.

    Returns:
        The bound; None if the claimed one was not proven, because it is wrong, too fine for the
        rounding of the products, or needs too many nodes.
    """
    rounded, power = _round_up(products.products)
    search = _Search(PersonProgram(products.person, rounded))
    if claimed is not None:
        is_proven = search.confirm(claimed >> power)
        return CostliestPersons(claimed, False, search.gather_found()) if is_proven else None
    level = search.run()
    if products.products.dtype == np.float64:
        return CostliestPersons(math.ldexp(level, power), False, search.gather_found())
    is_exact = power == 0 and level == search.best
    return CostliestPersons(level << power, is_exact, search.gather_found())


def round_relaxation(products: RecordProducts) -> RecordSets:
    """Find costly persons by rounding solutions of the linear program, without dividing it."""
    rounded, _ = _round_up(products.products)
    search = _Search(PersonProgram(products.person, rounded))
    search.divide(1)
    return search.gather_found()


def _round_up(products: AnyArray) -> tuple[IntArray, int]:
    """Round products up to integers of `_BITS` bits times a power of two.

    Returns:
        The integers, and the power: products <= integers * 2^power.
    """
    if products.dtype == np.float64:
        power = math.frexp(float(np.abs(products).max()))[1] - _BITS
        return np.ceil(np.ldexp(products, -power)).astype(np.int64), power
    power = max(0, find_largest_entry(products).bit_length() - _BITS)
    return np.asarray(-(-products >> power)).astype(np.int64), power


@dataclass(frozen=True, eq=False)
class _Node:
    """A part of all persons.

    Attributes:
        bound: None of them costs more.
        number: It decides between nodes of equal bounds.
        lower: Bounds on the variables, 0 or 1.
        upper: Likewise.
        rows: Inequalities that were useful before.
    """

    bound: int
    number: int
    lower: FloatArray
    upper: FloatArray
    rows: Inequalities

    def __lt__(self, other: _Node) -> bool:
        """Tell whether this node comes first: its bound is larger."""
        return (-self.bound, self.number) < (-other.bound, other.number)


class _Search:
    """The state of a search.

    Attributes:
        program: The program.
        best: The largest cost of the persons that were found.
    """

    def __init__(self, program: PersonProgram) -> None:
        self.program = program
        self.best = 0
        self._claimed: int | None = None
        self._found: dict[bytes, tuple[IntArray, IntArray]] = {}

    def run(self) -> int:
        """Search until all nodes are closed, or there are too many; returns a bound on the cost."""
        nodes = self.divide(self._most)
        if not nodes:
            return self.best
        bound = max(self.best, nodes[0].bound)
        step = 1 << max(0, bound.bit_length() - _STATED_BITS)
        return -(-bound // step) * step

    def confirm(self, claimed: int) -> bool:
        """Try to prove that no person costs more than is claimed."""
        self._claimed = claimed
        return not self.divide(_CONFIRMING * self._most) and self.best <= claimed

    @property
    def _most(self) -> int:
        """The most nodes of a search."""
        return max(4, _MOST_NODES * _SMALL // max(self.program.size, _SMALL))

    @property
    def _level(self) -> int:
        """The bound at which nodes are closed."""
        return self.best if self._claimed is None else self._claimed

    def divide(self, most: int) -> list[_Node]:
        """Divide the node of the largest bound, up to so many times; returns the open nodes."""
        program = self.program
        root = _Node(2**62, 0, np.zeros(program.size), np.ones(program.size), program.first_rows)
        nodes = [root]
        for number in range(most):
            for child in self._branch(heapq.heappop(nodes), 2 * number + 1):
                heapq.heappush(nodes, child)
            while nodes and nodes[0].bound <= self._level:
                heapq.heappop(nodes)
            if not nodes or (self._claimed is not None and self.best > self._claimed):
                break
        return nodes

    def gather_found(self) -> RecordSets:
        """Gather the persons that were found."""
        cells, labels = zip(*self._found.values(), strict=True)
        return RecordSets(np.array(cells), np.array(labels))

    def _branch(self, node: _Node, number: int) -> list[_Node]:
        """Solve a node, and divide it in two unless its bound closes it.

        Args:
            node: The node.
            number: The number of the first node that it is divided into.
        """
        rows, bound = node.rows, node.bound
        z = np.full(self.program.size, 0.5)
        for _ in range(_ROUNDS):
            solved = self.program.solve(rows, node.lower, node.upper)
            if solved is None:
                break
            z, bound = solved.z, min(bound, solved.bound)
            self._round_solution(z)
            if bound <= self._level:
                return []
            useful = rows.take(self._mark_useful(solved.binding))
            violated = self.program.find_violated(z)
            if violated is None:
                rows = useful
                break
            rows = rows.append(violated)
        return [
            replace(child, bound=bound, number=number + n, rows=rows)
            for n, child in enumerate(self._divide(node, z))
        ]

    def _mark_useful(self, binding: BoolArray) -> BoolArray:
        """Mark the inequalities that are kept for other nodes."""
        useful = binding.copy()
        useful[: len(self.program.first_rows)] = True
        return useful

    def _divide(self, node: _Node, z: FloatArray) -> list[_Node]:
        """Divide a node by the most fractional record, or pair of records."""
        d = len(self.program.person.periods)
        is_open: BoolArray = node.lower < node.upper
        from_half = np.where(is_open, np.abs(z - 0.5), np.inf)[:d]
        i = int(np.argmin(from_half))
        if from_half[i] < 0.5 - _FRACTION:
            return self._fix_record(node, i)
        distance, pair, bit = self._find_undecided(is_open, z)
        if is_open[:d].any() and not distance < 0.5 - _FRACTION:
            return self._fix_record(node, int(np.flatnonzero(is_open[:d])[0]))
        return self._fix_pair(node, pair, bit) if math.isfinite(distance) else [node]

    def _find_undecided(self, is_open: BoolArray, z: FloatArray) -> tuple[float, int, int]:
        """Find a pair of records and an attribute, of which y is nearest to a half.

        Returns:
            The distance from a half, infinite if every pair is fixed; the number of the pair; and
            the set of the attribute alone.
        """
        program, d = self.program, len(self.program.person.periods)
        best: tuple[float, int, int] = (math.inf, 0, 0)
        for bit in (s for s in program.sets.tolist() if s.bit_count() == 1):
            y = program.sum_equal(z, bit)[program.pairs]
            is_equal = np.isin(np.arange(len(program.sets)), program.find_equal(bit))
            by_set = is_open[d:].reshape(len(y), -1)
            undecided = by_set[:, is_equal].any(axis=1) & by_set[:, ~is_equal].any(axis=1)
            distance = np.where(undecided, np.abs(y - 0.5), np.inf)
            pair = int(np.argmin(distance)) if len(y) else 0
            if len(y) and distance[pair] < best[0]:
                best = float(distance[pair]), pair, bit
        return best

    def _fix_record(self, node: _Node, i: int) -> list[_Node]:
        """Divide a node by whether there is a record in cell i."""
        upper, lower = node.upper.copy(), node.lower.copy()
        upper[i], lower[i] = 0.0, 1.0
        return [replace(node, upper=upper), replace(node, lower=lower)]

    def _fix_pair(self, node: _Node, pair: int, bit: int) -> list[_Node]:
        """Divide a node by whether two records, if they are there, are equal in an attribute."""
        every = self.program.locate(np.array(pair), 0)
        equal = self.program.locate(np.array(pair), bit)
        children = []
        for excluded in (equal, np.setdiff1d(every, equal)):
            upper = node.upper.copy()
            upper[excluded] = 0.0
            children.append(replace(node, upper=upper))
        return children

    def _round_solution(self, z: FloatArray) -> None:
        """Round a solution to a person, and keep that person."""
        program, person = self.program, self.program.person
        x = z[: len(person.periods)]
        cells: list[int] = []
        for i in np.argsort(-x, kind="stable").tolist():
            is_free = all(person.periods[i] != person.periods[j] for j in cells)
            if is_free and len(cells) < person.most and (x[i] > 0.5 or not cells):
                cells.append(i)
        padded = np.full(person.most, -1, dtype=np.int64)
        padded[: len(cells)] = cells = sorted(cells)
        labels = np.zeros((person.most, len(person.sizes)), dtype=np.int64)
        for a, size in enumerate(person.sizes):
            if size > 1:
                labels[: len(cells), a] = _group(program.sum_equal(z, 1 << a), cells, size)
        key = padded.tobytes() + labels.tobytes()
        if key in self._found:
            return
        cost = int(
            RecordProducts(person, program.products).compute_costs(
                RecordSets(padded[None], labels[None])
            )[0]
        )
        if cost > self.best or not self._found:
            self.best = max(self.best, cost)
            self._found[key] = padded, labels


def _group(y: FloatArray, cells: list[int], size: int) -> list[int]:
    """Number groups of cells, at most `size` of them, such that cells of large y are together."""
    groups: list[list[int]] = []
    labels = []
    for i in cells:
        near = [float(y[i, group].mean()) for group in groups]
        best = int(np.argmax(near)) if near else 0
        if not near or (near[best] < 0.5 and len(groups) < size):
            best = len(groups)
            groups.append([])
        groups[best].append(i)
        labels.append(best)
    return labels
