"""The ledger: exact, shared by processes, and whole after kill -9, full disks and damage."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import math
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import FrozenInstanceError
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from fitplug.errors import BudgetError, InputError, LedgerError, OverBudget
from fitplug.ledger import Entry, Ledger, file as ledgerfile, ledger as ledger_module
from fitplug.workload import AddRemove, BoundUnit
from tests.helpers.exact import as_written

TENTH = Fraction(1, 10)
ONE = BoundUnit(AddRemove())

# Forking is left to processes of our own: pytest's may have threads by now.
DRIVER = """
import json, os, random, resource, signal, sys, time
from fractions import Fraction
from pathlib import Path
from fitplug.errors import LedgerError, OverBudget
from fitplug.ledger import Ledger
path = sys.argv[1]

def fork(work):
    child = os.fork()
    if not child:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child

def say(value):
    os.write(1, (json.dumps(value) + "\\n").encode())  # one write, so lines do not mix

def outcome(work):
    try:
        work()
        say("done")
    except (LedgerError, OverBudget) as error:
        say([type(error).__name__, str(error), error.__suppress_context__])

def race(n, work):
    wait, start = os.pipe()
    def when_started(i):
        os.close(start)
        os.read(wait, 1)
        outcome(lambda: work(i))
    children = [fork(lambda i=i: when_started(i)) for i in range(n)]
    os.close(start)
    assert all(os.waitpid(child, 0)[1] == 0 for child in children)
