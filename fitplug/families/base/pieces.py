"""Pieces: slabs of counts, parts of answers, outputs of estimates, and arrays between them.

See `fitplug.families.base.parted_strategy`.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType

import numpy as np

from fitplug.domain import Domain, count_shares, get_shape
from fitplug.errors import TablesError, WorkloadError
from fitplug.families.base.structure import Structure
from fitplug.numeric import AnyArray, FloatArray, IntArray, make_room
from fitplug.workload import Workload

PART = 2**20
"""The most answers of a part, unless the smallest possible part is larger."""

WHOLE = sys.maxsize
"""A limit above the size of any table, block or group, so that each stays whole."""

LARGEST_UNIT = 2**24
"""The most numbers of a slab, a part or an output that cannot be cut further: 128 MB per array, and
about six arrays are in memory at once."""


@dataclass(frozen=True)
class Slab:
    """A range of the exact counts of one table.

    Attributes:
        names: The attributes of the table, in the domain's order.
        attribute: The attribute of whose cells the slab has a range; None for the whole table.
        start: The first cell of the range; 0 for the whole table.
        stop: The cell after the last of the range; 0 for the whole table.
    """

    names: tuple[str, ...]
    attribute: str | None
    start: int
    stop: int

    @property
    def index(self) -> tuple[slice | EllipsisType, ...]:
        """The slab's place in the table, whose axes are `names`.

        It ends with an ellipsis, so that the slab of the total is an array too, not a scalar.
        """
        interval = slice(self.start, self.stop)
        axes = (interval if name == self.attribute else slice(None) for name in self.names)
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
        axis: The axis of the group's shape along which the output is a range; None for the whole
            group.
        start: The first index of the range; 0 for the whole group.
        stop: The index after the last of the range; 0 for the whole group.
        shape: The shape of the estimates: the group's, with `stop - start` along the axis.
    """

    group: str
    axis: int | None
    start: int
    stop: int
    shape: tuple[int, ...]

    @property
    def index(self) -> tuple[slice | EllipsisType, ...]:
        """The output's place in an array of the group's shape; with an ellipsis, as a slab's."""
        interval = slice(self.start, self.stop)
        axes = (interval if i == self.axis else slice(None) for i in range(len(self.shape)))
        return (*axes, ...)


