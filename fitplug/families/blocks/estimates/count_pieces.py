"""Pieces of counts of block sets: from the counts of slabs to what the blocks of parts measure."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from fitplug.families.base.basis import Reading
from fitplug.families.base.integers import ExactTotals, pack_integers, unpack_integers
from fitplug.families.base.pieces import sum_margin
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.blocks.estimates.cuts import BlockParts
from fitplug.numeric import AnyArray, IntArray, make_room


class BlockCountSplit:
    """The pieces of a slab."""

    def __init__(
        self, strategy: IntegerStrategy, cut: BlockParts, slab: int, counts: AnyArray
    ) -> None:
        self._strategy, self._cut, self._slab, self._counts = strategy, cut, slab, counts
        self._table = cut.table_of_slab[slab]
        self._latest: tuple[int, list[AnyArray]] = (-1, [])

    def make_piece(self, part: int) -> IntArray:
        """Make the piece of a part."""
        one = self._cut.parts[part]
        if one.columns is not None:
            first, last = one.columns
            columns = self._multiply_columns(part)
            return pack_integers([found[:, first:last] for found in columns])
        readers = self._cut.list_readers(self._table, part)
        return pack_integers([self._multiply(k, reading) for k, reading in readers])

    def _multiply(self, k: int, reading: Reading) -> AnyArray:
        """Multiply rows of a block's basis by the slab's counts, (cells, rows)."""
        structure = self._strategy.structure
        names = self._cut.tables[self._table].names
        kept = [structure.block_attributes[a] for a in self._cut.blocks[k].own] + [*reading.dense]
        return reading.multiply(sum_margin(self._counts, names, kept))

    def _multiply_columns(self, part: int) -> list[AnyArray]:
        """Multiply by all matrices of a part's one block but that of its largest attribute.

        Returns:
            For each reading from the table, (cells of the largest attribute, columns, rows).
        """
        k = self._cut.parts[part].first
        if self._latest[0] == k:
            return self._latest[1]
        own = self._cut.blocks[k]
        axis, table = self._cut.find_axis(own), self._cut.tables[self._table]
        sizes = [self._strategy.structure.sizes[a] for a in own.own]
        if table.cut == own.own[axis]:
            start, stop = table.ranges[self._slab - table.first]
            sizes[axis] = stop - start
        found = []
        for _, reading in self._cut.list_readers(self._table, part):
            y = self._multiply(k, reading).reshape(*sizes, len(reading.rows))
            for other, a in enumerate(own.own):
                if other != axis:
                    matrix = self._strategy.find_matrix(a, own.block)
                    y = matrix.apply(make_room(y, matrix.growth), other)
            found.append(np.moveaxis(y, axis, 0).reshape(sizes[axis], -1, len(reading.rows)))
        self._latest = k, found
        return found


class BlockCountGathering:
    """The counts of a part's blocks, added up slab by slab."""

    def __init__(self, strategy: IntegerStrategy, cut: BlockParts, part: int) -> None:
        self._strategy, self._cut, self._part = strategy, cut, cut.parts[part]
        self._shapes = []
        for own in cut.blocks[self._part.first : self._part.last]:
            sizes = [strategy.structure.sizes[a] for a in own.own]
            if self._part.columns is not None:
                first, last = self._part.columns
                sizes = [sizes[cut.find_axis(own)], last - first]
            self._shapes.append((*sizes, own.shape[-1]))
        self._sums = ExactTotals(self._shapes)
        self._number = part

    def add_pieces(self, pieces: Mapping[int, IntArray]) -> list[AnyArray]:
        """Add up the pieces, of which one is held at a time.

        Returns:
            B x of each block: an axis for each of its attributes, and one of n. For a range of
            columns, what the other attributes' matrices measure: axes of the largest attribute,
            columns and n.
        """
        for slab in pieces:
            values = unpack_integers(pieces[slab])
            self._sums.make_room(values)
            self._add_values(slab, values)
        return self._sums.totals

    def _add_values(self, slab: int, values: AnyArray) -> None:
        """Add what a slab has for each block."""
        at, number = 0, self._cut.table_of_slab[slab]
        table = self._cut.tables[number]
        start, stop = table.ranges[slab - table.first]
        for k, reading in self._cut.list_readers(number, self._number):
            i = k - self._part.first
            shape = self._shapes[i]
            size, place = [*shape[:-1], len(reading.rows)], [slice(None)] * (len(shape) - 1)
            axis = self._find_range_axis(k, table.cut)
            if axis is not None:
                size[axis], place[axis] = stop - start, slice(start, stop)
            end = at + math.prod(size)
            piece = values[at:end].reshape(size)
            target = self._sums.totals[i][tuple(place)]
            if len(reading.rows) == shape[-1]:
                target += piece
            else:
                target[..., reading.rows] += piece
            at = end

    def _find_range_axis(self, k: int, cut: int | None) -> int | None:
        """Find the axis of a block's counts of which a slab has a range; None if it has all."""
        own = self._cut.blocks[k]
        if cut is None or cut not in own.own:
            return None
        return own.own.index(cut) if self._part.columns is None else 0
