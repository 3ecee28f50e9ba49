"""Certificates of trees: lower bounds on each block's nuclear norm, by sweeps over its nodes.

The norm of a block is tr N^1/2. A determinant of N + t I takes one sweep over the tree
(docs/theory/trees.md, (T6)), with numbers if the block has one class of dense cells, and with
matrices if it has more (`fitplug.families.tree.certificate.scalar_trees`,
`fitplug.families.tree.certificate.dense_trees`). A quadrature takes the trace of the square root
from them (`fitplug.certify.quadratures`).

If records move between leaves (docs/theory/units.md), the root has a different covariance. The sums
z of a block's r classes of dense cells over all leaves have the covariance S / t instead of diag(s)
/ t, where s is the sum of the leaves' weights; given z, the leaves are distributed as before. If V
is the covariance of z given all measurements, with diag(s) / t, the determinant is multiplied by
(U18)

    det(M) det(I + S J / t)    M = t diag(s)^-1/2 V diag(s)^-1/2    J = V^-1 - t diag(s)^-1

It increases with S. For a factor R R' <= S, and with c P P' <= V and B'B / C <= V^-1, it is at
least c^r det(P)^2 det(t / s) det(Q) with Q = I + (B R)'(B R) / (C t) - R'diag(s)^-1 R. Public
totals have no variance: they are linear combinations of z on which S is zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fitplug.certify import COARSE_STEP, STEP, LogDeterminants, lower_trace
from fitplug.families.blocks.certificate import BlockCertifier
from fitplug.families.tree.certificate.block_weights import BlockWeights
from fitplug.families.tree.certificate.dense_trees import DenseTree
from fitplug.families.tree.certificate.scalar_trees import LOGARITHM, RootPosterior, ScalarTree
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.root_totals import RootTotals
from fitplug.numeric import FloatArray, gamma


@dataclass(frozen=True, eq=False)
class RootPrior:
    """A lower bound on the covariance of the sums of classes over all leaves.

    Attributes:
        sums: s, shape (r,), positive.
        rounding: A bound on the relative error of s.
        reduction: G, shape (r, n), whose columns sum to zero over the classes of a public total.
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
    """Find a lower bound R R' on S = diag(degrees) - theta minus losses.

    A Cholesky factor of the computed matrix is such an R if the diagonal is lowered by enough, as
    in (U7).

    Args:
        sums: s (r,) and a bound on its relative error.
        covariance: The degrees, shape (r,), and theta, shape (r, r). The row sums of the absolute
            values of all terms of theta are at most the degrees.
        totals: The public totals.
        lowered: The share of the degrees to subtract from the diagonal.
        roundings: The number of roundings in the degrees and theta.

    Returns:
        The prior; None if there is no such factor.
    """
    degrees, theta = covariance
    measured = totals.measured
    n = len(measured)
    shift = lowered + 2.2 * n * gamma(n + 4) + 4 * gamma(roundings)
    A = np.diag(degrees * (1 - shift)) - theta
    try:
        factor = np.linalg.cholesky(A[np.ix_(measured, measured)])
    except np.linalg.LinAlgError:
        return None
    return RootPrior(*sums, totals.reduction.astype(np.float64), np.asarray(factor, np.float64))


def add_gains(
    bounds: FloatArray, roots: Sequence[RootPosterior], prior: RootPrior, poles: FloatArray
) -> FloatArray:
    """Add the logarithms of the determinants' factors; zero where nothing is proven."""
    with np.errstate(all="ignore"):
        gains = [_lower_gain(root, prior, t) for root, t in zip(roots, poles.tolist(), strict=True)]
        total = bounds + np.array(gains)
        total -= gamma(8) * np.abs(bounds)
    return np.where(np.isfinite(total), np.maximum(total, 0.0), 0.0)


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
    # An entry of B R has an error of gamma |B||G||F|, so products of two columns in Q have errors
    # of at most the products of their sizes, which are at most diag(n sizes^2).
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


TOLERANCE, COARSE_TOLERANCE = 5e-10, 3e-6
"""The largest share of a norm lost by omitting poles: usually, and where poles are costly."""

LARGE_WORK = 5e7
"""Poles are costly if the nodes times their matrices' sizes cubed exceed this."""

MOST_WORK = 5e10
"""The limit on the nodes times their matrices' sizes cubed: about ten minutes per block."""

MOST_NUMBERS = 2_000_000
"""The most numbers of nodes and poles in memory at once, unless there are few poles."""


