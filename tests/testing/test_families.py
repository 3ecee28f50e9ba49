"""The checks of families, units and plans find what is wrong in each of them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import fitplug as fp
from fitplug.testing import check_family, check_plan, check_unit, list_neighbours
from fitplug.testing.families import UNITS
from fitplug.testing.plans import Difference, check_bound, check_plan_file
from tests.helpers.unit_plans import plan_for

NUMBERS = ("numbers", "one row")


@pytest.mark.parametrize("unit", UNITS)
def test_each_unit_conforms(unit: str) -> None:
    check_unit(UNITS[unit], design=functools.partial(fp.design, tolerance=0.02))


class Household(fp.AddRemove):
    """A unit of a third party, whose neighbours have up to two rows more, in different cells."""

    def __init__(self) -> None:
        super().__init__(records=2, distinct=True)


def list_households(workload: fp.Workload, unit: Any) -> Iterator[Difference]:
    cells = list(itertools.product(*map(range, workload.shape)))
    for number in (1, 2):
        yield from ([(c, 1) for c in two] for two in itertools.combinations(cells, number))


def test_a_unit_of_a_third_party_conforms() -> None:
    check_unit(fp.AddRemove(records=2, distinct=True), list_households)


def test_a_unit_that_knows_half_its_differences_is_found() -> None:
    with pytest.raises(AssertionError, match="differ by more than the plan states"):
        check_unit(fp.AddRemove(), list_households)
    with pytest.raises(AssertionError, match="different public totals"):
        check_unit(fp.ReplaceOne(within=("M",)), lambda w, u: list_neighbours(w, fp.ReplaceOne()))


def test_a_unit_that_claims_too_many_differences_is_found() -> None:
    with pytest.raises(AssertionError, match="overstated"):
        check_unit(fp.AddRemove(records=2), lambda w, u: list_neighbours(w, fp.AddRemove()))


def test_a_unit_that_is_read_as_another_is_found() -> None:
    with pytest.raises(AssertionError, match="the unit changes when it is written"):
        check_unit(Household(), list_households)


def test_a_comparison_of_units_that_covers_too_little_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def claim_one(self: Any, other: Any) -> int:
        return 1

    monkeypatch.setattr("fitplug.workload.units.BoundUnit.count_changes", claim_one)
    with pytest.raises(AssertionError, match="covers less of one person's rows"):
        check_unit(fp.AddRemove())


def test_a_family_that_states_too_small_a_cost_is_found() -> None:
    def design(workload: fp.Workload, /, *, unit: Any) -> fp.Plan:
        plan = fp.design(workload, unit=unit)
        square = plan.strategy.sensitivity_squared * 99 // 100
        strategy = dataclasses.replace(plan.strategy, sensitivity_squared=square)
        return dataclasses.replace(plan, strategy=strategy)

    with pytest.raises((AssertionError, fp.PlanError)):
        check_family(design, NUMBERS)


def test_a_family_that_is_never_there_is_found() -> None:
    def refuse(workload: fp.Workload, /, *, unit: Any) -> fp.Plan:
        raise fp.WorkloadError("the family is for other workloads")

    check_family(refuse, NUMBERS)
    with pytest.raises(AssertionError, match="refuses every case"):
        check_family(refuse)


def test_a_refusal_without_a_message_is_found() -> None:
    def refuse(workload: fp.Workload, /, *, unit: Any) -> fp.Plan:
        raise fp.WorkloadError

    with pytest.raises(AssertionError, match="numbers, one row: the refusal has no message"):
        check_family(refuse, NUMBERS)


FAULTS: dict[str, tuple[Any, str]] = {
    "cost": (
        lambda s: {"sensitivity_squared": s.sensitivity_squared * 99 // 100},
        "differ by more",
    ),
    "more cost": (lambda s: {"sensitivity_squared": s.sensitivity_squared + 1}, "overstated"),
    "profile": (lambda s: {"column_squares": s.column_squares * 0.99}, "profile is below"),
    "variances": (lambda s: {"unit_variances": s.unit_variances * 0.99}, "larger variance"),
    "room": (lambda s: {"max_records": s.max_records * 2**8}, "rows in the cell"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_false_claims_of_a_plan_are_found(fault: str) -> None:
    change, says = FAULTS[fault]
    plan = plan_for(fp.AddRemove())
    check_plan(plan)
    forged = dataclasses.replace(plan.strategy, **change(plan.strategy))
    with pytest.raises(AssertionError, match=says):
        check_plan(dataclasses.replace(plan, strategy=forged))


def test_a_bound_or_a_cost_beyond_the_optimum_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_for(fp.AddRemove())
    check_bound(plan)
    cost, bound = plan.privacy_cost, plan.lower_bound
    with pytest.raises(AssertionError, match="less than the plan's lower bound"):
        check_bound(dataclasses.replace(plan, lower_bound=cost * 1.001))
    monkeypatch.setattr(fp.Plan, "privacy_cost", bound * 0.999)
    with pytest.raises(AssertionError, match="less than any mechanism"):
        check_bound(dataclasses.replace(plan))


def test_a_plan_that_its_file_changes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, other = plan_for(fp.AddRemove()), plan_for(fp.AddRemove(records=2))
    check_plan_file(plan)
    monkeypatch.setattr(fp.Plan, "load", classmethod(lambda cls, path: other))
    with pytest.raises(AssertionError, match="another digest"):
        check_plan_file(plan)
