"""Determinants of trees whose leaves move against each other, from below (docs/theory/units.md).

The leaves have the covariance diag(p) - theta sum_r p_r p_r' / P_r in the place of diag(p), for the
regions r of dense cells with the sums P_r. If M is the covariance of the totals of the regions
given all that is asked, over that without, then (U18)

    log det(I + N^ / t) = log det(I + N / t) + log det((1 - theta) I + theta M)

The sweep of the tree gives the first, and a lower bound of the covariance V of the root in the
order of symmetric matrices gives one of M. Where theta is 1, the totals are public.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fitplug.certify import factor_sum, sum_logarithms
from fitplug.families.tree.certificate.dense_trees import DenseTree
from fitplug.families.tree.certificate.scalar_trees import LOGARITHM, ScalarTree
from fitplug.numeric import FloatArray, IntArray, gamma


@dataclass(frozen=True, eq=False)
class RegionMasses:
    """The sums of p over the regions of dense cells, in the classes of a block at the root.

    Attributes:
        of_class: The region of each class of the root, shape (r,).
        together: The sum of each region, rounded up, shape (R,), positive.
        unasked: The sum over its cells that are in no class, rounded down, shape (R,).
        theta: The part of this that is taken off, rounded up, at most 1.
        rounding: A bound on the relative errors of the sums.
    """

    of_class: IntArray
    together: FloatArray
    unasked: FloatArray
    theta: float
    rounding: float


def lower_scalar_public(tree: ScalarTree, regions: RegionMasses, poles: FloatArray) -> FloatArray:
    """Bound log det(I + N^ / t) from below, for a tree of numbers, (P,)."""
    found, V = tree.sweep(poles)
    if regions.theta < 0:
        return np.asarray(found + _lower_gain(tree, V, regions, poles))
    known = poles * (V[0] * (1 - tree.error - gamma(16))) + regions.unasked[0]
    return _add_logarithm(found, regions, known / regions.together[0] * (1 - gamma(8)))


def _lower_gain(
    tree: ScalarTree, V: FloatArray, regions: RegionMasses, poles: FloatArray
) -> FloatArray:
    """Bound log(1 - theta (1 - M)) from below, for theta < 0 and one region, (P,)."""
    error = 2 * tree.error + gamma(32) + 8 * regions.rounding
    # What is asked tells no less than this part of the total.
    ratio = (poles * V[0] + regions.unasked[0]) / regions.together[0]
    known = np.clip(1 - ratio * (1 + error), 0.0, 1.0)
    return np.asarray(np.log1p(-regions.theta * known) * (1 - gamma(LOGARITHM)))


def lower_dense_public(
    tree: DenseTree, totals: ScalarTree, regions: RegionMasses, poles: FloatArray
) -> FloatArray:
    """Bound log det(I + N^ / t) from below, for a tree of matrices, (P,).

    Args:
        tree: The tree.
        totals: What it asks of the sum of all classes alone.
        regions: The regions.
        poles: t, shape (P,).
    """
    found, roots = tree.sweep(poles)
    if regions.theta <= 0:
        # The covariance of the leaves is no less than diag(p), and what is asked of the total
        # alone tells no more of it than all that is asked.
        if len(regions.together) > 1:
            return found
        return np.asarray(found + _lower_gain(totals, totals.sweep(poles)[1], regions, poles))
    r, R = len(regions.of_class), len(regions.together)
    if R == 1:
        # 1'V 1 >= c |P'1|^2, where the error of P'1 is at most that of its sums.
        known = np.empty(len(poles))
        for i, root in enumerate(roots):
            c, P = root.lower, root.factor
            sums, sizes = P.sum(axis=0), np.abs(P).sum(axis=0)
            norm = np.sqrt((sums * sums).sum()) - gamma(r) * np.sqrt((sizes * sizes).sum())
            known[i] = poles[i] * c * (max(norm * (1 - gamma(r + 4)), 0.0)) ** 2
        known = (known + regions.unasked[0]) / regions.together[0]
        return _add_logarithm(found, regions, known * (1 - gamma(16)))
    logs = np.array(
        [
            _lower_log_ratio(regions, float(t), own.lower, own.factor)
            for t, own in zip(poles, roots, strict=True)
        ]
    )
    total = np.where(np.isfinite(logs), found + logs - gamma(4) * (found + np.abs(logs)), 0.0)
    return np.maximum(total, 0.0)


def measure_scalar_trace(tree: ScalarTree, regions: RegionMasses) -> float:
    """Compute tr N^, not rounded outwards."""
    each = tree.precisions * tree.masses
    each = each * (1 - regions.theta * tree.masses / regions.together[0])
    return float(tree.order.multiplicities @ np.maximum(each, 0.0))


def measure_dense_trace(tree: DenseTree, regions: RegionMasses) -> float:
    """Compute tr N^, not rounded outwards."""
    total = tree.trace
    for kind, nodes in tree.group_kinds(np.arange(len(tree.masses))):
        own = tree.measurements[kind]
        for region, together in enumerate(regions.together.tolist()):
            inside = np.where(regions.of_class == region, tree.masses[nodes], 0.0)
            squares = own.precisions[tree.places[nodes]] * (inside @ own.matrix.T) ** 2
            less = float(tree.multiplicities[nodes] @ squares.sum(axis=1)) / together
            total -= regions.theta * less
    if tree.totals is not None:
        masses = tree.totals.masses
        # Members of one total are taken as those of one region.
        squares = tree.totals.precisions * masses**2
        less = float(tree.totals.order.multiplicities @ squares) / float(regions.together.max())
        total -= regions.theta * less
    return max(total, 0.0)


def _add_logarithm(found: FloatArray, regions: RegionMasses, ratio: FloatArray) -> FloatArray:
    """Add log(1 - theta + theta ratio), rounded down; what comes out below zero is zero."""
    ratio = np.clip(ratio, 0.0, 1.0)
    if regions.theta < 1:
        ratio = (1 - regions.theta) + regions.theta * ratio * (1 - gamma(8))
    with np.errstate(divide="ignore"):
        logs = np.log(ratio) * (1 + gamma(LOGARITHM))
    # Where nothing is proven, the logarithm is -inf.
    total = np.where(np.isfinite(logs), found + logs - gamma(8) * (found - logs + 1), 0.0)
    return np.maximum(total, 0.0)


def _lower_log_ratio(regions: RegionMasses, t: float, c: float, P: FloatArray) -> float:
    """Bound log det((1 - theta) I + theta M) from below.

    T sums the classes of each region. With V >= c P P', it is at least R log c plus the logarithm
    of det(S S') for S with the columns of (theta t)^1/2 T P and of the roots of theta times what is
    not asked and 1 - theta times all, divided by the roots of the masses.
    """
    R, theta = len(regions.together), regions.theta
    rest = (theta * regions.unasked + (1 - theta) * regions.together) * (1 - gamma(8))
    t = theta * t * (1 - gamma(8))
    roots = np.sqrt(regions.together) * (1 + gamma(4))
    sums = np.zeros((R, P.shape[1]))
    sizes = np.zeros((R, P.shape[1]))
    np.add.at(sums, regions.of_class, P)
    np.add.at(sizes, regions.of_class, np.abs(P))
    S = np.hstack([np.sqrt(t) * sums, np.diag(np.sqrt(np.maximum(rest, 0.0)))]) / roots[:, None]
    if not c > 0:
        return -np.inf
    # The rows of S are wrong by e.
    error = gamma(len(P) + 8) * np.sqrt(t) * sizes / roots[:, None]
    error = error + gamma(8) * np.abs(S[:, : P.shape[1]])
    last = gamma(8) * np.sqrt((S[:, P.shape[1] :] ** 2).sum())
    found = R * np.log(min(c, 1.0))
    found -= abs(found) * gamma(LOGARITHM)
    return float(found + lower_log_gram(S, float(np.sqrt((error**2).sum()) + last)))


def lower_log_gram(S: FloatArray, error: float) -> float:
    """Bound log det(S S') from below, for rows S (R, n) that are wrong by a matrix of this norm."""
    if not (np.isfinite(S).all() and (S != 0).any(axis=1).all()):
        return -np.inf
    Zt, departure = factor_sum(S[None], np.ones(1))
    # Z'S is wrong by at most |Z| e, and |Z'S| is at most (1 + departure)^1/2.
    off = np.sqrt((Zt[0] ** 2).sum()) * error * 1.01
    least = 1 - departure[0] - 2.02 * off * np.sqrt(1 + departure[0]) - 1.01 * off**2
    if not least > 0:
        return -np.inf
    logs, rounding = sum_logarithms(np.diagonal(Zt[0])[None])
    found = len(S) * np.log(min(least, 1.0))
    found -= abs(found) * gamma(LOGARITHM)
    return float(found - 2 * (logs[0] + rounding[0]) - gamma(8) * abs(logs[0]))
