"""Strategies in parts, for more answers and estimates than memory can hold.

Exact counts come in slabs, answers in parts, and estimates in outputs. Each of the two steps splits
arrays into numbered pieces and gathers them, so that any exchange of arrays can run in between:

    counts of a slab      --split_counts-->   a piece for each part      --answer_part-->  answers
    answers of a part     --split_answers-->  a piece for each output    --estimate-->     estimates

The plan alone decides the numbers, sizes and shapes of all pieces. They are one-dimensional arrays:
int64 for counts; int64 or floats for answers. Pieces of counts are confidential. If all is done in
memory, each table is one slab and each group one output.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np

from fitplug.domain import get_shape
from fitplug.errors import TablesError
from fitplug.families.base.mechanism import SATURATION, ExactTotals, pack_integers, unpack_integers
from fitplug.families.base.pieces import (
    Latest,
    Pieces,
    Slab,
    check_pieces,
    cut_groups,
    cut_table,
    read_part_answers,
    read_slab_counts,
    sum_margin,
)
from fitplug.families.base.structure import Structure, list_names
from fitplug.numeric import AnyArray, FloatArray, IntArray
from fitplug.workload import select_largest_sets

ReadCounts: TypeAlias = Callable[[tuple[str, ...]], IntArray]
"""Gives the exact counts over some attributes, in the order named. They are confidential."""


class PublicTotals:
    """The totals that a unit of privacy makes public, summed from the slabs of one table.

    Args:
        structure: A structure that has public totals.
        slabs: The slabs of all tables.

    Attributes:
        names: The attributes of the totals, in the domain's order.
        slabs: The numbers of the slabs they are summed from: those of the smallest table that has
            their attributes.
    """

    def __init__(self, structure: Structure, slabs: Sequence[Slab]) -> None:
        assert structure.public_attributes is not None
        self.names = structure.public_attributes
        domain = structure.workload.domain
        self._shape = get_shape(domain, self.names)
        tables = {slab.names for slab in slabs if {*slab.names}.issuperset(self.names)}
        smallest = min(tables, key=lambda names: (math.prod(get_shape(domain, names)), names))
        self.slabs = [number for number, slab in enumerate(slabs) if slab.names == smallest]

    def split_counts(self, slab: Slab, counts: AnyArray) -> IntArray:
        """Sum a slab's counts to the attributes of the totals, and pack them."""
        return pack_integers([sum_margin(counts, slab.names, self.names)])

    def add_pieces(self, slabs: Sequence[Slab], pieces: Mapping[int, IntArray]) -> IntArray:
        """Add up the pieces by slab number to the totals, clamped, shape (public_size,)."""
        totals = ExactTotals([self._shape])
        for number, piece in pieces.items():
            slab, values = slabs[number], unpack_integers(piece)
            totals.make_room(values)
            range_of = slice(slab.start, slab.stop)
            axes = (range_of if name == slab.attribute else slice(None) for name in self.names)
            target = totals.totals[0][(*axes, ...)]
            target += values.reshape(target.shape)
        clamped = np.clip(totals.totals[0].ravel(), -SATURATION, SATURATION)
        return np.asarray(clamped, dtype=np.int64)


