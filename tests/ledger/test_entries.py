"""The ledger's rows: what entries keep, the chain that holds them, and files of older versions."""

from __future__ import annotations

import math
import shutil
import sqlite3
import tempfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fitplug.errors import BudgetError, InputError, LedgerError, OverBudget
from fitplug.ledger import read_statement, rows as ledgerrows
from fitplug.ledger.ledger import Ledger
from fitplug.ledger.records import make_budget
from fitplug.privacy import USUAL, CurveLoss, DiscreteNoise, epsilon_at, rho_at, rho_of_budget
from tests.helpers.exact import as_written

DIGEST = "ab" * 32


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget.db"


def execute(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as database:
        for statement in statements:
            database.execute(statement)
    database.close()


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(path) as database:
        found = database.execute(query).fetchall()
    database.close()
    return found


# What entries keep


def test_an_entry_keeps_the_plan_and_the_place(path: Path) -> None:
    ledger = Ledger(path, 1.0)
    entry = ledger.charge(0.1, what="x", key="k", plan_digest=DIGEST, folder="/where/it/went")
    assert (entry.plan_digest, entry.folder) == (DIGEST, "/where/it/went")
    assert Ledger(path).entries() == (entry,)
    with pytest.raises(InputError, match="folder= must be valid text and not empty"):
        ledger.charge(0.1, what="x", folder="half a pair \ud83d")
    assert len(ledger.entries()) == 1


def test_a_retry_is_told_when(path: Path) -> None:
    ledger = Ledger(path, 1.0)
    entry = ledger.charge(0.1, what="x", key="k", plan_digest=DIGEST)
    with pytest.raises(LedgerError) as caught:
        ledger.charge(0.1, what="x", key="k", plan_digest=DIGEST)
    for words in (
        "already has a charge with the key 'k'",
        entry.time,
        "Use another key",
    ):
        assert words in str(caught.value)
    assert ledger.entries() == (entry,)


# Epsilon and delta


def test_a_budget_in_epsilon_and_delta(path: Path) -> None:
    ledger = Ledger(path, epsilon=1.0, delta=1e-9)
    assert ledger.privacy == (1.0, 1e-9)
    assert ledger.total == rho_of_budget(1.0, 1e-9) > rho_at(1.0, 1e-9) * 1.1
    assert epsilon_at(math.sqrt(2 * ledger.total), 1e-9, USUAL) <= 1.0
    ledger.charge(ledger.remaining, what="all of it", noise=DiscreteNoise(1e6, 10**6))
    for again in (Ledger(path), Ledger(path, epsilon=1, delta=1e-9), Ledger(path, ledger.total)):
        assert again.remaining == 0.0
        assert 1 - 1e-6 < again.epsilon(1e-9) <= 1.0
    with pytest.raises(LedgerError, match=r"epsilon = 1\.0 at delta = 1e-9, not epsilon = 2\.0"):
        Ledger(path, epsilon=2.0, delta=1e-9)
    with pytest.raises(LedgerError, match=r"not 0\.5"):
        Ledger(path, 0.5)


def test_a_budget_in_epsilon_is_for_gaussian_noise_unless_it_says_otherwise(path: Path) -> None:
    ledger, noise = Ledger(path, epsilon=1.0, delta=1e-9), DiscreteNoise(1e6, 10)
    with pytest.raises(BudgetError, match="accepts only charges for discrete Gaussian noise"):
        ledger.charge(1e-6, what="of another kind")
    with pytest.raises(BudgetError, match="Pass the noise as noise="):
        ledger.check(1e-6)
    ledger.check(1e-6, noise=noise)
    assert ledger.entries() == ()
    ledger.charge(0.01, what="Gaussian", noise=noise)
    assert [entry.noise for entry in ledger.entries()] == [noise]
    with pytest.raises(LedgerError, match=r"delta = 1e-9, not .* for any noise"):
        Ledger(path, epsilon=1.0, delta=1e-9, any_noise=True)
    any_noise = Ledger(path.with_name("any.db"), epsilon=1.0, delta=1e-9, any_noise=True)
    assert any_noise.total == rho_at(1.0, 1e-9)
    any_noise.charge(any_noise.remaining, what="of another kind")
    with pytest.raises(OverBudget):
        any_noise.charge(1e-9, what="Gaussian", noise=noise)
    with pytest.raises(BudgetError, match="any_noise is only for a new ledger"):
        Ledger(path.with_name("rho.db"), 1.0, any_noise=True)


def test_little_noise_has_less_of_a_budget_in_epsilon(path: Path) -> None:
    ledger, noise = Ledger(path, epsilon=1.0, delta=1e-9), DiscreteNoise(20.0, 10)
    most = rho_of_budget(1.0, 1e-9, noise.loss)
    assert 0.99 * ledger.total < most < 0.998 * ledger.total
    with pytest.raises(OverBudget):
        ledger.charge(ledger.remaining, what="too much", noise=noise)
    ledger.charge(most * (1 - 1e-15), what="all", noise=noise)
    assert ledger.epsilon(1e-9) <= 1.0
    assert ledger.remaining <= 1e-12


def test_which_theorem_holds_does_not_depend_on_what_was_released(path: Path) -> None:
    """Noise too little for the curve is not let in on the total that rho alone would allow."""
    noise = DiscreteNoise(2.0, 10)
    assert rho_of_budget(1.0, 1e-9, noise.loss) == rho_at(1.0, 1e-9)
    ledger = Ledger(path, epsilon=1.0, delta=1e-9)
    ledger.charge(1e-3, what="much", noise=DiscreteNoise(1e6, 10))
    for look in (ledger.check, lambda rho, noise: ledger.charge(rho, what="little", noise=noise)):
        with pytest.raises(
            OverBudget,
            match=r"noise_std = 2(0)? is too small: .* left for such noise",
        ):
            look(0.9 * rho_at(1.0, 1e-9), noise=noise)
    assert len(ledger.entries()) == 1
    any_noise = Ledger(path.with_name("any.db"), epsilon=1.0, delta=1e-9, any_noise=True)
    any_noise.charge(any_noise.remaining, what="little", noise=noise)


def test_what_is_spent_stretched_by_the_least_noise_is_within_the_curve(path: Path) -> None:
    """The condition of Theorem 6, in rational numbers, whatever comes first."""
    ledger = Ledger(path, epsilon=1.0, delta=1e-9)
    curve = Fraction(ledger.total) * Fraction(USUAL.stretch)
    for sigma in (1e6, 300.0, 30.0, 9.0, 5.0, 3.0, 2.2, 1e3):
        noise = DiscreteNoise(sigma, 7)
        left = read_statement(ledger)[0].left_for(noise.loss)
        if left:
            ledger.charge(left / 3, what=f"sigma {sigma}", noise=noise)
        budget, entries = read_statement(ledger)
        assert budget.loss is not None
        stretch = max(Fraction(entry.noise.loss.stretch) for entry in entries if entry.noise)
        assert stretch == budget.loss.stretch
        assert budget.spent * stretch <= curve
        assert ledger.epsilon(1e-9) <= 1.0


def test_a_million_charges_are_the_most_on_the_curve() -> None:
    budget = make_budget(None, 1.0, 1e-9)
    assert budget is not None
    last = replace(budget, loss=CurveLoss(1.0, USUAL.log_ratio - 1.5e-18))
    assert last.left_for(DiscreteNoise(1e9, 1).loss) == budget.total
    last = replace(budget, loss=CurveLoss(1.0, USUAL.log_ratio))
    assert last.left_for(DiscreteNoise(1e9, 1).loss) == 0


@pytest.mark.parametrize("noise", [(20, 10), (np.float32(20), np.int64(10)), (20.0, True)])
def test_noise_given_as_other_numbers(path: Path, noise: tuple[Any, Any]) -> None:
    ledger = Ledger(path, epsilon=1.0, delta=1e-9)
    if noise[1] is True:
        with pytest.raises(InputError, match=r"answers must be an integer .* not True"):
            DiscreteNoise(*noise)
        return
    entry = ledger.charge(1e-3, what="x", noise=DiscreteNoise(*noise))
    assert ledger.entries() == (entry,)
    assert entry.noise == DiscreteNoise(20.0, 10)


@pytest.mark.parametrize("any_noise", [1, "no", None])
def test_any_noise_is_a_truth_value(path: Path, any_noise: Any) -> None:
    with pytest.raises(BudgetError, match="must be True or False"):
        Ledger(path, epsilon=1.0, delta=1e-9, any_noise=any_noise)
    assert not path.exists()


def test_epsilon_of_a_ledger_in_rho_follows_its_noise(path: Path) -> None:
    ledger, noise = Ledger(path, 1.0), DiscreteNoise(1e6, 10)
    assert ledger.epsilon(1e-9) == 0.0
    for _ in range(2):
        ledger.charge(0.1, what="Gaussian", noise=noise)
    cost = math.sqrt(2 * 0.2)
    assert ledger.epsilon(1e-9) == pytest.approx(epsilon_at(cost, 1e-9, noise.loss), rel=1e-9)
    ledger.charge(0.1, what="of another kind")
    assert ledger.epsilon(1e-9) == pytest.approx(epsilon_at(math.sqrt(2 * 0.3), 1e-9), rel=1e-9)


def test_one_in_rho_is_not_one_in_epsilon(path: Path) -> None:
    assert Ledger(path, rho_at(1.0, 1e-9)).privacy is None
    with pytest.raises(LedgerError, match=r"not epsilon = 1\.0 at delta = 1e-9"):
        Ledger(path, epsilon=1.0, delta=1e-9)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"rho": 1.0, "epsilon": 1.0, "delta": 1e-9}, "not both"),
        ({"rho": 1.0, "delta": 1e-9}, "not both"),
        ({"epsilon": 1.0}, "epsilon and delta must be given together"),
        ({"delta": 1e-9}, "epsilon and delta must be given together"),
        ({"epsilon": 0.0, "delta": 1e-9}, "epsilon"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta"),
        ({"epsilon": 1e-15, "delta": 1e-100}, "is below the least rho"),
    ],
)
def test_budgets_that_are_none(path: Path, given: dict[str, float], says: str) -> None:
    with pytest.raises(BudgetError, match=says):
        Ledger(path, **given)
    assert not path.exists()


