"""Plans for persons with at most one record in each period, or in each cell."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import fitplug as fp
from fitplug.domain import get_shape
from fitplug.errors import BudgetError, PlanError, TablesError, WorkloadError
from fitplug.families import build_dense_strategy
from fitplug.families.blocks.shape.matrices import find_person_records
from fitplug.neighbours import RecordSets, upper_largest_cost
from tests.helpers.persons import list_persons, monthly, small_person_problems

PROBLEMS = small_person_problems()
CASES = {"argvalues": [p[1:] for p in PROBLEMS], "ids": [p[0] for p in PROBLEMS]}
MONTHLY, MONTHLY_UNIT = PROBLEMS[3][1:]


@pytest.mark.parametrize(("workload", "unit"), **CASES)
def test_a_plan_is_for_the_costliest_person(workload, unit, tmp_path):
    plan = fp.design(workload, unit=unit)
    assert plan.unit == unit
    assert plan.gap <= 2e-4
    assert plan.overstatement == 0
    A = build_dense_strategy(plan.strategy)
    persons = list_persons(workload.domain, unit)
    worst = ((A @ persons.T) ** 2).sum(axis=0).max() / plan.noise_std**2
    assert plan.privacy_cost**2 == pytest.approx(worst, rel=1e-9)
    assert plan.profile().max() == pytest.approx(plan.privacy_cost**2, rel=1e-9)
    for name in workload.names:
        assert (plan.variances[name] <= plan.targets[name]).all()
    plan.verify()
    plan.save(tmp_path / "plan.npz")
    again = fp.Plan.load(tmp_path / "plan.npz")
    again.verify()
    assert (again.unit, again.digest) == (plan.unit, plan.digest)
    assert str(unit) in plan.summary()
    assert [tier.lower_bound for tier in plan.tiers] == pytest.approx([plan.lower_bound**2])


def test_a_year_costs_twelve_times_less_than_twelve_records():
    domain = fp.Domain({"month": fp.Integers(1, 12), "region": fp.Integers(1, 100)})
    workload = monthly(domain, sum_variance=12.0)
    one = fp.design(workload)
    plan = fp.design(workload, unit=fp.AddRemove(records=12, once_per="month"))
    assert plan.gap <= 2e-4
    assert plan.rho == pytest.approx(6, rel=3e-4)
    assert 144 * one.rho / plan.rho > 11


def test_a_budget_is_that_of_a_person():
    plan = fp.design(MONTHLY, unit=MONTHLY_UNIT, rho=0.5)
    assert 0.5 * (1 - 1e-12) < plan.rho <= 0.5
    plan.verify()


def test_more_records_than_periods_are_as_many_as_periods():
    plans = [fp.design(MONTHLY, unit=fp.AddRemove(records=k, once_per="month")) for k in (3, 30)]
    assert plans[0].rho_exact == plans[1].rho_exact


def test_bounds_that_may_be_above_the_truth_say_so(monkeypatch):
    bounds = "fitplug.families.blocks.strategy.differences.upper_largest_cost"
    monkeypatch.setattr(bounds, partial(upper_largest_cost, most_work=1))
    domain = fp.Domain({"month": fp.Integers(1, 7), "age": fp.Integers(0, 6)})
    groups = [
        fp.queries({"month": "identity", "age": "prefix"}, variance=1.0),
        fp.queries({"month": "prefix", "age": "identity"}, variance=5.0),
    ]
    unit = fp.AddRemove(records=7, once_per="month")
    plan = fp.design(fp.Workload(domain, groups), unit=unit, max_iterations=100)
    assert plan.overstatement > 0
    assert plan.gap > plan.tolerance
    said = re.search(
        r"rho is an upper bound, at most (\S+)% above the exact cost\.", plan.summary()
    )
    assert said is not None
    # What is stated of Delta, for its square.
    above = 100 * ((1 + plan.overstatement) ** 2 - 1)
    assert above <= float(said[1]) <= 1.1 * above
    assert said[0] in plan._repr_html_()
    tables = fp.Tables(domain, {domain.names: np.ones(domain.shape, int)})
    loss = fp.review(fp.release(plan, tables))["deployment"]["privacy_loss"]
    assert f"R{said[0][1:]}" in loss["privacy_parameters_details"]
    monkeypatch.undo()
    plan.verify()


def test_of_many_optima_one_is_taken_whose_cost_is_proven(monkeypatch):
    """Hardly a search: only bounds that are tight by themselves prove anything."""
    hurried = partial(upper_largest_cost, most_work=1)
    for module in ("design.persons", "strategy.differences"):
        monkeypatch.setattr(f"fitplug.families.blocks.{module}.upper_largest_cost", hurried)
    domain = fp.Domain({"day": fp.Integers(1, 12), "zone": ["a", "b", "c"]})
    groups = [
        fp.queries({"day": "prefix", "zone": "identity"}, std=5.0),
        fp.queries({"day": "identity"}, std=2.0),
    ]
    unit = fp.AddRemove(records=12, once_per="day")
    plan = fp.design(fp.Workload(domain, groups), unit=unit)
    assert plan.gap <= plan.tolerance
    # A person with a row in one zone on each day has a count of 12 days, each with variance 25.
    assert plan.rho == pytest.approx(12**2 / (2 * 25), rel=2e-4)
    monkeypatch.undo()
    plan.verify()


def test_a_cost_that_is_exact_is_not_called_a_bound():
    assert "upper bound" not in fp.design(MONTHLY, unit=MONTHLY_UNIT).summary()


def test_a_release_costs_what_the_plan_says_for_one_person():
    plan = fp.design(MONTHLY, unit=MONTHLY_UNIT)
    names = MONTHLY.attributes
    cells = {names: np.ones(get_shape(MONTHLY.domain, names), np.int64)}
    released = fp.release(plan, fp.Tables(MONTHLY.domain, cells))
    assert plan.rho <= released.rho <= plan.rho * (1 + 1e-12)
    assert released.privacy_cost == plan.privacy_cost
    said = released.to_arrow(MONTHLY.names[0]).schema.metadata[b"fitplug.unit"]
    assert json.loads(said) == MONTHLY_UNIT.to_spec()
    anywhere = fp.Tables(MONTHLY.domain, cells, unit=fp.AddRemove(3), person="id")
    with pytest.raises(TablesError, match="were counted for the unit of privacy"):
        fp.release(plan, anywhere)


@pytest.mark.parametrize(
    "argument",
    [{"cell_budgets": np.ones((3, 3))}, {"total_error_weight": 1.0}, {"solver": "sm2"}],
    ids=["cell budgets", "weight", "solver"],
)
def test_arguments_that_do_not_go_with_the_unit_are_refused(argument):
    with pytest.raises(BudgetError, match="cannot be combined with the unit"):
        fp.design(MONTHLY, unit=MONTHLY_UNIT, **argument)


class TestForgedPlans:
    plan = fp.design(MONTHLY, unit=MONTHLY_UNIT)

    def name_differences(self, cells, labels):
        structure = replace(self.plan.strategy.structure, named=RecordSets(cells, labels))
        return replace(self.plan, strategy=replace(self.plan.strategy, structure=structure))

    def test_the_cost_of_one_record_is_not_that_of_a_person(self):
        strategy = replace(
            self.plan.strategy, sensitivity_squared=self.plan.strategy.sensitivity_squared // 2
        )
        with pytest.raises(PlanError, match="privacy cost"):
            replace(self.plan, strategy=strategy).verify()

    def test_two_records_in_one_month_prove_nothing(self):
        sets = self.plan.strategy.structure.sets
        cells = sets.cells.copy()
        cells[-1] = [1, 1, -1]
        with pytest.raises(PlanError, match="prove the plan's lower bound do not fit"):
            self.name_differences(cells, sets.labels).verify()

    def test_two_records_in_one_symmetric_month_prove_nothing(self):
        plan = fp.design(monthly(), unit=fp.AddRemove(3, once_per="month"))
        assert plan.strategy.structure.dense == ()
        sets, month = plan.strategy.structure.sets, plan.strategy.structure.symmetric.index("month")
        several = np.flatnonzero(sets.cells[:, 1] >= 0)
        labels = sets.labels.copy()
        labels[several[0], :, month] = 0
        structure = replace(plan.strategy.structure, named=RecordSets(sets.cells, labels))
        with pytest.raises(PlanError, match="prove the plan's lower bound do not fit"):
            replace(plan, strategy=replace(plan.strategy, structure=structure)).verify()

    def test_regions_that_are_none_prove_nothing(self):
        sets = self.plan.strategy.structure.sets
        for wrong in (-1, 3):
            labels = sets.labels.copy()
            labels[-1, 0] = wrong
            with pytest.raises(PlanError, match="prove the plan's lower bound do not fit"):
                self.name_differences(sets.cells, labels).verify()

    def test_a_bound_needs_the_differences_that_prove_it(self):
        sets = self.plan.strategy.structure.sets
        for cells in (np.flip(sets.cells, axis=0), sets.cells[:-1]):
            labels = sets.labels[: len(cells)]
            with pytest.raises(PlanError):
                self.name_differences(np.ascontiguousarray(cells), labels).verify()


@pytest.mark.parametrize("unit", [fp.ReplaceOne(), fp.AddRemove(3)], ids=str)
def test_a_unit_without_periods_is_refused(unit):
    """By an error that python -O does not remove."""
    structure = fp.design(monthly(), unit=fp.AddRemove(3, once_per="month")).strategy.structure
    with pytest.raises(WorkloadError, match="must have the setting 'once_per' or 'distinct'"):
        find_person_records(structure, unit)
