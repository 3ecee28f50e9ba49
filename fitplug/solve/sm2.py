"""SM-II: the optimizer of Xiao, Ding, Wang, Zhang and Kifer (VLDB 2021), Section 6.

With g_i = b_i' S^-1 b_i (profile), h_j = v_j S v_j' / c_j (variance over target) and the soft max
sm_t(a) = log(sum_i exp(t a_i)) / t, it minimises F_t(S) = sm_t(g) + sm_t(h) (Problem 4) by Newton
steps with t = 1, MU, MU^2, ... At the optimum max g = max h = Delta, so F tends to 2 Delta.
The normalised soft-max weights of g and h are dual weights, and certify the result.

This code departs from the paper as follows.

* The paper's Hessian of F (last equation of Section 6.2.1) has one factor t too many on the
  curvature of g itself. Steps then shrink as t grows, and two to four times as many are needed.
  Here the Hessian is exact, sum_i w_i hess g_i + t sum_i w_i (grad g_i)(grad g_i)' - ...
* B is "any convenient matrix" (Section 3.1), and the conjugate gradients depend on it. Before each
  Newton step it is changed to the basis in which S = I. With B = I throughout, 2000 steps leave
  prefix(64) with a gap of 1.7e-2; with B = W, 128 steps reach 1e-4; with this one, 60 do.
* The paper gives no values for NTTOL, TOL and MAXITER. MU and NTTOL are those of the authors' code,
  which compares NTTOL with the decrease of t F, not of F; this code does too. For a tolerance below
  1e-4, NTTOL shrinks in proportion.
* t and TOL are in units of the first lower bound T(uniform), so that scaling W or c changes
  nothing. TOL2 is relative to the first residual. In these units F >= 2, and TOL = 2 * tolerance on
  F means `tolerance` on Delta. The gap (d + m) / t of Algorithm 1 belongs to a log barrier and is
  far too large for a soft max. The certified gap, computed whenever t is raised, usually stops the
  iteration earlier.
* After t is raised the direction is computed anew; Algorithm 1 steps along the old one.
* The initial S = s^2 Q^+ Q^+' is meant for B = I. For other B it is s^2 B Q^+ Q^+' B', and s^2 is
  a minimum over m queries, not d. If rounding lets the line search find no strict decrease, t is
  raised.

The least weighted total squared error at a given privacy cost: the matrix mechanism's optimum.

With weights w on the queries, and g_i(S) and h_j(S) the privacy profile and the variances of S,

    E* = min over S of  max_i g_i(S) * sum_j w_j h_j(S)

is the total at privacy cost 1 (D22). This is the dual of `fitplug.solve.dual` with q fixed at w, so
only the weights p of the cells are left. For every p on the simplex, T(p)^2 <= E* with the
nuclear norm T(p) = || diag(w)^1/2 W diag(p)^1/2 ||_*. The geometric mean S = P # Q^-1 has
tr(P S^-1) = tr(Q S) = T, so E* <= T max g. The fixed point

    p_i <- (p_i g_i / T + eps / d) / (1 + eps)

has max g <= (1 + eps) T, a relative gap of at most eps, and its plain step never lowers the merit
2 log T(p) + eps / d * sum_i log p_i. The proof is in docs/theory/dual.md, section "Cell budgets and
the total squared error".
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from fitplug.certify import certify_dense_bound
from fitplug.errors import DesignError
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray
from fitplug.solve.dual import DualValue, Solution, solve_dual
from fitplug.solve.fixed_point import GapProgress
from fitplug.solve.geometric_mean import compute_mean
from fitplug.solve.problem import Block, Problem, reduce_block

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
class _Iterate:
    """A covariance, in the basis in which it is S = I.

    Attributes:
        basis: The first basis times the whitener, shape (k, d).
        rows: The representation of the queries in this basis, shape (m, k).
        whitener: Lower triangular matrix, shape (k, k).
        g: The profile, the squared norms of the columns of `basis`, shape (d,).
        h: The variances over targets, the squared norms of the rows of `rows`, shape (m,).
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
    """Gradient and Hessian of F_t at S = I, from the n vectors whose weights are not negligible.

    Attributes:
        t: The sharpness of the soft max.
        cells: How many of the vectors belong to cells.
        vectors: Columns of the basis, then rows of L as columns, shape (k, n).
        weights: Normalised soft-max weights of g, then of h, shape (n,).
        signs: -1 for cells, as grad g_i = -b b', and 1 for queries, as grad h_j = v' v; (n,).
    """

    t: float
    cells: int
    vectors: FloatArray
    weights: FloatArray
    signs: FloatArray

    def compute_gradient(self) -> FloatArray:
        """Return the gradient of F_t, shape (k, k)."""
        return np.asarray((self.vectors * (self.signs * self.weights)) @ self.vectors.T)

    def differentiate(self, image: FloatArray) -> FloatArray:
        """Return the derivatives of g and h along D, less their weighted means, shape (n,).

        Here and below, `image` is the product of D (k, k) and the vectors, shape (k, n).
        """
        slopes = self.signs * np.einsum("ij,ij->j", image, self.vectors)
        for part in (slice(self.cells), slice(self.cells, None)):
            slopes[part] -= self.weights[part] @ slopes[part]
        return np.asarray(slopes)

    def compute_curvature(self, image: FloatArray, slopes: FloatArray) -> float:
        """Return <D, H D> as two terms that cannot be negative, without a matrix product."""
        trace = self.weights[: self.cells] @ (image[:, : self.cells] ** 2).sum(axis=0)
        return float(2 * trace + self.t * (self.weights @ slopes**2))

    def multiply_hessian(self, image: FloatArray, slopes: FloatArray) -> FloatArray:
        """Return H D (k, k): A D + D A + t sum_i slope_i grad_i, with A = sum_i w_i b_i b_i'.

        This is HessTimesVec of the paper.
        """
        half = self.vectors * (0.5 * self.t * self.signs * self.weights * slopes)
        half[:, : self.cells] += image[:, : self.cells] * self.weights[: self.cells]
        full = half @ self.vectors.T
        return full + full.T