# Measurements of OpenDP


@pytest.fixture
def contrib() -> None:
    dp.enable_features("contrib")


SPACE = dp.atom_domain(T="i64"), dp.absolute_distance(T="i64")


@pytest.mark.usefixtures("contrib")
def test_any_zcdp_measurement_can_be_charged(path: Path) -> None:
    ledger = Ledger(path, 1.0)
    gaussian = dp.m.make_gaussian(*SPACE, scale=2.0)
    entry = ledger.charge_measurement(gaussian, 2, what="a sum", key="sum")
    assert entry.rho == Fraction(gaussian.map(2)) >= Fraction(1, 2)
    assert (entry.what, entry.key, ledger.spent) == ("a sum", "sum", gaussian.map(2))
    both = dp.c.make_composition([gaussian, gaussian])
    assert ledger.charge_measurement(both, 1, what="two").rho == Fraction(both.map(1))
    pure = dp.c.make_pureDP_to_zCDP(dp.m.make_laplace(*SPACE, scale=10.0))
    assert ledger.charge_measurement(pure, 1, what="converted").rho == Fraction(pure.map(1))
    with pytest.raises(OverBudget):
        ledger.charge_measurement(gaussian, 2, what="too much")


@pytest.mark.usefixtures("contrib")
def test_other_measurements_are_refused(path: Path) -> None:
    ledger = Ledger(path, 1.0)
    gaussian = dp.m.make_gaussian(*SPACE, scale=2.0)
    for other in (
        dp.m.make_laplace(*SPACE, scale=2.0),
        dp.c.make_approximate(gaussian),
        dp.c.make_zCDP_to_approxDP(gaussian),
    ):
        with pytest.raises(InputError, match=r"must be zero-concentrated divergence, not"):
            ledger.charge_measurement(other, 1, what="x")
    for none in (None, dp.t.make_count(dp.vector_domain(SPACE[0]), dp.symmetric_distance()), 0.5):
        with pytest.raises(InputError, match="must be an OpenDP measurement"):
            ledger.charge_measurement(none, 1, what="x")
    with pytest.raises(InputError, match=r"d_in must be a finite number .* not str"):
        ledger.charge_measurement(gaussian, "x", what="x")
    with pytest.raises(InputError, match=r"has no cost at d_in = 1\.5: "):
        ledger.charge_measurement(gaussian, 1.5, what="x")
    with pytest.raises(
        InputError, match=r"rho at d_in = 0 must be a finite number above 0, not 0\.0"
    ):
        ledger.charge_measurement(gaussian, 0, what="x")
    with pytest.raises(InputError, match="must be a finite number above 0, not inf"):
        ledger.charge_measurement(dp.m.make_gaussian(*SPACE, scale=0.0), 1, what="x")
    assert ledger.entries() == ()


