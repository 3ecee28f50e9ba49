"""The refined optimum: unique, certified tier by tier, and what an interior-point method finds."""

from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from scipy.linalg import block_diag

import fitplug as fp
from fitplug.solve import dual
from fitplug.solve.problem import Block, Problem, reduce_matrix
from fitplug.solve.refinement import refine
from tests.helpers.workloads import all_ranges, identity_and_sum, marginals, prefix


def design(W, c, tolerance=1e-6, **keywords):
    return fp.design(fp.Workload.from_matrix(W, variance=c), tolerance=tolerance, **keywords)


TWO_BLOCKS = block_diag(prefix(8), identity_and_sum(8))
TARGETS = np.append(np.ones(8), np.full(9, 4.0))
FIRST, SECOND = 2.281560588, 2 * 8 / 9 / 4
"""The levels of its two tiers: alpha of prefix(8), and of identity and sum at targets of 4."""


def joined(W, c, looseness=1e4):
    """The workload with the total of all cells at a target so loose that it hardly matters."""
    return np.vstack([W, np.ones(W.shape[1])]), np.append(c, looseness * np.max(c))


@pytest.mark.parametrize("tolerance", [1e-3, 1e-4, 1e-6])
def test_two_blocks(tolerance):
    plan = design(TWO_BLOCKS, TARGETS, tolerance)
    close = max(1e-5, 2 * tolerance)
    np.testing.assert_allclose(plan.profile()[:8], FIRST, rtol=close)
    np.testing.assert_allclose(plan.profile()[8:], SECOND, rtol=close)
    first, second = plan.tiers
    assert first.cells == second.cells == 8
    assert second.lower_bound <= SECOND * (1 + 1e-9) <= second.level * (1 + 1e-9)
    assert second.level / second.lower_bound - 1 < max(2e-5, 20 * tolerance)


def test_two_blocks_that_a_query_joins_come_near_them_at_a_tight_tolerance():
    plan = design(*joined(TWO_BLOCKS, TARGETS))
    np.testing.assert_allclose(plan.profile()[:8], FIRST, rtol=1e-4)
    np.testing.assert_allclose(plan.profile()[8:], SECOND, rtol=1e-4)
    assert [tier.cells for tier in plan.tiers] == [8, 8]
    for tier in plan.tiers:
        assert tier.lower_bound <= tier.level <= tier.lower_bound * (1 + 1e-3)


def test_without_refinement_the_cost_is_the_same_and_idle_cells_cost_more():
    W, c = joined(TWO_BLOCKS, TARGETS)
    plain, refined = design(W, c, refine=False), design(W, c)
    assert plain.privacy_cost == pytest.approx(refined.privacy_cost, rel=2e-6)
    assert plain.profile()[8:].min() > 1.5 * refined.profile()[8:].max()
    assert [tier.cells for tier in plain.tiers] == [16]


@pytest.mark.parametrize("join", [False, True])
def test_each_cell_of_a_histogram_costs_what_its_own_target_does(join):
    c = 10.0 ** np.random.default_rng(0).uniform(-3, 3, 12)
    W = np.eye(12)
    plan = design(*(joined(W, c, 1e6) if join else (W, c)))
    np.testing.assert_allclose(plan.profile() * c, 1.0, rtol=1e-3)
    assert len(plan.tiers) == 12
    assert all(tier.lower_bound is not None for tier in plan.tiers)


def test_a_large_histogram_is_solved_cell_by_cell():
    c = np.random.default_rng(0).uniform(1, 10, 500)
    plan = design(np.eye(500), c, 1e-4)
    np.testing.assert_allclose(plan.profile() * c, 1.0, rtol=1e-4)
    assert plan.proof.iterations == 500


def lexicographic(W, c, slack=1e-5):
    """Levels and cells of the first two tiers, by semidefinite programs: [[X, V], [V', Y]] >= 0
    with diag X <= 1 says that Sigma = Y^-1 meets every target; cells whose constraint has a
    multiplier are tight. Without some slack the second would have no interior.
    """
    V = W / np.sqrt(c)[:, None]
    m, d = V.shape
    level, found = np.full(d, np.nan), []
    for _ in range(2):
        rest = np.isnan(level)
        if not rest.any():
            break
        Z, t = cp.Variable((m + d, m + d), PSD=True), cp.Variable()
        top = cp.diag(Z)[m:][np.flatnonzero(rest)] <= t
        limits = [Z[:m, m:] == V, cp.diag(Z)[:m] <= 1, top]
        if not rest.all():
            held = np.flatnonzero(~rest)
            limits.append(cp.diag(Z)[m:][held] <= level[held] * (1 + slack))
        cp.Problem(cp.Minimize(t), limits).solve(solver=cp.CLARABEL)
        tight = np.flatnonzero(rest)[top.dual_value > 1e-4]
        level[tight] = t.value
        found.append((float(t.value), set(tight.tolist())))
    return found


