"""Releases that an earlier charge covers, against sums over every cell in fractions."""

from __future__ import annotations

import copy
import itertools
import math
import re
import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import fitplug as fp
from fitplug.domain import get_shape
from fitplug.ledger import ReleaseCharges, cell_costs as cellcosts
from fitplug.ledger.cell_costs import CellCosts, add_up
from fitplug.ledger.charges import ChargeRequest
from fitplug.privacy import DiscreteNoise

DOMAIN = fp.Domain({"sex": ["f", "m"], "age": fp.Integers(0, 5), "job": ["a", "b", "c"]})
X = np.arange(36).reshape(DOMAIN.shape)


def plan(*groups: Any, domain: fp.Domain = DOMAIN, **keywords: Any) -> fp.Plan:
    return fp.design(fp.Workload(domain, list(groups)), tolerance=1e-3, **keywords)


def tables(made: fp.Plan) -> fp.Tables:
    axes = {name: i for i, name in enumerate(DOMAIN.names)}
    drop = [tuple(i for n, i in axes.items() if n not in names) for names in made.tables]
    counts = {names: X.sum(axis=d) for names, d in zip(made.tables, drop, strict=True)}
    return fp.Tables(DOMAIN, counts)


YOUNG = fp.queries({"age": fp.ranges([(0, 0), (0, 1), (0, 2), (1, 2)])}, std=3.0, name="young")
ALL = fp.queries({"age": "prefix"}, std=20.0, name="all")
FIRST = plan(YOUNG, ALL)
OLD = fp.queries({"age": fp.ranges([(4, 4), (5, 5)]), "sex": [[1, 0], [1, 1]]}, std=4.0, name="old")
SECOND = plan(OLD, cell_budgets=FIRST.unused_budget())


@pytest.fixture
def ledger(tmp_path: Path) -> fp.Ledger:
    return fp.Ledger(tmp_path / "budget.db", rho=1e3)


FIRST_OF_THREE = plan(YOUNG, ALL, unit=fp.AddRemove(3))
SECOND_OF_THREE = plan(OLD, cell_budgets=FIRST_OF_THREE.unused_budget(), unit=fp.AddRemove(3))


def charge(ledger: fp.Ledger, made: fp.Plan, key: str = "first") -> Any:
    costs = CellCosts.from_plan(made)
    rho = max(made.rho_exact, costs.rho)
    return ledger.charge(rho, what="x", key=key, profile=costs, unit=made.unit)


def at_every_cell(plans: Sequence[fp.Plan]) -> dict[tuple[int, ...], Fraction]:
    """The sum of the profiles, exact, at each cell of the whole domain."""
    whole = [np.broadcast_to(one.profile(), one.domain.shape) for one in plans]
    cells = itertools.product(*map(range, plans[0].domain.shape))
    return {cell: sum((Fraction(float(w[cell])) for w in whole), Fraction(0)) for cell in cells}


def test_a_charge_and_a_release_with_coverage_leave_nothing(ledger: fp.Ledger) -> None:
    """A record outside one of their domains costs its rho, and may be in a cell of the other."""
    covering = plan(YOUNG, ALL, coverage=True)
    charge(ledger, covering)
    with pytest.raises(fp.OverBudget):
        ledger.check_covered(SECOND, covered_by="first")
    charge(ledger, FIRST, "plain")
    ledger.check_covered(SECOND, covered_by="plain")
    second = plan(OLD, cell_budgets=FIRST.unused_budget(), coverage=True)
    assert second.rho == SECOND.rho
    with pytest.raises(fp.OverBudget):
        ledger.check_covered(second, covered_by="plain")


