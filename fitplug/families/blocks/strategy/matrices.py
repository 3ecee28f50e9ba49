"""Strategies of blocks that are matrices: each block has a basis and a matrix of its own."""

from __future__ import annotations

import numpy as np

from fitplug.errors import PlanError
from fitplug.families.base.contrasts import compute_precisions
from fitplug.families.base.integers import SATURATION
from fitplug.families.base.strategy import BlockSet, Integers, IntegerStrategy
from fitplug.families.base.strategy_form import Mechanism, StrategyCost, make_mechanism
from fitplug.families.blocks.shape.matrices import MatrixStructure
from fitplug.families.blocks.strategy.block_sets import BlockSetForm
from fitplug.numeric import (
    AnyArray,
    FloatArray,
    find_largest_entry,
    gamma,
    multiply_exactly,
    upper_solution_norms,
)


class MatrixForm(BlockSetForm[MatrixStructure]):
    """The strategies of `MatrixStructure`."""

    def compute_cost(
        self,
        structure: MatrixStructure,
        integers: Integers,
    ) -> StrategyCost:
        columns: list[tuple[int, AnyArray]] = []
        entry = 1
        for block_set in integers.block_sets:
            (square,) = structure.subsets.multiply(
                [matrix.column_square for matrix in integers.attribute_matrices], block_set.blocks
            )
            (largest_entry,) = structure.subsets.multiply(
                [matrix.largest_entry for matrix in integers.attribute_matrices], block_set.blocks
            )
            matrix = structure.build_block_matrix(int(block_set.blocks[0]))
            A = multiply_exactly(block_set.M[0], block_set.basis.build_matrix(matrix))
            columns.append((int(square), A))
            entry = max(entry, int(largest_entry) * find_largest_entry(A))
        return StrategyCost(*sum_column_squares(columns), SATURATION // entry)

    def upper_unit_variances(
        self,
        structure: MatrixStructure,
        integers: Integers,
    ) -> FloatArray:
        variances = np.zeros(structure.rows)
        for block_set in integers.block_sets:
            (precision,) = compute_precisions(structure, block_set.blocks)
            queries = structure.gather_queries(int(block_set.blocks[0]))
            L, L_error = block_set.basis.represent(queries.matrix)
            unit = upper_solution_norms(L, block_set.M[0].astype(np.float64), L_error=L_error)
            variances[queries.rows] += unit * unit * queries.variance_multiples / precision
        return variances * (1 + gamma(len(structure.blocks) + 64))

    def list_mechanisms(self, strategy: IntegerStrategy, noise_std: float) -> tuple[Mechanism, ...]:
        # Blocks may have their largest sensitivities at different cells, and the sum of these
        # would exceed what the answers cost together: they are one mechanism.
        square = strategy.sensitivity_squared
        return (make_mechanism("all answers", square, noise_std, strategy.size),)

    def check_block_set(self, structure: MatrixStructure, block_set: BlockSet) -> None:
        if len(block_set.blocks) != 1:
            raise PlanError("the strategy measures blocks that the workload does not have")


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
        sum(f * sum(a * a for a in own) for f, own in zip(multiples, column, strict=True))
        for column in different
    )
    return exact, np.asarray(near * (1 + error))
