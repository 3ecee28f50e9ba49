"""Strategies in parts: answers and estimates too many to be held at once.

Exact counts come in slabs, answers in parts, and estimates in outputs. Each of the two ways is a
split and a gathering by number, which any exchange of arrays can be between:

    counts of a slab      --split_counts-->   a piece for each part      --answer_part-->  answers
    answers of a part     --split_answers-->  a piece for each output    --estimate-->     estimates

The plan alone decides the numbers, sizes and shapes of all of them. Pieces are arrays of one
dimension: int64 for counts; int64 or floats for answers. Pieces of counts are confidential. In
memory, each table is one slab, and each group one output.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from fitplug.families.base.pieces import (
    Latest,
    Output,
    Pieces,
    Slab,
    check_pieces,
    read_part_answers,
    read_slab_counts,
)
from fitplug.families.base.public_totals import PublicTotals
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.numeric import AnyArray, FloatArray, IntArray


class PartedStrategy(ABC):
    """A strategy whose answers and estimates are made in parts.

    Counts are in shares of their measures, answers in shares of all measures that queries use, and
    estimates are of records.

    Attributes:
        strategy: The strategy.
        slabs: The pieces of exact counts that answers are made from.
        outputs: The pieces of the groups' estimates; those of a group follow each other.
        sizes: The number of answers of each part, shape (parts,). Their sum is
            `strategy.released_size`.
        noisy_parts: The number of parts that get noise. If the unit of privacy makes totals public,
            these are one more part, the last, without noise.
    """

    def __init__(
        self,
        strategy: IntegerStrategy,
        slabs: Sequence[Slab],
        outputs: Sequence[Output],
        sizes: Sequence[int],
    ) -> None:
        self.strategy, self.slabs, self.outputs = strategy, tuple(slabs), tuple(outputs)
        self.noisy_parts = len(sizes)
        structure = strategy.structure
        every = list(sizes)
        if structure.public_attributes is not None:
            self._totals = PublicTotals(structure, self.slabs)
            every.append(structure.public_size)
        self.sizes: IntArray = np.array(every, dtype=np.int64)

    def list_slabs(self, part: int) -> Sequence[int]:
        """List the slabs whose counts a part needs, ascending."""
        return self._totals.slabs if self.is_public(part) else self._list_slabs(part)

    def list_parts(self, output: int) -> Sequence[int]:
        """List the parts whose answers an output needs, ascending."""
        return [*self._list_parts(output), *range(self.noisy_parts, len(self.sizes))]

    def is_public(self, part: int) -> bool:
        """Tell whether a part has the public totals, which get no noise."""
        return part == self.noisy_parts

    def place(self, part: int) -> slice | IntArray:
        """Find the indices of a part's answers among those of `answer_exactly`."""
        if self.is_public(part):
            return slice(self.strategy.size, self.strategy.released_size)
        return self._place(part)

    def split_counts(self, slab: int, counts: AnyArray) -> Mapping[int, IntArray]:
        """Split a slab's exact counts by the parts that need them.

        Args:
            slab: The number of the slab.
            counts: The slab's counts, with an axis for each of its names, in shares of the measures
                among them.

        Returns:
            By the number of the part, its piece: sums of the counts, exact and confidential.

        Raises:
            TablesError: If the counts have another shape.
        """
        own = self.slabs[slab]
        counts = read_slab_counts(own, self.strategy.structure, counts)
        pieces = self._split_counts(slab, counts)
        if len(self.sizes) > self.noisy_parts and slab in self._totals.slabs:
            return pieces.add(self.noisy_parts, partial(self._totals.split_counts, own, counts))
        return pieces

    def answer_part(self, part: int, pieces: Mapping[int, IntArray]) -> IntArray:
        """Compute a part's exact answers, clamped as `answer_exactly` says.

        Args:
            part: The number of the part.
            pieces: By the number of the slab, what `split_counts` made of it for this part.

        Returns:
            The answers, shape (sizes[part],). They are confidential.

        Raises:
            TablesError: If a piece is missing.
        """
        check_pieces(pieces, self.list_slabs(part), f"part {part} of the answers")
        if self.is_public(part):
            return self._totals.add_pieces(self.slabs, pieces)
        return self._answer_part(part, pieces)

    def split_answers(self, part: int, noisy: IntArray) -> Mapping[int, AnyArray]:
        """Split a part's noisy answers by the outputs that need them.

        Args:
            part: The number of the part.
            noisy: Its noisy answers, shape (sizes[part],).

        Returns:
            By the number of the output, its piece.

        Raises:
            TablesError: If there are more or fewer answers.
        """
        noisy = read_part_answers(part, int(self.sizes[part]), noisy)
        if self.is_public(part):
            return Pieces(range(len(self.outputs)), self._split_totals(noisy))
        return self._split_answers(part, noisy)

    def estimate(
        self, output: int, pieces: Mapping[int, AnyArray], latest: Latest | None = None
    ) -> FloatArray:
        """Estimate the answers of an output, without bias.

        Args:
            output: The number of the output.
            pieces: By the number of the part, what `split_answers` made of it for this output.
            latest: What other outputs of the same answers have left; new if this is None.

        Returns:
            The estimates, of the output's shape.

        Raises:
            TablesError: If a piece is missing.
        """
        check_pieces(pieces, self.list_parts(output), f"output {output} of the estimates")
        found = self._estimate(output, pieces, Latest() if latest is None else latest)
        shares = self.strategy.structure.shares
        return found if shares == 1 else np.asarray(found / shares)

    def slice_values(self, output: int, values: FloatArray) -> FloatArray:
        """Slice values of the structure's rows, such as variances.

        Args:
            output: The number of the output.
            values: Shape (rows,), such as `strategy.upper_variances` returns.

        Returns:
            A read-only view, broadcast to the output's shape. No array of the group's size is made.
        """
        one = self.outputs[output]
        structure = self.strategy.structure
        g = structure.workload.position(one.group)
        return structure.arrange_range(values, g, one.axis, slice(one.start, one.stop))

    @abstractmethod
    def _list_slabs(self, part: int) -> Sequence[int]:
        """List the slabs that a part with noise needs."""

    @abstractmethod
    def _list_parts(self, output: int) -> Sequence[int]:
        """List the parts with noise that an output needs."""

    @abstractmethod
    def _place(self, part: int) -> slice | IntArray:
        """Find the indices of the answers of a part with noise."""

    @abstractmethod
    def _split_counts(self, slab: int, counts: AnyArray) -> Pieces:
        """Split a slab's counts, which have room for the sum of all, by parts with noise."""

    @abstractmethod
    def _answer_part(self, part: int, pieces: Mapping[int, IntArray]) -> IntArray:
        """Compute the exact answers of a part with noise."""

    @abstractmethod
    def _split_answers(self, part: int, noisy: IntArray) -> Pieces:
        """Split the noisy answers of a part."""

    @abstractmethod
    def _split_totals(self, totals: IntArray) -> Callable[[int], FloatArray]:
        """Split the public totals, shape (public_size,): find the function that makes pieces."""

    @abstractmethod
    def _estimate(self, output: int, pieces: Mapping[int, AnyArray], latest: Latest) -> FloatArray:
        """Estimate an output in shares of records."""
