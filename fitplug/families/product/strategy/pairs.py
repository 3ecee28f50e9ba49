"""Strategies of the product family where neighbours replace a record.

A pair of cells (i, j) costs, with the columns a_i of each attribute's matrix and its number m,

    sum_A m_A^2 (prod |a_i|^2 + prod |a_j|^2 - 2 prod a_i'a_j)

where the products are over the attributes of block A. An attribute matters by |a_i|^2, |a_j|^2 and
a_i'a_j alone. All combinations of these triples are tried, or of fewer that stand for them
(`fitplug.families.product.strategy.triple_covers`). For too many attributes, with the largest
squares L_a of columns, which bound the other squares, and s_a = a_i'a_j / L_a, the cost is at most
the polynomial of `fitplug.neighbours.move_costs` at s. This is linear in each s_a, which is 1 at
most, and at least its least value for a pair of different cells, or 0. So it is bounded as the
moves of a record are (docs/theory/units.md, (U13)).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from fitplug.families.base.attribute_matrices import AttributeMatrix, DenseMatrix
from fitplug.families.base.contrasts import build_contrasts
from fitplug.families.base.mechanism import StrategyCost
from fitplug.families.product.shape.pairs import ProductPairStructure
from fitplug.families.product.strategy.products import ProductStrategy
from fitplug.families.product.strategy.triple_covers import TripleCover, cover_triples
from fitplug.neighbours import (
    MoveCosts,
    undo_scale,
    upper_costliest_move,
)
from fitplug.numeric import (
    BoolArray,
    FloatArray,
    IntArray,
    ceil_float,
    floor_float,
    gamma,
    multiply_exactly,
)


class ProductPairStrategy(ProductStrategy[ProductPairStructure]):
    """The strategies of `ProductPairStructure`."""

    def compute_record_cost(self, claimed: int | None = None) -> StrategyCost:
        """Compute what no pair of cells costs more than."""
        _, _, max_records = super().compute_record_cost()
        if (found := _try_all_pairs(self)) is not None:
            largest, _ = found
        else:
            costs, shift = _weigh_sets(self)
            # The cost of a pair is an integer.
            moves = costs.search(costs.list_starts())
            largest = undo_scale(upper_costliest_move(costs, moves), shift)
        return StrategyCost(largest, np.array([ceil_float(Fraction(largest))]), max_records)

    def compute_attained_square(self) -> int:
        if (found := _try_all_pairs(self)) is not None:
            _, attained = found
            return attained
        costs, _ = _weigh_sets(self)
        moves = costs.search(costs.list_starts())[:_TRIED]
        return max(_sum_move_cost(self, move) for move in moves)


_TRIED = 8
"""The most moves for which the cost of a pair of cells is computed."""

_MOST_PAIRS, _MOST_COVERED, _MOST_ROWS, _MOST_ATTRIBUTES = 500_000_000, 100_000_000, 2_000_000, 12
"""The most pairs of cells that are tried, if covers stand for some too, and of those without their
values of one attribute."""

_FEWEST = 8
"""The fewest triples of a cover."""

_CHUNK = 2_000_000
"""About the most pairs whose costs are computed at once."""


def list_triples(matrix: AttributeMatrix, moves: bool) -> IntArray:
    """List |a_i|^2, |a_j|^2 and a_i'a_j of the columns of a matrix, for all pairs of values.

    Args:
        matrix: The integer matrix of an attribute.
        moves: Whether i and j may differ.

    Returns:
        Shape (triples, 3).
    """
    if not isinstance(matrix, DenseMatrix):
        assert matrix.is_symmetric
        contrasts = build_contrasts(matrix.n)
        square = contrasts.column_square
        # H'H = precision (I - J/n), and the precision of contrasts is a multiple of n.
        between = -(contrasts.precision // contrasts.n)
        triples = [(square,) * 3, (square, square, between)]
        return np.array(triples[: 1 + (moves and matrix.n > 1)], dtype=np.int64)
    if not matrix.rows:  # one cell has no contrasts
        return np.zeros((1, 3), dtype=np.int64)
    gram = multiply_exactly(matrix.matrix.T, matrix.matrix)
    squares = np.diagonal(gram)
    if not moves:
        return np.asarray(np.unique(squares)[:, None] * np.ones(3, dtype=np.int64))
    i, j = np.indices(gram.shape).reshape(2, -1)
    return np.stack([squares[i], squares[j], gram[i, j]], axis=1)


def _try_all_pairs(strategy: ProductPairStrategy) -> tuple[int, int] | None:
    """Compute the cost of all pairs of cells.

    Returns:
        A number that none costs more than, and the cost of a pair; None if there are too many.
    """
    structure = strategy.structure
    is_free = np.isin(np.arange(len(structure.block_attributes)), structure.free)
    measured = np.concatenate([own.blocks for own in strategy.block_sets])
    used = np.unique(structure.blocks[measured])
    used = used[(used >= 0) & (used < len(structure.sizes))]
    if len(used) > _MOST_ATTRIBUTES:
        return None
    all_triples = [
        list_triples(strategy.attribute_matrices[a], bool(is_free[a])) for a in used.tolist()
    ]
    order = np.argsort([len(own) for own in all_triples], kind="stable")
    used, all_triples = used[order], [all_triples[k] for k in order.tolist()]
    # A pair costs what it does when its cells are exchanged.
    last = all_triples[-1]
    all_triples[-1] = last[last[:, 0] >= last[:, 1]]
    if (covers := _cover_all(all_triples)) is None:
        return None
    triples = [cover.triples for cover in covers]
    counts = [len(own) for own in triples]
    rows = math.prod(counts[:-1])
    weights = np.zeros((2,) * len(used))
    for block_set in strategy.block_sets:
        inside = (structure.blocks[block_set.blocks][:, :, None] == used).any(axis=1)
        np.add.at(
            weights, tuple(inside.T.astype(np.int64)), block_set.M[:, 0, 0].astype(float) ** 2
        )
    sums = [_contract(weights, triples[:-1], part) for part in range(3)]
    largest = _contract(weights, [np.full((1, 3), np.abs(own).max()) for own in triples], 0).max()
    left = np.stack(
        [sums[0][:, 0] + sums[1][:, 0] - 2 * sums[2][:, 0], *(s[:, 1] for s in sums)], 1
    )
    left[:, 3] *= -2
    right = np.concatenate([np.ones((counts[-1], 1)), triples[-1]], axis=1).T
    best, at = -1.0, 0
    step = max(1, _CHUNK // counts[-1])
    for start in range(0, rows, step):
        costs = left[start : start + step] @ right
        here = int(costs.argmax())
        if costs.flat[here] > best:
            best, at = float(costs.flat[here]), start * counts[-1] + here
    # No number on the way is larger than the four sums of products of the largest squares.
    error = 4 * float(largest) * gamma(8 * len(used) + 64)
    places = np.unravel_index(at, counts)
    chosen = {
        a: [int(x) for x in own[cover.origins[k]]]
        for a, own, cover, k in zip(used.tolist(), all_triples, covers, places, strict=True)
    }
    return math.floor(best + error), _sum_cost(strategy, chosen)


def _cover_all(triples: Sequence[IntArray]) -> list[TripleCover] | None:
    """Cover the triples of all attributes by so few that all of them can be combined."""
    most = max(map(len, triples))
    limit = _MOST_PAIRS
    while True:
        counts = [min(len(own), most) for own in triples]
        if math.prod(counts[:-1]) <= _MOST_ROWS and math.prod(counts) <= limit:
            break
        most, limit = int(most / 1.2), _MOST_COVERED
        if most < _FEWEST:
            return None
    covers = [cover_triples(own, most) for own in triples]
    found = [cover for cover in covers if cover is not None]
    return found if len(found) == len(covers) else None


def _contract(weights: FloatArray, triples: Sequence[FloatArray], part: int) -> FloatArray:
    """Sum weights (2, ..., 2) times products of a part of the triples of the first attributes."""
    for own in triples:
        table = np.stack([np.ones(len(own)), own[:, part]], axis=1)
        # The first axis is contracted, and that of the triples comes last.
        weights = np.tensordot(weights, table, (0, 1))
    if weights.ndim == len(triples):
        return weights
    return np.moveaxis(weights, 0, -1).reshape(-1, 2)


def _list_ends(strategy: ProductPairStrategy) -> list[tuple[int, ...]]:
    """List the largest |a_i|^2 of each attribute, and then the triple of the least a_i'a_j."""
    known: dict[int, tuple[int, ...]] = {}
    for matrix in strategy.attribute_matrices:
        if id(matrix) not in known:
            triples = list_triples(matrix, True)
            least = triples[int(triples[:, 2].argmin())]
            known[id(matrix)] = int(triples[:, 0].max()), *least.tolist()
    return [known[id(matrix)] for matrix in strategy.attribute_matrices]


