"""The certified dual solver: a fixed point on the weights of cells and queries.

For p on the cells and q on the queries (probabilities), P = B diag(p) B', Q = L' diag(q) L (L
over the square roots of the targets). The nuclear norm T(p, q) = tr (P^1/2 Q P^1/2)^1/2 is a
lower bound on the privacy cost for every (p, q), and its maximum is the optimum. The minimiser of
tr(P S^-1) + tr(Q S) is the matrix geometric mean S = P # Q^-1, whose largest profile g and
largest variance ratio h give the upper bound sqrt(max g * max h). The fixed point

    p_i <- (p_i g_i / T + eps / d) / (1 + eps)        q_j <- (q_j h_j / T + eps / m) / (1 + eps)

is the multiplicative ascent, with the mixing mass eps of the log-barrier's central path.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.errors import DesignError
from fitplug.problem import Problem
from fitplug.solvers.anderson import Anderson
from fitplug.solvers.mean import geometric_mean

Array: TypeAlias = npt.NDArray[np.float64]
Progress: TypeAlias = Callable[[int, float], object]
"""Called with (iterations so far, relative gap so far)."""

_MIXING = 0.3
_LARGEST_STEP = 2.0  # a weight changes by at most a factor e^2 an iteration
_ROUNDING = 1e-13  # of the merit


@dataclass(frozen=True, eq=False)
class Solution:
    """What a solver found.

    p, q: dual weights, shapes (d,) and (m,), each on the simplex.
    whiteners: per block F^-1 (k, k) with Sigma = F F', at the best upper bound seen.
    lower, upper: bounds on the optimal privacy cost, as the solver saw them (not yet certified).
    """

    p: Array
    q: Array
    whiteners: tuple[Array, ...]
    lower: float
    upper: float
    iterations: int

    @property
    def gap(self) -> float:
        return self.upper / self.lower - 1


@dataclass(frozen=True, eq=False)
class _Point:
    """The dual at (p, q): T, the profile g (d,), the variance ratios h (m,), F^-1 per block."""

    value: float
    g: Array
    h: Array
    whiteners: tuple[Array, ...]

    @property
    def upper(self) -> float:
        return math.sqrt(float(self.g.max()) * float(self.h.max()))


def solve(
    problem: Problem,
    *,
    tolerance: float,
    max_iterations: int,
    progress: Progress | None = None,
) -> Solution:
    """Iterate until upper / lower - 1 <= tolerance, or max_iterations. Deterministic.

    Raises DesignError if the weights leave what floating point can hold.
    """
    d = problem.cells
    ascent = _Ascent(problem, _MIXING * tolerance)
    accelerator = Anderson()
    x = _on_simplices(np.zeros(d + problem.queries), d)
    best_low: tuple[float, Array] = (-math.inf, x)
    best_up: tuple[float, tuple[Array, ...]] = (math.inf, ())
    highest: _Iterate | None = None
    extrapolated = False
    iteration = 0
    while True:
        iteration += 1
        here = ascent.at(x)
        if here is not None:
            point = here.point
            best_low = max(best_low, (point.value, x), key=lambda found: found[0])
            best_up = min(best_up, (point.upper, point.whiteners), key=lambda found: found[0])
            gap = best_up[0] / best_low[0] - 1
            if progress is not None:
                progress(iteration, gap)
            if gap <= tolerance or iteration >= max_iterations:
                break
        elif not extrapolated:
            raise DesignError(
                "the targets differ by too many orders of magnitude to be certified in floating "
                "point; bring them closer together or split the workload"
            )
        if highest is not None and (here is None or here.merit < highest.merit - _ROUNDING):
            # Extrapolation led astray, and might do so for ever: take the plain step, which never
            # loses merit, from the highest point known, and begin the history anew.
            accelerator.forget()
            here, step, extrapolated = highest, highest.residual, False
        else:
            assert here is not None
            highest = here
            step = accelerator.step(here.x, here.residual, here.weight)
            step, extrapolated = np.clip(step, -_LARGEST_STEP, _LARGEST_STEP), True
        x = _on_simplices(here.x + step, d)
    p, q = np.exp(best_low[1][:d]), np.exp(best_low[1][d:])
    return Solution(p, q, best_up[1], best_low[0], best_up[0], iteration)


@dataclass(frozen=True, eq=False)
class _Iterate:
    """A point x = log (p, q) of the fixed-point iteration, and the plain step from it.

    merit: 2 log T + eps (mean log p + mean log q), which the fixed point maximises. log T is convex
        in x (three-lines theorem), so the plain step never lowers it.
    """

    x: Array
    point: _Point
    merit: float
    residual: Array
    weight: Array


@dataclass(frozen=True)
class _Ascent:
    """The fixed-point map of the module's docstring, on x = log (p, q)."""

    problem: Problem
    mixing: float

    def at(self, x: Array) -> _Iterate | None:
        """The iterate at x, or None where floating point gives out."""
        d, m, eps = self.problem.cells, self.problem.queries, self.mixing
        p, q = np.exp(x[:d]), np.exp(x[d:])
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                point = _evaluate(self.problem, p, q)
        except (np.linalg.LinAlgError, ValueError):  # SciPy's for a matrix with an infinity
            return None
        if not (math.isfinite(point.upper) and 0 < point.value < math.inf):
            return None
        updated = np.concatenate(
            [
                (p * point.g / point.value + eps / d) / (1 + eps),
                (q * point.h / point.value + eps / m) / (1 + eps),
            ]
        )
        merit = 2 * math.log(point.value) + eps * float(x[:d].mean() + x[d:].mean())
        return _Iterate(x, point, merit, np.log(updated) - x, np.sqrt(updated))


def _on_simplices(x: Array, d: int) -> Array:
    return np.concatenate([x[:d] - _log_sum(x[:d]), x[d:] - _log_sum(x[d:])])


def _log_sum(x: Array) -> float:
    top = float(x.max())
    return top + math.log(float(np.exp(x - top).sum()))


def _evaluate(problem: Problem, p: Array, q: Array) -> _Point:
    g, h = np.zeros(problem.cells), np.zeros(problem.queries)
    value, whiteners = 0.0, []
    for block in problem.blocks:
        part, whitener, colourer = geometric_mean(block, p, q)
        value += part
        whiteners.append(whitener)
        g += block.weight * ((whitener @ block.basis) ** 2).sum(axis=0)
        h[block.rows] += ((block.representation @ colourer) ** 2).sum(axis=1)
    return _Point(value, g, h, tuple(whiteners))
