"""Pieces of counts of trees: from the counts of slabs of leaves to the exact answers of parts."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from fitplug.families.base.packed_integers import ExactTotals, pack_integers, unpack_integers
from fitplug.families.base.parted_strategy import read_slab_counts, sum_margin
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.tree.estimates.answers import (
    clamp_answers,
    contrast_counts,
    find_merged,
    list_needed,
    measure_children,
    merge_classes,
)
from fitplug.families.tree.estimates.cuts import Segment, TreeParts
from fitplug.families.tree.estimates.units import list_different
from fitplug.families.tree.integers.blocks import TreeBlock
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.numeric import AnyArray, IntArray, multiply_exactly


class TreeCountSplit:
    """The pieces of a slab."""

    def __init__(
        self,
        strategy: IntegerStrategy,
        structure: TreeStructure,
        cut: TreeParts,
        slab: int,
        counts: IntArray,
    ) -> None:
        self._strategy, self._structure, self._cut, self._slab = strategy, structure, cut, slab
        own = cut.slabs[slab]
        self._counts = read_slab_counts(own, structure.workload.domain, counts)
        self._rows = np.zeros(1, dtype=np.int64)
        if structure.tree_attribute in own.names:
            self._rows = cut.list_slab_rows(slab)
        self._latest: tuple[int, AnyArray] = (-1, self._counts)

    def make_piece(self, part: int) -> IntArray:
        """Make the piece of a part: how many rows each segment has, the rows, and their counts."""
        cut, counts, rows, values = self._cut, [], [], []
        for one in cut.parts[part]:
            if cut.table_of_block[one.block] != cut.table_of_slab[self._slab]:
                continue
            chosen = self._choose_rows(one)
            counts.append(len(chosen))
            rows.append(self._rows[chosen])
            values += self._read_counts(one, chosen)
        head = np.concatenate([counts, *rows])
        return np.concatenate([head, pack_integers(values)], dtype=np.int64)

    def _choose_rows(self, one: Segment) -> IntArray:
        """Choose the indices of the slab's rows that a segment needs."""
        units = self._cut.units.unit_of_row[self._rows]
        if self._cut.is_at_root(one.block):
            units = units[:1]
        ranks = self._cut.units.rank_of_unit[units]
        is_within = (one.first <= ranks) & (ranks < one.last)
        return np.flatnonzero(is_within & self._cut.find_measured(one.block, units))

    def _read_counts(self, one: Segment, chosen: IntArray) -> list[AnyArray]:
        """Read the counts of rows over the classes of their depths, by kind of unit."""
        units, classes = self._cut.units, self._structure.classes[one.block]
        counts = self._sum_counts(one.block)
        kinds = units.kind_of_unit[units.unit_of_row[self._rows[chosen]]]
        found = []
        for kind in list_different(kinds).tolist():
            own = counts[chosen[kinds == kind], one.start : one.stop]
            merged = find_merged(classes[0], classes[units.kinds[kind].depth])
            found.append(merge_classes(own, merged))
        return found

    def _sum_counts(self, block: int) -> AnyArray:
        """Sum the slab's counts to its rows, with the contrasts of a block, (rows, R, r)."""
        if self._latest[0] == block:
            return self._latest[1]
        structure, cut = self._structure, self._cut
        needed, own = list_needed(structure, block), cut.slabs[self._slab]
        counts = sum_margin(self._counts, own.names, structure.name_attributes(block) + needed)
        leaves = cut.list_leaves(self._slab)
        starts = np.maximum(structure.tree.starts[leaves] - own.start, 0)
        at_leaves = contrast_counts(self._strategy, structure, block, counts, starts)
        found = at_leaves
        if not cut.is_at_root(block):
            found = self._sum_up(structure.unfolded.leaves[leaves], at_leaves)
        self._latest = block, found
        return found

    def _sum_up(self, leaves: IntArray, counts: AnyArray) -> AnyArray:
        """Sum counts of rows that are leaves to all rows above them."""
        units, rows = self._cut.units, self._rows
        order = np.argsort(rows)
        found = np.zeros((len(rows), *counts.shape[1:]), dtype=counts.dtype)
        found[order[np.searchsorted(rows[order], leaves)]] = counts
        kinds = units.kind_of_unit[units.unit_of_row[rows]]
        for kind in list_different(kinds)[::-1].tolist():
            own = np.flatnonzero(kinds == kind)
            parents = units.parent_of_row[rows[own]]
            own = own[np.argsort(parents, kind="stable")]
            above, first = np.unique(np.sort(parents), return_index=True)
            if above[0] >= 0:  # row 0 has none above it
                at = order[np.searchsorted(rows[order], above)]
                found[at] += np.add.reduceat(found[own], first, axis=0, dtype=found.dtype)
        return found


