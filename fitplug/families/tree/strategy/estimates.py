"""From the noisy answers of tree blocks to estimates, in pieces.

Estimates are computed from the root to the leaves, with a few array operations for each step of the
tree; see `fitplug.families.tree.strategy.blocks`. A part has a piece for each output.

Where neighbours replace a record, public totals answer blocks too. If the unit of privacy keeps the
tree, they answer blocks completely; otherwise they determine sums of the classes of dense cells at
the root (`fitplug.families.tree.shape.root_totals`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property, partial

import numpy as np

from fitplug.domain import get_shape
from fitplug.families.base.estimates import arrange_as_group
from fitplug.families.base.pieces import Latest
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.families.tree.shape.unfolded_tree import UnfoldedTree
from fitplug.families.tree.strategy.blocks import (
    find_classes_below,
    find_part,
)
from fitplug.families.tree.strategy.child_matrices import ChildMatrices
from fitplug.families.tree.strategy.cuts import Segment, TreeCut
from fitplug.numeric import AnyArray, FloatArray, IntArray, make_room


def estimate_children(
    of_children: ChildMatrices, X: FloatArray, answers: FloatArray, above: FloatArray
) -> FloatArray:
    """Estimate the counts of the children of nodes with equally many children.

    Args:
        of_children: A_v of b nodes.
        X: M_v^-1, shape (b, r, r).
        answers: The nodes' answers, shape (R, answers of all nodes), one node after another.
        above: The estimates of the nodes over the children's classes, shape (b, R, r).

    Returns:
        Shape (b, k, R, r).
    """
    b, R, r = above.shape
    rows, spread = of_children.rows, of_children.reference[:, :, None, None]
    y = np.moveaxis(answers.reshape(R, b, rows, r), 0, 2)
    z = (y.reshape(b, rows * R, r) @ X.swapaxes(1, 2)).reshape(b, rows, R * r)
    deviations = of_children.invert(z).reshape(b, spread.shape[1], R, r)
    return np.asarray(spread * above[:, None] + deviations)


def arrange_level(
    structure: TreeStructure, block: int, g: int, estimates: FloatArray
) -> FloatArray:
    """Arrange a block's contribution to nodes of a group's level, spread over other attributes.

    Args:
        structure: The structure.
        block: The block.
        g: The group's index in the workload.
        estimates: The nodes' estimates, shape (nodes, cells of the block's attributes, r).

    Returns:
        An array with axes for the group's symmetric attributes, of one cell if they are not the
        block's, and then for nodes and rows of each node.
    """
    attributes = structure.subsets.group_attributes[g]
    (of_block,) = structure.subsets.list_attributes([block])
    part = find_part(structure, block, g)
    L = structure.classes[block][part.level.depth].restrict(part.matrix)
    arranged = np.moveaxis(estimates @ L.T, 1, 0)
    sizes = [structure.sizes[a] if a in of_block else 1 for a in attributes]
    spread = math.prod(structure.sizes[a] for a in attributes if a not in of_block)
    return np.asarray(arranged.reshape(*sizes, *arranged.shape[1:]) / spread)


def invert_contrasts(
    strategy: IntegerStrategy[TreeStructure], block: int, answers: FloatArray
) -> FloatArray:
    """Invert the contrasts of a block's attributes.

    Args:
        strategy: The strategy.
        block: The block.
        answers: The block's answers, shape (R, answers), with R the number of rows of all
            contrasts.

    Returns:
        Shape (cells of the block's attributes, answers).
    """
    (attributes,) = strategy.structure.subsets.list_attributes([block])
    matrices = [strategy.attribute_matrices[a] for a in attributes]
    inverted = answers.reshape(*(matrix.rows for matrix in matrices), answers.shape[-1])
    for axis, matrix in enumerate(matrices):
        inverted = matrix.invert(inverted, axis)
    return inverted.reshape(math.prod(inverted.shape[:-1]), inverted.shape[-1])


class TreeTotalsSplit:
    """The pieces of the public totals: for each block that they answer, without its margins."""

    def __init__(self, cut: TreeCut, totals: IntArray) -> None:
        assert isinstance(cut.structure, TreePairStructure)
        self._cut, self._structure, self._totals = cut, cut.structure, totals
        self._sums = Latest()

    def make_piece(self, output: int) -> FloatArray:
        """Make the piece of an output: at its nodes or, for measured blocks, at the root."""
        pieces = [np.zeros(0)]
        for block in self._cut.list_public_blocks(output):
            sums = self._sums.remember(block, partial(self._sum_totals, block))
            is_measured = block in self._cut.blocks
            pieces.append((sums[:1] if is_measured else sums[self._cut.find_nodes(output)]).ravel())
        return np.concatenate(pieces)

    def _sum_totals(self, block: int) -> FloatArray:
        """Sum the public totals to a block's attributes, apart from the block's margins.

        Returns:
            For the rows of the unfolded tree, or for the root alone if the unit does not keep the
            tree, shape (rows, cells of the block's attributes, regions of dense cells).
        """
        structure, strategy = self._structure, self._cut.strategy
        public, domain = structure.public_attributes or (), structure.workload.domain
        totals: AnyArray = self._totals.reshape(get_shape(domain, public))
        names = structure.name_attributes(block)
        summed = tuple(
            i for i, name in enumerate(public) if name in structure.symmetric and name not in names
        )
        totals = make_room(totals, 4 * max(totals.size, 1)).sum(axis=summed)
        tree = (structure.tree_attribute,) if structure.keeps_tree else ()
        wanted = (*names, *tree, *(name for name in structure.dense if name in public))
        remaining = [name for i, name in enumerate(public) if i not in summed]
        totals = totals.transpose([remaining.index(name) for name in wanted])
        if not tree:
            totals = np.expand_dims(totals, len(names))
        (attributes,) = structure.subsets.list_attributes([block])
        sums: AnyArray = totals
        for axis, a in enumerate(attributes):
            matrix = strategy.attribute_matrices[a]
            sums = matrix.apply(make_room(sums, matrix.growth), axis)
        sums = sums.astype(np.float64)
        for axis, a in enumerate(attributes):
            sums = strategy.attribute_matrices[a].invert(sums, axis)
        rows = math.prod(get_shape(domain, names))
        sums = sums.reshape(rows, totals.shape[len(names)], -1).swapaxes(0, 1)
        if not tree:
            return sums
        unfolded = structure.unfolded
        by_row = np.zeros((unfolded.size, *sums.shape[1:]))
        by_row[unfolded.leaves] = np.add.reduceat(sums, structure.tree.starts, axis=0)
        for siblings in reversed(unfolded.siblings):
            by_row[siblings.parents] = by_row[siblings.children].sum(axis=1)
        return by_row


class KnownSums:
    """The public totals of the blocks of an output.

    Args:
        cut: The cut of the strategy.
        output: The number of the output.
        pieces: The pieces of the output, with the piece of the totals if there are any.
    """

    def __init__(self, cut: TreeCut, output: int, pieces: Mapping[int, AnyArray]) -> None:
        structure = self._structure = cut.structure
        self._of_block: dict[int, FloatArray] = {}
        blocks, at = cut.list_public_blocks(output), 0
        if not blocks:
            return
        assert isinstance(structure, TreePairStructure)
        self._first_cells = np.unique(structure.regions, return_index=True)[1].tolist()
        piece, nodes = pieces[len(cut.parts)], len(cut.find_nodes(output))
        domain = structure.workload.domain
        for block in blocks:
            cells = math.prod(get_shape(domain, structure.name_attributes(block)))
            shape = (1 if block in cut.blocks else nodes, cells, len(self._first_cells))
            self._of_block[block] = piece[at : at + math.prod(shape)].reshape(shape)
            at += math.prod(shape)

    def find_level(self, block: int, depth: int) -> FloatArray:
        """Find the counts of a public block, apart from its margins.

        Returns:
            Shape (nodes, cells of the block's attributes, r).
        """
        # Each class of cells consists of complete regions.
        totals, classes = self._of_block[block], self._structure.classes[block][depth]
        counts = np.zeros((*totals.shape[:2], classes.size))
        for region, cell in enumerate(self._first_cells):
            if (number := int(classes.of_cell[cell])) >= 0:
                counts[:, :, number] += totals[:, :, region]
        return counts

    def complete_root(self, block: int, measured: FloatArray) -> FloatArray:
        """Estimate all classes of the root (R, r) from the measured ones (R, n)."""
        sums = self._structure.find_totals(block)
        if not sums.count:
            return measured
        completed = measured @ sums.reduction.T
        (totals,) = self._of_block[block]
        of_cell = self._structure.classes[block][0].of_cell
        for region, cell in enumerate(self._first_cells):
            if of_cell[cell] >= 0 and (number := int(sums.of_class[of_cell[cell]])) >= 0:
                completed[:, sums.references[number]] += totals[:, region]
        return np.asarray(completed)


class TreeAnswerSplit:
    """The pieces of a part's noisy answers."""

    def __init__(self, cut: TreeCut, part: int, noisy: IntArray) -> None:
        self._cut, self._segments, self._noisy = cut, cut.parts[part], noisy

    def make_piece(self, output: int) -> IntArray:
        """Make the piece of an output: the answers of the branches that it needs."""
        cut, pieces, start = self._cut, [], 0
        blocks = cut.list_measured_blocks(output)
        for one in self._segments:
            if one.block in blocks:
                answers = self._noisy[start : start + one.size].reshape(one.stop - one.start, -1)
                pieces += [
                    answers[:, source : source + length].ravel()
                    for source, _, length in cut.find_columns(one, output)
                ]
            start += one.size
        return np.concatenate(pieces)


class TreeEstimation:
    """The estimates of an output, from the pieces of all parts."""

    def __init__(self, cut: TreeCut, output: int, pieces: Mapping[int, AnyArray]) -> None:
        self._cut, self._structure = cut, cut.structure
        self._number, self._output, self._pieces = output, cut.outputs[output], pieces
        self._depth = cut.find_depth(output)
        self._sums = KnownSums(cut, output, pieces)

    def estimate(self, latest: Latest) -> FloatArray:
        """Add up the blocks' contributions."""
        structure = self._structure
        g = structure.workload.groups.find_position(self._output.group)
        total: FloatArray | float = 0.0
        for block in self._cut.list_blocks(self._number):
            if block not in self._cut.blocks:
                estimates = self._sums.find_level(block, self._depth)
            else:
                # Groups with the same nodes need the same estimates of a block.
                place = ("nodes", block, self._depth, self._output.start, self._output.stop)
                estimates = latest.remember(place, partial(self._sweep_down, block))
            total = total + arrange_level(structure, block, g, estimates)
        return arrange_as_group(
            structure, g, np.asarray(total), self._output.axis, self._output.shape
        )

    @cached_property
    def _tree(self) -> UnfoldedTree:
        """The rows of the tree that the output needs."""
        return self._cut.find_output_tree(self._number)

    @cached_property
    def _answers(self) -> dict[int, list[tuple[Segment, int, AnyArray]]]:
        """By block, ranges of its answers: the segment, the first column, (contrasts, columns)."""
        cut = self._cut
        blocks = cut.list_measured_blocks(self._number)
        by_block: dict[int, list[tuple[Segment, int, AnyArray]]] = {block: [] for block in blocks}
        for part, piece in self._pieces.items():
            at = 0
            for one in cut.parts[part] if part < len(cut.parts) else ():
                if one.block not in by_block:
                    continue
                rows = one.stop - one.start
                for _, column, length in cut.find_columns(one, self._number):
                    answers = piece[at : at + rows * length].reshape(rows, length)
                    by_block[one.block].append((one, column, answers))
                    at += rows * length
        return by_block

    def _gather(self, block: int) -> FloatArray:
        """Gather the answers of a block, (R, answers of all branches of the output)."""
        width = self._cut.count_columns(block, self._number)
        gathered = np.empty((self._cut.answers[block].contrasts, width))
        for one, column, answers in self._answers[block]:
            gathered[one.start : one.stop, column : column + answers.shape[1]] = answers
        return gathered

    def _sweep_down(self, block: int) -> FloatArray:
        """Estimate the nodes of the output, (nodes, cells of the block's attributes, r)."""
        tree_block, tree = self._cut.blocks[block], self._tree
        answers = invert_contrasts(self._cut.strategy, block, self._gather(block))
        at = len(tree_block.root)
        root = np.asarray(answers[:, :at] @ tree_block.root_inverse.T)
        estimates = self._sums.complete_root(block, root)[None]
        steps = list(tree_block.list_siblings(tree, estimates[0].size))
        for depth in range(1, self._depth + 1):
            above = find_classes_below(self._structure, block, depth).merge_counts(estimates)
            estimates = np.zeros((tree.ends[depth], *above.shape[1:]))
            estimates[: len(above)] = above
            for siblings, matrices in steps:
                if siblings.depth != depth:
                    continue
                b, k = siblings.children.shape
                of_children = matrices.take(siblings.positions, k)
                X = matrices.invert_dense(siblings.positions)
                size = b * of_children.rows * X.shape[1]
                estimates[siblings.children] = estimate_children(
                    of_children, X, answers[:, at : at + size], estimates[siblings.parents]
                )
                at += size
        return np.asarray(estimates[tree.leaves])
