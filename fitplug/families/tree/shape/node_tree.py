"""Node trees: the nodes of a hierarchy that queries distinguish, from one root to the leaves.

The leaves are the nodes of the finest level that queries use; nothing below them is distinguished.
Three steps make the tree smaller without loss:

1. A node with one child and this child are one node, as they count the same records.
2. Sibling leaves with equal targets are identical, so all of them are one node, with
   a multiplicity.
3. A node with more than `MOST_CHILDREN` children that are not identical gets nodes between it and
   its children, each of which holds similar children. No query asks for these nodes; they bound
   the size of the integer matrix that a strategy has for each node.

Identical leaves are one node of a `NodeTree`, since their costs and variances are equal. Their
counts are not, so counts and estimates have a row for each leaf, as in
`fitplug.families.tree.shape.unfolded_tree.UnfoldedTree`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fitplug.numeric import (
    AnyArray,
    BoolArray,
    FloatArray,
    IndexArray,
    IntArray,
    frozen_property,
    to_positions,
)

MOST_CHILDREN = 256
"""The most distinct children of a node."""

FEWEST_IDENTICAL = 7
"""The fewest identical leaves to merge, besides 2 and 4. For fewer, contrasts would need at
least a sixth more draws of noise than there are dimensions, so such leaves are separate nodes."""


@dataclass(frozen=True, eq=False)
class TreeStep:
    """The b nodes of one depth with k > 1 children each, or with identical leaves as children.

    Attributes:
        parent_depth: The depth of the nodes.
        depth: The depth of the children.
        parents: The nodes, shape (b,).
        children: The children of each node, shape (b, k). One node stands for identical leaves, so
            k is 1 for them.
        counts: The number of identical leaves of each node, at least 2, shape (b,); None if
            children are separate nodes.
    """

    parent_depth: int
    depth: int
    parents: IntArray
    children: IntArray
    counts: IntArray | None = None


class NodePlaces(NamedTuple):
    """The position of each node in the steps of its tree, shape (N,) each; -1 for the root.

    Attributes:
        steps: The index of the step in which the node is a child.
        positions: The index of the node's parent among the parents of the step.
        children: The node's index among the children of its parent.
        parents: The node's parent.
    """

    steps: IntArray
    positions: IntArray
    children: IntArray
    parents: IntArray


@dataclass(frozen=True, eq=False)
class NodeTree:
    """The nodes of a tree. Node 0 is the root, and parents have smaller numbers than children.

    The root has depth 0, and each level with more nodes than the one above has the next depth. A
    node inserted between a node and its children has the children's depth.

    Attributes:
        size: N, the number of nodes.
        leaf_nodes: The node of each cell of the attribute, shape (n,).
        starts: The first cell of each node of the finest level that queries use, ascending, shape
            (l,).
        level_nodes: For each level that queries use, the tree node of each of its nodes, shape
            (nodes,).
        level_depths: The depth of each level that queries use.
        steps: The nodes with children, from the root downwards: a node is in a later step than
            its parent, and the depths of the children do not decrease.
    """

    size: int
    leaf_nodes: IntArray
    starts: IndexArray
    level_nodes: Mapping[str, IntArray]
    level_depths: Mapping[str, int]
    steps: tuple[TreeStep, ...]

    @frozen_property
    def leaves(self) -> IntArray:
        """The nodes without children, ascending, shape (leaves,)."""
        has_children = np.zeros(self.size, dtype=bool)
        for step in self.steps:
            has_children[step.parents] = True
        return np.flatnonzero(~has_children)

    @frozen_property
    def multiplicities(self) -> IntArray:
        """The number of identical nodes that each node stands for, shape (N,)."""
        numbers = np.ones(self.size, dtype=np.int64)
        for step in self.steps:
            if step.counts is not None:
                numbers[step.children[:, 0]] = step.counts
        return numbers

    @frozen_property
    def depths(self) -> IntArray:
        """The depth of each node, shape (N,)."""
        depths = np.zeros(self.size, dtype=np.int64)
        for step in self.steps:
            depths[step.children] = step.depth
        return depths

    def add_upwards(self, values: AnyArray) -> AnyArray:
        """Add the values of children to those of their parents, from the leaves up, in place.

        Args:
            values: Shape (N, ...). A leaf that stands for identical ones has the sum of their
                values.

        Returns:
            The same array.
        """
        for step in reversed(self.steps):
            values[step.parents] += values[step.children].sum(axis=1)
        return values

    def sum_leaves(self, values: FloatArray) -> FloatArray:
        """Sum values of the leaves (leaves, ...) to all nodes, (N, ...)."""
        sums = np.zeros((self.size, *values.shape[1:]))
        sums[self.leaves] = values
        return np.asarray(self.add_upwards(sums))

    def repeat_downwards(self, values: FloatArray, depth: int) -> FloatArray:
        """Copy values (N, ...) of the nodes of a depth to all nodes below them, in place."""
        for step in self.steps:
            if step.depth > depth:
                values[step.children] = values[step.parents, None]
        return values

    @frozen_property
    def places(self) -> NodePlaces:
        """The position of each node in the steps."""
        steps, positions, children, parents = (
            np.full(self.size, -1, dtype=np.int64) for _ in range(4)
        )
        for i, step in enumerate(self.steps):
            steps[step.children] = i
            positions[step.children] = np.arange(len(step.parents))[:, None]
            children[step.children] = np.arange(step.children.shape[1])
            parents[step.children] = step.parents[:, None]
        return NodePlaces(steps, positions, children, parents)


def build_node_tree(
    first: Mapping[str, IntArray],
    cells: int,
    weights: Mapping[str, FloatArray],
    *,
    merge: bool = True,
) -> NodeTree:
    """Build the tree of the levels that queries use.

    Args:
        first: For each level that queries use, the coarsest first, the first cell of each node,
            ascending, shape (nodes,).
        cells: n, the number of cells.
        weights: For each level, numbers that distinguish its nodes, shape (nodes, w): leaves with
            equal numbers are identical, and nodes with similar numbers may share an inserted node
            between them and their parent.
        merge: Whether identical leaves become one node.

    Returns:
        The tree.
    """
    builder = _Builder(cells)
    starts = [np.zeros(1, dtype=np.int64)]
    level_depths: dict[str, int] = {}
    # Levels with the same nodes are one depth; `depth_weights` has the numbers of each depth.
    depth_weights = [np.zeros((1, 0))]
    for level, first_cells in first.items():
        if len(first_cells) > len(starts[-1]):
            starts.append(first_cells)
            depth_weights.append(weights[level])
        else:
            depth_weights[-1] = np.hstack([depth_weights[-1], weights[level]])
        level_depths[level] = len(starts) - 1
    nodes = builder.build(starts, depth_weights, merge)
    finest = to_positions(starts[-1])
    leaf_nodes = np.repeat(nodes[-1], np.diff(finest, append=cells))
    return NodeTree(
        size=builder.size,
        leaf_nodes=leaf_nodes,
        starts=finest,
        level_nodes={level: nodes[depth] for level, depth in level_depths.items()},
        level_depths=level_depths,
        steps=tuple(builder.steps),
    )


class _Builder:
    """The nodes and steps so far."""

    def __init__(self, cells: int) -> None:
        self.cells = cells
        self.size = 1
        self.ends = [1]  # the nodes of depth d have numbers below ends[d]
        self.steps: list[TreeStep] = []

    def build(
        self, starts: Sequence[IntArray], weights: Sequence[FloatArray], merge: bool
    ) -> list[IntArray]:
        """Build all depths, and return the node of each of their entries."""
        nodes = [np.zeros(1, dtype=np.int64)]
        for depth in range(len(starts) - 1):
            nodes.append(self._build_depth(depth, nodes[-1], starts, weights, merge))
            self.ends.append(self.size)
        return nodes

    def _build_depth(
        self,
        depth: int,
        above: IntArray,
        starts: Sequence[IntArray],
        weights: Sequence[FloatArray],
        merge: bool,
    ) -> IntArray:
        """Build the nodes of a depth below those of the depth above."""
        at_depth, below = starts[depth], starts[depth + 1]
        first_child = np.searchsorted(below, at_depth)
        counts = np.diff(first_child, append=len(below))
        nodes = np.full(len(below), -1, dtype=np.int64)
        nodes[first_child[counts == 1]] = above[counts == 1]
        is_identical = np.zeros(len(at_depth), dtype=bool)
        if merge and depth + 2 == len(starts):
            is_identical = _find_identical(weights[depth + 1], first_child, counts)
            parents = np.flatnonzero(is_identical)
            if len(parents):
                children = self._add_nodes(len(parents))
                for parent_depth, chosen in self._group_by_depth(above[parents]):
                    at = parents[chosen]
                    self.steps.append(
                        TreeStep(
                            parent_depth,
                            depth + 1,
                            above[at],
                            children[chosen, None],
                            counts[at].astype(np.int64),
                        )
                    )
                nodes[np.repeat(is_identical, counts)] = np.repeat(children, counts[parents])
        others = np.flatnonzero((counts > 1) & ~is_identical)
        if len(others):
            # Similar children become consecutive: sort them by size, then by weights.
            sizes = np.diff(below, append=self.cells)
            parent_of = np.repeat(np.arange(len(at_depth)), counts)
            keys = [np.arange(len(below)), *weights[depth + 1].T[::-1], sizes, parent_of]
            order = np.lexsort(keys)
            nodes[order] = self._build_children(
                depth + 1, above[others], first_child[others], counts[others], nodes[order]
            )
        return nodes

    def _build_children(
        self, depth: int, parents: IntArray, start: IndexArray, counts: IndexArray, nodes: IntArray
    ) -> IntArray:
        """Build the children of some nodes, and put them at nodes[start:start + counts]."""
        while (wide := counts > MOST_CHILDREN).any():
            # Split these nodes' children into groups of similar size, which become their children.
            groups = np.minimum(-(-counts[wide] // MOST_CHILDREN), MOST_CHILDREN)
            group_of = np.repeat(np.arange(len(groups)), groups)
            within = np.arange(len(group_of)) - np.repeat(np.cumsum(groups) - groups, groups)
            many = counts[wide][group_of].astype(np.int64)  # products are larger than positions
            begin = to_positions(within * many // groups[group_of])
            end = to_positions((within + 1) * many // groups[group_of])
            made = self._add_siblings(depth, parents[wide], groups)
            parents = np.concatenate([parents[~wide], made])
            start = np.concatenate([start[~wide], start[wide][group_of] + begin])
            counts = np.concatenate([counts[~wide], end - begin])
        made = self._add_siblings(depth, parents, counts)
        offsets = np.arange(len(made)) - np.repeat(np.cumsum(counts) - counts, counts)
        nodes[np.repeat(start, counts) + offsets] = made
        return nodes

    def _add_siblings(self, depth: int, parents: IntArray, counts: IndexArray) -> IntArray:
        """Add children of some nodes, and return them one parent after another."""
        made = self._add_nodes(int(counts.sum()))
        start = np.cumsum(counts) - counts
        for k in np.unique(counts).tolist():
            same = np.flatnonzero(counts == k)
            for parent_depth, chosen in self._group_by_depth(parents[same]):
                alike = same[chosen]
                children = made[start[alike, None] + np.arange(k)]
                self.steps.append(TreeStep(parent_depth, depth, parents[alike], children))
        return made

    def _group_by_depth(self, nodes: IntArray) -> Iterator[tuple[int, IntArray]]:
        """Yield each depth of the nodes, and the indices of the nodes with this depth."""
        depths = np.searchsorted(self.ends, nodes, side="right")
        for depth in np.unique(depths).tolist():
            yield depth, np.flatnonzero(depths == depth)

    def _add_nodes(self, count: int) -> IntArray:
        """Number new nodes."""
        self.size += count
        return np.arange(self.size - count, self.size, dtype=np.int64)


def _find_identical(weights: FloatArray, first_child: IndexArray, counts: IndexArray) -> BoolArray:
    """Find the parents whose children have equal weights and a suitable number for contrasts."""
    suits = (counts >= FEWEST_IDENTICAL) | (counts == 2) | (counts == 4)
    if not weights.shape[1]:
        return suits
    differs = (weights != weights[np.repeat(first_child, counts)]).any(axis=1)
    return np.asarray(suits & (np.add.reduceat(differs, first_child) == 0))
