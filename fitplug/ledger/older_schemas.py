"""Older schemas: how a ledger's file of an older version is brought to the present one.

Charges from before ledgers kept units have none. What they cost was for one person with the records
that each release says, so the unit of such a ledger is that of one record.
"""

from __future__ import annotations

import sqlite3
from dataclasses import replace

from fitplug.ledger import stages as stage_rows
from fitplug.ledger.budget import Budget, hash_total
from fitplug.ledger.entry import Entry
from fitplug.ledger.hash_chain import DamagedError
from fitplug.ledger.rows import (
    SCHEMA_VERSION,
    append_entry,
    create_tables,
    decode_amount,
    detect_damage,
    parse_budget,
    read_entries,
    verify_entries,
    write_budget,
)
from fitplug.workload import ONE_RECORD


def upgrade_version_1(database: sqlite3.Connection) -> None:
    """Rewrite a file of schema version 1, which had no hashes.

    Raises:
        DamagedError: Its rows contradict each other.
    """
    with detect_damage():
        ((rho, exact),) = database.execute("SELECT rho, rho_exact FROM budget").fetchall()
        total = decode_amount(rho, exact)
        rows = database.execute("SELECT * FROM entry ORDER BY id").fetchall()
        entries = [
            Entry(number, time, decode_amount(rounded, text), what, key)
            for number, time, rounded, text, what, key in rows
        ]
        are_numbered = [entry.id for entry in entries] == list(range(1, len(entries) + 1))
        spent = sum(entry.rho for entry in entries)
        if not are_numbered or spent > total or not all(entry.rho for entry in entries):
            raise DamagedError
    for table in ("entry", "budget"):
        database.execute(f"DROP TABLE {table}")
    budget = Budget.create(total)
    create_tables(database, budget)
    for entry in entries:
        budget = append_entry(database, budget, entry)
    write_budget(database, _state_unit(budget))


def upgrade_version_2(database: sqlite3.Connection) -> None:
    """Give a file of schema version 2 the stages of releases, after verifying all of it.

    Its charges have no stages, as it is not known whether their noise was drawn. Raises
    DamagedError.
    """
    with detect_damage():
        (row,) = database.execute("SELECT * FROM budget").fetchall()
        _, rho, exact, epsilon, delta, *_ = row
        no_stages = 0, hash_total(decode_amount(rho, exact), epsilon, delta)
        budget = parse_budget((*row, *no_stages, None), Budget.compute_hash_version_2)
        _verify_without_units(database, budget)
    database.execute("ALTER TABLE budget ADD COLUMN stages INTEGER NOT NULL DEFAULT 0")
    database.execute("ALTER TABLE budget ADD COLUMN stage_head TEXT NOT NULL DEFAULT ''")
    database.execute(stage_rows.SCHEMA)
    _add_units(database, budget)


def upgrade_version_3(database: sqlite3.Connection) -> None:
    """Give a file of schema version 3 units of privacy, after verifying all of it.

    Raises:
        DamagedError: Its rows contradict each other.
    """
    with detect_damage():
        (row,) = database.execute("SELECT * FROM budget").fetchall()
        budget = parse_budget((*row, None), Budget.compute_hash_version_3)
        _verify_without_units(database, budget)
    _add_units(database, budget)


def _verify_without_units(database: sqlite3.Connection, budget: Budget) -> None:
    """Verify the entries of a file whose entries have no units."""
    rows = database.execute("SELECT * FROM entry ORDER BY id").fetchall()
    verify_entries([(*row, None) for row in rows], 1, budget)


def _add_units(database: sqlite3.Connection, budget: Budget) -> None:
    """Add the columns of units, and verify what is then a file of the present version."""
    for table in ("budget", "entry"):
        database.execute(f"ALTER TABLE {table} ADD COLUMN unit TEXT")
    database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    write_budget(database, _state_unit(budget))
    read_entries(database)


def _state_unit(budget: Budget) -> Budget:
    """Return a budget with the unit of its charges, if there are any."""
    return replace(budget, unit=ONE_RECORD) if budget.entries else budget
