"""Strategies for neighbours that replace a record, where some totals are public.

The totals come after the noisy answers, without noise.
"""

from __future__ import annotations

import numpy as np

from fitplug.errors import WorkloadError
from fitplug.mechanism.basis import ReadCounts
from fitplug.mechanism.block_set_form import BlockSetForm
from fitplug.mechanism.integer_limits import SATURATION
from fitplug.mechanism.mechanisms import Mechanism, make_mechanism
from fitplug.mechanism.parted_strategy import PartedStrategy
from fitplug.mechanism.strategy import IntegerStrategy
from fitplug.mechanism.strategy_form import S
from fitplug.numeric import IntArray


def append_totals(
    strategy: IntegerStrategy, answers: IntArray, read_counts: ReadCounts
) -> IntArray:
    """Write the public totals behind the answers that are measured, and return the same array."""
    public = strategy.structure.public_attributes
    assert public is not None
    totals = np.clip(np.asarray(read_counts(public)).ravel(), -SATURATION, SATURATION)
    answers[strategy.size :] = totals.astype(np.int64)
    return answers


def refuse_parts() -> WorkloadError:
    """Make the error for a release in parts."""
    return WorkloadError(
        "releases in parts are not made for plans of the unit of privacy ReplaceOne; make a "
        "release in one piece"
    )


class PublicTotalsForm(BlockSetForm[S]):
    """What strategies of structures with public totals have in common."""

    def list_tables(self, strategy: IntegerStrategy) -> list[tuple[str, ...]]:
        public = strategy.structure.public_attributes
        assert public is not None
        return [*super().list_tables(strategy), public]

    def answer_exactly(self, strategy: IntegerStrategy, read_counts: ReadCounts) -> IntArray:
        return append_totals(strategy, super().answer_exactly(strategy, read_counts), read_counts)

    def cut_strategy(self, strategy: IntegerStrategy, most: int) -> PartedStrategy:
        raise refuse_parts()

    def list_mechanisms(self, strategy: IntegerStrategy, noise_std: float) -> tuple[Mechanism, ...]:
        # Blocks may have their largest sensitivities at different pairs of cells.
        square = strategy.sensitivity_squared
        return (make_mechanism("all answers", square, noise_std, strategy.size),)
