"""SM-II: the optimizer of Xiao, Ding, Wang, Zhang and Kifer (VLDB 2021), Section 6.

With g_i = b_i' S^-1 b_i (profile), h_j = v_j S v_j' / c_j (variance over target) and the soft max
sm_t(a) = log(sum_i exp(t a_i)) / t, it minimises F_t(S) = sm_t(g) + sm_t(h) (Problem 4) by Newton
steps with t = 1, MU, MU^2, ... At the optimum max g = max h = Delta: F tends to 2 Delta. The
normalised soft-max weights of g and h are dual weights, and certify the result.

Where this departs from the text:

* The Hessian of F (last equation of Section 6.2.1) has a factor t too many on the curvature of g
  itself: steps shrink as t grows, and two to four times as many were needed. Here it is exact,
  sum_i w_i hess g_i + t sum_i w_i (grad g_i)(grad g_i)' - ...
* B is "any convenient matrix" (Section 3.1), and the conjugate gradients depend on it: it is
  changed before each Newton step to the one with S = I. With B = I throughout, 2000 steps leave
  prefix(64) with a gap of 1.7e-2; with B = W 128 steps reach 1e-4; with this one, 60.
* NTTOL, TOL and MAXITER have no values in the paper. MU and NTTOL are those of the authors' code,
  which holds NTTOL against the decrease of t F, not of F; so does this. Under a tolerance of 1e-4
  NTTOL shrinks in proportion.
* t and TOL count in units of the first lower bound T(uniform), so that scaling W or c changes
  nothing; TOL2 is relative to the first residual. In these units F >= 2: TOL = 2 * tolerance on F
  means `tolerance` on Delta. The gap (d + m) / t of Algorithm 1 is that of a log barrier, far too
  large for a soft max; the certified gap, taken whenever t is raised, mostly stops it before.
* Once t is raised the direction is computed anew; Algorithm 1 would step along the old one.
* The initial S = s^2 Q^+ Q^+' fits B = I alone: else it is s^2 B Q^+ Q^+' B'; s^2 is a minimum
  over m queries, not d. A line search that finds no strict decrease (rounding) raises t.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from fitplug.errors import DesignError
from fitplug.numeric import FloatArray
from fitplug.optimizer.dual import Progress, Solution
from fitplug.optimizer.geometric_mean import mean
from fitplug.optimizer.problem import Block, Problem

MU = 2.0  # Algorithm 1, line 9; "typical values {2, 5, 10}"
NTTOL = 1e-3  # Algorithm 1, line 5
MAXCG = 5  # Algorithm 2, line 2
TOL2 = 1e-10  # Algorithm 2, line 5
BETA = 0.5  # Algorithm 3, line 1
SIGMA = 0.01  # Algorithm 3, line 6
START = 0.99  # Section 6.3: the largest variance over target at the start
MAXLS = 50  # no limit in Algorithm 3; the authors' code has this one

_NEGLIGIBLE = 1e-17  # of the largest weight: below it, a term is lost in rounding
_MIXING = 0.05  # of the tolerance: uniform mass that keeps P and Q positive definite


@dataclass(frozen=True, eq=False)
class _Point:
    """A covariance, in the basis in which it is S = I.

    basis: shape (k, d), the first basis times the whitener; its columns' squared norms are g (d,).
    rows: shape (m, k); its rows' squared norms are h (m,).
    whitener: shape (k, k), lower triangular.
    """

    basis: FloatArray
    rows: FloatArray
    whitener: FloatArray
    g: FloatArray
    h: FloatArray

    @property
    def upper(self) -> float:
        return math.sqrt(float(self.g.max()) * float(self.h.max()))


@dataclass(frozen=True, eq=False)
class _Quadratic:
    """Gradient and Hessian of F_t at S = I, from the n vectors with a weight that counts.

    vectors: shape (k, n), the first `cells` of them columns of the basis, then rows of L.
    weights: shape (n,), normalised soft-max weights of g, then of h.
    signs: shape (n,), -1 for cells (grad g_i = -b b') and 1 for queries (grad h_j = v' v).
    """

    t: float
    cells: int
    vectors: FloatArray
    weights: FloatArray
    signs: FloatArray

    def gradient(self) -> FloatArray:
        return np.asarray((self.vectors * (self.signs * self.weights)) @ self.vectors.T)

    def slopes(self, image: FloatArray) -> FloatArray:
        """Derivatives of g and h along D, each less its weighted mean; `image` is D vectors."""
        slopes = self.signs * np.einsum("ij,ij->j", image, self.vectors)
        for part in (slice(self.cells), slice(self.cells, None)):
            slopes[part] -= self.weights[part] @ slopes[part]
        return np.asarray(slopes)

    def curvature(self, image: FloatArray, slopes: FloatArray) -> float:
        """<D, H D>: two terms that cannot be negative, and no matrix product."""
        own = self.weights[: self.cells] @ (image[:, : self.cells] ** 2).sum(axis=0)
        return float(2 * own + self.t * (self.weights @ slopes**2))

    def product(self, image: FloatArray, slopes: FloatArray) -> FloatArray:
        """H D (HessTimesVec): A D + D A with A = sum_i w_i b_i b_i', and t sum slope_i grad_i."""
        half = self.vectors * (0.5 * self.t * self.signs * self.weights * slopes)
        half[:, : self.cells] += image[:, : self.cells] * self.weights[: self.cells]
        full = half @ self.vectors.T
        return full + full.T


