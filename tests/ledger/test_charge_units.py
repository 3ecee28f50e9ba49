"""A ledger adds up costs in one unit of privacy, and converts others upward or refuses them."""

from __future__ import annotations

import sqlite3
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fitplug as fp
from fitplug.errors import LedgerError, OverBudget
from fitplug.ledger import ChargeRequest, ReleaseCharges, read_statement
from fitplug.ledger.records import decode_unit, encode_unit
from fitplug.workload import BoundUnit, allows_any_rows

DOMAIN = fp.Domain({"site": fp.Integers(0, 4), "month": fp.Integers(1, 3)})
WORKLOAD = fp.Workload(DOMAIN, [fp.marginal("site", "month", std=3.0)])
MONTHLY = fp.AddRemove(3, once_per="month")
UNITS = [
    fp.AddRemove(),
    fp.AddRemove(3),
    fp.AddRemove(3, distinct=True),
    MONTHLY,
    fp.ReplaceOne(),
    fp.ReplaceOne(("site",)),
    fp.ReplaceOne(("site", "month")),
]


@pytest.fixture(scope="module")
def plan() -> fp.Plan:
    return fp.design(WORKLOAD)


@pytest.fixture(scope="module")
def plan_for_three() -> fp.Plan:
    return fp.design(WORKLOAD, unit=fp.AddRemove(3))


def count(**said: Any) -> fp.Tables:
    return fp.Tables(DOMAIN, {("site", "month"): np.zeros((5, 3), dtype=int)}, **said)


@pytest.mark.parametrize("unit", UNITS, ids=str)
class TestTheUnitOfALedger:
    def test_it_is_kept(self, tmp_path: Path, unit: Any) -> None:
        ledger = fp.Ledger(tmp_path / "l.db", rho=10, unit=unit, domain=DOMAIN)
        assert ledger.unit == fp.Ledger(tmp_path / "l.db").unit == unit
        bound = BoundUnit.bind(unit, DOMAIN)
        assert ledger.bound_unit == fp.Ledger(tmp_path / "l.db").bound_unit == bound
        entry = ledger.charge(1, what="preview")
        assert (entry.unit, entry.bound_unit) == (unit, bound)
        assert ledger.entries() == (entry,)
        for domain in (None, DOMAIN):
            again = fp.Ledger(tmp_path / "l.db", rho=10, unit=unit, domain=domain)
            assert again.spent == 1
            assert again.bound_unit == bound

    def test_it_is_that_of_the_first_charge(self, tmp_path: Path, unit: Any) -> None:
        ledger = fp.Ledger(tmp_path / "l.db", rho=10)
        assert ledger.unit is None
        ledger.charge(1, what="preview", unit=unit, domain=DOMAIN)
        assert ledger.unit == unit
        assert ledger.bound_unit == BoundUnit.bind(unit, DOMAIN)

    def test_it_may_be_given_until_something_is_charged(self, tmp_path: Path, unit: Any) -> None:
        fp.Ledger(tmp_path / "l.db", rho=10)
        assert fp.Ledger(tmp_path / "l.db", unit=unit).unit == unit
        other = fp.AddRemove(7)
        with pytest.raises(LedgerError) as caught:
            fp.Ledger(tmp_path / "l.db", unit=other)
        assert str(unit) in str(caught.value)
        assert str(other) in str(caught.value)

    def test_its_cells_are_those_of_the_first_charge_that_says_them(
        self, tmp_path: Path, unit: Any
    ) -> None:
        ledger = fp.Ledger(tmp_path / "l.db", rho=10**6, unit=unit)
        bound = BoundUnit.bind(unit, DOMAIN)
        assert ledger.bound_unit == BoundUnit(unit)
        if isinstance(unit, fp.AddRemove):  # this adds up, whatever the cells will be
            ledger.charge(1, what="preview", unit=fp.AddRemove())
            assert ledger.spent == unit.records**2
        if not BoundUnit(unit).is_known:
            for given in (None, unit):
                with pytest.raises(LedgerError, match="needs a domain"):
                    ledger.charge(1, what="preview", unit=given)
        before = ledger.spent
        ledger.charge(1, what="preview", unit=unit, domain=DOMAIN)
        assert ledger.spent == before + 1
        assert ledger.bound_unit == bound
        ledger.charge(1, what="preview")
        assert ledger.spent == before + 2

    def test_other_cells_are_another_unit(self, tmp_path: Path, unit: Any) -> None:
        other = fp.Domain({"site": fp.Bins([0, 3, 5]), "month": fp.Integers(1, 2)})
        ledger = fp.Ledger(tmp_path / "l.db", rho=10, unit=unit, domain=DOMAIN)
        if allows_any_rows(unit):
            fp.Ledger(tmp_path / "l.db", unit=unit, domain=other)
            return
        with pytest.raises(LedgerError, match=r"instead of \(.*cells"):
            fp.Ledger(tmp_path / "l.db", unit=unit, domain=other)
        if isinstance(unit, fp.ReplaceOne):
            with pytest.raises(LedgerError, match="Use this unit instead of"):
                ledger.charge(1, what="preview", unit=unit, domain=other)
            assert ledger.entries() == ()
        else:
            ledger.charge(1, what="preview", unit=unit, domain=other)
            assert ledger.spent == unit.records**2
        assert ledger.bound_unit == BoundUnit.bind(unit, DOMAIN)

    def test_its_text(self, unit: Any) -> None:
        for bound in (BoundUnit(unit), BoundUnit.bind(unit, DOMAIN)):
            assert decode_unit(encode_unit(bound)) == bound
            with pytest.raises(ValueError, match=r"unit"):
                decode_unit(encode_unit(bound) + " ")

    def test_an_edit_is_noticed(self, tmp_path: Path, unit: Any) -> None:
        ledger = fp.Ledger(tmp_path / "l.db", rho=10, unit=unit, domain=DOMAIN)
        ledger.charge(1, what="preview")
        for table in ("budget", "entry"):
            with sqlite3.connect(tmp_path / "l.db") as database:
                ((kept,),) = database.execute(f"SELECT unit FROM {table}").fetchall()
                unbound = {encode_unit(BoundUnit(own)) for own in (unit, fp.AddRemove(9))}
                edits: list[Any] = [*unbound - {kept}, "{}", 5]
                for edit in edits + [None] * (table == "budget"):
                    database.execute(f"UPDATE {table} SET unit = ?", (edit,))
                    database.commit()
                    with pytest.raises(LedgerError, match="is damaged"):
                        ledger.entries()
                database.execute(f"UPDATE {table} SET unit = ?", (kept,))
            database.close()
        assert len(ledger.entries()) == 1


