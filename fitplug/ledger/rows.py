"""The rows of a ledger's file: written in one transaction, and accepted only as they were written.

Entries form a hash chain, and the stages of releases form a second one. The budget's row has the
ends of both chains and the amount spent. So any edit and any missing row is noticed, even of the
newest row. Anyone who rewrites the file on purpose can make all of it agree again.
"""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from dataclasses import astuple, replace
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from fitplug.ledger.cell_costs import CellCosts
from fitplug.ledger.records import (
    STATES,
    Budget,
    DamagedError,
    Entry,
    Stage,
    decode_fraction,
    decode_unit,
    encode_fraction,
    encode_loss,
    encode_unit,
    hash_values,
)
from fitplug.numeric import ceil_float
from fitplug.privacy import CONTINUOUS, CurveLoss, DiscreteNoise

T = TypeVar("T")

APPLICATION = int.from_bytes(b"fitp", "big")
SCHEMA_VERSION = 1

# Every _exact column is numerator/denominator in hexadecimal, of any length. The column without
# _exact has the same number rounded up, for other tools and as a check for damage. The column
# "mark" has the hash of the budget's row.
SCHEMA = (
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
    """CREATE TABLE budget (id INTEGER PRIMARY KEY CHECK (id = 1), rho REAL NOT NULL,
        rho_exact TEXT NOT NULL, epsilon REAL, delta REAL, spent REAL NOT NULL,
        spent_exact TEXT NOT NULL, entries INTEGER NOT NULL, head TEXT NOT NULL,
        mark TEXT NOT NULL, stages INTEGER NOT NULL, stage_head TEXT NOT NULL, unit TEXT,
        any_noise INTEGER NOT NULL, stretch REAL, log_ratio REAL)""",
    """CREATE TABLE profile (digest TEXT PRIMARY KEY, domain TEXT NOT NULL, names TEXT NOT NULL,
        sizes TEXT NOT NULL, records INTEGER NOT NULL, costs BLOB NOT NULL)""",
    """CREATE TABLE entry (id INTEGER PRIMARY KEY, time TEXT NOT NULL, rho REAL NOT NULL,
        rho_exact TEXT NOT NULL, what TEXT NOT NULL, key TEXT UNIQUE, plan_digest TEXT,
        folder TEXT, covered_by INTEGER REFERENCES entry (id),
        profile TEXT REFERENCES profile (digest), unit TEXT NOT NULL, noise_std REAL,
        noise_answers INTEGER, chain TEXT NOT NULL)""",
    """CREATE TABLE stage (id INTEGER PRIMARY KEY, entry INTEGER NOT NULL REFERENCES entry (id),
        state TEXT NOT NULL, time TEXT NOT NULL, answers TEXT, counts TEXT, folder TEXT,
        chain TEXT NOT NULL)""",
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
        described = json.dumps(costs.names), json.dumps(costs.costs.shape), costs.records
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
        loss=budget.join_loss(entry.loss),
    )
    write_budget(database, after)
    return after


def append_stage(database: sqlite3.Connection, budget: Budget, stage: Stage) -> Budget:
    """Append a stage of a release, and return the budget after it."""
    number = budget.stages + 1
    head = _hash_stage(budget.stage_head, number, stage)
    row = number, *astuple(stage), head
    database.execute(f"INSERT INTO stage VALUES ({', '.join('?' * len(row))})", row)
    after = replace(budget, stages=number, stage_head=head)
    write_budget(database, after)
    return after


def write_budget(database: sqlite3.Connection, budget: Budget) -> None:
    """Write the budget's row."""
    total = *_encode_amount(budget.total), budget.epsilon, budget.delta
    chains = budget.entries, budget.head, budget.compute_hash(), budget.stages, budget.stage_head
    unit = None if budget.bound_unit is None else encode_unit(budget.bound_unit)
    kinds = int(budget.any_noise), *encode_loss(budget.loss)
    row = (1, *total, *_encode_amount(budget.spent), *chains, unit, *kinds)
    database.execute(f"REPLACE INTO budget VALUES ({', '.join('?' * len(row))})", row)


