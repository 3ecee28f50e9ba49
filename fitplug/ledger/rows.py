"""The rows of a ledger's file: written in one transaction, and read only as they were written.

Each entry holds the hash of itself and of the one before, a chain whose head stands in the budget's
row beside what is spent and the number of entries. The stages of releases (see
`fitplug.ledger.stages`) are a second chain, whose head stands in the same row. So an edit, or a row
missing anywhere, the newest too, is noticed; anyone who writes the file on purpose can make all of
it agree again.
"""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from fitplug.ledger import stages as stage_rows
from fitplug.ledger.cell_costs import CellCosts
from fitplug.ledger.stages import DamagedError, Stage, chained_hash
from fitplug.numeric import ceil_float

APPLICATION = int.from_bytes(b"fitp", "big")
SCHEMA_VERSION = 3

# Every _exact is numerator/denominator in hexadecimal, of any length; the number beside it is the
# same rounded up, for readers with other tools and as a check on damage.
SCHEMA = (
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
    """CREATE TABLE budget (id INTEGER PRIMARY KEY CHECK (id = 1), rho REAL NOT NULL,
        rho_exact TEXT NOT NULL, epsilon REAL, delta REAL, spent REAL NOT NULL,
        spent_exact TEXT NOT NULL, entries INTEGER NOT NULL, head TEXT NOT NULL,
        mark TEXT NOT NULL, stages INTEGER NOT NULL, stage_head TEXT NOT NULL)""",
    """CREATE TABLE profile (digest TEXT PRIMARY KEY, domain TEXT NOT NULL, names TEXT NOT NULL,
        sizes TEXT NOT NULL, contributions INTEGER NOT NULL, costs BLOB NOT NULL)""",
    """CREATE TABLE entry (id INTEGER PRIMARY KEY, time TEXT NOT NULL, rho REAL NOT NULL,
        rho_exact TEXT NOT NULL, what TEXT NOT NULL, key TEXT UNIQUE, plan_digest TEXT,
        output TEXT, within INTEGER REFERENCES entry (id),
        profile TEXT REFERENCES profile (digest), chain TEXT NOT NULL)""",
    stage_rows.SCHEMA,
)


@dataclass(frozen=True)
class Entry:
    """One charge: its number from 1, time in UTC (ISO 8601), exact rho, and what it paid for.

    plan_digest: of the plan released. output: where the release went. within: number of the
    earlier charge within which this one is free, rho = 0. profile: digest of the costs per cell
    that are kept with it.
    """

    id: int
    time: str
    rho: Fraction
    what: str
    key: str | None = None
    plan_digest: str | None = None
    output: str | None = None
    within: int | None = None
    profile: str | None = None


@dataclass(frozen=True)
class Budget:
    """The whole budget, exact rho, and as it was given if in epsilon and delta; what is spent, the
    number of entries and the hash of the newest, the number of stages and the hash of the newest.
    """

    total: Fraction
    epsilon: float | None
    delta: float | None
    spent: Fraction
    entries: int
    head: str
    stages: int
    stage_head: str

    @classmethod
    def unspent(cls, total: Fraction, epsilon: float | None, delta: float | None) -> Budget:
        first = _first(total, epsilon, delta)
        return cls(total, epsilon, delta, Fraction(0), 0, first, 0, first)

    @property
    def left(self) -> Fraction:
        return self.total - self.spent


def create(database: sqlite3.Connection, budget: Budget) -> None:
    """Make the tables of a new ledger."""
    for statement in SCHEMA:
        database.execute(statement)
    _write_budget(database, budget)


def add(
    database: sqlite3.Connection, budget: Budget, entry: Entry, costs: CellCosts | None = None
) -> Budget:
    """Append an entry, and its costs per cell; returns the budget after it."""
    if costs is not None:
        told = json.dumps(costs.names), json.dumps(costs.costs.shape), costs.contributions
        database.execute(
            "INSERT OR IGNORE INTO profile VALUES (?, ?, ?, ?, ?, ?)",
            (entry.profile, costs.domain, *told, zlib.compress(costs.to_bytes())),
        )
    head = _next(budget.head, entry)
    first, last = (entry.id, entry.time, *_stored(entry.rho)), _rest(entry)
    marks = ", ".join("?" * 11)
    database.execute(f"INSERT INTO entry VALUES ({marks})", (*first, *last, head))
    after = replace(budget, spent=budget.spent + entry.rho, entries=entry.id, head=head)
    _write_budget(database, after)
    return after


