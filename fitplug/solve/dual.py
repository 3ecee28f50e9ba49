"""The certified dual solver: a fixed point on the weights of cells and queries.

For weights p on the cells and q on the queries, both summing to 1, let P = B diag(p) B' and
Q = L' diag(q) L, with the rows of L divided by the square roots of the targets. The nuclear norm
T(p, q) = tr (P^1/2 Q P^1/2)^1/2 is a lower bound on the privacy cost, and its maximum over (p, q)
is the optimum. The matrix geometric mean S = P # Q^-1 minimises tr(P S^-1) + tr(Q S). Its largest
profile g and its largest variance ratio h give the upper bound sqrt(max g * max h). The fixed point

    p_i <- (p_i g_i / T + eps / d) / (1 + eps)        q_j <- (q_j h_j / T + eps / m) / (1 + eps)

is a multiplicative ascent (D15) whose mixing mass eps keeps all weights positive.

The cells may also be divided into several simplices, on each of which p has a fixed mass. The steps
(D19) then minimise the sum of mass * max g over the simplices. The refinement of tiers uses this.

The proofs are in docs/theory/dual.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from fitplug.errors import BAD_PROOF
from fitplug.numeric import BoolArray, FloatArray
from fitplug.solve.fixed_point import (
    MIXING,
    GapProgress,
    Iterate,
    find_fixed_point,
    mix_with_uniform,
)
from fitplug.solve.geometric_mean import compute_mean
from fitplug.solve.problem import Problem


@dataclass(frozen=True, eq=False)
class Simplex:
    """Cells whose weights p have a fixed sum.

    Attributes:
        cells: Mask of the cells, shape (d,).
        mass: The sum of p over these cells.
    """

    cells: BoolArray
    mass: float


@dataclass(frozen=True, eq=False)
class Solution:
    """The result of a solver.

    Attributes:
        p: Dual weights of the cells at the best lower bound, shape (d,), summing to 1.
        q: Dual weights of the queries at the best lower bound, shape (m,), summing to 1.
        whiteners: For each block F^-1 (k, k) with Sigma = F F', or an array (b,) for scalar blocks,
            at the best upper bound. Sigma is scaled so that max h = 1: it meets every target.
        profile: The profile g of this Sigma, shape (d,).
        lower: Lower bound on the optimal privacy cost, as the solver computed it. The certified
            bound is computed elsewhere.
        upper: Privacy cost of Sigma, as the solver computed it.
        iterations: The number of evaluations of the dual.
        stopped: Whether the progress callback asked to stop.
    """

    p: FloatArray
    q: FloatArray
    whiteners: tuple[FloatArray, ...]
    profile: FloatArray
    lower: float
    upper: float
    iterations: int
    stopped: bool = False

    @property
    def gap(self) -> float:
        """The relative gap between the two bounds."""
        return self.upper / self.lower - 1


@dataclass(frozen=True, eq=False)
class DualValue:
    """The dual at weights (p, q), and the geometric mean S that attains it.

    Attributes:
        value: The nuclear norm T.
        profile: g of S, shape (d,).
        ratios: The variances over targets h of S, shape (m,).
        whiteners: For each block F^-1 with S = F F'; see `Solution`.
    """

    value: float
    profile: FloatArray
    ratios: FloatArray
    whiteners: tuple[FloatArray, ...]


def solve_dual(
    problem: Problem,
    *,
    tolerance: float,
    max_iterations: int,
    progress: GapProgress | None = None,
    simplices: Sequence[Simplex] | None = None,
    start: tuple[FloatArray, FloatArray] | None = None,
    evaluate: Callable[[Problem, FloatArray, FloatArray], DualValue] | None = None,
) -> Solution:
    """Iterate until upper / lower - 1 <= tolerance, or for max_iterations.

    The result is deterministic.

    Args:
        problem: The reduced workload.
        tolerance: The relative gap that ends the iteration.
        max_iterations: The largest number of iterations.
        progress: Called with the iterations and the gap so far; it may ask to stop.
        simplices: A division of all cells. The default is one simplex of mass 1.
        start: Positive weights p (d,) and q (m,) to start from. The default is uniform weights.
        evaluate: A function that evaluates the dual of a problem that is not given as blocks. The
            default is `evaluate_dual`.

    Returns:
        The best weights and the best covariance of all iterations.

    Raises:
        DesignError: If the weights leave the range of floating point.
    """
    d, m = problem.cells, problem.queries
    ascent = _Ascent(
        problem,
        MIXING * tolerance,
        tuple(simplices or (Simplex(np.ones(d, dtype=bool), 1.0),)),
        evaluate or evaluate_dual,
    )
    end = find_fixed_point(
        ascent.evaluate_at,
        ascent.normalise,
        ascent.normalise(np.zeros(d + m) if start is None else np.log(np.concatenate(start))),
        tolerance=tolerance,
        max_iterations=max_iterations,
        progress=progress,
    )
    weights, best = end.best_lower.x, end.best_upper.evaluation
    largest = float(best.ratios.max())
    return Solution(
        p=np.exp(weights[:d]),
        q=np.exp(weights[d:]),
        whiteners=tuple(math.sqrt(largest) * whitener for whitener in best.whiteners),
        profile=best.profile * largest,
        lower=end.best_lower.lower,
        upper=end.best_upper.upper,
        iterations=end.iterations,
        stopped=end.stopped,
    )


@dataclass(frozen=True)
class _Ascent:
    """The fixed-point map of the module's docstring, on x = log (p, q)."""

    problem: Problem
    mixing: float
    simplices: tuple[Simplex, ...]
    evaluate: Callable[[Problem, FloatArray, FloatArray], DualValue]

    def evaluate_at(self, x: FloatArray) -> Iterate[DualValue] | None:
        """Return the iterate at x (d + m,), or None where floating point cannot evaluate it.

        Its merit (D16) is 2 log T + eps times the sum of the mean of log p, weighted by the masses,
        and the mean of log q. With several simplices a plain step may lower the merit, so only the
        gap is relied on.
        """
        d, eps = self.problem.cells, self.mixing
        p, q = np.exp(x[:d]), np.exp(x[d:])
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                dual = self.evaluate(self.problem, p, q)
        except (np.linalg.LinAlgError, ValueError):
            # SciPy raises ValueError for a matrix with an infinite entry.
            return None
        g, h = dual.profile, dual.ratios
        cost = sum(simplex.mass * float(g[simplex.cells].max()) for simplex in self.simplices)
        upper = math.sqrt(cost * float(h.max())) if cost >= 0 else math.nan
        if not (math.isfinite(upper) and 0 < dual.value < math.inf):
            return None
        merit = 2 * math.log(dual.value) + eps * float(x[d:].mean())
        next_p = np.empty_like(p)
        for simplex in self.simplices:
            cells = simplex.cells
            spent = p[cells] * g[cells]
            share = spent / spent.sum() if len(self.simplices) > 1 else spent / dual.value
            next_p[cells] = mix_with_uniform(share, eps, simplex.mass)
            merit += eps * simplex.mass * float(x[:d][cells].mean())
        next_q = mix_with_uniform(q * h / dual.value, eps)
        return Iterate(x, np.concatenate([next_p, next_q]), dual.value, upper, merit, dual)

    def normalise(self, x: FloatArray) -> FloatArray:
        """Scale the weights with the logarithms x (d + m,) to their simplices."""
        d = self.problem.cells
        scaled = x.copy()
        for simplex in self.simplices:
            cells = simplex.cells
            scaled[:d][cells] += math.log(simplex.mass) - _sum_logarithms(x[:d][cells])
        scaled[d:] -= _sum_logarithms(x[d:])
        return scaled


