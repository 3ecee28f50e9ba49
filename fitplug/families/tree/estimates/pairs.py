"""Estimates of trees where neighbours replace a record, from noisy answers and public totals."""

from __future__ import annotations

import math

import numpy as np

from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.tree.estimates.answers import TreeEstimates
from fitplug.families.tree.integers.blocks import TreeBlock
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.numeric import AnyArray, FloatArray, IntArray, make_room


class TreePairEstimates(TreeEstimates):
    """Estimates from noisy answers; what public totals tell comes from these."""

    def __init__(
        self, strategy: IntegerStrategy, structure: TreePairStructure, answers: IntArray
    ) -> None:
        super().__init__(strategy, structure, answers)
        self._pairs = structure

    def _estimate_level(self, place: tuple[int, int]) -> FloatArray:
        block, depth = place
        if block in self._places:
            return super()._estimate_level(place)
        # Each class of cells consists of complete regions.
        classes = self._pairs.classes[block][depth]
        totals = self._read_totals(block)[self._list_level_rows(block, depth)]
        found = np.zeros((*totals.shape[:2], classes.size))
        for region, cell in enumerate(self._list_first_cells()):
            if (own := int(classes.of_cell[cell])) >= 0:
                found[:, :, own] += totals[:, :, region]
        return found

    def _estimate_root(self, own: TreeBlock, answers: FloatArray) -> FloatArray:
        found = super()._estimate_root(own, answers)
        sums = self._pairs.find_totals(own.block)
        if not sums.count:
            return found
        found = found @ sums.reduction.T
        (totals,) = self._read_totals(own.block)
        of_cell = self._pairs.classes[own.block][0].of_cell
        for region, cell in enumerate(self._list_first_cells()):
            if of_cell[cell] >= 0 and (number := int(sums.of_class[of_cell[cell]])) >= 0:
                found[:, sums.references[number]] += totals[:, region]
        return np.asarray(found)

    def _list_first_cells(self) -> list[int]:
        """List the first dense cell of each region."""
        first: list[int] = np.unique(self._pairs.regions, return_index=True)[1].tolist()
        return first

    def _read_totals(self, block: int) -> FloatArray:
        """Read what the public totals say of a block, less what its margins say.

        Returns:
            For the rows of the unfolded tree, or the root alone if the unit does not keep the tree,
            shape (rows, cells of the block's attributes, regions of dense cells).
        """
        structure, strategy = self._pairs, self._strategy
        public, domain = structure.public_attributes or (), structure.workload.domain
        totals: AnyArray = self._answers[strategy.size :].reshape(domain.shape_of(public))
        own = structure.name_attributes(block)
        summed = tuple(
            i for i, name in enumerate(public) if name in structure.symmetric and name not in own
        )
        totals = make_room(totals, 4 * max(totals.size, 1)).sum(axis=summed)
        tree = (structure.tree_attribute,) if structure.keeps_tree else ()
        wanted = (*own, *tree, *(name for name in structure.dense if name in public))
        kept = [name for i, name in enumerate(public) if i not in summed]
        totals = totals.transpose([kept.index(name) for name in wanted])
        if not tree:
            totals = np.expand_dims(totals, len(own))
        (attributes,) = structure.subsets.list_attributes([block])
        found: AnyArray = totals
        for axis, a in enumerate(attributes):
            matrix = strategy.attribute_matrices[a]
            found = matrix.apply(make_room(found, matrix.growth), axis)
        found = found.astype(np.float64)
        for axis, a in enumerate(attributes):
            found = strategy.attribute_matrices[a].invert(found, axis)
        rows = math.prod(domain.shape_of(own))
        found = found.reshape(rows, totals.shape[len(own)], -1).swapaxes(0, 1)
        if not tree:
            return found
        unfolded = structure.unfolded
        by_row = np.zeros((unfolded.size, *found.shape[1:]))
        by_row[unfolded.leaves] = np.add.reduceat(found, structure.tree.starts, axis=0)
        for siblings in reversed(unfolded.siblings):
            by_row[siblings.parents] = by_row[siblings.children].sum(axis=1)
        return by_row
