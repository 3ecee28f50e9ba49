"""Block sets in parts: their exact answers and their estimates, from pieces.

Matrices act on one attribute each. So where a block is cut along attribute c, a slab, which has
few cells of c and all of the others, is multiplied by the matrices of the others, and a part, which
has all of c and few columns of the others, by the matrix of c. Estimates go the same way back
(`fitplug.families.blocks.estimates.answer_pieces`). What a part or a slab has completely is summed
or spread along c.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fitplug.families.base.basis import Reading
from fitplug.families.base.block_sets import BlockSetIntegers
from fitplug.families.base.mechanism import SATURATION, ExactTotals, pack_integers, unpack_integers
from fitplug.families.base.parted_strategy import PartedStrategy
from fitplug.families.base.pieces import Latest, Pieces, sum_margin
from fitplug.families.base.structure import Structure
from fitplug.families.blocks.estimates.answer_pieces import (
    BlockAnswerSplit,
    BlockEstimation,
    BlockTotalsSplit,
    spread_column_multiples,
)
from fitplug.families.blocks.estimates.cuts import BlockPart, BlockParts, PlacedBlock
from fitplug.numeric import (
    AnyArray,
    FloatArray,
    IntArray,
    make_room,
    multiply_exactly,
    multiply_numbers,
)


class BlockCountSplit:
    """The pieces of a slab."""

    def __init__(self, cut: BlockParts, slab: int, counts: AnyArray) -> None:
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
        """Multiply rows of a block's basis by the slab's counts, (cells, rows)."""
        structure = self._strategy.structure
        names = self._cut.tables[self._table].names
        attributes = [structure.block_attributes[a] for a in self._cut.blocks[k].attributes]
        return reading.multiply(sum_margin(self._counts, names, [*attributes, *reading.dense]))

    def _multiply_columns(self, part: int) -> list[AnyArray]:
        """Multiply by all matrices of a part's one block except its largest attribute's.

        Returns:
            For each reading from the table, (cells of the largest attribute, columns, rows).
        """
        k = self._cut.parts[part].first
        if self._latest[0] == k:
            return self._latest[1]
        block = self._cut.blocks[k]
        axis, table = self._cut.find_axis(block), self._cut.tables[self._table]
        sizes = [self._strategy.structure.sizes[a] for a in block.attributes]
        if table.cut == block.attributes[axis]:
            start, stop = table.ranges[self._slab - table.first]
            sizes[axis] = stop - start
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

    def __init__(self, cut: BlockParts, part: int) -> None:
        self._cut, self._part, self._number, self._shapes = cut, cut.parts[part], part, []
        for block in cut.blocks[self._part.first : self._part.last]:
            sizes = [cut.strategy.structure.sizes[a] for a in block.attributes]
            if self._part.columns is not None:
                first, last = self._part.columns
                sizes = [sizes[cut.find_axis(block)], last - first]
            self._shapes.append((*sizes, block.shape[-1]))
        self._sums = ExactTotals(self._shapes)

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
        block = self._cut.blocks[k]
        if cut is None or cut not in block.attributes:
            return None
        return block.attributes.index(cut) if self._part.columns is None else 0


class PartedBlocks(PartedStrategy):
    """The parts of a strategy of block sets.

    Args:
        strategy: The strategy.
        tables: The attributes whose counts give the answers of all blocks.
        most: The most cells of a slab, answers of a part and estimates of an output.
    """

    def __init__(
        self, strategy: BlockSetIntegers[Structure], tables: Sequence[tuple[str, ...]], most: int
    ) -> None:
        self.strategy, self._cut = strategy, BlockParts(strategy, tables, most)
        sizes = [self._count_answers(p) for p in range(len(self._cut.parts))]
        super().__init__(strategy.structure, self._cut.slabs, self._cut.outputs, sizes)

    def _list_slabs(self, part: int) -> Sequence[int]:
        cut_part = self._cut.parts[part]
        tables = {t for k in range(cut_part.first, cut_part.last) for t, _ in self._cut.readings[k]}
        return [s for t in sorted(tables) for s in self._cut.tables[t].slabs]

    def _list_parts(self, output: int) -> Sequence[int]:
        g = self.structure.workload.position(self.outputs[output].group)
        return sorted({p for k in self._cut.list_positions(g) for p in self._cut.parts_of_block[k]})

    def _place(self, part: int) -> slice | IntArray:
        return self._cut.list_indices(part)

    def _split_counts(self, slab: int, counts: AnyArray) -> Pieces:
        parts = self._cut.parts_of_table[self._cut.table_of_slab[slab]]
        return Pieces(parts, BlockCountSplit(self._cut, slab, counts).make_piece)

    def _answer_part(self, part: int, pieces: Mapping[int, IntArray]) -> IntArray:
        counts = BlockCountGathering(self._cut, part).add_pieces(pieces)
        cut_part = self._cut.parts[part]
        blocks = self._cut.blocks[cut_part.first : cut_part.last]
        if cut_part.columns is not None:
            return self._answer_columns(blocks[0], cut_part, counts[0])
        return np.concatenate(
            [
                self.strategy.measure_block(block.block_set, block.i, x)
                for block, x in zip(blocks, counts, strict=True)
            ]
        )

    def _split_answers(self, part: int, noisy: IntArray) -> Pieces:
        split = BlockAnswerSplit(self._cut, part, noisy)
        return Pieces(split.list_outputs(), split.make_piece)

    def _split_totals(self, totals: IntArray) -> Callable[[int], FloatArray]:
        return BlockTotalsSplit(self._cut, totals).make_piece

    def _estimate(self, output: int, pieces: Mapping[int, AnyArray], latest: Latest) -> FloatArray:
        return BlockEstimation(self._cut, output, pieces).estimate()

    def _count_answers(self, part: int) -> int:
        """Count the answers of a part."""
        cut_part = self._cut.parts[part]
        first, last = self._cut.blocks[cut_part.first], self._cut.blocks[cut_part.last - 1]
        if cut_part.columns is None:
            return last.start + last.size - first.start
        rows = first.shape[self._cut.find_axis(first)]
        return rows * (cut_part.columns[1] - cut_part.columns[0]) * first.shape[-1]

    def _answer_columns(self, block: PlacedBlock, part: BlockPart, x: AnyArray) -> IntArray:
        """Compute the answers of columns (n_c, columns, n) of a block, clamped."""
        largest = block.attributes[self._cut.find_axis(block)]
        matrix = self.strategy.find_matrix(largest, block.block)
        y = matrix.apply(make_room(x, matrix.growth), 0)
        rows, _, n = y.shape
        y = multiply_exactly(y.reshape(-1, n), block.block_set.M[block.i].T)
        multiples = spread_column_multiples(self._cut, block, part)
        if multiples is not None:
            y = multiply_numbers(y, multiples.reshape(-1, 1))
        y = np.clip(y, -SATURATION, SATURATION).reshape(rows, *part.shape, n)
        return np.asarray(y.swapaxes(0, 1).ravel(), dtype=np.int64)
