"""Tree shapes: the nodes of a hierarchy that a workload distinguishes.

Depths run from the top level down: P top nodes, then the levels that queries use, then the leaves.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from fitplug.domain import Attribute, get_codec
from fitplug.errors import DomainError
from fitplug.numeric import (
    AnyArray,
    FloatArray,
    IndexArray,
    IntArray,
    frozen_property,
    to_positions,
)
from fitplug.workload import Workload

LEAST_TREE = 64
"""The product family divides attributes with levels and more leaves than this level by level."""

MAX_TOP = 600
"""The most nodes of the top level, whose covariance is dense."""


@dataclass(frozen=True, eq=False)
class Siblings:
    """The b nodes of a depth that have k > 1 children each.

    Attributes:
        depth: The depth of the nodes.
        k: The number of children of each node.
        parents: The nodes' indices at that depth, shape (b,).
        positions: The nodes' indices among all nodes that branch, shape (b,).
        children: The indices of their children at the next depth, shape (b, k).
    """

    depth: int
    k: int
    parents: IntArray
    positions: IntArray
    children: IntArray


@dataclass(frozen=True, eq=False)
class TreeShape:
    """The nodes that a workload distinguishes, from the top level (depth 0) to the leaves.

    The V nodes that branch (k > 1 children) are ordered by depth, then by leaves.

    Attributes:
        first: Per depth the first leaf of each node, ascending; a node's leaves are consecutive.
        depths: The depth of each level that queries use at the top or below.
        above: For each coarser level that queries use, and for "total", the first top node of each
            node.
        deepest: The depth of the finest level that queries use.
    """

    first: tuple[IndexArray, ...]
    depths: dict[str, int]
    above: dict[str, IndexArray]
    deepest: int

    @property
    def n(self) -> int:
        """The number of leaves."""
        return len(self.first[-1])

    @property
    def top(self) -> int:
        """P, the number of top nodes."""
        return len(self.first[0])

    @property
    def steps(self) -> int:
        """The number of depths below the top."""
        return len(self.first) - 1

    @frozen_property
    def first_children(self) -> tuple[IntArray, ...]:
        """Per step the first child of each parent."""
        return tuple(
            np.searchsorted(below, first)
            for first, below in zip(self.first, self.first[1:], strict=False)
        )

    @frozen_property
    def children(self) -> tuple[IntArray, ...]:
        """Per step the number of children of each parent."""
        return tuple(
            np.diff(children, append=len(below))
            for children, below in zip(self.first_children, self.first[1:], strict=True)
        )

    @frozen_property
    def parents(self) -> tuple[IntArray, ...]:
        """Per step the parent of each child."""
        return tuple(np.repeat(np.arange(len(k)), k) for k in self.children)

    @frozen_property
    def leaves(self) -> tuple[IntArray, ...]:
        """Per depth the number of leaves of each node."""
        return tuple(np.diff(first, append=self.n) for first in self.first)

    @frozen_property
    def siblings(self) -> tuple[Siblings, ...]:
        """The nodes that branch, by step and by number of children."""
        siblings, start = [], 0
        for depth, (k, child) in enumerate(zip(self.children, self.first_children, strict=True)):
            position = start + np.cumsum(k > 1) - 1
            start += int((k > 1).sum())
            order = np.argsort(k, kind="stable")
            sizes, ends = np.unique(k[order], return_index=True)
            for size, nodes in zip(sizes.tolist(), np.split(order, ends[1:]), strict=True):
                if size > 1:
                    children = child[nodes, None] + np.arange(size)
                    siblings.append(Siblings(depth, size, nodes, position[nodes], children))
        return tuple(siblings)

    @frozen_property
    def branching_children(self) -> IntArray:
        """The number of children of each node that branches, shape (V,)."""
        return np.concatenate([k[k > 1] for k in self.children] or [np.zeros(0, dtype=np.int64)])

    @frozen_property
    def branching_depths(self) -> IntArray:
        """The depth of each node that branches, shape (V,)."""
        return np.repeat(np.arange(self.steps), [int((k > 1).sum()) for k in self.children])

    @property
    def branching(self) -> int:
        """V, the number of nodes that branch."""
        return len(self.branching_children)

    def arrange_by_step(self, values: AnyArray, fill: Any) -> list[AnyArray]:
        """Arrange values of the nodes that branch by step.

        Args:
            values: Shape (V,).
            fill: The value of nodes with one child.

        Returns:
            Per step the value of every parent.
        """
        by_step, start = [], 0
        for k in self.children:
            here = np.full(len(k), fill, dtype=values.dtype)
            count = int((k > 1).sum())
            here[k > 1] = values[start : start + count]
            start += count
            by_step.append(here)
        return by_step

    def sum_leaves(self, values: AnyArray, depth: int) -> AnyArray:
        """Sum values of the leaves (..., n) to the nodes of a depth (..., nodes)."""
        return np.add.reduceat(values, self.first[depth], axis=-1)

    @frozen_property
    def pairs(self) -> IntArray:
        """The first leaves of any two of the finest parents, and the first two leaves of each one.

        Any pair of leaves has the nodes of one of these pairs above it. Shape (pairs, 2).
        """
        first = self.first[max(self.steps - 1, 0)]
        same = first[np.diff(first, append=self.n) > 1]
        i, j = np.indices((len(first),) * 2).reshape(2, -1)
        between = np.stack([first[i], first[j]], axis=1)
        return np.concatenate([between, np.stack([same, same + 1], axis=1)])

    def find_nodes(self, leaves: IntArray, depth: int) -> IntArray:
        """Find the node of a depth above each of some leaves, or the leaf itself."""
        return np.searchsorted(self.first[depth], leaves, side="right") - 1

    def count_nodes(self, level: str) -> int:
        """Count the nodes of a level."""
        if level in self.above:
            return len(self.above[level])
        return len(self.first[self.depths[level]])

    def find_top_nodes(self, level: str) -> IntArray:
        """Find the top node above each node of a level at the top or below, shape (nodes,)."""
        first = self.first[self.depths[level]]
        return np.searchsorted(self.first[0], first, side="right") - 1

    def build_top_rows(self, level: str) -> FloatArray:
        """Build the rows of a level above the top as sums of top nodes, shape (nodes, P)."""
        first = self.above[level]
        node = np.searchsorted(first, np.arange(self.top), side="right") - 1
        return (np.arange(len(first))[:, None] == node).astype(np.float64)


def find_tree_shape(
    hierarchy: Attribute, asked: Collection[str], *, most: int = MAX_TOP, top: str | None = None
) -> TreeShape:
    """Find the nodes of the levels that queries use.

    Args:
        hierarchy: An attribute that has levels.
        asked: Names of levels; "identity" is the finest, and "total" need not be named.
        most: The most nodes of the top level.
        top: The top level. By default it is the second finest level in `asked`, since the leaves
            below it are identical; if this has more than `most` nodes, the finest of all levels
            with at most `most` nodes, or one root of all leaves.

    Returns:
        The tree.

    Raises:
        DomainError: If a name is not a level, or the top is below all levels in `asked`.
    """
    codec = get_codec(hierarchy)
    levels = codec.levels
    for name in asked:
        if name not in (*levels, "identity", "total"):
            codec.intervals(name)
    first = {level: to_positions(codec.intervals(level)[:, 0]) for level in levels}
    named = [level for level in levels if level in asked]
    if "identity" in asked and levels[-1] not in named:
        named.append(levels[-1])
    if top is None and len(named) > 1:
        fit = [level for level in levels if len(first[level]) <= most]
        at = min(levels.index(named[-2]), len(fit) - 1)
        top = levels[at] if at >= 0 else None
    elif top is not None and (not named or levels.index(top) > levels.index(named[-1])):
        raise DomainError(f"level {top!r} is finer than all levels that the queries use")
    start = -1 if top is None else levels.index(top)
    first_leaves = [np.zeros(1, dtype=np.intp) if top is None else first[top]]
    depths, above = {}, {"total": np.zeros(1, dtype=np.intp)}
    for level in named:
        if levels.index(level) < start:
            above[level] = np.searchsorted(first_leaves[0], first[level])
            continue
        if len(first[level]) > len(first_leaves[-1]):
            first_leaves.append(first[level])
        depths[level] = len(first_leaves) - 1
    deepest = len(first_leaves) - 1
    if len(first_leaves[-1]) < hierarchy.size:
        first_leaves.append(first[levels[-1]])
    if levels[-1] in depths:
        depths["identity"] = depths[levels[-1]]
    return TreeShape(tuple(first_leaves), depths, above, deepest)


def find_tree_levels(workload: Workload, name: str) -> tuple[str, ...]:
    """Find the levels that a workload uses of an attribute that can be a tree.

    Returns:
        The levels' names; none if the attribute has no levels or at most LEAST_TREE leaves, or if
        queries use it other than by levels, or targets vary within a level.
    """
    attribute = get_codec(workload.domain[name])
    if not attribute.levels or attribute.size <= LEAST_TREE:
        return ()
    groups = workload.groups
    factors = [f for f in groups.factors if f.attribute == name and f.kind != "total"]
    levels = tuple(dict.fromkeys(f.kind for f in factors))
    if not set(levels) <= {"identity", *attribute.levels}:
        return ()
    for group in map(groups.__getitem__, groups.with_arrays.tolist()):
        for axis, factor in enumerate(group.factors):
            if factor in factors and targets_vary(group.variances, axis):
                return ()
    return levels


def find_first_cells(attribute: Attribute) -> dict[str, IntArray]:
    """Find the first cell of each node of each level, the coarsest first.

    An attribute without levels has one: its cells.
    """
    codec = get_codec(attribute)
    if not codec.levels:
        return {"identity": np.arange(attribute.size)}
    return {level: codec.intervals(level)[:, 0] for level in codec.levels}


def is_tree(workload: Workload, name: str) -> bool:
    """Tell whether queries use an attribute only by its levels or its cells, with any targets."""
    kinds = ("identity", "total", *get_codec(workload.domain[name]).levels)
    return all(
        factor.kind in kinds
        for group in workload.groups
        for factor in group.factors
        if factor.attribute == name
    )


def targets_vary(targets: FloatArray, axis: int) -> bool:
    """Tell whether targets differ along an axis."""
    # Targets are views: a value that many queries share is stored once, with stride 0.
    once = targets[tuple(slice(None if step else 1) for step in targets.strides)]
    return bool((once != once.take([0], axis)).any())
