"""Strategies of blocks that are numbers: all blocks share one basis, the one cell that is left."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from fitplug.errors import PlanError
from fitplug.families.base.contrasts import compute_precisions
from fitplug.families.base.integers import SATURATION
from fitplug.families.base.strategy import BlockSet, Integers, IntegerStrategy
from fitplug.families.base.strategy_form import Mechanism, StrategyCost, make_mechanism
from fitplug.families.base.structure import Structure
from fitplug.families.blocks.shape.scalars import ScalarStructure
from fitplug.families.blocks.strategy.block_sets import BlockSetForm
from fitplug.families.blocks.strategy.matrices import sum_column_squares
from fitplug.numeric import AnyArray, FloatArray, gamma

S = TypeVar("S", bound=Structure)


class OneCellForm(BlockSetForm[S]):
    """What strategies whose blocks are numbers have in common."""

    def compute_cost(
        self,
        structure: S,
        integers: Integers,
    ) -> StrategyCost:
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
        subsets, names = strategy.structure.subsets, strategy.structure.block_attributes
        found: dict[int, Mechanism] = {}
        changes = strategy.structure.changes
        for block_set in strategy.block_sets:
            matrices = strategy.attribute_matrices
            squares = subsets.multiply([own.column_square for own in matrices], block_set.blocks)
            rows = subsets.multiply([own.rows for own in matrices], block_set.blocks)
            attributes = subsets.list_attributes(block_set.blocks)
            for i, block in enumerate(block_set.blocks.tolist()):
                name = " x ".join(names[a] for a in attributes[i]) or "total"
                square = int(squares[i]) * int(block_set.M[i, 0, 0]) ** 2 * changes**2
                found[block] = make_mechanism(name, square, noise_std, int(rows[i]))
        return tuple(found[block] for block in sorted(found))

    def check_block_set(self, structure: S, block_set: BlockSet) -> None:
        if block_set.basis.kind != "cells":
            # Their sensitivity is counted for the cells themselves: a scaled row would cost more.
            raise PlanError("the basis is not the one cell that is left")


class ScalarForm(OneCellForm[ScalarStructure]):
    """The strategies of `ScalarStructure`."""

    def upper_unit_variances(
        self,
        structure: ScalarStructure,
        integers: Integers,
    ) -> FloatArray:
        of_blocks = np.zeros(len(structure.blocks))
        for block_set in integers.block_sets:
            precision = compute_precisions(structure, block_set.blocks)
            m = block_set.M[:, 0, 0].astype(np.float64)
            of_blocks[block_set.blocks] += 1 / (precision * m * m)
        return structure.incidence @ of_blocks * (1 + gamma(len(structure.blocks) + 64))
