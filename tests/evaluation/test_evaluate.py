"""Evaluations: closed forms, known strategies, the covariance of plans, and what is refused."""

from __future__ import annotations

import math

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator

import fitplug as fp
from tests.helpers.workloads import all_ranges, identity_and_sum, prefix, small

SMALL = pytest.mark.parametrize(("name", "W", "c"), small(), ids=[s[0] for s in small()])
UNITS = [
    fp.AddRemove(),
    fp.AddRemove(records=3),
    fp.ReplaceOne(),
    fp.ReplaceOne(within=("state",)),
    fp.ReplaceOne(within=("unused",)),
]


def dense(W, c=1.0):
    return fp.Workload.from_matrix(W, variance=c)


def of_people():
    domain = fp.Domain(
        {
            "sex": ["F", "M"],
            "state": ["a", "b", "c"],
            "unused": ["x", "y"],
            "pay": fp.Measure(-5, 20),
        }
    )
    by_sex = {"sex": "identity", "pay": "sum"}
    groups = [fp.queries(by_sex, std=50.0, name="pay"), fp.marginal("sex", "state", std=4.0)]
    return fp.Workload(domain, groups)


def binary_tree(d):
    widths = [2**k for k in range(int(math.log2(d)) + 1)]
    return np.concatenate([np.kron(np.eye(d // b), np.ones((1, b))) for b in widths])


@pytest.mark.parametrize("d", [2, 4, 16])
def test_noise_on_each_cell_for_cells_and_their_sum(d):
    # The sum of d cells has the variance d, and its target is 1.
    evaluated = fp.evaluate(dense(identity_and_sum(d)), fp.Strategy.from_matrix(np.eye(d)))
    assert evaluated.privacy_cost == pytest.approx(math.sqrt(d), rel=1e-12)
    assert evaluated.rho == pytest.approx(d / 2, rel=1e-12)
    # The least alpha is 2d/(1+d), by the paper's theorem on the identity and the sum.
    assert evaluated.ratio**2 == pytest.approx(d / (2 * d / (1 + d)), rel=3e-4)
    assert evaluated.tightest_query == ("queries", (d,))


def test_circulant_queries_as_their_own_strategy():
    # W answered by itself costs |column|^2; the optimum is (nuclear norm / n)^2.
    W = np.array([np.roll([1.0, 1.0, 0.0, 0.0, 0.0], k) for k in range(5)])
    evaluated = fp.evaluate(dense(W), fp.Strategy.from_matrix(W))
    nuclear = np.linalg.norm(W, "nuc")
    assert evaluated.privacy_cost == pytest.approx(math.sqrt(2.0), rel=1e-12)
    assert evaluated.ratio == pytest.approx(math.sqrt(2.0) / (nuclear / 5), rel=2e-4)


@pytest.mark.parametrize("d", [4, 8, 16])
def test_a_binary_tree_and_independent_noise_for_prefixes(d):
    W = prefix(d)
    A = binary_tree(d)
    variances = np.einsum("ij,jk,ik->i", W, np.linalg.inv(A.T @ A), W)
    expected = (math.log2(d) + 1) * variances.max()
    evaluated = fp.evaluate(dense(W), fp.Strategy.from_matrix(A, name="tree"))
    assert evaluated.privacy_cost**2 == pytest.approx(expected, rel=1e-10)
    np.testing.assert_allclose(
        evaluated.variances["queries"], variances / variances.max(), rtol=1e-10
    )


@SMALL
def test_the_usual_mechanisms(name, W, c):
    workload = dense(W, c)
    at_one = fp.baselines.gaussian(workload, 1.0)
    # Noise of one variance on all answers, without least squares, is never more accurate.
    evaluated = fp.evaluate(workload, fp.Strategy.from_matrix(W))
    published = max(float((at_one[n] / workload[n].variances).max()) for n in workload.names)
    assert evaluated.privacy_cost**2 <= published * (1 + 1e-6)
    cells = fp.evaluate(workload, fp.Strategy.from_matrix(np.eye(W.shape[1])))
    perturbed = fp.baselines.input_perturbation(workload, cells.privacy_cost)
    for group in workload.names:
        np.testing.assert_allclose(perturbed[group], cells.variances[group], rtol=1e-9)


@SMALL
def test_the_covariance_of_a_plan_costs_what_the_plan_says(name, W, c):
    plan = fp.design(dense(W, c))
    own = fp.Strategy.from_covariance(*plan.sigma())
    evaluated = fp.evaluate(plan.workload, own, plan=plan)
    assert evaluated.privacy_cost == pytest.approx(plan.privacy_cost, rel=1e-6)
    assert evaluated.ratio >= 1 - 1e-9
    for group, variances in evaluated.variances.items():
        np.testing.assert_allclose(variances, plan.variances[group], rtol=2e-4)


@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_units_of_privacy_and_measures(unit):
    workload = of_people()
    plan = fp.design(workload, unit=unit)
    own = fp.Strategy.from_covariance(*plan.sigma())
    evaluated = fp.evaluate(workload, own, unit=unit, plan=plan)
    assert evaluated.privacy_cost == pytest.approx(plan.privacy_cost, rel=1e-6)
    identity = fp.evaluate(workload, np.eye(workload.cell_count), unit=unit, plan=plan)
    assert identity.ratio > 1.0
    # Independent noise on cells costs sqrt(2) for a pair of cells and k for k records.
    W, c = workload.matrix(), workload.targets()
    if isinstance(unit, fp.AddRemove):
        assert identity.privacy_cost == pytest.approx(
            unit.records * math.sqrt(((W**2).sum(axis=1) / c).max()), rel=1e-12
        )
        return
    # Given public totals T x, the variance is w (I - T^+ T) w'.
    states = np.kron(np.ones((1, 2)), np.kron(np.eye(3), np.ones((1, 2))))
    T = states if unit.within == ("state",) else np.ones((1, 12))
    left = np.eye(12) - np.linalg.pinv(T) @ T
    expected = math.sqrt(2 * (np.einsum("ij,jk,ik->i", W, left, W) / c).max())
    assert identity.privacy_cost == pytest.approx(expected, rel=1e-12)
    assert " and " in identity.costliest_neighbours


def test_the_optimum_of_a_semidefinite_program():
    """CVXPY's own optimal covariance for all ranges has a ratio of 1."""
    W = all_ranges(5)
    X = cp.Variable((5, 5), PSD=True)  # the inverse of Sigma
    rows = [cp.matrix_frac(w, X) <= 1.0 for w in W]
    bound = cp.Variable()
    problem = cp.Problem(cp.Minimize(bound), [*rows, cp.diag(X) <= bound])
    problem.solve(solver=cp.CLARABEL)
    evaluated = fp.evaluate(dense(W), np.linalg.inv(X.value))
    assert evaluated.privacy_cost == pytest.approx(math.sqrt(bound.value), rel=1e-5)
    assert evaluated.ratio == pytest.approx(1.0, abs=2e-4)


@settings(max_examples=40)
@given(
    st.integers(2, 6).flatmap(
        lambda d: st.tuples(
            st.lists(st.lists(st.integers(-3, 3), min_size=d, max_size=d), min_size=1, max_size=6),
            st.permutations(range(d)),
            st.floats(1e-6, 1e6),
        )
    )
)
def test_scale_and_order_of_the_rows_have_no_meaning(drawn):
    rows, order, factor = drawn
    extra = np.array(rows, dtype=float)
    d = extra.shape[1]
    workload = dense(prefix(d))
    plan = _plan_of(d)
    A = np.concatenate([np.eye(d), extra])
    first = fp.evaluate(plan.workload, fp.Strategy.from_matrix(A), plan=plan)
    assert first.ratio >= 1 - 1e-9
    assert workload.cell_count == d
    again = fp.Strategy.from_matrix(factor * np.concatenate([extra, np.eye(d)[list(order)]]))
    assert fp.evaluate(plan.workload, again, plan=plan).privacy_cost == pytest.approx(
        first.privacy_cost, rel=1e-9
    )
    # Rows stand for answers with independent noise, so two equal rows are one with sqrt(2).
    doubled = fp.Strategy.from_matrix(np.concatenate([A, A]))
    assert fp.evaluate(plan.workload, doubled, plan=plan).privacy_cost == pytest.approx(
        first.privacy_cost, rel=1e-9
    )


_PLANS: dict[int, fp.Plan] = {}


def _plan_of(d):
    if d not in _PLANS:
        _PLANS[d] = fp.design(dense(prefix(d)))
    return _PLANS[d]


def test_sparse_matrices_and_linear_operators():
    A = binary_tree(8)
    plan = _plan_of(8)
    costs = {
        fp.evaluate(plan.workload, fp.Strategy.from_matrix(A_given), plan=plan).privacy_cost
        for A_given in (
            A,
            sparse.csr_array(A),
            sparse.coo_matrix(A),
            aslinearoperator(A),
            A.tolist(),
        )
    }
    assert len(costs) == 1
    W = prefix(8)
    for W_given in (sparse.csc_array(W), aslinearoperator(sparse.csr_array(W))):
        np.testing.assert_array_equal(dense(W_given).matrix(), W)


def test_targets_that_a_budget_scaled():
    workload = dense(prefix(4))
    plan = fp.design(workload, rho=0.1)
    tree = fp.Strategy.from_matrix(binary_tree(4))
    scaled = fp.evaluate(workload, tree, plan=plan)
    plain = fp.evaluate(workload, tree)
    assert scaled.ratio == pytest.approx(plain.ratio, rel=3e-4)
    np.testing.assert_allclose(
        scaled.variances["queries"], plan.scale * plain.variances["queries"], rtol=1e-9
    )


def test_singular_strategies_that_still_answer():
    # Two sums of neighbours answer the total, and not the cells.
    pairs = np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]])
    evaluated = fp.evaluate(dense(np.ones((1, 4))), fp.Strategy.from_matrix(pairs))
    assert evaluated.privacy_cost == pytest.approx(math.sqrt(2.0))
    with pytest.raises(
        fp.WorkloadError,
        match=r"of group 'queries'. Add rows to the strategy",
    ):
        fp.evaluate(dense(prefix(4)), fp.Strategy.from_matrix(np.ones((1, 4))))


def test_what_is_refused():
    workload = of_people()
    few = fp.Strategy.from_matrix(np.eye(3))
    with pytest.raises(fp.WorkloadError, match=r"per cell of sex x state x pay \(12\), not 3"):
        fp.evaluate(workload, few)
    own = fp.Strategy.from_matrix(np.eye(12))
    for unit in (
        fp.AddRemove(records=2, distinct=True),
        fp.AddRemove(records=2, once_per="state"),
    ):
        with pytest.raises(fp.WorkloadError, match="strategies cannot be evaluated for one person"):
            fp.evaluate(workload, own, unit=unit)
    plan = fp.design(workload)
    with pytest.raises(fp.WorkloadError, match="another workload"):
        fp.evaluate(of_people(), own, plan=plan)
    with pytest.raises(fp.WorkloadError, match=r"unit=plan\.unit"):
        fp.evaluate(workload, own, plan=plan, unit=fp.ReplaceOne())
    weighted = fp.design(workload, total_error_weight=0.1)
    with pytest.raises(fp.WorkloadError, match="total_error_weight"):
        fp.evaluate(workload, own, plan=weighted)


@pytest.mark.parametrize(
    ("sigma", "basis", "message"),
    [
        (np.ones((2, 3)), None, "square"),
        (np.eye(2), np.ones((3, 2)), "'basis' must have one row per answer \\(2\\), not 3"),
        (np.diag([1.0, 0.0]), None, "variance at row 1 .* must be positive, not 0"),
        (np.diag([1.0, -1.0]), None, "variance at row 1 .* must be positive, not -1"),
        ([[1.0, 0.5], [0.0, 1.0]], None, "not symmetric"),
        ([[1.0, 1.0], [1.0, 1.0]], None, "not positive definite"),
        ([[1.0, math.nan], [1.0, 1.0]], None, "finite"),
    ],
)
def test_covariances_that_are_none(sigma, basis, message):
    with pytest.raises(fp.WorkloadError, match=message):
        fp.Strategy.from_covariance(sigma, basis)


def test_a_strategy_that_measures_nothing():
    with pytest.raises(fp.WorkloadError, match="zero"):
        fp.Strategy.from_matrix(np.zeros((2, 2)))


def test_the_summary_and_the_plot():
    plan = _plan_of(8)
    tree = fp.evaluate(
        plan.workload, fp.Strategy.from_matrix(binary_tree(8), name="tree"), plan=plan
    )
    cells = fp.evaluate(plan.workload, fp.Strategy.from_matrix(np.eye(8), name="cells"), plan=plan)
    text = tree.summary()
    assert "tree: 15 queries over 8 cells" in text
    assert "not certified" in text
    assert f"{tree.ratio**2:.4f} in rho" in text
    figure = tree.plot(cells)
    left, right = figure.axes
    assert [bar.get_width() for bar in left.patches] == pytest.approx(
        [plan.lower_bound**2 / 2, tree.rho, cells.rho]
    )
    stds = [float(line.get_xdata()[0]) for line in right.lines]
    # At the rho of the bound, each is as much less accurate as it costs more.
    assert stds[0] == pytest.approx((1.0 + plan.gap) ** 0.5, rel=1e-6)
    assert stds[1:] == pytest.approx([tree.ratio, cells.ratio])
    other = fp.evaluate(plan.workload, np.eye(8))
    with pytest.raises(fp.WorkloadError, match="different plans"):
        tree.plot(other)
