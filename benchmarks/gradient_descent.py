"""Run gradient descent on the paper's soft-max objective (Problem 4), for its `table:time_gd`.

The paper says nothing else about it. Here only the direction differs from SM-II: the start of
Section 6.3, the backtracking of Algorithm 3, t = 1, 2, 4, ..., and the certified gap at which it
stops are the same. Where the paper leaves a choice, the choice favours gradient descent: a line
search begins at twice the last step and not at 1, and t is raised by another rule (`SETTLED`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular
from scipy.special import logsumexp, softmax

Matrix = npt.NDArray[np.float64]

BETA = 0.5  # Algorithm 3, line 1
SIGMA = 0.01  # Algorithm 3, line 6
START = 0.99  # Section 6.3: the largest variance over target at the start
SETTLED = 0.25
"""t is doubled once the gap is below this number times log(d m) / t, the largest error of a soft
max. Among 0.1, 0.25, 0.5, 1, 2 and 4 it is the fastest on prefixes; with 0.1, t is never
raised."""
CHECK = 10  # steps from one look at the gap to the next


@dataclass(frozen=True)
class Descent:
    """Bounds on the optimal privacy cost, and the number of steps that they took."""

    lower: float
    upper: float
    iterations: int

    @property
    def gap(self) -> float:
        return self.upper / self.lower - 1


@dataclass(frozen=True, eq=False)
class _Point:
    """S with S = R R', the profile g (d,), the variances over targets h (m,), and F_t."""

    S: Matrix
    R: Matrix
    g: Matrix
    h: Matrix
    objective: float

    @property
    def upper(self) -> float:
        return math.sqrt(float(self.g.max() * self.h.max()))


def solve(B: Matrix, L: Matrix, *, tolerance: float, max_iterations: int) -> Descent:
    """Descend until upper / lower - 1 <= tolerance, or for max_iterations steps.

    The steps depend on the basis B (k, d). L (m, k) is divided by the square roots of the targets.
    """
    W, (d, m) = L @ B, (B.shape[1], len(L))
    unit = lower = _bound(W, np.full(d, 1 / d), np.full(m, 1 / m))
    L = L / unit  # so that t counts in units of the cost, as in SM-II
    S, t, size = B @ B.T, 1.0, 1.0
    here = _at(S * START / np.einsum("ij,jk,ik->i", L, S, L).max(), B, L, t)
    upper = here.upper * unit
    for iteration in range(max_iterations):
        p, q = softmax(t * here.g), softmax(t * here.h)
        upper = min(upper, here.upper * unit)
        if iteration % CHECK == 0:
            bound = _bound(W, p, q)
            lower = max(lower, bound)
            if upper / lower - 1 <= tolerance:
                return Descent(lower, upper, iteration)
            if here.upper * unit / bound - 1 < SETTLED * math.log(d * m) / t:
                t *= 2
                here = _at(here.S, B, L, t)
                p, q = softmax(t * here.g), softmax(t * here.h)
        whitened = solve_triangular(here.R, B, lower=True)
        Y = solve_triangular(here.R, whitened, lower=True, trans="T")
        gradient = (L.T * q) @ L - (Y * p) @ Y.T
        here, size = _line_search(here, gradient, 2 * size, B, L, t)
    return Descent(lower, min(upper, here.upper * unit), max_iterations)


def _line_search(
    here: _Point, gradient: Matrix, size: float, B: Matrix, L: Matrix, t: float
) -> tuple[_Point, float]:
    """Run Algorithm 3 from this size; return the accepted point and the size of the step to it."""
    slope = float((gradient**2).sum())
    while size > 0:
        try:
            new = _at(here.S - size * gradient, B, L, t)
        except np.linalg.LinAlgError:  # not positive definite
            new = None
        if new is not None and new.objective <= here.objective - SIGMA * size * slope:
            return new, size
        size *= BETA
    return here, 1.0  # rounding leaves no decrease


def _at(S: Matrix, B: Matrix, L: Matrix, t: float) -> _Point:
    R = np.linalg.cholesky(S)
    g = (solve_triangular(R, B, lower=True) ** 2).sum(axis=0)
    h = ((L @ R) ** 2).sum(axis=1)
    return _Point(S, R, g, h, float(logsumexp(t * g) + logsumexp(t * h)) / t)


def _bound(W: Matrix, p: Matrix, q: Matrix) -> float:
    """Compute T(p, q), the dual's lower bound on the privacy cost."""
    return float(np.linalg.norm(np.sqrt(q)[:, None] * W * np.sqrt(p), "nuc"))
