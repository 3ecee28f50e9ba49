"""Strategies for neighbours that replace a record, where some totals are public."""

from __future__ import annotations

from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.base.strategy_form import Mechanism, S, make_mechanism
from fitplug.families.blocks.strategy.block_sets import BlockSetForm


class PublicTotalsForm(BlockSetForm[S]):
    """What strategies of structures with public totals have in common."""

    def list_tables(self, strategy: IntegerStrategy) -> list[tuple[str, ...]]:
        public = strategy.structure.public_attributes
        assert public is not None
        return [*super().list_tables(strategy), public]

    def list_mechanisms(self, strategy: IntegerStrategy, noise_std: float) -> tuple[Mechanism, ...]:
        # Blocks may have their largest sensitivities at different pairs of cells.
        square = strategy.sensitivity_squared
        return (make_mechanism("all answers", square, noise_std, strategy.size),)
