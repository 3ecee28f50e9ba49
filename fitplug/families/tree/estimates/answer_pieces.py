"""Pieces of answers of trees: from the noisy answers of parts to the estimates of outputs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial

import numpy as np

from fitplug.families.base.estimates import arrange_as_group
from fitplug.families.base.pieces import Latest
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.tree.estimates.answers import (
    arrange_level,
    estimate_children,
    find_classes_below,
    invert_contrasts,
    merge_classes,
)
from fitplug.families.tree.estimates.cuts import Segment, TreeParts
from fitplug.families.tree.estimates.public_totals import KnownSums
from fitplug.families.tree.estimates.units import list_ranges
from fitplug.families.tree.integers.blocks import TreeBlock
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.unfolded_tree import UnfoldedTree
from fitplug.numeric import AnyArray, FloatArray, IntArray


class TreeAnswerSplit:
    """The pieces of a part's noisy answers."""

    def __init__(self, cut: TreeParts, part: int, noisy: IntArray) -> None:
        self._cut, self._segments, self._noisy = cut, cut.parts[part], noisy

    def make_piece(self, output: int) -> IntArray:
        """Make the piece of an output: the answers of the units that it needs."""
        cut, found, start = self._cut, [], 0
        blocks, units = cut.list_measured_blocks(output), cut.list_output_units(output)
        for one in self._segments:
            if one.block in blocks:
                answers = self._noisy[start : start + one.size].reshape(one.stop - one.start, -1)
                found.append(answers[:, cut.find_columns(one, output, units)].ravel())
            start += one.size
        return np.concatenate(found)


class TreeEstimation:
    """The estimates of an output, from the pieces of all parts."""

    def __init__(
        self,
        strategy: IntegerStrategy,
        structure: TreeStructure,
        cut: TreeParts,
        output: int,
        pieces: Mapping[int, AnyArray],
    ) -> None:
        self._strategy, self._structure, self._cut = strategy, structure, cut
        self._number, self._output, self._pieces = output, cut.outputs[output], pieces
        self._depth = cut.find_depth(output)
        self._sums = KnownSums(structure, cut, output, pieces)

    def estimate(self, latest: Latest) -> FloatArray:
        """Add up what the blocks say."""
        strategy, structure = self._strategy, self._structure
        g = structure.workload.position(self._output.group)
        total: FloatArray | float = 0.0
        for block in self._cut.list_blocks(self._number):
            if block not in self._cut.blocks:
                estimates = self._sums.find_level(block, self._depth)
            elif self._output.axis is None:
                # All groups of a level need the same of a block.
                place = ("level", block, self._depth)
                estimates = latest.remember(place, partial(self._sweep_down, block))
            else:
                estimates = self._sweep_down(block)
            total = total + arrange_level(strategy, structure, block, g, estimates)
        return arrange_as_group(
            structure, g, np.asarray(total), self._output.axis, self._output.shape
        )

    @cached_property
    def _tree(self) -> UnfoldedTree:
        """The rows of the tree that the output needs."""
        return self._cut.find_output_tree(self._number)

    @cached_property
    def _units(self) -> IntArray:
        """The units that the output needs, ascending."""
        return self._cut.list_output_units(self._number)

    @cached_property
    def _answers(self) -> dict[int, list[tuple[Segment, AnyArray]]]:
        """The answers of each block, by segment and row of contrasts, (contrasts, answers)."""
        found: dict[int, list[tuple[Segment, AnyArray]]] = {}
        blocks = self._cut.list_measured_blocks(self._number)
        for part, piece in self._pieces.items():
            at = 0
            for one in self._cut.parts[part] if part < len(self._cut.parts) else ():
                if one.block in blocks:
                    rows = one.stop - one.start
                    size = rows * self._count_columns(one)
                    own = piece[at : at + size].reshape(rows, -1)
                    found.setdefault(one.block, []).append((one, own))
                    at += size
        return found

    def _count_columns(self, one: Segment) -> int:
        """Count the answers of a segment that the output needs, of each row of contrasts."""
        if self._output.axis is None and self._cut.is_whole(one):
            return self._cut.count_answers(one.block, self._depth)
        return len(self._list_columns(one))

    def _list_columns(self, one: Segment) -> IntArray:
        """List the answers of a segment among those that the output needs of its block."""
        ranks = self._cut.units.rank_of_unit[self._units]
        is_within = (one.first <= ranks) & (ranks < one.last)
        widths = self._cut.find_offsets(one.block, self._units)[1]
        return list_ranges((np.cumsum(widths) - widths)[is_within], widths[is_within])

    def _gather(self, block: int) -> FloatArray:
        """Gather the answers of a block, (R, answers of all units)."""
        segments = self._answers.get(block, [])
        contrasts = self._cut.answers[block].contrasts
        if len(segments) == 1 and segments[0][1].shape[0] == contrasts:
            only, answers = segments[0]
            if self._cut.is_whole(only):
                return answers.astype(np.float64)
        widths = self._cut.find_offsets(block, self._units)[1]
        found = np.zeros((contrasts, int(widths.sum())))
        for one, answers in segments:
            found[one.start : one.stop, self._list_columns(one)] = answers
        return found

    def _sweep_down(self, block: int) -> FloatArray:
        """Estimate the nodes of the output, (nodes, cells of the block's attributes, r)."""
        own, tree = self._cut.blocks[block], self._tree
        answers = invert_contrasts(self._strategy, block, self._gather(block))
        at = len(own.root)
        estimates = self._estimate_root(own, answers[:, :at])[None]
        steps = list(own.list_siblings(tree, estimates[0].size))
        for depth in range(1, self._depth + 1):
            above = merge_classes(estimates, find_classes_below(self._structure, block, depth))
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

    def _estimate_root(self, own: TreeBlock, answers: FloatArray) -> FloatArray:
        """Estimate the classes of the root, shape (R, r), from its answers (R, n)."""
        found = np.asarray(answers @ own.root_inverse.T)
        return self._sums.complete_root(own.block, found)