"""


def drive(script: str, path: Path, *arguments: str) -> list[Any]:
    """What the script says, run in a process of its own after the DRIVER."""
    root = str(Path(ledger_module.__file__).parents[2])
    ran = subprocess.run(
        [sys.executable, "-c", DRIVER + script, str(path), *arguments],
        capture_output=True,
        text=True,
        timeout=3600,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def spent(ledger: Ledger) -> Fraction:
    return sum((entry.rho for entry in ledger.entries()), Fraction(0))


def names_problem_and_fix(message: str, path: Path) -> bool:
    return message.startswith(f"the ledger {path} ") and "\n" not in message and ". " in message


def refused(path: Path, rho: float | Fraction | None, *words: str) -> None:
    """Opening fails with a LedgerError, one line with these words that hides its cause."""
    with pytest.raises(LedgerError) as caught:
        Ledger(path, rho)
    message = str(caught.value)
    assert names_problem_and_fix(message, path)
    assert all(word in message for word in words), message
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def names_in(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget.db"


# Amounts


def test_first_use_begins_it_and_later_ones_find_it(path: Path) -> None:
    ledger = Ledger(path, rho=1.0)
    assert (ledger.total, ledger.spent, ledger.remaining, ledger.entries()) == (1.0, 0.0, 1.0, ())
    entry = ledger.charge(0.25, what="pyramid", key="2024-1")
    assert entry == Entry(1, entry.time, Fraction(1, 4), "pyramid", "2024-1", bound_unit=ONE)
    assert datetime.fromisoformat(entry.time).utcoffset() == timedelta(0)
    with pytest.raises(FrozenInstanceError):
        entry.rho = Fraction(0)  # type: ignore[misc]
    for again in (Ledger(str(path)), Ledger(path, 1.0), Ledger(path, Fraction(1))):
        assert again.entries() == ledger.entries() == (entry,)
        assert (again.total, again.spent, again.remaining) == (1.0, 0.25, 0.75)
    assert names_in(path.parent) == ["budget.db"]  # nothing else is left lying about


def test_amounts_are_the_decimals_that_a_person_writes(path: Path, tmp_path: Path) -> None:
    ledger = Ledger(path, 0.3)
    assert (ledger.total, ledger.remaining) == (0.3, 0.3)
    ledger.charge(0.1, what="one")
    ledger.charge(0.2, what="two")
    assert (spent(ledger), ledger.spent, ledger.remaining) == (3 * TENTH, 0.3, 0.0)
    with pytest.raises(OverBudget):
        ledger.charge(5e-324, what="the least there is")

    ten = Ledger(tmp_path / "ten.db", 1)
    for amount in [0.1] * 4 + [np.float64(0.1), Decimal("0.1"), TENTH] + [0.1] * 3:
        ten.charge(amount, what="a tenth")  # type: ignore[arg-type]
    assert (spent(ten), ten.remaining) == (1, 0.0)


def test_a_float_of_many_digits_is_its_shortest_decimal(path: Path) -> None:
    """A bound that other code computed is charged as a fraction: its decimal may be below it."""
    ledger = Ledger(path, 1.0)
    for amount in (0.1 + 0.2, math.nextafter(0.1, 1), math.sqrt(0.02), 0.123456789012345678):
        assert ledger.charge(amount, what="computed").rho == Fraction(repr(amount))
    bound = math.nextafter(0.1, 0)
    assert ledger.charge(Fraction(bound), what="a bound").rho == Fraction(bound)
    rest = ledger.remaining
    with pytest.raises(OverBudget) as caught:
        ledger.charge(math.nextafter(rest, 1), what="more")
    assert (caught.value.requested, caught.value.remaining) == (math.nextafter(rest, 1), rest)
    assert str(path) in str(caught.value)
    assert ledger.charge(rest, what="the rest").rho == as_written(rest)
    assert 1 - spent(ledger) < Fraction(1, 10**15)


@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(parts=st.lists(st.integers(1, 10**14), min_size=1, max_size=6), places=st.integers(0, 20))
def test_decimals_add_up_as_in_the_decimal_module(parts: list[int], places: int) -> None:
    written = [Decimal(part).scaleb(-places) for part in parts]
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder, "budget.db"), float(sum(written)))
        for amount in written:
            left = ledger.remaining
            ledger.charge(float(amount), what="x")
            assert ledger.remaining == float(Decimal(repr(left)) - amount)
        assert (ledger.remaining, ledger.spent) == (0.0, ledger.total)
        with pytest.raises(OverBudget):
            ledger.check(1e-30)


def test_check_charges_nothing(path: Path) -> None:
    ledger = Ledger(path, 1.0)
    ledger.check(1.0)
    with pytest.raises(OverBudget) as caught:
        ledger.check(1 + Fraction(1, 10**400))
    assert caught.value.requested == math.nextafter(1.0, 2.0) > caught.value.remaining == 1.0
    with pytest.raises(BudgetError):
        ledger.check(0.0)
    assert ledger.entries() == ()


floats = st.floats(min_value=5e-324, max_value=2.0, allow_subnormal=True)
fractions = st.fractions(min_value=Fraction(1, 10**40), max_value=2).filter(lambda x: x > 0)


@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(total=floats | fractions, amounts=st.lists(floats | fractions, max_size=8))
@example(total=Fraction(1, 3), amounts=[Fraction(1, 3), 5e-324])
@example(total=1.0, amounts=[1.0 - 2**-53, 2**-53, Fraction(1, 2**2000)])
@example(total=1.0, amounts=[5e-324, 1.0, Fraction(1, 16**3000), math.nextafter(1.0, 0.0)])
def test_it_does_what_rational_arithmetic_does(
    total: float | Fraction, amounts: list[float | Fraction]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder, "budget.db"), total)
        made: list[Fraction] = []
        for amount in amounts:
            left = as_written(total) - sum(made)
            if as_written(amount) <= left:
                made.append(ledger.charge(amount, what="x").rho)
                assert made[-1] == as_written(amount)
            else:
                with pytest.raises(OverBudget) as caught:
                    ledger.charge(amount, what="x")
                assert as_written(caught.value.remaining) <= left < as_written(amount)
                requested = caught.value.requested
                assert as_written(amount) <= max(as_written(requested), Fraction(requested))
        assert [entry.rho for entry in Ledger(ledger.path, total).entries()] == made
        spent, left = ledger.spent, ledger.remaining
        assert as_written(math.nextafter(spent, -1.0)) < sum(made)
        assert sum(made) <= max(as_written(spent), Fraction(spent))
        exact = as_written(total) - sum(made)
        assert as_written(left) <= exact < as_written(math.nextafter(left, 3.0))


@pytest.mark.parametrize(
    "rho",
    [0, 0.0, -0.1, math.nan, math.inf, -math.inf, Fraction(0), Fraction(-1, 3), Fraction(10**400)],
)
def test_rho_out_of_range(path: Path, rho: Any) -> None:
    with pytest.raises(BudgetError, match="rho must be a finite number above 0"):
        Ledger(path, rho)
    assert not path.exists()
    ledger = Ledger(path, 1.0)
    with pytest.raises(BudgetError):
        ledger.charge(rho, what="x")
    assert ledger.entries() == ()


def test_rho_that_is_no_number_or_cannot_be_printed(path: Path) -> None:
    rhos: list[Any] = [10**5000, Fraction(10**5000, 3), np.float64("nan"), np.float32("inf")]
    for rho in [*rhos, "1", 1j, [1.0]]:
        with pytest.raises(BudgetError, match="rho must be a finite number above 0"):
            Ledger(path, rho)


@pytest.mark.parametrize("rho", [1, 0.5, np.float64(0.5), np.float32(0.1), Decimal("0.1")])
def test_other_numbers_are_exact_too(path: Path, rho: Any) -> None:
    assert Ledger(path, 1.0).charge(rho, what="x").rho == Fraction(*rho.as_integer_ratio())


@pytest.mark.parametrize("text", ["", None, 5, b"x", "half a pair \ud83d"])
def test_what_and_key_are_text(path: Path, text: Any) -> None:
    ledger = Ledger(path, 1.0)
    with pytest.raises(InputError, match="must be valid text and not empty"):
        ledger.charge(0.1, what=text)
    if text is not None:
        with pytest.raises(InputError, match="must be valid text and not empty"):
            ledger.charge(0.1, what="x", key=text)
    assert ledger.entries() == ()


def test_text_comes_back_as_it_was(path: Path) -> None:
    text = "Ärzte; DROP TABLE entry; -- '\" \x00 \n 😀"
    ledger = Ledger(path, 1.0)
    ledger.charge(0.1, what=text, key=text)
    assert [(e.what, e.key) for e in ledger.entries()] == [(text, text)]


# Keys and totals


def test_a_key_is_charged_once(path: Path) -> None:
    ledger = Ledger(path, 1.0)
    with pytest.raises(OverBudget):
        ledger.charge(2.0, what="x", key="release 1")  # refused, so the key is still free
    ledger.charge(0.1, what="x", key="release 1")
    for rho in (0.1, 0.2, 5.0):
        with pytest.raises(LedgerError, match="with the key 'release 1'") as caught:
            Ledger(path).charge(rho, what="y", key="release 1")
        assert names_problem_and_fix(str(caught.value), path)
    for _ in range(2):
        ledger.charge(0.1, what="without a key, as often as you like")
    assert [entry.key for entry in ledger.entries()] == ["release 1", None, None]


@pytest.mark.parametrize("other", [2.0, math.nextafter(0.1, 1), Fraction(0.1)])
def test_another_total(path: Path, other: float | Fraction) -> None:
    Ledger(path, 0.1).charge(0.01, what="x")
    refused(path, other, "rho = 0.1,", f"not {other}", "Leave the budget out")
    assert Ledger(path, 0.1).spent == 0.01


def test_no_ledger_and_no_rho(path: Path) -> None:
    refused(path, None, "does not exist yet", "rho, or epsilon and delta")
    assert names_in(path.parent) == []


# Several at once


def test_eight_processes_race_for_the_last_of_the_budget(path: Path) -> None:
    Ledger(path, 1.0)
    said = drive(
        """
