"""Strategies for neighbours that replace a record: the cost is that of the costliest pair."""

from __future__ import annotations

import numpy as np

from fitplug.errors import PlanError
from fitplug.families.base.contrasts import build_contrasts, compute_precisions
from fitplug.families.base.integers import SATURATION
from fitplug.families.base.strategy import BlockSet, Integers
from fitplug.families.base.strategy_form import StrategyCost
from fitplug.families.blocks.shape.pairs import PairStructure
from fitplug.families.blocks.strategy.public_totals import PublicTotalsForm
from fitplug.numeric import (
    UNIT_ROUNDOFF,
    FloatArray,
    find_largest_entry,
    gamma,
    multiply_exactly,
    upper_norm,
    upper_solution_norms,
)
from fitplug.workload import classify_cells


class PairForm(PublicTotalsForm[PairStructure]):
    """The strategies of `PairStructure`."""

    def compute_cost(self, structure: PairStructure, integers: Integers) -> StrategyCost:
        contrasts = [build_contrasts(n) for n in structure.sizes]
        own = [matrix.column_square for matrix in contrasts]
        # H'H = precision (I - J/n), and the precision of contrasts is a multiple of n.
        between = [-(matrix.precision // matrix.n) for matrix in contrasts]
        assert all(b * m.n == -m.precision for b, m in zip(between, contrasts, strict=True))
        block_sets = sorted(integers.block_sets, key=lambda block_set: int(block_set.blocks[0]))
        grams, bound, entry = [], 0, 1
        for block_set in block_sets:
            matrix = structure.build_block_matrix(int(block_set.blocks[0]))
            A = multiply_exactly(block_set.M[0], block_set.basis.build_matrix(matrix))
            columns = A[:, structure.pairs.cells]
            gram = multiply_exactly(columns.T, columns)
            grams.append(gram)
            (square,) = structure.subsets.multiply(own, block_set.blocks)
            bound += int(square) * find_largest_entry(gram)
            (largest,) = structure.subsets.multiply(
                [matrix.largest_entry for matrix in contrasts], block_set.blocks
            )
            entry = max(entry, int(largest) * find_largest_entry(A))
        # No sum of products is larger than this bound, and no cost than four times of it.
        kind = np.int64 if bound < 2**60 else object
        products = structure.sum_products([g.astype(kind) for g in grams], own, between)
        costs = structure.pairs.measure_pairs(products[0].diagonal(), products)
        # The conversion of an integer to a float rounds by at most one unit roundoff.
        above = structure.pairs.find_largest(costs).astype(np.float64) * (1 + 4 * UNIT_ROUNDOFF)
        return StrategyCost(int(costs.max()), above, SATURATION // entry)

    def upper_unit_variances(self, structure: PairStructure, integers: Integers) -> FloatArray:
        variances = np.zeros(structure.rows)
        for block_set in integers.block_sets:
            (precision,) = compute_precisions(structure, block_set.blocks)
            queries = structure.gather_queries(int(block_set.blocks[0]))
            L, L_error = block_set.basis.represent(queries.matrix)
            # Each entry may be the difference of two coefficients, rounded once.
            L_error = L_error + upper_norm(L, axis=1) * (2 * UNIT_ROUNDOFF)
            unit = upper_solution_norms(L, block_set.M[0].astype(np.float64), L_error=L_error)
            variances[queries.rows] += unit * unit * queries.variance_multiples / precision
        return variances * (1 + gamma(len(structure.blocks) + 64))

    def check_block_set(self, structure: PairStructure, block_set: BlockSet) -> None:
        if len(block_set.blocks) != 1:
            raise PlanError("the strategy measures blocks that the workload does not have")
        block, basis = int(block_set.blocks[0]), block_set.basis
        if basis.kind != "cells":
            if block in structure.grounded:
                raise PlanError("the basis is not the classes of cells that queries tell apart")
            return
        if not np.array_equal(basis.index, classify_cells(structure.build_block_matrix(block))):
            # The cost is counted for the cells that the queries tell apart.
            raise PlanError("the basis is not the classes of cells that queries tell apart")
