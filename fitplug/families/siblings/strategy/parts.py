"""Siblings in parts: exact answers and estimates of the unfolded blocks, from pieces.

A table is cut into slabs along its largest attribute, and consecutive blocks form one part. A
slab's piece has its counts for each block of a part, before any matrix is applied; a part's piece
has the estimates of each block of a group. No group is cut.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fitplug.domain import get_shape
from fitplug.families.base.basis import Reading
from fitplug.families.base.block_sets import BlockSet
from fitplug.families.base.estimates import arrange_as_group
from fitplug.families.base.mechanism import ExactTotals, pack_integers, unpack_integers
from fitplug.families.base.parted_strategy import PartedStrategy
from fitplug.families.base.pieces import Latest, Pieces, Slab, check_unit, join_sizes, sum_margin
from fitplug.families.blocks.strategy.estimates import sum_totals
from fitplug.families.blocks.strategy.matrices import MatrixStrategy
from fitplug.families.siblings.shape import SiblingStructure
from fitplug.numeric import AnyArray, FloatArray, IntArray


class Axis(NamedTuple):
    """An attribute of a table, and the cells of a block along it.

    Attributes:
        name: The attribute.
        cells: The block's cell for each of the attribute's cells, ascending, or -1, shape (n,).
        size: The number of cells of the block.
    """

    name: str
    cells: IntArray
    size: int


class TableReading(NamedTuple):
    """A reading of a block, over the workload's own attributes.

    Attributes:
        axes: The attributes of the table: first the block's, then the dense ones.
        reading: The reading over the cells of all axes.
    """

    axes: tuple[Axis, ...]
    reading: Reading

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes of the table."""
        return tuple(axis.name for axis in self.axes)


@dataclass(frozen=True, eq=False)
class ReadBlock:
    """A block of the unfolded structure, with its readings.

    Attributes:
        block_set: The block's set.
        i: The block's index in the set.
        block: The block's number.
        cells: The numbers of cells of the block's attributes.
        answers: The shape of the block's answers.
        start: The index of the block's first answer.
        readings: The block's readings; each row of its basis is in one of them.
    """

    block_set: BlockSet
    i: int
    block: int
    cells: tuple[int, ...]
    answers: tuple[int, ...]
    start: int
    readings: tuple[TableReading, ...]


def list_read_blocks(
    structure: SiblingStructure, strategy: MatrixStrategy[Any]
) -> Iterator[ReadBlock]:
    """List the measured blocks, in the order of their answers."""
    unfolded = structure.unfolded
    for block_set, i, answers, start in strategy.list_blocks():
        block = int(block_set.blocks[i])
        (subset,) = unfolded.subsets.list_attributes([block])
        along, parents = [], {}
        for a in subset:
            name, parent = structure.find_parent(a)
            along.append(_read_axis(structure, name, parent))
            if parent is not None:
                parents[name] = parent
        readings = []
        for reading in block_set.basis.list_readings(unfolded, block):
            restricted = _restrict(unfolded.workload.domain, reading, parents)
            dense = (_read_axis(structure, name, None) for name in restricted.dense)
            readings.append(TableReading((*along, *dense), restricted))
        cells = tuple(axis.size for axis in along)
        yield ReadBlock(block_set, i, block, cells, answers, start, tuple(readings))


def _read_axis(structure: SiblingStructure, name: str, parent: int | None) -> Axis:
    """Make an attribute's axis over the children of a parent, its parents, or its cells."""
    one = structure.by_name.get(name)
    if one is None:
        n = structure.workload.domain[name].size
        return Axis(name, np.arange(n), n)
    if parent is None:
        return Axis(name, one.leaf_parents, len(one.starts))
    start, end = int(one.starts[parent]), int(one.ends[parent])
    is_below = one.leaf_parents == parent
    return Axis(name, np.where(is_below, one.nodes - start, -1), end - start)


def _restrict(domain: Any, reading: Reading, parents: Mapping[str, int]) -> Reading:
    """Restrict a reading to the cells below some parents."""
    at: tuple[Any, ...] = tuple(parents.get(name, slice(None)) for name in reading.dense)
    shape = get_shape(domain, reading.dense)
    dense = tuple(name for name in reading.dense if name not in parents)
    if reading.classes is not None:
        classes = reading.classes.reshape(shape)[at].ravel()
        return replace(reading, dense=dense, classes=classes)
    assert reading.queries is not None
    m = len(reading.queries)
    queries = reading.queries.reshape(m, *shape)[(slice(None), *at)].reshape(m, -1)
    return replace(reading, dense=dense, queries=queries)