def read_budget(database: sqlite3.Connection) -> Budget:
    """Read the budget, verified against the newest entries and stages.

    The time does not depend on the number of entries.

    Raises:
        DamagedError: A row is missing or was edited.
    """
    with _detect_damage():
        budget = _read_budget_row(database)
        _read_entries(database, budget, newest=True)
        _read_stages(database, budget, newest=True)
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
        budget = _read_budget_row(database)
        entries = _read_entries(database, budget)
        keys = [entry.key for entry in entries if entry.key is not None]
        adds_up = sum(entry.rho for entry in entries) == budget.spent
        loss: CurveLoss | None = CONTINUOUS
        for entry in entries:
            loss = None if loss is None or entry.loss is None else loss.join(entry.loss)
        adds_up &= loss == budget.loss
        if not adds_up or len(set(keys)) != len(keys):
            raise DamagedError
        for digest in {entry.profile for entry in entries if entry.profile is not None}:
            read_costs(database, digest)
        stages: dict[int, Stage] = {}
        for stage in _read_stages(database, budget):
            before = stages.get(stage.entry)
            goes_back = before is not None and before.is_at_least(stage)
            if goes_back or not 1 <= stage.entry <= budget.entries:
                raise DamagedError
            stages[stage.entry] = stage
    return budget, entries, stages


def read_costs(database: sqlite3.Connection, digest: str) -> CellCosts:
    """Read the costs per cell with this digest.

    Raises:
        DamagedError: The row is missing or was edited.
    """
    with _detect_damage():
        query = "SELECT * FROM profile WHERE digest = ?"
        ((_, domain, names, sizes, records, packed),) = database.execute(query, (digest,))
        shape = tuple(json.loads(sizes))
        plain = zlib.decompressobj().decompress(packed, 8 * math.prod(shape) + 1)
        numbers = np.frombuffer(plain, dtype="<f8").reshape(shape).astype(np.float64)
        costs = CellCosts(domain, tuple(json.loads(names)), records, numbers)
        if costs.digest != digest:
            raise DamagedError
    return costs


def find_key(database: sqlite3.Connection, key: str) -> tuple[str, str | None] | None:
    """Return the time and the plan digest of the entry with this key; None if there is none."""
    query = "SELECT time, plan_digest FROM entry WHERE key = ?"
    return database.execute(query, (key,)).fetchone()


def _read_budget_row(database: sqlite3.Connection) -> Budget:
    """Read the budget's row, and verify its hash.

    Raises:
        DamagedError: The row was edited.
    """
    (row,) = database.execute("SELECT * FROM budget").fetchall()
    _, rho, exact, epsilon, delta, spent, spent_exact, entries, head, own_hash, *rest = row
    stages, stage_head, unit, any_noise, stretch, log_ratio = rest
    total, used = _decode_amount(rho, exact), _decode_amount(spent, spent_exact)
    chains = entries, head, stages, stage_head
    bound_unit = None if unit is None else decode_unit(unit)
    loss = None if stretch is None else CurveLoss(stretch, log_ratio)
    budget = Budget(total, epsilon, delta, used, *chains, bound_unit, bool(any_noise), loss)
    if own_hash != budget.compute_hash() or not total or used > total:
        raise DamagedError
    return budget


def _read_entries(
    database: sqlite3.Connection, budget: Budget, *, newest: bool = False
) -> tuple[Entry, ...]:
    """Read and verify all entries, or the newest two. Raises DamagedError."""
    chain = budget.first_hash, budget.entries, budget.head
    return tuple(_read_chain(database, "entry", _parse_entry, _hash_entry, chain, newest))


def _read_stages(
    database: sqlite3.Connection, budget: Budget, *, newest: bool = False
) -> list[Stage]:
    """Read and verify the stages of all releases, or the newest two. Raises DamagedError."""
    chain = budget.first_hash, budget.stages, budget.stage_head
    return _read_chain(database, "stage", _parse_stage, _hash_stage, chain, newest)


