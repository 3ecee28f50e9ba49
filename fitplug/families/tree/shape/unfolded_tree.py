"""Unfolded trees: rows of counts and estimates, with one for each identical leaf."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np

from fitplug.families.tree.shape.node_tree import NodeTree
from fitplug.numeric import AnyArray, IntArray, to_positions


@dataclass(frozen=True, eq=False)
class Siblings:
    """The nodes of one step of a tree that have equally many children.

    Attributes:
        step: The index of the step in `NodeTree.steps`; -1 for the root, which is its own parent.
        depth: The depth of the children.
        positions: The index of each node among the parents of the step, shape (b,).
        parents: The row of each node, shape (b,).
        children: The rows of each node's children, shape (b, k).
    """

    step: int
    depth: int
    positions: IntArray
    parents: IntArray
    children: IntArray

    def take(self, chosen: IntArray | slice) -> Siblings:
        """Take some of the nodes."""
        return replace(
            self,
            positions=self.positions[chosen],
            parents=self.parents[chosen],
            children=self.children[chosen],
        )


@dataclass(frozen=True, eq=False)
class UnfoldedTree:
    """The rows of a tree: its nodes by number, and then each identical leaf.

    The row of a node that stands for identical leaves is not used.

    Attributes:
        ends: The number of rows up to each depth, shape (depths,).
        leaves: The row of each node of the finest level that queries use, shape (l,).
        siblings: The nodes with children, in the order of the steps and then of k.
    """

    ends: IntArray
    leaves: IntArray
    siblings: tuple[Siblings, ...]

    @property
    def size(self) -> int:
        """The number of rows."""
        return int(self.ends[-1])


def unfold_tree(tree: NodeTree) -> UnfoldedTree:
    """Unfold a tree: give each of its identical leaves a row."""
    nodes = tree.leaf_nodes[tree.starts]
    is_identical = tree.multiplicities[nodes] > 1
    leaves = nodes.copy()
    leaves[is_identical] = tree.size + np.arange(int(is_identical.sum()))
    order = np.argsort(nodes[is_identical], kind="stable")
    ordered, rows = nodes[is_identical][order], leaves[is_identical][order]
    siblings = []
    for i, step in enumerate(tree.steps):
        if step.counts is None:
            every = np.arange(len(step.parents))
            siblings.append(Siblings(i, step.depth, every, step.parents, step.children))
            continue
        first = np.searchsorted(ordered, step.children[:, 0])
        for k, positions in list_by_count(step.counts):
            children = rows[first[positions, None] + np.arange(k)]
            siblings.append(Siblings(i, step.depth, positions, step.parents[positions], children))
    ends = np.searchsorted(tree.depths, np.arange(int(tree.depths[-1]) + 1), side="right")
    ends[-1] += len(rows)
    return UnfoldedTree(ends, leaves, tuple(siblings))


def list_by_count(counts: IntArray) -> list[tuple[int, IntArray]]:
    """List the distinct counts, ascending, with the indices (b,) of each."""
    order = np.argsort(counts, kind="stable")
    different, first = np.unique(counts[order], return_index=True)
    return list(zip(different.tolist(), np.split(order, first[1:]), strict=True))


class TreeBranches:
    """The branches of an unfolded tree: the root's count, and each node with its children.

    Branch 0 is the root's count. Branches are numbered in the order of a block's answers. They have
    ranks in the order of their first leaves, parents first: branches with consecutive ranks need
    few slabs of leaves, and few ranges of estimates need them. Each row belongs to one branch: row
    0 to the root's, and a child to its parent's. Rows have places in the order of their branches
    and then of the children.

    Attributes:
        kinds: The branches of one step with equally many children, in the order of their numbers.
        first: The number of the first branch of each kind, shape (kinds,).
        count: The number of branches.
        kind_sizes: The number of branches of each kind, shape (kinds,).
        kind_starts: The place of the first row of each kind, shape (kinds,).
        place_of_row: The place of each row, -1 for unused rows, shape (rows,).
        branch_of_place: The branch of each place, shape (places,).
        parent_of_branch: The place of each branch's node, -1 for branch 0, shape (branches,).
        kind_of_branch: The kind of each branch, shape (branches,).
        rank_of_branch: The rank of each branch, shape (branches,).
        branch_of_rank: The branch of each rank, shape (branches,).
    """

    def __init__(self, unfolded: UnfoldedTree) -> None:
        root = np.zeros((1, 1), dtype=np.int64)
        self.kinds = [Siblings(-1, 0, root[0], root[0], root), *unfolded.siblings]
        self.kind_sizes: IntArray = np.array([len(one.positions) for one in self.kinds])
        self.first: IntArray = np.cumsum(self.kind_sizes) - self.kind_sizes
        self.count = int(self.kind_sizes.sum())
        places = np.array([one.children.size for one in self.kinds])
        self.kind_starts: IntArray = np.cumsum(places) - places
        kind = np.int32 if max(unfolded.size, self.count) < 2**31 else np.int64
        self.place_of_row: AnyArray = np.full(unfolded.size, -1, dtype=kind)
        self.kind_of_branch: AnyArray = np.repeat(
            np.arange(len(self.kinds), dtype=kind), to_positions(self.kind_sizes)
        )
        children = np.array([one.children.shape[1] for one in self.kinds])[self.kind_of_branch]
        self.branch_of_place: AnyArray = np.repeat(
            np.arange(self.count, dtype=kind), to_positions(children)
        )
        first_leaf = np.full(unfolded.size, len(unfolded.leaves), dtype=kind)
        first_leaf[unfolded.leaves] = np.arange(len(unfolded.leaves))
        parents = np.zeros(self.count, dtype=kind)
        for number, siblings in reversed(list(enumerate(self.kinds))):
            start, first = self.kind_starts[number], self.first[number]
            numbered = np.arange(start, start + siblings.children.size)
            self.place_of_row[siblings.children] = numbered.reshape(siblings.children.shape)
            parents[first : first + len(siblings.parents)] = siblings.parents
            lowest = first_leaf[siblings.children].min(axis=1)
            first_leaf[siblings.parents] = np.minimum(first_leaf[siblings.parents], lowest)
        self.parent_of_branch: AnyArray = self.place_of_row[parents]
        self.parent_of_branch[0] = -1
        # Parents have smaller numbers than their children.
        order = 1 + np.lexsort((parents[1:], first_leaf[parents[1:]]))
        self.branch_of_rank: AnyArray = np.concatenate([[0], order]).astype(kind)
        self.rank_of_branch: AnyArray = np.empty_like(self.branch_of_rank)
        self.rank_of_branch[self.branch_of_rank] = np.arange(self.count)

    def list_path_places(self, rows: IntArray) -> IntArray:
        """List the places of given rows and of all rows above them, ascending."""
        levels, above = [], list_different(self.place_of_row[rows])
        while len(above):
            levels.append(above)
            above = list_different(self.parent_of_branch[self.branch_of_place[above]])
            above = above[above >= 0]
        return list_different(np.concatenate(levels)).astype(np.int64)

    def list_path_branches(self, rows: IntArray) -> IntArray:
        """List the branches of given rows and of all rows above them, ascending."""
        levels, above = [], list_different(self.branch_of_place[self.place_of_row[rows]])
        while len(above):
            levels.append(above)
            parents = self.parent_of_branch[above]
            above = list_different(self.branch_of_place[parents[parents >= 0]])
        return list_different(np.concatenate(levels)).astype(np.int64)

    def find_ranges(self, branches: IntArray) -> BranchRanges:
        """Join ascending branches to ranges."""
        kinds = self.kind_of_branch[branches]
        is_first = np.ones(len(branches), dtype=bool)
        is_first[1:] = (np.diff(branches) != 1) | (kinds[1:] != kinds[:-1])
        first = np.flatnonzero(is_first)
        lengths = np.diff(first, append=len(branches))
        return BranchRanges(branches[first], branches[first] + lengths, kinds[first])

    def list_branches(self, first: int, last: int) -> IntArray:
        """List the branches with ranks from `first` to `last - 1`, ascending."""
        return np.sort(self.branch_of_rank[first:last]).astype(np.int64)


@dataclass(frozen=True, eq=False)
class BranchRanges:
    """Branches as ascending ranges of their numbers, each of one kind.

    Attributes:
        starts: The first branch of each range, shape (n,).
        stops: The branch after the last of each range, shape (n,).
        kinds: The kind of the branches of each range, shape (n,).
    """

    starts: IntArray
    stops: IntArray
    kinds: IntArray

    def list_numbers(self) -> IntArray:
        """List the numbers of all branches, ascending."""
        return list_ranges(self.starts, self.stops - self.starts)

    def count_answers(self, widths: IntArray) -> IntArray:
        """Count the answers of each range, from the answers of a branch of each kind."""
        return np.asarray((self.stops - self.starts) * widths[self.kinds])

    def find_shared(self, other: BranchRanges, widths: IntArray) -> list[tuple[int, int, int]]:
        """Find the answers of branches that these ranges share with other ranges.

        Args:
            other: The other ranges.
            widths: The answers of a branch of each kind, shape (kinds,).

        Returns:
            Ranges of these answers: the index of the first among this object's answers and among
            the other's, and the number of answers.
        """
        first = np.searchsorted(other.stops, self.starts, side="right")
        counts = np.maximum(np.searchsorted(other.starts, self.stops) - first, 0)
        i, j = np.repeat(np.arange(len(first)), counts), list_ranges(first, counts)
        starts = np.maximum(self.starts[i], other.starts[j])
        lengths = (np.minimum(self.stops[i], other.stops[j]) - starts) * widths[self.kinds[i]]
        places = []
        for ranges, at in ((self, i), (other, j)):
            sizes = ranges.count_answers(widths)
            before = (starts - ranges.starts[at]) * widths[ranges.kinds[at]]
            places.append(((np.cumsum(sizes) - sizes)[at] + before)[lengths > 0].tolist())
        return list(zip(*places, lengths[lengths > 0].tolist(), strict=True))


class SlabPaths:
    """The rows of the tree with cells in a slab: some leaves, and all rows above them.

    The rows are in the order of their places. Children of one branch with consecutive places form a
    range.

    Args:
        branches: The branches of the tree.
        leaves: The rows of the leaves, shape (l,).

    Attributes:
        places: The place of each row, ascending, shape (n,).
        branches: The branch of each range, ascending, shape (ranges,).
    """

    def __init__(self, branches: TreeBranches, leaves: IntArray) -> None:
        self.places = branches.list_path_places(leaves)
        self._leaves = np.searchsorted(self.places, branches.place_of_row[leaves])
        of_row = branches.branch_of_place[self.places]
        is_new = np.diff(of_row, prepend=-1) != 0
        self._starts = np.flatnonzero(is_new | (np.diff(self.places, prepend=-2) != 1))
        self._stops = np.append(self._starts[1:], len(self.places))
        self.branches = of_row[self._starts]
        self._kinds = branches.kind_of_branch[self.branches]
        self._sums: list[tuple[slice, IntArray, IntArray]] = []
        first = np.flatnonzero(is_new)
        kinds = branches.kind_of_branch[of_row[first]]
        above = np.searchsorted(self.places, branches.parent_of_branch[of_row[first]])
        for kind in range(1, len(branches.kinds)):
            start, stop = np.searchsorted(kinds, [kind, kind + 1]).tolist()
            if start < stop:
                end = first[stop] if stop < len(first) else len(self.places)
                span = slice(int(first[start]), int(end))
                self._sums.append((span, first[start:stop] - span.start, above[start:stop]))

    def join_ranges(self, chosen: IntArray) -> list[tuple[int, int]]:
        """Join consecutive ranges, given by their indices, of branches of one kind.

        Returns:
            The first row of each joined range, and the row after its last.
        """
        starts, stops, kinds = self._starts[chosen], self._stops[chosen], self._kinds[chosen]
        is_apart = (self.places[starts[1:]] != self.places[stops[:-1] - 1] + 1) | (
            kinds[1:] != kinds[:-1]
        )
        ends = [0, *(np.flatnonzero(is_apart) + 1).tolist(), len(chosen)]
        return [
            (int(starts[first]), int(stops[last - 1]))
            for first, last in itertools.pairwise(ends)
            if first < last
        ]

    def sum_up(self, counts: AnyArray) -> AnyArray:
        """Sum counts of the leaves (l, R, r), in a type that holds the sums, to all rows (n, R,
        r)."""
        sums = np.zeros((len(self.places), *counts.shape[1:]), dtype=counts.dtype)
        sums[self._leaves] = counts
        for span, first, parents in reversed(self._sums):
            sums[parents] = np.add.reduceat(sums[span], first, axis=0, dtype=sums.dtype)
        return sums


def list_different(values: IntArray) -> IntArray:
    """List the distinct integers, ascending; np.unique takes ten times as long for many."""
    ordered = np.sort(values)
    is_first = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first]


def list_ranges(starts: IntArray, lengths: IntArray) -> IntArray:
    """List the integers of some ranges, one range after another."""
    ends = np.cumsum(lengths, dtype=np.int64)
    offsets = np.repeat(starts - (ends - lengths), to_positions(lengths))
    return np.asarray(offsets + np.arange(len(offsets)), dtype=np.int64)