# The chain


def five(path: Path) -> Ledger:
    ledger = Ledger(path, 1.0)
    for i in range(5):
        ledger.charge(0.1, what=f"release {i}", key=str(i))
    return ledger


SWAP = [f"UPDATE entry SET id = {b} WHERE id = {a}" for a, b in ((2, 9), (3, 2), (9, 3))]


@pytest.mark.parametrize(
    "statements",
    [
        SWAP,
        ["UPDATE entry SET what = 'y' WHERE id = 2"],
        ["DELETE FROM entry WHERE id = 2"],
        ["DELETE FROM entry WHERE id = 5"],
        [
            "DELETE FROM entry WHERE id = 5",
            "UPDATE budget SET entries = 4, spent = (SELECT sum(rho) FROM entry)",
        ],
        [
            "DELETE FROM entry WHERE id = 5",
            "UPDATE budget SET entries = 4, head = (SELECT chain FROM entry WHERE id = 4)",
        ],
    ],
)
def test_edits_anywhere_are_noticed(path: Path, statements: list[str]) -> None:
    ledger = five(path)
    execute(path, *statements)
    for look in (
        ledger.entries,
        lambda: read_statement(ledger),
        lambda: ledger.check(0.1),
        lambda: Ledger(path),
    ):
        with pytest.raises(LedgerError, match=r"is damaged. Restore it from a copy"):
            look()