def add_stage(database: sqlite3.Connection, budget: Budget, stage: Stage) -> Budget:
    """Append a stage of a release; returns the budget after it."""
    head = stage_rows.add(database, budget.stages + 1, budget.stage_head, stage)
    after = replace(budget, stages=budget.stages + 1, stage_head=head)
    _write_budget(database, after)
    return after


def read_budget(database: sqlite3.Connection) -> Budget:
    """The budget's row, checked against the newest entries only: as quick with many. Raises
    DamagedError.
    """
    with _as_written():
        budget = _budget(database)
        query = "SELECT * FROM entry WHERE id >= ? ORDER BY id"
        newest = database.execute(query, (budget.entries - 1,)).fetchall()
        chain = None if budget.entries > 2 else _unspent_head(budget)
        _follow(newest, max(1, budget.entries - 1), chain, budget)
        stage_rows.check_newest(database, _unspent_head(budget), budget.stages, budget.stage_head)
    return budget


def read_entries(database: sqlite3.Connection) -> tuple[Budget, tuple[Entry, ...]]:
    """The budget and all entries, everything checked. Raises DamagedError."""
    budget, entries, _ = read_all(database)
    return budget, entries


def read_all(
    database: sqlite3.Connection,
) -> tuple[Budget, tuple[Entry, ...], dict[int, Stage]]:
    """The budget, all entries, and the newest stage of each release by the number of its entry;
    everything checked. Raises DamagedError.
    """
    with _as_written():
        budget = _budget(database)
        rows = database.execute("SELECT * FROM entry ORDER BY id").fetchall()
        entries = _follow(rows, 1, _unspent_head(budget), budget)
        keys = [entry.key for entry in entries if entry.key is not None]
        same = sum(entry.rho for entry in entries) == budget.spent
        if not same or len(set(keys)) != len(keys):
            raise DamagedError
        for digest in {entry.profile for entry in entries if entry.profile is not None}:
            read_costs(database, digest)
        first, count, head = _unspent_head(budget), budget.stages, budget.stage_head
        stages = stage_rows.read(database, first, count, head, budget.entries)
    return budget, entries, stages


def read_costs(database: sqlite3.Connection, digest: str) -> CellCosts:
    """The costs per cell of this digest. Raises DamagedError."""
    with _as_written():
        query = "SELECT * FROM profile WHERE digest = ?"
        ((_, domain, names, sizes, contributions, packed),) = database.execute(query, (digest,))
        shape = tuple(json.loads(sizes))
        plain = zlib.decompressobj().decompress(packed, 8 * math.prod(shape) + 1)
        numbers = np.frombuffer(plain, dtype="<f8").reshape(shape).astype(np.float64)
        costs = CellCosts(domain, tuple(json.loads(names)), contributions, numbers)
        if costs.digest != digest:
            raise DamagedError
    return costs


def find_key(database: sqlite3.Connection, key: str) -> tuple[str, str | None] | None:
    """Time and plan digest of the entry with this key, if there is one."""
    query = "SELECT time, plan_digest FROM entry WHERE key = ?"
    return database.execute(query, (key,)).fetchone()


def read_version_1(database: sqlite3.Connection) -> tuple[Fraction, list[Entry]]:
    """Whole budget and entries of a file of schema version 1. Raises DamagedError."""
    with _as_written():
        ((rho, exact),) = database.execute("SELECT rho, rho_exact FROM budget").fetchall()
        total = _loaded(rho, exact)
        rows = database.execute("SELECT * FROM entry ORDER BY id").fetchall()
        entries = [Entry(i, time, _loaded(r, x), what, key) for i, time, r, x, what, key in rows]
        numbered = [entry.id for entry in entries] == list(range(1, len(entries) + 1))
        spent = sum(entry.rho for entry in entries)
        if not numbered or spent > total or not all(entry.rho for entry in entries):
            raise DamagedError
    return total, entries