def solve_sm2(
    problem: Problem,
    *,
    tolerance: float,
    max_iterations: int,
    progress: GapProgress | None = None,
) -> Solution:
    """Run Algorithm 1 until upper / lower - 1 <= tolerance, TOL, or max_iterations Newton steps.

    It is slower than the dual solver and may end above the tolerance; see the gap of the Solution.
    It is deterministic. The arguments are those of `fitplug.solve.dual.solve_dual`.

    Raises:
        DesignError: Unless the problem is one dense block without total error.
    """
    if np.any(problem.fixed_weights):
        raise DesignError(
            "the solver 'sm2' does not support total_error_weight. Remove the setting 'solver'."
        )
    block = problem.blocks[0]
    if len(problem.blocks) != 1:
        raise DesignError(
            "the solver 'sm2' does not support a workload this complex. Remove the setting "
            "'solver'."
        )
    d, m = problem.cells, problem.queries
    p, q = np.full(d, 1 / d), np.full(m, 1 / m)
    unit = lower = compute_mean(block, p, q).value
    best = point = _make_initial_iterate(problem, block, unit)
    enough, mixing = min(NTTOL, 10 * tolerance), _MIXING * tolerance
    t, iteration, stopped = 1.0, 0, False
    while True:
        iteration += 1
        model = _expand(point, t)
        gradient = model.compute_gradient()
        step = _find_direction(model, gradient)
        delta = float(np.vdot(step, gradient))
        moved = _search_line(point, step, delta, t) if t * abs(delta) >= enough else None
        if moved is not None:
            point = moved
            best = min(best, point, key=lambda candidate: candidate.upper)
        last = iteration >= max_iterations
        if moved is None or last:
            dual = [(1 - mixing) * _weigh(x, t) + mixing / len(x) for x in (point.g, point.h)]
            bound = compute_mean(block, *dual).value
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
    whitener, profile = _scale_to_targets(block, best.whitener)
    upper = math.sqrt(float(profile.max()))
    return Solution(p, q, (whitener,), profile, lower, upper, iteration, stopped)


def _find_direction(model: _Quadratic, gradient: FloatArray) -> FloatArray:
    """Algorithm 2: an approximate Newton direction (k, k) from MAXCG Hessian products."""
    step, residual = np.zeros_like(gradient), -gradient
    direction = residual
    first = old = float(np.vdot(residual, residual))
    for left in reversed(range(MAXCG)):
        image = direction @ model.vectors
        slopes = model.differentiate(image)
        curvature = model.compute_curvature(image, slopes)
        if not curvature > 0:  # No slope is left, or rounding hides it.
            break
        a = old / curvature
        step = step + a * direction
        if not left:
            break  # Neither the last residual nor the product in it is needed.
        residual = residual - a * model.multiply_hessian(image, slopes)
        new = float(np.vdot(residual, residual))
        if new <= TOL2 * first:
            break
        direction = residual + (new / old) * direction
        old = new
    return step


def _search_line(point: _Iterate, step: FloatArray, delta: float, t: float) -> _Iterate | None:
    """Run Algorithm 3, and return None if no step decreases F_t.

    h is linear in S, so a trial needs g alone.
    """
    now = _evaluate_objective(point.g, point.h, t)
    along = np.einsum("ij,ij->i", point.rows @ step, point.rows)
    identity, a = np.eye(len(step)), 1.0
    for _ in range(MAXLS):
        with contextlib.suppress(np.linalg.LinAlgError):  # I + a * step is not positive definite.
            factor = cholesky(identity + a * step, lower=True, check_finite=False)
            basis = solve_triangular(factor, point.basis, lower=True, check_finite=False)
            g = (basis**2).sum(axis=0)
            if _evaluate_objective(g, point.h + a * along, t) < now + a * SIGMA * delta:
                whitener = solve_triangular(factor, point.whitener, lower=True, check_finite=False)
                rows = point.rows @ factor
                return _Iterate(basis, rows, whitener, g, (rows**2).sum(axis=1))
        a *= BETA
    return None


