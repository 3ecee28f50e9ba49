"""The least weighted total squared error at a given privacy cost: the matrix mechanism's optimum.

With weights w on the queries and g_i(S), h_j(S) the privacy profile and the variances of S,

    E* = min over S of  max_i g_i(S) * sum_j w_j h_j(S)

is the total at privacy cost 1. This is the dual of `fitplug.optimizer.dual` with q held at w: only
p, the weights of the cells, is left. For every p on the simplex, T(p)^2 <= E*, where
T(p) = || diag(w)^1/2 W diag(p)^1/2 ||_* (weak duality, Cauchy-Schwarz), and S = P # Q^-1 gives
tr(P S^-1) = tr(Q S) = T, so that E* <= T max g: max g / T - 1 is the gap. The fixed point

    p_i <- (p_i g_i / T + eps / d) / (1 + eps)

has max g <= (1 + eps) T, a gap of at most eps. It is the maximum of the concave merit

    2 log T(p) + eps / d * sum_i log p_i

on the simplex, and the plain step never lowers it: log T is convex in log p (Hadamard's three
lines theorem, as || . ||_* is unitarily invariant), and the step maximises the merit with log T
replaced by its tangent. So Anderson acceleration is held to raising the merit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from fitplug.numeric import FloatArray
from fitplug.optimizer.anderson import Anderson
from fitplug.optimizer.geometric_mean import mean
from fitplug.optimizer.problem import Block, reduce_block
from fitplug.proof import lower_bound

_MIXING = 0.3
_LARGEST_STEP = 2.0  # extrapolation changes a weight by at most a factor e^2
_ROUNDING = 1e-13  # of the merit


@dataclass(frozen=True, eq=False)
class TotalErrorOptimum:
    """The optimal strategy for a weighted total, at privacy cost Delta = 1; see `minimise`.

    variances: of each query, shape (m,); at Delta they are variances / Delta^2.
    value: sum of weights * variances. lower_bound: certified; no strategy has a smaller sum.
    p: the dual weights of the cells (d,) that prove it.
    """

    variances: FloatArray
    value: float
    lower_bound: float
    p: FloatArray
    iterations: int

    @property
    def gap(self) -> float:
        return self.value / self.lower_bound - 1 if self.lower_bound > 0 else math.inf


@dataclass(frozen=True, eq=False)
class _Iterate:
    """x = log p, T, max g, a factor F of S = F F', the merit, and the plain step from x."""

    x: FloatArray
    value: float
    largest: float
    factor: FloatArray
    merit: float
    residual: FloatArray
    weight: FloatArray

    @property
    def total(self) -> float:
        """The upper bound on E* that S gives."""
        return self.value * self.largest


def minimise(
    W: FloatArray, weights: FloatArray, *, tolerance: float, max_iterations: int
) -> TotalErrorOptimum:
    """Least sum_j weights_j * variance_j of W (m, d) at privacy cost 1, weights (m,) positive.

    Iterates until value / lower_bound - 1 <= tolerance, or max_iterations. Deterministic.
    Raises WorkloadError if the rank of W cannot be decided, numpy.linalg.LinAlgError if the
    weights lie too far apart for floating point.
    """
    targets = 1 / weights
    block, _ = reduce_block(W, targets)
    p, best, iterations = _solve(_small(block), 0.9 * tolerance, max_iterations)
    relative = ((block.representation @ best.factor) ** 2).sum(axis=1) * best.largest
    bound = lower_bound(W, targets, p, np.ones(len(W))) ** 2 * len(W)
    return TotalErrorOptimum(relative * targets, float(relative.sum()), bound, p, iterations)


def _small(block: Block) -> Block:
    """The same Q = L'L from k rows instead of m: with q held, L matters in no other way."""
    R = np.asarray(np.linalg.qr(block.representation, mode="r"))
    return replace(block, rows=np.arange(len(R)), representation=R)


def _solve(block: Block, tolerance: float, max_iterations: int) -> tuple[FloatArray, _Iterate, int]:
    """p at the best lower bound, the iterate with the best upper bound, and the iterations."""
    cells = block.basis.shape[1]
    accelerator = Anderson()
    low = up = best = here = _at(block, np.full(cells, -math.log(cells)), _MIXING * tolerance)
    iterations, extrapolated = 1, False
    while up.total > (1 + tolerance) * low.value**2 and iterations < max_iterations:
        if extrapolated and here.merit < best.merit - _ROUNDING:
            # Extrapolation led astray: take the plain step from the best point known instead.
            accelerator.forget()
            here, step, extrapolated = best, best.residual, False
        else:
            best = here
            step = accelerator.step(here.x, here.residual, here.weight)
            step, extrapolated = np.clip(step, -_LARGEST_STEP, _LARGEST_STEP), True
        x = here.x + step
        top = float(x.max())
        here = _at(block, x - top - math.log(np.exp(x - top).sum()), _MIXING * tolerance)
        low, up = max(low, here, key=lambda i: i.value), min(up, here, key=lambda i: i.total)
        iterations += 1
    return np.exp(low.x), up, iterations


def _at(block: Block, x: FloatArray, mixing: float) -> _Iterate:
    p = np.exp(x)
    found = mean(block, p, np.ones(len(block.rows)))
    value, g, factor = found.value, found.profile, found.factor()
    updated = (p * g / value + mixing / len(p)) / (1 + mixing)
    merit = 2 * math.log(value) + mixing * float(x.mean())
    return _Iterate(x, value, float(g.max()), factor, merit, np.log(updated) - x, np.sqrt(updated))
