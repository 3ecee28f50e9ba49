"""The family of trees against the dense optimum, and its pieces against dense matrices."""

from __future__ import annotations

import warnings

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import fitplug as fp
from fitplug.domain import get_codec
from fitplug.families import analysis
from fitplug.families.tree.design.sibling_covariance import (
    SiblingCovariances,
    build_strategies,
    solve_siblings,
)
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.plan.plan_record import evaluate_objective
from fitplug.solve.geometric_mean import place_poles
from tests.helpers.tree_strategies import random_place


@pytest.fixture
def prefer_trees(monkeypatch):
    """Small workloads are designed as trees too."""
    monkeypatch.setattr(analysis, "MOST_CELLS", 0)


@pytest.mark.parametrize("decades", [0, 1, 3, 6, 12, 15])
@pytest.mark.parametrize("error", [1e-2, 1e-4, 1e-9])
def test_poles_give_the_inverse_square_root(decades, error) -> None:
    least = np.array([1e-3, 1.0, 1e20])
    poles = place_poles(least, least * 10.0**decades, error)
    x = least[:, None] * np.geomspace(1, 10.0**decades, 500)
    near = (poles.omega[:, None] / (x[:, :, None] + poles.tau[:, None])).sum(axis=2)
    assert np.abs(near * np.sqrt(x) - 1).max() < 2 * error


def dense_siblings(P, K, multiplier):
    """The geometric mean of diag(P) and (diag(K) + lambda 11')^-1."""
    root = np.sqrt(P)
    values, vectors = np.linalg.eigh(root[:, None] * (np.diag(K) + multiplier) * root)
    half = root[:, None] * vectors / values**0.25
    return half @ half.T


@given(seed=st.integers(0, 10**6), k=st.integers(2, 9))
def test_siblings_are_the_geometric_mean(seed, k) -> None:
    rng = np.random.default_rng(seed)
    P, K = rng.uniform(0.1, 1, (3, k)), np.exp(rng.normal(size=(3, k)))
    s = np.sqrt(P / K).sum(axis=1) * rng.uniform(0.05, 1, 3)
    found = solve_siblings(P, K, s, SiblingCovariances.make_even(*P.shape))
    A = build_strategies(found)
    for i in range(3):
        Sigma = dense_siblings(P[i], K[i], found.multipliers[i])
        assert Sigma.sum() == pytest.approx(s[i], rel=1e-4)
        u = Sigma.sum(axis=1) / Sigma.sum()
        assert np.allclose(found.references[i], u, rtol=1e-6)
        C = Sigma - np.outer(u, u) * Sigma.sum()
        assert np.allclose(found.variances[i], np.diag(C), rtol=1e-4, atol=1e-9)
        X = np.linalg.inv(Sigma) - 1 / Sigma.sum()
        assert np.allclose(found.profiles[i], np.diag(X), rtol=1e-4, atol=1e-9)
        assert np.allclose(A[i].T @ A[i], X, atol=1e-8 * np.abs(X).max())
        assert np.allclose(A[i] @ u, 0, atol=1e-6 * np.abs(A[i]).max())
        assert np.array_equal(A[i], np.triu(A[i]))


@pytest.mark.parametrize("seed", range(5))
def test_siblings_minimise_the_lagrangian(seed) -> None:
    rng = np.random.default_rng(seed)
    k = int(rng.integers(2, 6))
    P, K = rng.uniform(0.1, 1, k), np.exp(rng.normal(size=k))
    s = float(np.sqrt(P / K).sum() * rng.uniform(0.2, 0.9))
    Sigma = cp.Variable((k, k), PSD=True)
    inverse = cp.sum([p * cp.matrix_frac(e, Sigma) for p, e in zip(P, np.eye(k), strict=True)])
    problem = cp.Problem(cp.Minimize(inverse + K @ cp.diag(Sigma)), [cp.sum(Sigma) == s])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Solution may be inaccurate")
        problem.solve(solver=cp.CLARABEL)
    found = solve_siblings(P[None], K[None], np.array([s]), SiblingCovariances.make_even(1, len(P)))
    own = P @ (found.profiles[0] + 1 / s) + K @ (found.variances[0] + found.references[0] ** 2 * s)
    assert own == pytest.approx(problem.value, rel=1e-5)


