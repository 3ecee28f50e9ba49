"""Plans of trees: exact in rationals, kept in files, and free within what another plan leaves."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import fitplug as fp
from fitplug.ledger import CellCosts
from tests.helpers.exact import assert_exact, full_strategy, least_variance, rationals
from tests.helpers.tree_plans import TREES, design_tree, people_by_place


@pytest.fixture(scope="module", params=TREES)
def plan(request):
    return design_tree(TREES[request.param](), tolerance=1e-2)


def test_it_does_exactly_what_it_says(plan):
    assert_exact(plan)
    plan.verify()


def test_variances_are_bounded_in_rationals():
    plan = design_tree(people_by_place(), tolerance=1e-2)
    A, W = full_strategy(plan), rationals(plan.workload.matrix())
    variances = np.concatenate([plan.variances[name].ravel() for name in plan.workload.names])
    for row in (0, 21, 35, 43):
        exact = least_variance(A, W[row]) * Fraction(plan.noise_std) ** 2
        claimed = Fraction(float(variances[row]))
        assert exact <= claimed <= exact * (1 + Fraction(1, 10**9))


def test_a_file_holds_it(plan, tmp_path):
    plan.save(tmp_path / "plan")
    read = fp.Plan.load(tmp_path / "plan")
    read.verify()
    assert read.digest == plan.digest
    assert read.summary() == plan.summary()
    assert read.strategy.structure.names_in_files == plan.strategy.structure.names_in_files
    np.testing.assert_array_equal(read.profile(), plan.profile())


def test_its_covariance_is_that_of_its_estimates(plan):
    covariance, basis = plan.sigma()
    weights = plan.workload.matrix() @ np.linalg.pinv(basis)
    np.testing.assert_allclose(weights @ basis, plan.workload.matrix(), atol=1e-8)
    variances = np.concatenate([plan.variances[name].ravel() for name in plan.workload.names])
    np.testing.assert_allclose(np.diag(weights @ covariance @ weights.T), variances, rtol=1e-7)


def count(plan):
    """Tables of the same counts for every plan of a domain."""
    counts, names = make_counts(plan), plan.domain.names
    parts = {}
    for asked in plan.tables:
        rest = tuple(i for i, name in enumerate(names) if name not in asked)
        parts[asked] = counts.sum(axis=rest)
    return fp.Tables(plan.domain, parts)


def make_counts(plan):
    return np.random.default_rng(3).integers(0, 99, plan.domain.shape)


def test_a_release_is_near_the_counts(plan):
    release = fp.release(plan, count(plan))
    exact = plan.workload.split(plan.workload.matrix() @ make_counts(plan).ravel())
    for name in plan.workload.names:
        off = (release.estimates[name] - exact[name]) / np.sqrt(plan.variances[name])
        assert np.abs(off).max() < 6
    first = np.zeros(plan.workload["tracts"].shape)
    first.flat[:2] = 1, 1
    std = release.estimate({"tracts": first}).std
    found = release.estimate_all({"a": {"tracts": first}, "b": {"counties": np.ones(5)}})
    assert found.stds[0] == pytest.approx(std, rel=1e-9)


def test_budgets_hold_at_every_leaf():
    """The profile of each leaf is within its own budget, so that leaves are told apart."""
    workload = people_by_place()
    free = design_tree(workload, tolerance=1e-2)
    budgets = np.full(free.profile().shape, free.privacy_cost**2)
    budgets[..., :7] *= np.linspace(0.2, 0.8, 7)
    held = design_tree(workload, cell_budgets=budgets, tolerance=1e-2)
    assert not held.strategy.structure.merges_leaves
    assert (held.profile() <= budgets).all()
    assert held.scale > 1
    held.verify()
    A = np.array(full_strategy(held))
    squares = (A * A).sum(axis=0).reshape(2, -1)
    profile = squares.max(axis=0) / Fraction(held.noise_std) ** 2
    assert all(p <= Fraction(float(b)) for p, b in zip(profile, budgets.ravel(), strict=True))


def test_budgets_below_the_finest_level_asked_for_are_the_least_of_each_node():
    domain = people_by_place().domain
    workload = fp.Workload(domain, [fp.queries({"place": "county"}, variance=1.0)])
    budgets = np.ones((1, domain["place"].size))
    budgets[0, 2] = 0.25
    made = design_tree(workload, cell_budgets=budgets, tolerance=1e-2)
    assert (made.profile() <= budgets).all()
    assert made.profile()[0, :7].max() <= 0.25
    budgets[0, 2] = 0.0
    with pytest.raises(fp.BudgetError, match=r"place='s0c0t2' must be between .*, not 0, because"):
        design_tree(workload, cell_budgets=budgets)


def test_queries_are_free_within_what_a_plan_leaves(tmp_path):
    """The first counts the young by place, more exactly in some; the second counts the old."""
    domain = people_by_place(ages=True).domain
    targets = np.full((17, 1), 6.0)
    targets[7:] = 24.0
    young = {"place": "tract", "age": fp.ranges([(0, 1)])}
    old = {"place": "tract", "age": fp.ranges([(2, 2)])}
    asked = fp.Workload(domain, [fp.queries(young, variance=targets, name="young")])
    first = design_tree(asked, tolerance=1e-2)
    assert first.profile().shape == (1, 17, 3)
    assert first.unused_budget()[0, 7, 0] > 0.1 * first.privacy_cost**2

    ledger = fp.Ledger(tmp_path / "budget.db", rho=10.0)
    fp.release(first, count(first), ledger=ledger, what="first", key="first")
    spent, slack = ledger.spent, ledger.unused_budget("first", domain)
    assert slack.shape == (1, 17, 3)
    late = [fp.queries(old, variance=1.0, name="old")]
    second = design_tree(fp.Workload(domain, late), cell_budgets=slack, tolerance=1e-2)
    assert CellCosts.from_plan(second).names == ("place", "age")
    fp.release(second, count(second), ledger=ledger, covered_by="first", what="second", key="b")
    assert ledger.spent == spent
    with pytest.raises(fp.OverBudget):
        fp.release(first, count(first), ledger=ledger, covered_by="first", what="again", key="c")