def test_the_slack_pays_for_a_second_and_refuses_a_third(ledger: fp.Ledger) -> None:
    first = charge(ledger, FIRST)
    spent = ledger.spent
    ledger.check_covered(SECOND, covered_by="first")
    free = ledger.charge_covered(
        SECOND, covered_by="first", what="old", key="second", folder="/there"
    )
    assert (free.rho, free.covered_by, free.plan_digest) == (0, first.id, SECOND.digest)
    assert (free.key, free.folder) == ("second", "/there")
    assert ledger.spent == spent
    assert max(at_every_cell([FIRST, SECOND]).values()) <= 2 * first.rho

    for covered_by in ("first", 1):
        with pytest.raises(fp.OverBudget) as caught:
            ledger.charge_covered(SECOND, covered_by=covered_by, what="again")
    exact = at_every_cell([FIRST, SECOND, SECOND])
    worst = max(exact, key=exact.__getitem__)
    assert exact[worst] > 2 * first.rho
    own = Fraction(float(np.broadcast_to(SECOND.profile(), DOMAIN.shape)[worst]))
    assert caught.value.requested == pytest.approx(float(own / 2), rel=1e-14)
    left = first.rho - (exact[worst] - own) / 2
    assert Fraction(caught.value.remaining) <= left
    assert caught.value.remaining == pytest.approx(float(left), rel=1e-9, abs=1e-12)
    message = str(caught.value)
    (cost,), (over,) = (
        re.findall(r"rho = (\S+) is", message),
        re.findall(r"leaves (\S+)\. Relax", message),
    )
    assert 1 - 1e-9 < float(cost) / caught.value.requested < 1.01
    assert 0 <= float(over) <= caught.value.remaining * (1 + 1e-9)
    assert f"age={DOMAIN['age'].labels[worst[1]]!r}" in message
    assert "\n" not in message
    with pytest.raises(fp.OverBudget):
        ledger.check_covered(SECOND, covered_by="first")
    assert len(ledger.entries()) == 2
    assert fp.Ledger(ledger.path).entries() == ledger.entries()


def test_a_free_release_with_little_noise_must_fit_the_curve(tmp_path: Path) -> None:
    """All that was spent costs more epsilon once a part of it has little noise: Theorem 6."""
    ledger = fp.Ledger(tmp_path / "epsilon.db", epsilon=9.0, delta=1e-9)
    costs = CellCosts.from_plan(FIRST)
    almost = Fraction(ledger.remaining) * Fraction(999, 1000)
    ledger.charge(almost, what="x", key="first", profile=costs, noise=FIRST.noise)
    little = copy.copy(SECOND)
    vars(little)["noise"] = DiscreteNoise(20.0, SECOND.strategy.size)
    request = ChargeRequest(little, Fraction(0), "x", key="free", covered_by="first")
    for look in (
        lambda: ledger.check_covered(little, covered_by="first"),
        lambda: ledger.charge_covered(little, covered_by="first", what="x"),
        lambda: ReleaseCharges(ledger).begin(request),
        lambda: ReleaseCharges(ledger).find(request),
    ):
        with pytest.raises(fp.OverBudget, match=r"noise_std = 20 is too small: .* has only rho"):
            look()
    assert len(ledger.entries()) == 1
    ledger.charge_covered(SECOND, covered_by="first", what="x")
    assert ledger.epsilon(1e-9) <= 9.0


def test_what_is_left_pays_for_a_third(ledger: fp.Ledger) -> None:
    charge(ledger, FIRST)
    assert (ledger.unused_budget("first", DOMAIN) <= FIRST.unused_budget() + 1e-12).all()
    half = plan(OLD, cell_budgets=FIRST.unused_budget() / 2)
    ledger.charge_covered(half, covered_by="first", what="half")
    left = ledger.unused_budget("first", DOMAIN)
    assert left.shape == (2, 6, 1)
    third = plan(OLD, cell_budgets=left)
    ledger.charge_covered(third, covered_by="first", what="the other half")
    exact = at_every_cell([FIRST, half, third])
    assert max(exact.values()) <= 2 * ledger.entries()[0].rho
    with pytest.raises(fp.OverBudget):
        ledger.charge_covered(half, covered_by="first", what="too much")