def work(i):
    ledger = Ledger(path)
    for k in range(20):
        outcome(lambda: ledger.charge(Fraction(1, 100), what=f"{i}, {k}"))
race(8, work)
""",
        path,
    )
    kinds = Counter("done" if one == "done" else one[0] for one in said)
    assert kinds == {"done": 100 + 8, "OverBudget": 60}  # 8: the workers' own ends
    ledger = Ledger(path)
    assert spent(ledger) == 1
    assert len({entry.what for entry in ledger.entries()}) == 100


def test_processes_race_for_one_key(path: Path) -> None:
    Ledger(path, 1.0)
    said = drive("race(8, lambda i: Ledger(path).charge(0.01, what=str(i), key='once'))", path)
    assert said.count("done") == 1
    assert all("already" in one[1] for one in said if one != "done")
    assert len(Ledger(path).entries()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("round_", range(3))
def test_processes_race_to_begin_it(path: Path, round_: int) -> None:
    said = drive("race(8, lambda i: Ledger(path, 1.0).charge(0.125, what=str(i)))", path)
    assert said == ["done"] * 8
    assert spent(Ledger(path)) == 1
    assert names_in(path.parent) == ["budget.db"]


@pytest.mark.slow
@pytest.mark.parametrize("round_", range(3))
def test_processes_race_to_begin_it_with_different_totals(path: Path, round_: int) -> None:
    said = drive("race(8, lambda i: Ledger(path, 1.0 + i % 2))", path)
    losers = [one for one in said if one != "done"]
    assert len(losers) == 4
    assert all(
        kind == "LedgerError" and names_problem_and_fix(text, path) for kind, text, _ in losers
    )
    total = Ledger(path).total
    assert all(f"rho = {total!r}, not {3.0 - total!r}" in text for _, text, _ in losers)


def test_threads_share_one_object(path: Path) -> None:
    ledger = Ledger(path, 1.0)
    refusals: list[OverBudget] = []

    def work() -> None:
        for _ in range(5):
            try:
                ledger.charge(Fraction(1, 20), what="x")
            except OverBudget as error:
                refusals.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert spent(ledger) == 1
    assert len(refusals) == 20


def test_one_that_holds_it_too_long(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(path, 1.0)
    holder = sqlite3.connect(path, isolation_level=None)
    try:
        holder.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr(ledgerfile, "_BUSY_SECONDS", 0.05)
        assert ledger.remaining == 1.0  # readers do not wait
        with pytest.raises(LedgerError, match=r"in use by another process. Try again"):
            ledger.charge(0.1, what="x")
    finally:
        holder.close()
    ledger.charge(0.1, what="x")
    assert len(ledger.entries()) == 1


# Kill -9


@pytest.mark.parametrize(
    ("kills", "workers"),
    [(40, 2), pytest.param(200, 8, marks=pytest.mark.long)],
)
def test_kill_at_any_moment_loses_no_charge(path: Path, kills: int, workers: int) -> None:
    acknowledged = path.with_name("acknowledged")
    Ledger(path, 1.0)
    said = drive(
        """