def solve(
    problem: Problem,
    *,
    tolerance: float,
    max_iterations: int,
    progress: Progress | None = None,
) -> Solution:
    """Algorithm 1, until upper / lower - 1 <= tolerance, TOL, or max_iterations Newton steps.

    Slower than the dual solver, and may end above the tolerance: see the Solution's gap.
    Deterministic. Raises DesignError unless the problem is one dense block without total error.
    """
    if np.any(problem.held):
        raise DesignError("SM-II here knows no total error weight; use the dual solver")
    block = problem.blocks[0]
    if len(problem.blocks) != 1 or not isinstance(block, Block):
        raise DesignError("SM-II optimises one dense covariance; use the dual solver for blocks")
    d, m = problem.cells, problem.queries
    p, q = np.full(d, 1 / d), np.full(m, 1 / m)
    unit = lower = mean(block, p, q).value
    best = point = _start(problem, block, unit)
    enough, mixing = min(NTTOL, 10 * tolerance), _MIXING * tolerance
    t, iteration, stopped = 1.0, 0, False
    while True:
        iteration += 1
        model = _quadratic(point, t)
        gradient = model.gradient()
        step = _conjugate_gradient(model, gradient)
        delta = float(np.vdot(step, gradient))
        moved = _line_search(point, step, delta, t) if t * abs(delta) >= enough else None
        if moved is not None:
            point = moved
            best = min(best, point, key=lambda found: found.upper)
        last = iteration >= max_iterations
        if moved is None or last:
            dual = [(1 - mixing) * _weights(x, t) + mixing / len(x) for x in (point.g, point.h)]
            bound = mean(block, *dual).value
            if bound > lower:
                lower, (p, q) = bound, dual
        gap = best.upper * unit / lower - 1
        if progress is not None:
            stopped = progress(iteration, gap) is True
        if gap <= tolerance or last or stopped:
            break
        if moved is None:
            if (d + m) / t < 2 * tolerance:
                break
            t *= MU
    whitener, profile = _at_targets(block, best.whitener)
    upper = math.sqrt(float(profile.max()))
    return Solution(p, q, (whitener,), profile, lower, upper, iteration, stopped)


