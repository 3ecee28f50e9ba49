"""From exact counts to the answers of tree blocks, in pieces.

Counts are summed from the leaves to the root, with a few array operations for each step of the
tree; see `fitplug.families.tree.strategy.blocks`. A slab of leaves has a piece for each part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from fitplug.domain import get_shape
from fitplug.families.base.mechanism import SATURATION, ExactTotals, pack_integers, unpack_integers
from fitplug.families.base.pieces import cut_evenly, sum_margin
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.unfolded_tree import list_different
from fitplug.families.tree.strategy.blocks import (
    list_needed,
)
from fitplug.families.tree.strategy.child_matrices import ChildMatrices
from fitplug.families.tree.strategy.cuts import Segment, TreeCut
from fitplug.numeric import AnyArray, IntArray, make_room, multiply_exactly, to_positions
from fitplug.workload import CellClasses, number_classes


def contrast_counts(
    strategy: IntegerStrategy[TreeStructure], block: int, counts: AnyArray, starts: IntArray
) -> AnyArray:
    """Sum counts to leaves of the tree and classes, with the contrasts of a block's attributes.

    Args:
        strategy: The strategy.
        block: The block.
        counts: Counts over the block's attributes and then those of `list_needed`, where the tree
            may have a range of its cells.
        starts: The first cell of each leaf in that range.

    Returns:
        Numbers in a type (int64 or Python integers) that holds their sums over leaves and classes,
        shape (leaves, R, r). Without the tree there is one leaf, the root.
    """
    structure = strategy.structure
    domain, needed = structure.workload.domain, list_needed(structure, block)
    counts = make_room(counts, math.prod(get_shape(domain, needed)) * 2)
    # Dense attributes that are not needed are summed out.
    shape = get_shape(domain, structure.name_attributes(block))
    at_leaves = structure.tree_attribute in needed
    cells = counts.shape[len(shape)] if at_leaves else 1
    counts = counts.reshape(*shape, cells, -1)
    if at_leaves and len(starts) < cells:
        counts = np.add.reduceat(counts, starts, axis=-2, dtype=counts.dtype)
    counts = _find_counted_classes(structure, block).merge_counts(counts)
    (indices,) = structure.subsets.list_attributes([block])
    for axis, a in enumerate(indices):
        matrix = strategy.attribute_matrices[a]
        counts = matrix.apply(make_room(counts, matrix.growth), axis)
    counts = counts.reshape(-1, *counts.shape[-2:])
    # No sum of contrasts over leaves or classes exceeds the sum of all absolute values.
    return make_room(counts, 2 * math.prod(counts.shape[1:])).swapaxes(0, 1)


def _find_counted_classes(structure: TreeStructure, block: int) -> CellClasses:
    """Find a block's classes among the cells of the dense attributes that it needs."""
    classes, dense = structure.classes[block][0], structure.dense
    needed = list_needed(structure, block)
    # Classes do not vary along an attribute that none of the block's groups uses.
    first = tuple(slice(None) if name in needed else 0 for name in dense)
    of_cell = classes.of_cell.reshape(get_shape(structure.workload.domain, dense))[first].ravel()
    return number_classes(of_cell, classes.size)


def measure_children(of_children: ChildMatrices, dense: IntArray, below: AnyArray) -> IntArray:
    """Compute the answers of nodes with equally many children, clamped.

    Args:
        of_children: A_v of b nodes.
        dense: M_v, shape (b, r, r).
        below: The counts of the nodes' children, shape (b, k, R, r).

    Returns:
        Shape (R, answers of all nodes): a node after another.
    """
    b, k, R, r = below.shape
    measured = multiply_exactly(below.reshape(b, k * R, r), dense.swapaxes(1, 2))
    answers = of_children.apply(measured.reshape(b, k, R * r)).reshape(b, of_children.rows, R, r)
    return clamp_answers(np.moveaxis(answers, 2, 0).reshape(R, -1))


def clamp_answers(answers: AnyArray) -> IntArray:
    """Clamp answers at +-2^62."""
    return np.asarray(np.clip(answers, -SATURATION, SATURATION), dtype=np.int64)


_MOST_NUMBERS = 2**22
"""The most counts of children to multiply at once, unless one node has more."""


