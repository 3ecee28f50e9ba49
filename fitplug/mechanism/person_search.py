"""The costliest person by branch and bound over the linear program of a person's records.

A node fixes whether some records are there, and whether some pairs of them are equal in an
attribute. The linear program bounds what its persons cost (`PersonProgram`), and its solution is
rounded to a person. Nodes are closed once their bound is no more than a level, which is the
largest cost of the persons that were found. Where too many nodes would be needed, the level is that
cost rounded up to a coarser number.

What is stated is the last level. The products are integers, rounded up to about 28 bits, so this is
the largest cost of the rounded products, rounded up: it does not depend on what the solver found
in between, or on the machine, unless the number of nodes is at its limit.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np

from fitplug.mechanism.person_program import Inequalities, PersonProgram, Relaxation
from fitplug.mechanism.record_products import RecordProducts
from fitplug.numeric import AnyArray, BoolArray, FloatArray, IntArray, find_largest_entry
from fitplug.structure import PersonRecords, RecordSets

MOST_VARIABLES = 20_000
"""The most variables of a program."""

_BITS = 28
"""The bits that products keep."""

_LEVELS = (0, 12, 10, 8)
"""The bits that levels keep, in this order; 0 for all."""

_MOST_NODES = 20
"""The most nodes at each of the levels."""

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
    sizes = np.bincount(person.periods)
    pairs = (int(sizes.sum()) ** 2 - int((sizes * sizes).sum())) // 2
    return len(person.periods) + pairs * (len(person.differing_sets) + 1)


def search_costliest(products: RecordProducts) -> CostliestPersons | None:
    """Bound the largest cost of a person, tightly.

    Args:
        products: The products of records, integers or floats.

    Returns:
        The bound; None if too many nodes would be needed.
    """
    rounded, exponent = _round_up(products.products)
    search = _Search(PersonProgram(products.person, rounded))
    level = search.run()
    if level is None:
        return None
    bound: int | float = level << exponent if exponent >= 0 else level
    if products.products.dtype == np.float64:
        bound = math.ldexp(level, exponent)
    is_exact = exponent == 0 and level == search.best and products.products.dtype != np.float64
    return CostliestPersons(bound, is_exact, search.gather_found())


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
    """Bounds on the variables, and inequalities that were useful before."""

    lower: FloatArray
    upper: FloatArray
    rows: Inequalities


class _Search:
    """The state of a search.

    Attributes:
        program: The program.
        best: The largest cost of the persons that were found.
    """

    def __init__(self, program: PersonProgram) -> None:
        self.program = program
        self.best = 0
        self._found: dict[bytes, tuple[IntArray, IntArray]] = {}

    def run(self) -> int | None:
        """Close all nodes; returns the level, or None if there are too many nodes."""
        size = self.program.size
        root = _Node(np.zeros(size), np.ones(size), self.program.first_rows)
        # The node of the largest bound comes first; numbers decide between equal ones.
        nodes: list[tuple[float, int, _Node]] = [(-math.inf, 0, root)]
        number = 0
        for bits in _LEVELS:
            for _ in range(_MOST_NODES):
                while nodes and -nodes[0][0] <= self._round_level(bits):
                    heapq.heappop(nodes)
                if not nodes:
                    return self._round_level(bits)
                _, _, node = heapq.heappop(nodes)
                for bound, child in self._branch(node, bits):
                    number += 1
                    heapq.heappush(nodes, (-bound, number, child))
        return None

    def gather_found(self) -> RecordSets:
        """Gather the persons that were found."""
        cells, labels = zip(*self._found.values(), strict=True)
        return RecordSets(np.array(cells), np.array(labels))

    def _round_level(self, bits: int) -> int:
        """Round the best cost up to a number of so many bits."""
        step = 1 << max(0, self.best.bit_length() - bits) if bits else 1
        return -(-self.best // step) * step

    def _branch(self, node: _Node, bits: int) -> list[tuple[float, _Node]]:
        """Solve a node, and divide it in two unless its bound closes it."""
        rows, bound = node.rows, math.inf
        solved: Relaxation | None = None
        for _ in range(_ROUNDS):
            solved = self.program.solve(rows, node.lower, node.upper)
            if solved is None:
                break
            self._round_solution(solved.z)
            bound = min(bound, solved.bound)
            if bound <= self._round_level(bits):
                return []
            violated = self.program.find_violated(solved.z)
            if violated is None:
                break
            rows = rows.append(violated)
        z = np.full(self.program.size, 0.5) if solved is None else solved.z
        if solved is not None and len(solved.binding) == len(rows):
            kept = solved.binding.copy()
            kept[: len(self.program.first_rows)] = True
            rows = rows.take(kept)
        return [(bound, child) for child in self._divide(node, rows, z)]

    def _divide(self, node: _Node, rows: Inequalities, z: FloatArray) -> list[_Node]:
        """Divide a node by the most fractional record, or pair of records."""
        program, d = self.program, len(self.program.person.periods)
        is_open: BoolArray = node.lower < node.upper
        from_half = np.where(is_open, np.abs(z - 0.5), np.inf)[:d]
        i = int(np.argmin(from_half))
        if is_open[i] and from_half[i] < 0.5 - _FRACTION:
            return self._fix_record(node, rows, i)
        choice: tuple[float, int, int] | None = None
        for bit in (int(s) for s in program.sets if s.bit_count() == 1):
            y = program.sum_equal(z, bit)[program.pairs]
            at = program.locate(np.arange(len(y)), bit)
            others = np.setdiff1d(np.arange(len(program.sets)), program.find_equal(bit))
            both = is_open[d:].reshape(len(y), -1)
            undecided = np.asarray(is_open[at].any(axis=1)) & both[:, others].any(axis=1)
            distance = np.where(undecided, np.abs(y - 0.5), np.inf)
            pair = int(np.argmin(distance))
            if undecided[pair] and (choice is None or distance[pair] < choice[0]):
                choice = float(distance[pair]), pair, bit
        if choice is not None and choice[0] < 0.5 - _FRACTION:
            return self._fix_pair(node, rows, choice[1], choice[2])
        if is_open[:d].any():
            return self._fix_record(node, rows, int(np.flatnonzero(is_open[:d])[0]))
        if choice is not None:
            return self._fix_pair(node, rows, choice[1], choice[2])
        return [node]

    def _fix_record(self, node: _Node, rows: Inequalities, i: int) -> list[_Node]:
        """Divide a node by whether there is a record in cell i."""
        upper, lower = node.upper.copy(), node.lower.copy()
        upper[i], lower[i] = 0.0, 1.0
        return [_Node(node.lower, upper, rows), _Node(lower, node.upper, rows)]

    def _fix_pair(self, node: _Node, rows: Inequalities, pair: int, bit: int) -> list[_Node]:
        """Divide a node by whether two records, if they are there, are equal in an attribute."""
        first = len(self.program.person.periods) + pair * len(self.program.sets)
        every = np.arange(first, first + len(self.program.sets))
        equal = self.program.locate(np.array(pair), bit)
        children = []
        for fixed in (equal, np.setdiff1d(every, equal)):
            upper = node.upper.copy()
            upper[fixed] = 0.0
            children.append(_Node(node.lower, upper, rows))
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
