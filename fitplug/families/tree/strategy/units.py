"""Tree units: what nodes measure of their children, as the smallest pieces of a tree's answers.

Unit 0 is the root's own count. Each other unit is a node with children; it measures these apart
from their sum. Units have numbers in the order of a block's answers, and ranks in the order of
their first leaves, parents first: units whose ranks follow each other need few slabs of leaves, and
few ranges of estimates need them. Each row of the unfolded tree belongs to one unit: row 0 to the
root's, and a child to its parent's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fitplug.families.base.contrasts import build_contrasts
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.numeric import AnyArray, IntArray, to_positions


@dataclass(frozen=True, eq=False)
class UnitKind:
    """Units of one step of the tree whose nodes have equally many children.

    Attributes:
        step: The index of the step; -1 for the root's own count.
        depth: The depth of the children.
        first: The number of the first unit.
        positions: The index of each node among the parents of the step, shape (b,).
        children: The rows of their children, shape (b, k).
        answers: The rows of each A_v.
    """

    step: int
    depth: int
    first: int
    positions: IntArray
    children: IntArray
    answers: int


class TreeUnits:
    """The units of a tree; see the module.

    Attributes:
        kinds: The kinds of units, in the order of their numbers.
        count: The number of units.
        kind_sizes: The number of units of each kind, shape (kinds,).
        unit_of_row: The unit that each row belongs to, -1 for rows that are not used, (rows,).
        child_of_row: The index of each row among the children of its unit, shape (rows,).
        parent_of_row: The row above each row, -1 for none, shape (rows,).
        kind_of_unit: The kind of each unit, shape (units,).
        rank_of_unit: The rank of each unit, shape (units,).
        unit_of_rank: The unit of each rank, shape (units,).
    """

    def __init__(self, structure: TreeStructure) -> None:
        unfolded = structure.unfolded
        root = np.zeros((1, 1), dtype=np.int64)
        self.kinds = [UnitKind(-1, 0, 0, root[0], root, 1)]
        first = 1
        for siblings in unfolded.siblings:
            k = siblings.children.shape[1]
            is_identical = structure.tree.steps[siblings.step].counts is not None
            self.kinds.append(
                UnitKind(
                    step=siblings.step,
                    depth=siblings.depth,
                    first=first,
                    positions=siblings.positions,
                    children=siblings.children,
                    answers=build_contrasts(k).rows if is_identical else k - 1,
                )
            )
            first += len(siblings.positions)
        self.count = first
        self.kind_sizes: IntArray = np.array([len(one.positions) for one in self.kinds])
        kind = np.int32 if max(unfolded.size, self.count) < 2**31 else np.int64
        self.unit_of_row: AnyArray = np.full(unfolded.size, -1, dtype=kind)
        self.child_of_row: AnyArray = np.zeros(unfolded.size, dtype=kind)
        self.parent_of_row: AnyArray = np.full(unfolded.size, -1, dtype=kind)
        self.kind_of_unit: AnyArray = np.zeros(self.count, dtype=kind)
        first_leaf = np.full(unfolded.size, len(unfolded.leaves), dtype=kind)
        first_leaf[unfolded.leaves] = np.arange(len(unfolded.leaves))
        self.unit_of_row[0] = 0
        parents = np.zeros(self.count, dtype=kind)
        for number, siblings in zip(
            range(len(self.kinds) - 1, 0, -1), reversed(unfolded.siblings), strict=True
        ):
            own = self.kinds[number]
            b, k = own.children.shape
            units = own.first + np.arange(b)
            self.unit_of_row[own.children] = units[:, None]
            self.child_of_row[own.children] = np.arange(k)
            self.parent_of_row[own.children] = siblings.parents[:, None]
            self.kind_of_unit[units] = number
            parents[units] = siblings.parents
            lowest = first_leaf[own.children].min(axis=1)
            first_leaf[siblings.parents] = np.minimum(first_leaf[siblings.parents], lowest)
        # Parents have smaller numbers than their children.
        order = 1 + np.lexsort((parents[1:], first_leaf[parents[1:]]))
        self.unit_of_rank: AnyArray = np.concatenate([[0], order]).astype(kind)
        self.rank_of_unit: AnyArray = np.empty_like(self.unit_of_rank)
        self.rank_of_unit[self.unit_of_rank] = np.arange(self.count)

    def list_path_rows(self, rows: IntArray) -> IntArray:
        """List some rows and all that are above them, ascending by unit and then by child."""
        found, above = [], list_different(rows)
        while len(above):
            found.append(above)
            above = list_different(self.parent_of_row[above])
            above = above[above >= 0]
        every = list_different(np.concatenate(found)).astype(np.int64)
        return every[np.lexsort((self.child_of_row[every], self.unit_of_row[every]))]

    def list_row_units(self, rows: IntArray) -> IntArray:
        """List the units that some rows belong to, ascending."""
        return list_different(self.unit_of_row[rows]).astype(np.int64)

    def count_down_to(self, depth: int) -> int:
        """Count the units whose children are no deeper than a depth: those with least numbers."""
        return int(self.kind_sizes[[kind.depth <= depth for kind in self.kinds]].sum())

    def list_units(self, first: int, last: int) -> IntArray:
        """List the units with ranks from `first` to `last - 1`, ascending."""
        return np.sort(self.unit_of_rank[first:last]).astype(np.int64)


class SlabPaths:
    """The rows of the tree that have cells in a slab: some leaves, and all rows above them.

    Args:
        units: The units of the tree.
        leaves: The rows of the leaves, shape (l,).

    Attributes:
        rows: The rows, ascending by unit and then by child, shape (n,).
        units: The unit of each row, shape (n,).
        kinds: By kind of unit, the range of its rows.
    """

    def __init__(self, units: TreeUnits, leaves: IntArray) -> None:
        self.rows = units.list_path_rows(leaves)
        self.units = units.unit_of_row[self.rows]
        numbers = units.kind_of_unit[self.units]
        order = np.argsort(self.rows)
        ordered = self.rows[order]
        self._leaves = order[np.searchsorted(ordered, leaves)]
        self.kinds: dict[int, slice] = {}
        self._sums: list[tuple[slice, IntArray, IntArray]] = []
        for kind in list_different(numbers).tolist():
            ends = np.searchsorted(numbers, [kind, kind + 1]).tolist()
            own = self.kinds[kind] = slice(*ends)
            first = np.flatnonzero(np.diff(self.units[own], prepend=-1))
            parents = units.parent_of_row[self.rows[own][first]]
            if kind:
                above = order[np.searchsorted(ordered, parents)]
                self._sums.append((own, first, above))

    def sum_up(self, counts: AnyArray) -> AnyArray:
        """Sum counts of the leaves (l, R, r) to all rows (n, R, r); sums have room."""
        found = np.zeros((len(self.rows), *counts.shape[1:]), dtype=counts.dtype)
        found[self._leaves] = counts
        for own, first, parents in reversed(self._sums):
            found[parents] = np.add.reduceat(found[own], first, axis=0, dtype=found.dtype)
        return found


def list_different(values: IntArray) -> IntArray:
    """List the different integers, ascending; for many, np.unique takes ten times as long."""
    ordered = np.sort(values)
    is_first = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first]


def list_ranges(starts: IntArray, lengths: IntArray) -> IntArray:
    """List the integers of some ranges, one range after another."""
    ends = np.cumsum(lengths, dtype=np.int64)
    offsets = np.repeat(starts - (ends - lengths), to_positions(lengths))
    return np.asarray(offsets + np.arange(len(offsets)), dtype=np.int64)
