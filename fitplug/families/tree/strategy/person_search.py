"""Costly persons with several records, where blocks are trees: what a bound may be compared with.

A greedy search over the records of some leaves: those whose bounds are largest, their neighbours,
and some others. The cost of the person that is found is computed in integers.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from fitplug.families.base.contrasts import build_contrasts
from fitplug.families.tree.shape.node_tree import IdenticalLeaves
from fitplug.families.tree.strategy.person_cost import RecordBounds, TreeProducts
from fitplug.numeric import AnyArray, FloatArray, IntArray

_LEAVES, _NEIGHBOURS, _OTHERS, _CELLS, _CANDIDATES = 6, 3, 8, 6, 400
"""How many leaves are taken for each of the reasons, cells of each of them, and all together."""

_STARTS = 12
"""The number of records from which the search starts."""


class Record(NamedTuple):
    """A record.

    Attributes:
        leaf: The node of its leaf.
        copy: Which of the identical leaves it is, if the node stands for several.
        cell: Its dense cell.
        labels: Its cells of the symmetric attributes that differ.
    """

    leaf: int
    copy: int
    cell: int
    labels: tuple[int, ...]


def find_costly_person(products: TreeProducts, bounds: RecordBounds) -> int:
    """Find a costly person, and compute what it costs, exactly."""
    structure = products.structure
    paths = _Paths(products)
    records = _list_candidates(products, bounds)
    pairs = np.array([[float(paths.multiply(x, y, False)) for y in records] for x in records])
    own = np.array([float(paths.multiply(x, x, True)) for x in records])
    periods = structure.periods[[record.cell for record in records]]
    is_symmetric = structure.period_index is not None
    best, chosen = -np.inf, [0]
    for start in np.argsort(-own)[:_STARTS].tolist():
        found, cost = _search(start, own, pairs, None if is_symmetric else periods, bounds.most)
        if cost > best:
            best, chosen = cost, found
    total = 0
    for i, j in itertools.product(range(len(chosen)), repeat=2):
        total += int(paths.multiply(records[chosen[i]], records[chosen[j]], i == j))
    return total


def _search(
    start: int, own: FloatArray, pairs: FloatArray, periods: IntArray | None, most: int
) -> tuple[list[int], float]:
    """Add the costliest record, one after another; the best person on the way, and the cost."""
    chosen, cost = [start], float(own[start])
    best = list(chosen), cost
    while len(chosen) < most:
        gains = own + 2 * pairs[:, chosen].sum(axis=1)
        if periods is not None:
            gains[np.isin(periods, periods[chosen])] = -np.inf
        at = int(np.argmax(gains))
        if gains[at] == -np.inf:
            break
        chosen.append(at)
        cost += float(gains[at])
        if cost > best[1]:
            best = list(chosen), cost
    return best


def _list_candidates(products: TreeProducts, bounds: RecordBounds) -> list[Record]:
    """List the records that are tried."""
    structure = products.structure
    tree = structure.tree
    costly = np.argsort(-bounds.of_cells.max(axis=1), kind="stable")[:_LEAVES].tolist()
    leaves = list(dict.fromkeys(costly))
    count = len(tree.leaves)
    near = [leaf + d for leaf in costly[:2] for d in range(-_NEIGHBOURS, _NEIGHBOURS + 1)]
    spread = np.linspace(0, count - 1, _OTHERS).astype(np.int64).tolist()
    leaves += [leaf for leaf in (*near, *spread) if 0 <= leaf < count]
    labels = list(itertools.product(range(2), repeat=len(structure.differing)))
    found: list[Record] = []
    for leaf in dict.fromkeys(leaves):
        node = int(tree.leaves[leaf])
        cells = np.argsort(-bounds.of_cells[leaf], kind="stable").tolist()
        if structure.period_index is not None:
            cells = cells[:_CELLS]
        copies = range(2 if tree.multiplicities[node] > 1 else 1)
        found += [Record(node, *one) for one in itertools.product(copies, cells, labels)]
    return found[:_CANDIDATES]


class _Paths:
    """The nodes above leaves, and products of records along them, in integers."""

    def __init__(self, products: TreeProducts) -> None:
        self._products = products
        structure = products.structure
        size = structure.tree.size
        self._step, self._place, self._child, self._parent = (
            np.full(size, -1, dtype=np.int64) for _ in range(4)
        )
        for i, step in enumerate(structure.tree.steps):
            children = step.children.reshape(len(step.parents), -1)
            self._step[children] = i
            self._place[children] = np.arange(len(children))[:, None]
            self._child[children] = np.arange(children.shape[1])
            self._parent[children] = step.parents[:, None]
        self._known: dict[tuple[int, int, int, int, bool], list[int]] = {}

    def multiply(self, x: Record, y: Record, is_same: bool) -> int:
        """Multiply what is measured of two records of one person, or of a record with itself."""
        own = self._multiply_blocks(x, y)
        if is_same:
            factors = self._products.single
        else:
            bits = sum(
                1 << i for i, (a, b) in enumerate(zip(x.labels, y.labels, strict=True)) if a != b
            )
            factors = self._products.pair_factors[bits]
        return sum(factor * product for factor, product in zip(factors, own, strict=True))

    def _multiply_blocks(self, x: Record, y: Record) -> list[int]:
        """Multiply what blocks measure of two records along the tree, without their factors."""
        key = (x.leaf, y.leaf, x.cell, y.cell, x.copy == y.copy)
        if key in self._known:
            return self._known[key]
        structure = self._products.structure
        above_x, above_y = self._list_path(x.leaf), self._list_path(y.leaf)
        found = []
        for own in self._products.blocks:
            classes = structure.classes[own.block]
            total = _multiply_cells(own.root, classes[0].of_cell, x.cell, y.cell)
            for one, other in zip(above_x, above_y, strict=False):
                i, place = int(self._step[one]), int(self._place[one])
                if i < len(own.steps):
                    step, matrices = structure.tree.steps[i], own.steps[i]
                    dense = _multiply_cells(
                        matrices.dense[place], classes[step.depth].of_cell, x.cell, y.cell
                    )
                    if isinstance(step, IdenticalLeaves):
                        contrasts = build_contrasts(int(step.counts[place]))
                        square = contrasts.column_square
                        if x.copy != y.copy:
                            square = -(square // (contrasts.n - 1))
                        dense *= int(matrices.children[place]) ** 2 * square
                    else:
                        columns = matrices.children[place].astype(object)
                        left, right = (columns[:, self._child[node]] for node in (one, other))
                        dense *= int(left @ right)
                    total += dense
                if one != other:
                    break
            found.append(total)
        self._known[key] = found
        return found

    def _list_path(self, leaf: int) -> list[int]:
        """List the nodes from below the root down to a leaf."""
        found = [leaf]
        while self._parent[found[-1]] >= 0:
            found.append(int(self._parent[found[-1]]))
        return found[-2::-1]


def _multiply_cells(matrix: AnyArray, of_cell: IntArray, i: int, j: int) -> int:
    """Multiply the columns of two dense cells, exactly; 0 where a cell has none."""
    if of_cell[i] < 0 or of_cell[j] < 0:
        return 0
    columns = matrix.astype(object)
    return int(columns[:, of_cell[i]] @ columns[:, of_cell[j]])
