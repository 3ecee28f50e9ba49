"""SM-II, the paper's own optimizer: derivatives, bounds, and how near it comes to the optimum."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from fitplug.certify import certify_dense_bound
from fitplug.errors import DesignError
from fitplug.solve import dual, sm2
from fitplug.solve.problem import reduce_matrix
from tests.helpers.workloads import PREFIX, all_ranges, identity_and_sum, marginals, prefix, small


def problem_of(W, c=1.0):
    targets = np.broadcast_to(np.asarray(c, dtype=float), len(W)).copy()
    return reduce_matrix(W, targets)[0]


def solved(problem, tolerance=1e-3, max_iterations=400):
    return sm2.solve_sm2(problem, tolerance=tolerance, max_iterations=max_iterations)


def random_workload(seed):
    """Up to 8 x 8, sometimes rank deficient, with targets over two orders of magnitude."""
    rng = np.random.default_rng(seed)
    m, d, k = rng.integers(1, 9, 3)
    W = rng.integers(-2, 3, (m, k)) @ rng.integers(0, 2, (k, d)).astype(float)
    W[0, 0] += 1 - W[0].any()
    return W, 10 ** rng.uniform(-1, 1, m)


def a_point(seed=0):
    """A point that is not special: some steps in, on a workload with m != d != k."""
    W = marginals([2, 3], 2)
    problem = problem_of(W[:-2], np.linspace(1, 3, len(W) - 2))
    point = sm2._make_initial_iterate(problem, problem.blocks[0], 1.0)
    rng = np.random.default_rng(seed)
    k = len(point.basis)
    F = np.tril(rng.normal(size=(k, k)) * 0.2) + np.eye(k)
    return moved(point, F @ F.T)


def moved(point, S):
    """`point` with its covariance I replaced by S, by the formulas of the paper as they stand."""
    F = np.linalg.cholesky(S)
    basis, rows = np.linalg.solve(F, point.basis), point.rows @ F
    whitener = np.linalg.solve(F, point.whitener)
    return sm2._Iterate(basis, rows, whitener, (basis**2).sum(axis=0), (rows**2).sum(axis=1))


def objective(point, S, t):
    """F_t(S) in the basis of `point`, written out."""
    g = np.diag(point.basis.T @ np.linalg.inv(S) @ point.basis)
    h = np.diag(point.rows @ S @ point.rows.T)
    return math.log(np.exp(t * g).sum()) / t + math.log(np.exp(t * h).sum()) / t


def symmetric(k, seed):
    D = np.random.default_rng(seed).normal(size=(k, k))
    return D + D.T


@pytest.mark.parametrize("t", [1.0, 4.0, 30.0])
def test_gradient_against_differences(t):
    point, step = a_point(), 1e-6
    k = len(point.basis)
    gradient = sm2._expand(point, t).compute_gradient()
    for seed in range(5):
        D = symmetric(k, seed)
        up, down = (objective(point, np.eye(k) + e * D, t) for e in (step, -step))
        assert np.vdot(gradient, D) == pytest.approx((up - down) / (2 * step), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("t", [1.0, 4.0, 30.0])
def test_hessian_product_against_differences(t):
    point, step = a_point(), 1e-5
    k = len(point.basis)
    model = sm2._expand(point, t)
    for seed in range(5):
        D, E = symmetric(k, seed), symmetric(k, seed + 100)
        D /= np.linalg.norm(D)
        image = D @ model.vectors
        slopes = model.differentiate(image)
        product = model.multiply_hessian(image, slopes)
        assert np.allclose(product, product.T)
        assert np.vdot(product, D) == pytest.approx(
            model.compute_curvature(image, slopes), rel=1e-10
        )
        up, down = (along(point, np.eye(k) + e * D, E, t) for e in (step, -step))
        assert np.vdot(product, E) == pytest.approx((up - down) / (2 * step), rel=1e-5, abs=1e-6)


def along(point, S, E, t):
    """The derivative of F_t at S along E: the paper's gradient, in the basis of `point`."""
    Z = np.linalg.solve(S, point.basis)
    w = np.exp(t * (point.basis * Z).sum(axis=0))
    u = np.exp(t * ((point.rows @ S) * point.rows).sum(axis=1))
    gradient = (point.rows.T * (u / u.sum())) @ point.rows - (Z * (w / w.sum())) @ Z.T
    return float(np.vdot(gradient, E))


def test_enough_conjugate_gradients_give_the_newton_direction(monkeypatch):
    monkeypatch.setattr(sm2, "MAXCG", 400)
    monkeypatch.setattr(sm2, "TOL2", 1e-24)
    model = sm2._expand(a_point(), 2.0)
    gradient = model.compute_gradient()
    step = sm2._find_direction(model, gradient)
    image = step @ model.vectors
    assert np.allclose(
        model.multiply_hessian(image, model.differentiate(image)), -gradient, atol=1e-9
    )


@pytest.mark.parametrize("d", [2, 4, 8, 16, 32])
def test_prefix(d):
    found = solved(problem_of(prefix(d)))
    assert found.gap <= 1e-3
    assert PREFIX[d] * (1 - 1e-8) <= found.upper**2 <= PREFIX[d] * 1.01
    assert found.lower**2 <= PREFIX[d] * (1 + 1e-8)