def test_free_beside_a_measure_at_every_value(ledger: fp.Ledger) -> None:
    """Costs are compared at the bounds of measures; in fractions, no value between costs more."""
    pay = fp.Measure(-3, 9)
    domain = fp.Domain({"sex": ["f", "m"], "pay": pay})
    sums = [fp.queries({"sex": [[1, 0]], "pay": "sum"}, std=6.0), fp.marginal("sex", std=2.0)]
    first = plan(*sums, domain=domain)
    second = plan(
        fp.queries({"sex": [[0, 1]], "pay": "sum"}, std=9.0),
        domain=domain,
        cell_budgets=first.unused_budget(),
    )
    paid = charge(ledger, first)
    ledger.charge_covered(second, covered_by="first", what="the others")
    costs = []
    for sex, value in itertools.product("fm", range(-3, 10)):
        cost = Fraction(0)
        for made in (first, second):
            record = {"sex": [sex], "pay": [value]}
            one = fp.Tables.from_records(domain, record, made.tables)
            changed = made.strategy.answer_exactly(one.marginal)
            cost += sum(int(a) ** 2 for a in changed) / Fraction(made.noise_std) ** 2
        costs.append(cost)
    assert max(costs) <= 2 * paid.rho
    assert max(costs) > (1 - Fraction(1, 100)) * 2 * paid.rho
    wider = fp.Domain({"sex": ["f", "m"], "pay": fp.Measure(-3, 10)})
    with pytest.raises(fp.LedgerError, match="another domain"):
        ledger.charge_covered(plan(*sums, domain=wider), covered_by="first", what="x")


def test_plans_that_share_no_cells(ledger: fp.Ledger) -> None:
    """Parallel composition: as much again, where the first plan asked nothing."""
    women = plan(fp.queries({"sex": [[1, 0]], "job": "identity"}, std=2.0, name="w"))
    men = plan(fp.queries({"sex": [[0, 1]], "job": "identity"}, std=2.0, name="m"))
    charge(ledger, women)
    ledger.charge_covered(men, covered_by="first", what="men")
    for one in (women, men):
        with pytest.raises(fp.OverBudget, match="sex="):
            ledger.charge_covered(one, covered_by="first", what="again")


def test_threads_race_for_what_is_left(ledger: fp.Ledger) -> None:
    charge(ledger, FIRST)
    said: list[str] = []

    def work() -> None:
        try:
            ledger.charge_covered(SECOND, covered_by="first", what="x")
            said.append("free")
        except fp.OverBudget:
            said.append("refused")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said) == ["free"] + ["refused"] * 7
    assert len(ledger.entries()) == 2


def test_several_records_of_a_person(ledger: fp.Ledger) -> None:
    entry = charge(ledger, FIRST_OF_THREE)
    ledger.charge_covered(SECOND_OF_THREE, covered_by="first", what="x")
    assert 9 * max(at_every_cell([FIRST, SECOND]).values()) <= 2 * entry.rho
    with pytest.raises(fp.OverBudget) as caught:
        ledger.charge_covered(SECOND_OF_THREE, covered_by="first", what="x")
    assert caught.value.requested == pytest.approx(9 * float(SECOND.profile().max()) / 2, rel=1e-3)


def test_charges_that_cover_nothing(ledger: fp.Ledger) -> None:
    ledger.charge(50.0, what="no plan", key="plain")
    charge(ledger, FIRST)
    ledger.charge_covered(SECOND, covered_by="first", what="free", key="second")
    other = fp.Domain({"sex": ["f", "m"], "age": fp.Integers(0, 5), "job": ["a", "b", "d"]})
    foreign = plan(fp.total(std=9.0), domain=other)
    small = plan(fp.total(std=1e6))
    for made, covered_by, says in (
        (small, "none", "has no charge with the key 'none'"),
        (small, 9, "has no charge with the number 9"),
        (small, "plain", "has no costs per cell"),
        (small, "second", "Give charge 2"),
        (foreign, "first", "another domain"),
    ):
        with pytest.raises(fp.LedgerError, match=says):
            ledger.charge_covered(made, covered_by=covered_by, what="x")
    with pytest.raises(fp.LedgerError, match="already has a charge with the key 'second'"):
        ledger.charge_covered(small, covered_by="first", what="x", key="second")
    with pytest.raises(fp.LedgerError, match="another domain"):
        ledger.unused_budget("first", other)
    assert len(ledger.entries()) == 3


