"""The bound of trees whose pairs of cells have weights that depend on where paths part.

Leaf l has the share pi_l in the weights of every dense cell. If the paths of two leaves part at
node v, a kind of pairs has the density n_v: the leaves have the weight n_v pi_l pi_l'. If both
leaves are l, it has the density o_l. With m_v the least share of a child of v, (U19) of
docs/theory/units.md divides the density o_v that v would have as a leaf:

    n_v = (1 - f) o_v / (1 - m_v / pi_v)    b_v = f pi_v o_v
    o_j = n_v (1 - m_v / pi_j) + b_v / pi_j     for each child j of v

for a share f from 0 to 1. With these weights and given the sum below v, the sums below its children
are distributed as if they were independent with covariances pi_j C_v / t, where

    C_v = diag(kappa) + theta of (m_v n_v - b_v)

So a sweep upwards treats them as independent, and then changes the prior covariance of the sum
below v from pi_v C_v / t to pi_v C_u / t, for the parent u of v. This adds t / pi_v (C_u^-1 -
C_v^-1) to the precision. As this term is indefinite, precisions are enclosed: a node's precision is
within a (P P')^-1 of (P P')^-1, for a matrix P of floats and a small number a.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fitplug.certify import factor_change, factor_sum, sum_logarithms
from fitplug.families.tree.certificate.dense_trees import DenseTree
from fitplug.families.tree.certificate.scalar_trees import RootPosterior, ScalarTree
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray, gamma

_MOST_NUMBERS = 2_000_000
"""The most entries in stacks of nodes' children."""


class PartedDensities(NamedTuple):
    """The densities of all kinds of pairs.

    Attributes:
        leaves: pi of the leaves, summed over identical ones, shape (leaves,).
        shares: pi of each node, for one of any identical leaves, shape (N,).
        changes: m_v n_v - b_v of the parents of each step, shape (b, moves, K) each.
        alone: The weight of pairs of a cell with itself.
        error: A bound on the errors of pi_v n_v and of the changes, relative to the weights of
            their kinds, and on the error of `alone`.
    """

    leaves: FloatArray
    shares: FloatArray
    changes: tuple[FloatArray, ...]
    alone: float
    error: float


def divide_densities(
    structure: TreePairStructure, shares: FloatArray, anywhere: FloatArray, parts: FloatArray
) -> PartedDensities:
    """Divide the weights of kinds of pairs among the nodes where paths part.

    Args:
        structure: The structure.
        shares: pi, which sum to 1, shape (leaves,).
        anywhere: The weights of the kinds, shape (moves, K).
        parts: f of each step, from 0 to 1, shape (steps, moves, K).
    """
    tree = structure.tree
    sums = tree.sum_leaves(shares)
    each = sums / tree.multiplicities
    first, second = structure.cell_pairs
    densities: dict[int, FloatArray] = {0: anywhere}
    changes, alone = [], 0.0
    for step, part in zip(tree.steps, parts, strict=True):
        o = np.stack([densities.pop(v) for v in step.parents.tolist()])
        pi, below = sums[step.parents, None, None], each[step.children]
        m = below.min(axis=1)[:, None, None]
        n, b = (1 - part) * o / (1 - m / pi), part * pi * o
        changes.append(m * n - b)
        is_leaf = np.isin(step.children, tree.leaves)
        for j, at in enumerate(step.children.T):
            share = below[:, j, None, None]
            of_child = np.maximum(n * (1 - m / share), 0.0) + b / share
            inner = np.flatnonzero(~is_leaf[:, j])
            densities.update(zip(at[inner].tolist(), of_child[inner], strict=True))
            same = of_child[:, 0, first == second].sum(axis=1)
            count = tree.multiplicities[at]
            alone += float((count * below[:, j] ** 2 * same)[is_leaf[:, j]].sum())
    error = 16 * (len(tree.steps) + 2) * gamma(len(tree.leaves) + 64)
    return PartedDensities(shares, each, tuple(changes), alone, error)


