"""Strategies for neighbours that replace a record, where some totals are public.

The totals come after the noisy answers, without noise.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from fitplug.errors import WorkloadError
from fitplug.families.base.basis import ReadCounts
from fitplug.families.base.estimates import BlockEstimates
from fitplug.families.base.integer_limits import SATURATION
from fitplug.families.base.mechanisms import Mechanism, make_mechanism
from fitplug.families.base.parted_strategy import PartedStrategy
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.base.strategy_form import S
from fitplug.families.blocks.strategy.block_sets import BlockSetForm
from fitplug.numeric import FloatArray, IntArray


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


class PublicTotalsEstimates(BlockEstimates):
    """Estimates from noisy answers, with what public totals say of blocks added."""

    @abstractmethod
    def _find_public(self, block: int, g: int) -> FloatArray | None:
        """Find what a group asks of the public totals within a block.

        Returns:
            Coefficients of the totals by region of the dense cells, shape (r, regions); None if
            public totals say nothing of the block.
        """

    def _estimate_part(self, block: int, g: int) -> FloatArray:
        public = self._find_public(block, g)
        if public is None:
            return super()._estimate_part(block, g)
        known = np.asarray(self._sum_totals(block) @ public.T)
        return known + super()._estimate_part(block, g) if block in self._places else known

    def _sum_totals(self, block: int) -> FloatArray:
        """Sum the public totals to a block's attributes, less what its margins say.

        Returns:
            An axis for each attribute of the block, and a last one for the regions.
        """
        structure = self._strategy.structure
        public = structure.public_attributes
        assert public is not None
        totals = self._answers[self._strategy.size :].astype(np.float64)
        totals = totals.reshape(structure.workload.domain.shape_of(public))
        own = structure.name_attributes(block)
        summed = [n for n in public if n in structure.block_attributes and n not in own]
        totals = totals.sum(axis=tuple(public.index(name) for name in summed))
        left = [name for name in public if name not in summed]
        totals = np.moveaxis(totals, [left.index(name) for name in own], range(len(own)))
        for axis, name in enumerate(own):
            matrix = self._strategy.attribute_matrices[structure.block_attributes.index(name)]
            spread = matrix.compute_reference().reshape(-1, *(1,) * (totals.ndim - axis - 1))
            totals = totals - totals.sum(axis=axis, keepdims=True) * spread
        return np.asarray(totals.reshape(*totals.shape[: len(own)], -1))


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
