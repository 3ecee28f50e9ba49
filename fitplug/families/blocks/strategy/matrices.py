"""Strategies of block sets: each block has an integer basis, and an integer matrix over it.

A block that is a matrix has a basis of its own. Blocks that are numbers share one, the one cell
that is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from fitplug.errors import PlanError
from fitplug.families.base.boxed_combinations import Products, find_boxed_rows
from fitplug.families.base.contrasts import compute_precisions
from fitplug.families.base.dense_mechanism import (
    MeasuredCells,
    build_block_covariance,
    list_measured_cells,
)
from fitplug.families.base.estimates import (
    compute_block_covariance,
    compute_row_covariance,
    upper_block_stds,
    upper_row_stds,
)
from fitplug.families.base.integers import MAX_ENTRY, SATURATION
from fitplug.families.base.parted_strategy import PartedStrategy
from fitplug.families.base.strategy import BlockSet, Integers, IntegerStrategy
from fitplug.families.base.strategy_form import (
    Mechanism,
    S,
    StrategyCost,
    StrategyForm,
    make_mechanism,
)
from fitplug.families.blocks.estimates.parts import PartedBlocks
from fitplug.families.blocks.shape.matrices import MatrixStructure
from fitplug.numeric import (
    UNIT_ROUNDOFF,
    AnyArray,
    FloatArray,
    IntArray,
    find_largest_entry,
    gamma,
    multiply_exactly,
    upper_norm,
    upper_solution_norms,
)

M = TypeVar("M", bound=MatrixStructure)


class BlockSetForm(StrategyForm[S]):
    """What strategies of block sets have in common, and what those of numbers have.

    Attributes:
        has_grades: Whether blocks may have multiples of grades.
    """

    has_grades = False

    def compute_cost(self, structure: S, integers: Integers) -> StrategyCost:
        # There is one column, to which every block adds. Where the cells of an attribute differ,
        # some cell has the largest square of every attribute at once.
        column: list[tuple[int, AnyArray]] = []
        entry = 1
        for block_set in integers.block_sets:
            squares = structure.subsets.multiply(
                [matrix.column_square for matrix in integers.attribute_matrices], block_set.blocks
            )
            entries = structure.subsets.multiply(
                [matrix.largest_entry for matrix in integers.attribute_matrices], block_set.blocks
            )
            m = block_set.M[:, 0, 0].astype(object)
            column.append((int((squares * m * m).sum()), np.ones((1, 1), dtype=np.int64)))
            entry = max(entry, int((entries * m).max()))
        return StrategyCost(*sum_column_squares(column), SATURATION // entry)

    def list_mechanisms(self, strategy: IntegerStrategy, noise_std: float) -> tuple[Mechanism, ...]:
        # All blocks have their largest sensitivity at the same cell: each is a mechanism.
        structure, matrices = strategy.structure, strategy.attribute_matrices
        if structure.public_attributes is not None:
            return self.list_one_mechanism(strategy, noise_std)
        subsets, names = structure.subsets, structure.block_attributes
        mechanisms: dict[int, Mechanism] = {}
        for block_set in strategy.block_sets:
            squares = subsets.multiply([each.column_square for each in matrices], block_set.blocks)
            rows = subsets.multiply([each.rows for each in matrices], block_set.blocks)
            attributes = subsets.list_attributes(block_set.blocks)
            for i, block in enumerate(block_set.blocks.tolist()):
                name = " x ".join(names[a] for a in attributes[i]) or "total"
                square = int(squares[i]) * int(block_set.M[i, 0, 0]) ** 2 * structure.changes**2
                mechanisms[block] = make_mechanism(name, square, noise_std, int(rows[i]))
        return tuple(mechanisms[block] for block in sorted(mechanisms))

    def list_one_mechanism(
        self, strategy: IntegerStrategy, noise_std: float
    ) -> tuple[Mechanism, ...]:
        """List one mechanism of all blocks.

        Where blocks have their largest sensitivities at different differences between neighbours,
        the sum of these would exceed what the answers cost together.
        """
        square = strategy.sensitivity_squared
        return (make_mechanism("all answers", square, noise_std, strategy.size),)

    def check_block_set(self, structure: S, block_set: BlockSet) -> None:
        """Check that blocks of the structure may share a set and its basis.

        Raises:
            PlanError: If they are not blocks that may share a set, or its basis is not theirs.
        """
        if block_set.basis.kind != "cells":
            # Their sensitivity is counted for the cells themselves: a scaled row would cost more.
            raise PlanError("the basis is not the one cell that is left")

    def list_tables(self, strategy: IntegerStrategy) -> list[tuple[str, ...]]:
        structure = strategy.structure
        tables = [
            names
            for block_set in strategy.block_sets
            for names in block_set.basis.list_tables(structure, block_set.blocks)
        ]
        public = structure.public_attributes
        return tables if public is None else [*tables, public]

    def check_blocks(self, strategy: IntegerStrategy, structure: S) -> None:
        for block_set in strategy.block_sets:
            self._check_integers(structure, block_set)
        measured = [
            block for block_set in strategy.block_sets for block in block_set.blocks.tolist()
        ]
        if sorted(measured) != structure.noisy_blocks.tolist() or strategy.tree_blocks:
            raise PlanError("the strategy does not measure each block once")

    def cut_strategy(self, strategy: IntegerStrategy, most: int) -> PartedStrategy:
        return PartedBlocks(strategy, self.list_tables(strategy), most)

    def upper_combined_stds(
        self, strategy: IntegerStrategy, combinations: Sequence[Mapping[str, FloatArray]]
    ) -> FloatArray:
        return upper_block_stds(strategy, combinations)

    def compute_combined_covariance(
        self, strategy: IntegerStrategy, combinations: Sequence[Mapping[str, FloatArray]]
    ) -> FloatArray:
        return compute_block_covariance(strategy, combinations)

    def upper_boxed_stds(
        self, strategy: IntegerStrategy, combinations: Sequence[Products]
    ) -> FloatArray:
        return upper_row_stds(strategy, find_boxed_rows(strategy, combinations))

    def compute_boxed_covariance(
        self, strategy: IntegerStrategy, combinations: Sequence[Products]
    ) -> FloatArray:
        return compute_row_covariance(strategy, find_boxed_rows(strategy, combinations))

    def build_covariance(
        self, strategy: IntegerStrategy, noise_std: float
    ) -> tuple[FloatArray, IntArray]:
        return build_block_covariance(strategy, noise_std)

    def list_measured_cells(self, strategy: IntegerStrategy) -> MeasuredCells:
        return list_measured_cells(strategy)

    def _check_integers(self, structure: S, block_set: BlockSet) -> None:
        """Check one block set; see `check_blocks`."""
        blocks, M = block_set.blocks, block_set.M
        fits = blocks.dtype == np.int64 and blocks.ndim == 1 and len(blocks) > 0
        fits = fits and 0 <= int(blocks.min()) <= int(blocks.max()) < len(structure.blocks)
        if not fits:
            raise PlanError("the strategy measures blocks that the workload does not have")
        self.check_block_set(structure, block_set)
        block_set.basis.check_form(structure.build_block_matrix(int(blocks[0])))
        if block_set.multiples and not self.has_grades:
            raise PlanError("the strategy has multiples of grades that the workload does not have")
        n = block_set.basis.size
        if M.dtype != np.int64 or M.shape != (len(blocks), n, n):
            raise PlanError("the strategy is not a square integer matrix over its basis")
        at = np.arange(n)
        if np.tril(M, -1).any() or (M[:, at, at] <= 0).any():
            raise PlanError("the strategy is not an invertible upper triangular matrix")
        if find_largest_entry(M) >= MAX_ENTRY:
            raise PlanError("the strategy's integers are too large")


class MatrixForm(BlockSetForm[M]):
    """The strategies of `MatrixStructure`."""

    def compute_cost(self, structure: M, integers: Integers) -> StrategyCost:
        if not structure.dense:
            return super().compute_cost(structure, integers)
        columns: list[tuple[int, AnyArray]] = []
        entry = 1
        for block_set in integers.block_sets:
            (square,) = structure.subsets.multiply(
                [matrix.column_square for matrix in integers.attribute_matrices], block_set.blocks
            )
            (largest_entry,) = structure.subsets.multiply(
                [matrix.largest_entry for matrix in integers.attribute_matrices], block_set.blocks
            )
            A = multiply_basis(structure, block_set)
            columns.append((int(square), A))
            entry = max(entry, int(largest_entry) * find_largest_entry(A))
        return StrategyCost(*sum_column_squares(columns), SATURATION // entry)

    def upper_unit_variances(self, structure: M, integers: Integers) -> FloatArray:
        rounding = 1 + gamma(len(structure.blocks) + 64)
        if not structure.dense:
            of_blocks = np.zeros(len(structure.blocks))  # public blocks have no noise
            for block_set in integers.block_sets:
                precision = compute_precisions(structure, block_set.blocks)
                m = block_set.M[:, 0, 0].astype(np.float64)
                of_blocks[block_set.blocks] += 1 / (precision * m * m)
            return structure.incidence @ of_blocks * rounding
        variances = np.zeros(structure.rows)
        for block_set in integers.block_sets:
            (precision,) = compute_precisions(structure, block_set.blocks)
            queries = structure.gather_queries(int(block_set.blocks[0]))
            L, L_error = block_set.basis.represent(queries.matrix)
            if structure.public_attributes is not None:
                # Each entry may be the difference of two coefficients, rounded once.
                L_error = L_error + upper_norm(L, axis=1) * (2 * UNIT_ROUNDOFF)
            unit = upper_solution_norms(L, block_set.M[0].astype(np.float64), L_error=L_error)
            variances[queries.rows] += unit * unit * queries.variance_multiples / precision
        return variances * rounding

    def list_mechanisms(self, strategy: IntegerStrategy, noise_std: float) -> tuple[Mechanism, ...]:
        if not strategy.structure.dense:
            return super().list_mechanisms(strategy, noise_std)
        return self.list_one_mechanism(strategy, noise_std)

    def check_block_set(self, structure: M, block_set: BlockSet) -> None:
        if not structure.dense:
            super().check_block_set(structure, block_set)
        elif len(block_set.blocks) != 1:
            raise PlanError("the strategy measures blocks that the workload does not have")


def multiply_basis(structure: MatrixStructure, block_set: BlockSet) -> AnyArray:
    """Compute M B (n, D) of the one block of a set, exactly."""
    matrix = structure.build_block_matrix(int(block_set.blocks[0]))
    return multiply_exactly(block_set.M[0], block_set.basis.build_matrix(matrix))


def sum_column_squares(parts: list[tuple[int, AnyArray]]) -> tuple[int, FloatArray]:
    """Sum the squares of columns: of sum over parts (multiple, A) of multiple |A e_i|^2.

    Floats pick the columns that may attain the largest sum, and integers decide.

    Returns:
        The largest, exact, and upper bounds on all of them, shape (columns,).
    """
    near = np.sum([float(f) * (A.astype(np.float64) ** 2).sum(axis=0) for f, A in parts], axis=0)
    error = gamma(sum(len(A) for _, A in parts) + 4)
    candidates = np.flatnonzero(near >= near.max() * (1 - 4 * error))
    stacked = [(f, A[:, candidates].T.tolist()) for f, A in parts]
    different = {tuple(map(tuple, column)) for column in zip(*(A for _, A in stacked), strict=True)}
    multiples = [f for f, _ in parts]
    exact = max(
        sum(f * sum(a * a for a in entries) for f, entries in zip(multiples, column, strict=True))
        for column in different
    )
    return exact, np.asarray(near * (1 + error))