class TreeCountSplit:
    """The pieces of a slab's counts."""

    def __init__(self, cut: TreeCut, slab: int, counts: AnyArray) -> None:
        self._cut, self._structure = cut, cut.structure
        self._slab, self._counts = slab, counts
        self._paths = cut.find_paths(slab)
        self._latest: tuple[int, AnyArray] = (-1, self._counts)

    def make_piece(self, part: int) -> IntArray:
        """Make the piece of a part.

        It has the number of ranges of rows of each segment, the place of each range's first row and
        the number of its rows, and then the counts of all rows.
        """
        cut, places = self._cut, self._paths.places
        lengths, ranges = [], []
        values: list[AnyArray] = []
        for i in cut.list_readers(part, self._slab):
            one = cut.parts[part][i]
            of_segment = self._paths.join_ranges(self._choose_ranges(one))
            lengths.append(len(of_segment))
            ranges += [(places[start], stop - start) for start, stop in of_segment]
            values += [self._read_counts(one, *rows) for rows in of_segment]
        head = (np.array(lengths, dtype=np.int64), np.array(ranges, dtype=np.int64))
        return pack_integers([*head, *values])

    def _choose_ranges(self, one: Segment) -> IntArray:
        """Choose the indices of the slab's ranges of rows that a segment needs."""
        branches = self._paths.branches
        if self._cut.is_at_root(one.block):
            branches = branches[:1]
        ranks = self._cut.branches.rank_of_branch[branches]
        is_within = (one.first <= ranks) & (ranks < one.last)
        return np.flatnonzero(is_within & self._cut.find_measured(one.block, branches))

    def _read_counts(self, one: Segment, start: int, stop: int) -> AnyArray:
        """Read the counts of rows of one kind, over the classes of their depth."""
        branches, classes = self._cut.branches, self._structure.classes[one.block]
        first = branches.branch_of_place[self._paths.places[start]]
        depth = branches.kinds[branches.kind_of_branch[first]].depth
        counts = self._sum_counts(one.block)[start:stop, one.start : one.stop]
        return classes[0].find_merged(classes[depth]).merge_counts(counts)

    def _sum_counts(self, block: int) -> AnyArray:
        """Sum the slab's counts to its rows, with the contrasts of a block, (rows, R, r)."""
        if self._latest[0] == block:
            return self._latest[1]
        structure, cut = self._structure, self._cut
        needed, slab = list_needed(structure, block), cut.slabs[self._slab]
        counts = sum_margin(self._counts, slab.names, structure.name_attributes(block) + needed)
        leaves = cut.list_leaves(self._slab)
        starts = np.maximum(structure.tree.starts[leaves] - slab.start, 0)
        contrasts = contrast_counts(cut.strategy, block, counts, starts)
        if not cut.is_at_root(block):
            contrasts = self._paths.sum_up(contrasts)
        self._latest = block, contrasts
        return contrasts


class TreeCountGathering:
    """The counts of a part's children, added up slab by slab.

    Args:
        cut: The cut of the strategy.
        part: The number of the part.
    """

    def __init__(self, cut: TreeCut, part: int) -> None:
        self._cut, self._structure = cut, cut.structure
        self._part, self._segments = part, cut.parts[part]
        # By segment and kind of branches: their numbers, and the index of their children's counts.
        self._branches: list[dict[int, tuple[IntArray, int]]] = []
        shapes: list[tuple[int, ...]] = []
        for one in self._segments:
            every = cut.list_measured(one)
            kinds = cut.branches.kind_of_branch[every]
            self._branches.append({})
            for kind in list_different(kinds).tolist():
                branches, siblings = every[kinds == kind], cut.branches.kinds[kind]
                self._branches[-1][kind] = branches, len(shapes)
                r = cut.structure.classes[one.block][siblings.depth].size
                k = siblings.children.shape[1]
                shapes.append((len(branches), k, one.stop - one.start, r))
        self._sums = ExactTotals(shapes)

    def answer(self, pieces: Mapping[int, IntArray]) -> IntArray:
        """Compute the part's answers from the pieces of all slabs, reading one at a time."""
        for slab in pieces:
            self._add_piece(slab, pieces[slab])
        return np.concatenate(
            [
                self._answer_segment(one, branches).ravel()
                for one, branches in zip(self._segments, self._branches, strict=True)
            ]
        )

    def _answer_segment(
        self, one: Segment, of_kind: Mapping[int, tuple[IntArray, int]]
    ) -> IntArray:
        """Compute the answers of a segment, (rows of contrasts, answers)."""
        kinds, tree_block = self._cut.branches.kinds, self._cut.blocks[one.block]
        width = one.size // (one.stop - one.start)
        by_contrast, at = np.empty((one.stop - one.start, width), dtype=np.int64), 0
        for kind, (branches, i) in of_kind.items():
            counts = self._sums.totals[i]
            if kind == 0:
                measured = counts[0, 0][:, self._structure.find_totals(one.block).measured]
                at = len(tree_block.root)
                by_contrast[:, :at] = clamp_answers(multiply_exactly(measured, tree_block.root.T))
                continue
            positions = kinds[kind].positions[branches - self._cut.branches.first[kind]]
            matrices = tree_block.steps[kinds[kind].step]
            b, k = counts.shape[:2]
            for start, stop in cut_evenly(b, _MOST_NUMBERS // max(counts[0].size, 1)):
                chosen = positions[start:stop]
                answers = measure_children(
                    matrices.take(chosen, k), matrices.dense[chosen], counts[start:stop]
                )
                by_contrast[:, at : at + answers.shape[1]] = answers
                at += answers.shape[1]
        return by_contrast

    def _add_piece(self, slab: int, piece: IntArray) -> None:
        """Add the counts of a slab's piece to those of the segments."""
        readers, values = self._cut.list_readers(self._part, slab), unpack_integers(piece)
        lengths, values = values[: len(readers)].astype(np.int64), values[len(readers) :]
        count = int(lengths.sum())
        ranges, values = values[: 2 * count].astype(np.int64).reshape(-1, 2), values[2 * count :]
        self._sums.make_room(values)
        segments, at = np.repeat(readers, to_positions(lengths)).tolist(), 0
        for segment, (place, length) in zip(segments, ranges.tolist(), strict=True):
            total = self._find_rows(segment, place, length)
            total += values[at : at + total.size].reshape(total.shape)
            at += total.size

    def _find_rows(self, segment: int, place: int, length: int) -> AnyArray:
        """Find the totals of a segment's rows, starting from a place, (length, R, r)."""
        branches = self._cut.branches
        branch = int(branches.branch_of_place[place])
        kind = int(branches.kind_of_branch[branch])
        numbers, i = self._branches[segment][kind]
        total = self._sums.totals[i]
        first = int(np.searchsorted(numbers, branch)) * total.shape[1]
        first += (place - int(branches.kind_starts[kind])) % total.shape[1]
        return total.reshape(-1, *total.shape[2:])[first : first + length]
