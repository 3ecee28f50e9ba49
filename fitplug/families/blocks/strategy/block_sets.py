"""Strategies of block sets: each block has an integer basis, and an integer matrix over it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from fitplug.errors import PlanError
from fitplug.families.base.boxed_combinations import Products, find_boxed_rows
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
from fitplug.families.base.integers import MAX_ENTRY
from fitplug.families.base.parted_strategy import PartedStrategy
from fitplug.families.base.strategy import BlockSet, IntegerStrategy
from fitplug.families.base.strategy_form import S, StrategyForm
from fitplug.families.blocks.estimates.parts import PartedBlocks
from fitplug.numeric import FloatArray, IntArray, find_largest_entry


class BlockSetForm(StrategyForm[S]):
    """What strategies of block sets have in common.

    Attributes:
        has_grades: Whether blocks may have multiples of grades.
    """

    has_grades = False

    @abstractmethod
    def check_block_set(self, structure: S, block_set: BlockSet) -> None:
        """Check that blocks of the structure may share a set and its basis.

        Raises:
            PlanError: If they are not blocks that may share a set, or its basis is not theirs.
        """

    def list_tables(self, strategy: IntegerStrategy) -> list[tuple[str, ...]]:
        return [
            names
            for block_set in strategy.block_sets
            for names in block_set.basis.list_tables(strategy.structure, block_set.blocks)
        ]

    def check_blocks(self, strategy: IntegerStrategy, structure: S) -> None:
        for block_set in strategy.block_sets:
            self._check_integers(structure, block_set)
        measured = [block for own in strategy.block_sets for block in own.blocks.tolist()]
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