acknowledged, kills, workers = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
parent = os.getpid()
Path(acknowledged).touch()
def work():
    out = os.open(acknowledged, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    while os.getppid() == parent:  # and not for ever, should the test fail
        key = os.urandom(8).hex()
        try:
            Ledger(path).charge(Fraction(1, 4 * kills), what="x", key=key)
        except OverBudget:
            return  # or it would take the processor from those that still look
        os.write(out, key.encode() + b"\\n")
moments = random.Random(2)
children = []
for _ in range(kills + workers - 1):  # several, so that others are at work while one dies
    children.append(fork(work))
    if len(children) == workers:
        time.sleep(moments.uniform(0.0, 0.04))
        child = children.pop(0)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        known = set(Path(acknowledged).read_text().split())
        entries = Ledger(path).entries()  # opens, every time
        assert {e.key for e in entries} >= known
        assert sum(e.rho for e in entries) <= 1
        say(len(entries))
for child in children:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
""",
        path,
        str(acknowledged),
        str(kills),
        str(workers),
    )
    assert len(said) == kills
    assert said == sorted(said)
    ledger = Ledger(path, 1.0)
    keys, known = {entry.key for entry in ledger.entries()}, set(acknowledged.read_text().split())
    assert known
    assert keys >= known
    assert len(keys - known) <= kills + workers  # at most the one each was killed in
    if ledger.remaining:
        ledger.charge(1 - spent(ledger), what="the rest")
    assert spent(ledger) == 1
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()


@pytest.mark.slow
def test_kill_while_it_begins_leaves_all_or_nothing(path: Path) -> None:
    said = drive(
        """
moments = random.Random(3)
for i in range(40):
    one = f"{path}-{i}"
    child = fork(lambda: Ledger(one, 1.0).charge(0.5, what="x"))
    time.sleep(moments.uniform(0.0, 0.02) if i else 0)
    while i == 1 and not os.path.exists(one):  # one at least gets there, on a slow machine too
        time.sleep(0.0001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    there = os.path.exists(one)
    say([there, len((Ledger(one) if there else Ledger(one, 1.0)).entries())])
""",
        path,
    )
    assert len(said) == 40
    assert all(there or entries == 0 for there, entries in said)
    assert {there for there, _ in said} == {True, False}, "the moments have missed what they test"


# Files that are not a whole ledger


def test_a_database_of_something_else_is_left_alone(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE entry (id)")
    database.close()
    before = path.read_bytes()
    for rho in (None, 1.0):
        refused(path, rho, "not a ledger", "ame another file")
    assert path.read_bytes() == before
    assert names_in(path.parent) == ["budget.db"]


@pytest.mark.parametrize("content", [b"not a database, by a long way. " * 100, b"x", bytes(8192)])
def test_a_file_of_something_else(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    for rho in (None, 1.0):
        refused(path, rho, "another file")
    assert path.read_bytes() == content


def test_an_empty_file_is_not_taken_for_a_new_budget(path: Path) -> None:
    path.touch()
    refused(path, 1.0, "is an empty file", "Restore it")


def test_another_schema_version(path: Path) -> None:
    Ledger(path, 1.0)
    edit(path, "PRAGMA user_version = 5")
    refused(path, 1.0, "another version of fitplug", "Use that version")


def edit(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as database:
        database.execute(statement)
    database.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entry SET rho_exact = '1/8' WHERE id = 1",
        "UPDATE entry SET rho = 0.01 WHERE id = 1",
        "UPDATE entry SET rho = 'much' WHERE id = 1",
        "UPDATE entry SET rho = -0.25, rho_exact = '-1/4' WHERE id = 1",
        "UPDATE entry SET rho_exact = '1/0' WHERE id = 1",
        "UPDATE entry SET rho_exact = '1' WHERE id = 1",
        "UPDATE entry SET rho_exact = x'ff' WHERE id = 1",
        "UPDATE entry SET what = CAST(x'ff' AS TEXT) WHERE id = 1",
        "UPDATE budget SET rho = 5",
        "UPDATE budget SET rho = 5, rho_exact = '5/1'",
        "UPDATE budget SET rho = 0.25, rho_exact = '1/4'",  # less than was spent
        "UPDATE budget SET spent = 0.25, spent_exact = '1/4'",
        "UPDATE budget SET spent = 0.25, spent_exact = '1/4', entries = 1",
        "UPDATE budget SET entries = 'two'",
        "UPDATE budget SET epsilon = 1, delta = 1e-9",
        "DELETE FROM budget",
        "DELETE FROM entry WHERE id = 2",  # the newest
        "DELETE FROM entry",
        "INSERT INTO entry SELECT 3, time, rho, rho_exact, what, key, plan_digest, folder,"
        " covered_by, profile, unit, noise_std, noise_answers, chain FROM entry WHERE id = 2",
        "UPDATE entry SET time = '2020-01-01' WHERE id = 2",
        "UPDATE entry SET what = 'y' WHERE id = 1",
        "UPDATE entry SET key = 'y' WHERE id = 2",
        "UPDATE entry SET plan_digest = 'y' WHERE id = 2",
        "UPDATE entry SET folder = 'y' WHERE id = 2",
        "UPDATE entry SET covered_by = 1, rho = 0, rho_exact = '0/1' WHERE id = 2",
        "UPDATE entry SET chain = 'y' WHERE id = 2",
        "UPDATE entry SET unit = '{\"records\": 2}' WHERE id = 2",
        "UPDATE budget SET unit = '{\"records\": 2}'",
        "UPDATE budget SET unit = NULL",
        "UPDATE entry SET noise_std = 1e9, noise_answers = 1 WHERE id = 2",
        "UPDATE budget SET stretch = 1.0, log_ratio = 0.0",
        "UPDATE budget SET any_noise = 1",
        "DELETE FROM entry WHERE id = 1",
        "ALTER TABLE entry ADD COLUMN more TEXT",
        "DROP TABLE entry",
    ],
)
def test_an_edited_ledger(path: Path, statement: str) -> None:
    ledger = Ledger(path, 1.0)
    for _ in range(2):
        ledger.charge(0.25, what="x")
    edit(path, statement)
    refused(path, None, "is damaged. Restore it from a copy")
    with pytest.raises(LedgerError, match="is damaged"):
        ledger.charge(0.1, what="x")


def full_ledger(path: Path) -> bytes:
    ledger = Ledger(path, 1.0)
    for i in range(40):
        ledger.charge(0.01, what=f"{i} " + "x" * 500)
    return path.read_bytes()


def test_a_truncated_file(path: Path) -> None:
    whole = full_ledger(path)
    assert len(whole) > 5 * 4096
    for size in (1, 50, 100, 4095, 4096, 2 * 4096, len(whole) // 2, len(whole) - 4096):
        path.write_bytes(whole[:size])
        refused(path, 1.0, "from a copy")
    path.write_bytes(whole)
    assert Ledger(path).spent == pytest.approx(0.4)


def test_damage_anywhere_never_makes_room(path: Path) -> None:
    whole = full_ledger(path)
    before = Ledger(path).spent
    random = np.random.default_rng(4)
    survived = 0
    for start in range(0, len(whole), 997):
        damaged = bytearray(whole)
        damaged[start : start + 16] = random.bytes(len(damaged[start : start + 16]))
        path.write_bytes(damaged)
        with contextlib.suppress(LedgerError):
            ledger = Ledger(path)
            survived += 1  # it fell on a text, or on nothing
            assert ledger.spent >= before
            assert ledger.remaining <= 1 - before
        for other in path.parent.glob("budget.db-*"):
            other.unlink()
    assert survived < len(whole) // 997


def test_a_journal_without_its_ledger(path: Path) -> None:
    Path(f"{path}-journal").write_bytes(b"what the file held before a charge")
    refused(path, 1.0, "-journal", "Restore both")


def test_a_file_system_without_shared_memory_holds_ledgers(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As network file systems are: SQLite's way of locking by files has no shared memory."""
    connect = sqlite3.connect

    def connect_without_memory(name: str, **options: Any) -> sqlite3.Connection:
        return connect(f"{name}&vfs=unix-dotfile", **options)

    monkeypatch.setattr(sqlite3, "connect", connect_without_memory)
    Ledger(path, 1.0).charge(0.5, what="x")
    assert [entry.rho for entry in Ledger(path).entries()] == [0.5]
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_write_ahead_log_is_taken_back(path: Path, tmp_path: Path) -> None:
    Ledger(path, 1.0).charge(0.5, what="x")
    other = tmp_path / "other.db"
    for file in (path, other):
        with contextlib.closing(sqlite3.connect(file)) as database:
            assert database.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
            if file == other:
                database.execute("CREATE TABLE anything (x)")
    Ledger(path).charge(0.25, what="y")
    refused(other, 1.0, "is not a ledger")
    for file, mode in ((path, "delete"), (other, "wal")):  # another program's file is left alone
        with contextlib.closing(sqlite3.connect(file)) as database:
            assert database.execute("PRAGMA journal_mode").fetchone() == (mode,)
    assert Ledger(path).spent == 0.75


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EPERM, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_not_a_ledger_in_use(
    path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """SQLite's errors were seen on a FUSE mount whose server refuses locks with these codes."""
    Ledger(path, 1.0)
    message = {errno.ENOLCK: "database is locked", errno.EPERM: "access permission denied"}

    def fail(*given: Any, **options: Any) -> sqlite3.Connection:
        raise sqlite3.OperationalError(message.get(code, "disk I/O error"))

    monkeypatch.setattr(sqlite3, "connect", fail)
    with pytest.raises(LedgerError, match=r"in use|damaged|disk's space"):
        Ledger(path)

    def refuse(*given: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "lockf", refuse)
    refused(path, 1.0, "without file locks", "NFS 4")


def test_a_write_ahead_log_that_cannot_be_shared_is_named(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Ledger(path, 1.0)

    def fail(*given: Any, **options: Any) -> sqlite3.Connection:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(sqlite3, "connect", fail)
    refused(path, 1.0, "Check the disk's space")
    Path(f"{path}-wal").touch()
    refused(path, 1.0, "write-ahead log", "local disk")


@pytest.mark.parametrize(
    ("kind", "option"),
    [
        ("nfs", "nolock"),
        ("nfs", "local_lock=all"),
        ("nfs4", "local_lock=posix"),
        ("cifs", "nobrl"),
        ("lustre", "localflock"),
        ("ext4", "nolock"),
        ("nfs4", "hard"),
    ],
)
def test_locks_that_other_machines_do_not_see_are_refused(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, option: str
) -> None:
    device = path.parent.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"21 1 0:20 / /proc rw - proc proc rw\n"
        f"36 35 {number} / /data rw,noatime shared:1 - {kind} server:/data rw,{option},hard\n"
    )
    monkeypatch.setattr(ledgerfile, "_MOUNTS", mounts)
    if kind == "ext4" or option == "hard":
        assert Ledger(path, 1.0).spent == 0
    else:
        refused(path, 1.0, option, "Use a local disk")
        assert not path.exists()


# Paths, rights and room


def test_paths_that_cannot_be_a_ledger(tmp_path: Path) -> None:
    refused(tmp_path, 1.0, "is a folder")
    refused(tmp_path / "missing" / "budget.db", 1.0, "Create the folder first")
    (tmp_path / "file").write_text("x")
    refused(tmp_path / "file" / "budget.db", 1.0, "ame another file")
    refused(tmp_path / ("x" * 300), 1.0, "ame another file")
    refused(tmp_path / "a\0b", 1.0, "ame another file")
    (tmp_path / "loop").symlink_to("loop")
    refused(tmp_path / "loop", 1.0, "ame another file")
    (tmp_path / "dangling").symlink_to("nowhere")
    refused(tmp_path / "dangling", 1.0, "cannot be opened")
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for ever
    refused(tmp_path / "pipe", 1.0, "Name a file")
    refused(Path("/dev/full"), 1.0, "Name a file")


@pytest.mark.parametrize("name", ["a ?b#c%20&mode=ro.db", ":memory:", "file:x?mode=memory", "ü 😀"])
def test_names_that_mean_something_elsewhere(tmp_path: Path, name: str) -> None:
    Ledger(tmp_path / name, 1.0).charge(0.5, what="x")
    assert names_in(tmp_path) == [name]
    assert Ledger(tmp_path / name).spent == 0.5


def test_links_and_a_change_of_folder(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ledger = Ledger(path.name, 1.0)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "link").symlink_to(path)
    monkeypatch.chdir(tmp_path / "elsewhere")
    Ledger("link").charge(0.5, what="x")
    assert ledger.spent == 0.5


def test_a_ledger_taken_away_while_in_use(path: Path) -> None:
    ledger = Ledger(path, 1.0)
    path.unlink()
    with pytest.raises(LedgerError, match=r"cannot be opened. Check that it exists"):
        ledger.charge(0.1, what="x")
    assert not path.exists()


def test_without_the_right_to_write() -> None:
    # pytest's own folders may be closed to the user that root becomes here.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("closed", "open"):
            (folder / part).mkdir()
            Ledger(folder / part / "budget.db", 1.0).charge(0.25, what="x")
        Ledger(folder / "open" / "secret.db", 1.0)
        (folder / "open" / "secret.db").chmod(0)
        (folder / "open" / "budget.db").chmod(0o444)
        (folder / "closed").chmod(0o555)
        (folder / "open").chmod(0o777)
        folder.chmod(0o755)
        try:
            said = drive(
                """
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
folder = Path(path)
outcome(lambda: Ledger(folder / "closed" / "new.db", 1.0))
outcome(lambda: Ledger(folder / "closed" / "budget.db", 1.0).charge(0.1, what="x"))
outcome(lambda: Ledger(folder / "open" / "budget.db", 1.0).charge(0.1, what="x"))
outcome(lambda: Ledger(folder / "open" / "secret.db", 1.0))
outcome(lambda: Ledger(folder / "open" / "new.db", 1.0).charge(0.1, what="x"))
""",
                folder,
            )
        finally:
            (folder / "closed").chmod(0o755)
        files = ["closed/new.db", "closed/budget.db", "open/budget.db", "open/secret.db"]
        for file, (kind, message, hides_its_cause) in zip(files, said[:4], strict=True):
            assert kind == "LedgerError"
            assert names_problem_and_fix(message, folder / file)
            assert hides_its_cause
        assert "cannot be created (Permission denied). Choose a folder" in said[0][1]
        assert "Give this user write access" in said[1][1]
        assert "cannot be written. Give this user write access" in said[2][1]
        assert said[4] == "done"
        assert names_in(folder / "closed") == ["budget.db"]
        for part in ("closed", "open"):
            assert Ledger(folder / part / "budget.db").spent == 0.25


def test_files_may_not_grow(path: Path) -> None:
    """What a quota or a full disk does, by a limit on the size of files."""
    said = drive(
        """
def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
for size in (0, 1000, 5000):
    limit(size)
    outcome(lambda: Ledger(path, 1.0))
    assert os.listdir(Path(path).parent) == []
limit(resource.RLIM_INFINITY)
ledger = Ledger(path, 1.0)
limit(80_000)  # the index of the log alone is 32 kB
made = 0
try:
    while True:
        ledger.charge(Fraction(1, 1000), what="x" * 1000)
        made += 1
except LedgerError as error:
    say(["LedgerError", str(error), error.__suppress_context__])
say([made, len(ledger.entries())])
limit(resource.RLIM_INFINITY)
ledger.charge(Fraction(1, 1000), what="room again")
say([made + 1, len(Ledger(path).entries())])
""",
        path,
    )
    assert len(said) == 6
    for kind, message, hides_its_cause in said[:4]:
        assert kind == "LedgerError"
        assert names_problem_and_fix(message, path)
        assert hides_its_cause
        assert "quota" in message or "disk is full" in message
    (made, held), after = said[4:]
    assert made == held > 0
    assert after == [made + 1, made + 1]


def test_a_full_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(sqlite3.Connection):
        def __init__(self, *args: Any, **keywords: Any) -> None:
            super().__init__(*args, **keywords)
            self.execute("PRAGMA max_page_count = 1")  # as small as the file is now

    ledger = Ledger(path, 1.0)
    connect = sqlite3.connect
    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, factory=Full, **k))
        with pytest.raises(LedgerError, match=r"the disk is full. Free some space and try again"):
            ledger.charge(0.5, what="x" * 10_000)
        refused(path.with_name("new.db"), 1.0, "the disk is full")
    assert ledger.entries() == ()
    assert names_in(path.parent) == ["budget.db"]


def test_a_file_system_without_what_it_takes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", no_links)
        refused(path, 1.0, "cannot be created (Operation not permitted)", "local disk")
    assert names_in(path.parent) == []


def test_a_copy_of_the_file_alone_holds_every_charge(path: Path) -> None:
    ledger = Ledger(path, 1.0)
    ledger.charge(0.5, what="x")
    copy = path.with_name("copy.db")
    shutil.copy(path, copy)
    assert Ledger(copy).entries() == ledger.entries()


def test_it_is_durable(path: Path) -> None:
    ledger = Ledger(path, 1.0)
    with ledger._file.open_transaction() as database:
        assert database.execute("PRAGMA foreign_keys").fetchone() == (1,)
        assert database.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert database.execute("PRAGMA synchronous").fetchone() == (3,)


class TestDeferred:
    """A ledger that its first charge creates."""

    def test_reads_as_unspent_until_it_is_charged(self, tmp_path: Path) -> None:
        path = tmp_path / "budget.db"
        ledger = Ledger(path, rho=1.0, unit=AddRemove(), deferred=True)
        assert (ledger.total, ledger.spent, ledger.entries(), ledger.stages()) == (1, 0, (), {})
        with pytest.raises(OverBudget):
            ledger.check(2.0)
        assert list(tmp_path.iterdir()) == []
        ledger.charge(0.25, what="first")
        assert Ledger(path, rho=1.0, unit=AddRemove()).spent == 0.25
        ledger.charge(0.5, what="second")
        assert ledger.remaining == 0.25

    def test_another_process_may_create_it_first(self, tmp_path: Path) -> None:
        path = tmp_path / "budget.db"
        same, other = (Ledger(path, rho=rho, deferred=True) for rho in (1.0, 2.0))
        Ledger(path, rho=1.0).charge(0.75, what="first")
        assert same.spent == 0.75
        for act in (lambda: other.spent, lambda: other.charge(1.0, what="more")):
            with pytest.raises(LedgerError, match=r"has a budget of rho = 1\.0, not rho = 2\.0"):
                act()
        with pytest.raises(OverBudget):
            same.charge(0.5, what="second")

    def test_a_file_that_is_gone_is_not_created_again(self, tmp_path: Path) -> None:
        path = tmp_path / "budget.db"
        ledger = Ledger(path, rho=1.0, deferred=True)
        ledger.charge(0.75, what="first")
        path.unlink()
        with pytest.raises(LedgerError, match="cannot be opened"):
            ledger.charge(0.75, what="second")
        assert not path.exists()

    def test_without_a_budget_it_must_exist(self, tmp_path: Path) -> None:
        with pytest.raises(LedgerError, match="does not exist yet"):
            Ledger(tmp_path / "budget.db", deferred=True)


def test_it_shows_what_is_spent(path: Path) -> None:
    ledger = Ledger(path, 0.3, unit=AddRemove(records=2))
    ledger.charge(0.1, what="a <b>first</b> table")
    assert repr(ledger) == f"Ledger({str(path)!r}: rho = 0.1 of 0.3 spent)"
    shown = ledger._repr_html_()
    assert "spent: rho = 0.1<" in shown
    assert "a &lt;b&gt;first&lt;/b&gt; table" in shown
    path.write_bytes(b"no ledger")
    assert repr(ledger) == f"Ledger({str(path)!r}, unreadable)"