def _sum_logarithms(x: FloatArray) -> float:
    """Compute the logarithm of the sum of exp x, for x (n,), without overflow."""
    top = float(x.max())
    return top + math.log(float(np.exp(x - top).sum()))


def evaluate_dual(problem: Problem, p: FloatArray, q: FloatArray) -> DualValue:
    """Evaluate the dual at weights p (d,) and q (m,), where q sums to 1.

    Raises:
        LinAlgError, ValueError: If floating point cannot evaluate it.
    """
    g, h = np.zeros(problem.cells), np.zeros(problem.queries)
    value, whiteners = 0.0, []
    for block in problem.blocks:
        mean = compute_mean(block, p, q + problem.fixed_weights)
        value += mean.value
        whiteners.append(mean.compute_whitener())
        g += mean.profile
        h[block.rows] += mean.ratios
    h = h + float((problem.fixed_weights * h).sum())
    return DualValue(value, g, h, tuple(whiteners))


def evaluate_numbers(
    multiples: FloatArray, incidence: csr_array, p: FloatArray, q: FloatArray
) -> DualValue:
    """Evaluate the dual for blocks whose covariances are numbers z (b,).

    Args:
        multiples: The profile is multiples' z^-1, shape (b, d).
        incidence: The variances over targets are incidence z; sparse, shape (m, b).
        p: Weights of the cells, shape (d,).
        q: Weights of the queries, shape (m,).

    Returns:
        The dual, whose one whitener is z^-1/2.

    Raises:
        LinAlgError: If a block has no weight.
    """
    P, Q = multiples @ p, incidence.T @ q
    if not min(P.min(), Q.min()) > 0:
        raise np.linalg.LinAlgError(BAD_PROOF)
    z = np.sqrt(P / Q)
    value = float(np.sqrt(P * Q).sum())
    return DualValue(value, multiples.T @ (1 / z), incidence @ z, (1 / np.sqrt(z),))
