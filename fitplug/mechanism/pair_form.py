"""Strategies for neighbours that replace a record: the cost is that of the costliest pair."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fitplug.errors import PlanError
from fitplug.mechanism.block_set import BlockSet
from fitplug.mechanism.estimates import BlockEstimates
from fitplug.mechanism.integer_limits import SATURATION
from fitplug.mechanism.public_totals import PublicTotalsForm
from fitplug.mechanism.strategy import Integers, IntegerStrategy
from fitplug.mechanism.strategy_form import ExactCost
from fitplug.numeric import (
    UNIT_ROUNDOFF,
    FloatArray,
    IntArray,
    bound_norm,
    bound_solution_norms,
    find_largest_entry,
    multiply_exactly,
)
from fitplug.structure import PairStructure


class PairEstimates(BlockEstimates):
    """Estimates W' x from the noisy answers, and K N from the public totals N."""

    def _estimate_group(self, g: int) -> FloatArray:
        structure = self._strategy.structure
        assert isinstance(structure, PairStructure)
        asked = structure.pairs.public[structure.find_rows(0, g)]
        known = asked @ self._answers[self._strategy.size :].astype(np.float64)
        # The answers of a group are in the order of its rows, as no attribute is symmetric.
        shape = structure.workload.groups[g].shape
        return np.asarray(super()._estimate_group(g) + known.reshape(shape))


class PairForm(PublicTotalsForm[PairStructure]):
    """The strategies of `PairStructure`."""

    def compute_exact_cost(self, structure: PairStructure, integers: Integers) -> ExactCost:
        (block_set,) = integers.block_sets
        pairs = structure.pairs
        # The column of a node is that of its class in M, and zero for the ground.
        M = block_set.M[0]
        padded = np.concatenate([M, np.zeros((len(M), 1), dtype=np.int64)], axis=1)
        columns = padded[:, block_set.basis.index[pairs.cells]]
        gram = multiply_exactly(columns.T, columns)
        # |a_i - a_j|^2 is at most four times the largest square: it must fit into 64 bits too.
        if find_largest_entry(gram) >= 2**60:
            gram = gram.astype(object)
        costs = pairs.measure_pairs(gram)
        # The conversion of an integer to a float rounds by at most one unit roundoff.
        above = pairs.find_largest(costs).astype(np.float64) * (1 + 4 * UNIT_ROUNDOFF)
        entry = max(1, find_largest_entry(M))
        return ExactCost(int(costs.max()), above, SATURATION // entry)

    def bound_unit_variances(self, structure: PairStructure, integers: Integers) -> FloatArray:
        (block_set,) = integers.block_sets
        L, _ = block_set.basis.represent(structure.pairs.grounded)
        # Each entry is the difference of two coefficients, rounded once.
        L_error = bound_norm(L, axis=1) * (2 * UNIT_ROUNDOFF)
        unit = bound_solution_norms(L, block_set.M[0].astype(np.float64), L_error=L_error)
        return np.asarray(unit * unit * (1 + 4 * UNIT_ROUNDOFF))

    def make_estimates(
        self, strategy: IntegerStrategy, answers: IntArray
    ) -> Mapping[str, FloatArray]:
        return PairEstimates(strategy, answers)

    def check_block_set(self, structure: PairStructure, block_set: BlockSet) -> None:
        if len(block_set.blocks) != 1:
            raise PlanError("the strategy measures blocks that the workload does not have")
        is_grounded = block_set.basis.kind == "cells" and np.array_equal(
            block_set.basis.index, structure.pairs.classes
        )
        if not is_grounded:
            # The cost is counted for the classes of cells of the structure.
            raise PlanError("the basis is not the classes of cells that queries tell apart")
