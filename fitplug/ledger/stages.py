"""The stages of releases in a ledger's file: how far the release of each charge has come.

A release is begun when it is charged, made when its noisy answers are durable (or in the hands of
the caller), and published when its folder is in place. What is begun and not made was seen by
nobody, so its noise may be drawn anew at no further cost; what is made is never drawn again.
Charges without a stage are those of `Ledger.charge`, and of files from before stages were kept.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from dataclasses import astuple, dataclass, fields
from typing import Literal, TypeAlias, get_args

State: TypeAlias = Literal["begun", "made", "published"]
_ORDER = get_args(State)

SCHEMA = """CREATE TABLE stage (id INTEGER PRIMARY KEY,
    entry INTEGER NOT NULL REFERENCES entry (id), state TEXT NOT NULL, time TEXT NOT NULL,
    answers TEXT, counts TEXT, output TEXT, chain TEXT NOT NULL)"""


class DamagedError(Exception):
    """The rows are not as they were written."""


@dataclass(frozen=True)
class Stage:
    """What became of a charge's release.

    entry: number of the charge. time: in UTC (ISO 8601). answers: digest of the noisy answers, once
    they are made. counts: seal of the exact counts that they were made from (`Tables.seal`), where
    a person's records were limited. output: the folder of the release; None for a release in
    memory.
    """

    entry: int
    state: State
    time: str
    answers: str | None = None
    counts: str | None = None
    output: str | None = None


def add(database: sqlite3.Connection, number: int, chain: str, stage: Stage) -> str:
    """Append a stage as the row of this number; returns the hash that the next one follows."""
    own = _next(chain, number, stage)
    marks = ", ".join("?" * (len(fields(Stage)) + 2))
    database.execute(f"INSERT INTO stage VALUES ({marks})", (number, *astuple(stage), own))
    return own


def check_newest(database: sqlite3.Connection, first: str, count: int, head: str) -> None:
    """Check the newest stages against their number and head. Raises DamagedError."""
    query = "SELECT * FROM stage WHERE id >= ? ORDER BY id"
    rows = database.execute(query, (count - 1,)).fetchall()
    _follow(rows, max(1, count - 1), None if count > 2 else first, count, head)


def read(
    database: sqlite3.Connection, first: str, count: int, head: str, entries: int
) -> dict[int, Stage]:
    """The newest stage of each entry, every row checked. Raises DamagedError."""
    rows = database.execute("SELECT * FROM stage ORDER BY id").fetchall()
    newest: dict[int, Stage] = {}
    for stage in _follow(rows, 1, first, count, head):
        before = newest.get(stage.entry)
        falls = before is not None and _ORDER.index(stage.state) <= _ORDER.index(before.state)
        if falls or not 1 <= stage.entry <= entries:
            raise DamagedError
        newest[stage.entry] = stage
    return newest


def _follow(
    rows: list[tuple[object, ...]], number: int, chain: str | None, count: int, head: str
) -> list[Stage]:
    """The stages of rows numbered from `number`, whose hashes follow `chain` (None: whatever the
    first of them says) and end in `head`.
    """
    stages = []
    for i, *told, own in rows:
        stage = Stage(*told)  # type: ignore[arg-type]
        follows = chain is None or _next(chain, number, stage) == own
        if not follows or i != number or stage.state not in _ORDER:
            raise DamagedError
        stages.append(stage)
        chain, number = str(own), number + 1
    if chain != head or number != count + 1:
        raise DamagedError
    return stages


def _next(chain: str, number: int, stage: Stage) -> str:
    return chained_hash("stage", chain, number, *astuple(stage))


def chained_hash(*values: str | float | None) -> str:
    """SHA-256, in hex, of values in a row."""
    return hashlib.sha256(json.dumps(values, ensure_ascii=True).encode()).hexdigest()
