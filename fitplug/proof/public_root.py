"""Determinants of trees whose root's totals are public, from below (docs/theory/units.md, (U16)).

With N^ for N after the square roots of p in each region are projected out, log det(I + N^ / t) is
that of the covariance of all that is asked, given the totals z of the regions. By the chain rule it
is log det(I + N / t) plus log det of the covariance of z given all that is asked, less that of z
alone. The sweep of the tree gives the first, and a lower bound of the covariance V of the root in
the order of symmetric matrices gives a lower bound on the second.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fitplug.numeric import FloatArray, IntArray, gamma
from fitplug.proof.dense_trees import DenseTree
from fitplug.proof.proven_factors import bound_log_sums, factor_sum
from fitplug.proof.scalar_trees import LOGARITHM, ScalarTree


@dataclass(frozen=True, eq=False)
class RegionMasses:
    """The sums of p over the regions of dense cells, in the classes of a block at the root.

    Attributes:
        of_class: The region of each class of the root, shape (r,).
        together: The sum of each region, rounded up, shape (R,), positive.
        unasked: The sum over its cells that are in no class, rounded down, shape (R,).
    """

    of_class: IntArray
    together: FloatArray
    unasked: FloatArray


def bound_scalar_public(tree: ScalarTree, regions: RegionMasses, poles: FloatArray) -> FloatArray:
    """Bound log det(I + N^ / t) from below, for a tree of numbers, (P,)."""
    found, V = tree.sweep(poles)
    known = poles * (V[0] * (1 - tree.error)) + regions.unasked[0]
    return _subtract_prior(found, known / regions.together[0] * (1 - gamma(8)))


def bound_dense_public(tree: DenseTree, regions: RegionMasses, poles: FloatArray) -> FloatArray:
    """Bound log det(I + N^ / t) from below, for a tree of matrices, (P,)."""
    found, roots = tree.sweep(poles)
    r, R = len(regions.of_class), len(regions.together)
    if R == 1:
        # 1'V 1 >= c |P'1|^2, where the error of P'1 is at most that of its sums.
        known = np.empty(len(poles))
        for i, (c, P) in enumerate(roots):
            sums, sizes = P.sum(axis=0), np.abs(P).sum(axis=0)
            norm = np.sqrt((sums * sums).sum()) - gamma(r) * np.sqrt((sizes * sizes).sum())
            known[i] = poles[i] * c * (max(norm * (1 - gamma(r + 4)), 0.0)) ** 2
        known = (known + regions.unasked[0]) / regions.together[0]
        return _subtract_prior(found, known * (1 - gamma(16)))
    logs = np.array(
        [_bound_log_ratio(regions, float(t), c, P) for t, (c, P) in zip(poles, roots, strict=True)]
    )
    return np.asarray(np.maximum(found + logs - gamma(4) * (found + np.abs(logs)), 0.0))


def measure_scalar_trace(tree: ScalarTree, regions: RegionMasses) -> float:
    """Compute tr N^, not rounded outwards."""
    each = tree.precisions * tree.masses * (1 - tree.masses / regions.together[0])
    return float(tree.order.multiplicities @ np.maximum(each, 0.0))


def measure_dense_trace(tree: DenseTree, regions: RegionMasses) -> float:
    """Compute tr N^, not rounded outwards."""
    total = tree.trace
    for kind, nodes in tree.group_kinds(np.arange(len(tree.masses))):
        own = tree.measurements[kind]
        for region, together in enumerate(regions.together.tolist()):
            inside = np.where(regions.of_class == region, tree.masses[nodes], 0.0)
            squares = own.precisions[tree.places[nodes]] * (inside @ own.matrix.T) ** 2
            total -= float(tree.multiplicities[nodes] @ squares.sum(axis=1)) / together
    if tree.totals is not None:
        masses = tree.totals.masses
        # Members of one total are taken as those of one region.
        squares = tree.totals.precisions * masses**2
        total -= float(tree.totals.order.multiplicities @ squares) / float(regions.together.max())
    return max(total, 0.0)


def _subtract_prior(found: FloatArray, ratio: FloatArray) -> FloatArray:
    """Add log(ratio), rounded down, to lower bounds; what comes out below zero is zero."""
    with np.errstate(divide="ignore"):
        logs = np.log(np.clip(ratio, 0.0, 1.0))
    logs = logs * (1 + gamma(LOGARITHM))
    # Where nothing is proven, the logarithm is -inf.
    total = np.where(np.isfinite(logs), found + logs - gamma(4) * (found - logs), 0.0)
    return np.maximum(total, 0.0)


def _bound_log_ratio(regions: RegionMasses, t: float, c: float, P: FloatArray) -> float:
    """Bound log det of t T V T' and the masses that are not asked, over all masses, from below.

    T sums the classes of each region. With V >= c P P', it is at least R log c plus the logarithm
    of det(S S') for S with the columns of t^1/2 T P and of the roots of what is not asked, divided
    by the roots of the masses.
    """
    R = len(regions.together)
    roots = np.sqrt(regions.together) * (1 + gamma(4))
    sums = np.zeros((R, P.shape[1]))
    sizes = np.zeros((R, P.shape[1]))
    np.add.at(sums, regions.of_class, P)
    np.add.at(sizes, regions.of_class, np.abs(P))
    S = np.hstack([np.sqrt(t) * sums, np.diag(np.sqrt(regions.unasked))]) / roots[:, None]
    if not (c > 0 and np.isfinite(S).all() and (S != 0).any(axis=1).all()):
        return -np.inf
    Zt, departure = factor_sum(S[None], np.ones(1))
    # The rows of S are wrong by e, so that Z'S is wrong by at most |Z| e.
    error = gamma(len(P) + 8) * np.sqrt(t) * sizes / roots[:, None]
    error = error + gamma(8) * np.abs(S[:, : P.shape[1]])
    last = gamma(8) * np.sqrt((S[:, P.shape[1] :] ** 2).sum())
    off = np.sqrt((Zt[0] ** 2).sum()) * (np.sqrt((error**2).sum()) + last) * 1.01
    # |Z'S| is at most (1 + departure)^1/2.
    least = 1 - departure[0] - 2.02 * off * np.sqrt(1 + departure[0]) - 1.01 * off**2
    if not least > 0:
        return -np.inf
    logs, rounding = bound_log_sums(np.diagonal(Zt[0])[None])
    found = R * np.log(min(c, 1.0)) + R * np.log(min(least, 1.0))
    found -= abs(found) * gamma(LOGARITHM)
    return float(found - 2 * (logs[0] + rounding[0]) - gamma(8) * abs(logs[0]))
