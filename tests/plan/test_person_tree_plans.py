"""Plans of large hierarchies for persons with at most one record in each period."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fitplug as fp
from fitplug.domain import get_shape
from fitplug.errors import BudgetError, PlanError, WorkloadError
from fitplug.families import PersonTreeStructure, build_dense_strategy
from fitplug.plan import price_groups
from tests.helpers.person_trees import build_months, design_person_tree, list_costs
from tests.helpers.plans import replace_duals

CASES = {
    "sums of months": (build_months(year=4.0), 3, 1.01),
    "all months": (build_months(year=4.0), 4, 1.02),
    "years as precise as months": (build_months(), 4, 1.01),
    "very precise years": (build_months(year=0.25), 2, 1.01),
    "by sex": (build_months((5, 2, 3), months=3, sex=True, year=2.0), 3, 1.01),
    "by age": (build_months((5, 3, 1), months=3, age="prefix", year=2.0), 2, 1.1),
}


def months(records):
    return fp.AddRemove(records=records, once_per="month")


@pytest.mark.parametrize(
    "case",
    [pytest.param(name, marks=pytest.mark.long if "precise" in name else ()) for name in CASES],
)
@pytest.mark.slow
def test_plans_are_near_the_optimum_over_all_covariances(case, tmp_path):
    workload, records, most = CASES[case]
    plan = design_person_tree(workload, months(records))
    optimum = fp.design(workload, unit=months(records), max_iterations=150)
    once = fp.design(workload)
    # Both bounds are below both costs, as no mechanism costs less.
    assert plan.lower_bound <= optimum.privacy_cost
    assert optimum.lower_bound <= plan.privacy_cost
    assert plan.privacy_cost <= optimum.privacy_cost * most
    assert plan.rho < records**2 * once.rho * 0.97
    assert plan.gap < 0.3
    assert 0 <= plan.overstatement <= plan.gap + 1e-9
    worst = list_costs(plan.strategy) / plan.noise_std**2
    assert worst <= plan.privacy_cost**2 <= worst * (1 + plan.overstatement) ** 2 * (1 + 1e-9)
    for name in workload.names:
        assert (plan.variances[name] <= plan.targets[name]).all()
    assert plan.profile().max() == pytest.approx(plan.privacy_cost**2, rel=1e-7)
    plan.verify()
    plan.save(tmp_path / "plan.npz")
    again = fp.Plan.load(tmp_path / "plan.npz")
    again.verify()
    assert (again.unit, again.digest, again.rho_exact) == (
        plan.unit,
        plan.digest,
        plan.rho_exact,
    )
    assert str(plan.unit) in plan.summary()
    assert "at most" in str(plan.unit)
    assert plan.tiers[0].lower_bound == pytest.approx(plan.lower_bound**2)


@pytest.mark.parametrize("asked", [{"targets": [1.0, 2.0, 3.0]}, {"cumulative": True}], ids=list)
@pytest.mark.slow
def test_months_that_queries_tell_apart(asked, tmp_path):
    """Months are dense cells, and persons with named records prove the bound."""
    workload = build_months((4, 2, 3), months=3, year=4.0, **asked)
    plan = design_person_tree(workload, months(2))
    assert plan.strategy.structure.period_index is None
    assert len(plan.strategy.structure.sets) > plan.strategy.structure.cells
    optimum = fp.design(workload, unit=months(2), max_iterations=100)
    assert plan.lower_bound <= optimum.privacy_cost
    assert optimum.lower_bound <= plan.privacy_cost
    assert plan.privacy_cost <= optimum.privacy_cost * 1.04
    assert plan.gap < 0.12
    assert 0 <= plan.overstatement < 0.02
    worst = list_costs(plan.strategy) / plan.noise_std**2
    assert worst <= plan.privacy_cost**2
    plan.verify()
    plan.save(tmp_path / "plan.npz")
    again = fp.Plan.load(tmp_path / "plan.npz")
    again.verify()
    assert again.digest == plan.digest
    assert sum(price_groups(plan).values()) == pytest.approx(1)


@pytest.mark.slow
def test_a_person_may_have_more_records_than_there_are_places():
    """Leaves are drawn independently, so three labels of leaves are no error if there are two."""
    workload = build_months((1, 1), months=3, cumulative=True)
    plan = design_person_tree(workload, months(3))
    assert plan.strategy.structure.sets.labels[..., -1].max() == 2
    optimum = fp.design(workload, unit=months(3), max_iterations=100)
    assert plan.lower_bound <= optimum.privacy_cost
    assert list_costs(plan.strategy) / plan.noise_std**2 <= plan.privacy_cost**2
    plan.verify()


@pytest.mark.slow
def test_months_that_no_query_adds_up_cost_no_more_than_the_costliest_months_do():
    workload = build_months(year=None)
    once = fp.design(workload)
    plan = design_person_tree(workload, months(3))
    # Less is possible: months may be anticorrelated where all records of a person are together.
    assert plan.rho <= 3 * once.rho * (1 + 1e-3)
    assert plan.gap < 0.2


@pytest.mark.slow
def test_more_records_than_months_are_as_many_as_months():
    plans = [design_person_tree(CASES["all months"][0], months(k)) for k in (4, 9)]
    assert plans[0].rho_exact == plans[1].rho_exact


def test_a_budget_is_that_of_a_person():
    plan = design_person_tree(CASES["sums of months"][0], months(3), rho=0.5)
    assert 0.5 * (1 - 1e-12) < plan.rho <= 0.5
    plan.verify()


@pytest.fixture(scope="module")
def large():
    """A plan of a workload that is too large for the optimum over all pairs of records."""
    workload = build_months([9] * 20 + [4] * 50, months=12, year=4.0)
    return design_person_tree(workload, months(6), tolerance=1e-2)


def test_large_hierarchies_are_trees(large):
    assert isinstance(large.strategy.structure, PersonTreeStructure)
    assert large.gap < 0.04
    large.verify()


def test_a_release_costs_what_the_plan_says_for_one_person(large):
    rng = np.random.default_rng(0)
    domain = large.workload.domain
    counts = {names: rng.integers(0, 50, get_shape(domain, names)) for names in large.tables}
    released = fp.release(large, fp.Tables(domain, counts))
    assert large.rho <= released.rho <= large.rho * (1 + 1e-12)
    (table,) = counts.values()
    by_month = released.estimates["tract by month"]
    exact = table if by_month.shape == table.shape else table.T
    std = large.variances["tract by month"] ** 0.5
    assert np.abs((by_month - exact) / std).max() < 6


def test_forged_plans_are_found_out():
    plan = design_person_tree(*[CASES["years as precise as months"][0], months(4)])
    strategy = plan.strategy
    for cost in (strategy.sensitivity_squared // 2, int(strategy.sensitivity_squared * 1.0001)):
        with pytest.raises(PlanError, match="privacy cost"):
            replace(plan, strategy=replace(strategy, sensitivity_squared=cost)).verify()
    low = replace(strategy, column_squares=strategy.column_squares * 0.999)
    with pytest.raises(PlanError, match="cost of some cell"):
        replace(plan, strategy=low).verify()
    with pytest.raises(PlanError):
        replace(plan, lower_bound=plan.lower_bound * 1.001).verify()
    with pytest.raises(PlanError):
        replace_duals(plan, p=plan.proof.duals.p[:-1]).verify()
    A = build_dense_strategy(strategy)
    assert A.shape[0] == strategy.size


def test_what_is_not_designed_for_is_refused_in_one_sentence():
    workload = build_months([50] * 60, months=12)
    with pytest.raises(WorkloadError, match="too large for the setting 'distinct'"):
        fp.design(workload, unit=fp.AddRemove(records=3, distinct=True))
    with pytest.raises(WorkloadError, match="Remove the setting 'once_per'"):
        fp.design(workload, unit=fp.AddRemove(records=3, once_per="place"))
    with pytest.raises(WorkloadError, match="remove periods"):
        fp.design(workload, unit=months(3), periods="month")
    for argument in ({"total_error_weight": 1.0}, {"solver": "sm2"}, {"cell_budgets": 1.0}):
        with pytest.raises(BudgetError, match="cannot be combined with the unit"):
            fp.design(workload, unit=months(3), **argument)