def test_a_charge_below_what_the_cells_cost_is_refused(ledger: fp.Ledger) -> None:
    costs = CellCosts.from_plan(FIRST)
    with pytest.raises(fp.BudgetError, match="the largest cost of a cell"):
        ledger.charge(costs.rho - Fraction(1, 10**30), what="x", profile=costs)
    assert ledger.entries() == ()


def test_equal_profiles_are_kept_once(ledger: fp.Ledger) -> None:
    charge(ledger, FIRST, key="a")
    charge(ledger, FIRST, key="b")
    charge(ledger, FIRST_OF_THREE, key="c")
    with sqlite3.connect(ledger.path) as database:
        assert database.execute("SELECT count(*) FROM profile").fetchone() == (2,)
    database.close()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM profile",
        "UPDATE profile SET records = 2",
        "UPDATE profile SET names = '[\"sex\"]'",
        "UPDATE profile SET sizes = '[5]'",
        "UPDATE profile SET domain = ''",
        "UPDATE profile SET costs = x'00'",
        "UPDATE profile SET costs = zeroblob(100)",
        "UPDATE entry SET profile = NULL",
    ],
)
def test_edited_profiles_are_noticed(ledger: fp.Ledger, statement: str) -> None:
    charge(ledger, FIRST)
    with sqlite3.connect(ledger.path) as database:
        database.execute(statement)
    database.close()
    for look in (
        ledger.entries,
        lambda: ledger.unused_budget("first", DOMAIN),
        lambda: ledger.charge_covered(SECOND, covered_by="first", what="x"),
    ):
        with pytest.raises(fp.LedgerError, match="is damaged"):
            look()


# The sums


levels = st.integers(0, 12).map(lambda n: float(np.float64(0.1) * n)) | st.floats(0.0, 1.0)


@st.composite
def parts(draw: st.DrawFn) -> CellCosts:
    names = tuple(name for name in DOMAIN.names if draw(st.booleans()))
    shape = get_shape(DOMAIN, names)
    size = int(np.prod(shape))
    values = draw(st.lists(levels, min_size=size, max_size=size))
    return CellCosts("", names, 2, np.array(values).reshape(shape))


@settings(max_examples=20, deadline=None, derandomize=True, database=None)
@given(
    made=st.lists(parts(), min_size=1, max_size=3), new=parts(), slab=st.sampled_from([1, 7, 99])
)
def test_excess_and_slack_against_fractions(
    made: list[CellCosts], new: CellCosts, slab: int
) -> None:
    cells = list(itertools.product(*map(range, DOMAIN.shape)))

    def exact(part: CellCosts) -> list[Fraction]:
        whole = np.broadcast_to(part.expand_axes(DOMAIN.names), DOMAIN.shape)
        return [Fraction(float(whole[cell])) for cell in cells]

    before = [sum(values) for values in zip(*map(exact, made), strict=True)]
    whole = [b + own for b, own in zip(before, exact(new), strict=True)]
    for rho in {
        max(before) * 2,
        max(whole) * 2,
        max(whole),
        max(whole) * 2 * (1 - Fraction(1, 2**70)),
    }:
        if not rho or rho < max(before) * 2:  # else the earlier ones were not free
            continue
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cellcosts, "_CHUNK_CELLS", slab)
            over = cellcosts.find_excess(DOMAIN, rho, made, new)
        if max(whole) * 4 > 2 * rho:  # of two records, 2^2 times the costs
            assert over is not None
            at = dict(over.cell)
            (cell,) = {tuple(at.get(name, 0) for name in DOMAIN.names)}
            place = cells.index(cell)
            assert Fraction(over.requested) >= exact(new)[place] * 2
            assert Fraction(over.remaining) <= max(Fraction(0), rho - before[place] * 2)
            assert float(whole[place]) == pytest.approx(float(max(whole)), rel=1e-14)
        elif max(whole) * 4 <= 2 * rho * (1 - Fraction(1, 2**48)):
            assert over is None
        left = np.broadcast_to(cellcosts.compute_unused_budget(DOMAIN, rho, made), DOMAIN.shape)
        of_three = np.broadcast_to(
            cellcosts.compute_unused_budget(DOMAIN, rho, made, 3), DOMAIN.shape
        )
        assert (9 * left * (1 - 1e-15) <= of_three).all()
        assert all(
            Fraction(float(b)) <= 9 * Fraction(float(a))
            for a, b in zip(left.flat, of_three.flat, strict=True)
        )
        for cell, used in zip(cells, before, strict=True):
            room = 2 * rho / 4 - used
            assert 0 <= Fraction(float(left[cell])) <= max(room, Fraction(0))
            assert float(room) - left[cell] <= 1e-14 * float(rho)
        fills = CellCosts("", DOMAIN.names, 2, np.array(left))
        if max(before) * 4 <= 2 * rho * (1 - Fraction(1, 2**48)):  # their sum rounded up fits too
            assert cellcosts.find_excess(DOMAIN, rho, made, fills) is None


