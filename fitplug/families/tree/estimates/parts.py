"""Tree blocks in parts: their exact answers and their estimates, from pieces.

A slab of leaves is summed to all rows of the tree above its leaves, and a part adds up what the
slabs say of the children of its nodes. An output gets the answers of all nodes above its own, and
sweeps down along these paths alone. So both ways are one exchange, however deep the tree is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from fitplug.families.base.parted_strategy import PartedStrategy
from fitplug.families.base.pieces import Latest, Pieces
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.tree.estimates.answer_pieces import TreeAnswerSplit, TreeEstimation
from fitplug.families.tree.estimates.count_pieces import TreeCountGathering, TreeCountSplit
from fitplug.families.tree.estimates.cuts import TreeParts
from fitplug.families.tree.estimates.public_totals import TreeTotalsSplit
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.numeric import AnyArray, FloatArray, IntArray


class PartedTrees(PartedStrategy):
    """The parts of a strategy of tree blocks.

    Args:
        strategy: The strategy.
        structure: Its structure.
        tables: The attributes whose counts give the answers of all blocks, and public totals.
        most: The most cells of a slab, answers of a part and estimates of an output.
    """

    def __init__(
        self,
        strategy: IntegerStrategy,
        structure: TreeStructure,
        tables: Sequence[tuple[str, ...]],
        most: int,
    ) -> None:
        self._structure, self._cut = structure, TreeParts(strategy, structure, tables, most)
        sizes = [sum(one.size for one in segments) for segments in self._cut.parts]
        super().__init__(strategy, self._cut.slabs, self._cut.outputs, sizes)

    def _list_slabs(self, part: int) -> Sequence[int]:
        return self._slabs_of_part[part]

    def _list_parts(self, output: int) -> Sequence[int]:
        return self._cut.parts_of_output[output]

    def _place(self, part: int) -> slice | IntArray:
        return self._cut.list_indices(part)

    def _split_counts(self, slab: int, counts: AnyArray) -> Pieces:
        split = TreeCountSplit(self.strategy, self._structure, self._cut, slab, counts)
        return Pieces(self._cut.parts_of_slab[slab], split.make_piece)

    def _answer_part(self, part: int, pieces: Mapping[int, IntArray]) -> IntArray:
        return TreeCountGathering(self._structure, self._cut, part).answer(pieces)

    def _split_answers(self, part: int, noisy: IntArray) -> Pieces:
        split = TreeAnswerSplit(self._cut, part, noisy)
        return Pieces(self._outputs_of_part[part], split.make_piece)

    def _split_totals(self, totals: IntArray) -> Callable[[int], FloatArray]:
        return TreeTotalsSplit(self.strategy, self._cut, totals).make_piece

    def _estimate(self, output: int, pieces: Mapping[int, AnyArray], latest: Latest) -> FloatArray:
        estimation = TreeEstimation(self.strategy, self._structure, self._cut, output, pieces)
        return estimation.estimate(latest)

    @cached_property
    def _slabs_of_part(self) -> list[list[int]]:
        return _invert(self._cut.parts_of_slab, self.noisy_parts)

    @cached_property
    def _outputs_of_part(self) -> list[list[int]]:
        return _invert(self._cut.parts_of_output, self.noisy_parts)


def _invert(found: Sequence[Sequence[int]], count: int) -> list[list[int]]:
    """For lists of numbers below a count, list where each number is."""
    inverse: list[list[int]] = [[] for _ in range(count)]
    for i, numbers in enumerate(found):
        for number in numbers:
            inverse[number].append(i)
    return inverse