@pytest.mark.parametrize(("d", "k"), [(2, 1.0), (5, 0.5), (6, 3.0), (20, 7.0)])
def test_identity_and_sum(d, k):
    expected = (2 * k * d - d**2 - k * d**2) / (k * (k - d**2)) if k != 1 else 2 * d / (1 + d)
    found = solved(problem_of(identity_and_sum(d), np.append(np.ones(d), k)))
    assert expected * (1 - 1e-9) <= found.upper**2 <= expected * 1.01
    assert found.lower**2 <= expected * (1 + 1e-9)


@pytest.mark.parametrize(("t", "expected"), [(2, 2.182453), (4, 3.471896)])
def test_marginals_rank_deficient(t, expected):
    found = solved(problem_of(marginals([t] * 3, 2)[1:]))
    assert found.lower**2 <= expected * (1 + 1e-6)
    assert expected * (1 - 1e-6) <= found.upper**2 <= expected * 1.005


def test_a_tight_tolerance_is_reached_on_prefix():
    found = solved(problem_of(prefix(16)), tolerance=1e-6, max_iterations=2000)
    assert found.gap <= 1e-6
    assert found.upper**2 == pytest.approx(PREFIX[16], rel=3e-6)


def test_idle_queries():
    problem = problem_of(all_ranges(16))
    best = dual.solve_dual(problem, tolerance=1e-6, max_iterations=2000)
    found = solved(problem)
    assert best.lower * (1 - 1e-9) <= found.upper <= best.upper * 1.002


def check_bounds(W, c):
    problem = problem_of(W, c)
    best = dual.solve_dual(problem, tolerance=1e-5, max_iterations=500)
    found = solved(problem, tolerance=1e-2, max_iterations=60)
    (whitener,), (block,) = found.whiteners, problem.blocks
    factor = np.linalg.inv(whitener)
    g = ((whitener @ block.basis) ** 2).sum(axis=0).max()
    h = ((block.representation @ factor) ** 2).sum(axis=1).max()
    assert found.upper == pytest.approx(math.sqrt(g * h), rel=1e-6)
    assert found.upper >= best.lower * (1 - 1e-9)
    assert found.lower <= best.upper * (1 + 1e-9)
    for weights, size in ((found.p, problem.cells), (found.q, problem.queries)):
        assert weights.shape == (size,)
        assert (weights > 0).all()
        assert weights.sum() == pytest.approx(1)
    certified = certify_dense_bound(W, np.broadcast_to(c, len(W)), found.p, found.q)
    assert certified == pytest.approx(found.lower, rel=1e-6)
    return found


@given(st.integers(0, 10**6))
def test_bounds_hold_on_random_workloads(seed):
    check_bounds(*random_workload(seed))


@pytest.mark.parametrize(("name", "W", "c"), small(), ids=[s[0] for s in small()])
def test_bounds_hold_on_every_shape_of_trouble(name, W, c):
    assert check_bounds(W, c).gap <= 1e-2


def test_the_objective_falls_at_every_step():
    problem = problem_of(all_ranges(6), np.linspace(1, 4, 21))
    point, t = sm2._make_initial_iterate(problem, problem.blocks[0], 1.0), 8.0
    values = [sm2._evaluate_objective(point.g, point.h, t)]
    for _ in range(20):
        model = sm2._expand(point, t)
        gradient = model.compute_gradient()
        step = sm2._find_direction(model, gradient)
        delta = float(np.vdot(step, gradient))
        assert delta < 0
        following = sm2._search_line(point, step, delta, t)
        if following is None:
            break
        point = following
        values.append(sm2._evaluate_objective(point.g, point.h, t))
    assert len(values) > 5
    assert (np.diff(values) <= 0).all()
    assert values[-1] == pytest.approx(objective(point, np.eye(len(point.basis)), t))
    # Convex and smooth: where the gradient vanishes is the minimum.
    assert np.linalg.norm(sm2._expand(point, t).compute_gradient()) < 1e-3


def test_a_line_search_that_cannot_decrease_ends():
    point = a_point()
    up = sm2._expand(point, 1.0).compute_gradient()
    for step in (np.zeros_like(up), up):
        assert sm2._search_line(point, step, -1e-30, 1.0) is None


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_scaling_changes_no_step(factor):
    base, scaled = solved(problem_of(prefix(8))), solved(problem_of(factor * prefix(8)))
    assert scaled.iterations == base.iterations
    assert scaled.upper == pytest.approx(factor * base.upper, rel=1e-9)


def test_deterministic_and_reports_progress():
    problem, seen = problem_of(prefix(12)), []
    first, second = (
        sm2.solve_sm2(
            problem, tolerance=1e-3, max_iterations=99, progress=lambda *now: seen.append(now)
        )
        for _ in range(2)
    )
    assert first.iterations == second.iterations
    for name in ("p", "q", "lower", "upper"):
        assert np.array_equal(getattr(first, name), getattr(second, name))
    half = len(seen) // 2
    assert seen[:half] == seen[half:]
    assert [i for i, _ in seen[:half]] == list(range(1, first.iterations + 1))
    gaps = [gap for _, gap in seen[:half]]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] == pytest.approx(first.gap, abs=1e-12)


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_max_iterations_is_kept_and_the_gap_is_true(limit):
    found = solved(problem_of(prefix(16)), tolerance=1e-9, max_iterations=limit)
    assert found.iterations == limit
    assert found.lower**2 <= PREFIX[16] <= found.upper**2


def test_several_blocks_are_refused():
    problem = problem_of(prefix(3))
    twice = dataclasses.replace(problem, blocks=problem.blocks * 2)
    with pytest.raises(DesignError, match="does not support a workload this complex"):
        solved(twice)