class TreeCertifier(BlockCertifier[TreeStructure]):
    """The certificate of `TreeStructure`."""

    takes_objectives = True

    def lower_norm(
        self, structure: TreeStructure, weights: FloatArray, row_weights: FloatArray
    ) -> float:
        power, p = scale_by_power(weights.reshape(-1, structure.cells))
        more, rows = scale_by_power(row_weights)
        multiples = structure.subsets.profile_multiples
        norms = [
            math.sqrt(multiples[block]) * lower_block_norm(structure, block, p, rows)
            for block in structure.noisy_blocks.tolist()
            if multiples[block] > 0
        ]
        # The last factor covers the roundings of p over the budgets, of q / c with the weight on
        # the total squared error, and of the multiples.
        return math.ldexp(math.fsum(norms), power + more) * (1 - gamma(64))


def lower_block_norm(
    structure: TreeStructure, block: int, p: FloatArray, row_weights: FloatArray
) -> float:
    """Bound || diag(multiple q / c)^1/2 W diag(p)^1/2 ||_* of a block from below.

    Args:
        structure: The structure.
        block: The block.
        p: Weights of leaves and dense cells, near 1 or less, shape (leaves, D).
        row_weights: q / c, near 1 or less, shape (rows,).

    Returns:
        The bound.
    """
    power, rows = scale_rows(structure, block, row_weights)
    weights = BlockWeights(structure, block, p, rows)
    return math.ldexp(lower_weighted_norm(weights, None), power)


def scale_rows(
    structure: TreeStructure, block: int, row_weights: FloatArray
) -> tuple[int, FloatArray]:
    """Divide q / c by a power of 4, so that the largest weight of a block is near 1."""
    most = max(part.multiple * row_weights[part.rows].max() for part in structure.parts[block])
    power = math.frexp(float(most))[1] // 2
    return power, np.ldexp(row_weights, -2 * power)


def lower_root_trace(tree: ScalarTree | DenseTree, evaluate: LogDeterminants, most: float) -> float:
    """Bound tr N^1/2 from below.

    Args:
        tree: The tree of numbers or of matrices.
        evaluate: Returns lower bounds on log det(I + N / t) at poles t.
        most: An approximate limit on the factor by which eigenvalues exceed those of the tree.
    """
    tolerance, step, batch = TOLERANCE, STEP, 8
    if isinstance(tree, DenseTree):
        work = len(tree.masses) * float(tree.masses.shape[1]) ** 3
        if work > MOST_WORK:
            raise ValueError("the proof of the lower bound would take too much work to check")
        if work > LARGE_WORK:
            tolerance, step, batch = COARSE_TOLERANCE, COARSE_STEP, 4
    else:
        batch = min(max(MOST_NUMBERS // len(tree.masses), 6), 24)
    bound, _ = lower_trace(
        evaluate,
        rank=tree.rank,
        trace=tree.trace * most,
        largest=tree.upper_eigenvalue() * most,
        tolerance=tolerance,
        step=step,
        batch=batch,
    )
    return bound


def lower_weighted_norm(
    weights: BlockWeights,
    prior: RootPrior | None,
    most: float = 2.0,
    scales: FloatArray | None = None,
) -> float:
    """Bound the norm of a block from below.

    Args:
        weights: The weights of the block.
        prior: The covariance of the root's classes, if it is not that of the weights.
        most: A limit on the factor by which the prior raises eigenvalues: 2 where records move.
        scales: For one class of dense cells, the factors a_d of each depth, shape (depths,); see
            `ScalarTree`. None for 1.
    """
    if weights.last < 0:
        return 0.0
    # The norm grows at most in proportion to the masses and the precisions.
    error = 8 * weights.rounding
    more = 1.0 if prior is None else most
    tree: ScalarTree | DenseTree
    share = 1.0
    if weights.classes[0].size == 1:
        tree = weights.build_scalar(scales)
    else:
        totals = weights.find_totals()
        tree = weights.build_dense(totals)
        # Weights of pairs are products of two leaves' weights.
        share = math.sqrt(totals.share) if prior is None else totals.share

    def evaluate(poles: FloatArray) -> FloatArray:
        bounds, roots = tree.lower_determinants(poles)
        return bounds if prior is None else add_gains(bounds, roots, prior, poles)

    bound = lower_root_trace(tree, evaluate, more)
    return bound * share * (1 - error)


def scale_by_power(values: FloatArray) -> tuple[int, FloatArray]:
    """Divide numbers by a power of 4 so that the largest is near 1.

    Returns:
        k, and the numbers divided by 4^k, without rounding except for tiny numbers.
    """
    k = math.frexp(float(values.max()))[1] // 2
    return k, np.ldexp(values, -2 * k)