def upgrade_version_2(database: sqlite3.Connection) -> None:
    """Give a file of schema version 2 the stages of releases, after checking all of it. Its charges
    have none: whether their noise was drawn is not known. Raises DamagedError.
    """
    with _as_written():
        (row,) = database.execute("SELECT * FROM budget").fetchall()
        budget = _loaded_budget((*row, 0, _first(_loaded(*row[1:3]), *row[3:5])), _mark_version_2)
        rows = database.execute("SELECT * FROM entry ORDER BY id").fetchall()
        _follow(rows, 1, _unspent_head(budget), budget)
    database.execute("ALTER TABLE budget ADD COLUMN stages INTEGER NOT NULL DEFAULT 0")
    database.execute("ALTER TABLE budget ADD COLUMN stage_head TEXT NOT NULL DEFAULT ''")
    database.execute(stage_rows.SCHEMA)
    database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    _write_budget(database, budget)
    read_entries(database)


def _budget(database: sqlite3.Connection) -> Budget:
    (row,) = database.execute("SELECT * FROM budget").fetchall()
    return _loaded_budget(row, _mark)


def _loaded_budget(row: tuple[Any, ...], mark_of: Callable[[Budget], str]) -> Budget:
    _, rho, exact, epsilon, delta, spent, spent_exact, entries, head, mark, *stages = row
    total, used = _loaded(rho, exact), _loaded(spent, spent_exact)
    budget = Budget(total, epsilon, delta, used, entries, head, *stages)
    if mark != mark_of(budget) or not total or used > total:
        raise DamagedError
    return budget


def _write_budget(database: sqlite3.Connection, budget: Budget) -> None:
    given, spent = (*_stored(budget.total), budget.epsilon, budget.delta), _stored(budget.spent)
    stages = budget.stages, budget.stage_head
    row = (1, *given, *spent, budget.entries, budget.head, _mark(budget), *stages)
    database.execute(f"REPLACE INTO budget VALUES ({', '.join('?' * len(row))})", row)


def _follow(
    rows: list[tuple[Any, ...]], number: int, chain: str | None, budget: Budget
) -> tuple[Entry, ...]:
    """The entries of rows numbered from `number`, whose hashes follow `chain` (None: whatever the
    first of them says) and end in the budget's.
    """
    entries = []
    for row in rows:
        i, time, rho, exact, *rest, own = row
        entry = Entry(i, time, _loaded(rho, exact), *rest)
        follows = chain is None or _next(chain, entry) == own
        if not follows or i != number or (entry.within is None) == (entry.rho == 0):
            raise DamagedError
        entries.append(entry)
        chain, number = own, number + 1
    if chain != budget.head or number != budget.entries + 1:
        raise DamagedError
    return tuple(entries)


def _unspent_head(budget: Budget) -> str:
    return _first(budget.total, budget.epsilon, budget.delta)


def _first(total: Fraction, epsilon: float | None, delta: float | None) -> str:
    return chained_hash("budget", _text(total), epsilon, delta)


def _next(chain: str, entry: Entry) -> str:
    told = entry.id, entry.time, _text(entry.rho)
    return chained_hash("entry", chain, *told, *_rest(entry))


def _rest(entry: Entry) -> tuple[str | int | None, ...]:
    e = entry
    return e.what, e.key, e.plan_digest, e.output, e.within, e.profile


def _mark(budget: Budget) -> str:
    return chained_hash("now", _mark_version_2(budget), budget.stages, budget.stage_head)


def _mark_version_2(budget: Budget) -> str:
    spent = _text(budget.spent)
    return chained_hash("now", _unspent_head(budget), spent, budget.entries, budget.head)


def _text(exact: Fraction) -> str:
    return f"{exact.numerator:x}/{exact.denominator:x}"


def _stored(exact: Fraction) -> tuple[float, str]:
    return ceil_float(exact), _text(exact)


def _loaded(rho: float, text: str) -> Fraction:
    exact = Fraction(*(int(part, 16) for part in text.split("/")))
    if exact < 0 or _stored(exact) != (rho, text):
        raise DamagedError
    return exact


@contextlib.contextmanager
def _as_written() -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, AttributeError, ArithmeticError, zlib.error, MemoryError,
            RecursionError):  # fmt: skip
        raise DamagedError from None
