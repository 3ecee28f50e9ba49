"""One ledger and several releases: no person of its unit costs more than is spent, by brute force.

The true cost of a person is that of the integer strategies that run, added up over all releases.
"""

from __future__ import annotations

import functools
import itertools
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import fitplug as fp
from fitplug.domain import get_shape
from fitplug.errors import LedgerError, OverBudget, TablesError
from fitplug.families import build_dense_strategy
from fitplug.ledger import read_statement
from fitplug_dask.releases import release_source
from tests.helpers.unit_persons import Release, list_persons

BOTH = (("month", "fine"), ("region", "region"))
MONTH, REGION = BOTH[:1], BOTH[1:]
COARSE = (("month", "coarse"), ("region", "region"))
FEWER = (("month", "fewer"), ("region", "region"))
RELEASES = [
    Release(fp.AddRemove(), BOTH),
    Release(fp.AddRemove(3), BOTH),
    Release(fp.AddRemove(3, distinct=True), BOTH),
    Release(fp.AddRemove(2, distinct=True), REGION),
    Release(fp.AddRemove(3, distinct=True), COARSE),
    Release(fp.AddRemove(3, once_per="month"), BOTH),
    Release(fp.AddRemove(2, once_per="month"), COARSE),
    Release(fp.AddRemove(3, once_per="month"), FEWER),
    Release(fp.ReplaceOne(("region",)), BOTH),
    Release(fp.ReplaceOne(("month",)), COARSE),
    Release(fp.ReplaceOne(("month",)), BOTH),
    Release(fp.ReplaceOne(), MONTH),
    Release(fp.ReplaceOne(), FEWER),
]


@functools.cache
def find_plan(number: int) -> fp.Plan:
    release = RELEASES[number]
    domain = release.domain
    groups = [fp.marginal(*domain.names, std=3.0), fp.total(std=5.0)]
    groups += [fp.marginal(name, std=4.0) for name in domain.names[1:]]
    return fp.design(fp.Workload(domain, groups), unit=release.unit)


@functools.cache
def find_matrix(number: int) -> npt.NDArray[np.int64]:
    return build_dense_strategy(find_plan(number).strategy).astype(np.int64)


def count(plan: fp.Plan) -> fp.Tables:
    return fp.Tables(
        plan.domain, {names: np.zeros(get_shape(plan.domain, names), int) for names in plan.tables}
    )


def measure(number: int, before: Any, after: Any) -> Fraction | float:
    """What a change of records costs in a release, in rho; infinite if public totals change."""
    release, plan = RELEASES[number], find_plan(number)
    v = np.zeros(release.domain.shape, dtype=np.int64)
    for sign, records in ((-1, before), (1, after)):
        for cell, n in release.count(records).items():
            v[cell] += sign * n
    public = plan.strategy.structure.public_attributes
    if public is not None:
        axes = tuple(i for i, name in enumerate(release.domain.names) if name not in public)
        if v.sum(axis=axes).any():
            return math.inf
    square = int(((find_matrix(number) @ v.ravel()) ** 2).sum())
    return Fraction(square) / (2 * Fraction(plan.noise_std) ** 2)


@pytest.mark.parametrize("kept", range(len(RELEASES)), ids=lambda i: str(RELEASES[i]))
def test_no_person_costs_more_than_is_spent(kept: int, tmp_path: Path) -> None:
    ledger = fp.Ledger(tmp_path / "l.db", rho=10**6)
    done = []
    for number in (kept, *np.random.default_rng(kept).permutation(len(RELEASES))):
        before = ledger.entries()
        try:
            fp.release(find_plan(number), count(find_plan(number)), ledger=ledger)
        except LedgerError:
            assert ledger.entries() == before
        else:
            done.append(number)
    assert ledger.bound_unit == find_plan(kept).bound_unit == RELEASES[kept].bound
    is_replaced = [isinstance(RELEASES[i].unit, fp.ReplaceOne) for i in done]
    assert is_replaced == [is_replaced[0]] * len(done)
    assert len(done) == 9 or is_replaced[0]
    spent = read_statement(ledger)[0].spent
    costs = [sum(measure(i, *person) for i in done) for person in list_persons(RELEASES[kept])]
    assert max(costs) <= spent