def _conjugate_gradient(model: _Quadratic, gradient: FloatArray) -> FloatArray:
    """Algorithm 2: an approximate Newton direction (k, k) from MAXCG Hessian products."""
    step, residual = np.zeros_like(gradient), -gradient
    direction = residual
    first = old = float(np.vdot(residual, residual))
    for left in reversed(range(MAXCG)):
        image = direction @ model.vectors
        slopes = model.slopes(image)
        curvature = model.curvature(image, slopes)
        if not curvature > 0:  # no slope left, or none that rounding leaves
            break
        a = old / curvature
        step = step + a * direction
        if not left:
            break  # the last residual is not needed, nor the product in it
        residual = residual - a * model.product(image, slopes)
        new = float(np.vdot(residual, residual))
        if new <= TOL2 * first:
            break
        direction = residual + (new / old) * direction
        old = new
    return step


def _line_search(point: _Point, step: FloatArray, delta: float, t: float) -> _Point | None:
    """Algorithm 3; None if no step decreases F_t. h is linear in S, so a trial needs g alone."""
    now = _objective(point.g, point.h, t)
    along = np.einsum("ij,ij->i", point.rows @ step, point.rows)
    identity, a = np.eye(len(step)), 1.0
    for _ in range(MAXLS):
        with contextlib.suppress(np.linalg.LinAlgError):  # not positive definite
            factor = cholesky(identity + a * step, lower=True, check_finite=False)
            basis = solve_triangular(factor, point.basis, lower=True, check_finite=False)
            g = (basis**2).sum(axis=0)
            if _objective(g, point.h + a * along, t) < now + a * SIGMA * delta:
                whitener = solve_triangular(factor, point.whitener, lower=True, check_finite=False)
                rows = point.rows @ factor
                return _Point(basis, rows, whitener, g, (rows**2).sum(axis=1))
        a *= BETA
    return None


def _start(problem: Problem, block: Block, unit: float) -> _Point:
    """Section 6.3 with Q = I: S = s^2 B B', with START the largest variance over target."""
    B = block.basis
    factor = cholesky(B @ B.T, lower=True)
    rows = np.zeros((problem.queries, len(B)))
    rows[block.rows] = block.representation @ factor / unit
    scale = math.sqrt(START / float((rows**2).sum(axis=1).max()))
    whitener = solve_triangular(factor, np.eye(len(B)), lower=True) / scale
    basis, rows = whitener @ B, rows * scale
    return _Point(basis, rows, whitener, (basis**2).sum(axis=0), (rows**2).sum(axis=1))


def _quadratic(point: _Point, t: float) -> _Quadratic:
    w, u = _weights(point.g, t), _weights(point.h, t)
    cells, queries = w > _NEGLIGIBLE * w.max(), u > _NEGLIGIBLE * u.max()
    vectors = np.hstack([point.basis[:, cells], point.rows[queries].T])
    weights = np.concatenate([w[cells], u[queries]])
    signs = np.repeat([-1.0, 1.0], [cells.sum(), queries.sum()])
    return _Quadratic(t, int(cells.sum()), vectors, weights, signs)


def _weights(a: FloatArray, t: float) -> FloatArray:
    """The gradient of the soft max: G_i / sum G (Section 6.2.1), shifted against overflow."""
    terms = np.exp(t * (a - a.max()))
    return np.asarray(terms / terms.sum())


def _objective(g: FloatArray, h: FloatArray, t: float) -> float:
    """F_t, Problem 4."""
    tops = float(g.max()), float(h.max())
    sums = [float(np.exp(t * (a - top)).sum()) for a, top in zip((g, h), tops, strict=True)]
    return sum(tops) + math.log(sums[0] * sums[1]) / t


def _at_targets(block: Block, whitener: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The whitener and profile of the largest multiple of S that meets every target, from the
    whitener alone: no rounding of earlier steps is in it.
    """
    factor = solve_triangular(whitener, np.eye(len(whitener)), lower=True)
    whitener = whitener * math.sqrt(float(((block.representation @ factor) ** 2).sum(axis=1).max()))
    return whitener, ((whitener @ block.basis) ** 2).sum(axis=0)