@pytest.mark.parametrize(
    ("kept", "unit", "factor"),
    [
        (fp.AddRemove(3), fp.AddRemove(), 9),
        (fp.AddRemove(3), fp.AddRemove(2), 4),
        (fp.AddRemove(3), fp.AddRemove(5), 1),
        (fp.AddRemove(3, distinct=True), fp.AddRemove(3), 1),
        (MONTHLY, fp.AddRemove(3), 1),
        (MONTHLY, fp.AddRemove(), 9),
        (fp.AddRemove(), MONTHLY, 1),
        (fp.AddRemove(3), MONTHLY, 9),
        (fp.ReplaceOne(("site",)), fp.ReplaceOne(), 1),
        (fp.ReplaceOne(), fp.ReplaceOne(("site",)), None),
        (fp.ReplaceOne(), fp.AddRemove(), None),
        (fp.AddRemove(), fp.ReplaceOne(), None),
    ],
)
def test_a_charge_is_converted_upward_or_refused(
    tmp_path: Path, kept: Any, unit: Any, factor: int | None
) -> None:
    ledger = fp.Ledger(tmp_path / "l.db", rho=10, unit=kept, domain=DOMAIN)
    tenth = Fraction(1, 10)
    if factor is None:
        with pytest.raises(LedgerError, match="Use this unit instead of") as caught:
            ledger.charge(tenth, what="preview", unit=unit, domain=DOMAIN)
        assert f"({BoundUnit.bind(kept, DOMAIN)})" in str(caught.value)
        assert f"({BoundUnit.bind(unit, DOMAIN)})" in str(caught.value)
        assert ledger.entries() == ()
        return
    entry = ledger.charge(tenth, what="preview", unit=unit, domain=DOMAIN)
    assert (entry.rho, entry.unit) == (factor * tenth, unit)
    assert read_statement(ledger)[0].spent == factor * tenth
    assert ledger.unit == kept


