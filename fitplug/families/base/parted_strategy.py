"""Strategies in parts: answers and estimates too many to be held at once.

Exact counts come in slabs, answers in parts, and estimates in outputs. Each of the two ways is a
split and a gathering by number, which any exchange of arrays can be between:

    counts of a slab      --split_counts-->   a piece for each part      --answer_part-->  answers
    answers of a part     --split_answers-->  a piece for each output    --estimate-->     estimates

The plan alone decides the numbers, sizes and shapes of all of them. Pieces are arrays of one
dimension: int64 for counts; int64 or floats for answers. Pieces of counts are confidential.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType

import numpy as np

from fitplug.domain import Domain
from fitplug.errors import TablesError, WorkloadError
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.numeric import AnyArray, FloatArray, IntArray, make_room

PART = 2**20
"""The most answers of a part, where its smallest unit is not larger."""

LARGEST_UNIT = 2**24
"""The most numbers of a slab, a part or an output that cannot be cut further: 128 MB of each array,
of which about six are held at once."""


@dataclass(frozen=True)
class Slab:
    """A range of the exact counts of one table.

    Attributes:
        names: The attributes of the table, in the domain's order.
        attribute: The attribute whose cells are a range; None for all of the table.
        start: The first cell of the range; 0 for all of the table.
        stop: The cell after its last; 0 for all of the table.
    """

    names: tuple[str, ...]
    attribute: str | None
    start: int
    stop: int

    @property
    def index(self) -> tuple[slice | EllipsisType, ...]:
        """The slab's place in the table, whose axes are `names`.

        It ends with an ellipsis, so that the slab of the total is an array, too, and no scalar.
        """
        own = slice(self.start, self.stop)
        axes = (own if name == self.attribute else slice(None) for name in self.names)
        return (*axes, ...)

    def shape_in(self, domain: Domain) -> tuple[int, ...]:
        """Return the shape of the slab's counts over a domain."""
        return tuple(
            self.stop - self.start if name == self.attribute else domain[name].size
            for name in self.names
        )


@dataclass(frozen=True)
class Output:
    """A range of the estimates of one group.

    Attributes:
        group: The name of the group.
        axis: The axis of the group's shape along which it is a range; None for all of the group.
        start: The first index of the range; 0 for all of the group.
        stop: The index after its last; 0 for all of the group.
        shape: The shape of the estimates: the group's, with `stop - start` along the axis.
    """

    group: str
    axis: int | None
    start: int
    stop: int
    shape: tuple[int, ...]

    @property
    def index(self) -> tuple[slice | EllipsisType, ...]:
        """The output's place in an array of the group's shape; as of a slab, it gives arrays."""
        own = slice(self.start, self.stop)
        axes = (own if i == self.axis else slice(None) for i in range(len(self.shape)))
        return (*axes, ...)


class Pieces(Mapping[int, AnyArray]):
    """Pieces by the number of what they go to, each made when it is read.

    They are made fastest in the order of their numbers, and none is kept.

    Args:
        numbers: The numbers, ascending.
        make: Makes the piece of a number.
    """

    def __init__(self, numbers: Sequence[int], make: Callable[[int], AnyArray]) -> None:
        self._numbers, self._make = dict.fromkeys(numbers), make

    def __getitem__(self, number: int) -> AnyArray:
        if number not in self._numbers:
            raise KeyError(number)
        return self._make(number)

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, number: object) -> bool:
        return number in self._numbers

    def __repr__(self) -> str:
        return f"<{len(self)} pieces>"  # they may be confidential


