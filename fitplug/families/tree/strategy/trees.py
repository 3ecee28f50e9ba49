"""Strategies of blocks that are trees: integer matrices at the root and for each node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fitplug.errors import PlanError
from fitplug.families.base.boxed_combinations import Products
from fitplug.families.base.contrasts import make_contrasts
from fitplug.families.base.dense_mechanism import MeasuredCells, write_out_covariance
from fitplug.families.base.parted_strategy import PartedStrategy
from fitplug.families.base.strategies import build_strategy
from fitplug.families.base.strategy import Integers, IntegerStrategy
from fitplug.families.base.strategy_form import (
    Mechanism,
    StrategyCost,
    StrategyForm,
    make_mechanism,
)
from fitplug.families.tree.estimates.answers import list_block_tables
from fitplug.families.tree.estimates.combinations import (
    compute_boxed_tree_covariance,
    compute_tree_covariance,
    upper_boxed_tree_stds,
    upper_tree_stds,
)
from fitplug.families.tree.estimates.parts import PartedTrees
from fitplug.families.tree.integers.blocks import TreeBlock
from fitplug.families.tree.integers.cost import compute_tree_cost, upper_tree_variances
from fitplug.families.tree.integers.written_out import list_covariances, list_matrices
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.numeric import FloatArray, IntArray


class TreeForm(StrategyForm[TreeStructure]):
    """The strategies of `TreeStructure`."""

    def compute_cost(self, structure: TreeStructure, integers: Integers) -> StrategyCost:
        return compute_tree_cost(structure, integers.tree_blocks, integers.attribute_matrices)

    def upper_unit_variances(self, structure: TreeStructure, integers: Integers) -> FloatArray:
        return upper_tree_variances(structure, integers.tree_blocks)

    def list_mechanisms(self, strategy: IntegerStrategy, noise_std: float) -> tuple[Mechanism, ...]:
        # Nodes may have their largest sensitivities at different leaves, and the sum of these
        # would exceed what the answers cost together: they are one mechanism.
        square = strategy.sensitivity_squared
        return (make_mechanism("all answers", square, noise_std, strategy.size),)

    def list_tables(self, strategy: IntegerStrategy) -> list[tuple[str, ...]]:
        return list_block_tables(_read_structure(strategy))

    def check_blocks(self, strategy: IntegerStrategy, structure: TreeStructure) -> None:
        measured = [own.block for own in strategy.tree_blocks]
        if measured != list(range(len(structure.blocks))) or strategy.block_sets:
            raise PlanError("the strategy does not measure each block once")
        for own in strategy.tree_blocks:
            own.check_form(structure)

    def cut_strategy(self, strategy: IntegerStrategy, most: int) -> PartedStrategy:
        return PartedTrees(strategy, _read_structure(strategy), self.list_tables(strategy), most)

    def upper_combined_stds(
        self, strategy: IntegerStrategy, combinations: Sequence[Mapping[str, FloatArray]]
    ) -> FloatArray:
        return upper_tree_stds(strategy, _read_structure(strategy), combinations)

    def compute_combined_covariance(
        self, strategy: IntegerStrategy, combinations: Sequence[Mapping[str, FloatArray]]
    ) -> FloatArray:
        return compute_tree_covariance(strategy, _read_structure(strategy), combinations)

    def upper_boxed_stds(
        self, strategy: IntegerStrategy, combinations: Sequence[Products]
    ) -> FloatArray:
        return upper_boxed_tree_stds(strategy, _read_structure(strategy), combinations)

    def compute_boxed_covariance(
        self, strategy: IntegerStrategy, combinations: Sequence[Products]
    ) -> FloatArray:
        return compute_boxed_tree_covariance(strategy, _read_structure(strategy), combinations)

    def build_covariance(
        self, strategy: IntegerStrategy, noise_std: float
    ) -> tuple[FloatArray, IntArray]:
        structure = _read_structure(strategy)
        names = (structure.tree_attribute, *structure.dense)
        parts = list_covariances(structure, strategy.tree_blocks, noise_std)
        return write_out_covariance(strategy, names, parts)

    def list_measured_cells(self, strategy: IntegerStrategy) -> MeasuredCells:
        structure = _read_structure(strategy)
        names = (structure.tree_attribute, *structure.dense)
        return MeasuredCells(names, list_matrices(structure, strategy.tree_blocks))


def _read_structure(strategy: IntegerStrategy) -> TreeStructure:
    """Return the structure of a strategy of trees."""
    assert isinstance(strategy.structure, TreeStructure)
    return strategy.structure


def build_tree_strategy(
    structure: TreeStructure, tree_blocks: tuple[TreeBlock, ...]
) -> IntegerStrategy:
    """Build the strategy of the integers of each block of a tree; see `build_strategy`."""
    return build_strategy(structure, (), make_contrasts(structure), tree_blocks)