def test_the_newest_taken_away_stops_the_next_charge(path: Path) -> None:
    ledger = five(path)
    execute(path, "DELETE FROM entry WHERE id = 5")
    for look in (
        lambda: ledger.spent,
        lambda: ledger.remaining,
        lambda: ledger.charge(0.1, what="x"),
    ):
        with pytest.raises(LedgerError, match="is damaged"):
            look()


def test_an_older_copy_of_the_whole_file_is_not_noticed(path: Path) -> None:
    """What the docstring says it cannot do."""
    ledger = five(path)
    older = path.with_name("older.db")
    shutil.copy(path, older)
    ledger.charge(0.1, what="forgotten")
    shutil.copy(older, path)
    assert len(ledger.entries()) == 5


def test_a_charge_reads_no_more_with_many_entries(path: Path) -> None:
    steps: dict[int, int] = {}
    ledger = Ledger(path, 1.0)
    for n in range(40):
        with ledger._file.open_transaction() as database:
            asked: list[int] = []
            database.set_progress_handler(lambda asked=asked: asked.append(1), 1)
            ledgerrows.read_budget(database)
            steps[n] = len(asked)
        ledger.charge(0.01, what="x" * 50)
    assert steps[39] == steps[5]


# Against a plain model


class AgainstAList(RuleBasedStateMachine):
    """Charges, refusals, retries and new handles, beside a list of fractions and keys."""

    amounts = st.fractions(min_value=Fraction(1, 10**9), max_value=2) | st.floats(1e-300, 0.5)
    keys = st.none() | st.sampled_from(["a", "b", "c"])

    @initialize(total=st.fractions(min_value=Fraction(1, 100), max_value=3))
    def begin(self, total: Fraction) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.file = Path(self.folder.name, "budget.db")
        self.ledger = Ledger(self.file, total)
        self.total, self.made = total, list[tuple[Fraction, str | None]]()

    @property
    def left(self) -> Fraction:
        return self.total - sum(rho for rho, _ in self.made)

    @rule(amount=amounts, key=keys)
    def charge(self, amount: float | Fraction, key: str | None) -> None:
        if key is not None and key in [known for _, known in self.made]:
            with pytest.raises(LedgerError, match="already"):
                self.ledger.charge(amount, what="x", key=key)
        elif as_written(amount) > self.left:
            with pytest.raises(OverBudget) as caught:
                self.ledger.charge(amount, what="x", key=key)
            assert as_written(caught.value.remaining) <= self.left
            assert self.left < as_written(caught.value.requested)
        else:
            self.ledger.charge(amount, what="x", key=key)
            self.made.append((as_written(amount), key))

    @rule()
    def charge_the_rest(self) -> None:
        if self.left:
            self.made.append((self.ledger.charge(self.left, what="rest").rho, None))

    @rule(amount=amounts)
    def check(self, amount: float | Fraction) -> None:
        if as_written(amount) <= self.left:
            self.ledger.check(amount)
        else:
            with pytest.raises(OverBudget):
                self.ledger.check(amount)

    @rule(rho=st.booleans())
    def open_again(self, rho: bool) -> None:
        self.ledger = Ledger(self.file, self.total if rho else None)

    @invariant()
    def holds_the_same(self) -> None:
        budget, entries = read_statement(self.ledger)
        assert [(e.rho, e.key) for e in entries] == self.made
        assert [e.id for e in entries] == list(range(1, len(entries) + 1))
        assert (budget.total, budget.left) == (self.total, self.left)
        left = self.ledger.remaining
        assert as_written(left) <= self.left <= as_written(math.nextafter(left, 4.0))

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()


AgainstAList.TestCase.settings = settings(
    max_examples=10, stateful_step_count=12, deadline=None, derandomize=True, database=None
)
TestAgainstAList = AgainstAList.TestCase
