"""Block sets in parts: exact answers and estimates, from pieces.

Each matrix acts on one attribute. So if a block is cut along attribute c, a slab (few cells of c,
all cells of the others) is multiplied by the other attributes' matrices, and a part (all of c, few
columns of the others) by the matrix of c. Estimates go the same way back
(`fitplug.families.blocks.strategy.estimates`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from fitplug.families.base.basis import Reading
from fitplug.families.base.mechanism import SATURATION, ExactTotals, pack_integers, unpack_integers
from fitplug.families.base.pieces import Latest, Pieces, sum_margin
from fitplug.families.blocks.strategy.cuts import BlockCut, BlockPart, PlacedBlock
from fitplug.families.blocks.strategy.estimates import (
    BlockAnswerSplit,
    BlockEstimation,
    BlockTotalsSplit,
    spread_column_multiples,
)
from fitplug.numeric import (
    AnyArray,
    FloatArray,
    IntArray,
    make_room,
    multiply_exactly,
    multiply_numbers,
)


class BlockCountSplit:
    """The pieces of a slab's counts."""

    def __init__(self, cut: BlockCut, slab: int, counts: AnyArray) -> None:
        self._strategy, self._cut, self._slab, self._counts = cut.strategy, cut, slab, counts
        self._table = cut.table_of_slab[slab]
        self._latest: tuple[int, list[AnyArray]] = (-1, [])

    def make_piece(self, part: int) -> IntArray:
        """Make the piece of a part."""
        cut_part = self._cut.parts[part]
        if cut_part.columns is not None:
            first, last = cut_part.columns
            columns = self._multiply_columns(part)
            return pack_integers([product[:, first:last] for product in columns])
        readers = self._cut.list_readers(self._table, part)
        return pack_integers([self._multiply(k, reading) for k, reading in readers])

    def _multiply(self, k: int, reading: Reading) -> AnyArray:
        """Multiply the rows of a reading by the slab's counts, shape (cells, rows)."""
        structure = self._strategy.structure
        names = self._cut.tables[self._table]
        attributes = [structure.block_attributes[a] for a in self._cut.blocks[k].attributes]
        return reading.multiply(sum_margin(self._counts, names, [*attributes, *reading.dense]))

    def _multiply_columns(self, part: int) -> list[AnyArray]:
        """Multiply a slab's counts by the matrices of a part's block, except its largest
        attribute's.

        Returns:
            For each reading from the table, shape (cells of the largest attribute, columns, rows).
        """
        k = self._cut.parts[part].first
        if self._latest[0] == k:
            return self._latest[1]
        block = self._cut.blocks[k]
        axis, slab = self._cut.find_axis(block), self._cut.slabs[self._slab]
        sizes = [self._strategy.structure.sizes[a] for a in block.attributes]
        names = self._cut.structure.block_attributes
        if slab.attribute == names[block.attributes[axis]]:
            sizes[axis] = slab.stop - slab.start
        products = []
        for _, reading in self._cut.list_readers(self._table, part):
            y = self._multiply(k, reading).reshape(*sizes, len(reading.rows))
            for other, a in enumerate(block.attributes):
                if other != axis:
                    matrix = self._strategy.find_matrix(a, block.block)
                    y = matrix.apply(make_room(y, matrix.growth), other)
            products.append(np.moveaxis(y, axis, 0).reshape(sizes[axis], -1, len(reading.rows)))
        self._latest = k, products
        return products


