"""Cuts of tree blocks: their tables into slabs, answers into parts, and groups into outputs.

Tables are cut into slabs along the tree's cells, and groups into outputs along its nodes. A part
consists of segments: branches of one block with consecutive ranks (`TreeBranches`). If one branch
has more than `most` answers, its segments are ranges of the contrasts' rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fitplug.domain import get_shape
from fitplug.families.base.parted_strategy import PartedStrategy
from fitplug.families.base.pieces import PART, check_unit, cut_evenly, join_sizes
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.unfolded_tree import (
    BranchRanges,
    SlabPaths,
    TreeBranches,
    UnfoldedTree,
    list_different,
    list_ranges,
)
from fitplug.families.tree.strategy.blocks import (
    TreeBlock,
    TreeIntegers,
    list_block_tables,
    list_needed,
)
from fitplug.numeric import BoolArray, IntArray


@dataclass(frozen=True, eq=False)
class BranchAnswers:
    """The answers of a block by branch.

    Attributes:
        shape: The shape of the answers: the rows of each attribute's contrasts, and the answers of
            all branches.
        start: The index of the block's first answer.
        widths: The answers of one branch of each kind, per row of contrasts, shape (kinds,).
        ends: The index after the last answer of each kind, shape (kinds,).
    """

    shape: tuple[int, ...]
    start: int
    widths: IntArray
    ends: IntArray

    @property
    def contrasts(self) -> int:
        """R, the number of rows of all contrasts."""
        return math.prod(self.shape[:-1])

    @property
    def size(self) -> int:
        """The number of answers."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Segment:
    """Answers of a block: some branches, and a range of the contrasts' rows.

    Attributes:
        block: The block.
        first: The rank of the first branch.
        last: The rank after that of the last branch.
        start: The first row of contrasts.
        stop: The row of contrasts after the last.
        size: The number of answers.
    """

    block: int
    first: int
    last: int
    start: int
    stop: int
    size: int


