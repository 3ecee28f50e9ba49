"""Blocks that are trees: one attribute is a hierarchy, which queries use level by level.

The other attributes are symmetric, or dense with few cells together. Each subset A of the symmetric
ones has a block Sigma_A (docs/theory/symmetry.md) over the leaves of the tree and the D dense
cells, and a block is one of the following family (docs/theory/trees.md). With R_v the sums of the
k_v children of node v, over the dense cells,

    Sigma_A^-1 = R_0' Y_0 R_0 + sum_v R_v' (X_v (x) Y_v) R_v    X_v u_v = 0,  1'u_v = 1

for the root 0, with X_v >= 0 of shape (k_v, k_v) and rank k_v - 1, and Y_v > 0 over the children's
classes of dense cells. So the noise of a node's children is u_v times the node's, plus an
independent part of covariance X_v^+ (x) Y_v^-1 on the contrasts of u_v:

    covariance of child j of v:  u_vj^2 (covariance of v) + (X_v^+)_jj Y_v^-1
    profile of child j of v:     profile of v + (X_v)_jj diag Y_v

Both are sums along paths from the root, linear in the nodes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fitplug.domain import get_shape, suggest_fewer_cells
from fitplug.errors import WorkloadError
from fitplug.families.base.structure import Structure, list_names
from fitplug.families.base.tree_shape import find_first_cells, targets_vary
from fitplug.families.tree.shape.node_tree import (
    NodeTree,
    build_node_tree,
)
from fitplug.families.tree.shape.root_totals import RootTotals, find_no_totals
from fitplug.families.tree.shape.unfolded_tree import UnfoldedTree, unfold_tree
from fitplug.numeric import AnyArray, FloatArray, IntArray, freeze, frozen_property
from fitplug.workload import CellClasses, check_coefficients, find_classes

MAX_NODES = 20_000_000
"""The most nodes of all blocks together: they take about 3 GB during a design."""


@dataclass(frozen=True, eq=False)
class LevelNodes:
    """The distinguished nodes of one level.

    Attributes:
        depth: The depth of the level.
        nodes: The distinct nodes, ascending, shape (r,).
        positions: The index in `nodes` of each node of the level, shape (nodes of the level,).
        first: The first node of the level that each distinct node stands for, shape (r,).
        counts: The number of nodes of the level that each distinct node stands for, shape (r,).
    """

    depth: int
    nodes: IntArray
    positions: IntArray
    first: IntArray
    counts: IntArray


@dataclass(frozen=True, eq=False)
class GroupPart:
    """A block's contribution to one group: multiple * N (covariance of each node) N'.

    Attributes:
        group: The group's index in the workload.
        level: The nodes that the group uses.
        matrix: N over the dense cells, shape (rows of each node, D).
        rows: The structure's rows as a slice, in C order of (nodes, rows of each node).
        multiple: w_A prod_{a in A_t - A} n_a^-2.
    """

    group: int
    level: LevelNodes
    matrix: FloatArray
    rows: slice
    multiple: float


@dataclass(frozen=True, eq=False)
class TreeStructure(Structure):
    """Blocks over the symmetric attributes' subsets, each over the leaves of one tree.

    Within each group, rows are in C order of (distinguished nodes, rows over the dense cells).

    Attributes:
        tree_attribute: The attribute that is the tree.
        merges_leaves: Whether identical leaves are one node of the tree.
    """

    tree_attribute: str
    merges_leaves: bool

    def __str__(self) -> str:
        described = (
            f"{self.workload.domain[self.tree_attribute].size:,} leaves of {self.tree_attribute}"
        )
        if self.dense:
            described += f" x {self.cells:,} cells of {', '.join(self.dense)}"
        described += f", a tree of {self.tree.size:,} different nodes"
        if not self.symmetric:
            return described
        free = f"{len(self.symmetric)} symmetric attributes ({list_names(self.symmetric)})"
        return f"{free}: {len(self.blocks):,} blocks over {described}"

    @property
    def dense(self) -> tuple[str, ...]:
        return tuple(name for name in self.asymmetric if name != self.tree_attribute)

    @property
    def profile_attributes(self) -> tuple[str, ...]:
        return self.asymmetric

    @property
    def names_in_files(self) -> Mapping[str, tuple[str, ...]]:
        merged = ("merged",) if self.merges_leaves else ()
        return {"dense": self.dense, "ordered": (), "tree": (self.tree_attribute, *merged)}

    @property
    def holds_optimum(self) -> bool:
        return False

    @property
    def differences(self) -> int:
        """The number of distinguished cells: the distinct leaves times the dense cells, in C
        order."""
        return len(self.tree.leaves) * self.cells

    def arrange_by_cell(self, values: FloatArray) -> FloatArray:
        by_node = np.zeros((self.tree.size, self.cells))
        by_node[self.tree.leaves] = values.reshape(-1, self.cells)
        domain = self.workload.domain
        names = (self.tree_attribute, *self.dense)
        shaped = by_node[self.tree.leaf_nodes].reshape(get_shape(domain, names))
        return np.asarray(shaped.transpose([names.index(name) for name in self.asymmetric]))

    def take_least(self, values: FloatArray) -> FloatArray:
        names = (self.tree_attribute, *self.dense)
        by_cell = values.transpose([self.asymmetric.index(name) for name in names])
        by_cell = by_cell.reshape(len(self.tree.leaf_nodes), -1)
        by_node = np.full((self.tree.size, self.cells), np.inf)
        np.minimum.at(by_node, self.tree.leaf_nodes, by_cell)
        return by_node[self.tree.leaves].ravel()

    def check_size(self) -> None:
        nodes = self.tree.size * len(self.blocks)
        if nodes > MAX_NODES:
            raise WorkloadError(
                f"queries use {self.tree.size:,} nodes of {self.tree_attribute!r} in each of "
                f"{len(self.blocks):,} combinations with other attributes; the limit is "
                f"{MAX_NODES // len(self.blocks):,}. Use "
                f"{suggest_fewer_cells(self.workload.domain, (self.tree_attribute,))}."
            )

    def build_block_matrix(self, block: int) -> FloatArray:
        """Build the block's rows over the dense cells, at the root or below, shape (r, D)."""
        return np.concatenate([part.matrix for part in self.parts[block]])

    def find_rows(self, block: int, group: int) -> slice:
        groups, _ = self.subsets.find_groups(block)
        lengths = [len(self.group_matrices[g]) for g in groups.tolist()]
        at = groups.tolist().index(group)
        return slice(sum(lengths[:at]), sum(lengths[: at + 1]))

    @frozen_property
    def group_matrices(self) -> tuple[FloatArray, ...]:
        """N_t of each group over the dense cells, shape (rows of each node, D).

        Raises:
            WorkloadError: If all coefficients are zero, or some are out of range.
        """
        matrices = tuple(self.build_rows(g, self.dense) for g in range(len(self.workload.groups)))
        check_coefficients(matrices)
        return matrices

    @frozen_property
    def tree(self) -> NodeTree:
        """The nodes that queries and their targets distinguish."""
        attribute = self.workload.domain[self.tree_attribute]
        asked = {self._levels[g] for g in range(len(self.workload.groups))}
        first = {k: cells for k, cells in find_first_cells(attribute).items() if k in asked}
        columns: dict[str, list[FloatArray]] = {level: [] for level in first}
        for g, group in enumerate(self.workload.groups):
            axis = self.find_tree_axis(g)
            if axis is not None and targets_vary(group.variances, axis):
                columns[self._levels[g]].append(1 / self._read_targets(g))
        return build_node_tree(
            first,
            attribute.size,
            {
                level: np.hstack([np.zeros((len(first[level]), 0)), *numbers])
                for level, numbers in columns.items()
            },
            merge=self.merges_leaves,
        )

    @frozen_property
    def level_nodes(self) -> Mapping[str, LevelNodes]:
        """The nodes of each level by name; "total" is the root."""
        root = np.zeros(1, dtype=np.int64)
        by_level = {"total": LevelNodes(0, root, root, root, np.ones(1, dtype=np.int64))}
        for level, nodes in self.tree.level_nodes.items():
            different, first, positions, counts = np.unique(
                nodes, return_index=True, return_inverse=True, return_counts=True
            )
            depth = self.tree.level_depths[level]
            by_level[level] = LevelNodes(depth, different, positions.ravel(), first, counts)
        return by_level  # a plan is pickled with it, which a MappingProxyType cannot be

    @frozen_property
    def unfolded(self) -> UnfoldedTree:
        """The tree with a row for each of its identical leaves."""
        return unfold_tree(self.tree)

    def find_level_rows(self, group: int) -> IntArray:
        """Find the row of the unfolded tree of each node of a group's level, shape (nodes,)."""
        level = self.find_level(group)
        if level.depth == int(self.tree.depths[-1]):
            return self.unfolded.leaves
        return level.nodes[level.positions]

    def find_level(self, group: int) -> LevelNodes:
        """Find the nodes that a group uses."""
        return self.level_nodes[self._levels[group]]

    def list_row_axes(self, group: int) -> list[str]:
        # Rows are in C order of (nodes, rows of each node), whatever the order of a group's
        # factors.
        return sorted(super().list_row_axes(group), key=lambda name: name != self.tree_attribute)

    def find_tree_axis(self, group: int) -> int | None:
        """Find the axis of the tree in a group's shape; None if the group sums it out."""
        if self._levels[group] == "total":
            return None
        factors = self.workload.groups[group].factors
        return next(i for i, f in enumerate(factors) if f.attribute == self.tree_attribute)

    @frozen_property
    def row_counts(self) -> IntArray:
        groups = range(len(self.workload.groups))
        counts = [len(self.find_level(g).nodes) * len(self.group_matrices[g]) for g in groups]
        return np.array(counts, dtype=np.int64)

    @frozen_property
    def targets(self) -> FloatArray:
        groups = range(len(self.workload.groups))
        return np.concatenate(
            [self._read_targets(g)[self.find_level(g).first].ravel() for g in groups]
        )

    @frozen_property
    def repeats(self) -> FloatArray:
        parts = []
        for g, attributes in enumerate(self.subsets.group_attributes):
            cells = math.prod(self.sizes[a] for a in attributes)
            counts = self.find_level(g).counts * float(cells)
            parts.append(np.repeat(counts, len(self.group_matrices[g])))
        return np.concatenate(parts)

    def _arrange_group(self, values: AnyArray, g: int) -> AnyArray:
        asked, level = self.workload.groups[g], self.find_level(g)
        by_node = values[self.row_starts[g] : self.row_starts[g + 1]]
        by_node = by_node.reshape(len(level.nodes), -1)[level.positions]
        names, rows = self._find_row_axes(g)
        if self.tree_attribute in rows:
            rows[self.tree_attribute] = len(by_node)
        by_node = by_node.reshape([*rows.values()])
        order = [names.index(f.attribute) for f in asked.factors if f.attribute in rows]
        sizes = [rows.get(f.attribute, 1) for f in asked.factors]
        arranged = np.broadcast_to(by_node.transpose(order).reshape(sizes), asked.shape)
        return freeze(np.asarray(arranged))

    @frozen_property
    def parts(self) -> tuple[tuple[GroupPart, ...], ...]:
        """Each block's contributions to its groups."""
        starts, parts = self.row_starts, []
        for block in range(len(self.blocks)):
            groups, multiples = self.subsets.find_groups(block)
            of_block = (
                GroupPart(
                    group=g,
                    level=self.find_level(g),
                    matrix=self.group_matrices[g],
                    rows=slice(int(starts[g]), int(starts[g + 1])),
                    multiple=float(multiple),
                )
                for g, multiple in zip(groups.tolist(), multiples, strict=True)
            )
            parts.append(tuple(of_block))
        return tuple(parts)

    @frozen_property
    def classes(self) -> tuple[tuple[CellClasses, ...], ...]:
        """By block and depth, the classes of dense cells distinguished there or below.

        Depths end with the block's last one. Classes of a depth consist of complete classes of the
        depth above.
        """
        return tuple(
            tuple(
                find_classes(
                    np.concatenate([one.matrix for one in parts if one.level.depth >= depth])
                )
                for depth in range(self.find_block_depth(block) + 1)
            )
            for block, parts in enumerate(self.parts)
        )

    def find_totals(self, block: int) -> RootTotals:
        """Find the public sums of a block's counts at the root."""
        return find_no_totals(self.classes[block][0].size)

    def needs_totals(self, block: int) -> bool:
        """Tell whether estimates of a block need the public totals."""
        return False

    def find_block_depth(self, block: int) -> int:
        """Find the depth of the finest level that a block's queries use."""
        return max(part.level.depth for part in self.parts[block])

    @frozen_property
    def _levels(self) -> list[str]:
        """The level of the tree that each group uses; "total" if it sums the tree out."""
        *_, finest = find_first_cells(self.workload.domain[self.tree_attribute])
        kinds = [
            next((f.kind for f in group.factors if f.attribute == self.tree_attribute), "total")
            for group in self.workload.groups
        ]
        return [finest if kind == "identity" else kind for kind in kinds]

    def _find_row_axes(self, g: int) -> tuple[list[str], dict[str, int]]:
        """Find the names and sizes of the axes of a group's rows, the tree's first."""
        rows = {f.attribute: f.rows for f in self.workload.groups[g].factors}
        names = [f.attribute for f in self.workload.groups[g].factors if f.attribute in self.dense]
        if self.tree_attribute in rows:
            names.insert(0, self.tree_attribute)
        return names, {name: rows[name] for name in names}

    def _read_targets(self, g: int) -> FloatArray:
        """Read the targets of each node of a group's level, (nodes, rows of each node)."""
        group = self.workload.groups[g]
        at = tuple(slice(None) if f.attribute in self.asymmetric else 0 for f in group.factors)
        targets = np.asarray(group.variances[at])
        names = [f.attribute for f in group.factors if f.attribute in self.asymmetric]
        if self.tree_attribute not in names:
            return targets.reshape(1, -1)
        targets = np.moveaxis(targets, names.index(self.tree_attribute), 0)
        return targets.reshape(len(targets), -1)
