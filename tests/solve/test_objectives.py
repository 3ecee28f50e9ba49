"""Cell budgets, queries for free, and the hybrid with total squared error."""

from __future__ import annotations

import warnings
from dataclasses import replace
from fractions import Fraction

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.linalg import block_diag

import fitplug as fp
from fitplug.plan.plan_record import evaluate_objective
from tests.helpers.exact import full_strategy
from tests.helpers.workloads import all_ranges, identity_and_sum, prefix


def design(W, c=1.0, **keywords):
    return fp.design(fp.Workload.from_matrix(W, variance=c), **keywords)


def exact_profile(plan):
    """|A e_i|^2 / sigma^2 (d,), in rationals."""
    squares = [sum(v**2 for v in column) for column in zip(*full_strategy(plan), strict=True)]
    return [square / Fraction(plan.noise_std) ** 2 for square in squares]


def everywhere(plan):
    """`exact_profile` of every cell of the domain."""
    names, used = plan.domain.names, plan.workload.attributes
    shape = [plan.domain[n].size if n in used else 1 for n in names]
    profile = np.array(exact_profile(plan), dtype=object).reshape(shape)
    return np.broadcast_to(profile, plan.domain.shape)


RANGE = "age='11' must be between 1e-30 and 2e+12, not"


class TestCellBudgets:
    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(6))
    @pytest.mark.parametrize("shape", [(3, 1, 2), (3, 2, 2), (2,), (1, 2, 1), (1, 1, 1), (2, 1)])
    def test_they_hold_at_every_cell_where_attributes_are_symmetric(self, shape, seed):
        rng = np.random.default_rng(seed)
        domain = fp.Domain({"a": fp.Integers(0, 2), "b": ["x", "y"], "c": ["u", "v"]})
        asked = [
            fp.marginal("b", "a", variance=1.0),
            fp.marginal("c", variance=2.0),
            fp.queries({"c": "prefix", "a": "identity"}, variance=3.0),
        ]
        workload = fp.Workload(domain, [asked[i] for i in rng.permutation(3)[: 1 + seed % 3]])
        budgets = 10.0 ** rng.uniform(-1, 1, shape)
        plan = fp.design(workload, cell_budgets=budgets, tolerance=1e-3)
        plan.verify()
        allowed = np.broadcast_to(budgets, domain.shape)
        for cell, cost in np.ndenumerate(everywhere(plan)):
            claimed = np.broadcast_to(plan.profile(), domain.shape)[cell]
            assert cost <= Fraction(float(claimed)) <= Fraction(float(allowed[cell]))

    @pytest.mark.parametrize("seed", range(4))
    def test_no_cell_costs_more_than_its_budget_and_no_smaller_scale_would_do(self, seed):
        rng = np.random.default_rng(seed)
        W, budgets = rng.integers(0, 2, (6, 5)) + np.eye(6, 5), 10.0 ** rng.uniform(-2, 2, 5)
        plan = design(W, 2.0, cell_budgets=budgets, tolerance=1e-6)
        plan.verify()
        exact = exact_profile(plan)
        for cost, claimed, budget in zip(exact, plan.profile(), budgets, strict=True):
            assert cost <= Fraction(claimed) <= Fraction(budget)
        # gamma_2 of the workload over its targets and budgets, by a semidefinite program.
        V = W / np.sqrt(2.0) / np.sqrt(budgets)
        Z, t = cp.Variable((11, 11), PSD=True), cp.Variable()
        problem = cp.Problem(cp.Minimize(t), [Z[:6, 6:] == V, cp.diag(Z) <= t])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            problem.solve(solver=cp.CLARABEL)
        assert plan.scale == pytest.approx(t.value**2, rel=1e-5)
        assert plan.gap <= 1e-6
        assert plan.rho_exact == max(exact) / 2

    def test_equal_budgets_are_a_budget(self):
        alike = design(prefix(6), cell_budgets=np.full(6, 0.5))
        plain = design(prefix(6), rho=0.25)
        assert alike.scale == pytest.approx(plain.scale, rel=2e-4)
        assert alike.rho <= 0.25

    def test_rho_given_too_is_not_exceeded(self):
        budgets = np.array([0.1, 9, 9, 9])
        plan = design(np.eye(4), rho=0.2, cell_budgets=budgets, tolerance=1e-6)
        assert plan.rho <= 0.2
        assert (plan.profile() <= budgets).all()
        assert plan.scale == pytest.approx(10.0, rel=1e-5)

    def test_rho_given_too_is_a_budget_of_every_cell(self):
        budgets = np.array([0.1, 9, 9, 9])
        both = design(prefix(4), rho=0.01, cell_budgets=budgets, tolerance=1e-6)
        alone = design(prefix(4), cell_budgets=np.minimum(budgets, 0.02), tolerance=1e-6)
        assert both.rho <= 0.01
        assert both.scale == pytest.approx(alone.scale, rel=1e-5)

    def test_they_broadcast_to_the_domain_and_the_least_counts_where_cells_are_summed_out(self):
        domain = fp.Domain({"sex": ["f", "m"], "age": fp.Integers(0, 2)})
        workload = fp.Workload(domain, [fp.marginal("age", variance=1.0)])
        budgets = np.array([[4.0, 4, 4], [1, 4, 2]])
        plan = fp.design(workload, cell_budgets=budgets, tolerance=1e-6)
        assert plan.profile().shape == (1, 3)
        assert (plan.profile() <= [1, 4, 2]).all()
        np.testing.assert_allclose(plan.profile()[0, 0], 1, rtol=1e-5)
        per_age = fp.design(workload, cell_budgets=[1, 4, 2], tolerance=1e-6)
        assert per_age.scale == plan.scale

    @pytest.mark.parametrize(
        ("budgets", "message"),
        [
            ([1, 0, 1], f"{RANGE} 0, because 'age prefix' counts this cell"),
            ([1, -2, 1], "age='11' must be at least 0, not -2"),
            ([1, 1, np.inf], "age='12' must be finite, not inf"),
            ([np.nan, 1, 1], "age='10' must be finite, not nan"),
            ([1, 1e-300, 1], f"{RANGE} 1e-300, because 'age prefix' counts this cell"),
            ([1, 1e300, 1], f"{RANGE} 1e+300, because 'age prefix' counts this cell"),
            ([1, 1], "shape (2,), which does not broadcast to the domain's shape (2, 3)"),
            ([], "shape (0,), which does not broadcast"),
            ([[[1, 1, 1]]], "shape (1, 1, 3), which does not broadcast"),
            (["a", "b", "c"], "an array of numbers"),
            ([[1], [1, 2]], "an array of numbers"),
        ],
    )
    def test_bad_ones_are_refused_with_the_cell(self, budgets, message):
        domain = fp.Domain({"sex": ["f", "m"], "age": fp.Integers(10, 12)})
        workload = fp.Workload(domain, [fp.queries({"age": "prefix"}, variance=1.0)])
        with pytest.raises(fp.BudgetError) as caught:
            fp.design(workload, cell_budgets=budgets)
        assert message in str(caught.value)

    def test_more_attributes_than_an_array_has_axes(self):
        domain = fp.Domain({f"a{i}": ["x", "y"] for i in range(70)})
        workload = fp.Workload(domain, [fp.marginal("a3", "a66", variance=1.0)])
        plan = fp.design(workload, tolerance=1e-6)
        assert plan.profile().shape == plan.unused_budget().shape == ()
        two = {"a3": "prefix", "a66": "prefix"}
        told_apart = fp.design(fp.Workload(domain, [fp.queries(two, variance=1.0)]))
        assert told_apart.profile().size == 4
        assert told_apart.unused_budget().shape == (2, 2)
        with pytest.raises(fp.BudgetError, match="at most 64 attributes"):
            fp.design(workload, cell_budgets=1.0)

    def test_a_cell_without_budget_that_no_query_counts_is_no_error(self):
        plan = design(np.eye(3)[:2], cell_budgets=[1, 1, 0])
        assert plan.profile()[2] == 0

    def test_a_file_that_claims_other_budgets_is_refused(self, tmp_path):
        plan = design(prefix(4), cell_budgets=[1.0, 2, 3, 4])
        plan.save(tmp_path / "plan")
        assert fp.Plan.load(tmp_path / "plan").gap == plan.gap
        tighter = replace(plan.objective, budgets=plan.objective.budgets / 2)
        replace(plan, objective=tighter).save(tmp_path / "tighter")
        with pytest.raises(fp.PlanError, match="more than its budget"):
            fp.Plan.load(tmp_path / "tighter")


