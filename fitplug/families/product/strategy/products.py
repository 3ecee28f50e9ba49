"""Strategies of the product family: any integer matrix for each attribute, a number per block.

If attributes have grades, block A's answers to the rows with grades k are multiplied by m_(A,k). A
record in the cells i_a costs

    sum_A sum_k m_(A,k)^2 prod_{a in A} eta_(a,k_a)(i_a)

where eta_(a,k)(i) is the squared norm of column i in the rows of grade k. All terms are >= 0, so an
attribute with one grade enters with its largest eta, whatever the others' cells. The largest sum
over the distinct columns of the others is computed in integers, by products of tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from fitplug.errors import BAD_INTEGERS, PlanError
from fitplug.families.base.attribute_matrices import AttributeMatrix, DenseMatrix
from fitplug.families.base.block_sets import BlockSet
from fitplug.families.base.contrasts import build_contrasts, make_contrasts
from fitplug.families.base.mechanism import MAX_ENTRY, SATURATION, StrategyCost
from fitplug.families.base.structure import Structure
from fitplug.families.blocks.strategy.matrices import BlockSetStrategy
from fitplug.families.product.shape.grades import BlockScales
from fitplug.families.product.shape.products import ProductPersonStructure, ProductStructure
from fitplug.families.product.strategy.node_trees import NodeTreeMatrix, TreeVariants
from fitplug.families.product.strategy.trees import TreeMatrix
from fitplug.families.product.strategy.variants import DenseVariants, VariantMatrix
from fitplug.numeric import AnyArray, FloatArray, IntArray, ceil_float, gamma, multiply_exactly

P = TypeVar("P", bound=ProductStructure, covariant=True)


class ProductStrategy(BlockSetStrategy[P]):
    """The strategies of `ProductStructure`."""

    has_grades = True

    @property
    def peaks_at_one_cell(self) -> bool:
        return super().peaks_at_one_cell and not len(self.structure.batched.scales.divided)

    def compute_record_cost(self, claimed: int | None = None) -> StrategyCost:
        scales = self.structure.batched.scales
        if not len(scales.divided):
            return super().compute_record_cost(claimed)
        return compute_graded_cost(scales, self.attribute_matrices, self.block_sets)

    def check_form(self) -> None:
        super().check_form()
        structure = self.structure
        for grades, matrix in zip(
            structure.batched.grades,
            self.attribute_matrices,
            strict=True,
        ):
            if isinstance(matrix, VariantMatrix):
                counts = matrix.counts
                if len({one.rows for one in matrix.matrices}) > 1:
                    raise PlanError(BAD_INTEGERS)
            else:
                counts = (1 if matrix.grades is None else matrix.grades.count,)
            if counts != tuple(np.diff(grades.starts).tolist()):
                raise PlanError(BAD_INTEGERS)
        for block_set in self.block_sets:
            check_multiples(structure.batched.scales, block_set)

    def upper_record_variances(self) -> FloatArray:
        # Unmeasured blocks are answered without noise.
        batched = self.structure.batched
        multiples = gather_multiples(batched.scales, self.block_sets).astype(np.float64)
        z = np.divide(1.0, multiples**2, out=np.zeros(len(multiples)), where=multiples > 0)
        tables = [
            self.attribute_matrices[distinct.attribute].upper_variance_parts(distinct.factor)
            for distinct in batched.factors
        ]
        # Sums over m axes of at most 1 + K_i products each, all >= 0.
        roundings = 64 + sum(1 + k for k in batched.scales.counts if k > 1)
        variances = batched.arrange_by_row(batched.compute_variances(tables, z))
        return variances * (1 + gamma(roundings))

    @classmethod
    def read_attribute_matrices(
        cls, structure: Structure, arrays: Sequence[Mapping[str, AnyArray]]
    ) -> tuple[AttributeMatrix, ...]:
        assert isinstance(structure, ProductStructure)
        matrices: list[AttributeMatrix] = list(make_contrasts(structure))
        for a, (name, tree) in enumerate(
            zip(structure.block_attributes, structure.batched.trees, strict=True)
        ):
            if name in structure.symmetric:
                continue
            grades = structure.batched.grades[a]
            if grades.tree is not None and len(grades.starts) > 2:
                weights = arrays[a]["weights"]
                matrices[a] = TreeVariants.of_weights(grades.tree, weights, grades.variants)
            elif grades.tree is not None:
                matrices[a] = NodeTreeMatrix.of_weights(grades.tree)
            elif len(grades.starts) > 2:
                matrices[a] = DenseVariants.from_arrays(arrays[a], grades.variants)
            elif tree is None:
                matrices[a] = DenseMatrix.from_arrays(arrays[a])
            else:
                matrices[a] = TreeMatrix.from_arrays(tree, arrays[a])
        return tuple(matrices)


def gather_multiples(scales: BlockScales, block_sets: Sequence[BlockSet]) -> IntArray:
    """Gather the multiple of every scale, 0 in unmeasured blocks, shape (count,)."""
    multiples = np.zeros(scales.count, dtype=np.int64)
    for block_set in block_sets:
        for i, block in enumerate(block_set.blocks.tolist()):
            scales_of_block = slice(int(scales.starts[block]), int(scales.starts[block + 1]))
            if block_set.multiples:
                multiples[scales_of_block] = block_set.multiples[i].ravel()
            else:
                multiples[scales_of_block] = block_set.M[i, 0, 0]
    return multiples


def compute_graded_cost(
    scales: BlockScales, matrices: Sequence[AttributeMatrix], block_sets: Sequence[BlockSet]
) -> StrategyCost:
    """Compute the largest cost of a record exactly, and the records the integers can hold."""
    multiples = gather_multiples(scales, block_sets).astype(object)
    largest = find_largest_sum(scales, matrices, multiples**2)
    squares = np.array([ceil_float(Fraction(largest))])
    return StrategyCost(largest, squares, count_records(scales, matrices, block_sets))


def find_largest_sum(
    scales: BlockScales, matrices: Sequence[AttributeMatrix], weights: AnyArray
) -> int:
    """Find the largest sum over all scales of weights (count,) and the squares of a cell's columns,
    exactly."""
    whole: list[AnyArray] = []
    tables: list[AnyArray] = []
    for matrix in matrices:
        if (grades := matrix.grades) is None:
            whole.append(np.array([matrix.column_square], dtype=object))
        else:
            whole.append(np.ones(grades.count, dtype=object))
            columns = sorted(
                {(1, *column_squares) for column_squares in grades.column_squares.tolist()}
            )
            tables.append(np.array(columns, dtype=object))
    costs: Any = np.zeros(int(np.prod(scales.grid, dtype=np.int64)), dtype=object)
    np.add.at(costs, scales.places, scales.multiply(whole) * weights)
    costs = costs.reshape(scales.grid)
    for table in tables:
        # Contract the first axis; the columns' axis comes last.
        flat = costs.reshape(len(costs), -1)
        costs = multiply_exactly(flat.T, table.T).reshape(*costs.shape[1:], len(table))
    return int(costs.max())


class ProductPersonStrategy(ProductStrategy[ProductPersonStructure]):
    """The strategies of `ProductPersonStructure`."""

    @property
    def peaks_at_one_cell(self) -> bool:
        return False

    def compute_record_cost(self, claimed: int | None = None) -> StrategyCost:
        above, _ = self._bound_costs()
        scales = self.structure.batched.scales
        records = count_records(scales, self.attribute_matrices, self.block_sets)
        return StrategyCost(above, np.array([ceil_float(Fraction(above))]), records)

    def compute_attained_square(self) -> int | None:
        _, equal = self._bound_costs()
        return None if equal == self.record_square else equal

    def _bound_costs(self) -> tuple[int, int]:
        """Bound the cost of a person; compute that of records equal but for the period."""
        structure, periods = self.structure, self.structure.periods
        scales, partners = structure.batched.scales, structure.partner_scales.tolist()
        m = structure.block_attributes.index(periods.name)
        square = self.attribute_matrices[m].column_square
        multiples = gather_multiples(scales, self.block_sets).tolist()
        squares = [
            one * one * (square if partner == -2 else 1)
            for one, partner in zip(multiples, partners, strict=True)
        ]
        # The square of the contrasts is in `squares`.
        matrices = list(self.attribute_matrices)
        matrices[m] = build_contrasts(2)

        def find_largest(weights: list[int]) -> int:
            return find_largest_sum(scales, matrices, np.array(weights, dtype=object))

        alike = [True] * len(partners)
        above, equal = periods.bound_costs(squares, partners, alike)
        if partners[0] < 0:
            return find_largest(above), find_largest(equal)
        # Of the totals, the number of records is known.
        s, e = squares[0], squares[partners[0]] // (periods.n - 1)
        above[0] = above[partners[0]] = 0
        rest = find_largest(above) // periods.most
        largest, records = max(
            (r * (rest + (s - e) * r + periods.n * e), r) for r in range(1, periods.most + 1)
        )
        _, equal = replace(periods, most=records).bound_costs(squares, partners, alike)
        return largest, find_largest(equal)


def count_records(
    scales: BlockScales, matrices: Sequence[AttributeMatrix], block_sets: Sequence[BlockSet]
) -> int:
    """Count the records that the answers' 64-bit integers can hold."""
    entries = scales.multiply(
        [
            np.array([matrix.largest_entry], dtype=object)
            if matrix.grades is None
            else matrix.grades.largest_entries.astype(object)
            for matrix in matrices
        ]
    )
    multiples = gather_multiples(scales, block_sets).astype(object)
    return int(SATURATION // max(int((entries * multiples).max()), 1))


def check_multiples(scales: BlockScales, block_set: BlockSet) -> None:
    """Check the multiples of a block set.

    Raises:
        PlanError: If a shape or a type is wrong, or an integer is out of range.
    """
    if not len(scales.divided):
        if block_set.multiples:
            raise PlanError(BAD_INTEGERS)
        return
    if (block_set.M != 1).any() or len(block_set.multiples) != len(block_set.blocks):
        raise PlanError(BAD_INTEGERS)
    shapes = [part.shape for part in scales.split(np.zeros(scales.count))]
    for block, multiples in zip(block_set.blocks.tolist(), block_set.multiples, strict=True):
        fits = multiples.dtype == np.int64 and multiples.shape == shapes[block]
        if not fits or not 1 <= int(multiples.min()) <= int(multiples.max()) < MAX_ENTRY:
            raise PlanError(BAD_INTEGERS)
