"""Unfolded trees: the rows of counts and estimates, where each of identical leaves has its own."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fitplug.families.tree.shape.node_tree import NodeTree
from fitplug.numeric import AnyArray, IntArray, to_positions


@dataclass(frozen=True, eq=False)
class Siblings:
    """The children of nodes of one step of a tree that have equally many.

    Attributes:
        step: The index of the step in `NodeTree.steps`; -1 for the root, which is its own parent.
        depth: The depth of the children.
        positions: The index of each node among the parents of the step, shape (b,).
        parents: The row of each node, shape (b,).
        children: The rows of their children, shape (b, k).
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
    """The rows of a tree: its nodes by their numbers, and then each identical leaf.

    The row of a node that stands for identical leaves is not used.

    Attributes:
        ends: The number of the rows that are no deeper than each depth, shape (depths,).
        leaves: The row of each node of the finest level asked for, shape (l,).
        siblings: The nodes with children. Those of a step follow each other, in the order of the
            steps and then of k.
    """

    ends: IntArray
    leaves: IntArray
    siblings: tuple[Siblings, ...]

    @property
    def size(self) -> int:
        """The number of rows."""
        return int(self.ends[-1])


def unfold_tree(tree: NodeTree) -> UnfoldedTree:
    """Give each of the identical leaves of a tree a row."""
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
    """List the different counts, ascending, with the indices (b,) that have each of them."""
    order = np.argsort(counts, kind="stable")
    different, first = np.unique(counts[order], return_index=True)
    return list(zip(different.tolist(), np.split(order, first[1:]), strict=True))


class TreeBranches:
    """The branches of an unfolded tree: the nodes with children, by what is measured of these.

    Branch 0 is the root's own count, and each other one a node with its children. Branches have
    numbers in the order of a block's answers, and ranks in the order of their first leaves, parents
    first: branches whose ranks follow each other need few slabs of leaves, and few ranges of
    estimates need them. Each row belongs to one branch: row 0 to the root's, and a child to its
    parent's.

    Attributes:
        kinds: The branches of one step with equally many children, in the order of their numbers.
        first: The number of the first branch of each kind, shape (kinds,).
        count: The number of branches.
        kind_sizes: The number of branches of each kind, shape (kinds,).
        branch_of_row: The branch that each row belongs to, -1 for rows that are not used, (rows,).
        child_of_row: The index of each row among the children of its branch, shape (rows,).
        parent_of_row: The row above each row, -1 for none, shape (rows,).
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
        kind = np.int32 if max(unfolded.size, self.count) < 2**31 else np.int64
        self.branch_of_row: AnyArray = np.full(unfolded.size, -1, dtype=kind)
        self.child_of_row: AnyArray = np.zeros(unfolded.size, dtype=kind)
        self.parent_of_row: AnyArray = np.full(unfolded.size, -1, dtype=kind)
        self.kind_of_branch: AnyArray = np.repeat(
            np.arange(len(self.kinds), dtype=kind), to_positions(self.kind_sizes)
        )
        first_leaf = np.full(unfolded.size, len(unfolded.leaves), dtype=kind)
        first_leaf[unfolded.leaves] = np.arange(len(unfolded.leaves))
        self.branch_of_row[0] = 0
        parents = np.zeros(self.count, dtype=kind)
        for number, siblings in reversed(list(enumerate(unfolded.siblings, 1))):
            b, k = siblings.children.shape
            branches = self.first[number] + np.arange(b)
            self.branch_of_row[siblings.children] = branches[:, None]
            self.child_of_row[siblings.children] = np.arange(k)
            self.parent_of_row[siblings.children] = siblings.parents[:, None]
            parents[branches] = siblings.parents
            lowest = first_leaf[siblings.children].min(axis=1)
            first_leaf[siblings.parents] = np.minimum(first_leaf[siblings.parents], lowest)
        # Parents have smaller numbers than their children.
        order = 1 + np.lexsort((parents[1:], first_leaf[parents[1:]]))
        self.branch_of_rank: AnyArray = np.concatenate([[0], order]).astype(kind)
        self.rank_of_branch: AnyArray = np.empty_like(self.branch_of_rank)
        self.rank_of_branch[self.branch_of_rank] = np.arange(self.count)

    def list_path_rows(self, rows: IntArray) -> IntArray:
        """List some rows and all that are above them, ascending by branch and then by child."""
        levels, above = [], list_different(rows)
        while len(above):
            levels.append(above)
            above = list_different(self.parent_of_row[above])
            above = above[above >= 0]
        every = list_different(np.concatenate(levels)).astype(np.int64)
        return every[np.lexsort((self.child_of_row[every], self.branch_of_row[every]))]

    def list_row_branches(self, rows: IntArray) -> IntArray:
        """List the branches that some rows belong to, ascending."""
        return list_different(self.branch_of_row[rows]).astype(np.int64)

    def count_down_to(self, depth: int) -> int:
        """Count the branches whose children are no deeper than a depth: their numbers are least."""
        return int(self.kind_sizes[[kind.depth <= depth for kind in self.kinds]].sum())

    def list_branches(self, first: int, last: int) -> IntArray:
        """List the branches with ranks from `first` to `last - 1`, ascending."""
        return np.sort(self.branch_of_rank[first:last]).astype(np.int64)


class SlabPaths:
    """The rows of the tree that have cells in a slab: some leaves, and all rows above them.

    Args:
        branches: The branches of the tree.
        leaves: The rows of the leaves, shape (l,).

    Attributes:
        rows: The rows, ascending by branch and then by child, shape (n,).
        branches: The branch of each row, shape (n,).
        kinds: By kind of branch, the range of its rows.
    """

    def __init__(self, branches: TreeBranches, leaves: IntArray) -> None:
        self.rows = branches.list_path_rows(leaves)
        self.branches = branches.branch_of_row[self.rows]
        numbers = branches.kind_of_branch[self.branches]
        order = np.argsort(self.rows)
        ordered = self.rows[order]
        self._leaves = order[np.searchsorted(ordered, leaves)]
        self.kinds: dict[int, slice] = {}
        self._sums: list[tuple[slice, IntArray, IntArray]] = []
        for kind in list_different(numbers).tolist():
            ends = np.searchsorted(numbers, [kind, kind + 1]).tolist()
            span = self.kinds[kind] = slice(*ends)
            first = np.flatnonzero(np.diff(self.branches[span], prepend=-1))
            parents = branches.parent_of_row[self.rows[span][first]]
            if kind:
                above = order[np.searchsorted(ordered, parents)]
                self._sums.append((span, first, above))

    def sum_up(self, counts: AnyArray) -> AnyArray:
        """Sum counts of the leaves (l, R, r) to all rows (n, R, r); sums have room."""
        sums = np.zeros((len(self.rows), *counts.shape[1:]), dtype=counts.dtype)
        sums[self._leaves] = counts
        for span, first, parents in reversed(self._sums):
            sums[parents] = np.add.reduceat(sums[span], first, axis=0, dtype=sums.dtype)
        return sums


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