class TestQueriesForFree:
    @pytest.mark.parametrize("tolerance", [1e-2, 1e-4, 1e-6])
    def test_the_slack_of_one_plan_pays_for_another(self, tolerance):
        W = block_diag(prefix(5), identity_and_sum(5))
        first = design(W, np.append(np.ones(5), np.full(6, 4.0)), tolerance=tolerance)
        free = np.hstack([np.zeros((15, 5)), all_ranges(5)])
        second = design(free, cell_budgets=first.unused_budget(), tolerance=tolerance)
        second.verify()
        both = [a + b for a, b in zip(exact_profile(first), exact_profile(second), strict=True)]
        assert max(both) <= 2 * first.rho_exact
        assert (first.profile() + second.profile()).max() <= first.privacy_cost**2
        # It is worth having: about what its own cells have left buys.
        assert second.scale < 2

    @pytest.mark.parametrize("seed", range(8))
    def test_where_attributes_are_symmetric_too(self, seed):
        """The two plans take different attributes for symmetric, and leave different ones out."""
        rng = np.random.default_rng(seed)
        domain = fp.Domain({"a": fp.Integers(0, 2), "b": fp.Integers(0, 3), "c": ["x", "y"]})
        least, more = rng.integers(0, 4), rng.uniform(2, 9, 4)
        more[least] = 1.0
        asked = [fp.marginal("b", "a", variance=more[:, None]), fp.marginal("a", variance=50.0)]
        first = fp.design(fp.Workload(domain, asked[: rng.integers(1, 3)]), tolerance=1e-3)
        assert first.strategy.structure.symmetric == ("a",)
        left = np.delete(np.eye(4), least, axis=0)
        asked = [
            fp.queries({"c": "identity", "b": left}, variance=1.0),
            fp.queries({"a": "prefix", "b": left.sum(axis=0, keepdims=True)}, variance=2.0),
        ]
        workload = fp.Workload(domain, asked[: rng.integers(1, 3)])
        second = fp.design(workload, cell_budgets=first.unused_budget(), tolerance=1e-3)
        second.verify()
        assert "c" in second.strategy.structure.symmetric
        both = everywhere(first) + everywhere(second)
        assert both.max() <= 2 * first.rho_exact
        # It spends what is left at some cell.
        assert both[:, np.arange(4) != least].max() > 1.99 * first.rho_exact
        assert (first.profile() + second.profile()).max() <= first.privacy_cost**2

    def test_queries_of_the_cell_that_costs_most_are_not_free(self):
        first = design(prefix(4), [1.0, 50, 50, 50], tolerance=1e-6)
        with pytest.raises(fp.BudgetError, match=r"cell='\d'.*, not 0, because"):
            design(np.ones((1, 4)), cell_budgets=first.unused_budget())

    @pytest.mark.slow
    @given(st.integers(0, 2**32 - 1))
    def test_on_random_workloads_both_together_cost_no_more(self, seed):
        rng = np.random.default_rng(seed)
        d = int(rng.integers(2, 7))
        W = rng.integers(-2, 3, (int(rng.integers(1, 7)), d)).astype(float)
        W[0, 0] = 1
        first = design(W, 10.0 ** rng.uniform(-2, 2, len(W)), tolerance=1e-3)
        slack = first.unused_budget()
        left = slack > 1e-3 * slack.max()
        if not left.any():
            return
        second = design(np.eye(d)[left], cell_budgets=slack, tolerance=1e-3)
        both = [a + b for a, b in zip(exact_profile(first), exact_profile(second), strict=True)]
        assert max(both) <= 2 * first.rho_exact
        assert (first.profile() + second.profile()).max() <= first.privacy_cost**2