class BlockCountGathering:
    """The counts of a part's blocks, added up slab by slab."""

    def __init__(self, cut: BlockCut, part: int) -> None:
        self._cut, self._part, self._number, self._shapes = cut, cut.parts[part], part, []
        for block in cut.blocks[self._part.first : self._part.last]:
            sizes = [cut.strategy.structure.sizes[a] for a in block.attributes]
            if self._part.columns is not None:
                first, last = self._part.columns
                sizes = [sizes[cut.find_axis(block)], last - first]
            self._shapes.append((*sizes, block.shape[-1]))
        self._sums = ExactTotals(self._shapes)

    def add_pieces(self, pieces: Mapping[int, IntArray]) -> list[AnyArray]:
        """Add up the pieces, with one in memory at a time.

        Returns:
            B x of each block: an axis for each of its attributes, and one of n. For a range of
            columns, the product with the other attributes' matrices: axes of the largest attribute,
            columns and n.
        """
        for slab in pieces:
            values = unpack_integers(pieces[slab])
            self._sums.make_room(values)
            self._add_values(slab, values)
        return self._sums.totals

    def _add_values(self, slab: int, values: AnyArray) -> None:
        """Add a slab's values for each block."""
        at, number, one = 0, self._cut.table_of_slab[slab], self._cut.slabs[slab]
        for k, reading in self._cut.list_readers(number, self._number):
            i = k - self._part.first
            shape = self._shapes[i]
            size, place = [*shape[:-1], len(reading.rows)], [slice(None)] * (len(shape) - 1)
            axis = self._find_range_axis(k, one.attribute)
            if axis is not None:
                size[axis], place[axis] = one.stop - one.start, slice(one.start, one.stop)
            end = at + math.prod(size)
            piece = values[at:end].reshape(size)
            target = self._sums.totals[i][tuple(place)]
            if len(reading.rows) == shape[-1]:
                target += piece
            else:
                target[..., reading.rows] += piece
            at = end

    def _find_range_axis(self, k: int, cut: str | None) -> int | None:
        """Find the axis of a block's counts along which a slab is a range; None if it has all."""
        names = [self._cut.structure.block_attributes[a] for a in self._cut.blocks[k].attributes]
        if cut not in names:
            return None
        return names.index(cut) if self._part.columns is None else 0


class PartedBlocks(BlockCut):
    """The parts of a strategy of block sets."""

    def _split_counts(self, slab: int, counts: AnyArray) -> Pieces:
        parts = self.parts_of_table[self.table_of_slab[slab]]
        return Pieces(parts, BlockCountSplit(self, slab, counts).make_piece)

    def _answer_part(self, part: int, pieces: Mapping[int, IntArray]) -> IntArray:
        counts = BlockCountGathering(self, part).add_pieces(pieces)
        cut_part = self.parts[part]
        blocks = self.blocks[cut_part.first : cut_part.last]
        if cut_part.columns is not None:
            return self._answer_columns(blocks[0], cut_part, counts[0])
        return np.concatenate(
            [
                self.strategy.measure_block(block.block_set, block.i, x)
                for block, x in zip(blocks, counts, strict=True)
            ]
        )

    def _split_answers(self, part: int, noisy: IntArray) -> Pieces:
        split = BlockAnswerSplit(self, part, noisy)
        return Pieces(split.list_outputs(), split.make_piece)

    def _split_totals(self, totals: IntArray) -> Callable[[int], FloatArray]:
        return BlockTotalsSplit(self, totals).make_piece

    def _estimate(self, output: int, pieces: Mapping[int, AnyArray], latest: Latest) -> FloatArray:
        return BlockEstimation(self, output, pieces).estimate()

    def _answer_columns(self, block: PlacedBlock, part: BlockPart, x: AnyArray) -> IntArray:
        """Compute a block's answers for columns of counts (n_c, columns, n), clamped."""
        largest = block.attributes[self.find_axis(block)]
        matrix = self.strategy.find_matrix(largest, block.block)
        y = matrix.apply(make_room(x, matrix.growth), 0)
        rows, _, n = y.shape
        y = multiply_exactly(y.reshape(-1, n), block.block_set.M[block.i].T)
        multiples = spread_column_multiples(self, block, part)
        if multiples is not None:
            y = multiply_numbers(y, multiples.reshape(-1, 1))
        y = np.clip(y, -SATURATION, SATURATION).reshape(rows, *part.shape, n)
        return np.asarray(y.swapaxes(0, 1).ravel(), dtype=np.int64)