class TreeCountGathering:
    """The counts of a part's children, added up slab by slab.

    Args:
        strategy: The strategy.
        structure: Its structure.
        cut: How it is cut.
        part: The number of the part.
    """

    def __init__(
        self, strategy: IntegerStrategy, structure: TreeStructure, cut: TreeParts, part: int
    ) -> None:
        self._strategy, self._cut, self._segments = strategy, cut, cut.parts[part]
        # By segment and kind of units, their numbers and the index of their children's counts.
        self._units: list[dict[int, tuple[IntArray, int]]] = []
        shapes: list[tuple[int, ...]] = []
        for one in self._segments:
            every = cut.list_measured(one)
            kinds = cut.units.kind_of_unit[every]
            self._units.append({})
            for kind in list_different(kinds).tolist():
                units, own = every[kinds == kind], cut.units.kinds[kind]
                self._units[-1][kind] = units, len(shapes)
                r = structure.classes[one.block][own.depth].size
                k = own.children.shape[1]
                shapes.append((len(units), k, one.stop - one.start, r))
        self._sums = ExactTotals(shapes)

    def answer(self, pieces: Mapping[int, IntArray]) -> IntArray:
        """Compute the part's answers from the pieces of all slabs, of which one is held a time."""
        for slab in pieces:
            self._add_piece(slab, pieces[slab])
        return np.concatenate(
            [
                self._answer_segment(one, units).ravel()
                for one, units in zip(self._segments, self._units, strict=True)
            ]
        )

    def _answer_segment(
        self, one: Segment, of_kind: Mapping[int, tuple[IntArray, int]]
    ) -> IntArray:
        """Compute the answers of a segment, (rows of contrasts, answers)."""
        kinds = self._cut.units.kinds
        own: TreeBlock = self._strategy.tree_blocks[one.block]
        found = []
        for kind, (units, i) in of_kind.items():
            counts = self._sums.totals[i]
            if kind == 0:
                found.append(clamp_answers(multiply_exactly(counts[0, 0], own.root.T)))
                continue
            positions = kinds[kind].positions[units - kinds[kind].first]
            k = kinds[kind].children.shape[1]
            matrices = own.steps[kinds[kind].step].take_apart(positions, k)
            found.append(measure_children(*matrices, counts))
        return np.concatenate(found, axis=1)

    def _add_piece(self, slab: int, piece: IntArray) -> None:
        """Add what a slab's piece holds of each segment."""
        cut, table = self._cut, self._cut.table_of_slab[slab]
        readers = [
            i for i, one in enumerate(self._segments) if cut.table_of_block[one.block] == table
        ]
        ends = np.cumsum(piece[: len(readers)])
        rows = piece[len(readers) : len(readers) + int(ends[-1])]
        values = unpack_integers(piece[len(readers) + int(ends[-1]) :])
        self._sums.make_room(values)
        at = 0
        for i, own in zip(readers, np.split(rows, ends[:-1]), strict=True):
            at += self._add_rows(i, own, values[at:])

    def _add_rows(self, segment: int, rows: IntArray, values: AnyArray) -> int:
        """Add the counts of rows to those of a segment, and return how many these are."""
        units, at = self._cut.units, 0
        of_row = units.unit_of_row[rows]
        kinds = units.kind_of_unit[of_row]
        for kind in list_different(kinds).tolist():
            own, i = self._units[segment][kind]
            total = self._sums.totals[i]
            mine = np.flatnonzero(kinds == kind)
            shape = (len(mine), *total.shape[2:])
            size = math.prod(shape)
            place = np.searchsorted(own, of_row[mine]), units.child_of_row[rows[mine]]
            total[place] += values[at : at + size].reshape(shape)
            at += size
        return at