class PartedStrategy(ABC):
    """A strategy whose answers and estimates are computed in parts.

    Counts are in shares of their measures, answers in shares of all measures that queries use, and
    estimates are of records.

    Args:
        structure: The strategy's structure.
        tables: The attributes of tables whose counts give all answers and public totals.
        most: The most cells of a slab, answers of a part and estimates of an output.

    Attributes:
        structure: The strategy's structure.
        most: The most cells of a slab, answers of a part and estimates of an output.
        tables: The attributes of each table that is read.
        slabs: The slabs of all tables; those of one table are consecutive.
        table_of_slab: The table of each slab, as an index.
        slabs_of_table: The numbers of the slabs of each table.
        outputs: The outputs of all groups; those of one group are consecutive.
    """

    def __init__(self, structure: Structure, tables: Sequence[tuple[str, ...]], most: int) -> None:
        self.structure, self.most = structure, most
        self.tables = select_largest_sets(tables)
        domain = structure.workload.domain
        by_table = [
            cut_table(domain, names, self._find_table_attribute(names), most)
            for names in self.tables
        ]
        self.slabs = tuple(itertools.chain.from_iterable(by_table))
        self.table_of_slab = [t for t, slabs in enumerate(by_table) for _ in slabs]
        ends = itertools.accumulate(map(len, by_table), initial=0)
        self.slabs_of_table = list(itertools.starmap(range, itertools.pairwise(ends)))
        self.outputs = cut_groups(structure.workload, most, self._find_group_axis)

    @cached_property
    def sizes(self) -> IntArray:
        """The number of answers of each part, shape (parts,).

        If the unit of privacy makes totals public, they are the last part, without noise.
        """
        public = [] if self.structure.public_attributes is None else [self.structure.public_size]
        return np.array([*self._part_sizes, *public], dtype=np.int64)

    @property
    def noisy_parts(self) -> int:
        """The number of parts that get noise."""
        return len(self._part_sizes)

    @cached_property
    def _totals(self) -> PublicTotals:
        return PublicTotals(self.structure, self.slabs)

    @property
    def released_size(self) -> int:
        """The number of answers of all parts, and public totals."""
        return int(self.sizes.sum())

    def answer(self, read_counts: ReadCounts) -> IntArray:
        """Compute the exact answers of all parts in memory, clamped, shape (released_size,).

        Args:
            read_counts: As for `IntegerStrategy.answer_exactly`.
        """
        answers = np.zeros(self.released_size, dtype=np.int64)
        pieces = [
            self.split_counts(number, np.asarray(read_counts(slab.names))[slab.index])
            for number, slab in enumerate(self.slabs)
        ]
        for part in range(len(self.sizes)):
            pieces_of_part = {slab: pieces[slab][part] for slab in self.list_slabs(part)}
            answers[self.place(part)] = self.answer_part(part, pieces_of_part)
        return answers

    def list_slabs(self, part: int) -> Sequence[int]:
        """List the numbers of the slabs whose counts a part needs, ascending."""
        return self._totals.slabs if self.is_public(part) else self._list_slabs(part)

    def list_parts(self, output: int) -> Sequence[int]:
        """List the numbers of the parts whose answers an output needs, ascending."""
        return [*self._list_parts(output), *range(self.noisy_parts, len(self.sizes))]

    def is_public(self, part: int) -> bool:
        """Tell whether a part has the public totals, which get no noise."""
        return part == self.noisy_parts

    def place(self, part: int) -> slice | IntArray:
        """Find the indices of a part's answers among all answers."""
        if self.is_public(part):
            return slice(self.released_size - int(self.sizes[part]), self.released_size)
        return self._place(part)

    def split_counts(self, slab: int, counts: AnyArray) -> Mapping[int, IntArray]:
        """Split a slab's exact counts by the parts that need them.

        Args:
            slab: The number of the slab.
            counts: The slab's counts, with an axis for each of its names, in shares of the measures
                among them.

        Returns:
            Pieces by part number: sums of the counts, exact and confidential.

        Raises:
            TablesError: If the counts have another shape.
        """
        described = self.slabs[slab]
        counts = read_slab_counts(described, self.structure, counts)
        pieces = self._split_counts(slab, counts)
        if len(self.sizes) > self.noisy_parts and slab in self._totals.slabs:
            return pieces.add(
                self.noisy_parts, partial(self._totals.split_counts, described, counts)
            )
        return pieces

    def answer_part(self, part: int, pieces: Mapping[int, IntArray]) -> IntArray:
        """Compute a part's exact answers, clamped.

        Args:
            part: The number of the part.
            pieces: By slab number, the piece for this part from `split_counts`.

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
            noisy: The part's noisy answers, shape (sizes[part],).

        Returns:
            Pieces by output number.

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
            pieces: By part number, the piece for this output from `split_answers`.
            latest: Intermediate results of other outputs of the same answers; None for none.

        Returns:
            The estimates, of the output's shape.

        Raises:
            TablesError: If a piece is missing.
        """
        check_pieces(pieces, self.list_parts(output), f"output {output} of the estimates")
        estimates = self._estimate(output, pieces, Latest() if latest is None else latest)
        shares = self.structure.shares
        return estimates if shares == 1 else np.asarray(estimates / shares)

    @abstractmethod
    def _find_table_attribute(self, names: tuple[str, ...]) -> str | None:
        """Find the attribute along which to cut a table; None if it cannot be cut."""

    @abstractmethod
    def _find_group_axis(self, g: int) -> int | None:
        """Find the axis of a group's shape along which to cut it; None if it cannot be cut."""

    @property
    @abstractmethod
    def _part_sizes(self) -> Sequence[int]:
        """The number of answers of each part with noise."""

    @abstractmethod
    def _list_slabs(self, part: int) -> Sequence[int]:
        """List the slabs that a part with noise needs."""

    @abstractmethod
    def _list_parts(self, output: int) -> Sequence[int]:
        """List the parts with noise that an output needs."""

    @abstractmethod
    def _place(self, part: int) -> slice | IntArray:
        """Find the indices of the answers of a part with noise among all answers."""

    @abstractmethod
    def _split_counts(self, slab: int, counts: AnyArray) -> Pieces:
        """Split a slab's counts by parts with noise; their type has room for the sum of all."""

    @abstractmethod
    def _answer_part(self, part: int, pieces: Mapping[int, IntArray]) -> IntArray:
        """Compute the exact answers of a part with noise."""

    @abstractmethod
    def _split_answers(self, part: int, noisy: IntArray) -> Pieces:
        """Split the noisy answers of a part."""

    @abstractmethod
    def _split_totals(self, totals: IntArray) -> Callable[[int], FloatArray]:
        """Return the function that makes each output's piece of the totals (public_size,)."""

    @abstractmethod
    def _estimate(self, output: int, pieces: Mapping[int, AnyArray], latest: Latest) -> FloatArray:
        """Estimate an output, in shares of records."""