def test_a_charge_that_fits_only_without_conversion_is_refused(tmp_path: Path) -> None:
    ledger = fp.Ledger(tmp_path / "l.db", rho=1, unit=fp.AddRemove(3))
    with pytest.raises(OverBudget) as caught:
        ledger.charge(Fraction(1, 2), what="preview", unit=fp.AddRemove())
    assert caught.value.requested == 4.5
    assert ledger.spent == 0


def test_releases_are_charged_in_the_unit_of_the_ledger(
    tmp_path: Path, plan: fp.Plan, plan_for_three: fp.Plan
) -> None:
    ledger = fp.Ledger(tmp_path / "l.db", rho=100)
    three = fp.release(plan_for_three, count(), ledger=ledger, key="three")
    assert ledger.unit == fp.AddRemove(3)
    assert three.entry is not None
    assert three.entry.unit == fp.AddRemove(3)
    one = fp.release(plan, count(), ledger=ledger, key="one")
    assert one.entry is not None
    assert one.entry.unit == fp.AddRemove()
    assert one.entry.rho == pytest.approx(9 * plan.rho)
    assert one.entry.rho >= 9 * plan.rho_exact
    assert float(three.entry.rho) == pytest.approx(9 * plan.rho)
    assert len(ledger.entries()) == 2


def test_what_a_count_enforced_holds_for_persons_with_more_records(
    tmp_path: Path, plan: fp.Plan
) -> None:
    """One kept row of a person costs rho, however many records the person has elsewhere."""
    ledger = fp.Ledger(tmp_path / "l.db", rho=100, unit=fp.AddRemove(3))
    kept = fp.release(plan, count(unit=fp.AddRemove(1), person="id"), ledger=ledger, key="kept")
    assert kept.entry is not None
    assert float(kept.entry.rho) == pytest.approx(plan.rho)
    published = fp.release(
        plan,
        count(unit=fp.AddRemove(1), person="id"),
        tmp_path / "out",
        ledger=ledger,
        key="folder",
    )
    assert published.entry is not None
    assert float(published.entry.rho) == pytest.approx(plan.rho)
    assert fp.Release.load(tmp_path / "out").entry == published.entry
    replacing = fp.Ledger(tmp_path / "r.db", rho=100, unit=fp.ReplaceOne())
    with pytest.raises(LedgerError, match="Use this unit instead of"):
        fp.release(plan, count(unit=fp.AddRemove(1), person="id"), ledger=replacing)


def test_a_retry_finds_a_charge_that_was_converted(tmp_path: Path, plan: fp.Plan) -> None:
    ledger = fp.Ledger(tmp_path / "l.db", rho=100, unit=fp.AddRemove(2))
    rho = Fraction(plan.rho)
    request = ChargeRequest(plan, rho, "preview", key="k", folder="out", in_folder=True)
    begun = ReleaseCharges(ledger).begin(request)
    assert begun.entry.rho == 4 * rho
    assert ReleaseCharges(ledger).begin(request) == begun
    assert ReleaseCharges(ledger).find(request) == begun
    assert ledger.spent == 4 * plan.rho


def test_free_releases_are_free_for_persons_of_the_ledger(tmp_path: Path) -> None:
    """Both charges are for one record, in a ledger for persons with two: four times the costs."""
    domain = fp.Domain({"a": ["1", "2"]})
    workload = fp.Workload(domain, [fp.queries({"a": [[1, 0]]}, std=2.0, name="first")])
    other = fp.Workload(domain, [fp.queries({"a": [[0, 1]]}, std=2.0, name="second")])
    ledger = fp.Ledger(tmp_path / "l.db", rho=100, unit=fp.AddRemove(2))
    plan = fp.design(workload)
    tables = fp.Tables(domain, {"a": [3, 4]})
    fp.release(plan, tables, ledger=ledger, key="charged")
    slack = ledger.unused_budget("charged", domain)
    # Nothing is left at the first cell, and as much as the charge is for at the second one.
    assert slack[0] == pytest.approx(0, abs=1e-9)
    assert slack[1] == pytest.approx(2 * plan.rho)
    fp.release(fp.design(other), tables, ledger=ledger, key="free", covered_by="charged")
    with pytest.raises(OverBudget):
        ledger.check_covered(plan, covered_by="charged")
    assert ledger.spent == pytest.approx(4 * plan.rho)