class Pieces(Mapping[int, AnyArray]):
    """Pieces by the number of their destination, each made when it is read.

    Reading them in ascending order is fastest. None is remembered.

    Args:
        numbers: The numbers, ascending.
        make: Makes the piece with a given number.
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

    def add(self, number: int, make: Callable[[], AnyArray]) -> Pieces:
        """Return these pieces and one more, whose number is the largest."""
        return Pieces([*self, number], lambda n: make() if n == number else self._make(n))


_MOST_BYTES = 2**27


class Latest:
    """A cache of the latest arrays by key, up to some 100 MB."""

    def __init__(self) -> None:
        self._arrays: OrderedDict[Hashable, FloatArray] = OrderedDict()
        self._bytes = 0

    def remember(self, place: Hashable, make: Callable[[], FloatArray]) -> FloatArray:
        """Return the array of a key, read-only; make it if it is not remembered."""
        if place not in self._arrays:
            made = make()
            made.setflags(write=False)
            self._bytes += made.nbytes
            while self._arrays and self._bytes > _MOST_BYTES:
                self._bytes -= self._arrays.popitem(last=False)[1].nbytes
            self._arrays[place] = made
        return self._arrays[place]


def read_slab_counts(slab: Slab, structure: Structure, counts: AnyArray) -> AnyArray:
    """Convert a slab's counts to shares of all measures, in a type that holds their sum.

    Args:
        slab: The slab.
        structure: The structure.
        counts: The counts, in shares of the measures among the slab's attributes.

    Returns:
        int64 or, if their sum might overflow it, Python integers.

    Raises:
        TablesError: If they have another shape, or a type that does not convert to int64.
    """
    domain = structure.workload.domain
    shape = slab.shape_in(domain)
    is_fitting = counts.dtype == object or np.can_cast(counts.dtype, np.int64)
    if counts.shape != shape or not is_fitting:
        raise TablesError(
            f"the counts of {' x '.join(slab.names) or 'the total'} must have type int64 and shape "
            f"{shape}, not {counts.dtype} and {counts.shape}"
        )
    others = structure.shares // count_shares(domain, slab.names)
    if counts.dtype != object:
        counts = make_room(counts.astype(np.int64, copy=False), counts.size * others)
    return counts if others == 1 else np.asarray(counts * others)


def read_part_answers(part: int, size: int, noisy: AnyArray) -> IntArray:
    """Read a part's noisy answers as int64.

    Raises:
        TablesError: If there are more or fewer answers, or their type does not convert to int64.
    """
    if noisy.shape != (size,) or not np.can_cast(noisy.dtype, np.int64):
        raise TablesError(
            f"part {part} needs {size} integers as answers, not {noisy.size} answers of type "
            f"{noisy.dtype}"
        )
    return noisy.astype(np.int64, copy=False)


def sum_margin(counts: AnyArray, names: Sequence[str], margin: Sequence[str]) -> AnyArray:
    """Sum counts to a margin.

    Args:
        counts: Counts with an axis for each name, in a type that holds the sum of all of them.
        names: The names.
        margin: The names of the result's axes, in order.
    """
    rest = tuple(i for i, name in enumerate(names) if name not in margin)
    left = [name for name in names if name in margin]
    sums = np.asarray(counts.sum(axis=rest, dtype=counts.dtype) if rest else counts)
    return sums.transpose([left.index(name) for name in margin])


def cut_evenly(length: int, most: int) -> list[tuple[int, int]]:
    """Cut a range into the fewest ranges of at most `most` (at least 1), of similar length."""
    count = -(-length // max(most, 1))
    ends = [i * length // count for i in range(count + 1)]
    return list(itertools.pairwise(ends))


def join_sizes(sizes: Sequence[int], most: int) -> list[tuple[int, int]]:
    """Join consecutive items into ranges of at most `most` numbers, or of one item."""
    ends, total = [0], 0
    for i, size in enumerate(sizes):
        if i > ends[-1] and total + size > most:
            ends.append(i)
            total = 0
        total += size
    return list(itertools.pairwise([*ends, len(sizes)])) if sizes else []


def cut_table(domain: Domain, names: tuple[str, ...], along: str | None, most: int) -> list[Slab]:
    """Cut a table of more than `most` cells into slabs along an attribute.

    Args:
        domain: The domain.
        names: The attributes of the table, in the domain's order.
        along: The attribute; None if the table cannot be cut.
        most: The desired limit on the cells of a slab.

    Raises:
        WorkloadError: If the smallest slab is too large.
    """
    size = math.prod(get_shape(domain, names))
    n = domain[along].size if along is not None and size > most else 1
    check_unit(size // n, f"the counts of {' x '.join(names)}", whole=size, most=most)
    if n == 1:
        return [Slab(names, None, 0, 0)]
    return [Slab(names, along, *pair) for pair in cut_evenly(n, most // (size // n))]


def cut_groups(
    workload: Workload, most: int, find_axis: Callable[[int], int | None]
) -> tuple[Output, ...]:
    """Cut groups of more than `most` answers into outputs along one axis.

    Args:
        workload: The workload.
        most: The desired limit on the answers of an output.
        find_axis: Returns the axis along which a group can be cut, or None.

    Raises:
        WorkloadError: If the smallest output is too large.
    """
    outputs: list[Output] = []
    for g, group in enumerate(workload.groups):
        axis = find_axis(g) if group.size > most else None
        what = f"the group {group.name!r}"
        unit = group.size if axis is None else group.size // group.shape[axis]
        check_unit(unit, what, whole=group.size, most=most)
        if axis is None:
            outputs.append(Output(group.name, None, 0, 0, group.shape))
            continue
        for start, stop in cut_evenly(group.shape[axis], most // unit):
            shape = (*group.shape[:axis], stop - start, *group.shape[axis + 1 :])
            outputs.append(Output(group.name, axis, start, stop, shape))
    return tuple(outputs)


def check_pieces(pieces: Collection[int], needed: Sequence[int], what: str) -> None:
    """Check that exactly the needed pieces are there.

    Raises:
        TablesError: If they are not.
    """
    if set(pieces) != set(needed):
        missing, extra = len(set(needed) - set(pieces)), len(set(pieces) - set(needed))
        raise TablesError(f"{what} has wrong pieces: {missing} are missing and {extra} extra")


def check_unit(size: int, what: str, *, whole: int, most: int) -> None:
    """Check that a slab, a part or an output that cannot be cut further is small enough.

    Args:
        size: The count of its numbers.
        what: A phrase that names it in the message.
        whole: The size of the whole to be cut. If this is small, nothing needs to be cut.
        most: The desired limit.

    Raises:
        WorkloadError: If it is too large.
    """
    if size > max(LARGEST_UNIT, most) and whole > LARGEST_UNIT:
        raise WorkloadError(
            f"{what} would need {size:,} numbers in memory at once; the limit is {LARGEST_UNIT:,}. "
            "Use fewer attributes in one query."
        )
