"""The check before the charge, against brute force over neighbours, and with faults put in."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np
import pytest

import fitplug as fp
from fitplug.errors import PlanError
from fitplug.sensitivity import AnswerPath, check_sensitivity, columns
from fitplug.sensitivity.differences import sum_squares
from fitplug.testing.plans import check_plan, measure_cost
from fitplug_dask.releases import release_source
from fitplug_dask.releases.executor import answer_in_parts
from fitplug_dask.series.counts import answer_by_period
from tests.helpers.unit_plans import CASES, DOMAIN, TABLES, UNITS, make_small_plan, plan_for


@pytest.fixture(scope="module", params=list(CASES))
def plan(request):
    with make_small_plan(request.param) as found:
        yield found


def test_all_neighbours_are_compared(plan):
    check_plan(plan)


def test_a_search_and_a_sample_find_no_more_and_hardly_less(plan, monkeypatch):
    most = measure_cost(plan)
    monkeypatch.setattr("fitplug.sensitivity.differences._MOST_LISTED", 0)
    assert check_sensitivity(AnswerPath.in_memory(plan)).largest_squared == most
    monkeypatch.setattr(columns, "_MOST_ENTRIES", 0)
    monkeypatch.setattr(columns, "_FEWEST_CELLS", 40)
    found = check_sensitivity(AnswerPath.in_memory(plan))
    assert not found.is_complete
    assert 0.5 * most <= found.largest_squared <= most


@pytest.mark.parametrize("is_sampled", [False, True])
def test_a_cost_that_is_stated_too_small_is_noticed(plan, monkeypatch, is_sampled):
    """The check trusts no claim: nine tenths of the cost are refused, for each unit."""
    if is_sampled:
        monkeypatch.setattr(columns, "_MOST_ENTRIES", 0)
        monkeypatch.setattr(columns, "_FEWEST_CELLS", 40)
    true = check_sensitivity(AnswerPath.in_memory(plan)).largest_squared
    low = dataclasses.replace(plan.strategy, sensitivity_squared=true * 9 // 10)
    forged = dataclasses.replace(plan, strategy=low)
    with pytest.raises(PlanError, match=r"cost 1\.1\d* times the stated rho.*nothing was charged"):
        check_sensitivity(AnswerPath.in_memory(forged))


def make_faulty_path(plan, spoil):
    """A path that answers as the plan does, and then something is done to the answers."""

    def answer(tables):
        true = plan.strategy.answer_exactly(tables.marginal)
        return [(slice(None), spoil(true, int(tables.marginal(()).sum())))]

    return AnswerPath(plan, plan.tables, answer)


FAULTS = {
    "twice as large": lambda answers, records: 2 * answers,
    "one answer added to another": lambda answers, records: answers + np.roll(answers, 1),
    "with the number of records": lambda answers, records: answers + 1000 * records,
    "not linear": lambda answers, records: answers * (1 + records // 101),
}


@pytest.mark.parametrize("is_sampled", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_path_that_answers_something_else_is_noticed(monkeypatch, fault, is_sampled):
    if is_sampled:
        monkeypatch.setattr(columns, "_MOST_ENTRIES", 0)
        monkeypatch.setattr(columns, "_FEWEST_CELLS", 40)
    plan = plan_for(fp.AddRemove())
    with pytest.raises(PlanError, match="nothing was charged"):
        check_sensitivity(make_faulty_path(plan, FAULTS[fault]))


@pytest.mark.parametrize("way", ["written out", "sampled", "two records"])
@pytest.mark.parametrize("is_in_parts", [False, True])
def test_totals_that_neighbours_do_not_share_are_noticed(monkeypatch, way, is_in_parts):
    """Public totals over more than the unit keeps tell where a record is."""
    if way == "sampled":
        monkeypatch.setattr(columns, "_MOST_ENTRIES", 0)
        monkeypatch.setattr(columns, "_FEWEST_CELLS", 40)
    if way == "two records":
        monkeypatch.setattr("fitplug.sensitivity.check._LARGE_WORK", 0)
    plan = plan_for(fp.ReplaceOne(within=("R",)))
    size = plan.strategy.size

    def answer(tables):
        noisy = plan.strategy.answer_exactly(tables.marginal)[:size]
        totals = tables.marginal(("M", "R"))[0]
        if is_in_parts:
            return [(slice(0, size), noisy), (slice(size, size + len(totals)), totals)]
        return [(slice(None), np.concatenate([noisy, totals]))]

    with pytest.raises(PlanError, match=r"different public totals|gives other answers than"):
        check_sensitivity(AnswerPath(plan, plan.tables, answer))


def test_releases_in_parts_are_compared_by_their_own_path(plan):
    for most in (1, 5, 10**6):
        path = answer_in_parts(plan, plan.strategy.cut(most))
        assert check_sensitivity(path) == check_sensitivity(AnswerPath.in_memory(plan))


@pytest.mark.parametrize("unit", [fp.AddRemove(), UNITS["once per M"]], ids=str)
def test_series_are_compared_by_their_own_path(unit):
    plan = plan_for(unit, TABLES, periods="M")
    path = answer_by_period(plan, "M")
    assert check_sensitivity(path) == check_sensitivity(AnswerPath.in_memory(plan))


@pytest.mark.parametrize("release", [answer_in_parts, None], ids=["in parts", "in memory"])
def test_of_large_plans_two_records_are_measured(plan, release, monkeypatch):
    monkeypatch.setattr("fitplug.sensitivity.check._LARGE_WORK", 0)
    most = measure_cost(plan)
    path = AnswerPath.in_memory(plan)
    if release is not None:
        path = release(plan, plan.strategy.cut(3))
    found = check_sensitivity(path)
    assert 0 < found.largest_squared <= most
    assert (found.cells, found.is_complete) == (2 if plan.workload.cell_count > 1 else 1, False)
    low = dataclasses.replace(plan.strategy, sensitivity_squared=found.largest_squared // 10)
    forged = dataclasses.replace(plan, strategy=low)
    with pytest.raises(PlanError, match="times the stated rho"):
        check_sensitivity(dataclasses.replace(path, plan=forged))


def test_squares_are_exact():
    generator = np.random.default_rng(5)
    for bits in (3, 20, 21, 22, 42, 43, 62):
        matrix = generator.integers(-(2**bits), 2**bits, (50, 7))
        expected = [sum(int(a) ** 2 for a in column) for column in matrix.T]
        assert sum_squares(matrix) == expected
    assert sum_squares(np.zeros((0, 3), dtype=np.int64)) == [0, 0, 0]


def release_in_memory(plan, tables, folder, ledger):
    fp.release(plan, tables, ledger=ledger)


def publish(plan, tables, folder, ledger):
    fp.release(plan, tables, folder, ledger=ledger)


def release_in_parts(plan, tables, folder, ledger):
    release_source(plan, tables, folder, ledger=ledger)


def begin_series(plan, tables, folder, ledger):
    fp.begin_series(plan, folder, ledger=ledger, key="a series", periods="M")


WAYS = [release_in_memory, publish, release_in_parts, begin_series]


@pytest.fixture
def causal_plan():
    return plan_for(fp.AddRemove(), TABLES, periods="M")


@pytest.fixture
def tables():
    return fp.Tables(DOMAIN, {("M", "R"): np.arange(12).reshape(3, 4)})


def forge_sensitivity(plan):
    low = dataclasses.replace(
        plan.strategy, sensitivity_squared=plan.strategy.sensitivity_squared // 4
    )
    return dataclasses.replace(plan, strategy=low)


def forge_variances(plan):
    low = dataclasses.replace(plan.strategy, unit_variances=plan.strategy.unit_variances / 100)
    return dataclasses.replace(plan, strategy=low)


def forge_bound(plan):
    return dataclasses.replace(plan, lower_bound=plan.lower_bound * 1.5)


@pytest.mark.parametrize("release", WAYS)
@pytest.mark.parametrize("forge", [forge_sensitivity, forge_variances, forge_bound])
def test_no_release_is_charged_that_rests_on_a_false_claim(
    release, forge, causal_plan, tables, tmp_path
):
    ledger = fp.Ledger(tmp_path / "budget.db", rho=10.0)
    with pytest.raises(PlanError):
        release(forge(causal_plan), tables, tmp_path / "release", ledger)
    assert ledger.entries() == ()
    assert not (tmp_path / "release").exists()


@pytest.mark.parametrize("release", WAYS)
def test_a_fault_in_the_code_of_costs_is_noticed_before_the_charge(
    release, causal_plan, tables, tmp_path, monkeypatch
):
    """Even if all proofs of the plan had the same fault."""
    monkeypatch.setattr(fp.Plan, "verify", lambda plan: None)
    ledger = fp.Ledger(tmp_path / "budget.db", rho=10.0)
    with pytest.raises(PlanError, match="cost 4 times the stated rho"):
        release(forge_sensitivity(causal_plan), tables, tmp_path / "release", ledger)
    assert ledger.entries() == ()
    release(causal_plan, tables, tmp_path / "release", ledger)
    assert ledger.spent >= Fraction(causal_plan.rho_exact)
