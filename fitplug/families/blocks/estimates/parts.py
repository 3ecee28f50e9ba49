"""Block sets in parts: their exact answers and their estimates, from pieces.

Matrices act on one attribute each. So where a block is cut along attribute c, a slab, which has
few cells of c and all of the others, is multiplied by the matrices of the others, and a part, which
has all of c and few columns of the others, by the matrix of c. Estimates go the same way back. What
a part or a slab has completely is summed or spread along c.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fitplug.families.base.answers import measure_block
from fitplug.families.base.integers import SATURATION
from fitplug.families.base.parted_strategy import PartedStrategy
from fitplug.families.base.pieces import Latest, Pieces
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.blocks.estimates.answer_pieces import (
    BlockAnswerSplit,
    BlockEstimation,
    BlockTotalsSplit,
    spread_column_multiples,
)
from fitplug.families.blocks.estimates.count_pieces import BlockCountGathering, BlockCountSplit
from fitplug.families.blocks.estimates.cuts import BlockPart, BlockParts, PlacedBlock
from fitplug.numeric import (
    AnyArray,
    FloatArray,
    IntArray,
    make_room,
    multiply_exactly,
    multiply_numbers,
)


class PartedBlocks(PartedStrategy):
    """The parts of a strategy of block sets.

    Args:
        strategy: The strategy.
        tables: The attributes whose counts give the answers of all blocks.
        most: The most cells of a slab, answers of a part and estimates of an output.
    """

    def __init__(
        self, strategy: IntegerStrategy, tables: Sequence[tuple[str, ...]], most: int
    ) -> None:
        self._cut = BlockParts(strategy, tables, most)
        sizes = [self._count_answers(p) for p in range(len(self._cut.parts))]
        super().__init__(strategy, self._cut.slabs, self._cut.outputs, sizes)

    def _list_slabs(self, part: int) -> Sequence[int]:
        one = self._cut.parts[part]
        tables = {t for k in range(one.first, one.last) for t, _ in self._cut.readings[k]}
        return [s for t in sorted(tables) for s in self._cut.tables[t].slabs]

    def _list_parts(self, output: int) -> Sequence[int]:
        g = self.strategy.structure.workload.position(self.outputs[output].group)
        return sorted({p for k in self._cut.list_positions(g) for p in self._cut.parts_of_block[k]})

    def _place(self, part: int) -> slice | IntArray:
        return self._cut.list_indices(part)

    def _split_counts(self, slab: int, counts: AnyArray) -> Pieces:
        return Pieces(
            self._cut.parts_of_table[self._cut.table_of_slab[slab]],
            BlockCountSplit(self.strategy, self._cut, slab, counts).make_piece,
        )

    def _answer_part(self, part: int, pieces: Mapping[int, IntArray]) -> IntArray:
        counts = BlockCountGathering(self.strategy, self._cut, part).add_pieces(pieces)
        one = self._cut.parts[part]
        blocks = self._cut.blocks[one.first : one.last]
        if one.columns is not None:
            return self._answer_columns(blocks[0], one, counts[0])
        return np.concatenate(
            [
                measure_block(self.strategy, own.block_set, own.i, x)
                for own, x in zip(blocks, counts, strict=True)
            ]
        )

    def _split_answers(self, part: int, noisy: IntArray) -> Pieces:
        split = BlockAnswerSplit(self.strategy, self._cut, part, noisy)
        return Pieces(split.list_outputs(), split.make_piece)

    def _split_totals(self, totals: IntArray) -> Callable[[int], FloatArray]:
        return BlockTotalsSplit(self.strategy, self._cut, totals).make_piece

    def _estimate(self, output: int, pieces: Mapping[int, AnyArray], latest: Latest) -> FloatArray:
        return BlockEstimation(self.strategy, self._cut, output, pieces).estimate()

    def _count_answers(self, part: int) -> int:
        """Count the answers of a part."""
        one = self._cut.parts[part]
        own, last = self._cut.blocks[one.first], self._cut.blocks[one.last - 1]
        if one.columns is None:
            return last.start + last.size - own.start
        rows = own.shape[self._cut.find_axis(own)]
        return rows * (one.columns[1] - one.columns[0]) * own.shape[-1]

    def _answer_columns(self, own: PlacedBlock, one: BlockPart, x: AnyArray) -> IntArray:
        """Compute the answers of columns (n_c, columns, n) of a block, clamped."""
        matrix = self.strategy.find_matrix(own.own[self._cut.find_axis(own)], own.block)
        y = matrix.apply(make_room(x, matrix.growth), 0)
        rows, _, n = y.shape
        y = multiply_exactly(y.reshape(-1, n), own.block_set.M[own.i].T)
        multiples = spread_column_multiples(self.strategy, self._cut, own, one)
        if multiples is not None:
            y = multiply_numbers(y, multiples.reshape(-1, 1))
        y = np.clip(y, -SATURATION, SATURATION).reshape(rows, *one.shape, n)
        return np.asarray(y.swapaxes(0, 1).ravel(), dtype=np.int64)