@given(a=st.floats(0, 1e300), b=st.floats(-1e300, 1e300))
def test_sums_are_the_least_float_above(a: float, b: float) -> None:
    up = float(add_up(np.array(a), np.array(b)))
    exact = Fraction(a) + Fraction(b)
    assert Fraction(float(np.nextafter(up, -np.inf))) < exact <= Fraction(up)


def test_symmetric_attributes_are_not_expanded_and_dense_ones_may_be_too_many(
    ledger: fp.Ledger,
) -> None:
    names = [f"q{i}" for i in range(40)]
    survey = fp.Domain(
        {n: ["a", "b", "c"] for n in names} | {n: fp.Integers(0, 999) for n in ("x", "y", "z")}
    )
    first = plan(fp.marginal(names[0], names[1], std=5.0), domain=survey)
    charge(ledger, first)
    small = plan(fp.marginal(*names[5:7], std=5.0), domain=survey)
    with pytest.raises(fp.OverBudget) as caught:
        ledger.charge_covered(small, covered_by="first", what="x")
    assert " at " not in str(caught.value).split("of the charge")[0]
    assert ledger.unused_budget("first", survey).size == 1

    def wide(name: str) -> CellCosts:
        domain = cellcosts.digest_domain(survey)
        return CellCosts(domain, (name,), 1, np.zeros(1000))

    made = [wide("x"), wide("y")]
    assert cellcosts.find_excess(survey, Fraction(1), made, wide("y")) is None
    for look in (
        lambda: cellcosts.find_excess(survey, Fraction(1), made, wide("z")),
        lambda: cellcosts.compute_unused_budget(survey, Fraction(1), [*made, wide("z")]),
    ):
        with pytest.raises(fp.BudgetError, match="1,000,000,000 cells of x x y x z"):
            look()


# Through OpenDP


def test_a_release_keeps_its_costs_and_another_is_free(ledger: fp.Ledger) -> None:
    released = fp.release(FIRST, tables(FIRST), ledger=ledger, key="first")
    (entry,) = ledger.entries()
    assert entry.plan_digest == FIRST.digest
    assert entry.profile == CellCosts.from_plan(FIRST).digest
    second = plan(OLD, cell_budgets=ledger.unused_budget("first", DOMAIN))
    free = fp.release(second, tables(second), ledger=ledger, covered_by="first", key="second")
    assert ledger.spent == released.rho
    assert free.rho <= second.rho <= math.nextafter(free.rho, 1.0)
    assert [e.covered_by for e in ledger.entries()] == [None, 1]


def test_three_records_a_person(ledger: fp.Ledger) -> None:
    fp.release(FIRST_OF_THREE, tables(FIRST), ledger=ledger, key="first")
    budgets = ledger.unused_budget("first", DOMAIN)
    second = plan(OLD, cell_budgets=budgets, unit=fp.AddRemove(3))
    fp.release(second, tables(second), ledger=ledger, covered_by="first")
    assert len(ledger.entries()) == 2


