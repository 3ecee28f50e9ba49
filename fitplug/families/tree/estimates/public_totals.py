"""Public totals of trees where neighbours replace a record: what they tell of each block.

If the unit of privacy keeps the tree, they answer blocks completely; if not, they tell sums of the
classes of dense cells at the root (`fitplug.families.tree.shape.root_totals`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import numpy as np

from fitplug.families.base.pieces import Latest
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.tree.estimates.cuts import TreeParts
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.numeric import AnyArray, FloatArray, IntArray, make_room


class TreeTotalsSplit:
    """The pieces of the public totals: of each block that they tell of, without its margins."""

    def __init__(self, strategy: IntegerStrategy, cut: TreeParts, totals: IntArray) -> None:
        assert isinstance(strategy.structure, TreePairStructure)
        self._strategy, self._structure = strategy, strategy.structure
        self._cut, self._totals = cut, totals
        self._sums = Latest()

    def make_piece(self, output: int) -> FloatArray:
        """Make the piece of an output: at its nodes or, of blocks that are measured, the root."""
        found = [np.zeros(0)]
        for block in self._cut.list_public_blocks(output):
            sums = self._sums.remember(block, partial(self._sum_totals, block))
            is_measured = block in self._cut.blocks
            found.append((sums[:1] if is_measured else sums[self._cut.find_nodes(output)]).ravel())
        return np.concatenate(found)

    def _sum_totals(self, block: int) -> FloatArray:
        """Sum the public totals to a block's attributes, less what its margins say.

        Returns:
            For the rows of the unfolded tree, or the root alone if the unit does not keep the tree,
            shape (rows, cells of the block's attributes, regions of dense cells).
        """
        structure, strategy = self._structure, self._strategy
        public, domain = structure.public_attributes or (), structure.workload.domain
        totals: AnyArray = self._totals.reshape(domain.shape_of(public))
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


class KnownSums:
    """What public totals tell of the blocks of an output.

    Args:
        structure: The structure.
        cut: How its strategy is cut.
        output: The number of the output.
        pieces: The pieces of the output, with that of the totals if there are any.
    """

    def __init__(
        self,
        structure: TreeStructure,
        cut: TreeParts,
        output: int,
        pieces: Mapping[int, AnyArray],
    ) -> None:
        self._structure = structure
        self._of_block: dict[int, FloatArray] = {}
        blocks, at = cut.list_public_blocks(output), 0
        if not blocks:
            return
        assert isinstance(structure, TreePairStructure)
        self._first_cells = np.unique(structure.regions, return_index=True)[1].tolist()
        piece, nodes = pieces[len(cut.parts)], len(cut.find_nodes(output))
        domain = structure.workload.domain
        for block in blocks:
            cells = math.prod(domain.shape_of(structure.name_attributes(block)))
            shape = (1 if block in cut.blocks else nodes, cells, len(self._first_cells))
            self._of_block[block] = piece[at : at + math.prod(shape)].reshape(shape)
            at += math.prod(shape)

    def find_level(self, block: int, depth: int) -> FloatArray:
        """Find the counts of a block that is public, less what its margins say.

        Returns:
            Shape (nodes, cells of the block's attributes, r).
        """
        # Each class of cells consists of complete regions.
        totals, classes = self._of_block[block], self._structure.classes[block][depth]
        found = np.zeros((*totals.shape[:2], classes.size))
        for region, cell in enumerate(self._first_cells):
            if (own := int(classes.of_cell[cell])) >= 0:
                found[:, :, own] += totals[:, :, region]
        return found

    def complete_root(self, block: int, measured: FloatArray) -> FloatArray:
        """Estimate all classes of the root (R, r) from those that are measured (R, n)."""
        sums = self._structure.find_totals(block)
        if not sums.count:
            return measured
        found = measured @ sums.reduction.T
        (totals,) = self._of_block[block]
        of_cell = self._structure.classes[block][0].of_cell
        for region, cell in enumerate(self._first_cells):
            if of_cell[cell] >= 0 and (number := int(sums.of_class[of_cell[cell]])) >= 0:
                found[:, sums.references[number]] += totals[:, region]
        return np.asarray(found)
