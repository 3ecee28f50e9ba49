"""Pieces of answers of trees: from the noisy answers of parts to the estimates of outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fitplug.families.base.estimates import arrange_as_group
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.tree.estimates.answers import (
    arrange_level,
    estimate_children,
    find_classes_below,
    find_part,
    invert_contrasts,
    merge_classes,
)
from fitplug.families.tree.estimates.cuts import TreeParts
from fitplug.families.tree.estimates.units import list_different, list_ranges
from fitplug.families.tree.integers.blocks import TreeBlock
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.numeric import AnyArray, FloatArray, IntArray, invert_each_with_residual


@dataclass(frozen=True, eq=False)
class PathStep:
    """The rows of some paths whose units are of one kind.

    Attributes:
        kind: The kind.
        rows: The indices of the rows in the paths, shape (n,).
        children: The index of each row's unit among `units`, and its index among the unit's
            children, both of shape (n,).
        units: The units, as indices of those of the kind, shape (b,).
        parents: The indices of the units' nodes in the paths, shape (b,).
    """

    kind: int
    rows: IntArray
    children: tuple[IntArray, IntArray]
    units: IntArray
    parents: IntArray


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
        strategy: IntegerStrategy,
        structure: TreeStructure,
        cut: TreeParts,
        output: int,
        pieces: Mapping[int, AnyArray],
    ) -> None:
        self._strategy, self._structure, self._cut = strategy, structure, cut
        self._output = cut.outputs[output]
        self._group = structure.workload.position(self._output.group)
        self._nodes, self._path = cut.list_output_rows(output)
        self._units = cut.units.list_row_units(self._path)
        self._answers = self._gather(pieces)

    def estimate(self) -> FloatArray:
        """Add up what the blocks say."""
        strategy, structure, g = self._strategy, self._structure, self._group
        total: FloatArray | float = 0.0
        for block in structure.subsets.find_blocks(g):
            estimates = self._sweep_down(block)[self._find(self._nodes)]
            total = total + arrange_level(strategy, structure, block, g, estimates)
        return arrange_as_group(
            structure, g, np.asarray(total), self._output.axis, self._output.shape
        )

    def _find(self, rows: IntArray) -> IntArray:
        """Find the indices of rows of the tree in the paths."""
        order, ordered = self._order
        return np.asarray(order[np.searchsorted(ordered, rows)])

    @cached_property
    def _order(self) -> tuple[IntArray, IntArray]:
        """The indices of the paths' rows in their order, and these rows."""
        order = np.argsort(self._path)
        return order, self._path[order]

    @cached_property
    def _steps(self) -> list[PathStep]:
        """The steps of the paths, from below the root downwards."""
        units, path = self._cut.units, self._path
        kinds = units.kind_of_unit[units.unit_of_row[path]]
        found = []
        for kind in list_different(kinds[1:]).tolist():
            rows = np.flatnonzero(kinds == kind)
            different, first, unit_of = np.unique(
                units.unit_of_row[path[rows]], return_index=True, return_inverse=True
            )
            found.append(
                PathStep(
                    kind=kind,
                    rows=rows,
                    children=(unit_of.ravel(), units.child_of_row[path[rows]]),
                    units=different - units.kinds[kind].first,
                    parents=self._find(units.parent_of_row[path[rows[first]]]),
                )
            )
        return found

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
        structure, units = self._structure, self._cut.units
        own = self._strategy.tree_blocks[block]
        deepest = find_part(structure, block, self._group).level.depth
        answers = invert_contrasts(self._strategy, block, self._answers[block])
        at = len(own.root)
        # The path has the row of the root first, and then the rows by kind.
        estimates = np.zeros((len(self._path), len(answers), at))
        estimates[0] = answers[:, :at] @ own.root_inverse.T
        for depth in range(1, deepest + 1):
            classes = find_classes_below(structure, block, depth)
            estimates = merge_classes(estimates, classes)
            for step in self._steps:
                if units.kinds[step.kind].depth == depth:
                    at += self._visit(own, step, answers[:, at:], estimates)
        return estimates

    def _visit(
        self, block: TreeBlock, step: PathStep, answers: FloatArray, estimates: FloatArray
    ) -> int:
        """Estimate the rows of a step.

        Args:
            block: The block.
            step: The step.
            answers: The answers of its units, and then others.
            estimates: Of the rows of the paths; those of the step are set.

        Returns:
            How many answers its units have.
        """
        kind = self._cut.units.kinds[step.kind]
        of_children, dense = block.steps[kind.step].take_apart(
            kind.positions[step.units], kind.children.shape[1]
        )
        X = invert_each_with_residual(dense.astype(np.float64))[0]
        size = len(dense) * of_children.rows * dense.shape[1]
        above = estimates[step.parents]
        children = estimate_children(of_children, X, answers[:, :size], above)
        estimates[step.rows] = children[step.children]
        return size