def sum_cells(slab: Slab, counts: AnyArray, axes: Sequence[Axis]) -> AnyArray:
    """Sum a slab's counts to the cells of a block, in the order of the axes."""
    values = sum_margin(counts, slab.names, [axis.name for axis in axes])
    for place, (name, cells, size) in enumerate(axes):
        given = cells[slab.start : slab.stop] if name == slab.attribute else cells
        values = _sum_axis(values, place, given, size)
    return values


def _sum_axis(values: AnyArray, place: int, cells: IntArray, size: int) -> AnyArray:
    """Sum values along an axis to the cells of a block, as in `Axis`."""
    inside = np.flatnonzero(cells >= 0)
    shape = [*values.shape[:place], size, *values.shape[place + 1 :]]
    summed = np.zeros(shape, dtype=values.dtype)
    if len(inside):
        kept = cells[inside]
        first = np.flatnonzero(np.diff(kept, prepend=-1))
        sums = np.add.reduceat(values.take(inside, place), first, axis=place)
        np.moveaxis(summed, place, 0)[kept[first]] = np.moveaxis(sums, place, 0)
    return summed


class SiblingParts(PartedStrategy):
    """The parts of a strategy of siblings."""

    structure: SiblingStructure

    def __init__(
        self,
        structure: SiblingStructure,
        strategy: MatrixStrategy[Any],
        tables: Sequence[tuple[str, ...]],
        most: int,
    ) -> None:
        super().__init__(structure, tables, most)
        self.strategy = strategy
        self.blocks = list(list_read_blocks(structure, strategy))
        sizes = [math.prod(block.answers) for block in self.blocks]
        check_unit(max(sizes), "the answers of a block", whole=max(sizes), most=most)
        self._ends = join_sizes(sizes, most)
        self._sizes = [sum(sizes[first:last]) for first, last in self._ends]

    def _find_table_attribute(self, names: tuple[str, ...]) -> str | None:
        domain = self.structure.workload.domain
        return max(names, key=lambda name: domain[name].size, default=None)

    def _find_group_axis(self, g: int) -> int | None:
        return None

    @property
    def _part_sizes(self) -> Sequence[int]:
        return self._sizes

    def _blocks_of(self, part: int) -> list[ReadBlock]:
        """List the blocks of a part."""
        return self.blocks[slice(*self._ends[part])]

    @cached_property
    def _table_of(self) -> dict[tuple[str, ...], int]:
        """The index of the table to read, by sets of attributes."""
        names = {reading.names for block in self.blocks for reading in block.readings}
        return {
            some: next(t for t, table in enumerate(self.tables) if {*table} >= {*some})
            for some in names
        }

    def _list_slabs(self, part: int) -> Sequence[int]:
        names = (r.names for block in self._blocks_of(part) for r in block.readings)
        tables = sorted({self._table_of[some] for some in names})
        return [slab for table in tables for slab in self.slabs_of_table[table]]

    def _place(self, part: int) -> slice:
        start = self._blocks_of(part)[0].start
        return slice(start, start + self._sizes[part])

    def _list_readings(self, part: int, slab: int) -> list[tuple[int, TableReading]]:
        """List a part's readings from a slab's table, with the positions of their blocks in it."""
        return [
            (position, reading)
            for position, block in enumerate(self._blocks_of(part))
            for reading in block.readings
            if self._table_of[reading.names] == self.table_of_slab[slab]
        ]

    def _split_counts(self, slab: int, counts: AnyArray) -> Pieces:
        def make(part: int) -> IntArray:
            return pack_integers(
                [
                    one.reading.multiply(sum_cells(self.slabs[slab], counts, one.axes))
                    for _, one in self._list_readings(part, slab)
                ]
            )

        parts = range(len(self._ends))
        return Pieces([part for part in parts if slab in self._list_slabs(part)], make)

    def _answer_part(self, part: int, pieces: Mapping[int, IntArray]) -> IntArray:
        blocks = self._blocks_of(part)
        sums = ExactTotals([(math.prod(b.cells), b.answers[-1]) for b in blocks])
        for slab in pieces:
            values = unpack_integers(pieces[slab])
            sums.make_room(values)
            at = 0
            for position, one in self._list_readings(part, slab):
                target, rows = sums.totals[position], one.reading.rows
                end = at + len(target) * len(rows)
                target[:, rows] += values[at:end].reshape(len(target), len(rows))
                at = end
        return np.concatenate(
            [
                self.strategy.measure_block(b.block_set, b.i, x.reshape(*b.cells, -1))
                for b, x in zip(blocks, sums.totals, strict=True)
            ]
        )

    @cached_property
    def _blocks_of_group(self) -> list[set[int]]:
        """The unfolded blocks that each group's estimates need."""
        find = self.structure.unfolded.subsets.find_blocks
        measured = {block.block for block in self.blocks}
        return [
            {block for part in parts for block in find(part.group)} & measured
            for parts in self.structure.parts
        ]

    def _list_parts(self, output: int) -> Sequence[int]:
        needed = self._blocks_of_group[output]
        parts = range(len(self._ends))
        return [p for p in parts if any(block.block in needed for block in self._blocks_of(p))]

    def _split_answers(self, part: int, noisy: IntArray) -> Pieces:
        blocks, start = self._blocks_of(part), self._place(part).start
        estimates = {
            b.block: self.strategy.estimate_block(
                b.block_set,
                b.i,
                noisy[b.start - start :][: math.prod(b.answers)].reshape(b.answers),
            )
            for b in blocks
        }

        def make(output: int) -> FloatArray:
            needed = self._blocks_of_group[output]
            return np.concatenate([x.ravel() for block, x in estimates.items() if block in needed])

        outputs = range(len(self.outputs))
        return Pieces([o for o in outputs if part in self._list_parts(o)], make)

    def _split_totals(self, totals: IntArray) -> Callable[[int], FloatArray]:
        return lambda _: totals.astype(np.float64)

    def _sum_totals(self, totals: AnyArray, block: int) -> FloatArray:
        """Sum the public totals to an unfolded block's attributes; see `sum_totals`."""
        structure = self.structure
        (subset,) = structure.unfolded.subsets.list_attributes([block])
        below = dict(map(structure.find_parent, subset))
        kept = structure.public_attributes
        assert kept is not None
        values = totals.reshape(get_shape(structure.workload.domain, kept))
        names: list[str] = []
        for name in kept:
            if name in structure.by_name:
                parent, place = below.get(name), len(names)
                _, cells, size = _read_axis(structure, name, parent)
                values = _sum_axis(values, place, cells, size)
                if parent is not None:
                    # The children are an attribute of their own, and those of one parent.
                    names.append(structure.by_name[name].name_children(parent))
                    at = np.arange(len(structure.by_name[name].starts)) == parent
                    shape = (-1, *(1,) * (values.ndim - place - 1))
                    values = np.expand_dims(values, place + 1) * at.reshape(shape)
            names.append(name)
        return sum_totals(self.strategy, values, names, block)

    def _estimate(self, output: int, pieces: Mapping[int, AnyArray], latest: Latest) -> FloatArray:
        unfolded, needed = self.structure.unfolded, self._blocks_of_group[output]
        estimates: dict[int, FloatArray] = {}
        for part in sorted(pieces):
            if self.is_public(part):
                continue
            blocks = [block for block in self._blocks_of(part) if block.block in needed]
            shapes = [(*block.cells, block.answers[-1]) for block in blocks]
            ends = list(itertools.accumulate(map(math.prod, shapes)))
            for block, shape, values in zip(
                blocks, shapes, np.split(pieces[part], ends[:-1]), strict=True
            ):
                estimates[block.block] = values.reshape(shape)
        whole = np.zeros(self.outputs[output].shape)
        for one in self.structure.parts[output]:
            attributes = unfolded.subsets.group_attributes[one.group]
            sizes = [unfolded.sizes[a] for a in attributes]
            total = np.zeros((*sizes, int(unfolded.row_counts[one.group])))
            for number in unfolded.subsets.find_blocks(one.group):
                (subset,) = unfolded.subsets.list_attributes([number])
                has = [a in subset for a in attributes]
                spread = [n if x else 1 for n, x in zip(sizes, has, strict=True)]
                share = math.prod(1 if x else n for n, x in zip(sizes, has, strict=True))
                rows = np.zeros(1)
                if number in estimates:
                    L, _ = self.strategy.represent(number, one.group)
                    rows = estimates[number] @ L.T
                public = unfolded.find_public(number, one.group)
                if public is not None:
                    known = self._sum_totals(pieces[self.noisy_parts], number)
                    rows = rows + known @ public.T
                total += rows.reshape(*spread, -1) / share
            arranged = arrange_as_group(unfolded, one.group, total)
            whole[one.place] = arranged.reshape(whole[one.place].shape)
        return whole
