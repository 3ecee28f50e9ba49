"""The certified dual solver: a fixed point on the weights of cells and queries.

For p on the cells and q on the queries (probabilities), P = B diag(p) B', Q = L' diag(q) L (L
over the square roots of the targets). The nuclear norm T(p, q) = tr (P^1/2 Q P^1/2)^1/2 is a
lower bound on the privacy cost for every (p, q), and its maximum is the optimum. The minimiser of
tr(P S^-1) + tr(Q S) is the matrix geometric mean S = P # Q^-1, whose largest profile g and
largest variance ratio h give the upper bound sqrt(max g * max h). The fixed point

    p_i <- (p_i g_i / T + eps / d) / (1 + eps)        q_j <- (q_j h_j / T + eps / m) / (1 + eps)

is the multiplicative ascent, with the mixing mass eps of the log-barrier's central path.

With the cells in parts of fixed mass, p stays on a simplex in each, and it is the sum over parts
of mass * max g that is made least: how the tiers of the refined optimum are told apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fitplug.errors import DesignError
from fitplug.numeric import BoolArray, FloatArray
from fitplug.optimizer.anderson import Anderson
from fitplug.optimizer.geometric_mean import mean, scalar_means
from fitplug.optimizer.problem import Problem, Scalars

Progress: TypeAlias = Callable[[int, float], object]
"""Called with (iterations so far, relative gap so far). If it returns True the solver stops."""

MIXING = 0.3
"""eps over the tolerance."""

_LARGEST_STEP = 2.0  # a weight changes by at most a factor e^2 an iteration
_ROUNDING = 1e-13  # of the merit


@dataclass(frozen=True, eq=False)
class Part:
    """Cells that share a simplex of p: a mask (d,), and the mass that p has there."""

    cells: BoolArray
    mass: float


@dataclass(frozen=True, eq=False)
class Solution:
    """What a solver found.

    p, q: dual weights, shapes (d,) and (m,), each on the simplex, at the best lower bound seen.
    whiteners: per block F^-1 (k, k), or (b,) for scalar ones, with Sigma = F F', at the best upper
        bound seen, the multiple with max h = 1: it meets every target. profile: its g, shape (d,).
    lower, upper: bounds on the optimal privacy cost, as the solver saw them (not yet certified).
    stopped: whether the progress callback asked to stop.
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
        return self.upper / self.lower - 1


@dataclass(frozen=True, eq=False)
class Point:
    """The dual at (p, q): T, the profile g (d,), the variance ratios h (m,), F^-1 per block."""

    value: float
    g: FloatArray
    h: FloatArray
    whiteners: tuple[FloatArray, ...]


def solve(
    problem: Problem,
    *,
    tolerance: float,
    max_iterations: int,
    progress: Progress | None = None,
    parts: Sequence[Part] | None = None,
    start: tuple[FloatArray, FloatArray] | None = None,
    at: Callable[[Problem, FloatArray, FloatArray], Point] | None = None,
) -> Solution:
    """Iterate until upper / lower - 1 <= tolerance, or max_iterations. Deterministic.

    start: weights (p, q), all positive, to begin from; uniform ones if not given.
    at: `evaluate`, or what does the same for a problem that is not written as blocks.
    Raises DesignError if the weights leave what floating point can hold.
    """
    d, m = problem.cells, problem.queries
    parts = parts or (Part(np.ones(d, dtype=bool), 1.0),)
    ascent = _Ascent(problem, MIXING * tolerance, tuple(parts), at or evaluate)
    accelerator = Anderson()
    x = ascent.on_simplices(np.zeros(d + m) if start is None else np.log(np.concatenate(start)))
    best_low: tuple[float, FloatArray] = (-math.inf, x)
    best_up: tuple[float, Point | None] = (math.inf, None)
    highest: _Iterate | None = None
    extrapolated = stopped = False
    iteration = 0
    while True:
        iteration += 1
        here = ascent.at(x)
        if here is not None:
            best_low = max(best_low, (here.point.value, x), key=lambda found: found[0])
            best_up = min(best_up, (here.upper, here.point), key=lambda found: found[0])
            gap = best_up[0] / best_low[0] - 1
            if progress is not None:
                stopped = progress(iteration, gap) is True
            if gap <= tolerance or iteration >= max_iterations or stopped:
                break
        elif not extrapolated:
            raise DesignError(
                "the targets differ by too many orders of magnitude to be certified in floating "
                "point; bring them closer together or split the workload"
            )
        lower = highest and (here is None or here.merit < highest.merit - _ROUNDING)
        if highest is not None and extrapolated and lower:
            # Extrapolation led astray, and might do so for ever: take the plain step, which never
            # loses merit but for rounding, from the highest point known, and begin anew.
            accelerator.forget()
            here, step, extrapolated = highest, highest.residual, False
        else:
            assert here is not None
            highest = here
            step = accelerator.step(here.x, here.residual, here.weight)
            step, extrapolated = np.clip(step, -_LARGEST_STEP, _LARGEST_STEP), True
        x = ascent.on_simplices(here.x + step)
    p, q = np.exp(best_low[1][:d]), np.exp(best_low[1][d:])
    top = best_up[1]
    assert top is not None
    worst = float(top.h.max())
    whiteners = tuple(math.sqrt(worst) * whitener for whitener in top.whiteners)
    return Solution(p, q, whiteners, top.g * worst, best_low[0], best_up[0], iteration, stopped)


