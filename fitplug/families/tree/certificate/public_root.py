"""Determinants of trees whose leaves move against each other, from below (docs/theory/units.md).

The sums z of a block's r classes of dense cells over all leaves have the covariance S / t in the
place of diag(s) / t, where s is the sum of the leaves' weights, and given z the leaves are as they
were. If V is the covariance of z given all that is asked, with diag(s) / t, the determinant is
multiplied by (U18)

    det(M) det(I + S J / t)    M = t diag(s)^-1/2 V diag(s)^-1/2    J = V^-1 - t diag(s)^-1

It increases with S. For a factor R R' <= S, and with c P P' <= V and B'B / C <= V^-1, it is at
least c^r det(P)^2 det(t / s) det(Q) with Q = I + (B R)'(B R) / (C t) - R'diag(s)^-1 R. Totals that
are public have no variance: they are linear combinations of z on which S is zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fitplug.families.tree.certificate.dense_trees import DenseTree, RootPosterior
from fitplug.families.tree.certificate.scalar_trees import LOGARITHM, ScalarTree
from fitplug.families.tree.shape.root_totals import RootTotals
from fitplug.numeric import FloatArray, gamma


@dataclass(frozen=True, eq=False)
class RootPrior:
    """The covariance of the sums of classes over all leaves, from below.

    Attributes:
        sums: s, shape (r,), positive.
        rounding: A bound on the relative error of s.
        reduction: G, shape (r, n): the classes of a public total sum to zero.
        factor: F, shape (n, n), with R = G F.
    """

    sums: FloatArray
    rounding: float
    reduction: FloatArray
    factor: FloatArray


def build_root_prior(
    sums: tuple[FloatArray, float],
    covariance: tuple[FloatArray, FloatArray],
    totals: RootTotals,
    lowered: float,
    roundings: int,
) -> RootPrior | None:
    """Find a factor of S = diag(degrees) - theta, less what is lost, from below.

    A Cholesky factor of what is computed is one of S if the diagonal is lowered by enough, as in
    (U7).

    Args:
        sums: s (r,) and a bound on its relative error.
        covariance: The degrees, shape (r,), and theta, shape (r, r), whose absolute values, and
            those of all terms that are summed to it, sum to the degrees at most.
        totals: The totals that are public.
        lowered: The part of the degrees that is taken off the diagonal.
        roundings: The roundings that led to the degrees and to theta.

    Returns:
        The prior; None if there is no such factor.
    """
    degrees, theta = covariance
    kept = totals.measured
    n = len(kept)
    shift = lowered + 2.2 * n * gamma(n + 4) + 4 * gamma(roundings)
    A = np.diag(degrees * (1 - shift)) - theta
    try:
        factor = np.linalg.cholesky(A[np.ix_(kept, kept)])
    except np.linalg.LinAlgError:
        return None
    return RootPrior(*sums, totals.reduction.astype(np.float64), np.asarray(factor, np.float64))


def lower_scalar_moves(tree: ScalarTree, prior: RootPrior, poles: FloatArray) -> FloatArray:
    """Bound the logarithm of the determinant of a tree of numbers from below, (P,)."""
    found, V = tree.sweep(poles)
    error = 2 * tree.error + gamma(16)
    roots = [
        RootPosterior(1 - error, np.array([x]), 1 + error, np.array([[1 / x]]))
        for x in np.sqrt(V[0]).tolist()
    ]
    return _add_gains(found, roots, prior, poles)


def lower_dense_moves(tree: DenseTree, prior: RootPrior, poles: FloatArray) -> FloatArray:
    """Bound the logarithm of the determinant of a tree of matrices from below, (P,)."""
    return _add_gains(*tree.sweep(poles), prior, poles)


def _add_gains(
    found: FloatArray, roots: Sequence[RootPosterior], prior: RootPrior, poles: FloatArray
) -> FloatArray:
    """Add the logarithms of what the determinants are multiplied by; zero where none is proven."""
    with np.errstate(all="ignore"):
        gains = [_lower_gain(root, prior, t) for root, t in zip(roots, poles.tolist(), strict=True)]
    total = found + np.array(gains)
    return np.where(np.isfinite(total), np.maximum(total - gamma(8) * found, 0.0), 0.0)


def _lower_gain(root: RootPosterior, prior: RootPrior, t: float) -> float:
    """Bound the logarithm of det(M) det(I + S J / t) from below; -inf where nothing is proven."""
    m, (r, n) = len(root.information), prior.reduction.shape
    ratios = root.diagonal**2 * (t / prior.sums)
    if not (root.least > 0 and np.isfinite(root.largest) and (ratios > 0).all()):
        return -np.inf
    logs = np.log(ratios)
    below = float(logs.sum()) - gamma(r + LOGARITHM) * float(np.abs(logs).sum())
    below += r * (np.log(min(root.least, 1.0)) - prior.rounding - gamma(LOGARITHM))
    if not n:
        return below
    # An entry of B R is wrong by gamma |B||G||F|, so that products of two columns of Q are wrong by
    # no more than the products of their sizes, and these are at most diag(n sizes^2).
    product = root.information @ prior.reduction @ prior.factor
    reach = np.abs(root.information) @ np.abs(prior.reduction) @ np.abs(prior.factor)
    scaled = prior.reduction @ prior.factor / np.sqrt(prior.sums)[:, None]
    reached = np.abs(prior.reduction) @ np.abs(prior.factor) / np.sqrt(prior.sums)[:, None]
    factor = 1 / (root.largest * t)
    Q = np.eye(n) + factor * (product.T @ product) - scaled.T @ scaled
    sizes = 1 + factor * (reach * reach).sum(axis=0) + (reached * reached).sum(axis=0)
    error = 4 * n * (gamma(m + 2 * r + n + 32) + prior.rounding) + 4 * n * gamma(n + 4)
    Q[np.diag_indices(n)] -= sizes * error
    try:
        diagonal = np.diagonal(np.linalg.cholesky(Q))
    except np.linalg.LinAlgError:
        return -np.inf
    more = 2 * np.log(diagonal)
    return below + float(more.sum()) - gamma(n + LOGARITHM) * float(np.abs(more).sum())