def level_workload(rng, *, symmetric=False, dense=False, varying=False):
    """Every level of a random tree, with other attributes at some of them."""
    place = random_place(rng)
    attributes = {"place": place}
    if symmetric:
        attributes["race"] = ["1", "2", "3"]
    if dense:
        attributes["age"] = fp.Integers(0, 4)
    groups = [fp.total(variance=float(rng.uniform(0.5, 2)))]
    for depth, level in enumerate(place.levels):
        target = float(rng.uniform(0.5, 2) * 2**depth)
        if varying:
            target = target * np.exp(0.2 * rng.normal(size=len(get_codec(place).intervals(level))))
        groups.append(fp.queries({"place": level}, variance=target, name=level))
        if symmetric and rng.random() < 0.7:
            asked = {"place": level, "race": "identity"}
            groups.append(fp.queries(asked, variance=float(rng.uniform(0.5, 2) * 2**depth)))
        if dense and depth < 2:
            asked = {"place": level, "age": "prefix"}
            groups.append(fp.queries(asked, variance=float(rng.uniform(0.5, 2) * 2**depth)))
    return fp.Workload(fp.Domain(attributes), groups)


def compare_with_dense(workload, monkeypatch):
    """The plan of a tree and the optimum of the dense problem."""
    with monkeypatch.context() as patch:
        patch.setattr(analysis, "MOST_CELLS", 0)
        plan = fp.design(workload)
    plan.verify()
    dense = fp.design(workload, tolerance=1e-5, refine=False)
    assert plan.lower_bound <= dense.privacy_cost
    assert plan.privacy_cost >= dense.lower_bound * (1 - 1e-9)
    return plan.privacy_cost / dense.lower_bound - 1, plan.lower_bound / dense.privacy_cost - 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("symmetric", [False, True])
def test_trees_reach_the_dense_optimum(seed, symmetric, monkeypatch) -> None:
    workload = level_workload(np.random.default_rng(seed), symmetric=symmetric)
    above, below = compare_with_dense(workload, monkeypatch)
    assert above < 2e-3
    assert below > -2e-3


@pytest.mark.parametrize("seed", range(4))
def test_targets_may_vary_by_node(seed, monkeypatch) -> None:
    workload = level_workload(np.random.default_rng(seed), varying=True)
    above, below = compare_with_dense(workload, monkeypatch)
    assert above < 1e-2
    assert below > -1e-2


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.slow
def test_trees_are_crossed_with_ages(seed, monkeypatch) -> None:
    workload = level_workload(np.random.default_rng(seed), dense=True)
    above, below = compare_with_dense(workload, monkeypatch)
    assert above < 2e-2
    assert below > -2e-2


def test_identical_children_are_optimal(monkeypatch) -> None:
    leaves = [(f"s{s}", f"s{s}t{t}") for s in range(3) for t in range(8)]
    domain = fp.Domain({"place": fp.Hierarchy(["state", "tract"], leaves)})
    levels = [("tract", 3.0), ("state", 1.0)]
    groups = [fp.queries({"place": level}, variance=c, name=level) for level, c in levels]
    workload = fp.Workload(domain, [*groups, fp.total(variance=1.0)])
    above, below = compare_with_dense(workload, monkeypatch)
    assert above < 1.1e-4
    assert below > -1e-4


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6), weight=st.floats(1e-3, 1e-1))
def test_the_total_error_may_count(seed, weight) -> None:
    workload = level_workload(np.random.default_rng(seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(analysis, "MOST_CELLS", 0)
        plan = fp.design(workload, total_error_weight=weight)
    assert isinstance(plan.strategy.structure, TreeStructure)
    plan.verify()
    dense = fp.design(workload, total_error_weight=weight, tolerance=1e-5)
    assert evaluate_objective(plan) >= dense.lower_bound * (1 - 1e-9)
    assert plan.lower_bound <= evaluate_objective(dense)
    assert evaluate_objective(plan) <= evaluate_objective(dense) * 1.005


@pytest.mark.usefixtures("prefer_trees")
def test_a_budget_scales_the_targets() -> None:
    workload = level_workload(np.random.default_rng(1), symmetric=True)
    free, held = fp.design(workload), fp.design(workload, rho=0.25)
    held.verify()
    assert held.rho <= 0.25
    assert held.scale == pytest.approx(free.rho / 0.25, rel=1e-3)


@pytest.mark.usefixtures("prefer_trees")
def test_designs_are_deterministic() -> None:
    workload = level_workload(np.random.default_rng(2), symmetric=True)
    assert fp.design(workload).digest == fp.design(workload).digest


@pytest.mark.usefixtures("prefer_trees")
def test_a_design_that_is_stopped_is_a_plan() -> None:
    workload = level_workload(np.random.default_rng(3))
    plan = fp.design(workload, progress=lambda iterations, gap: iterations >= 3)
    plan.verify()
    assert plan.proof.ended == "stopped"
