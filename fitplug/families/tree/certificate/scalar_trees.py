"""Lower bounds on determinants of trees with one number per node, by one sweep upwards.

The leaves i have independent Gaussian variables of variance p_i / t, and each node v is measured
with precision w_v >= 0. Then log det(I + N / t) for N = D^1/2 (sum_v w_v 1_v 1_v') D^1/2, D =
diag(p), is the sum over the nodes of log(1 + w_v V0_v), with (docs/theory/trees.md, (T6))

    V0_v = p_v / t at a leaf, else the sum of V over the children      V_v = V0_v / (1 + w_v V0_v)

All numbers are positive and nothing is subtracted, so every result has a small relative error,
counted in units in the last place: an increasing function of V0 that grows no faster than V0 does
not increase its relative error. Neither a solver nor LAPACK is involved.

For persons with several records, nodes of depth d count a_d times as much as for one record. Then
the leaves have the variances a_L p_i / t, and what the records share at node v acts as one more
measurement of it (docs/theory/persons.md, (N13)).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fitplug.families.tree.shape.node_tree import NodeTree
from fitplug.numeric import BoolArray, FloatArray, IntArray, gamma

LOGARITHM = 256
"""A bound on the error of `numpy.log1p` in units in the last place; libraries state at most 4."""

LEAST_MASS, LEAST_PRECISION = 2.0**-200, 2.0**-300
"""Smaller numbers are negligible and count as zero, so that no result is subnormal."""


@dataclass(frozen=True, eq=False)
class SweepStep:
    """Nodes of a sweep with equally many children, and their children.

    Attributes:
        parents: Positions of the parents, shape (b,).
        children: Positions of the children, in C order of (k, b): first the first child of each
            parent.
        k: The number of children of each parent.
        counts: The number of identical nodes that each child stands for, shape (b, 1), if k is 1;
            else None.
    """

    parents: IntArray
    children: slice
    k: int
    counts: FloatArray | None


@dataclass(frozen=True, eq=False)
class SweepOrder:
    """The nodes from some top nodes down to a depth, with each step's children consecutive.

    Attributes:
        nodes: The node at each position, shape (n,). The top nodes come first.
        tops: The number of top nodes.
        steps: The steps, from the top nodes downwards.
        multiplicities: The number of identical nodes that each position stands for, shape (n,).
        depths: The depth of the node at each position, shape (n,).
        roundings: An upper bound on the number of successive roundings that lead to V0 of a top
            node.
    """

    nodes: IntArray
    tops: int
    steps: tuple[SweepStep, ...]
    multiplicities: FloatArray
    depths: IntArray
    roundings: int


def order_nodes(tree: NodeTree, tops: IntArray, first: int, last: int) -> SweepOrder:
    """Order the nodes below some nodes for a sweep.

    Args:
        tree: The tree.
        tops: The top nodes, shape (tops,).
        first: The depth of the first children; nodes above it are top nodes.
        last: The depth of the last children.

    Returns:
        The order.
    """
    position = np.full(tree.size, -1, dtype=np.int64)
    position[tops] = np.arange(len(tops))
    nodes, steps, size = [tops], [], len(tops)
    for step in tree.steps:
        if not first <= step.depth <= last:
            continue
        children = step.children.T.ravel()  # in C order of (k, b)
        counts = None
        if step.counts is not None:
            counts = step.counts[:, None].astype(np.float64)
        at, k = slice(size, size + len(children)), len(children) // len(step.parents)
        steps.append(SweepStep(position[step.parents], at, k, counts))
        position[children] = np.arange(size, size + len(children))
        nodes.append(children)
        size += len(children)
    order = np.concatenate(nodes)
    # The roundings of p_v / t, where p_v is given.
    roundings = np.full(size, 3, dtype=np.int64)
    for one in reversed(steps):
        below = roundings[one.children].reshape(one.k, -1).max(axis=0)
        roundings[one.parents] = below + 3 + one.k
    most = int(roundings[: len(tops)].max())
    multiplicities = tree.multiplicities[order].astype(np.float64)
    return SweepOrder(order, len(tops), tuple(steps), multiplicities, tree.depths[order], most)


@dataclass(frozen=True, eq=False)
class RootPosterior:
    """Proven bounds on the covariance V of the root: c P P' <= V, and B'B / C <= V^-1.

    Attributes:
        least: c, at most 1.
        diagonal: The diagonal of the triangular P, shape (r,).
        largest: C, at least 1, or infinite.
        information: B, shape (m, r).
    """

    least: float
    diagonal: FloatArray
    largest: float
    information: FloatArray


@dataclass(frozen=True, eq=False)
class ScalarTree:
    """A tree, or trees, with one number for each node.

    Attributes:
        order: The nodes.
        masses: p_v of one of the identical nodes at each position, shape (n,).
        precisions: w_v of one of these, shape (n,).
        scales: a_d of each depth, at least 0, shape (depths,); if one is 0, so are those above.
            None for 1.
    """

    order: SweepOrder
    masses: FloatArray
    precisions: FloatArray
    scales: FloatArray | None = None

    def lower_determinants(self, poles: FloatArray) -> tuple[FloatArray, list[RootPosterior]]:
        """Bound log det(I + N / t) of one tree from below.

        Args:
            poles: t, shape (P,).

        Returns:
            The bounds, shape (P,), and the root's posterior at each pole, with zero information if
            its mass is zero.
        """
        bounds, V = self.sweep(poles)
        error = 2 * self.error + gamma(16)
        roots = [
            RootPosterior(1 - error, np.array([x]), 1 + error, np.array([[1 / x if x else 0.0]]))
            for x in np.sqrt(V[0]).tolist()
        ]
        return bounds, roots

    def sweep(self, poles: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Sweep upwards.

        Args:
            poles: t, shape (P,).

        Returns:
            Lower bounds on log det(I + N / t) of all trees together, shape (P,), and V of the top
            nodes, shape (tops, P), with a relative error of at most `error`.
        """
        order = self.order
        V = self._variances[:, None] / poles
        total, shared, sizes = (np.zeros(len(poles)) for _ in range(3))
        for step in reversed(order.steps):
            below = self._update(V, step.children, total)
            if step.counts is not None:
                prior = step.counts * below
            else:
                prior = below.reshape(step.k, -1, len(poles)).sum(axis=0)
            scale, ratio = self._compare_scales(step)
            if ratio != 1.0:
                full = (scale * self.masses[step.parents])[:, None] / poles
                f = np.divide(prior, full, out=np.ones_like(prior), where=full > 0)
                f = np.minimum(f, 1.0)
                e = ratio * (1 - f) + f
                prior = np.divide(prior * ratio, e, out=np.zeros_like(prior), where=e > 0)
                logs = np.log(np.maximum(e, np.finfo(float).tiny))
                counts = order.multiplicities[step.parents]
                shared += counts @ logs
                sizes += counts @ np.abs(logs)
            V[step.parents] = prior
        top = self._update(V, slice(0, order.tops), total)
        relative = self.error + gamma(len(V) + LOGARITHM)
        # Each logarithm of e has the relative error of e as its absolute error.
        parents = sum(float(order.multiplicities[step.parents].sum()) for step in order.steps)
        absolute = 0.0 if self.scales is None else self.error * self._growth * parents
        lost = relative * (total + sizes) + absolute
        return np.maximum(total + shared - lost * (1 + gamma(8)), 0.0), top

    @property
    def error(self) -> float:
        """A bound on the relative error of V, for exact masses, precisions and scales."""
        if self.scales is None:
            return gamma(self.order.roundings + 3)
        return 2 * self._growth * gamma(self.order.roundings + 16 * (len(self.scales) + 2))

    @cached_property
    def trace(self) -> float:
        """tr N, not rounded outwards."""
        variances, order = self._variances.copy(), self.order
        if self.scales is not None:
            # A node v has the variance a_d p_v, plus a share p_v^2 / p_u from the nodes u above it.
            shares = np.zeros(len(variances))
            for step in order.steps:
                change = self._scales[step.parents] - self._scales[step.children][0]
                above = self.masses[step.parents]
                more = np.divide(change, above, out=np.zeros_like(above), where=above > 0)
                below = shares[step.children].reshape(step.k, -1)
                below += shares[step.parents] + more
            variances += shares * self.masses**2
        return float(order.multiplicities @ (self.precisions * variances))

    @cached_property
    def _scales(self) -> FloatArray:
        """a_d of the node at each position, shape (n,)."""
        if self.scales is None:
            return np.ones(len(self.masses))
        return self.scales[self.order.depths]

    @cached_property
    def _variances(self) -> FloatArray:
        """a_d p_v of one of the identical nodes at each position, shape (n,)."""
        return self.masses if self.scales is None else self._scales * self.masses

    @cached_property
    def _growth(self) -> float:
        """An upper bound on the growth of relative errors along a path."""
        assert self.scales is not None
        ratios = (a / b for a, b in itertools.pairwise(self.scales.tolist()) if b > 0)
        return math.prod(max(1.0, ratio) for ratio in ratios) * (1 + gamma(64))

    def _compare_scales(self, step: SweepStep) -> tuple[float, float]:
        """Find a_d of the children of a step, and the ratio of their parents' a_d to it."""
        if self.scales is None:
            return 1.0, 1.0
        scale = float(self._scales[step.children][0])
        # If the scale below a node is 0, so is the node's.
        return scale, float(self._scales[step.parents[0]]) / scale if scale > 0 else 1.0

    def count_ranks(self) -> tuple[float, BoolArray]:
        """Count the rank of N, and find the top nodes whose sums the queries below determine.

        Returns:
            The rank if all non-zero masses count, and whether each top node is determined, (tops,).
        """
        order = self.order
        is_determined = np.ones(len(self.masses), dtype=bool)
        is_bottom = np.ones(len(self.masses), dtype=bool)
        for step in order.steps:
            is_bottom[step.parents] = False
        is_determined[is_bottom] = self.masses[is_bottom] == 0
        is_asked, rank = self.precisions > 0, 0.0
        for step in reversed(order.steps):
            below = is_determined[step.children]
            rank += float(order.multiplicities[step.children] @ (is_asked[step.children] & ~below))
            below = below | is_asked[step.children]
            is_determined[step.parents] = below.reshape(step.k, -1).all(axis=0)
        determined = is_determined[: order.tops]
        return rank + float((is_asked[: order.tops] & ~determined).sum()), determined

    @property
    def rank(self) -> float:
        """The rank of N."""
        return self.count_ranks()[0]

    def upper_eigenvalue(self, above: FloatArray | float = 0.0) -> float:
        """Bound the largest eigenvalue of N from above, up to rounding.

        Args:
            above: The sum over the nodes above each top node, shape (tops,).

        Returns:
            The largest sum of w_v a p_v over the nodes of a path, with the largest scale a.
        """
        most = 1.0 if self.scales is None else float(self.scales.max())
        sums = most * self.precisions * self.masses
        sums[: self.order.tops] += above
        for step in self.order.steps:
            below = sums[step.children].reshape(step.k, -1)
            below += sums[step.parents]
        return float(sums.max(initial=0.0))

    def _update(self, V: FloatArray, at: slice, total: FloatArray) -> FloatArray:
        """Update V0 of some nodes to V, and add their logarithms to the total."""
        prior = V[at]
        x = self.precisions[at, None] * prior
        below = prior / (1 + x)
        total += self.order.multiplicities[at] @ np.log1p(x, out=x)
        return below


def build_scalar_tree(order: SweepOrder, masses: FloatArray, precisions: FloatArray) -> ScalarTree:
    """Build a tree from sums over the identical nodes at each position.

    Args:
        order: The nodes.
        masses: By position, the sum of p over the leaves below all of its identical nodes.
        precisions: By position, w_v of one of the identical nodes.

    Returns:
        The tree; its masses are rounded by one unit in the last place.
    """
    each = masses / order.multiplicities
    return ScalarTree(
        order,
        np.where(each >= LEAST_MASS, each, 0.0),
        np.where(precisions >= LEAST_PRECISION, precisions, 0.0),
    )