def test_nothing_is_drawn_when_it_is_not_free(
    ledger: fp.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fitplug_opendp.noise_source as room

    charge(ledger, FIRST)
    drawn: list[object] = []
    monkeypatch.setattr(room, "make_sampler", lambda *_: lambda *given: drawn.append(given))
    with pytest.raises(fp.OverBudget):
        fp.release(FIRST, tables(FIRST), ledger=ledger, covered_by="first")
    with pytest.raises(fp.BudgetError, match="Add ledger="):
        fp.release(FIRST, tables(FIRST), covered_by="first")
    with pytest.raises(fp.LedgerError, match="already"):
        fp.release(FIRST, tables(FIRST), ledger=ledger, key="first")
    assert not drawn
    assert len(ledger.entries()) == 1


def test_no_noise_where_the_ledger_cannot_be_written(
    ledger: fp.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fitplug_opendp.noise_source as room

    class Full(sqlite3.Connection):
        def __init__(self, *args: Any, **keywords: Any) -> None:
            super().__init__(*args, **keywords)
            self.execute("PRAGMA max_page_count = 1")  # as small as the file is now

    class ReadOnly(sqlite3.Connection):
        def __init__(self, *args: Any, **keywords: Any) -> None:
            super().__init__(*args, **keywords)
            self.execute("PRAGMA query_only = 1")

    charge(ledger, FIRST)
    drawn: list[object] = []
    monkeypatch.setattr(room, "make_sampler", lambda *_: lambda *given: drawn.append(given))
    connect, long = sqlite3.connect, "x" * 20_000
    for disk, says in (
        (Full, "disk is full. Free some space"),
        (ReadOnly, "cannot be written. Give"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(
                sqlite3, "connect", lambda *a, disk=disk, **k: connect(*a, factory=disk, **k)
            )
            for made, covered_by in ((FIRST, None), (SECOND, "first")):
                with pytest.raises(fp.LedgerError, match=says):
                    fp.release(made, tables(made), ledger=ledger, covered_by=covered_by, what=long)
    assert not drawn
    assert len(ledger.entries()) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "k", [1, 10**6, *(pytest.param(k, marks=pytest.mark.slow) for k in (2, 3, 7))]
)
def test_a_release_can_always_be_charged_for_many_records(tmp_path, k):
    """Whatever the last digits of the costs per cell and of OpenDP's map are: here the sensitivity
    is a whole number, and leaves no room between them."""
    domain = fp.Domain({"a": fp.Integers(0, 2)})
    ledger = fp.Ledger(tmp_path / "ledger", rho=1e30)
    for variance in np.random.default_rng(k).uniform(1e3, 1e6, 8):
        workload = fp.Workload(domain, [fp.total(variance=float(variance))])
        plan = fp.design(workload, unit=fp.AddRemove(k))
        tables = fp.Tables(domain, {(): np.array(5)})
        made = fp.release(plan, tables, ledger=ledger)
        charged = ledger.entries()[-1].rho
        assert made.rho <= charged <= made.rho * (1 + 1e-15)
        assert charged >= plan.rho_exact == fp.design(workload).rho_exact * k**2


@pytest.mark.parametrize(
    ("rho", "records"), [(0.1, 1), (0.2, 3), (0.3, 7), (0.7, 1), (0.05, 3), (0.1, 7)]
)
def test_a_plan_for_a_budget_fits_into_it(tmp_path: Path, rho: float, records: int) -> None:
    """Floats of these decimals lie on both sides of them, and the release is charged a float."""
    made = plan(YOUNG, ALL, rho=rho, unit=fp.AddRemove(records))
    budget = fp.Ledger(tmp_path / "budget.db", rho=rho)
    fp.release(made, tables(made), ledger=budget)
    (entry,) = budget.entries()
    assert made.rho_exact <= entry.rho <= Fraction(str(rho))


def test_the_rho_of_a_plan_is_charged_as_no_decimal_below_it(tmp_path: Path) -> None:
    ledger, doubtful = fp.Ledger(tmp_path / "budget.db", rho=1e6), 0
    for tenths in range(1, 100, 3):
        rho = tenths / 10
        std = FIRST.strategy.sensitivity / math.sqrt(2 * rho)
        for noise_std in (std, math.nextafter(std, 0), math.nextafter(std, math.inf)):
            made = replace(FIRST, noise_std=noise_std)
            doubtful += made.strategy.upper_rho(noise_std) == rho > Fraction(str(rho))
            entry = ledger.charge(made.rho, what="x", profile=CellCosts.from_plan(made))
            assert entry.rho >= made.rho_exact
    assert doubtful > 5
