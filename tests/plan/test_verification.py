"""Verification believes no certificate that says more than can be true, for any structure."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import fitplug as fp
from fitplug.families import Objective, certify_bound
from fitplug.files import write_with_digest
from fitplug.plan import verification
from fitplug.plan.plan_file import describe_plan
from fitplug.plan.plan_record import evaluate_objective
from tests.helpers.unit_plans import CASES, UNITS, make_small_plan, plan_for


@pytest.fixture(scope="module", params=list(CASES))
def plan(request):
    with make_small_plan(request.param) as found:
        yield found


def save_edited(plan, path, **arrays):
    """Write the file of a plan with other arrays, and the digest that fits them."""
    header, before = describe_plan(plan)
    write_with_digest(path, header, before | arrays)


def test_a_bound_above_the_cost_is_refused(plan, monkeypatch):
    """Whatever certified it: the plan itself costs less."""
    plan.verify()
    high = evaluate_objective(plan) * (1 + 1e-9)
    monkeypatch.setattr(verification, "certify_bound", lambda *_: high)
    with pytest.raises(fp.PlanError, match="is higher than its own cost"):
        dataclasses.replace(plan, lower_bound=high).verify()
    with pytest.raises(fp.PlanError, match="is higher than its own cost"):
        plan.verify()


def exchange_two(values):
    """Exchange the first value with the last that differs; a value that is alone doubles."""
    exchanged = values.ravel().copy()
    at = np.flatnonzero(np.abs(exchanged - exchanged[0]) > 1e-3)
    exchanged[[0, *at[-1:]]] = exchanged[[*at[-1:], 0]] if at.size else 2 * exchanged[0]
    return exchanged.reshape(values.shape)


FAULTS = {
    "of two answers exchanged": lambda make, answers: make(exchange_two(answers)),
    "with two exchanged": lambda make, answers: {
        name: exchange_two(estimates) for name, estimates in make(answers).items()
    },
    "of too few rows": lambda make, answers: {
        name: estimates * (1 - 1e-4) for name, estimates in make(answers).items()
    },
}


@pytest.mark.parametrize("fault", FAULTS)
def test_biased_estimates_are_refused(plan, fault, monkeypatch):
    kind = type(plan.strategy)
    make = kind.make_estimates
    monkeypatch.setattr(
        kind,
        "make_estimates",
        lambda strategy, answers: FAULTS[fault](lambda a: make(strategy, a), answers),
    )
    with pytest.raises(fp.PlanError, match=r"the estimates of .* are biased"):
        plan.verify()


def test_attributes_may_be_summed_by_name():
    domain = fp.Domain({"M": fp.Integers(1, 3), "R": fp.Integers(0, 10**15)})
    asked = [fp.queries({"M": "prefix", "R": "total"}, std=2.0)]
    fp.design(fp.Workload(domain, asked)).verify()


def test_cell_budgets_are_no_part_of_a_certificate_that_does_not_know_them(plan, tmp_path):
    budgets = np.maximum(plan.strategy.upper_profile(plan.noise_std), 1e-9)
    budgets[::2] *= 1000.0
    edited = dataclasses.replace(plan, objective=Objective(budgets))
    save_edited(plan, tmp_path / "plan.npz", budgets=budgets)
    for attempt in (edited.verify, lambda: fp.Plan.load(tmp_path / "plan.npz")):
        with pytest.raises(
            fp.PlanError, match=r"cannot have cell_budgets|lower bound|costs per cell"
        ):
            attempt()


def test_pairs_weighted_by_budgets_do_not_double_a_bound():
    """One query, [0, 1, 2], of three cells: the bound would be twice the cost."""
    workload = fp.Workload.from_matrix(np.array([[0.0, 1.0, 2.0]]), variance=1.0)
    plan = fp.design(workload, unit=fp.ReplaceOne())
    budgets = plan.profile().ravel() * np.array([1000.0, 1.0, 1000.0])
    edited = dataclasses.replace(plan, objective=Objective(budgets))
    bound = certify_bound(plan.strategy.structure, edited.objective, edited.scale, plan.proof.duals)
    assert evaluate_objective(edited) < 0.75 * bound
    with pytest.raises(fp.PlanError, match="cannot have cell_budgets"):
        dataclasses.replace(edited, lower_bound=bound).verify()


EDITS = {
    "variances": ("unit_variances", 0.01, "variances"),
    "dual weights": ("p", 0.0, "lower bound"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_claim_is_noticed_on_reading(edit, plan, tmp_path):
    name, factor, says = EDITS[edit]
    array = {"p": plan.proof.duals.p, "unit_variances": plan.strategy.unit_variances}[name]
    save_edited(plan, tmp_path / "plan.npz", **{name: array * factor})
    with pytest.raises(fp.PlanError, match=says):
        fp.Plan.load(tmp_path / "plan.npz")


def test_of_a_large_plan_the_release_verifies_what_reading_does_not(tmp_path, monkeypatch):

    plan = plan_for(UNITS["one record"])
    save_edited(plan, tmp_path / "plan.npz", unit_variances=plan.strategy.unit_variances / 100)
    monkeypatch.setattr(verification, "QUICK_WORK", 0)
    edited = fp.Plan.load(tmp_path / "plan.npz")
    ledger = fp.Ledger(tmp_path / "budget.db", rho=1e6)
    tables = fp.Tables(plan.domain, {("M", "R"): np.ones((3, 4), dtype=np.int64)})
    with pytest.raises(fp.PlanError, match="variances differ from"):
        fp.release(edited, tables, ledger=ledger)
    assert ledger.entries() == ()