def build_covariances(
    structure: TreePairStructure,
    block: int,
    kappa: FloatArray,
    densities: PartedDensities,
    shift: float = 0.0,
) -> list[FloatArray]:
    """Build C of the parents of each step that a block uses, shape (b, r, r) each.

    Args:
        structure: The structure.
        block: The block.
        kappa: kappa of each dense cell, shape (D,).
        densities: The densities of pairs.
        shift: The share of kappa that is subtracted.
    """
    classes = structure.classes[block]
    last = max(d for d, one in enumerate(classes) if one.size)
    degrees = np.diag(classes[0].merge_counts(kappa) * (1 - shift))
    covariances = []
    for step, change in zip(structure.tree.steps, densities.changes, strict=True):
        if step.depth <= last:
            by_pair = np.tensordot(change, structure.move_ratios[block], (1, 0))
            theta = np.stack([structure.unfold_pairs(one) for one in by_pair])
            covariances.append(degrees + classes[0].merge_matrices(theta))
    return covariances


@dataclass(frozen=True, eq=False)
class LowestTotals:
    """Nodes of the last depth, where queries use only the total of some classes.

    Attributes:
        tree: The nodes and their measurements; the top nodes are their parents.
        shares: pi of one of the identical nodes at each position of `tree`, shape (n,).
        variances: The variance of the total below each parent over pi, at most that of C, shape
            (tops,).
        rounding: A bound on the relative errors of the shares and precisions.
    """

    tree: ScalarTree
    shares: FloatArray
    variances: FloatArray
    rounding: float

    @property
    def error(self) -> float:
        """A bound on the relative error of the precisions of totals."""
        return 8 * self.rounding + 2 * gamma(self.tree.order.roundings + 64)

    def sweep(self, t: float) -> tuple[FloatArray, float, float]:
        """Compute the precision with which the nodes determine the total below each parent.

        Returns:
            The precisions, shape (tops,), the sum of the nodes' logarithms minus those of the
            parents' knowledge, and a bound on the error of this sum.
        """
        order, precisions = self.tree.order, self.tree.precisions
        known, total, sizes = np.zeros(order.tops), 0.0, 0.0
        for step in order.steps:
            prior = self.shares[step.children].reshape(step.k, -1)
            prior = prior * (self.variances[step.parents] / t)
            x = precisions[step.children].reshape(step.k, -1) * prior
            below = prior / (1 + x)
            counts = 1.0 if step.counts is None else step.counts
            # 1 / V - 1 / V0 is (V0 - V) / V V0, where V0 - V is a sum of terms >= 0.
            ratio = (counts * below * x).sum(axis=0) / (counts * below).sum(axis=0)
            known[step.parents] = (
                ratio / self.shares[step.parents] / (self.variances[step.parents] / t)
            )
            more = float(order.multiplicities[step.children] @ np.log1p(x).ravel())
            less = float(order.multiplicities[step.parents] @ np.log1p(ratio))
            total += more - less
            sizes += more + less
        return known, total, sizes * (self.error + gamma(len(self.shares) + 256))


def find_lowest_totals(structure: TreePairStructure, block: int) -> int:
    """Find the depth from which queries use only a total: the block's last depth, or one more."""
    classes, tree = structure.classes[block], structure.tree
    last = max(d for d, one in enumerate(classes) if one.size)
    parents = [step.parents for step in tree.steps if step.depth == last]
    is_between = any((tree.depths[of_step] == last).any() for of_step in parents)
    return last if parents and classes[last].size == 1 and not is_between else last + 1