class TreeCut(PartedStrategy):
    """The cut of a strategy of tree blocks; see the module's docstring.

    Args:
        strategy: The strategy.
        tables: The attributes whose counts give the answers of all blocks, and public totals.
        most: The most cells of a slab, answers of a part and estimates of an output.

    Attributes:
        strategy: The strategy.
        branches: The branches of the tree.
        blocks: The integers of each measured block, by the structure's block.
        answers: The answers of each of these blocks.
        table_of_block: The table that each of these blocks reads, as an index.
        parts: The segments of each part with noise.
    """

    structure: TreeStructure

    def __init__(
        self,
        strategy: TreeIntegers[TreeStructure],
        tables: Sequence[tuple[str, ...]],
        most: int,
    ) -> None:
        structure = strategy.structure
        super().__init__(structure, tables, most)
        self.strategy = strategy
        self.branches = TreeBranches(structure.unfolded)
        self.blocks: dict[int, TreeBlock] = {
            tree_block.block: tree_block for tree_block in strategy.tree_blocks
        }
        self.answers = self._place_answers()
        domain = structure.workload.domain
        by_size = sorted(self.tables, key=lambda names: math.prod(get_shape(domain, names)))
        self.table_of_block = {
            block: self.tables.index(next(table for table in by_size if set(table) >= set(names)))
            for block, names in zip(self.blocks, list_block_tables(structure), strict=True)
        }
        segments = [one for block in self.blocks for one in self._cut_block(block)]
        joined = join_sizes([one.size for one in segments], min(most, PART))
        self.parts = tuple(tuple(segments[first:last]) for first, last in joined)
        self._paths: tuple[tuple[int, int], SlabPaths] | None = None
        self._branches_of_nodes: dict[tuple[int, int, int], BranchRanges] = {}
        self._branches_of_ranks: dict[tuple[int, int], BranchRanges] = {}

    def is_at_root(self, block: int) -> bool:
        """Tell whether a block measures nothing below the root."""
        return self.structure.tree_attribute not in list_needed(self.structure, block)

    def find_measured(self, block: int, branches: IntArray) -> BoolArray:
        """Tell for which branches a block has answers."""
        return np.asarray(self.answers[block].widths[self.branches.kind_of_branch[branches]] > 0)

    def list_measured(self, segment: Segment) -> IntArray:
        """List the branches of a segment with answers, ascending."""
        branches = self.branches.list_branches(segment.first, segment.last)
        return branches[self.find_measured(segment.block, branches)]

    def find_offsets(self, block: int, branches: IntArray) -> tuple[IntArray, IntArray]:
        """Find the first answer of each branch among a block's, and the number of its answers.

        Both are for one row of contrasts.
        """
        answers, kinds = self.answers[block], self.branches.kind_of_branch[branches]
        first = self.branches.first
        widths = answers.widths[kinds]
        starts = answers.ends - answers.widths * self.branches.kind_sizes
        return starts[kinds] + (branches - first[kinds]) * widths, widths

    def list_leaves(self, slab: int) -> IntArray:
        """List the numbers of the leaves with cells in a slab."""
        one, starts = self.slabs[slab], self.structure.tree.starts
        if one.attribute is None:
            return np.arange(len(starts))
        first = int(np.searchsorted(starts, one.start, side="right")) - 1
        return np.arange(first, int(np.searchsorted(starts, one.stop)))

    def find_paths(self, slab: int) -> SlabPaths:
        """Find the rows of the tree with cells in a slab; the latest are remembered."""
        if self.structure.tree_attribute not in self.slabs[slab].names:
            return SlabPaths(self.branches, np.zeros(1, dtype=np.int64))
        leaves = self.list_leaves(slab)
        ends = int(leaves[0]), int(leaves[-1])
        if self._paths is None or self._paths[0] != ends:
            self._paths = ends, SlabPaths(self.branches, self.structure.unfolded.leaves[leaves])
        return self._paths[1]

    def list_readers(self, part: int, slab: int) -> list[int]:
        """List the indices of a part's segments that read the table of a slab."""
        table = self.table_of_slab[slab]
        return [
            i for i, one in enumerate(self.parts[part]) if self.table_of_block[one.block] == table
        ]

    def find_depth(self, output: int) -> int:
        """Find the depth of the level that an output's group uses."""
        g = self.structure.workload.groups.find_position(self.outputs[output].group)
        return self.structure.find_level(g).depth

    def find_nodes(self, output: int) -> IntArray:
        """Find the row of each node in an output's order."""
        one = self.outputs[output]
        rows = self.structure.find_level_rows(
            self.structure.workload.groups.find_position(one.group)
        )
        return rows if one.axis is None else rows[one.start : one.stop]

    def find_output_branches(self, output: int) -> BranchRanges:
        """Find the branches that an output needs."""
        one = self.outputs[output]
        place = self.find_depth(output), one.start, one.stop
        if place not in self._branches_of_nodes:
            branches = self.branches.list_path_branches(self.find_nodes(output))
            self._branches_of_nodes[place] = self.branches.find_ranges(branches)
        return self._branches_of_nodes[place]

    def find_output_tree(self, output: int) -> UnfoldedTree:
        """Find the rows of the tree that an output needs: the children of all its branches.

        Returns:
            A tree of these rows. Its leaves are the nodes of the output, in its order.
        """
        structure, depth = self.structure, self.find_depth(output)
        whole, nodes = structure.unfolded, self.find_nodes(output)
        if self.outputs[output].axis is None:
            siblings = (branch for branch in whole.siblings if branch.depth <= depth)
            return UnfoldedTree(whole.ends[: depth + 1], nodes, tuple(siblings))
        branches = self.find_output_branches(output).list_numbers()
        of_kind = self.branches.kind_of_branch[branches]
        chosen = [
            branch.take(branches[of_kind == number] - self.branches.first[number])
            for number, branch in enumerate(whole.siblings, 1)
        ]
        rows = np.sort(np.concatenate([[0], *(branch.children.ravel() for branch in chosen)]))
        siblings = (
            replace(
                branch,
                parents=np.searchsorted(rows, branch.parents),
                children=np.searchsorted(rows, branch.children),
            )
            for branch in chosen
            if len(branch.positions)
        )
        ends = np.searchsorted(rows, whole.ends[: depth + 1])
        return UnfoldedTree(ends, np.searchsorted(rows, nodes), tuple(siblings))

    def find_columns(self, segment: Segment, output: int) -> list[tuple[int, int, int]]:
        """Find the answers of a segment that an output needs, per row of contrasts.

        Returns:
            Ranges of these answers: the first index among the segment's answers, the first index
            among those of all the output's branches, and the number of answers.
        """
        span = segment.first, segment.last
        if span not in self._branches_of_ranks:
            branches = self.branches.list_branches(*span)
            self._branches_of_ranks[span] = self.branches.find_ranges(branches)
        widths = self.answers[segment.block].widths
        return self._branches_of_ranks[span].find_shared(self.find_output_branches(output), widths)

    def count_columns(self, block: int, output: int) -> int:
        """Count a block's answers that an output needs, per row of contrasts."""
        widths = self.answers[block].widths
        return int(self.find_output_branches(output).count_answers(widths).sum())

    @cached_property
    def spans(self) -> dict[int, tuple[IntArray, list[list[int]]]]:
        """By block, the rank of the first branch of each span, and the parts with its answers."""
        by_block: dict[int, dict[int, list[int]]] = {block: {} for block in self.blocks}
        for p, segments in enumerate(self.parts):
            for one in segments:
                by_block[one.block].setdefault(one.first, []).append(p)
        return {
            block: (
                np.array(sorted(parts), dtype=np.int64),
                [parts[rank] for rank in sorted(parts)],
            )
            for block, parts in by_block.items()
        }

    def find_parts(self, block: int, branches: IntArray) -> set[int]:
        """Find the parts with a block's answers for given branches."""
        starts, parts = self.spans[block]
        if not len(starts):
            return set()
        ranks = self.branches.rank_of_branch[branches[self.find_measured(block, branches)]]
        spans = np.searchsorted(starts, ranks, side="right") - 1
        return {p for span in list_different(spans).tolist() for p in parts[span]}

    @cached_property
    def parts_of_slab(self) -> list[list[int]]:
        """The parts that need each slab, ascending."""
        by_slab = []
        root = np.zeros(1, dtype=np.int64)
        for slab, table in enumerate(self.table_of_slab):
            readers = [b for b, t in self.table_of_block.items() if t == table]
            branches = list_different(self.find_paths(slab).branches).astype(np.int64)
            parts = (self.find_parts(b, root if self.is_at_root(b) else branches) for b in readers)
            by_slab.append(sorted(set().union(*parts)))
        return by_slab

    @cached_property
    def parts_of_output(self) -> list[list[int]]:
        """The parts that each output needs, ascending."""
        by_output = []
        for o in range(len(self.outputs)):
            branches = self.find_output_branches(o).list_numbers()
            parts = (self.find_parts(b, branches) for b in self.list_measured_blocks(o))
            by_output.append(sorted(set().union(*parts)))
        return by_output

    def list_blocks(self, output: int) -> Sequence[int]:
        """List the blocks that an output adds up."""
        g = self.structure.workload.groups.find_position(self.outputs[output].group)
        return self.structure.subsets.find_blocks(g)

    def list_measured_blocks(self, output: int) -> list[int]:
        """List the output's measured blocks."""
        return [block for block in self.list_blocks(output) if block in self.blocks]

    def list_public_blocks(self, output: int) -> list[int]:
        """List the output's blocks that public totals answer, wholly or partly."""
        return [b for b in self.list_blocks(output) if self.structure.needs_totals(b)]

    def _find_table_attribute(self, names: tuple[str, ...]) -> str | None:
        tree = self.structure.tree_attribute
        return tree if tree in names else None

    def _find_group_axis(self, g: int) -> int | None:
        return self.structure.find_tree_axis(g)

    @cached_property
    def _part_sizes(self) -> list[int]:
        return [sum(one.size for one in segments) for segments in self.parts]

    def _list_slabs(self, part: int) -> Sequence[int]:
        return self._slabs_of_part[part]

    def _list_parts(self, output: int) -> Sequence[int]:
        return self.parts_of_output[output]

    @cached_property
    def _slabs_of_part(self) -> list[list[int]]:
        return invert_lists(self.parts_of_slab, len(self.parts))

    def _place(self, part: int) -> slice | IntArray:
        segments, indices = self.parts[part], []
        start = self.answers[segments[0].block].start
        size = sum(one.size for one in segments)
        if all(one.size == self.answers[one.block].size for one in segments):
            return slice(start, start + size)
        for one in self.parts[part]:
            answers = self.answers[one.block]
            offsets = list_ranges(*self.find_offsets(one.block, self.list_measured(one)))
            rows = np.arange(one.start, one.stop, dtype=np.int64)[:, None]
            indices.append((answers.start + rows * answers.shape[-1] + offsets).ravel())
        return np.concatenate(indices)

    def _place_answers(self) -> dict[int, BranchAnswers]:
        by_block = {}
        for tree_block, shape, start in self.strategy.list_blocks():
            widths = np.zeros(len(self.branches.kinds), dtype=np.int64)
            for number, kind in enumerate(self.branches.kinds[1:], 1):
                if kind.step < len(tree_block.steps):
                    matrices, k = tree_block.steps[kind.step], kind.children.shape[1]
                    widths[number] = matrices.count_rows(k) * matrices.dense.shape[1]
            widths[0] = len(tree_block.root)
            ends = np.cumsum(widths * self.branches.kind_sizes)
            by_block[tree_block.block] = BranchAnswers(shape, start, widths, ends)
        return by_block

    def _cut_block(self, block: int) -> list[Segment]:
        answers, segments = self.answers[block], []
        R, first = answers.contrasts, 0
        ends = np.cumsum(answers.widths[self.branches.kind_of_branch[self.branches.branch_of_rank]])
        while first < self.branches.count:
            before = int(ends[first - 1]) if first else 0
            last = int(np.searchsorted(ends, before + self.most // R, side="right"))
            last = max(last, first + 1)
            width = int(ends[last - 1]) - before
            if width:
                ranges = [(0, R)] if R * width <= self.most else cut_evenly(R, self.most // width)
                check_unit(width, "the children of a node", whole=R * width, most=self.most)
                for start, stop in ranges:
                    size = (stop - start) * width
                    segments.append(Segment(block, first, last, start, stop, size))
            first = last
        return segments


def invert_lists(lists: Sequence[Sequence[int]], count: int) -> list[list[int]]:
    """For lists of numbers below `count`, list the indices of the lists with each number."""
    inverse: list[list[int]] = [[] for _ in range(count)]
    for i, numbers in enumerate(lists):
        for number in numbers:
            inverse[number].append(i)
    return inverse
