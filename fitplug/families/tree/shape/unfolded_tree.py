"""Unfolded trees: node trees with a row for each of the identical leaves.

Identical leaves are one node of a `NodeTree`, since their costs and variances are the same. Their
counts are not, so counts and estimates have a row for each leaf.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fitplug.families.tree.shape.node_tree import DistinctChildren, NodeTree
from fitplug.numeric import IntArray


@dataclass(frozen=True, eq=False)
class UnfoldedSiblings:
    """Nodes of one step of a tree that have equally many children.

    Attributes:
        step: The index of the step in `NodeTree.steps`.
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

    def take(self, chosen: IntArray | slice) -> UnfoldedSiblings:
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
    siblings: tuple[UnfoldedSiblings, ...]

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
        if isinstance(step, DistinctChildren):
            every = np.arange(len(step.parents))
            siblings.append(UnfoldedSiblings(i, step.depth, every, step.parents, step.children))
            continue
        first = np.searchsorted(ordered, step.children)
        for k, positions in list_by_count(step.counts):
            children = rows[first[positions, None] + np.arange(k)]
            siblings.append(
                UnfoldedSiblings(i, step.depth, positions, step.parents[positions], children)
            )
    ends = np.searchsorted(tree.depths, np.arange(int(tree.depths[-1]) + 1), side="right")
    ends[-1] += len(rows)
    return UnfoldedTree(ends, leaves, tuple(siblings))


def list_by_count(counts: IntArray) -> list[tuple[int, IntArray]]:
    """List the different counts, ascending, with the indices (b,) that have each of them."""
    order = np.argsort(counts, kind="stable")
    different, first = np.unique(counts[order], return_index=True)
    return list(zip(different.tolist(), np.split(order, first[1:]), strict=True))
