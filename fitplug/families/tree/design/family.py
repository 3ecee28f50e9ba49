"""The best member of a tree's family at given weights, by sweeps over the nodes.

At weights p of the cells and q of the rows, the Lagrangian tr(P Sigma^-1) + tr(Q Sigma) of a block
is minimised node by node (docs/theory/trees.md). A sweep upwards collects the charges of each
node's covariance, K_v = W_v + sum_j u_vj^2 K_j. A sweep downwards then finds the covariances of
each node's children from the node's own covariance. Both start from the result of the previous
sweep, so a few sweeps at slowly changing weights reach the minimum. `Prices` has the unit of
privacy's prices of the profile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fitplug.families.tree.design.charges import Charges, find_depth_rows
from fitplug.families.tree.design.child_covariances import (
    ChildCovariances,
    IdenticalCovariances,
    KroneckerCovariances,
)
from fitplug.families.tree.design.profile_prices import (
    DiagonalPrices,
    MixedPrices,
    ProfilePrices,
    find_mean,
    get_diagonals,
)
from fitplug.families.tree.design.sibling_covariance import SiblingCovariances
from fitplug.families.tree.shape.blocks import GroupPart, TreeStructure
from fitplug.families.tree.shape.node_tree import TreeStep
from fitplug.numeric import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Prices:
    """The Lagrangian's prices of a block's Sigma^-1: tr(F diag(P) F' Sigma^-1) at each node.

    Attributes:
        by_depth: P of the nodes of each depth, over the depth's classes of dense cells, (nodes, r).
        factors: F of each depth, shape (r, r); None for 1.
        find_root: If the root has a different price, finds its covariance and the inverse, shape
            (r, r) each, from P (r,) and K (r, r) there.
    """

    by_depth: Sequence[FloatArray]
    factors: Sequence[FloatArray | None] | None = None
    find_root: Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]] | None = None

    def take(self, step: TreeStep, places: IntArray) -> ProfilePrices:
        """Take the prices of the children of a step, at these places of their depth, (b, k)."""
        factor = None if self.factors is None else self.factors[step.depth]
        return DiagonalPrices(self.by_depth[step.depth][places], factor)


@dataclass(frozen=True, eq=False)
class MixedNodePrices(Prices):
    """Prices that are sums of matrices; `by_depth` has only the root's.

    Attributes:
        numbers: The coefficients of the matrices at each node, shape (N, h).
        between: The coefficients that are subtracted, times s'X s of a node's children, shape (N,
            h).
        shares: s, the share of each node in all leaves, shape (N,).
        matrices: The matrices of each depth, over its classes, shape (h, r, r).
    """

    numbers: FloatArray = field(kw_only=True)
    between: FloatArray = field(kw_only=True)
    shares: FloatArray = field(kw_only=True)
    matrices: Sequence[FloatArray] = field(kw_only=True)

    def take(self, step: TreeStep, places: IntArray) -> ProfilePrices:
        children = step.children
        return MixedPrices(
            self.numbers[children],
            self.between[step.parents],
            self.shares[children],
            self.matrices[step.depth],
        )


@dataclass(frozen=True, eq=False)
class Sweep:
    """The result of one sweep.

    Attributes:
        steps: Per step of the tree within the block's depth, the covariances of its children.
        root: Sigma of the root and its inverse, shape (r, r) each.
        variances: For each of the block's parts, the variances of its rows without the part's
            multiple, shape (rows of the part,).
        profile: The profile of each leaf and dense cell, shape (leaves, D).
    """

    steps: tuple[ChildCovariances, ...]
    root: tuple[FloatArray, FloatArray]
    variances: tuple[FloatArray, ...]
    profile: FloatArray


@dataclass(frozen=True, eq=False)
class _PartNodes:
    """The nodes of a part at one depth: nodes with one child stand for those of several levels.

    Attributes:
        depth: The depth.
        chosen: The indices of the nodes among the part's, shape (n,).
        places: The indices of the nodes among those of the depth, shape (n,).
    """

    depth: int
    chosen: IntArray
    places: IntArray


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
        self._part_nodes = [self._find_nodes(part) for part in self._parts]
        self._rows, self._part_rows = find_depth_rows(self.classes, self._parts)

    def start(self) -> tuple[ChildCovariances, ...]:
        """Make the initial covariances, which spread every node evenly over its children."""
        return tuple(self._make_even(step) for step in self.steps)

    def estimate_work(self) -> float:
        """Estimate the operations of a sweep: for means of matrices, and for sums of rows."""
        work, sizes = 0.0, [at_depth.size for at_depth in self.classes]
        for parents, r in [(1, sizes[0])] + [(len(s.parents), sizes[s.depth]) for s in self.steps]:
            work += parents * r**2 * (13.0 * r + 300.0) if r > 1 else 0.0
        for nodes, rows in zip(self.nodes, self._rows, strict=True):
            work += 100.0 * len(nodes) * rows.count
        return work

    def price_cells(self, cells: FloatArray) -> Sequence[FloatArray]:
        """Sum the weights of the dense cells below each node, (N, D), by depth and class."""
        return [
            classes.merge_counts(cells[nodes])
            for classes, nodes in zip(self.classes, self.nodes, strict=True)
        ]

    def sweep(self, start: Sequence[ChildCovariances], prices: Prices, rows: FloatArray) -> Sweep:
        """Find the covariances of every node's children.

        Args:
            start: The covariances from the previous sweep.
            prices: The prices of the profile.
            rows: The weights q of the structure's rows, over their targets, shape (rows,).

        Returns:
            The result of the sweep.
        """
        P: Sequence[FloatArray] = prices.by_depth
        charges = self._collect_charges(start, rows)
        charge = charges[0].build_matrices()
        if prices.find_root is None:
            covariance, precision = find_mean(P[0], charge, (prices.factors or [None])[0])
        else:
            covariance, precision = (
                values[None] for values in prices.find_root(P[0][0], charge[0])
            )
        variances = [np.zeros_like(of_depth.weights) for of_depth in charges]
        variances[0] = self._rows[0].compute_variances(covariance)
        D = len(self.classes[0].of_cell)
        g = [np.zeros((len(nodes), D)) for nodes in self.nodes]
        g[0] = self._expand(0, get_diagonals(precision))
        steps = []
        for step, before in zip(self.steps, start, strict=True):
            at, above = self._places[step.children], self._places[step.parents]
            below, K = self._rows[step.depth], charges[step.depth].take(at)
            T = variances[step.parent_depth][above, : below.count]
            solved = before.solve(prices.take(step, at), K, T)
            steps.append(solved)
            variances[step.depth][at] = solved.spread(T, below)
            values = self._expand(step.depth, solved.add_profile())
            g[step.depth][at] = g[step.parent_depth][above][:, None] + values
        return Sweep(
            steps=tuple(steps),
            root=(covariance[0], precision[0]),
            variances=self._take_variances(variances),
            profile=self._spread_profile(g),
        )

    def divide_profile(self, sweep: Sweep, depths: int) -> FloatArray:
        """Divide the profile among the depths of the measured nodes.

        Args:
            sweep: The result of a sweep.
            depths: The number of depths of the tree.

        Returns:
            Shape (leaves * D, depths), with the profile as the sum over depths.
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
        """Make covariances that spread the nodes of a step evenly."""
        b, r = len(step.parents), self.classes[step.depth].size
        unit = np.broadcast_to(np.eye(r), (b, r, r))
        if step.counts is not None:
            return IdenticalCovariances(step.counts.astype(np.float64), unit, unit)
        k = step.children.shape[1]
        return KroneckerCovariances(SiblingCovariances.make_even(b, k), unit, unit)

    def _find_nodes(self, part: GroupPart) -> list[_PartNodes]:
        """Find a part's nodes by their depth."""
        depths = self._tree.depths[part.level.nodes]
        by_depth = []
        for depth in np.unique(depths).tolist():
            chosen = np.flatnonzero(depths == depth)
            by_depth.append(_PartNodes(depth, chosen, self._places[part.level.nodes[chosen]]))
        return by_depth

    def _collect_charges(
        self, start: Sequence[ChildCovariances], rows: FloatArray
    ) -> list[Charges]:
        """Collect the charges of each node's covariance, by depth, (nodes,)."""
        weights = [
            np.zeros((len(nodes), of_depth.count))
            for nodes, of_depth in zip(self.nodes, self._rows, strict=True)
        ]
        for part, by_depth, of_part in zip(
            self._parts, self._part_nodes, self._part_rows, strict=True
        ):
            q = of_part.weigh(part.multiple * rows[part.rows].reshape(len(part.level.nodes), -1))
            for some in by_depth:
                _add_at(weights[some.depth][:, of_part.at], some.places, q[some.chosen])
        charges = list(map(Charges, self._rows, weights))
        for step, before in zip(reversed(self.steps), reversed(start), strict=True):
            above = self._places[step.parents]
            collected = before.collect(charges[step.depth].take(self._places[step.children]))
            columns = weights[step.parent_depth][:, : self._rows[step.depth].count]
            _add_at(columns, above, collected.weights)
        return charges

    def _expand(self, depth: int, values: FloatArray) -> FloatArray:
        """Expand values of the classes of a depth, (..., r), to the dense cells, (..., D)."""
        of_cell = self.classes[depth].of_cell
        return np.where(of_cell >= 0, values[..., of_cell], 0.0)

    def _take_variances(self, of_nodes: Sequence[FloatArray]) -> tuple[FloatArray, ...]:
        """Take the variances of each part's rows from those of all nodes."""
        variances = []
        for part, by_depth, of_part in zip(
            self._parts, self._part_nodes, self._part_rows, strict=True
        ):
            values = np.empty((len(part.level.nodes), len(part.matrix)))
            for some in by_depth:
                values[some.chosen] = of_part.take(of_nodes[some.depth][some.places])
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
    """Sum the profiles of all measured blocks, shape (leaves, D)."""
    multiples = structure.subsets.profile_multiples[structure.noisy_blocks]
    weighted = (w * sweep.profile for w, sweep in zip(multiples, sweeps, strict=True))
    return np.asarray(sum(weighted))


def sum_variances(structure: TreeStructure, sweeps: Sequence[Sweep]) -> FloatArray:
    """Sum the contributions of all measured blocks to the rows' variances, shape (rows,)."""
    variances = np.zeros(structure.rows)
    for block, sweep in zip(structure.noisy_blocks.tolist(), sweeps, strict=True):
        for part, added in zip(structure.parts[block], sweep.variances, strict=True):
            variances[part.rows] += part.multiple * added
    return variances


def _add_at(values: FloatArray, at: IntArray, more: FloatArray) -> None:
    """Add to distinct entries `at` (m,) of values (n, ...), in place."""
    if len(at) == len(values) and np.array_equal(at, np.arange(len(at))):
        values += more  # without a copy of all entries
    else:
        values[at] += more
