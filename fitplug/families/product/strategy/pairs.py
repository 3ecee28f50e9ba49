"""Strategies of the product family where neighbours replace a record.

A pair of cells (i, j) costs, with the columns a_i of each attribute's matrix and its number m,

    sum_A m_A^2 (prod |a_i|^2 + prod |a_j|^2 - 2 prod a_i'a_j)

where the products are over the attributes of block A. With the largest squares L_a of columns,
which bound the other squares, and s_a = a_i'a_j / L_a, it is at most the polynomial of
`fitplug.neighbours.move_costs` at s. This is linear in each s_a, which is 1 at most, and at least
its least value for a pair of different cells, or 0. So it is bounded as the moves of a record are
(docs/theory/units.md, (U13)).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from fitplug.families.base.attribute_matrices import AttributeMatrix, DenseMatrix
from fitplug.families.base.contrasts import build_contrasts
from fitplug.families.base.strategy import Integers, IntegerStrategy
from fitplug.families.base.strategy_form import StrategyCost, upper_excess
from fitplug.families.product.shape.pairs import ProductPairStructure
from fitplug.families.product.shape.products import ProductStructure
from fitplug.families.product.strategy.products import ProductForm
from fitplug.neighbours import (
    MoveCosts,
    undo_scale,
    upper_costliest_move,
)
from fitplug.numeric import (
    BoolArray,
    ceil_float,
    floor_float,
    multiply_exactly,
)


class ProductPairForm(ProductForm):
    """The strategies of `ProductPairStructure`."""

    def compute_cost(self, structure: ProductStructure, integers: Integers) -> StrategyCost:
        """Compute what no pair of cells costs more than."""
        assert isinstance(structure, ProductPairStructure)
        _, _, max_records = super().compute_cost(structure, integers)
        costs, shift = _weigh_sets(structure, integers)
        bound = upper_costliest_move(costs, costs.search(costs.list_starts()))
        # The cost of a pair is an integer.
        largest = undo_scale(bound, shift)
        return StrategyCost(largest, np.array([ceil_float(Fraction(largest))]), max_records)

    def upper_overstatement(self, strategy: IntegerStrategy) -> float:
        structure, integers = strategy.structure, strategy.integers
        assert isinstance(structure, ProductPairStructure)
        costs, _ = _weigh_sets(structure, integers)
        attained = max(
            _sum_cost(structure, integers, move)
            for move in costs.search(costs.list_starts())[:_TRIED]
        )
        return upper_excess(strategy.sensitivity_squared, attained)


_TRIED = 8
"""The most moves for which the cost of a pair of cells is computed."""


@dataclass(frozen=True)
class _Products:
    """The products of the columns of an attribute's integer matrix.

    Attributes:
        largest: The largest square of a column.
        least: The least product of two columns of different cells.
        squares: The squares of two columns with this product.
    """

    largest: int
    least: int
    squares: tuple[int, int]

    @classmethod
    def multiply(cls, matrix: AttributeMatrix) -> _Products:
        """Multiply the columns of a matrix."""
        if not isinstance(matrix, DenseMatrix):
            contrasts = build_contrasts(matrix.n)
            assert matrix.is_symmetric
            square = contrasts.column_square
            # H'H = precision (I - J/n), and the precision of contrasts is a multiple of n.
            return cls(square, -(contrasts.precision // contrasts.n), (square, square))
        if matrix.n == 1:
            return cls(0, 0, (0, 0))
        gram = multiply_exactly(matrix.matrix.T, matrix.matrix)
        squares = np.diagonal(gram).copy()
        np.fill_diagonal(gram, squares.max() + 1)
        i, j = np.unravel_index(int(np.argmin(gram)), gram.shape)
        pair = int(squares[i]), int(squares[j])
        return cls(int(squares.max()), int(gram[i, j]), pair)

    @property
    def ratio(self) -> float:
        """The least of their products over the largest square, rounded down, in [-1, 0]."""
        if not self.largest:
            return -1.0
        return max(-1.0, min(0.0, floor_float(Fraction(self.least, self.largest))))


def _multiply_columns(integers: Integers) -> list[_Products]:
    """Multiply the columns of each attribute's matrix; identical matrices once."""
    known: dict[int, _Products] = {}
    for matrix in integers.attribute_matrices:
        if id(matrix) not in known:
            known[id(matrix)] = _Products.multiply(matrix)
    return [known[id(matrix)] for matrix in integers.attribute_matrices]


def _weigh_sets(structure: ProductPairStructure, integers: Integers) -> tuple[MoveCosts, int]:
    """Sum what blocks measure of each set of attributes along which a record may move.

    Returns:
        The costs of moves, rounded up, and the binary logarithm of what they are multiplied by.
    """
    products = _multiply_columns(integers)
    of_blocks = np.zeros(len(structure.blocks), dtype=object)
    for block_set in integers.block_sets:
        m = block_set.M[:, 0, 0].astype(object)
        squares = structure.subsets.multiply([own.largest for own in products], block_set.blocks)
        of_blocks[block_set.blocks] += squares * m * m
    ratios = np.array([*(products[a].ratio for a in structure.free.tolist()), 1.0])
    return MoveCosts.weigh(ratios, structure.sets, of_blocks[structure.noisy_blocks])


def _sum_cost(structure: ProductPairStructure, integers: Integers, move: BoolArray) -> int:
    """Sum what a pair of cells costs that differ in the attributes of a move (m,), exactly."""
    products = _multiply_columns(integers)
    first = [own.largest for own in products]
    second, both = list(first), list(first)
    for a in structure.free[move].tolist():
        (first[a], second[a]), both[a] = products[a].squares, products[a].least
    total = 0
    for block_set in integers.block_sets:
        m = block_set.M[:, 0, 0].astype(object)
        parts = [structure.subsets.multiply(x, block_set.blocks) for x in (first, second, both)]
        total += int(((parts[0] + parts[1] - 2 * parts[2]) * m * m).sum())
    return total
