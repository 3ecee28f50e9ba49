"""Cuts of block sets: their tables into slabs, blocks into parts, and groups into outputs.

A table of more than `most` cells is cut into slabs along its largest attribute, and a group of more
than `most` queries into outputs. Consecutive small blocks form one part. A block of more than
`most` answers is cut across its largest attribute c: a part has all rows of A_c and a range of
columns, the rows of the other attributes' matrices. Tables, blocks and groups that have c as their
largest attribute are cut alike, and those without c are smaller by a factor of n_c.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter

import numpy as np

from fitplug.domain import get_shape
from fitplug.families.base.basis import Reading
from fitplug.families.base.block_sets import BlockSet, BlockSetIntegers
from fitplug.families.base.parted_strategy import PartedStrategy
from fitplug.families.base.pieces import PART, check_unit, cut_evenly, join_sizes
from fitplug.families.base.structure import Structure
from fitplug.numeric import IntArray


@dataclass(frozen=True, eq=False)
class PlacedBlock:
    """A block and the position of its answers.

    Attributes:
        block_set: The block's set.
        i: The block's index in the set.
        attributes: The block's attributes, as indices.
        shape: The shape of the answers: the rows of A_a for each attribute, and n.
        start: The index of the block's first answer.
    """

    block_set: BlockSet
    i: int
    attributes: tuple[int, ...]
    shape: tuple[int, ...]
    start: int

    @property
    def block(self) -> int:
        """The structure's block."""
        return int(self.block_set.blocks[self.i])

    @property
    def size(self) -> int:
        """The number of its answers."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class BlockPart:
    """A part: some blocks, or a range of the columns of one block.

    A range of columns is a range of the rows of the attributes before c or, within one such row, of
    the rows of those after c. Its answers are in the order of the block's.

    Attributes:
        first: The position of the first block.
        last: The position after the last block.
        columns: The range of columns of the one block, each with n answers per row; None for all.
        shape: The numbers of rows of the attributes before c, and after it, in the range.
    """

    first: int
    last: int
    columns: tuple[int, int] | None
    shape: tuple[int, int] = (0, 0)


class BlockCut(PartedStrategy):
    """The cut of a strategy of block sets; see the module's docstring.

    Args:
        strategy: The strategy.
        tables: The attributes whose counts give the answers of all blocks.
        most: The most cells of a slab, answers of a part and estimates of an output.

    Attributes:
        strategy: The strategy.
        blocks: The measured blocks, in the order of their answers.
        position: The position of each of the structure's blocks among them.
        parts: The parts with noise.
    """

    def __init__(
        self, strategy: BlockSetIntegers[Structure], tables: Sequence[tuple[str, ...]], most: int
    ) -> None:
        super().__init__(strategy.structure, tables, most)
        self.strategy = strategy
        # The positions of the latest group, which are needed several times in a row.
        self._positions: tuple[int, list[int]] = (-1, [])
        subsets = strategy.structure.subsets
        attributes = {id(one): subsets.list_attributes(one.blocks) for one in strategy.block_sets}
        self.blocks = [
            PlacedBlock(block_set, i, attributes[id(block_set)][i], shape, start)
            for block_set, i, shape, start in strategy.list_blocks()
        ]
        self.position = {block.block: k for k, block in enumerate(self.blocks)}
        self.parts = self._cut_blocks()

    def find_cut(self, attributes: Sequence[int]) -> int | None:
        """Find the largest of some attributes; None if there are none."""
        sizes = self.structure.sizes
        return max(attributes, key=lambda a: (sizes[a], a), default=None)

    def find_axis(self, block: PlacedBlock) -> int:
        """Find the axis of the largest attribute of a block, which has at least one."""
        cut = self.find_cut(block.attributes)
        assert cut is not None
        return block.attributes.index(cut)

    @cached_property
    def readings(self) -> list[tuple[tuple[int, Reading], ...]]:
        """The table of each reading of each block."""
        structure = self.structure
        names = structure.block_attributes
        # Each reading is from the smallest table that has the attributes it needs.
        of_attributes: dict[tuple[int, ...], list[int]] = {}
        sizes = [math.prod(get_shape(structure.workload.domain, names)) for names in self.tables]
        for t in sorted(range(len(self.tables)), key=lambda t: (sizes[t], t)):
            attributes_of_table = [a for a, name in enumerate(names) if name in self.tables[t]]
            for k in range(len(attributes_of_table) + 1):
                for attributes in itertools.combinations(attributes_of_table, k):
                    of_attributes.setdefault(attributes, []).append(t)
        readings = []
        shared: list[Reading] = []
        for block in self.blocks:
            if block.i == 0:  # the blocks of a set share their basis
                shared = block.block_set.basis.list_readings(structure, block.block)
            holding = of_attributes[block.attributes]
            tables = (
                next(t for t in holding if {*self.tables[t]}.issuperset(reading.dense))
                for reading in shared
            )
            readings.append(tuple(zip(tables, shared, strict=True)))
        return readings

    @cached_property
    def readers(self) -> list[list[tuple[int, Reading]]]:
        """The readings from each table, with the positions of their blocks, ascending."""
        by_table: list[list[tuple[int, Reading]]] = [[] for _ in self.tables]
        for k, readings in enumerate(self.readings):
            for t, reading in readings:
                by_table[t].append((k, reading))
        return by_table

    def list_readers(self, table: int, part: int) -> list[tuple[int, Reading]]:
        """List a part's readings from a table, with the positions of their blocks, ascending."""
        readers, cut_part = self.readers[table], self.parts[part]
        ends = [bisect_left(readers, k, key=itemgetter(0)) for k in (cut_part.first, cut_part.last)]
        return readers[slice(*ends)]

    @cached_property
    def parts_of_block(self) -> list[range]:
        """The range of parts that have answers of each block."""
        first = [len(self.parts)] * len(self.blocks)
        last = [0] * len(self.blocks)
        for p, part in enumerate(self.parts):
            for k in range(part.first, part.last):
                first[k], last[k] = min(first[k], p), max(last[k], p + 1)
        return [range(*pair) for pair in zip(first, last, strict=True)]

    @cached_property
    def parts_of_table(self) -> list[list[int]]:
        """The parts that read each table, ascending."""
        by_table: list[dict[int, None]] = [{} for _ in self.tables]
        for parts, readers in zip(by_table, self.readers, strict=True):
            for k, _ in readers:
                parts.update(dict.fromkeys(self.parts_of_block[k]))
        return [sorted(parts) for parts in by_table]

    @cached_property
    def outputs_of_group(self) -> list[range]:
        """The numbers of each group's outputs."""
        position = self.structure.workload.groups.positions
        groups = [position[output.group] for output in self.outputs]
        ends = np.searchsorted(groups, np.arange(len(position) + 1)).tolist()
        return [range(*pair) for pair in itertools.pairwise(ends)]

    @cached_property
    def group_cuts(self) -> list[int | None]:
        """The attribute along which each group is cut; None if it is one output."""
        cuts: list[int | None] = []
        subsets = self.structure.subsets
        for g, outputs in enumerate(self.outputs_of_group):
            is_whole = self.outputs[outputs[0]].axis is None
            cuts.append(None if is_whole else self.find_cut(subsets.group_attributes[g]))
        return cuts

    @cached_property
    def in_columns(self) -> frozenset[int]:
        """The positions of the blocks cut into ranges of columns."""
        return frozenset(part.first for part in self.parts if part.columns is not None)

    def list_positions(self, group: int) -> list[int]:
        """List the positions of a group's measured blocks, ascending."""
        latest = self._positions
        if latest[0] != group:
            blocks = self.structure.subsets.find_blocks(group)
            positions = [self.position[block] for block in blocks if block in self.position]
            self._positions = latest = group, sorted(positions)
        return latest[1]

    def list_public(self, group: int) -> list[int]:
        """List the blocks of a group that public totals answer, wholly or partly."""
        structure = self.structure
        if structure.public_attributes is None:
            return []
        blocks = structure.subsets.find_blocks(group)
        return [block for block in blocks if structure.find_public(block, group) is not None]

    def find_applied(self, block: int, group: int) -> int | None:
        """Find the attribute whose factor is already applied in a block's pieces for a group."""
        k, cut = self.position.get(block), self.group_cuts[group]
        if k is not None and k in self.in_columns:
            return self.find_cut(self.blocks[k].attributes)
        if cut is None:
            return None
        (attributes,) = self.structure.subsets.list_attributes([block])
        return cut if cut in attributes else None

    def _place(self, part: int) -> slice | IntArray:
        cut_part = self.parts[part]
        block, last = self.blocks[cut_part.first], self.blocks[cut_part.last - 1]
        columns = cut_part.columns
        if columns is None:
            return slice(block.start, last.start + last.size)
        rows, after = self._find_strides(block)
        n = block.shape[-1]
        lengths = cut_part.shape[0], rows, cut_part.shape[1] * n
        before, row, column = np.ix_(*(np.arange(length, dtype=np.int64) for length in lengths))
        first, offset = divmod(columns[0] * n, after)
        column = offset + column
        return np.asarray(block.start + ((first + before) * rows + row) * after + column).ravel()

    def _find_strides(self, block: PlacedBlock) -> tuple[int, int]:
        """Find the rows of a block's largest attribute, and the stride between them."""
        axis = self.find_axis(block)
        return block.shape[axis], math.prod(block.shape[axis + 1 :])

    def _cut_blocks(self) -> tuple[BlockPart, ...]:
        parts: list[BlockPart] = []
        sizes = [block.size for block in self.blocks]
        for first, last in join_sizes(sizes, min(self.most, PART)):
            if sizes[first] > self.most and self.blocks[first].attributes:
                parts += self._cut_columns(first)
            else:
                parts.append(BlockPart(first, last, None))
        return tuple(parts)

    def _cut_columns(self, k: int) -> list[BlockPart]:
        """Cut a block with more answers than a part may have."""
        block = self.blocks[k]
        n = block.shape[-1]
        rows, stride = self._find_strides(block)
        check_unit(
            rows * n,
            f"the counts of {' x '.join(self.structure.name_attributes(block.block))}",
            whole=block.size,
            most=self.most,
        )
        most, after = self.most // (rows * n), stride // n
        before = block.size // (rows * stride)
        if most >= after:
            return [
                BlockPart(k, k + 1, (start * after, stop * after), (stop - start, after))
                for start, stop in cut_evenly(before, most // after)
            ]
        return [
            BlockPart(k, k + 1, (i * after + start, i * after + stop), (1, stop - start))
            for i in range(before)
            for start, stop in cut_evenly(after, most)
        ]

    def _find_table_attribute(self, names: tuple[str, ...]) -> str | None:
        every = self.structure.block_attributes
        cut = self.find_cut([a for a, name in enumerate(every) if name in names])
        return None if cut is None else every[cut]

    def _find_group_axis(self, g: int) -> int | None:
        cut = self.find_cut(self.structure.subsets.group_attributes[g])
        if cut is None:
            return None
        # A group may sum out an attribute that is in all blocks.
        name = self.structure.block_attributes[cut]
        axes = [f.attribute for f in self.structure.workload.groups[g].factors]
        return axes.index(name) if name in axes else None

    @cached_property
    def _part_sizes(self) -> list[int]:
        return list(map(self._count_answers, self.parts))

    def _count_answers(self, part: BlockPart) -> int:
        """Count the answers of a part."""
        first, last = self.blocks[part.first], self.blocks[part.last - 1]
        if part.columns is None:
            return last.start + last.size - first.start
        rows = first.shape[self.find_axis(first)]
        return rows * (part.columns[1] - part.columns[0]) * first.shape[-1]

    def _list_slabs(self, part: int) -> Sequence[int]:
        cut_part = self.parts[part]
        tables = {t for k in range(cut_part.first, cut_part.last) for t, _ in self.readings[k]}
        return [slab for t in sorted(tables) for slab in self.slabs_of_table[t]]

    def _list_parts(self, output: int) -> Sequence[int]:
        g = self.structure.workload.groups.find_position(self.outputs[output].group)
        return sorted({p for k in self.list_positions(g) for p in self.parts_of_block[k]})
