"""The best member of a tree's family at given weights, one sweep over the nodes at a time.

At weights p of the cells and q of the rows, the Lagrangian tr(P Sigma^-1) + tr(Q Sigma) of a block
is minimised node by node (docs/theory/trees.md). A sweep upwards collects what the covariance of
each node costs, K_v = W_v + sum_j u_vj^2 K_j. A sweep downwards then finds the covariances of every
node's children, from the node's own covariance. Both start from what the sweep before them found,
so that a few sweeps at slowly changing weights reach the minimum. How a unit of privacy weighs the
profile is handed in as `Prices`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fitplug.families.tree.design.child_covariances import (
    ChildCovariances,
    IdenticalCovariances,
    KroneckerCovariances,
    SplitCovariances,
    find_mean,
    get_diagonals,
)
from fitplug.families.tree.design.sibling_covariance import SiblingCovariances
from fitplug.families.tree.shape.blocks import GroupPart, TreeStructure
from fitplug.families.tree.shape.node_tree import TreeStep
from fitplug.numeric import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Prices:
    """What the Lagrangian charges for Sigma^-1 of a block: tr(F diag(P) F' Sigma^-1) at each node.

    Attributes:
        by_depth: P of the nodes of each depth, over their classes of dense cells, (nodes, r).
        factors: F of each depth, shape (r, r); None for 1.
        find_root: Finds the covariance of the root and its inverse, shape (r, r) each, from P (r,)
            and K (r, r) there, where it has another price.
    """

    by_depth: Sequence[FloatArray]
    factors: Sequence[FloatArray | None] | None = None
    find_root: Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]] | None = None


@dataclass(frozen=True, eq=False)
class Sweep:
    """What one sweep finds.

    Attributes:
        steps: Per step of the tree within the block's depth, the covariances of its children.
        root: Sigma of the root and its inverse, shape (r, r) each.
        variances: For each of the block's parts, the variances of its rows without the part's
            multiple, shape (rows of the part,).
        profile: Of each leaf and dense cell, shape (leaves, D).
    """

    steps: tuple[ChildCovariances, ...]
    root: tuple[FloatArray, FloatArray]
    variances: tuple[FloatArray, ...]
    profile: FloatArray


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of a part whose nodes have one depth: such with one child may be above the level.

    Attributes:
        depth: The depth.
        rows: Which of the part's nodes, shape (n,).
        places: The places of these nodes among those of the depth, shape (n,).
        L: What is asked of each node's classes of dense cells, shape (rows of each node, r).
    """

    depth: int
    rows: IntArray
    places: IntArray
    L: FloatArray

    @cached_property
    def _has_prefixes(self) -> bool:
        """Whether L is lower triangular with ones: sums along it then take no matrix products."""
        m, r = self.L.shape
        return m == r and np.array_equal(self.L, np.tri(r))

    def charge(self, q: FloatArray) -> FloatArray:
        """Compute L'diag(q)L of each node, shape (n, r, r), for q (n, rows of each node)."""
        if self.L.shape[1] == 1:
            return np.asarray(q @ self.L[:, 0] ** 2)[:, None, None]
        if self._has_prefixes:
            at = np.arange(self.L.shape[1])
            return np.asarray(q[:, ::-1].cumsum(axis=1)[:, ::-1][:, np.maximum(at[:, None], at)])
        return np.asarray(self.L.T @ (q[:, :, None] * self.L))

    def compute_variances(self, S: FloatArray) -> FloatArray:
        """Compute the diagonals of L S L' of each node, for S (n, r, r)."""
        if self.L.shape[1] == 1:
            return np.asarray(S[:, 0] * self.L[:, 0] ** 2)
        if self._has_prefixes:
            # Each prefix adds a cell: twice its covariance with all before it, and its variance.
            upto = np.einsum("nij,ij->ni", S, np.tri(S.shape[1]))
            return np.asarray((2 * upto - get_diagonals(S)).cumsum(axis=1))
        return np.asarray(((self.L @ S) * self.L).sum(axis=2))


class TreeFamily:
    """The family of one block of a structure."""

    def __init__(self, structure: TreeStructure, block: int) -> None:
        self.classes = structure.classes[block]
        tree = self._tree = structure.tree
        self.steps = tuple(step for step in tree.steps if step.depth < len(self.classes))
        self.nodes = [np.flatnonzero(tree.depths == d) for d in range(len(self.classes))]
        self._places: IntArray = np.zeros(tree.size, dtype=np.int64)
        for nodes in self.nodes:
            self._places[nodes] = np.arange(len(nodes))
        self._parts = structure.parts[block]
        self._rows = [self._find_rows(part) for part in self._parts]

    def start(self) -> tuple[ChildCovariances, ...]:
        """Make what the first sweep starts from: every node is spread evenly over its children."""
        return tuple(self._make_even(step) for step in self.steps)

    def split_totals(self, before: Sequence[ChildCovariances]) -> tuple[ChildCovariances, ...]:
        """Make the family larger where only totals are asked further down.

        Args:
            before: What the sweep before this one found.

        Returns:
            What another sweep may start from, to find covariances that split these totals off.
        """
        finest = self.classes[-1]
        split: list[ChildCovariances] = []
        for step, covariances in zip(self.steps, before, strict=True):
            classes = self.classes[step.depth]
            if isinstance(covariances, KroneckerCovariances) and finest.size == 1 < classes.size:
                total = (finest.of_cell[classes.first] == 0).astype(np.float64)
                split.append(SplitCovariances.split(covariances, total))
            else:
                split.append(covariances)
        return tuple(split)

    def price_cells(self, cells: FloatArray) -> Sequence[FloatArray]:
        """Sum the weights of the dense cells below each node, (N, D), by depth and class."""
        return [
            classes.merge_counts(cells[nodes])
            for classes, nodes in zip(self.classes, self.nodes, strict=True)
        ]

    def sweep(self, start: Sequence[ChildCovariances], prices: Prices, rows: FloatArray) -> Sweep:
        """Find the covariances of every node's children.

        Args:
            start: What the sweep before this one found.
            prices: The prices of the profile.
            rows: The weights q of the structure's rows, over their targets, shape (rows,).

        Returns:
            What the sweep finds.
        """
        P: Sequence[FloatArray] = prices.by_depth
        factors = prices.factors or [None] * len(self.classes)
        K = self._collect_weights(start, rows)
        S = [np.zeros_like(values) for values in K]
        D = len(self.classes[0].of_cell)
        g = [np.zeros((len(nodes), D)) for nodes in self.nodes]
        if prices.find_root is None:
            S[0], precision = find_mean(P[0], K[0], factors[0])
        else:
            S[0], precision = (values[None] for values in prices.find_root(P[0][0], K[0][0]))
        g[0] = self._expand(0, get_diagonals(precision))
        steps = []
        for step, before in zip(self.steps, start, strict=True):
            at, above = self._places[step.children], self._places[step.parents]
            T = self._restrict(step, S[step.parent_depth][above])
            solved = before.solve(P[step.depth][at], K[step.depth][at], T, factors[step.depth])
            steps.append(solved)
            S[step.depth][at] = solved.spread(T)
            values = self._expand(step.depth, solved.add_profile())
            g[step.depth][at] = g[step.parent_depth][above][:, None] + values
        return Sweep(
            steps=tuple(steps),
            root=(S[0][0], precision[0]),
            variances=self._compute_variances(S),
            profile=self._spread_profile(g),
        )

    def divide_profile(self, sweep: Sweep, depths: int) -> FloatArray:
        """Divide the profile by the depths of the nodes that are measured.

        Args:
            sweep: What a sweep found.
            depths: The number of depths of the tree.

        Returns:
            Shape (leaves * D, depths), which sums to the profile.
        """
        cells = len(self.classes[0].of_cell)
        by_depth = np.zeros((depths, self._tree.size, cells))
        by_depth[0, 0] = self._expand(0, get_diagonals(sweep.root[1][None]))[0]
        for i, step in enumerate(self._tree.steps):
            at = step.children
            by_depth[:, at] = by_depth[:, step.parents, None]
            if i < len(self.steps):
                by_depth[step.depth, at] += self._expand(step.depth, sweep.steps[i].add_profile())
        return by_depth[:, self._tree.leaves].reshape(depths, -1).T

    def _make_even(self, step: TreeStep) -> ChildCovariances:
        """Make the covariances that spread the nodes of a step evenly."""
        b, r = len(step.parents), self.classes[step.depth].size
        unit = np.broadcast_to(np.eye(r), (b, r, r))
        if step.counts is not None:
            return IdenticalCovariances(step.counts.astype(np.float64), unit, unit)
        k = step.children.shape[1]
        return KroneckerCovariances(SiblingCovariances.make_even(b, k), unit, unit)

    def _find_rows(self, part: GroupPart) -> list[_Rows]:
        """Find a part's rows by the depth of their nodes."""
        depths = self._tree.depths[part.level.nodes]
        by_depth = []
        for depth in np.unique(depths).tolist():
            rows = np.flatnonzero(depths == depth)
            L = self.classes[depth].restrict(part.matrix)
            by_depth.append(_Rows(depth, rows, self._places[part.level.nodes[rows]], L))
        return by_depth

    def _collect_weights(
        self, start: Sequence[ChildCovariances], rows: FloatArray
    ) -> list[FloatArray]:
        """Collect what the covariance of each node costs, by depth, (nodes, r, r)."""
        sizes = [at_depth.size for at_depth in self.classes]
        K = [np.zeros((len(n), r, r)) for n, r in zip(self.nodes, sizes, strict=True)]
        for part, several in zip(self._parts, self._rows, strict=True):
            q = part.multiple * rows[part.rows].reshape(len(part.level.nodes), -1)
            for at_depth in several:
                _add_at(K[at_depth.depth], at_depth.places, at_depth.charge(q[at_depth.rows]))
        for step, before in zip(reversed(self.steps), reversed(start), strict=True):
            at = self._places[step.children]
            below = before.collect(K[step.depth][at])
            if (F := self._find_merging(step)) is not None:
                below = F.T @ below @ F
            _add_at(K[step.parent_depth], self._places[step.parents], below)
        return K

    def _find_merging(self, step: TreeStep) -> FloatArray | None:
        """Find F (r below, r above), which sums classes of the nodes to those of their children."""
        above, below = self.classes[step.parent_depth], self.classes[step.depth]
        merged = below.of_cell[above.first]
        if np.array_equal(merged, np.arange(below.size)):
            return None
        return (np.arange(below.size)[:, None] == merged).astype(np.float64)

    def _restrict(self, step: TreeStep, S: FloatArray) -> FloatArray:
        """Restrict covariances (b, r, r) of nodes to the classes of their children."""
        F = self._find_merging(step)
        return S if F is None else np.asarray(F @ S @ F.T)

    def _expand(self, depth: int, values: FloatArray) -> FloatArray:
        """Expand values of the classes of a depth, (..., r), to the dense cells, (..., D)."""
        of_cell = self.classes[depth].of_cell
        return np.where(of_cell >= 0, values[..., of_cell], 0.0)

    def _compute_variances(self, S: Sequence[FloatArray]) -> tuple[FloatArray, ...]:
        """Compute the variances of each part's rows from the covariances of all nodes."""
        variances = []
        for part, several in zip(self._parts, self._rows, strict=True):
            values = np.empty((len(part.level.nodes), len(part.matrix)))
            for at_depth in several:
                values[at_depth.rows] = at_depth.compute_variances(
                    S[at_depth.depth][at_depth.places]
                )
            variances.append(values.ravel())
        return tuple(variances)

    def _spread_profile(self, g: Sequence[FloatArray]) -> FloatArray:
        """Spread the profiles of nodes, by depth, to the leaves below them, (leaves, D)."""
        by_node = np.zeros((self._tree.size, g[0].shape[1]))
        for nodes, profiles in zip(self.nodes, g, strict=True):
            by_node[nodes] = profiles
        self._tree.repeat_downwards(by_node, len(self.classes) - 1)
        return np.asarray(by_node[self._tree.leaves])


def sum_profiles(structure: TreeStructure, sweeps: Sequence[Sweep]) -> FloatArray:
    """Sum the profiles of all blocks that are measured, shape (leaves, D)."""
    multiples = structure.subsets.profile_multiples[structure.noisy_blocks]
    weighted = (w * sweep.profile for w, sweep in zip(multiples, sweeps, strict=True))
    return np.asarray(sum(weighted))


def sum_variances(structure: TreeStructure, sweeps: Sequence[Sweep]) -> FloatArray:
    """Sum the variances that all blocks that are measured add to the rows, shape (rows,)."""
    variances = np.zeros(structure.rows)
    for block, sweep in zip(structure.noisy_blocks.tolist(), sweeps, strict=True):
        for part, added in zip(structure.parts[block], sweep.variances, strict=True):
            variances[part.rows] += part.multiple * added
    return variances


def _add_at(values: FloatArray, at: IntArray, more: FloatArray) -> None:
    """Add to some different entries of values (n, ...), in place; `at` has shape (m,)."""
    if len(at) == len(values) and np.array_equal(at, np.arange(len(at))):
        values += more  # without a copy of all entries
    else:
        values[at] += more