class PartedStrategy(ABC):
    """A strategy whose answers and estimates are made in parts.

    Attributes:
        strategy: The strategy.
        slabs: The pieces of exact counts that answers are made from.
        outputs: The pieces of the groups' estimates; those of a group follow each other.
        sizes: The number of answers of each part, shape (parts,). Their sum is `strategy.size`.
    """

    strategy: IntegerStrategy
    slabs: tuple[Slab, ...]
    outputs: tuple[Output, ...]
    sizes: IntArray

    @abstractmethod
    def list_slabs(self, part: int) -> Sequence[int]:
        """List the slabs whose counts a part needs, ascending."""

    @abstractmethod
    def list_parts(self, output: int) -> Sequence[int]:
        """List the parts whose answers an output needs, ascending."""

    @abstractmethod
    def split_counts(self, slab: int, counts: IntArray) -> Mapping[int, IntArray]:
        """Split a slab's exact counts by the parts that need them.

        Args:
            slab: The number of the slab.
            counts: The slab's counts, with an axis for each of its names.

        Returns:
            By the number of the part, its piece: sums of the counts, exact and confidential.

        Raises:
            TablesError: If the counts have another shape.
        """

    @abstractmethod
    def answer_part(self, part: int, pieces: Mapping[int, IntArray]) -> IntArray:
        """Compute a part's exact answers, as `answer_exactly` computes and clamps them.

        Args:
            part: The number of the part.
            pieces: By the number of the slab, what `split_counts` made of it for this part.

        Returns:
            The answers, shape (sizes[part],). They are confidential.

        Raises:
            TablesError: If a piece is missing.
        """

    @abstractmethod
    def place(self, part: int) -> slice | IntArray:
        """Find the indices of a part's answers among those of `answer_exactly`."""

    @abstractmethod
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

    @abstractmethod
    def estimate(self, output: int, pieces: Mapping[int, AnyArray]) -> FloatArray:
        """Estimate the answers of an output, as `make_estimates` does, up to rounding.

        Args:
            output: The number of the output.
            pieces: By the number of the part, what `split_answers` made of it for this output.

        Returns:
            The estimates, of the output's shape.

        Raises:
            TablesError: If a piece is missing.
        """

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


def read_slab_counts(slab: Slab, domain: Domain, counts: AnyArray) -> AnyArray:
    """Read a slab's counts as integers with room for the sum of all of them.

    Raises:
        TablesError: If they have another shape, or a type that int64 does not hold.
    """
    shape = slab.shape_in(domain)
    if counts.shape == shape and counts.dtype == object:  # shares beyond int64
        return counts
    if counts.shape != shape or not np.can_cast(counts.dtype, np.int64):
        raise TablesError(
            f"the counts of {' x '.join(slab.names) or 'the total'} are {counts.dtype} of the "
            f"shape {counts.shape}, and not int64 of the shape {shape}"
        )
    return make_room(counts.astype(np.int64, copy=False), counts.size)


def read_part_answers(part: int, size: int, noisy: AnyArray) -> IntArray:
    """Read a part's noisy answers as int64.

    Raises:
        TablesError: If there are more or fewer answers, or their type is one that int64 does not
            hold.
    """
    if noisy.shape != (size,) or not np.can_cast(noisy.dtype, np.int64):
        raise TablesError(
            f"part {part} has {size} answers, but {noisy.size} of the type {noisy.dtype} were "
            "given; they are of another plan or part"
        )
    return noisy.astype(np.int64, copy=False)


def sum_margin(counts: AnyArray, names: Sequence[str], kept: Sequence[str]) -> AnyArray:
    """Sum counts over the attributes that are not kept.

    Args:
        counts: With an axis for each name, and room for the sum of all of them.
        names: The names.
        kept: The names of the axes of the result, in their order.
    """
    rest = tuple(i for i, name in enumerate(names) if name not in kept)
    left = [name for name in names if name in kept]
    found = np.asarray(counts.sum(axis=rest, dtype=counts.dtype) if rest else counts)
    return found.transpose([left.index(name) for name in kept])


def cut_evenly(length: int, most: int) -> list[tuple[int, int]]:
    """Cut a range into as few as can be of at most `most`, and at least 1, of nearly one length."""
    count = -(-length // max(most, 1))
    ends = [i * length // count for i in range(count + 1)]
    return list(itertools.pairwise(ends))


def check_pieces(pieces: Collection[int], needed: Sequence[int], what: str) -> None:
    """Check that there is a piece from all that is needed, and from nothing else.

    Raises:
        TablesError: If there is not.
    """
    if set(pieces) != set(needed):
        raise TablesError(
            f"{what} is made from {len(needed)} pieces, but other pieces were given: "
            f"{len(set(needed) - set(pieces))} are missing and "
            f"{len(set(pieces) - set(needed))} are not needed"
        )


def check_unit(size: int, what: str, *, whole: int) -> None:
    """Check that what cannot be cut further is small enough.

    Args:
        size: Its numbers.
        what: What it is, for people.
        whole: The size of what it is a part of. Where that is small, nothing needs to be cut.

    Raises:
        WorkloadError: If it is too large.
    """
    if size > LARGEST_UNIT and whole > LARGEST_UNIT:
        raise WorkloadError(
            f"a release in parts would hold {size:,} numbers at once for {what}, and it may hold "
            f"{LARGEST_UNIT:,}; ask for fewer attributes together, or for an attribute with more "
            "cells, along which the release can be cut"
        )