_MOST_SPLIT = 2**24
"""The most answers of split parts to remember, besides the latest part's."""


class Estimates(Mapping[str, AnyArray]):
    """Unbiased estimates by group, computed when they are read; the latest are remembered.

    Args:
        parted: The strategy, cut so that each group is one output.
        answers: The noisy answers, and then the public totals, shape (released_size,).

    Raises:
        TablesError: If the answers belong to another plan.
    """

    def __init__(self, parted: PartedStrategy, answers: IntArray) -> None:
        released_size = parted.released_size
        if answers.shape != (released_size,):
            raise TablesError(
                f"the plan has {released_size} noisy answers, but {answers.size} were given"
            )
        self._parted, self._answers = parted, answers
        self._workload = parted.structure.workload
        self._latest = Latest()
        self._splits: dict[int, Mapping[int, AnyArray]] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._workload.groups.positions

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"Estimates({list_names(self._workload.names)})"

    def __iter__(self) -> Iterator[str]:
        return iter(self._workload.names)

    def __len__(self) -> int:
        return len(self._workload.names)

    def __getitem__(self, name: str) -> FloatArray:
        g = self._workload.groups.find_position(name)
        return self._latest.remember(("group", g), lambda: self._estimate_group(g))

    def _estimate_group(self, g: int) -> FloatArray:
        """Estimate the answers of a group, in its shape."""
        pieces = {part: self._split(part)[g] for part in self._parted.list_parts(g)}
        return self._parted.estimate(g, pieces, self._latest)

    def _split(self, part: int) -> Mapping[int, AnyArray]:
        """Split the answers of a part by the groups."""
        if part not in self._splits:
            sizes = self._parted.sizes
            while sizes[[part, *self._splits]].sum() > _MOST_SPLIT and self._splits:
                self._splits.pop(next(iter(self._splits)))
            answers = self._answers[self._parted.place(part)]
            self._splits[part] = self._parted.split_answers(part, answers)
        return self._splits[part]
