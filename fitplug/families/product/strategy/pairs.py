"""Strategies of the product family where neighbours replace a record.

A pair of cells (i, j) costs, with the columns a_i of each attribute's matrix in the rows of a
grade, and the number m of each tuple k of grades,

    sum_A sum_k m_Ak^2 (prod |a_i|^2 + prod |a_j|^2 - 2 prod a_i'a_j)

where the products are over the attributes of block A. Of an attribute, only |a_i|^2, |a_j|^2 and
a_i'a_j of each grade matter. All combinations of these triples are tried. If they are too many,
attributes have one grade, and a cover of fewer triples stands for them. For too many attributes,
let L_a be the largest square of a column, which bounds the other squares, and s_a = a_i'a_j / L_a.
The cost is at most the polynomial of `fitplug.neighbours.move_costs` at s. It is linear in each
s_a, which is at most 1, and at least 0 or its least value for a pair of distinct cells. So the
bound is the same as for moves of a record (docs/theory/units.md, (U13)).

**Covers.** The cost of a pair of cells is affine in each triple x = (|a_i|^2, |a_j|^2, a_i'a_j),
with coefficients >= 0 of x_1 and x_2. So it is largest at vertices of the triples' convex hull. If
each x is at most a convex combination of some triples v, plus r, in x_1 and x_2, and within r of it
in x_3, then no pair costs more than the costliest of v + (r_1, r_2, r_3) and v + (r_1, r_2, -r_3).
The choice of v need not be trusted: r is computed from the weights of the combinations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from scipy.sparse import csr_array, hstack, issparse
from scipy.spatial import Delaunay, QhullError

from fitplug.families.base.attribute_matrices import AttributeMatrix, DenseMatrix
from fitplug.families.base.contrasts import build_contrasts
from fitplug.families.base.mechanism import StrategyCost
from fitplug.families.product.shape.products import (
    MOST_ATTRIBUTES,
    MOST_PAIR_ROWS,
    ProductPairStructure,
)
from fitplug.families.product.strategy.node_trees import TreeVariants
from fitplug.families.product.strategy.products import (
    ProductStrategy,
    count_records,
    gather_multiples,
)
from fitplug.families.product.strategy.trees import TreeMatrix
from fitplug.families.product.strategy.variants import DenseVariants
from fitplug.neighbours import (
    MoveCosts,
    undo_scale,
    upper_costliest_move,
)
from fitplug.numeric import (
    AnyArray,
    BoolArray,
    FloatArray,
    IntArray,
    ceil_float,
    floor_float,
    gamma,
    multiply_exactly,
)

_GRIDS = (32, 24, 16, 12, 8, 6, 5, 4, 3, 2, 1)
"""The numbers of grid steps for each of two ratios of coefficients, tried in this order."""

_SHRINKS = (0.0, 1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 0.6, 0.9)
"""Fractions by which a triple moves to the centre until it is inside the hull, in order."""

_SLACK = 2.0**-40
"""The slack relative to the largest number; every number carries fewer than 2^8 roundings."""


@dataclass(frozen=True, eq=False)
class TripleCover:
    """Triples of which one costs at least as much as any pair of values, for any other attributes.

    Attributes:
        triples: Shape (c, 3).
        origins: The index of the pair of values near each triple, shape (c,).
    """

    triples: FloatArray
    origins: IntArray


def cover_triples(triples: IntArray, most: int) -> TripleCover | None:
    """Cover triples (k, 3) by about `most` at most, or by all if they are no more.

    Returns:
        The cover; None if the triples lie in a plane, up to rounding.
    """
    if len(triples) <= most:
        return TripleCover(triples.astype(np.float64), np.arange(len(triples)))
    scale = float(triples.max())
    if not scale > 0:  # all columns are zero
        return TripleCover(np.zeros((1, 3)), np.zeros(1, dtype=np.int64))
    X = triples.astype(np.float64) / scale
    for steps in _GRIDS:
        s, t = np.meshgrid(np.linspace(0, 1, steps + 1), np.linspace(-1, 1, 2 * steps + 1))
        directions = np.stack([1 - s.ravel(), s.ravel(), t.ravel()])
        directions = np.concatenate([directions, [[0, 0], [0, 0], [1, -1]]], axis=1)
        chosen = np.unique([int((X @ direction).argmax()) for direction in directions.T])
        if 2 * len(chosen) <= most:
            break
    # Triples with smaller squares cost no more.
    lowered = [X[chosen] * part for part in ((1, 1, 1), (0, 1, 1), (1, 0, 1), (0, 0, 1))]
    try:
        left = _measure_rest(X, np.concatenate(lowered))
    except QhullError:
        return None
    above = np.maximum(left, 0.0).max(axis=0)
    above[2] = np.abs(left[:, 2]).max()
    if not np.isfinite(above).all():
        return None
    above += 2 * _SLACK
    cover = [X[chosen] + above * sign for sign in ((1, 1, 1), (1, 1, -1))]
    return TripleCover(np.concatenate(cover) * scale * (1 + _SLACK), np.tile(chosen, 2))


def _measure_rest(X: FloatArray, corners: FloatArray) -> FloatArray:
    """Subtract from each point (k, 3) a nearby convex combination of corners (c, 3)."""
    hull = Delaunay(corners, qhull_options="QJ Qbb Qc")
    middle = corners.mean(axis=0)
    means = np.full_like(X, np.nan)
    outside = np.arange(len(X))
    for shrink in _SHRINKS:
        points = X[outside] + shrink * (middle - X[outside])
        simplex = hull.find_simplex(points)
        inside = (simplex >= 0) & np.isfinite(hull.transform[simplex]).all(axis=(1, 2))
        transforms = hull.transform[simplex[inside]]
        parts = np.einsum("kij,kj->ki", transforms[:, :3], points[inside] - transforms[:, 3])
        weights = np.concatenate([parts, 1 - parts.sum(axis=1, keepdims=True)], axis=1)
        weights = np.maximum(weights, 0.0)
        weights /= weights.sum(axis=1, keepdims=True)
        among = corners[hull.simplices[simplex[inside]]]
        means[outside[inside]] = np.einsum("kc,kci->ki", weights, among)
        outside = outside[~inside]
    return X - means


class ProductPairStrategy(ProductStrategy[ProductPairStructure]):
    """The strategies of `ProductPairStructure`."""

    def compute_record_cost(self, claimed: int | None = None) -> StrategyCost:
        """Compute an upper bound on the cost of any pair of cells."""
        if (costs_of_all := _try_all_pairs(self)) is not None:
            largest, _ = costs_of_all
        else:
            costs, shift = _weigh_sets(self)
            # The cost of a pair is an integer.
            moves = costs.search(costs.list_starts())
            largest = undo_scale(upper_costliest_move(costs, moves), shift)
        scales = self.structure.batched.scales
        records = count_records(scales, self.attribute_matrices, self.block_sets)
        return StrategyCost(largest, np.array([ceil_float(Fraction(largest))]), records)

    def compute_attained_square(self) -> int:
        if (costs_of_all := _try_all_pairs(self)) is not None:
            _, attained = costs_of_all
            return attained
        costs, _ = _weigh_sets(self)
        moves = costs.search(costs.list_starts())[:_TRIED]
        return max(_sum_move_cost(self, move) for move in moves)


_TRIED = 8
"""The most moves for which the cost of a pair of cells is computed."""

_MOST_COVERED = 100_000_000
"""The most pairs of cells that are tried if covers stand for some."""

_FEWEST = 8
"""The fewest triples of a cover."""

_CHUNK = 2_000_000
"""The approximate number of pairs whose costs are computed at once."""


Table: TypeAlias = AnyArray | csr_array
"""Numbers of pairs of values by grade, (pairs, K), most of which are 0 in a sparse array."""


def list_triples(matrix: AttributeMatrix, moves: bool, ordered: bool = False) -> list[Table]:
    """List |a_i|^2, |a_j|^2 and a_i'a_j of the columns of a matrix, for all pairs of values.

    Args:
        matrix: The integer matrix of an attribute.
        moves: Whether i and j may differ.
        ordered: Whether to list only one order of each pair.

    Returns:
        Three tables of the numbers for the rows of each grade. Of a tree, pairs that are alike are
        listed once.
    """
    if isinstance(matrix, (TreeMatrix, TreeVariants)):
        i, j = matrix.shape.pairs.T
        listed = i <= j if ordered else i == i
        i, j = (leaves[listed if moves else i == j] for leaves in (i, j))
        ends = (i, i), (j, j), (i, j)
        return [matrix.compute_products(*both) for both in ends]
    return list(np.moveaxis(_list_dense_triples(matrix, moves, ordered), 1, 0))


def _list_dense_triples(matrix: AttributeMatrix, moves: bool, ordered: bool) -> IntArray:
    """List the triples of all pairs of values, shape (pairs, 3, K)."""
    if not isinstance(matrix, (DenseMatrix, DenseVariants)):
        assert matrix.is_symmetric
        contrasts = build_contrasts(matrix.n)
        square = contrasts.column_square
        # H'H = precision (I - J/n), and the precision of contrasts is a multiple of n.
        between = -(contrasts.precision // contrasts.n)
        triples = [(square,) * 3, (square, square, between)]
        return np.array(triples[: 1 + (moves and matrix.n > 1)], dtype=np.int64)[:, :, None]
    if not matrix.rows:  # one cell has no contrasts
        return np.zeros((1, 3, 1), dtype=np.int64)
    grams = np.stack([multiply_exactly(rows.T, rows) for rows in matrix.split_rows()], axis=2)
    squares = np.diagonal(grams).T
    if not moves:
        # np.unique does not sort Python integers, which squares may be.
        different = sorted(set(map(tuple, squares.tolist())))
        return np.repeat(np.array(different, dtype=squares.dtype)[:, None], 3, axis=1)
    i, j = np.tril_indices(matrix.n) if ordered else np.indices((matrix.n,) * 2).reshape(2, -1)
    return np.stack([squares[i], squares[j], grams[i, j]], axis=1)


def _try_all_pairs(strategy: ProductPairStrategy) -> tuple[int, int] | None:
    """Bound the cost of all pairs of cells, from all triples or from covers.

    Returns:
        The bound, and the exact cost of one costly pair; None if there are too many pairs.
    """
    structure = strategy.structure
    if len(structure.sizes) > MOST_ATTRIBUTES:
        return None
    # Exchanging its cells does not change a pair's cost, so the last attribute needs one order.
    order = structure.pair_order
    all_triples = [
        list_triples(strategy.attribute_matrices[a], a in structure.free, a == order[-1])
        for a in order
    ]
    origins = [np.arange(tables[0].shape[0]) for tables in all_triples]
    triples = [[table.astype(np.float64) for table in tables] for tables in all_triples]
    if not structure.fits_all_pairs:
        if (covers := _cover_all([np.column_stack(tables) for tables in all_triples])) is None:
            return None
        origins = [cover.origins for cover in covers]
        triples = [list(cover.triples.T[:, :, None]) for cover in covers]
    counts = [tables[0].shape[0] for tables in triples]
    scales = structure.batched.scales
    grid = tuple(1 + scales.counts[a] for a in order)
    labels = [structure.grade_labels[a] for a in order]
    weights = np.zeros(grid)
    np.add.at(
        weights, tuple(labels), gather_multiples(scales, strategy.block_sets).astype(float) ** 2
    )
    sums = [_contract(weights, [tables[part] for tables in triples[:-1]]) for part in range(3)]
    most = _contract(weights, [_find_largest([abs(x) for x in tables])[None] for tables in triples])
    left = np.concatenate(
        [
            sums[0][:, :1] + sums[1][:, :1] - 2 * sums[2][:, :1],
            sums[0][:, 1:],
            sums[1][:, 1:],
            -2 * sums[2][:, 1:],
        ],
        axis=1,
    )
    last = triples[-1]
    ones = np.ones((counts[-1], 1))
    right = hstack([ones, *last], "csc").T if issparse(last[0]) else np.hstack([ones, *last]).T
    # Skip rows that no pair of values of the last attribute can make as costly as the best.
    highest, lowest = (np.append(1, [s * _find_largest([s * x]) for x in last]) for s in (1, -1))
    above = np.maximum(left, 0.0) @ highest + np.minimum(left, 0.0) @ lowest
    order_of_rows = np.argsort(-above)
    best, at = -1.0, 0
    step = max(1, _CHUNK // counts[-1])
    for start in range(0, len(left), step):
        rows = order_of_rows[start : start + step]
        if above[rows[0]] <= best:
            break
        costs = left[rows] @ right
        row, column = divmod(int(costs.argmax()), counts[-1])
        if costs[row, column] > best:
            best, at = float(costs[row, column]), int(rows[row]) * counts[-1] + column
    # No intermediate number exceeds the four sums of products of the largest squares.
    error = 8 * float(most.max()) * gamma(8 * len(order) + 4 * sum(grid) + 64)
    places = np.unravel_index(at, counts)
    chosen = {a: _take_row(all_triples[k], origins[k][places[k]]) for k, a in enumerate(order)}
    return math.floor(best + error), _sum_cost(strategy, chosen)


def _find_largest(tables: Sequence[Table]) -> FloatArray:
    """Find the largest number of each grade in tables (pairs, K), shape (K,)."""
    largest = [table.max(axis=0) for table in tables]
    return np.max([x.toarray() if issparse(x) else x for x in largest], axis=0)


def _take_row(tables: Sequence[Table], row: int) -> AnyArray:
    """Take the triple of one pair of values as Python integers, shape (3, K)."""
    rows = (table[[row]] for table in tables)
    dense = [csr_array(one).toarray() if issparse(one) else one for one in rows]
    return np.concatenate(dense).astype(object)


def _cover_all(triples: Sequence[IntArray]) -> list[TripleCover] | None:
    """Cover the triples of all attributes by few enough to try all combinations."""
    most = max(map(len, triples))
    while True:
        counts = [min(len(table), most) for table in triples]
        if math.prod(counts[:-1]) <= MOST_PAIR_ROWS and math.prod(counts) <= _MOST_COVERED:
            break
        most = int(most / 1.2)
        if most < _FEWEST:
            return None
    covers = [cover_triples(table, most) for table in triples]
    complete = [cover for cover in covers if cover is not None]
    return complete if len(complete) == len(covers) else None


def _contract(weights: FloatArray, tables: Sequence[Table]) -> FloatArray:
    """Contract weights (1 + K_1, ...) with numbers of the first attributes' grades.

    Args:
        weights: Shape (1 + K_1, ..., 1 + K_m).
        tables: Numbers of each attribute's grades, shapes (k_a, K_a), for m or m - 1 attributes.

    Returns:
        Shape (k_1 k_2 ..., 1), or with the last axis of the weights.
    """
    for numbers in tables:
        # Contract the first axis, whose first place is the total; the pairs' axis comes last.
        total, *rest = weights
        contracted = total + (numbers @ np.reshape(rest, (len(rest), -1))).reshape(-1, *total.shape)
        weights = np.moveaxis(contracted, 0, -1)
    if weights.ndim == len(tables):
        return weights.reshape(-1, 1)
    return np.moveaxis(weights, 0, -1).reshape(-1, weights.shape[0])


def _list_ends(strategy: ProductPairStrategy) -> list[tuple[int, ...]]:
    """List each attribute's largest |a_i|^2, followed by its triple with the least a_i'a_j."""
    known: dict[int, tuple[int, ...]] = {}
    for matrix in strategy.attribute_matrices:
        if id(matrix) not in known:
            triples = np.column_stack(list_triples(matrix, True))
            least = triples[int(triples[:, 2].argmin())]
            known[id(matrix)] = int(triples[:, 0].max()), *least.tolist()
    return [known[id(matrix)] for matrix in strategy.attribute_matrices]


def _weigh_sets(strategy: ProductPairStrategy) -> tuple[MoveCosts, int]:
    """Sum the blocks' squared integers by the set of their movable attributes.

    Returns:
        The costs of moves, rounded up, and the binary logarithm of their scale.
    """
    structure, ends = strategy.structure, _list_ends(strategy)
    of_blocks = np.zeros(len(structure.blocks), dtype=object)
    for block_set in strategy.block_sets:
        m = block_set.M[:, 0, 0].astype(object)
        squares = structure.subsets.multiply([largest for largest, *_ in ends], block_set.blocks)
        of_blocks[block_set.blocks] += squares * m * m
    # The least a_i'a_j over the largest square, rounded down, in [-1, 0].
    ratios = [
        max(-1.0, min(0.0, floor_float(Fraction(least, largest)))) if largest else -1.0
        for largest, _, _, least in (ends[a] for a in structure.free.tolist())
    ]
    noisy = of_blocks[structure.noisy_blocks]
    return MoveCosts.weigh(np.array([*ratios, 1.0]), structure.sets, noisy)


def _sum_move_cost(strategy: ProductPairStrategy, move: BoolArray) -> int:
    """Compute the exact cost of a pair of cells that differ in a move's attributes (m,)."""
    ends = _list_ends(strategy)
    triples = {a: (largest,) * 3 for a, (largest, *_) in enumerate(ends)}
    triples |= {a: ends[a][1:] for a in strategy.structure.free[move].tolist()}
    arrays = {a: np.array(triple, dtype=object)[:, None] for a, triple in triples.items()}
    return _sum_cost(strategy, arrays)


def _sum_cost(strategy: ProductPairStrategy, triples: Mapping[int, AnyArray]) -> int:
    """Compute the exact cost of a pair of cells from each attribute's triples (3, K)."""
    structure = strategy.structure
    scales = structure.batched.scales
    squares = gather_multiples(scales, strategy.block_sets).astype(object) ** 2
    first, second, both = (
        scales.multiply([triples[a][part] for a in range(len(structure.sizes))])
        for part in range(3)
    )
    return int(((first + second - 2 * both) * squares).sum())
