"""Strategies of trees where neighbours replace a record."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from fitplug.errors import PlanError
from fitplug.families.base.strategy import Integers, IntegerStrategy
from fitplug.families.base.strategy_form import StrategyCost, upper_excess
from fitplug.families.tree.integers.cost import count_most_records
from fitplug.families.tree.integers.pair_blocks import list_pair_blocks
from fitplug.families.tree.integers.pair_cost import upper_costliest_pair
from fitplug.families.tree.integers.pair_search import compute_attained_cost
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.families.tree.strategy.trees import TreeForm
from fitplug.numeric import ceil_float


class TreePairForm(TreeForm):
    """The strategies of `TreePairStructure`."""

    def compute_cost(self, structure: TreeStructure, integers: Integers) -> StrategyCost:
        """Compute what no pair of cells costs more than."""
        return self._upper_cost(structure, integers, None)

    def confirm_cost(
        self, structure: TreeStructure, integers: Integers, claimed: int
    ) -> StrategyCost:
        return self._upper_cost(structure, integers, claimed)

    def _upper_cost(
        self, structure: TreeStructure, integers: Integers, claimed: int | None
    ) -> StrategyCost:
        """Bound the cost; it is the claimed one if that is proven, and no looser than need be."""
        assert isinstance(structure, TreePairStructure)
        blocks = list_pair_blocks(structure, integers.tree_blocks, integers.attribute_matrices)
        least, largest, _ = upper_costliest_pair(structure, blocks)
        if claimed is not None and least <= claimed <= 2 * largest - least:
            largest = claimed
        records = count_most_records(structure, integers.tree_blocks, integers.attribute_matrices)
        return StrategyCost(largest, np.array([ceil_float(Fraction(largest))]), records)

    def upper_overstatement(self, strategy: IntegerStrategy) -> float:
        structure = strategy.structure
        assert isinstance(structure, TreePairStructure)
        blocks = list_pair_blocks(structure, strategy.tree_blocks, strategy.attribute_matrices)
        _, _, costly = upper_costliest_pair(structure, blocks)
        attained = compute_attained_cost(structure, blocks, costly)
        return upper_excess(strategy.sensitivity_squared, attained)

    def list_tables(self, strategy: IntegerStrategy) -> list[tuple[str, ...]]:
        public = strategy.structure.public_attributes
        assert public is not None
        return [*super().list_tables(strategy), public]

    def check_blocks(self, strategy: IntegerStrategy, structure: TreeStructure) -> None:
        measured = [own.block for own in strategy.tree_blocks]
        if measured != structure.noisy_blocks.tolist() or strategy.block_sets:
            raise PlanError("the strategy does not measure each block once")
        for own in strategy.tree_blocks:
            own.check_form(structure)