@dataclass(frozen=True, eq=False)
class _Iterate:
    """A point x = log (p, q) of the fixed-point iteration, and the plain step from it.

    upper: the upper bound there. merit: 2 log T + eps (the mean of log p, weighted by the parts'
        masses, + mean log q), which the fixed point maximises. log T is convex in x (three-lines
        theorem), so the plain step never lowers it.
    """

    x: FloatArray
    point: Point
    upper: float
    merit: float
    residual: FloatArray
    weight: FloatArray


@dataclass(frozen=True)
class _Ascent:
    """The fixed-point map of the module's docstring, on x = log (p, q)."""

    problem: Problem
    mixing: float
    parts: tuple[Part, ...]
    evaluate: Callable[[Problem, FloatArray, FloatArray], Point]

    def at(self, x: FloatArray) -> _Iterate | None:
        """The iterate at x, or None where floating point gives out."""
        d, eps = self.problem.cells, self.mixing
        p, q = np.exp(x[:d]), np.exp(x[d:])
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                point = self.evaluate(self.problem, p, q)
        except (np.linalg.LinAlgError, ValueError):  # SciPy's for a matrix with an infinity
            return None
        cost = sum(part.mass * float(point.g[part.cells].max()) for part in self.parts)
        upper = math.sqrt(cost * float(point.h.max())) if cost >= 0 else math.nan
        if not (math.isfinite(upper) and 0 < point.value < math.inf):
            return None
        merit = 2 * math.log(point.value) + eps * float(x[d:].mean())
        updated = np.empty_like(p)
        for part in self.parts:
            mine = part.cells
            spent = p[mine] * point.g[mine]
            share = spent / spent.sum() if len(self.parts) > 1 else spent / point.value
            updated[mine] = part.mass * (share + eps / len(spent)) / (1 + eps)
            merit += eps * part.mass * float(x[:d][mine].mean())
        raised = (q * point.h / point.value + eps / len(q)) / (1 + eps)
        new = np.concatenate([updated, raised])
        return _Iterate(x, point, upper, merit, np.log(new) - x, np.sqrt(new))

    def on_simplices(self, x: FloatArray) -> FloatArray:
        d = self.problem.cells
        scaled = x.copy()
        for part in self.parts:
            scaled[:d][part.cells] += math.log(part.mass) - _log_sum(x[:d][part.cells])
        scaled[d:] -= _log_sum(x[d:])
        return scaled


def _log_sum(x: FloatArray) -> float:
    top = float(x.max())
    return top + math.log(float(np.exp(x - top).sum()))


def evaluate(problem: Problem, p: FloatArray, q: FloatArray) -> Point:
    """The dual at weights p (d,) and q (m,), q summing to 1. Raises LinAlgError or ValueError."""
    g, h = np.zeros(problem.cells), np.zeros(problem.queries)
    value, whiteners = 0.0, []
    for block in problem.blocks:
        if isinstance(block, Scalars):
            means = scalar_means(block, p, q + problem.held)
            value, g, h = value + means.value, g + means.profile, h + means.ratios
            whiteners.append(means.whitener())
            continue
        found = mean(block, p, q + problem.held)
        value += found.value
        whiteners.append(found.whitener())
        g += found.profile
        h[block.rows] += found.ratios
    return Point(value, g, h + float((problem.held * h).sum()), tuple(whiteners))
