"""The rows of a ledger's file: written in one transaction, and read only as they were written.

Entries form a hash chain, and the stages of releases form a second one. Where both end is kept in
the budget's row, beside what is spent. So an edit is noticed, and a row that is missing anywhere,
also the newest. Anyone who writes the file on purpose can make all of it agree again.
"""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
import zlib
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from fitplug.ledger import stages as stage_rows
from fitplug.ledger.budget import Budget
from fitplug.ledger.cell_costs import CellCosts
from fitplug.ledger.entry import Entry
from fitplug.ledger.fraction_text import decode_fraction, encode_fraction
from fitplug.ledger.hash_chain import DamagedError, find_newest, hash_values, verify_chain
from fitplug.ledger.stages import Stage
from fitplug.ledger.unit_text import decode_unit, encode_unit
from fitplug.numeric import ceil_float

APPLICATION = int.from_bytes(b"fitp", "big")
SCHEMA_VERSION = 1

# Every _exact is numerator/denominator in hexadecimal, of any length. The number beside it is the
# same rounded up, for readers with other tools and as a check on damage. The column "mark" holds
# the hash of the budget's row.
SCHEMA = (
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
    """CREATE TABLE budget (id INTEGER PRIMARY KEY CHECK (id = 1), rho REAL NOT NULL,
        rho_exact TEXT NOT NULL, epsilon REAL, delta REAL, spent REAL NOT NULL,
        spent_exact TEXT NOT NULL, entries INTEGER NOT NULL, head TEXT NOT NULL,
        mark TEXT NOT NULL, stages INTEGER NOT NULL, stage_head TEXT NOT NULL, unit TEXT)""",
    """CREATE TABLE profile (digest TEXT PRIMARY KEY, domain TEXT NOT NULL, names TEXT NOT NULL,
        sizes TEXT NOT NULL, contributions INTEGER NOT NULL, costs BLOB NOT NULL)""",
    """CREATE TABLE entry (id INTEGER PRIMARY KEY, time TEXT NOT NULL, rho REAL NOT NULL,
        rho_exact TEXT NOT NULL, what TEXT NOT NULL, key TEXT UNIQUE, plan_digest TEXT,
        output TEXT, within INTEGER REFERENCES entry (id),
        profile TEXT REFERENCES profile (digest), unit TEXT NOT NULL, chain TEXT NOT NULL)""",
    stage_rows.SCHEMA,
)


def create_tables(database: sqlite3.Connection, budget: Budget) -> None:
    """Create the tables of a new ledger."""
    for statement in SCHEMA:
        database.execute(statement)
    write_budget(database, budget)


def append_entry(
    database: sqlite3.Connection, budget: Budget, entry: Entry, costs: CellCosts | None = None
) -> Budget:
    """Append an entry with its costs per cell, and return the budget after it."""
    if costs is not None:
        described = json.dumps(costs.names), json.dumps(costs.costs.shape), costs.contributions
        database.execute(
            "INSERT OR IGNORE INTO profile VALUES (?, ?, ?, ?, ?, ?)",
            (entry.profile, costs.domain, *described, zlib.compress(costs.to_bytes())),
        )
    head = _hash_entry(budget.head, entry.id, entry)
    row = entry.id, entry.time, *_encode_amount(entry.rho), *_list_descriptions(entry), head
    database.execute(f"INSERT INTO entry VALUES ({', '.join('?' * len(row))})", row)
    after = replace(
        budget,
        spent=budget.spent + entry.rho,
        entries=entry.id,
        head=head,
        bound_unit=budget.complete_unit(entry.bound_unit),
    )
    write_budget(database, after)
    return after


def append_stage(database: sqlite3.Connection, budget: Budget, stage: Stage) -> Budget:
    """Append a stage of a release, and return the budget after it."""
    number = budget.stages + 1
    head = stage_rows.append_stage(database, number, budget.stage_head, stage)
    after = replace(budget, stages=number, stage_head=head)
    write_budget(database, after)
    return after


def write_budget(database: sqlite3.Connection, budget: Budget) -> None:
    """Write the budget's row."""
    total = *_encode_amount(budget.total), budget.epsilon, budget.delta
    chains = budget.entries, budget.head, budget.compute_hash(), budget.stages, budget.stage_head
    unit = None if budget.bound_unit is None else encode_unit(budget.bound_unit)
    row = (1, *total, *_encode_amount(budget.spent), *chains, unit)
    database.execute(f"REPLACE INTO budget VALUES ({', '.join('?' * len(row))})", row)


def read_budget(database: sqlite3.Connection) -> Budget:
    """Read the budget, verified against the newest entries and stages.

    This takes as long with many entries as with few.

    Raises:
        DamagedError: A row is missing or was edited.
    """
    with _detect_damage():
        (row,) = database.execute("SELECT * FROM budget").fetchall()
        budget = _parse_budget(row)
        query = "SELECT * FROM entry WHERE id >= ? ORDER BY id"
        newest = database.execute(query, (budget.entries - 1,)).fetchall()
        _verify_entries(newest, find_newest(budget.entries), budget)
        stage_rows.verify_newest_stages(database, budget)
    return budget