class TestHybrid:
    @pytest.mark.parametrize("weight", [1e-3, 0.1, 10.0])
    def test_it_is_the_least_of_the_hybrid_by_a_semidefinite_program(self, weight):
        """Y = Sigma^-1 with diag Y <= 1; the largest variance over target plus weight * total."""
        W, c = identity_and_sum(4), np.array([1.0, 2, 3, 4, 0.5])
        plan = design(W, c, total_error_weight=weight, tolerance=1e-6)
        plan.verify()
        Z, t = cp.Variable((9, 9), PSD=True), cp.Variable()
        variances = cp.diag(Z)[:5]
        objective = t + weight * cp.sum(variances)
        limits = [Z[:5, 5:] == W, cp.diag(Z)[5:] <= 1, variances <= cp.multiply(t, c)]
        problem = cp.Problem(cp.Minimize(objective), limits)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            problem.solve(solver=cp.CLARABEL)
        assert evaluate_objective(plan) ** 2 == pytest.approx(problem.value, rel=1e-5)
        assert plan.gap <= 1e-6
        assert (plan.variances["queries"] <= c).all()

    def test_more_weight_buys_a_smaller_total_for_a_higher_cost(self):
        c = np.array([1.0] * 8 + [0.2])
        plans = [
            design(identity_and_sum(8), c, rho=0.5, total_error_weight=weight, tolerance=1e-6)
            for weight in (0.0, 0.05, 1.0, 100.0)
        ]
        totals = [plan.variances["queries"].sum() for plan in plans]
        assert totals == sorted(totals, reverse=True)
        assert totals[0] > 1.01 * totals[-1]
        scales = [plan.scale for plan in plans]
        assert scales == sorted(scales)

    def test_with_all_weight_it_is_the_matrix_mechanism(self):
        workload = fp.Workload.from_matrix(prefix(8), variance=np.arange(1.0, 9))
        plan = fp.design(workload, rho=0.5, total_error_weight=1e6, tolerance=1e-6)
        least, _ = fp.baselines.total_error_optimum(workload)
        assert plan.variances["queries"].sum() == pytest.approx(least, rel=1e-5)

    @pytest.mark.parametrize("weight", [-1, np.nan, np.inf, "1", True, None])
    def test_bad_weights_are_refused(self, weight):
        with pytest.raises(fp.BudgetError, match="total_error_weight"):
            design(prefix(3), total_error_weight=weight)

    def test_the_paper_s_solver_knows_none(self):
        with pytest.raises(fp.DesignError, match="does not support total_error_weight"):
            design(prefix(3), total_error_weight=1.0, solver="sm2")


