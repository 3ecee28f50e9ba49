"""Tree parts: how the tables, answers and groups of tree blocks are cut.

Tables are cut into slabs along the tree's cells, and groups into outputs along its nodes. A part is
made of segments: units of one block whose ranks follow each other
(`fitplug.families.tree.estimates.units`). Where one unit has more than `most` answers, its segments
are ranges of the contrasts' rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fitplug.families.base.parted_strategy import Output, Slab, check_unit, cut_evenly
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.tree.estimates.answers import list_block_tables, list_needed, list_tree_blocks
from fitplug.families.tree.estimates.units import TreeUnits, list_different, list_ranges
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.numeric import BoolArray, IntArray
from fitplug.workload import select_largest_sets


@dataclass(frozen=True, eq=False)
class UnitAnswers:
    """The answers of a block by unit.

    Attributes:
        shape: The shape of its answers: the rows of each attribute's contrasts, and all units'.
        start: The index of its first answer.
        widths: The answers of one unit of each kind, for each row of contrasts; shape (kinds,).
        bases: The index of the first answer of each kind, shape (kinds,).
    """

    shape: tuple[int, ...]
    start: int
    widths: IntArray
    bases: IntArray

    @property
    def contrasts(self) -> int:
        """R, the rows of all contrasts."""
        return math.prod(self.shape[:-1])


@dataclass(frozen=True)
class Segment:
    """Answers of a block: some units, and a range of the contrasts' rows.

    Attributes:
        block: The block.
        span: The index of its units among those that the block is cut into.
        first: The rank of the first unit.
        last: The rank after that of the last unit.
        start: The first row of contrasts.
        stop: The row after the last.
        size: The number of answers.
    """

    block: int
    span: int
    first: int
    last: int
    start: int
    stop: int
    size: int


class TreeParts:
    """The cut of a strategy of tree blocks; see the module.

    Args:
        strategy: The strategy.
        structure: Its structure.
        most: The most cells of a slab, answers of a part and estimates of an output.

    Attributes:
        units: The units of the tree.
        answers: The answers of each block.
        table_of_block: The table that each block reads, as an index.
        slabs: The slabs of all tables.
        table_of_slab: The table of each slab.
        parts: The segments of each part.
        outputs: The outputs of all groups.
    """

    def __init__(self, strategy: IntegerStrategy, structure: TreeStructure, most: int) -> None:
        self.strategy, self.structure, self.most = strategy, structure, most
        self.units = TreeUnits(structure)
        self.answers = self._place_answers()
        needed = list_block_tables(structure)
        tables = select_largest_sets(needed)
        domain = structure.workload.domain
        by_size = sorted(tables, key=lambda names: math.prod(domain.shape_of(names)))
        self.table_of_block = [
            tables.index(next(own for own in by_size if set(own) >= set(names))) for names in needed
        ]
        cut = [(t, slab) for t, names in enumerate(tables) for slab in self._cut_table(names)]
        self.table_of_slab = [t for t, _ in cut]
        self.slabs = tuple(slab for _, slab in cut)
        segments = [one for block in range(len(self.answers)) for one in self._cut_block(block)]
        self.parts = _join_segments(segments, most)
        self.outputs = self._cut_groups()

    def is_at_root(self, block: int) -> bool:
        """Tell whether a block measures nothing below the root."""
        return self.structure.tree_attribute not in list_needed(self.structure, block)

    def find_measured(self, block: int, units: IntArray) -> BoolArray:
        """Find which units a block has answers of."""
        return np.asarray(self.answers[block].widths[self.units.kind_of_unit[units]] > 0)

    def list_measured(self, segment: Segment) -> IntArray:
        """List the units of a segment that have answers, ascending."""
        units = self.units.list_units(segment.first, segment.last)
        return units[self.find_measured(segment.block, units)]

    def find_offsets(self, block: int, units: IntArray) -> tuple[IntArray, IntArray]:
        """Find where units' answers begin among those of a block, and how many there are of each.

        Both are for one row of contrasts.
        """
        own, kinds = self.answers[block], self.units.kind_of_unit[units]
        first = np.array([kind.first for kind in self.units.kinds], dtype=np.int64)
        widths = own.widths[kinds]
        return own.bases[kinds] + (units - first[kinds]) * widths, widths

    def list_leaves(self, slab: int) -> IntArray:
        """List the leaves, by number, that have cells in a slab."""
        one, starts = self.slabs[slab], self.structure.tree.starts
        if one.attribute is None:
            return np.arange(len(starts))
        first = int(np.searchsorted(starts, one.start, side="right")) - 1
        return np.arange(first, int(np.searchsorted(starts, one.stop)))

    def list_slab_rows(self, slab: int) -> IntArray:
        """List the rows of the tree that have cells in a slab; see `TreeUnits.list_path_rows`."""
        return self.units.list_path_rows(self.structure.unfolded.leaves[self.list_leaves(slab)])

    def list_output_rows(self, output: int) -> tuple[IntArray, IntArray]:
        """List the rows of the tree whose estimates an output has, and those of all above them.

        Returns:
            The row of each node in the output's order, and the rows of `TreeUnits.list_path_rows`.
        """
        one = self.outputs[output]
        g = self.structure.workload.position(one.group)
        rows = self.structure.find_level_rows(g)
        if one.axis is not None:
            rows = rows[one.start : one.stop]
        return rows, self.units.list_path_rows(rows)

    def list_output_units(self, output: int) -> IntArray:
        """List the units that an output needs, ascending."""
        _, path = self.list_output_rows(output)
        return self.units.list_row_units(path)

    @cached_property
    def parts_of_span(self) -> list[list[list[int]]]:
        """By block and span of units, the parts with answers of these units, ascending."""
        found: list[dict[int, list[int]]] = [{} for _ in self.answers]
        for p, segments in enumerate(self.parts):
            for one in segments:
                found[one.block].setdefault(one.span, []).append(p)
        return [[own[span] for span in sorted(own)] for own in found]

    @cached_property
    def span_starts(self) -> list[IntArray]:
        """By block, the rank of the first unit of each span."""
        found: list[dict[int, int]] = [{} for _ in self.answers]
        for segments in self.parts:
            for one in segments:
                found[one.block][one.span] = one.first
        return [np.array([own[span] for span in sorted(own)], dtype=np.int64) for own in found]

    def find_parts(self, block: int, units: IntArray) -> set[int]:
        """Find the parts with answers of a block of some units."""
        if not len(self.span_starts[block]):
            return set()
        ranks = self.units.rank_of_unit[units[self.find_measured(block, units)]]
        spans = np.searchsorted(self.span_starts[block], ranks, side="right") - 1
        of_span = self.parts_of_span[block]
        return {p for span in list_different(spans).tolist() for p in of_span[span]}

    @cached_property
    def parts_of_slab(self) -> list[list[int]]:
        """The parts that need each slab, ascending."""
        found = []
        root = np.zeros(1, dtype=np.int64)
        for slab, table in enumerate(self.table_of_slab):
            readers = [b for b, t in enumerate(self.table_of_block) if t == table]
            units = root
            if not all(map(self.is_at_root, readers)):
                units = self.units.list_row_units(self.list_slab_rows(slab))
            parts = (self.find_parts(b, root if self.is_at_root(b) else units) for b in readers)
            found.append(sorted(set().union(*parts)))
        return found

    @cached_property
    def parts_of_output(self) -> list[list[int]]:
        """The parts that each output needs, ascending."""
        structure, found = self.structure, []
        for o, one in enumerate(self.outputs):
            units = self.list_output_units(o)
            g = structure.workload.position(one.group)
            parts = (self.find_parts(b, units) for b in structure.subsets.find_blocks(g))
            found.append(sorted(set().union(*parts)))
        return found

    def list_indices(self, part: int) -> IntArray:
        """List the indices of a part's answers; see `PartedStrategy.place`."""
        found = []
        for one in self.parts[part]:
            own = self.answers[one.block]
            offsets = list_ranges(*self.find_offsets(one.block, self.list_measured(one)))
            rows = np.arange(one.start, one.stop, dtype=np.int64)[:, None]
            found.append((own.start + rows * own.shape[-1] + offsets).ravel())
        return np.concatenate(found)

    def _place_answers(self) -> list[UnitAnswers]:
        structure, found = self.structure, []
        counts = np.array([len(kind.positions) for kind in self.units.kinds], dtype=np.int64)
        for own, shape, start in list_tree_blocks(self.strategy, structure):
            classes = structure.classes[own.block]
            widths = np.array(
                [
                    kind.answers * classes[kind.depth].size if kind.step < len(own.steps) else 0
                    for kind in self.units.kinds
                ],
                dtype=np.int64,
            )
            bases = np.cumsum(widths * counts) - widths * counts
            found.append(UnitAnswers(shape, start, widths, bases))
        return found

    def _cut_table(self, names: tuple[str, ...]) -> list[Slab]:
        domain, tree = self.structure.workload.domain, self.structure.tree_attribute
        size = math.prod(domain.shape_of(names))
        what = f"the counts of {' x '.join(names)}"
        if size <= self.most or tree not in names:
            check_unit(size, what, whole=size)
            return [Slab(names, None, 0, 0)]
        n = domain[tree].size
        check_unit(size // n, what, whole=size)
        return [Slab(names, tree, *pair) for pair in cut_evenly(n, self.most // (size // n))]

    def _cut_block(self, block: int) -> list[Segment]:
        own, found = self.answers[block], []
        R, spans, first = own.contrasts, 0, 0
        ends = np.cumsum(own.widths[self.units.kind_of_unit[self.units.unit_of_rank]])
        while first < self.units.count:
            before = int(ends[first - 1]) if first else 0
            last = int(np.searchsorted(ends, before + self.most // R, side="right"))
            last = max(last, first + 1)
            width = int(ends[last - 1]) - before
            if width:
                ranges = [(0, R)] if R * width <= self.most else cut_evenly(R, self.most // width)
                check_unit(width, "the children of a node", whole=R * width)
                for start, stop in ranges:
                    size = (stop - start) * width
                    found.append(Segment(block, spans, first, last, start, stop, size))
                spans += 1
            first = last
        return found

    def _cut_groups(self) -> tuple[Output, ...]:
        found: list[Output] = []
        for g, group in enumerate(self.structure.workload.groups):
            axis = self.structure.find_tree_axis(g)
            what = f"the group {group.name!r}"
            if group.size <= self.most or axis is None:
                check_unit(group.size, what, whole=group.size)
                found.append(Output(group.name, None, 0, 0, group.shape))
                continue
            unit = group.size // group.shape[axis]
            check_unit(unit, what, whole=group.size)
            for start, stop in cut_evenly(group.shape[axis], self.most // unit):
                shape = (*group.shape[:axis], stop - start, *group.shape[axis + 1 :])
                found.append(Output(group.name, axis, start, stop, shape))
        return tuple(found)


def _join_segments(segments: list[Segment], most: int) -> tuple[tuple[Segment, ...], ...]:
    """Join segments that follow each other, as long as they have no more than `most` answers."""
    found: list[list[Segment]] = []
    total = 0
    for one in segments:
        if not found or total + one.size > most:
            found.append([])
            total = 0
        found[-1].append(one)
        total += one.size
    return tuple(map(tuple, found))