def _make_initial_iterate(problem: Problem, block: Block, unit: float) -> _Iterate:
    """Make S = s^2 B B' (Section 6.3 with Q = I), with START the largest variance over target."""
    B = block.basis
    factor = cholesky(B @ B.T, lower=True)
    rows = np.zeros((problem.queries, len(B)))
    rows[block.rows] = block.representation @ factor / unit
    scale = math.sqrt(START / float((rows**2).sum(axis=1).max()))
    whitener = solve_triangular(factor, np.eye(len(B)), lower=True) / scale
    basis, rows = whitener @ B, rows * scale
    return _Iterate(basis, rows, whitener, (basis**2).sum(axis=0), (rows**2).sum(axis=1))


def _expand(point: _Iterate, t: float) -> _Quadratic:
    """Expand F_t at S = I to second order, without terms that are lost in rounding."""
    w, u = _weigh(point.g, t), _weigh(point.h, t)
    cells, queries = w > _NEGLIGIBLE * w.max(), u > _NEGLIGIBLE * u.max()
    vectors = np.hstack([point.basis[:, cells], point.rows[queries].T])
    weights = np.concatenate([w[cells], u[queries]])
    signs = np.repeat([-1.0, 1.0], [cells.sum(), queries.sum()])
    return _Quadratic(t, int(cells.sum()), vectors, weights, signs)


def _weigh(a: FloatArray, t: float) -> FloatArray:
    """Return the gradient of the soft max, G_i / sum G (Section 6.2.1), without overflow."""
    terms = np.exp(t * (a - a.max()))
    return np.asarray(terms / terms.sum())


def _evaluate_objective(g: FloatArray, h: FloatArray, t: float) -> float:
    """Return F_t of Problem 4."""
    tops = float(g.max()), float(h.max())
    sums = [float(np.exp(t * (a - top)).sum()) for a, top in zip((g, h), tops, strict=True)]
    return sum(tops) + math.log(sums[0] * sums[1]) / t


def _scale_to_targets(block: Block, whitener: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the whitener (k, k) and profile (d,) of the largest multiple of S within all targets.

    They are computed from the whitener alone, so the rounding of earlier steps does not enter.
    """
    factor = solve_triangular(whitener, np.eye(len(whitener)), lower=True)
    whitener = whitener * math.sqrt(float(((block.representation @ factor) ** 2).sum(axis=1).max()))
    return whitener, ((whitener @ block.basis) ** 2).sum(axis=0)


_SOLVER_SHARE = 0.9
"""The share of the tolerance that the solver may use up; certifying the bound takes the rest."""


@dataclass(frozen=True, eq=False)
class TotalErrorOptimum:
    """The optimal strategy for a weighted total of variances, at privacy cost Delta = 1.

    Attributes:
        variances: The variance of each query, shape (m,). At Delta it is variances / Delta^2.
        value: The sum of weights * variances.
        lower_bound: Certified: no strategy has a smaller sum.
        p: The dual weights of the cells that prove it, shape (d,).
        iterations: The number of iterations.
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
        tolerance: The iteration ends when `value / lower_bound - 1` is at most this number.
        max_iterations: The largest number of iterations.

    Raises:
        WorkloadError: If the rank of W cannot be decided.
        DesignError: If the weights lie too far apart for floating point.
    """
    targets = 1 / weights
    block, _ = reduce_block(W, targets)
    small = _compress_rows(block)

    def evaluate(_: Problem, p: FloatArray, q: FloatArray) -> DualValue:
        mean = compute_mean(small, p, np.ones(len(small.rows)))
        # The total is the only query, and its ratio is tr(Q S) = T.
        return DualValue(
            mean.value, mean.profile, np.array([mean.value]), (mean.compute_whitener(),)
        )

    found = solve_dual(
        Problem(W.shape[1], 1, ()),
        tolerance=_SOLVER_SHARE * tolerance / 2,  # of Delta, whose square the value is
        max_iterations=max_iterations,
        evaluate=evaluate,
    )
    rows = np.linalg.solve(found.whiteners[0].T, block.representation.T)
    ratios = (rows**2).sum(axis=0) * float(found.profile.max())
    bound = certify_dense_bound(W, targets, found.p, np.ones(len(W))) ** 2
    bound *= len(W) * (1 - 4 * UNIT_ROUNDOFF)
    return TotalErrorOptimum(
        ratios * targets, float(ratios.sum()), bound, found.p, found.iterations
    )


def _compress_rows(block: Block) -> Block:
    """Return a block with the same Q = L'L from k rows: with q fixed, only L'L matters."""
    R = np.asarray(np.linalg.qr(block.representation, mode="r"))
    return replace(block, rows=np.arange(len(R)), representation=R)
