"""Tree blocks in parts: their exact answers and their estimates, from pieces.

A slab of leaves is summed to all rows of the tree above its leaves, and a part adds up what the
slabs say of the children of its nodes. An output gets the answers of all nodes above its own, and
sweeps down along these paths alone. So both ways are one exchange, however deep the tree is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fitplug.families.base.parted_strategy import (
    PartedStrategy,
    Pieces,
    check_pieces,
    read_part_answers,
)
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.tree.estimates.answer_pieces import TreeAnswerSplit, TreeEstimation
from fitplug.families.tree.estimates.count_pieces import TreeCountGathering, TreeCountSplit
from fitplug.families.tree.estimates.cuts import TreeParts
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.numeric import AnyArray, FloatArray, IntArray


class PartedTrees(PartedStrategy):
    """The parts of a strategy of tree blocks.

    Args:
        strategy: The strategy.
        structure: Its structure.
        most: The most cells of a slab, answers of a part and estimates of an output.
    """

    def __init__(self, strategy: IntegerStrategy, structure: TreeStructure, most: int) -> None:
        self.strategy, self._structure = strategy, structure
        self._cut = TreeParts(strategy, structure, most)
        self.slabs = self._cut.slabs
        self.outputs = self._cut.outputs
        sizes = [sum(one.size for one in segments) for segments in self._cut.parts]
        self.sizes = np.array(sizes, dtype=np.int64)
        self._slabs_of_part = _invert(self._cut.parts_of_slab, len(self.sizes))
        self._outputs_of_part = _invert(self._cut.parts_of_output, len(self.sizes))

    def list_slabs(self, part: int) -> Sequence[int]:
        return self._slabs_of_part[part]

    def list_parts(self, output: int) -> Sequence[int]:
        return self._cut.parts_of_output[output]

    def place(self, part: int) -> slice | IntArray:
        return self._cut.list_indices(part)

    def split_counts(self, slab: int, counts: IntArray) -> Mapping[int, IntArray]:
        split = TreeCountSplit(self.strategy, self._structure, self._cut, slab, counts)
        return Pieces(self._cut.parts_of_slab[slab], split.make_piece)

    def answer_part(self, part: int, pieces: Mapping[int, IntArray]) -> IntArray:
        check_pieces(pieces, self.list_slabs(part), f"part {part} of the answers")
        return TreeCountGathering(self.strategy, self._structure, self._cut, part).answer(pieces)

    def split_answers(self, part: int, noisy: IntArray) -> Mapping[int, AnyArray]:
        noisy = read_part_answers(part, int(self.sizes[part]), noisy)
        split = TreeAnswerSplit(self._structure, self._cut, part, noisy)
        return Pieces(self._outputs_of_part[part], split.make_piece)

    def estimate(self, output: int, pieces: Mapping[int, AnyArray]) -> FloatArray:
        check_pieces(pieces, self.list_parts(output), f"output {output} of the estimates")
        return TreeEstimation(self.strategy, self._structure, self._cut, output, pieces).estimate()


def _invert(found: Sequence[Sequence[int]], count: int) -> list[list[int]]:
    """For lists of numbers below a count, list where each number is."""
    inverse: list[list[int]] = [[] for _ in range(count)]
    for i, numbers in enumerate(found):
        for number in numbers:
            inverse[number].append(i)
    return inverse
