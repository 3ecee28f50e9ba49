"""Strategies of blocks that are numbers, for neighbours that replace a record."""

from __future__ import annotations

from typing import Any

import numpy as np

from fitplug.errors import PlanError
from fitplug.families.base.contrasts import build_contrasts, compute_precisions
from fitplug.families.base.integers import SATURATION
from fitplug.families.base.strategy import BlockSet, Integers
from fitplug.families.base.strategy_form import StrategyCost
from fitplug.families.blocks.shape.symmetric_pairs import SymmetricPairStructure
from fitplug.families.blocks.strategy.public_totals import PublicTotalsForm
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray, gamma


class SymmetricPairForm(PublicTotalsForm[SymmetricPairStructure]):
    """The strategies of `SymmetricPairStructure`."""

    def compute_cost(self, structure: SymmetricPairStructure, integers: Integers) -> StrategyCost:
        matrices = [build_contrasts(n) for n in structure.sizes]
        own = [matrix.column_square for matrix in matrices]
        # H'H = precision (I - J/n), and the precision of contrasts is a multiple of n.
        between = [-(matrix.precision // matrix.n) for matrix in matrices]
        assert all(b * m.n == -m.precision for b, m in zip(between, matrices, strict=True))
        total: Any = np.zeros(structure.differences, dtype=object)
        for block_set in integers.block_sets:
            m = block_set.M[:, 0, 0].astype(object)
            for block, number in zip(block_set.blocks.tolist(), m.tolist(), strict=True):
                moved = structure.sum_moves(block, own, between).astype(object)
                total = total + moved * number**2
        largest = int(max(total.tolist()))
        above = np.array([float(largest) * (1 + 4 * UNIT_ROUNDOFF)])
        return StrategyCost(largest, above, self.find_room(structure, integers))

    def find_room(self, structure: SymmetricPairStructure, integers: Integers) -> int:
        """Find the most records of which no answer leaves the range that is released as it is."""
        entry = 1
        for block_set in integers.block_sets:
            entries = structure.subsets.multiply(
                [matrix.largest_entry for matrix in integers.attribute_matrices], block_set.blocks
            )
            entry = max(entry, int((entries * block_set.M[:, 0, 0].astype(object)).max()))
        return SATURATION // entry

    def upper_unit_variances(
        self, structure: SymmetricPairStructure, integers: Integers
    ) -> FloatArray:
        # Public blocks have no noise.
        of_blocks = np.zeros(len(structure.blocks))
        for block_set in integers.block_sets:
            m = block_set.M[:, 0, 0].astype(np.float64)
            precision = compute_precisions(structure, block_set.blocks)
            of_blocks[block_set.blocks] += 1 / (precision * m * m)
        return structure.incidence @ of_blocks * (1 + gamma(len(structure.blocks) + 64))

    def check_block_set(self, structure: SymmetricPairStructure, block_set: BlockSet) -> None:
        if block_set.basis.kind != "cells":
            raise PlanError("the basis is not the one cell that is left")