def test_the_least_that_is_provable_is_charged(tmp_path: Path) -> None:
    """Distinct months and regions are no distinct regions, and the other way round they are."""
    both, region = find_plan(2), find_plan(3)
    ledger = fp.Ledger(tmp_path / "both.db", rho=10**6)
    fp.release(both, count(both), ledger=ledger)
    fp.release(region, count(region), ledger=ledger)
    assert ledger.spent == pytest.approx(both.rho + 9 * region.rho)
    ledger = fp.Ledger(tmp_path / "region.db", rho=10**6)
    fp.release(region, count(region), ledger=ledger)
    fp.release(both, count(both), ledger=ledger)
    assert ledger.spent == pytest.approx(region.rho + both.rho)


def release_in_memory(plan: fp.Plan, ledger: fp.Ledger, folder: Path) -> None:
    fp.release(plan, count(plan), ledger=ledger)


def publish(plan: fp.Plan, ledger: fp.Ledger, folder: Path) -> None:
    fp.release(plan, count(plan), folder / "out", ledger=ledger)


def release_in_parts(plan: fp.Plan, ledger: fp.Ledger, folder: Path) -> None:
    release_source(plan, count(plan), folder / "parts", ledger=ledger)


def begin_a_series(plan: fp.Plan, ledger: fp.Ledger, folder: Path) -> None:
    fp.begin_series(plan, folder / "series", ledger=ledger, key="series", periods="month")


def charge_by_hand(plan: fp.Plan, ledger: fp.Ledger, folder: Path) -> None:
    ledger.charge(plan.rho, what="a", unit=plan.unit, domain=plan.domain)


WAYS = [release_in_memory, publish, release_in_parts, begin_a_series, charge_by_hand]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_each_way_charges_for_the_cells_of_the_plan(way: Any, tmp_path: Path) -> None:
    """The plan is for months in other cells than the ledger's: each record is charged for."""
    domain = fp.Domain({"month": fp.Integers(0, 1), "region": fp.Integers(0, 1)})
    workload = fp.Workload(domain, [fp.marginal("month", "region", std=3.0)])
    unit = fp.AddRemove(2, once_per="month")
    plan = fp.design(workload, unit=unit, periods="month")
    for kept, factor in ((COARSE, 4), (BOTH, 4), (None, 1)):
        kept_domain = domain if kept is None else Release(unit, kept).domain
        folder = tmp_path / str(kept and kept[0][1])
        folder.mkdir()
        ledger = fp.Ledger(folder / "l.db", rho=10**6, unit=unit, domain=kept_domain)
        way(plan, ledger, folder)
        assert ledger.spent == pytest.approx(factor * plan.rho)
        assert ledger.entries()[0].bound_unit == plan.bound_unit
        small = fp.Ledger(folder / "s.db", rho=plan.rho * 2, unit=unit, domain=kept_domain)
        (folder / "again").mkdir()
        if factor == 4:
            with pytest.raises(OverBudget, match=r"\(4 times the release's rho\)"):
                way(plan, small, folder / "again")
            assert small.entries() == ()


def test_free_releases_are_charged_for_the_persons_of_the_ledger(tmp_path: Path) -> None:
    """In a ledger for three records apart, three records anywhere are what a charge covers."""
    kept = RELEASES[5]
    ledger = fp.Ledger(tmp_path / "l.db", rho=10**6, unit=kept.unit, domain=kept.domain)
    domain = fp.Domain({"month": fp.Integers(0, 3)})
    first, second = (
        fp.design(fp.Workload(domain, [fp.queries({"month": [row]}, std=2.0, name="a")]))
        for row in ([1, 0, 0, 0], [0, 1, 1, 0])
    )
    ledger.charge(first.rho, what="a", key="a")
    with pytest.raises(LedgerError, match="has no costs per cell"):
        ledger.charge_covered(second, covered_by="a", what="b")
    fp.release(first, count(first), ledger=ledger, key="charged")
    assert ledger.spent == pytest.approx(10 * first.rho)
    free = fp.release(second, count(second), ledger=ledger, covered_by="charged", key="free")
    assert free.entry is not None
    strategies = [(plan, build_dense_strategy(plan.strategy)) for plan in (first, second)]
    worst = 0.0
    for months in itertools.product(range(4), repeat=3):
        v = np.bincount(months, minlength=4)
        worst = max(worst, sum(((a @ v) ** 2).sum() / (2 * p.noise_std**2) for p, a in strategies))
    assert worst <= 9 * first.rho * (1 + 1e-12)
    plan = find_plan(5)
    with pytest.raises(LedgerError, match=r"at most one in each cell of month \(cells "):
        ledger.charge_covered(plan, covered_by="charged", what="b")


