"""Pieces of answers of trees: from the noisy answers of parts to the estimates of outputs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fitplug.mechanism.estimates import arrange_as_group
from fitplug.mechanism.strategy import Strategy
from fitplug.mechanism.tree_answers import (
    arrange_level,
    estimate_children,
    find_classes_below,
    find_part,
    invert_contrasts,
    merge_classes,
)
from fitplug.mechanism.tree_parts import TreeParts
from fitplug.mechanism.tree_units import list_ranges
from fitplug.numeric import AnyArray, FloatArray, IntArray, invert_each_with_residual
from fitplug.structure import TreeStructure


class TreeAnswerSplit:
    """The pieces of a part's noisy answers."""

    def __init__(
        self, structure: TreeStructure, cut: TreeParts, part: int, noisy: IntArray
    ) -> None:
        self._structure, self._cut = structure, cut
        self._segments, self._noisy = cut.parts[part], noisy

    def make_piece(self, output: int) -> IntArray:
        """Make the piece of an output: the answers of the units that it needs."""
        cut, found, start = self._cut, [], 0
        g = self._structure.workload.position(cut.outputs[output].group)
        blocks = set(self._structure.subsets.find_blocks(g))
        needed = cut.list_output_units(output)
        for one in self._segments:
            answers = self._noisy[start : start + one.size].reshape(one.stop - one.start, -1)
            start += one.size
            if one.block in blocks:
                units = cut.list_measured(one)
                _, widths = cut.find_offsets(one.block, units)
                is_kept = np.isin(units, needed, assume_unique=True)
                chosen = list_ranges((np.cumsum(widths) - widths)[is_kept], widths[is_kept])
                found.append(answers[:, chosen].ravel())
        return np.concatenate(found)


class TreeEstimation:
    """The estimates of an output, from the pieces of all parts."""

    def __init__(
        self,
        strategy: Strategy,
        structure: TreeStructure,
        cut: TreeParts,
        output: int,
        pieces: Mapping[int, AnyArray],
    ) -> None:
        self._strategy, self._structure, self._cut = strategy, structure, cut
        self._output = cut.outputs[output]
        self._group = structure.workload.position(self._output.group)
        self._nodes, self._path = cut.list_output_rows(output)
        self._units = np.unique(cut.units.unit_of_row[self._path]).astype(np.int64)
        self._answers = self._gather(pieces)

    def estimate(self) -> FloatArray:
        """Add up what the blocks say."""
        strategy, structure, g = self._strategy, self._structure, self._group
        order = np.argsort(self._path)
        nodes = order[np.searchsorted(self._path[order], self._nodes)]
        total: FloatArray | float = 0.0
        for block in structure.subsets.find_blocks(g):
            estimates = self._sweep_down(block)[nodes]
            total = total + arrange_level(strategy, structure, block, g, estimates)
        return arrange_as_group(
            structure, g, np.asarray(total), self._output.axis, self._output.shape
        )

    def _gather(self, pieces: Mapping[int, AnyArray]) -> dict[int, FloatArray]:
        """Gather the answers of each block, (R, answers of all units)."""
        cut, found = self._cut, {}
        for block in self._structure.subsets.find_blocks(self._group):
            widths = cut.find_offsets(block, self._units)[1]
            found[block] = np.zeros((cut.answers[block].contrasts, int(widths.sum())))
        for part, piece in pieces.items():
            at = 0
            for one in cut.parts[part]:
                if one.block not in found:
                    continue
                ranks = cut.units.rank_of_unit[self._units]
                is_within = (one.first <= ranks) & (ranks < one.last)
                widths = cut.find_offsets(one.block, self._units)[1]
                chosen = list_ranges((np.cumsum(widths) - widths)[is_within], widths[is_within])
                size = (one.stop - one.start) * len(chosen)
                own = piece[at : at + size].reshape(one.stop - one.start, len(chosen))
                found[one.block][one.start : one.stop, chosen] = own
                at += size
        return found

    def _sweep_down(self, block: int) -> FloatArray:
        """Estimate the rows of the path, (rows, cells of the block's attributes, r)."""
        structure, units, path = self._structure, self._cut.units, self._path
        own = self._strategy.tree_blocks[block]
        deepest = find_part(structure, block, self._group).level.depth
        answers = invert_contrasts(self._strategy, block, self._answers[block])
        at = len(own.root)
        # The path has the row of the root first, and then the rows by kind.
        estimates = np.zeros((len(path), len(answers), at))
        estimates[0] = answers[:, :at] @ own.root_inverse.T
        kinds = units.kind_of_unit[units.unit_of_row[path]]
        for depth in range(1, deepest + 1):
            classes = find_classes_below(structure, block, depth)
            estimates = merge_classes(estimates, classes)
            for kind in np.unique(kinds).tolist():
                if kind and units.kinds[kind].depth == depth:
                    rows = np.flatnonzero(kinds == kind)
                    at += self._visit(block, kind, rows, answers[:, at:], estimates)
        return estimates

    def _visit(
        self, block: int, kind: int, rows: IntArray, answers: FloatArray, estimates: FloatArray
    ) -> int:
        """Estimate the rows of a path whose units are of one kind.

        Args:
            block: The block.
            kind: The kind.
            rows: The indices of the rows in the path.
            answers: The answers of their units, and then others.
            estimates: Of the rows of the path; those of the rows are set.

        Returns:
            How many answers their units have.
        """
        units, path = self._cut.units, self._path
        own = units.kinds[kind]
        numbers, unit_of = np.unique(units.unit_of_row[path[rows]], return_inverse=True)
        positions = own.positions[numbers - own.first]
        step = self._strategy.tree_blocks[block].steps[own.step]
        of_children, dense = step.take_apart(positions, own.children.shape[1])
        X = invert_each_with_residual(dense.astype(np.float64))[0]
        order = np.argsort(path)
        parents = units.parent_of_row[own.children[numbers - own.first, 0]]
        above = estimates[order[np.searchsorted(path[order], parents)]]
        size = len(numbers) * of_children.rows * dense.shape[1]
        children = estimate_children(of_children, X, answers[:, :size], above)
        estimates[rows] = children[unit_of.ravel(), units.child_of_row[path[rows]]]
        return size