def _weigh_sets(strategy: ProductPairStrategy) -> tuple[MoveCosts, int]:
    """Sum what blocks measure of each set of attributes along which a record may move.

    Returns:
        The costs of moves, rounded up, and the binary logarithm of what they are multiplied by.
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
    """Sum what a pair of cells costs that differ in the attributes of a move (m,), exactly."""
    ends = _list_ends(strategy)
    triples = {a: (largest,) * 3 for a, (largest, *_) in enumerate(ends)}
    triples |= {a: ends[a][1:] for a in strategy.structure.free[move].tolist()}
    return _sum_cost(strategy, triples)


def _sum_cost(strategy: ProductPairStrategy, triples: Mapping[int, Sequence[int]]) -> int:
    """Sum what a pair of cells costs exactly, from the triples of the attributes of blocks."""
    structure = strategy.structure
    first, second, both = (
        [triples[a][part] if a in triples else 0 for a in range(len(structure.sizes))]
        for part in range(3)
    )
    total = 0
    for block_set in strategy.block_sets:
        m = block_set.M[:, 0, 0].astype(object)
        parts = [structure.subsets.multiply(x, block_set.blocks) for x in (first, second, both)]
        total += int(((parts[0] + parts[1] - 2 * parts[2]) * m * m).sum())
    return total
