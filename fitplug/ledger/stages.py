"""Stages: how far the release of each charge has come.

A release is "charged" once its cost is in the ledger, "drawn" once its noisy answers are durable
(or in the hands of the caller), and "published" once its folder is in place. Nobody saw a release
that is charged and not drawn, so its noise may be drawn anew at no further cost. What is drawn is
never drawn again.
Charges without a stage are those of `Ledger.charge`.
"""

from __future__ import annotations

import sqlite3
from dataclasses import astuple, dataclass, fields
from typing import Any, Literal, TypeAlias, get_args

from fitplug.ledger.budget import Budget
from fitplug.ledger.hash_chain import DamagedError, find_newest, hash_values, verify_chain

State: TypeAlias = Literal["charged", "drawn", "published"]
_STATES: tuple[State, ...] = get_args(State)

SCHEMA = """CREATE TABLE stage (id INTEGER PRIMARY KEY,
    entry INTEGER NOT NULL REFERENCES entry (id), state TEXT NOT NULL, time TEXT NOT NULL,
    answers TEXT, counts TEXT, output TEXT, chain TEXT NOT NULL)"""


@dataclass(frozen=True)
class Stage:
    """A stage that the release of a charge has reached.

    Attributes:
        entry: The number of the charge.
        state: How far the release has come.
        time: When the ledger recorded the stage, in UTC (ISO 8601).
        answers: The digest of the noisy answers, once they are drawn.
        counts: The seal of the exact counts that the answers were made from (`Tables.seal`), if the
            records of a person were limited.
        output: The folder of the release; None for a release in memory.
    """

    entry: int
    state: State
    time: str
    answers: str | None = None
    counts: str | None = None
    output: str | None = None

    def is_at_least(self, other: Stage) -> bool:
        """Return whether this stage is as late as another one, or later."""
        return _STATES.index(self.state) >= _STATES.index(other.state)


def append_stage(database: sqlite3.Connection, number: int, before: str, stage: Stage) -> str:
    """Append a stage as the row of this number, and return its hash."""
    own_hash = _hash_stage(before, number, stage)
    placeholders = ", ".join("?" * (len(fields(Stage)) + 2))
    database.execute(
        f"INSERT INTO stage VALUES ({placeholders})", (number, *astuple(stage), own_hash)
    )
    return own_hash


def verify_newest_stages(database: sqlite3.Connection, budget: Budget) -> None:
    """Verify the newest stages against the budget's row.

    Raises:
        DamagedError: A row is missing or was edited.
    """
    query = "SELECT * FROM stage WHERE id >= ? ORDER BY id"
    rows = database.execute(query, (budget.stages - 1,)).fetchall()
    _verify_stages(rows, find_newest(budget.stages), budget)


def read_stages(database: sqlite3.Connection, budget: Budget) -> dict[int, Stage]:
    """Read the newest stage of each entry, and verify every row.

    Raises:
        DamagedError: A row is missing or was edited.
    """
    rows = database.execute("SELECT * FROM stage ORDER BY id").fetchall()
    newest: dict[int, Stage] = {}
    for stage in _verify_stages(rows, 1, budget):
        before = newest.get(stage.entry)
        goes_back = before is not None and before.is_at_least(stage)
        if goes_back or not 1 <= stage.entry <= budget.entries:
            raise DamagedError
        newest[stage.entry] = stage
    return newest


def _verify_stages(rows: list[tuple[Any, ...]], start: int, budget: Budget) -> list[Stage]:
    """Read rows of stages, from the row of this number to the last one."""
    return verify_chain(
        rows,
        _parse_stage,
        _hash_stage,
        start=start,
        first_hash=budget.first_hash,
        count=budget.stages,
        last_hash=budget.stage_head,
    )


def _parse_stage(_: int, *values: Any) -> Stage:
    """Make a stage of the values of its row."""
    stage = Stage(*values)
    if stage.state not in _STATES:
        raise DamagedError
    return stage


def _hash_stage(before: str, number: int, stage: Stage) -> str:
    """Compute the hash of a stage that follows another hash."""
    return hash_values("stage", before, number, *astuple(stage))