class TestProgress:
    @pytest.mark.parametrize("solver", ["dual", "sm2"])
    def test_it_can_stop_the_design_and_the_plan_says_so(self, solver):
        seen = []

        def stop(iteration, gap):
            seen.append((iteration, gap))
            return iteration == 4

        plan = design(prefix(32), tolerance=1e-8, solver=solver, progress=stop)
        assert [iteration for iteration, _ in seen] == [1, 2, 3, 4]
        assert plan.gap > 1e-8
        assert "interrupted" in plan.status
        assert (plan.variances["queries"] <= 1.0).all()
        plan.verify()

    def test_stopped_it_is_not_called_again(self):
        seen = []
        W = block_diag(prefix(8), prefix(9), prefix(10))
        design(W, tolerance=1e-8, progress=lambda i, _: seen.append(i) or i == 3)
        assert seen == [1, 2, 3]

    @pytest.mark.parametrize("bad", [{"refine": "no"}, {"refine": None}, {"progress": 5}])
    def test_bad_arguments_are_refused(self, bad):
        with pytest.raises(fp.InputError, match=next(iter(bad))):
            design(prefix(3), **bad)

    def test_iterations_count_through_components_and_tiers(self):
        seen = []
        W = block_diag(prefix(4), prefix(3), np.eye(2))
        targets = np.array([1.0, 1, 1, 9, 1, 1, 9, 1, 1])
        plan = design(W, targets, progress=lambda i, _: seen.append(i))
        assert seen == list(range(1, plan.proof.iterations + 1))

    def test_what_it_raises_passes_through(self):
        def interrupt(*_):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            design(prefix(4), progress=interrupt)