def _read_chain(
    database: sqlite3.Connection,
    table: str,
    parse: Callable[..., T],
    hash_item: Callable[[str, int, T], str],
    chain: tuple[str, int, str],
    newest: bool,
) -> list[T]:
    """Read the rows of a hash chain, and verify their hashes.

    Args:
        database: The open transaction.
        table: The table of the rows. The first value of a row is its number, the last its hash.
        parse: A function that makes an item from the values of a row without its hash.
        hash_item: A function that computes the hash of an item from the hash before it, its number
            and itself.
        chain: The hash that row 1 follows, the number of rows, and the hash of the last row.
        newest: Whether to read only the newest two rows. The hash of the older one is then not
            verified, unless it is row 1, because the hash before it is not known.

    Returns:
        The items of the rows.

    Raises:
        DamagedError: A row is missing or was edited.
    """
    first_hash, count, last_hash = chain
    # All rows are read without a lower limit, so that a row added before row 1 is noticed too.
    where = f"WHERE id >= {count - 1}" if newest else ""
    number = max(1, count - 1) if newest else 1
    before = first_hash if number == 1 else None
    items = []
    for position, *values, own_hash in database.execute(
        f"SELECT * FROM {table} {where} ORDER BY id"
    ):
        item = parse(position, *values)
        follows = before is None or hash_item(before, position, item) == own_hash
        if not follows or position != number:
            raise DamagedError
        items.append(item)
        before, number = str(own_hash), number + 1
    # Without rows, the last hash is the first one.
    if before != last_hash or number != count + 1:
        raise DamagedError
    return items


def _decode_amount(rounded: float, text: str) -> Fraction:
    """Read an exact amount, and verify it against the rounded number.

    Raises:
        DamagedError: The two differ, or the text is not an amount of at least 0.
    """
    exact = decode_fraction(text)
    if exact < 0 or _encode_amount(exact) != (rounded, text):
        raise DamagedError
    return exact


@contextlib.contextmanager
def _detect_damage() -> Iterator[None]:
    """Raise DamagedError for the errors that unexpected types or contents of rows cause."""
    try:
        yield
    except (ValueError, TypeError, AttributeError, ArithmeticError, zlib.error, MemoryError,
            RecursionError):  # fmt: skip
        raise DamagedError from None


def _parse_entry(number: int, time: str, rho: float, exact: str, *values: Any) -> Entry:
    """Make an entry from the values of its row."""
    *described, unit, noise_std, answers = values
    amount = _decode_amount(rho, exact)
    noise = None if noise_std is None else DiscreteNoise(noise_std, answers)
    entry = Entry(number, time, amount, *described, bound_unit=decode_unit(unit), noise=noise)
    is_free = entry.covered_by is not None
    if is_free != (entry.rho == 0):
        raise DamagedError
    return entry


def _hash_entry(before: str, number: int, entry: Entry) -> str:
    """Compute the hash of an entry that follows another hash."""
    amount = encode_fraction(entry.rho)
    return hash_values("entry", before, number, entry.time, amount, *_list_descriptions(entry))


def _list_descriptions(entry: Entry) -> tuple[str | float | None, ...]:
    """List all values of an entry except its number, its time and its amount."""
    e = entry
    unit = encode_unit(e.bound_unit)
    noise = (None, None) if e.noise is None else (e.noise.noise_std, e.noise.answers)
    return e.what, e.key, e.plan_digest, e.folder, e.covered_by, e.profile, unit, *noise


def _encode_amount(exact: Fraction) -> tuple[float, str]:
    """Encode an amount, rounded up and exactly."""
    return ceil_float(exact), encode_fraction(exact)


def _parse_stage(_: int, *values: Any) -> Stage:
    """Make a stage from the values of its row."""
    stage = Stage(*values)
    if stage.state not in STATES:
        raise DamagedError
    return stage


def _hash_stage(before: str, number: int, stage: Stage) -> str:
    """Compute the hash of a stage that follows another hash."""
    return hash_values("stage", before, number, *astuple(stage))
