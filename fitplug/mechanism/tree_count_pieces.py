"""Pieces of counts of trees: from the counts of slabs of leaves to the exact answers of parts."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from fitplug.errors import TablesError
from fitplug.mechanism.packed_integers import choose_sum_type, pack_integers, unpack_integers
from fitplug.mechanism.parted_strategy import sum_margin
from fitplug.mechanism.strategy import Strategy
from fitplug.mechanism.tree_answers import (
    clamp_answers,
    contrast_counts,
    find_merged,
    list_needed,
    measure_children,
    merge_classes,
)
from fitplug.mechanism.tree_parts import Segment, TreeParts
from fitplug.numeric import AnyArray, IntArray, make_room, multiply_exactly
from fitplug.structure import TreeStructure


class TreeCountSplit:
    """The pieces of a slab."""

    def __init__(
        self,
        strategy: Strategy,
        structure: TreeStructure,
        cut: TreeParts,
        slab: int,
        counts: IntArray,
    ) -> None:
        self._strategy, self._structure, self._cut, self._slab = strategy, structure, cut, slab
        own = cut.slabs[slab]
        shape = list(structure.workload.domain.shape_of(own.names))
        if own.attribute is not None:
            shape[own.names.index(own.attribute)] = own.stop - own.start
        if counts.shape != tuple(shape):
            raise TablesError(
                f"the counts of slab {slab} have the shape {counts.shape}, and not {tuple(shape)}"
            )
        self._counts = make_room(counts, counts.size)
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
        units = np.asarray(self._cut.units.unit_of_row[self._rows], dtype=np.int64)
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
        for kind in np.unique(kinds).tolist():
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
        for kind in np.unique(kinds)[::-1].tolist():
            own = np.flatnonzero(kinds == kind)
            parents = units.parent_of_row[rows[own]]
            own = own[np.argsort(parents, kind="stable")]
            above, first = np.unique(np.sort(parents), return_index=True)
            if above[0] >= 0:  # row 0 has none above it
                at = order[np.searchsorted(rows[order], above)]
                found[at] += np.add.reduceat(found[own], first, axis=0, dtype=found.dtype)
        return found


class TreeCountGathering:
    """The counts of a part's children, from the pieces of all slabs."""

    def __init__(
        self,
        strategy: Strategy,
        structure: TreeStructure,
        cut: TreeParts,
        part: int,
        pieces: Mapping[int, IntArray],
    ) -> None:
        self._strategy, self._structure, self._cut = strategy, structure, cut
        self._segments, self._pieces = cut.parts[part], pieces
        # By slab: the rows of each segment, and the counts of all.
        self._rows: dict[int, list[IntArray]] = {}
        self._values: dict[int, AnyArray] = {}
        for slab, piece in pieces.items():
            table = cut.table_of_slab[slab]
            count = sum(cut.table_of_block[one.block] == table for one in self._segments)
            ends = count + np.cumsum(piece[:count])
            self._rows[slab] = np.split(piece[count : int(ends[-1])], ends[:-1] - count)
            self._values[slab] = unpack_integers(piece[int(ends[-1]) :])
        self._kind = choose_sum_type([*self._values.values()])
        self._at = dict.fromkeys(pieces, (0, 0))

    def answer(self) -> IntArray:
        """Compute the part's answers."""
        return np.concatenate([self._answer_segment(one).ravel() for one in self._segments])

    def _answer_segment(self, one: Segment) -> IntArray:
        """Compute the answers of a segment, (rows of contrasts, answers)."""
        kinds, own = self._cut.units.kinds, self._strategy.tree_blocks[one.block]
        found = []
        for kind, (units, counts) in self._sum_segment(one).items():
            if kind == 0:
                found.append(clamp_answers(multiply_exactly(counts[0, 0], own.root.T)))
                continue
            positions = kinds[kind].positions[units - kinds[kind].first]
            k = kinds[kind].children.shape[1]
            matrices = own.steps[kinds[kind].step].take_apart(positions, k)
            found.append(measure_children(*matrices, counts))
        return np.concatenate(found, axis=1)

    def _sum_segment(self, one: Segment) -> dict[int, tuple[IntArray, AnyArray]]:
        """Sum the counts of the children of a segment's units, from all slabs.

        Returns:
            By kind, the units and their children's counts, shape (units, k, R, r).
        """
        cut, classes = self._cut, self._structure.classes[one.block]
        every = cut.list_measured(one)
        of_kind = cut.units.kind_of_unit[every]
        found = {}
        for kind in np.unique(of_kind).tolist():
            own = cut.units.kinds[kind]
            units = every[of_kind == kind]
            shape = (len(units), own.children.shape[1], one.stop - one.start)
            r = classes[own.depth].size
            found[kind] = units, np.zeros((*shape, r), dtype=self._kind)
        for slab in self._pieces:
            if cut.table_of_slab[slab] == cut.table_of_block[one.block]:
                self._add_piece(slab, found)
        return found

    def _add_piece(self, slab: int, found: dict[int, tuple[IntArray, AnyArray]]) -> None:
        """Add what a slab's piece holds of the next segment."""
        segment, start = self._at[slab]
        rows = self._rows[slab][segment]
        units = self._cut.units.unit_of_row[rows]
        kinds = self._cut.units.kind_of_unit[units]
        for kind in np.unique(kinds).tolist():
            own, counts = found[kind]
            mine = np.flatnonzero(kinds == kind)
            children = self._cut.units.child_of_row[rows[mine]]
            shape = (len(mine), *counts.shape[2:])
            stop = start + math.prod(shape)
            values = self._values[slab][start:stop].reshape(shape)
            counts[np.searchsorted(own, units[mine]), children] += values
            start = stop
        self._at[slab] = segment + 1, start
