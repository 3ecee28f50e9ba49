"""Block sets in parts: their exact answers and their estimates, from pieces.

Matrices act on one attribute each. So where a block is cut along attribute c, a slab, which has
few cells of c and all of the others, is multiplied by the matrices of the others, and a part, which
has all of c and few columns of the others, by the matrix of c. Estimates go the same way back. What
a part or a slab has completely is summed or spread along c.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fitplug.families.base.answers import measure_block
from fitplug.families.base.integer_limits import SATURATION
from fitplug.families.base.parted_strategy import (
    PartedStrategy,
    Pieces,
    check_pieces,
    read_part_answers,
)
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.blocks.estimates.answer_pieces import (
    BlockAnswerSplit,
    BlockEstimation,
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
        self.strategy = strategy
        self._cut = BlockParts(strategy, tables, most)
        self.slabs = self._cut.slabs
        self.outputs = self._cut.outputs
        sizes = [self._count_answers(p) for p in range(len(self._cut.parts))]
        self.sizes = np.array(sizes, dtype=np.int64)

    def list_slabs(self, part: int) -> Sequence[int]:
        one = self._cut.parts[part]
        tables = {t for k in range(one.first, one.last) for t, _ in self._cut.readings[k]}
        return [s for t in sorted(tables) for s in self._cut.tables[t].slabs]

    def list_parts(self, output: int) -> Sequence[int]:
        workload, subsets = self.strategy.structure.workload, self.strategy.structure.subsets
        blocks = subsets.find_blocks(workload.position(self.outputs[output].group))
        parts = [self._cut.parts_of_block[self._cut.position[block]] for block in blocks]
        return sorted({p for own in parts for p in own})

    def place(self, part: int) -> slice | IntArray:
        return self._cut.list_indices(part)

    def split_counts(self, slab: int, counts: IntArray) -> Mapping[int, IntArray]:
        return Pieces(
            self._cut.parts_of_table[self._cut.table_of_slab[slab]],
            BlockCountSplit(self.strategy, self._cut, slab, counts).make_piece,
        )

    def answer_part(self, part: int, pieces: Mapping[int, IntArray]) -> IntArray:
        check_pieces(pieces, self.list_slabs(part), f"part {part} of the answers")
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

    def split_answers(self, part: int, noisy: IntArray) -> Mapping[int, FloatArray]:
        noisy = read_part_answers(part, int(self.sizes[part]), noisy)
        split = BlockAnswerSplit(self.strategy, self._cut, part, noisy)
        return Pieces(split.list_outputs(), split.make_piece)

    def estimate(self, output: int, pieces: Mapping[int, FloatArray]) -> FloatArray:
        check_pieces(pieces, self.list_parts(output), f"output {output} of the estimates")
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
        matrix = self.strategy.attribute_matrices[own.own[self._cut.find_axis(own)]]
        y = matrix.apply(make_room(x, matrix.growth), 0)
        rows, _, n = y.shape
        y = multiply_exactly(y.reshape(-1, n), own.block_set.M[own.i].T)
        multiples = spread_column_multiples(self.strategy, self._cut, own, one)
        if multiples is not None:
            y = multiply_numbers(y, multiples.reshape(-1, 1))
        y = np.clip(y, -SATURATION, SATURATION).reshape(rows, *one.shape, n)
        return np.asarray(y.swapaxes(0, 1).ravel(), dtype=np.int64)