@pytest.mark.parametrize("seed", range(6))
def test_against_semidefinite_programs(seed):
    rng = np.random.default_rng(seed)
    W = rng.integers(0, 2, (5, 5)).astype(float) + np.eye(5)
    c = 10.0 ** rng.uniform(-1, 1, 5)
    plan = design(W, c, 1e-7)
    profile = plan.profile()
    (first, cells), *second = lexicographic(W, c)
    np.testing.assert_allclose(profile[sorted(cells)], first, rtol=1e-6)
    for level, cells in second:
        # It answers to the root of the slack that the first tier is given.
        np.testing.assert_allclose(profile[sorted(cells)], level, rtol=2e-2)
        assert level <= plan.tiers[1].level * (1 + 1e-6)
    for tier in plan.tiers:
        assert tier.lower_bound is None or tier.lower_bound <= tier.level


@pytest.mark.parametrize(
    ("W", "c"),
    [
        (prefix(6), np.array([1.0, 9, 1, 5, 2, 30])),
        joined(TWO_BLOCKS, TARGETS),
        (all_ranges(5), np.linspace(1, 20, 15)),
        (marginals([2, 3], 1), np.arange(1.0, 7)),
    ],
)
def test_order_of_rows_and_cells_makes_no_difference(W, c):
    rng = np.random.default_rng(1)
    plan = design(W, c)
    for _ in range(3):
        rows, cells = rng.permutation(len(W)), rng.permutation(W.shape[1])
        other = design(W[np.ix_(rows, cells)], c[rows])
        np.testing.assert_allclose(other.profile(), plan.profile()[cells], rtol=1e-3)
        np.testing.assert_allclose(
            other.variances["queries"], plan.variances["queries"][rows], rtol=1e-3
        )


@pytest.mark.parametrize(
    ("W", "c"),
    [
        (prefix(6), np.array([1.0, 9, 1, 5, 2, 30])),
        joined(TWO_BLOCKS, TARGETS),
        (marginals([2, 3], 1), np.arange(1.0, 7)),
    ],
)
def test_basis_and_start_make_no_difference(W, c):
    """Theorem 5: any basis of the row space leads to the same mechanism."""
    rng = np.random.default_rng(2)
    problem, _ = reduce_matrix(W, c)
    (block,) = problem.blocks
    precisions = []
    for trial in range(4):
        k = len(block.basis)
        T = rng.normal(size=(k, k)) + 2 * np.eye(k)
        other = Block(T @ block.basis, block.rows, block.representation @ np.linalg.inv(T))
        changed = Problem(problem.cells, problem.queries, (other,) if trial else (block,))
        start = (rng.dirichlet(np.ones(problem.cells)), rng.dirichlet(np.ones(problem.queries)))
        found = dual.solve_dual(
            changed, tolerance=1e-6, max_iterations=2000, start=start if trial > 1 else None
        )
        found, _ = refine(changed, found, tolerance=1e-6, max_iterations=2000)
        G = found.whiteners[0] @ changed.blocks[0].basis
        precisions.append(G.T @ G)
    for precision in precisions[1:]:
        np.testing.assert_allclose(
            precision, precisions[0], rtol=1e-3, atol=1e-3 * np.abs(precisions[0]).max()
        )
        np.testing.assert_allclose(np.diag(precision), np.diag(precisions[0]), rtol=1e-3)


def test_too_few_iterations_leave_cells_that_are_said_not_to_be_refined():
    W, c = joined(np.eye(8), 10.0 ** np.arange(8.0), 1e3)
    full = design(W, c)
    short = design(W, c, max_iterations=full.proof.iterations // 2)
    assert short.gap <= 1e-6
    assert short.tiers[-1].lower_bound is None
    assert sum(tier.cells for tier in short.tiers) == 8


def test_a_refined_plan_is_saved_and_verified_with_its_tiers(tmp_path):
    plan = design(*joined(TWO_BLOCKS, TARGETS))
    plan.save(tmp_path / "plan")
    read = fp.Plan.load(tmp_path / "plan")
    read.verify()
    assert read.tiers == plan.tiers
    assert read.digest == plan.digest


@pytest.mark.parametrize(
    "forged",
    [
        {"p": -1.0},
        {"p": 0.0},
        {"p": np.inf},
        {"q": np.nan},
        {"of_cell": np.ones(16, dtype=np.int64)},
        {"of_cell": np.append(-1, np.zeros(15, dtype=np.int64))},
        {"of_cell": np.full(16, 3)},
    ],
)
def test_forged_tiers_are_refused(forged, tmp_path):
    plan = design(*joined(TWO_BLOCKS, TARGETS))
    (name, value), *_ = forged.items()
    if name != "of_cell":
        value = np.full_like(getattr(plan.proof.tiers, name), value)
    tiers = replace(plan.proof.tiers, **{name: value})
    replace(plan, proof=replace(plan.proof, tiers=tiers)).save(tmp_path / "forged")
    with pytest.raises(fp.PlanError, match="costs per cell"):
        fp.Plan.load(tmp_path / "forged")


def test_tiers_of_many_components_take_a_decomposition_of_each_alone():
    c = np.random.default_rng(0).uniform(1, 10, 400)
    tiers = design(np.eye(400), c, 1e-4).tiers
    assert sum(tier.cells for tier in tiers) == 400
    assert all(tier.lower_bound <= tier.level for tier in tiers)
