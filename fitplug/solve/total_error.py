"""The least weighted total squared error at a given privacy cost: the matrix mechanism's optimum.

With weights w on the queries, and g_i(S) and h_j(S) the privacy profile and the variances of S,

    E* = min over S of  max_i g_i(S) * sum_j w_j h_j(S)

is the total at privacy cost 1 (D22). This is the dual of `fitplug.solve.dual` with q held at w,
so that only the weights p of the cells are left. For every p on the simplex, T(p)^2 <= E* with the
nuclear norm T(p) = || diag(w)^1/2 W diag(p)^1/2 ||_*. The geometric mean S = P # Q^-1 has
tr(P S^-1) = tr(Q S) = T, so E* <= T max g. The fixed point

    p_i <- (p_i g_i / T + eps / d) / (1 + eps)

has max g <= (1 + eps) T, a relative gap of at most eps, and its plain step never lowers the merit
2 log T(p) + eps / d * sum_i log p_i. The proof is in docs/theory/dual.md, section "Cell budgets and
the total squared error".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from fitplug.certify import certify_dense_bound
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray
from fitplug.solve.fixed_point import (
    MIXING,
    Iterate,
    find_fixed_point,
    mix_with_uniform,
    normalise_logarithms,
)
from fitplug.solve.geometric_mean import GeometricMean, compute_mean
from fitplug.solve.problem import Block, reduce_block

_SOLVER_SHARE = 0.9
"""The part of the tolerance that the solver may use up; certifying the bound takes the rest."""


@dataclass(frozen=True, eq=False)
class TotalErrorOptimum:
    """The optimal strategy for a weighted total of variances, at privacy cost Delta = 1.

    Attributes:
        variances: The variance of each query, shape (m,). At Delta it is variances / Delta^2.
        value: The sum of weights * variances.
        lower_bound: Certified: no strategy has a smaller sum.
        p: The dual weights of the cells that prove it, shape (d,).
        iterations: How many iterations were made.
    """

    variances: FloatArray
    value: float
    lower_bound: float
    p: FloatArray
    iterations: int

    @property
    def gap(self) -> float:
        """The relative gap between the value and its lower bound."""
        return self.value / self.lower_bound - 1 if self.lower_bound > 0 else math.inf


def minimise_total_error(
    W: FloatArray, weights: FloatArray, *, tolerance: float, max_iterations: int
) -> TotalErrorOptimum:
    """Minimise sum_j weights_j * variance_j at privacy cost 1.

    The result is deterministic.

    Args:
        W: Workload matrix, shape (m, d).
        weights: Positive weights of the queries, shape (m,).
        tolerance: The relative gap value / lower_bound - 1 that ends the iteration.
        max_iterations: The largest number of iterations.

    Raises:
        WorkloadError: If the rank of W cannot be decided.
        LinAlgError: If the weights lie too far apart for floating point.
    """
    targets = 1 / weights
    block, _ = reduce_block(W, targets)
    small = _compress_rows(block)
    cells = W.shape[1]
    tolerance *= _SOLVER_SHARE
    mixing = MIXING * tolerance

    def evaluate(x: FloatArray) -> Iterate[GeometricMean]:
        p = np.exp(x)
        mean = compute_mean(small, p, np.ones(len(small.rows)))
        return Iterate(
            x=x,
            following=mix_with_uniform(p * mean.profile / mean.value, mixing),
            lower=mean.value**2,
            upper=mean.value * float(mean.profile.max()),
            merit=2 * math.log(mean.value) + mixing * float(x.mean()),
            evaluation=mean,
        )

    end = find_fixed_point(
        evaluate,
        normalise_logarithms,
        np.full(cells, -math.log(cells)),
        tolerance=tolerance,
        max_iterations=max_iterations,
    )
    best, p = end.best_upper.evaluation, np.exp(end.best_lower.x)
    ratios = ((block.representation @ best.compute_factor()) ** 2).sum(axis=1) * float(
        best.profile.max()
    )
    bound = (
        certify_dense_bound(W, targets, p, np.ones(len(W))) ** 2 * len(W) * (1 - 4 * UNIT_ROUNDOFF)
    )
    return TotalErrorOptimum(ratios * targets, float(ratios.sum()), bound, p, end.iterations)


def _compress_rows(block: Block) -> Block:
    """Return a block with the same Q = L'L from k rows: while q is held, only L'L matters."""
    R = np.asarray(np.linalg.qr(block.representation, mode="r"))
    return replace(block, rows=np.arange(len(R)), representation=R)
