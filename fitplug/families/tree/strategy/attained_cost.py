"""Costly differences between neighbours, exactly: what bounds on the cost may be compared with.

**Pairs of cells.** Of the costliest pair that the sweep of `pair_cost` found, the costliest leaves
below its two nodes are sought, and all pairs of dense cells on these leaves are tried.

**Persons.** A greedy search over the records of some leaves: those whose bounds are largest, their
neighbours, and some others.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.families.tree.shape.persons import PersonTreeStructure
from fitplug.families.tree.strategy.blocks import TreeIntegers
from fitplug.families.tree.strategy.cost import estimate_column_squares
from fitplug.families.tree.strategy.pair_cost import CostlyPair
from fitplug.families.tree.strategy.person_cost import PersonProducts, RecordBounds
from fitplug.families.tree.strategy.products import PathProducts, TreeProducts
from fitplug.numeric import FloatArray, IntArray

_LEAVES, _NEIGHBOURS, _OTHERS, _CELLS, _CANDIDATES = 6, 3, 8, 6, 400
"""How many leaves are taken for each of the reasons, cells of each of them, and all together."""

_STARTS = 12
"""The number of records from which the search starts."""


def attain_pair_cost(strategy: TreeIntegers[TreePairStructure], costly: CostlyPair) -> int:
    """Compute the largest cost of a pair of cells on the leaves of a costly pair.

    The leaves are the costliest below its two nodes.
    """
    structure, tree = strategy.structure, strategy.structure.tree
    joint = structure.joint_classes
    factors = TreeProducts(strategy, structure.free.tolist())
    squares = estimate_column_squares(structure, strategy.tree_blocks, factors.single)
    leaves = []
    for node, joint_class in zip(costly.nodes, costly.classes, strict=True):
        is_below = (np.arange(tree.size) == node).astype(np.float64)
        below = np.flatnonzero(tree.repeat_downwards(is_below, int(tree.depths[node]))[tree.leaves])
        cell = joint[int(tree.depths[node])].first[joint_class]
        leaves.append(int(tree.leaves[below[np.argmax(squares[below, cell])]]))
    x, y = leaves if costly.are_apart else (leaves[0], leaves[0])
    paths = PathProducts(strategy, joint[0].first)
    first, second = (paths.multiply(leaf, leaf, False) for leaf in (x, y))
    total = sum(
        single * (np.diagonal(a)[:, None] + np.diagonal(b)) - 2 * pair * between
        for single, pair, a, b, between in zip(
            factors.single,
            factors.pairs[costly.move],
            first,
            second,
            paths.multiply(x, y, costly.are_apart),
            strict=True,
        )
    )
    return int(np.asarray(total)[structure.can_move].max())


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


def attain_person_cost(strategy: TreeIntegers[PersonTreeStructure], bounds: RecordBounds) -> int:
    """Find a costly person, and compute what it costs."""
    structure, products = strategy.structure, PersonProducts(strategy)
    paths = PathProducts(strategy, np.arange(structure.cells))
    records = _list_candidates(structure, bounds)

    def multiply(x: Record, y: Record, is_same: bool) -> int:
        """Multiply what is measured of two records of one person, or of a record with itself."""
        differing = [a != b for a, b in zip(x.labels, y.labels, strict=True)]
        number = sum(1 << i for i, differs in enumerate(differing) if differs)
        factors = products.single if is_same else products.pairs[number]
        products_of_blocks = paths.multiply(x.leaf, y.leaf, x.copy != y.copy)
        return sum(
            factor * int(product[x.cell, y.cell])
            for factor, product in zip(factors, products_of_blocks, strict=True)
        )

    pairs = np.array([[float(multiply(x, y, False)) for y in records] for x in records])
    squares = np.array([float(multiply(x, x, True)) for x in records])
    periods = structure.periods[[record.cell for record in records]]
    is_symmetric = structure.period_index is not None
    best, chosen = -np.inf, [0]
    for start in np.argsort(-squares)[:_STARTS].tolist():
        person, cost = _search(
            start, squares, pairs, None if is_symmetric else periods, bounds.most
        )
        if cost > best:
            best, chosen = cost, person
    total = 0
    for i, j in itertools.product(range(len(chosen)), repeat=2):
        total += multiply(records[chosen[i]], records[chosen[j]], i == j)
    return total


def _search(
    start: int, squares: FloatArray, pairs: FloatArray, periods: IntArray | None, most: int
) -> tuple[list[int], float]:
    """Add the costliest record, one after another; the best person on the way, and the cost."""
    chosen, cost = [start], float(squares[start])
    best = list(chosen), cost
    while len(chosen) < most:
        gains = squares + 2 * pairs[:, chosen].sum(axis=1)
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


def _list_candidates(structure: PersonTreeStructure, bounds: RecordBounds) -> list[Record]:
    """List the records that are tried."""
    tree = structure.tree
    costly = np.argsort(-bounds.of_cells.max(axis=1), kind="stable")[:_LEAVES].tolist()
    leaves = list(dict.fromkeys(costly))
    count = len(tree.leaves)
    near = [leaf + d for leaf in costly[:2] for d in range(-_NEIGHBOURS, _NEIGHBOURS + 1)]
    spread = np.linspace(0, count - 1, _OTHERS).astype(np.int64).tolist()
    leaves += [leaf for leaf in (*near, *spread) if 0 <= leaf < count]
    labels = list(itertools.product(range(2), repeat=len(structure.differing)))
    candidates: list[Record] = []
    for leaf in dict.fromkeys(leaves):
        node = int(tree.leaves[leaf])
        cells = np.argsort(-bounds.of_cells[leaf], kind="stable").tolist()
        if structure.period_index is not None:
            cells = cells[:_CELLS]
        copies = range(2 if tree.multiplicities[node] > 1 else 1)
        candidates += [Record(node, *one) for one in itertools.product(copies, cells, labels)]
    return candidates[:_CANDIDATES]