def read_entries(database: sqlite3.Connection) -> tuple[Budget, tuple[Entry, ...]]:
    """Read the budget and all entries, and verify the entire ledger.

    Raises:
        DamagedError: A row is missing or was edited.
    """
    budget, entries, _ = read_all(database)
    return budget, entries


def read_all(
    database: sqlite3.Connection,
) -> tuple[Budget, tuple[Entry, ...], dict[int, Stage]]:
    """Read and verify the entire ledger.

    Returns:
        The budget, all entries, and the newest stage of each release by the number of its entry.

    Raises:
        DamagedError: A row is missing or was edited.
    """
    with _detect_damage():
        (row,) = database.execute("SELECT * FROM budget").fetchall()
        budget = _parse_budget(row)
        rows = database.execute("SELECT * FROM entry ORDER BY id").fetchall()
        entries = _verify_entries(rows, 1, budget)
        keys = [entry.key for entry in entries if entry.key is not None]
        adds_up = sum(entry.rho for entry in entries) == budget.spent
        if not adds_up or len(set(keys)) != len(keys):
            raise DamagedError
        for digest in {entry.profile for entry in entries if entry.profile is not None}:
            read_costs(database, digest)
        stages = stage_rows.read_stages(database, budget)
    return budget, entries, stages


def read_costs(database: sqlite3.Connection, digest: str) -> CellCosts:
    """Read the costs per cell of this digest.

    Raises:
        DamagedError: The row is missing or was edited.
    """
    with _detect_damage():
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
    """Return the time and the plan digest of the entry with this key; None if there is none."""
    query = "SELECT time, plan_digest FROM entry WHERE key = ?"
    return database.execute(query, (key,)).fetchone()


def _parse_budget(row: tuple[Any, ...]) -> Budget:
    """Make the budget of its row, whose hash is verified.

    Raises:
        DamagedError: The row was edited.
    """
    _, rho, exact, epsilon, delta, spent, spent_exact, entries, head, own_hash, *rest = row
    stages, stage_head, unit = rest
    total, used = _decode_amount(rho, exact), _decode_amount(spent, spent_exact)
    chains = entries, head, stages, stage_head
    bound_unit = None if unit is None else decode_unit(unit)
    budget = Budget(total, epsilon, delta, used, *chains, bound_unit)
    if own_hash != budget.compute_hash() or not total or used > total:
        raise DamagedError
    return budget


def _verify_entries(rows: list[tuple[Any, ...]], start: int, budget: Budget) -> tuple[Entry, ...]:
    """Read rows of entries, from the row of this number to the last one.

    Raises:
        DamagedError: A row is missing or was edited.
    """
    return tuple(
        verify_chain(
            rows,
            _parse_entry,
            _hash_entry,
            start=start,
            first_hash=budget.first_hash,
            count=budget.entries,
            last_hash=budget.head,
        )
    )


def _decode_amount(rounded: float, text: str) -> Fraction:
    """Read an exact amount, verified against the number beside it.

    Raises:
        DamagedError: The two differ, or the text is no amount from 0 up.
    """
    exact = decode_fraction(text)
    if exact < 0 or _encode_amount(exact) != (rounded, text):
        raise DamagedError
    return exact


@contextlib.contextmanager
def _detect_damage() -> Iterator[None]:
    """Raise DamagedError for the errors that rows of other types or contents lead to."""
    try:
        yield
    except (ValueError, TypeError, AttributeError, ArithmeticError, zlib.error, MemoryError,
            RecursionError):  # fmt: skip
        raise DamagedError from None


def _parse_entry(number: int, time: str, rho: float, exact: str, *values: Any) -> Entry:
    """Make an entry of the values of its row."""
    *described, unit = values
    amount = _decode_amount(rho, exact)
    entry = Entry(number, time, amount, *described, bound_unit=decode_unit(unit))
    is_free = entry.within is not None
    if is_free != (entry.rho == 0):
        raise DamagedError
    return entry


def _hash_entry(before: str, number: int, entry: Entry) -> str:
    """Compute the hash of an entry that follows another hash."""
    amount = encode_fraction(entry.rho)
    return hash_values("entry", before, number, entry.time, amount, *_list_descriptions(entry))


def _list_descriptions(entry: Entry) -> tuple[str | int | None, ...]:
    """List what an entry says beside its number, its time and its amount."""
    e = entry
    unit = encode_unit(e.bound_unit)
    return e.what, e.key, e.plan_digest, e.output, e.within, e.profile, unit


def _encode_amount(exact: Fraction) -> tuple[float, str]:
    """Write an amount rounded up, and exactly."""
    return ceil_float(exact), encode_fraction(exact)