OTHERS = {
    "once_per": fp.AddRemove(3, once_per="month"),
    "distinct": fp.AddRemove(3, distinct=True),
    "anywhere": fp.AddRemove(3),
    "replaced": fp.ReplaceOne(("month",)),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("way", WAYS[:3], ids=lambda way: way.__name__)
def test_nobody_can_declare_what_lies_in_the_cell_of_other_values(
    name: str, way: Any, tmp_path: Path
) -> None:
    """Records in twelve months that the list does not have are all in one cell."""
    domain = fp.Domain({"month": fp.Categories([0, 1], other="rest"), "region": ["n", "s"]})
    workload = fp.Workload(domain, [fp.marginal("month", "region", std=3.0)])
    plan = fp.design(workload, unit=OTHERS[name])
    ledger = fp.Ledger(tmp_path / "l.db", rho=10**6)
    if name in ("anywhere", "replaced"):
        if (name, way) != ("replaced", release_in_parts):  # not made for this unit
            way(plan, ledger, tmp_path)
            assert ledger.spent == pytest.approx(plan.rho)
        return
    with pytest.raises(TablesError, match=r"'m\w+' has the option .other.\. To limit"):
        way(plan, ledger, tmp_path)
    assert ledger.entries() == ()
    unit = fp.AddRemove(3, name == "distinct", "month" if name == "once_per" else None)
    cells = {domain.names: np.zeros((3, 2), dtype=int)}
    tables = fp.Tables(domain, cells, unit=unit, person="id")
    assert fp.release(plan, tables, ledger=ledger).limited == "enforced"


def test_counts_of_other_cells_are_not_those_of_the_plan() -> None:
    """The attribute has the plan's name, and other cells in which a count kept one row each."""
    domain = fp.Domain({"month": fp.Integers(0, 3), "region": fp.Integers(0, 1)})
    finer = fp.Domain({"month": fp.Integers(0, 4), "region": fp.Integers(0, 1)})
    plan = fp.design(
        fp.Workload(domain, [fp.marginal("month", "region", std=3.0)]),
        unit=fp.AddRemove(3, once_per="month"),
    )
    limit: Any = {"unit": fp.AddRemove(3, once_per="month")}
    for other in (finer, domain):
        tables = fp.Tables(other, {other.names: np.zeros(other.shape, int)}, **limit)
        if other is domain:
            fp.release(plan, tables)
            continue
        with pytest.raises(TablesError, match="were counted for the unit of privacy"):
            fp.release(plan, tables)


def test_exact_totals_are_of_records_that_no_other_attribute_leaves_out() -> None:
    """A record whose age changes would not be counted any more, and the total is public."""
    plan = find_plan(RELEASES.index(Release(fp.ReplaceOne(), MONTH)))
    further = fp.Domain({"month": fp.Integers(0, 3), "age": fp.Integers(0, 9)})
    tables = fp.Tables(further, {("month", "age"): np.zeros((4, 10), dtype=int)})
    with pytest.raises(TablesError, match="do not match the plan in the attribute 'age'"):
        fp.release(plan, tables)
    open_ended = fp.Domain({"month": fp.Integers(0, 3), "age": fp.Categories([1], other="rest")})
    tables = fp.Tables(open_ended, {("month", "age"): np.zeros((4, 2), dtype=int)})
    assert fp.release(plan, tables).public_totals is not None