@dataclass(frozen=True, eq=False)
class PartedTree:
    """A block in which the children of each node have an individual covariance.

    Attributes:
        tree: The nodes and their measurements.
        shares: pi of each of the identical nodes at each position, shape (n,).
        factors: X of the parents of each step, with C^-1 = X'X, shape (b, r, r) each.
        sums: The final variances of the classes' sums over all leaves, shape (r,).
        rounding: A bound on the relative errors of the shares.
        lowest: The nodes below, where queries use only totals.
    """

    tree: DenseTree
    shares: FloatArray
    factors: tuple[FloatArray, ...]
    sums: FloatArray
    rounding: float
    lowest: LowestTotals | None = None

    def lower_determinants(self, poles: FloatArray) -> tuple[FloatArray, list[RootPosterior]]:
        """Bound log det(I + N / t) from below, with variances `sums` / t of the sums.

        Args:
            poles: t, shape (P,).

        Returns:
            The bounds, shape (P,), minus infinity where nothing is proven, and the root's posterior
            at each pole.
        """
        with np.errstate(all="ignore"):
            swept = [self._sweep(t) for t in poles.tolist()]
        return np.array([bound for bound, _ in swept]), [root for _, root in swept]

    def _sweep(self, t: float) -> tuple[float, RootPosterior]:
        tree = self.tree
        n, r = tree.masses.shape
        slot = np.full(n, -1)
        inner = np.concatenate([tree.tops[:0], *(step.parents for step in tree.steps)])
        slot[inner] = np.arange(len(inner))
        X = np.concatenate([np.zeros((0, r, r)), *self.factors])
        above = np.full(len(inner), -1)
        for step in tree.steps:
            at = slot[step.children]
            above[at[at >= 0]] = np.broadcast_to(slot[step.parents, None], at.shape)[at >= 0]
        # The last target is the root's.
        targets = np.concatenate([X, np.diag(1 / np.sqrt(self.sums))[None]])
        P, a = np.empty((len(inner), r, r)), np.empty(len(inner))
        known, total, lost, size = np.zeros(n), 0.0, 0.0, 0.0
        if self.lowest is not None:
            known[tree.tops], total, lost = self.lowest.sweep(t)
        if not tree.steps:
            root, roots = np.zeros(1, dtype=np.int64), np.sqrt(t) * targets[-1:]
            P, a, more, size = self._update(root, roots, np.full(1, self.rounding), known, None)
            slot, total = root, total + more
        for step in reversed(tree.steps):
            k = step.children.shape[1]
            most = max(1, _MOST_NUMBERS // (k * r * r))
            for start in range(0, len(step.parents), most):
                some = slice(start, start + most)
                parents, children = step.parents[some], step.children[some]
                flat, owners = children.ravel(), np.repeat(slot[parents], k)
                S, near = np.empty((len(flat), r, r)), np.empty(len(flat))
                is_leaf = slot[flat] < 0
                S[~is_leaf], near[~is_leaf] = P[slot[flat[~is_leaf]]], a[slot[flat[~is_leaf]]]
                leaves = flat[is_leaf]
                roots = np.sqrt(t / self.shares[leaves])[:, None, None] * X[owners[is_leaf]]
                off = np.full(len(leaves), self.rounding)
                found = self._update(leaves, roots, off, known, None)
                S[is_leaf], near[is_leaf] = found[:2]
                total += found[2]
                size += found[3]
                stack = S.reshape(-1, k, r, r).transpose(0, 2, 1, 3).reshape(-1, r, k * r)
                Zt, departure = factor_sum(stack, step.counts[some])
                most_off = near.reshape(-1, k).max(axis=1)
                off = ((1 + most_off) / (1 - departure) - 1) * 1.01 + 8 * UNIT_ROUNDOFF
                off[~(departure < 0.25)] = np.inf
                scale = np.sqrt(t / self.shares[parents])[:, None, None]
                at = slot[parents]
                change = scale * targets[above[at]], scale * X[at], X[at], targets[above[at]]
                P[at], a[at], more, sized = self._update(parents, Zt, off, known, change)
                total += more
                size += sized
        bound = total - lost - gamma(n + 64) * size
        inverse = np.linalg.inv(P[slot[0]])
        return bound, _describe_root(P[slot[0]], inverse, float(a[slot[0]]))

    def _update(
        self,
        nodes: np.ndarray,
        Zt: FloatArray,
        off: FloatArray,
        known: FloatArray,
        change: tuple[FloatArray, FloatArray, FloatArray, FloatArray] | None,
    ) -> tuple[FloatArray, FloatArray, float, float]:
        """Update nodes, whose precision is within `off` Z Z' of Z Z', by their measurements.

        Args:
            nodes: The positions of the nodes, shape (b,).
            Zt: Z', shape (b, r, r).
            off: The relative distance of the precisions from Z Z', shape (b,).
            known: The precision with which the total below each position is known, shape (n,).
            change: G and H, where G'G - H'H is added to the precision, and the matrices of which
                they are multiples; shape (b, r, r) each.

        Returns:
            P and a of the nodes, shapes (b, r, r) and (b,), the sum of the lower bounds on their
            logarithms, and the sum of the absolute values of all logarithms.
        """
        tree, r = self.tree, Zt.shape[1]
        P, a = np.zeros_like(Zt), np.full(len(nodes), np.inf)
        total = size = 0.0
        kinds = tree.kinds[nodes]
        for kind in np.unique(kinds).tolist():
            at = np.flatnonzero(kinds == kind)
            measured = tree.measurements[kind]
            F = np.sqrt(measured.precisions[tree.places[nodes[at]]])[:, :, None] * measured.matrix
            H = np.zeros((len(at), 0, r))
            if self.lowest is not None:
                total_rows = np.sqrt(known[nodes[at], None]) * tree.members
                F = np.concatenate([F, total_rows[:, None]], axis=1)
            if change is not None:
                F, H = np.concatenate([F, change[0][at]], axis=1), change[1][at]
            P[at], proven = factor_change(Zt[at], F, H)
            near = proven.departure + off[at] * proven.growth
            if self.lowest is not None:
                near = near + 2 * self.lowest.error
            if change is not None:
                near = near + self.rounding * proven.changed
            a[at] = np.where(near < 0.25, near * 1.01, np.inf)
            logs, error = sum_logarithms(np.diagonal(P[at], axis1=1, axis2=2))
            before, other = sum_logarithms(np.abs(np.diagonal(Zt[at], axis1=1, axis2=2)))
            gain = -2 * (logs + error) - 2 * (before + other) - r * 1.5 * (a[at] + off[at])
            sizes = np.abs(logs) + np.abs(before)
            if change is not None:
                for sign, factor in ((2, change[2][at]), (-2, change[3][at])):
                    logs, error = sum_logarithms(np.diagonal(factor, axis1=1, axis2=2))
                    gain += sign * logs - 2 * error
                    sizes += np.abs(logs)
            counts = tree.multiplicities[nodes[at]]
            total += float(counts @ gain)
            size += 2 * float(counts @ sizes)
        return P, a, total, size


def _describe_root(P: FloatArray, inverse: FloatArray, a: float) -> RootPosterior:
    """Describe the covariance of the root, whose precision is within a (P P')^-1 of (P P')^-1."""
    r = len(P)
    product = inverse @ P - np.eye(r)
    reach = np.abs(inverse) @ np.abs(P)
    off = 1.01 * float(np.sqrt((product**2).sum()) + gamma(r + 8) * np.sqrt((reach**2).sum()))
    largest = (1 + off) ** 2 / (1 - a) if a < 0.5 and off < 0.5 else np.inf
    return RootPosterior(1 / (1 + a) * (1 - 1e-15), np.diagonal(P), largest * (1 + 1e-15), inverse)


def factor_covariances(stack: FloatArray) -> tuple[FloatArray, float] | None:
    """Find lower triangular X with C >= c (X'X)^-1 for matrices C, (b, r, r), and one c.

    Returns:
        X, shape (b, r, r), and c; None if nothing is proven.
    """
    try:
        X = np.tril(np.linalg.inv(np.linalg.cholesky(stack)))
    except np.linalg.LinAlgError:
        return None
    r = stack.shape[1]
    # X C X' is at least c I.
    product = X @ stack @ X.swapaxes(1, 2) - np.eye(r)
    reach = np.abs(X) @ np.abs(stack) @ np.abs(X).swapaxes(1, 2)
    off = np.sqrt((product**2).sum(axis=(1, 2))) + gamma(2 * r + 8) * np.sqrt(
        (reach**2).sum(axis=(1, 2))
    )
    least = 1 - 1.01 * float(off.max(initial=0.0))
    return (X, least) if least > 0.5 else None
