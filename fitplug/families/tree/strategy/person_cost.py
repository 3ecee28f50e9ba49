"""Bounds on the cost of a person with several records, where blocks are trees.

The cost of a difference is the sum of the products of all pairs of its records. With the columns
a_x of the strategy, each record of a person adds at most

    h(x) = |a_x|^2 + the sum over k - 1 other periods of max(0, the largest a_x'a_y with y there)

so that the sum of the k largest h of different periods bounds the cost. If periods are symmetric, a
person of r records costs at most r times the largest |a_x|^2 + (r - 1) max a_x'a_y, in which
products may be negative, for some r up to k (docs/theory/persons.md). One sweep down the tree
finds, for each cell, the largest product with a cell below a different child of a node on its path
(`PersonProducts`).

If the products are too many, two bounds by Cauchy's inequality remain. If the periods are an
attribute with contrasts H, H'H = f (I - J / T), their blocks add at most as much as with f I.

The bound is compared with the exact cost of a person whom a greedy search finds among the records
of some leaves: those with the largest bounds, their neighbours, and some others.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fitplug.families.base.contrasts import build_contrasts
from fitplug.families.tree.shape.node_tree import TreeStep
from fitplug.families.tree.shape.persons import PersonTreeStructure
from fitplug.families.tree.strategy.blocks import TreeBlock, TreeIntegers
from fitplug.families.tree.strategy.cost import (
    PathProducts,
    TreeProducts,
    count_operations,
    estimate_column_squares,
)
from fitplug.neighbours import PersonRecords, RecordProducts, upper_largest_cost
from fitplug.numeric import FloatArray, IntArray, gamma

MOST_PRODUCTS = 3e9
"""The most products of two records that a sweep computes: they take about half a minute."""

_MOST_STORED = 60_000_000
"""The most numbers that a sweep stores for all nodes."""

_MOST_SUMS = 20_000_000
"""The most sums of a search for the costliest records, as designs bound some ten strategies."""

_MOST_NUMBERS = 2**22
"""The most numbers of an array, unless one node needs more."""


def upper_person_cost(
    strategy: TreeIntegers[PersonTreeStructure], claimed: int | None = None
) -> FloatArray:
    """Bound the cost of persons with a record in each cell from above, rounding included.

    Args:
        strategy: The strategy.
        claimed: A bound for a search to prove; None to search for the best one.

    Returns:
        Shape (leaves, D).
    """
    products = PersonProducts(strategy)
    bounds = [_upper_by_cauchy(products)]
    if products.fits:
        bounds.append(_upper_by_products(products, claimed))
    return min(bounds, key=np.max)


@dataclass(frozen=True, eq=False)
class LargestProducts:
    """The largest products of two records.

    Attributes:
        of_cells: The largest product of each cell with a record of each period, shape (leaves, D,
            classes of periods), with one class if periods are symmetric. Entries of a cell's own
            period are meaningless.
        same: The largest product of two dense cells in one leaf, for each set of symmetric
            attributes in which the records differ, shape (sets, D, D).
        other: The same for two different leaves; -inf if there is only one leaf.
    """

    of_cells: FloatArray
    same: FloatArray
    other: FloatArray


class PersonProducts(TreeProducts):
    """The products of pairs of records of one person."""

    def __init__(self, strategy: TreeIntegers[PersonTreeStructure]) -> None:
        self.structure = strategy.structure
        period = self.structure.period_index
        always = () if period is None else (period,)
        super().__init__(strategy, self.structure.differing, always)
        self._all_cells = np.arange(self.structure.cells)

    @property
    def fits(self) -> bool:
        """Whether the products are few enough for a sweep."""
        structure, D, sets = self.structure, self.structure.cells, len(self.factors)
        pairs = sum(
            float(step.children.size) * (step.children.shape[1] if step.counts is None else 2)
            for step in structure.tree.steps
        )
        numbers = structure.tree.size * D * (D * sets + self._period_classes)
        work = pairs * D * D * (sets + len(self.blocks))
        return work <= MOST_PRODUCTS and numbers <= _MOST_STORED

    @property
    def error(self) -> float:
        """A bound on the relative error of products, in units of the largest |a_x|^2 of blocks."""
        operations = count_operations(self.structure, self.blocks)
        return gamma(4 * operations + 4 * len(self.structure.sizes) + 32)

    @property
    def largest_square(self) -> float:
        """An upper bound on the sum over the blocks of the largest |a_x|^2."""
        return sum(
            float(estimate_column_squares(self.structure, [tree_block], [factor]).max())
            for tree_block, factor in zip(self.blocks, self.single, strict=True)
        ) * (1 + self.error)

    def find_largest(self) -> LargestProducts:
        """Find the largest products of two records, up to rounding."""
        structure = self.structure
        tree, D = structure.tree, structure.cells
        other = np.full((len(self.factors), D, D), -np.inf)
        best = np.full((tree.size, D, self._period_classes), -np.inf)
        prefix = np.zeros((len(self.factors), tree.size, D, D))
        roots = [self.multiply_root(tree_block, self._all_cells) for tree_block in self.blocks]
        prefix[:, 0] = self._sum_blocks(roots)
        for i, step in enumerate(tree.steps):
            k = step.children.shape[1] if step.counts is None else 2
            together = max(1, _MOST_NUMBERS // (k * k * D * D * len(self.factors)))
            for start in range(0, len(step.parents), together):
                some = slice(start, start + together)
                self._sweep_step(i, step, some, prefix, best, other)
        leaves = tree.leaves
        below = self._reduce_periods(prefix[:, leaves].max(axis=0))
        same = prefix[:, leaves].max(axis=1)
        return LargestProducts(np.maximum(best[leaves], below), same, other)

    def _sweep_step(
        self,
        i: int,
        step: TreeStep,
        some: slice,
        prefix: FloatArray,
        best: FloatArray,
        other: FloatArray,
    ) -> None:
        """Find the products below some nodes of a step."""
        parents = step.parents[some]
        grams = [self._multiply_siblings(same, i, some) for same in self.blocks]
        children = step.children[some]
        if step.counts is not None:
            same, another = (
                self._sum_blocks([gram[:, 0, part % gram.shape[2]] for gram in grams])
                for part in (0, 1)
            )
            above, children = prefix[:, parents], children[:, 0]
            prefix[:, children] = above + same
            another = above + another
            np.maximum(other, another.max(axis=1), out=other)
            cross = self._reduce_periods(another.max(axis=0))
            best[children] = np.maximum(best[parents], cross)
            return
        k = children.shape[1]
        pairs = self._sum_blocks(grams) + prefix[:, parents][:, :, None, None]
        at = np.arange(k)
        prefix[:, children] = pairs[:, :, at, at]
        pairs[:, :, at, at] = -np.inf
        np.maximum(other, pairs.max(axis=(1, 2, 3)), out=other)
        cross = self._reduce_periods(pairs.max(axis=(0, 3)))
        best[children] = np.maximum(best[parents][:, None], cross)

    def _multiply_siblings(self, tree_block: TreeBlock, i: int, some: slice) -> FloatArray:
        """Compute a block's products of pairs of children of a step, (b, k, k, D, D).

        Identical leaves have the products of one with itself and with another, (b, 1, 2, D, D).
        """
        if i >= len(tree_block.steps):
            return np.zeros((1, 1, 1, *[len(self._all_cells)] * 2))
        dense = self.multiply_dense(tree_block, i, some, self._all_cells)
        X = self.multiply_children(tree_block, i, some)
        return np.asarray(X[:, :, :, None, None] * dense[:, None, None])

    def _sum_blocks(self, grams: Sequence[FloatArray]) -> FloatArray:
        """Sum products of blocks with their factors, for each set, (sets, ...)."""
        total: FloatArray = np.zeros(())
        for factor, gram in zip(self.factors.T, grams, strict=True):
            total = total + factor.reshape(-1, *([1] * gram.ndim)) * gram
        return total

    def _reduce_periods(self, values: FloatArray) -> FloatArray:
        """Find the largest of values (..., D, D) over the cells of each class of periods."""
        if self._period_classes == 1:
            return values.max(axis=-1, keepdims=True)
        periods = self.structure.periods
        columns = [values[..., periods == t].max(axis=-1) for t in range(self._period_classes)]
        return np.stack(columns, axis=-1)

    @property
    def _period_classes(self) -> int:
        return int(self.structure.periods.max()) + 1


def _upper_by_products(products: PersonProducts, claimed: int | None) -> FloatArray:
    """Bound persons with a record in each cell by the largest products of two records."""
    structure = products.structure
    k, error = structure.most_records, products.error * products.largest_square
    squares = estimate_column_squares(structure, products.blocks, products.single)
    upper = squares * (1 + products.error)
    if k == 1:
        return upper
    largest = products.find_largest()
    if structure.period_index is not None:
        return _upper_persons(upper, largest.of_cells[..., 0] + error, k)
    of_periods = _upper_by_periods(products, largest, upper, claimed)
    crossing = np.maximum(largest.of_cells, 0.0) + error
    at = np.arange(structure.cells)
    crossing[:, at, structure.periods] = 0.0
    partners = np.sort(crossing, axis=-1)[..., ::-1][..., : k - 1].sum(axis=-1)
    of_cells = _sum_records(structure, (upper + partners) * (1 + gamma(k + 8)))
    return np.minimum(of_cells, of_periods[structure.periods])


def _upper_persons(squares: FloatArray, partners: FloatArray, most: int) -> FloatArray:
    """Bound persons with a record in each cell, where periods are symmetric.

    Args:
        squares: Upper bounds on |a_x|^2, shape (leaves, D).
        partners: Upper bounds on a_x'a_y of a record x in each cell and one of another period,
            shape (leaves, D).
        most: k, the most records.

    Returns:
        Shape (leaves, D).
    """
    upper, error = squares, gamma(most + 8)
    for others in range(1, most):
        # Products may be negative, so the size of the terms bounds what the sums round.
        stars = squares + others * partners
        stars += error * (squares + others * abs(partners))
        largest = float(stars.max())
        sums = stars + others * largest
        upper = np.maximum(upper, sums + error * (abs(stars) + others * abs(largest)))
    return upper


def _sum_records(structure: PersonTreeStructure, records: FloatArray) -> FloatArray:
    """Bound persons with a record in each cell by sums of bounds on their records, (leaves, D)."""
    k = structure.most_records
    if structure.period_index is not None:
        return np.asarray((records + (k - 1) * records.max()) * (1 + gamma(k + 4)))
    largest = np.zeros(structure.period_count)
    np.maximum.at(largest, structure.periods, records.max(axis=0))
    others = [np.sort(np.delete(largest, t))[::-1][: k - 1].sum() for t in structure.periods]
    return np.asarray((records + np.array(others)) * (1 + gamma(k + 4)))


def _upper_by_periods(
    products: PersonProducts, largest: LargestProducts, squares: FloatArray, claimed: int | None
) -> FloatArray:
    """Bound persons with a record in each period by the largest product of each pair of periods.

    Like a symmetric attribute, the tree matters only by whether both records are in one leaf. So
    leaves are one more such attribute (`fitplug.neighbours`).

    Args:
        products: The products.
        largest: The largest ones.
        squares: Upper bounds on |a_x|^2 of each leaf and dense cell, shape (leaves, D).
        claimed: A bound to prove, or None.

    Returns:
        Shape (T,).
    """
    structure = products.structure
    k, T, periods = structure.most_records, structure.period_count, structure.periods
    sizes = [structure.sizes[a] for a in structure.differing]
    leaves = structure.workload.domain[structure.tree_attribute].size
    person = PersonRecords(k, np.arange(T), (*sizes, leaves))
    error = products.error * products.largest_square
    most = products.largest_square * (1 + gamma(4))
    # Combinations that no two records have get the least possible product.
    pairs = np.maximum(np.concatenate([largest.same, largest.other]), -most) + error
    merged = np.full((len(pairs), T, T), -np.inf)
    rows = np.full((len(pairs), T, structure.cells), -np.inf)
    np.maximum.at(rows.swapaxes(0, 1), periods, pairs.swapaxes(0, 1))
    np.maximum.at(merged.transpose(2, 0, 1), periods, rows.transpose(2, 0, 1))
    of_squares = np.full(T, -np.inf)
    np.maximum.at(of_squares, periods, squares.max(axis=0))
    at = np.arange(T)
    merged[:, at, at] = of_squares
    # Integers, so that a claimed bound can be proven.
    rounded = np.vectorize(int, otypes=[object])(np.ceil(merged))
    if claimed is not None:
        claimed -= claimed >> 32  # which leaves room for rounding, within the margin of claims
    costliest = upper_largest_cost(RecordProducts(person, rounded), claimed, _MOST_SUMS)
    return costliest.of_cells.astype(np.float64) * (1 + gamma(4))


def _upper_by_cauchy(products: PersonProducts) -> FloatArray:
    """Bound records by their squares: |sum a_x|^2 is at most k times the sum of |a_x|^2."""
    structure = products.structure
    k, period = structure.most_records, structure.period_index
    factors = list(products.single)
    for number, tree_block in enumerate(products.blocks):
        if period is not None and period in structure.block_sets[tree_block.block]:
            contrasts = build_contrasts(structure.sizes[period])
            factors[number] = factors[number] // contrasts.column_square * contrasts.precision
        else:
            factors[number] *= k
    upper = estimate_column_squares(structure, products.blocks, factors) * (1 + products.error)
    return _sum_records(structure, upper)


_LEAVES, _NEIGHBOURS, _OTHERS, _CELLS, _CANDIDATES = 6, 3, 8, 6, 400
"""The leaves to try (costliest, neighbours, others), the cells of each, and the most records."""

_STARTS = 12
"""The number of records from which the search starts."""


class Record(NamedTuple):
    """A record.

    Attributes:
        leaf: The node of the record's leaf.
        copy: The index among identical leaves, if the node stands for several.
        cell: The record's dense cell.
        labels: The record's cells of the symmetric attributes in `differing`.
    """

    leaf: int
    copy: int
    cell: int
    labels: tuple[int, ...]


def attain_person_cost(strategy: TreeIntegers[PersonTreeStructure], bounds: FloatArray) -> int:
    """Find a costly person, and compute the exact cost."""
    structure, products = strategy.structure, PersonProducts(strategy)
    paths = PathProducts(strategy, np.arange(structure.cells))
    records = _list_candidates(structure, bounds)

    def multiply(x: Record, y: Record, is_same: bool) -> int:
        """Multiply the columns of two records of one person, or of a record with itself."""
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
    is_dense = structure.period_index is None
    apart = structure.periods[[one.cell for one in records]] if is_dense else None
    best, chosen = -np.inf, [0]
    for start in np.argsort(-squares)[:_STARTS].tolist():
        person, cost = _search(start, squares, pairs, apart, structure.most_records)
        if cost > best:
            best, chosen = cost, person
    total = 0
    for i, j in itertools.product(range(len(chosen)), repeat=2):
        total += multiply(records[chosen[i]], records[chosen[j]], i == j)
    return total


def _search(
    start: int, squares: FloatArray, pairs: FloatArray, periods: IntArray | None, most: int
) -> tuple[list[int], float]:
    """Add the costliest record repeatedly; return the best person on the way, and the cost."""
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


def _list_candidates(structure: PersonTreeStructure, bounds: FloatArray) -> list[Record]:
    """List the records to try."""
    tree = structure.tree
    costly = np.argsort(-bounds.max(axis=1), kind="stable")[:_LEAVES].tolist()
    leaves = list(dict.fromkeys(costly))
    count = len(tree.leaves)
    near = [leaf + d for leaf in costly[:2] for d in range(-_NEIGHBOURS, _NEIGHBOURS + 1)]
    spread = np.linspace(0, count - 1, _OTHERS).astype(np.int64).tolist()
    leaves += [leaf for leaf in (*near, *spread) if 0 <= leaf < count]
    labels = list(itertools.product(range(2), repeat=len(structure.differing)))
    candidates: list[Record] = []
    for leaf in dict.fromkeys(leaves):
        node = int(tree.leaves[leaf])
        cells = np.argsort(-bounds[leaf], kind="stable").tolist()
        if structure.period_index is not None:
            cells = cells[:_CELLS]
        copies = range(2 if tree.multiplicities[node] > 1 else 1)
        candidates += [Record(node, *one) for one in itertools.product(copies, cells, labels)]
    return candidates[:_CANDIDATES]
