"""The ledger: a budget of privacy in rho of zCDP, kept in a file that outlives every process.

Amounts are rational numbers, kept and summed exactly, so that whether a charge fits never depends
on rounding; as floats, `spent` is rounded up and `remaining` down. One SQLite file in write-ahead
mode, which needs a local disk; a charge is one transaction, on the disk before `charge` returns.
"""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from fractions import Fraction
from pathlib import Path

from fitplug.errors import BudgetError, InputError, LedgerError, OverBudget

_APPLICATION = int.from_bytes(b"fitp", "big")
_SCHEMA_VERSION = 1
_BUSY_SECONDS = 30.0

# rho_exact is numerator/denominator in hexadecimal, of any length; rho is the same rounded up, for
# readers with other tools and as a check on damage.
_SCHEMA = f"""
BEGIN;
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_SCHEMA_VERSION};
CREATE TABLE budget (rho REAL NOT NULL, rho_exact TEXT NOT NULL);
CREATE TABLE entry (id INTEGER PRIMARY KEY, time TEXT NOT NULL, rho REAL NOT NULL,
    rho_exact TEXT NOT NULL, what TEXT NOT NULL, key TEXT UNIQUE);
"""

_DAMAGED = "is damaged: restore it from a copy"
_SENTENCES = {  # by what SQLite says, as error codes came with Python 3.11
    "lock": "is in use by another process: try again when that one is done",
    "readonly": "cannot be written: let this user write the file and its folder",
    "unable to open": "cannot be opened: see that it exists and let this user write its folder too",
    "not a database": "is not a SQLite database: name another file or restore it from a copy",
    "is full": "cannot be written, the disk is full: make room and try again",
    "disk I/O": "cannot be read or written: check the disk's space, quota and health and try again",
}


@dataclass(frozen=True)
class Entry:
    """One charge: its number from 1, time in UTC (ISO 8601), exact rho, and what it paid for."""

    id: int
    time: str
    rho: Fraction
    what: str
    key: str | None


class Ledger:
    """A budget in rho of zCDP that several threads and processes may charge.

    rho: the whole budget, kept exactly. Needed to begin a ledger at `path`; to open one, leave it
    out or give the same. Raises BudgetError for a rho that is not finite and > 0, and LedgerError
    for no ledger and no rho, for a ledger of another budget, or for a file that cannot be used.
    """

    def __init__(self, path: str | os.PathLike[str], rho: float | Fraction | None = None) -> None:
        given = None if rho is None else _exact(rho)
        self.path = Path(path)
        self._file = self.path.absolute()  # whatever the working folder is later
        if not self._exists():
            if given is None:
                raise self._error("does not exist yet: give rho, the whole budget, to begin it")
            self._begin(given)
        total, _, _ = self._read()
        if given not in (None, total):
            raise self._error(
                f"holds a budget of rho = {_down(total)!r}, not {rho!r}: give that or no rho, or "
                "name another file if this is for the data of other people"
            )

    @property
    def total(self) -> float:
        """The whole budget, rho of zCDP, rounded down. Raises LedgerError."""
        return _down(self._read()[0])

    @property
    def spent(self) -> float:
        """The sum of all charges, rho of zCDP, rounded up. Raises LedgerError."""
        total, left, _ = self._read()
        return _up(total - left)

    @property
    def remaining(self) -> float:
        """What is left, rho of zCDP, rounded down: a charge of it fits. Raises LedgerError."""
        return _down(self._read()[1])

    def entries(self) -> tuple[Entry, ...]:
        """All charges, oldest first. Raises LedgerError."""
        return self._read()[2]

    def check(self, rho: float | Fraction) -> None:
        """Charge nothing; raise as charging rho would: OverBudget, BudgetError, LedgerError."""
        self._allow(_exact(rho), self._read()[1])

    def charge(self, rho: float | Fraction, *, what: str, key: str | None = None) -> Entry:
        """Charge exactly rho of zCDP, or raise and charge nothing; draw noise after it returns.

        what: what is paid for. key: a name for the charge, by which a retry is told from another
        release. Raises BudgetError (rho not finite and > 0), InputError (what or key not text),
        OverBudget, and LedgerError (key used before; file cannot be written). After a failure of
        the disk the charge may still turn up, which is safe: nothing was drawn on it.
        """
        amount = _exact(rho)
        for text in (what,) if key is None else (what, key):
            _check_text(text)
        with self._connection(self._file) as database:
            database.execute("BEGIN IMMEDIATE")
            _, left, entries = self._contents(database)
            if key is not None and key in {made.key for made in entries}:
                remedy = "nothing was charged; give another release another key"
                raise self._error(f"has a charge under the key {key!r} already: {remedy}")
            self._allow(amount, left)
            now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
            entry = Entry(len(entries) + 1, now, amount, what, key)
            values = (entry.id, now, *_stored(amount), what, key)
            database.execute("INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?)", values)
            database.execute("COMMIT")
        return entry

    def _allow(self, amount: Fraction, left: Fraction) -> None:
        if amount > left:
            asked, rest = _up(amount), _down(left)
            message = f"rho = {asked!r} is over budget: the ledger {self.path} has {rest!r} left"
            raise OverBudget(message, requested=asked, remaining=rest)

    def _error(self, sentence: str) -> LedgerError:
        return LedgerError(f"the ledger {self.path} {sentence}")

    def _exists(self) -> bool:
        try:
            # Asked first: a ledger in use has both files, and never loses the main one.
            log_exists = Path(f"{self._file}-wal").exists()
            status = self._file.stat()
        except FileNotFoundError:
            if not self._file.parent.is_dir():
                raise self._error("has no folder to be in: make the folder first") from None
            if log_exists:  # SQLite would take it for a part of the new ledger
                raise self._error("is gone, but its -wal file is there: restore both") from None
            return False
        except (OSError, ValueError) as error:
            raise self._error(f"cannot be opened ({error}): name another file") from None
        if not self._file.is_file():
            raise self._error("is a folder or a device: name a file")
        if not status.st_size:  # beginning anew here could forget what was spent
            raise self._error("is an empty file: restore it from a copy, or remove it to begin one")
        return True

    def _begin(self, total: Fraction) -> None:
        """Make a ledger aside, then link it into place: it is there as a whole or not at all."""
        try:
            with tempfile.TemporaryDirectory(prefix=".fitplug-", dir=self._file.parent) as aside:
                new = Path(aside, "ledger")
                with self._connection(new, "rwc") as database:
                    # Write-ahead comes last, so that the one file that is linked holds everything.
                    database.executescript(_SCHEMA)
                    database.execute("INSERT INTO budget VALUES (?, ?)", _stored(total))
                    database.execute("COMMIT")
                    if database.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
                        raise self._error("cannot be kept on this file system: use a local disk")
                with contextlib.suppress(FileExistsError):  # another process was first
                    os.link(new, self._file)
        except OSError as error:
            remedy = "choose a folder with room, on a local disk, that this user may write"
            raise self._error(f"cannot be made ({error.strerror}): {remedy}") from None

    @contextlib.contextmanager
    def _connection(self, file: Path, mode: str = "rw") -> Iterator[sqlite3.Connection]:
        """A connection for one operation; closing it rolls back what is not committed."""
        # The file is never opened in another way: closing that would drop SQLite's locks on it.
        uri = f"{file.as_uri()}?mode={mode}"
        try:
            connection = sqlite3.connect(uri, timeout=_BUSY_SECONDS, isolation_level=None, uri=True)
            with contextlib.closing(connection):
                connection.execute("PRAGMA synchronous = FULL")
                yield connection
        except (sqlite3.Error, UnicodeDecodeError) as error:
            known = (sentence for said, sentence in _SENTENCES.items() if said in str(error))
            raise self._error(next(known, _DAMAGED)) from None

    def _read(self) -> tuple[Fraction, Fraction, tuple[Entry, ...]]:
        with self._connection(self._file) as database:
            return self._contents(database)

    def _contents(self, db: sqlite3.Connection) -> tuple[Fraction, Fraction, tuple[Entry, ...]]:
        """The whole budget, what is left, all charges. Raises LedgerError if not as written."""
        if db.execute("PRAGMA application_id").fetchone() != (_APPLICATION,):
            raise self._error("is not a ledger: name another file or restore it from a copy")
        if db.execute("PRAGMA user_version").fetchone() != (_SCHEMA_VERSION,):
            raise self._error("is of another schema version: use the fitplug that wrote it")
        budget = db.execute("SELECT rho, rho_exact FROM budget").fetchall()
        rows = db.execute("SELECT * FROM entry ORDER BY id").fetchall()
        try:
            (total,) = (_loaded(rho, exact) for rho, exact in budget)
            entries = tuple(Entry(i, time, _loaded(r, x), *rest) for i, time, r, x, *rest in rows)
            left = total - sum(entry.rho for entry in entries)
            if left < 0 or [entry.id for entry in entries] != list(range(1, len(entries) + 1)):
                raise ValueError("a charge is missing or too many")
        except (ValueError, TypeError, AttributeError, ArithmeticError):
            raise self._error(_DAMAGED) from None
        return total, left, entries


def _exact(rho: float | Fraction) -> Fraction:
    given = str(rho) if isinstance(rho, float) else f"this {type(rho).__name__}"
    with contextlib.suppress(AttributeError, ValueError, OverflowError):
        exact = Fraction(*map(int, rho.as_integer_ratio()))
        given = str(float(exact))
        if exact > 0 and _up(exact) < math.inf:
            return exact
    raise BudgetError(f"rho must be a finite number above 0, not {given}")


def _check_text(text: str) -> None:
    # SQLite cannot hold half a surrogate pair, as Python makes of undecodable file names.
    if not isinstance(text, str) or not text or text.encode(errors="ignore").decode() != text:
        raise InputError("what and key of a charge must be text, neither empty nor broken Unicode")


def _up(exact: Fraction) -> float:
    near = float(exact)
    return near if near >= exact else math.nextafter(near, math.inf)


def _down(exact: Fraction) -> float:
    near = float(exact)
    return near if near <= exact else math.nextafter(near, -math.inf)


def _stored(exact: Fraction) -> tuple[float, str]:
    return _up(exact), f"{exact.numerator:x}/{exact.denominator:x}"


def _loaded(rho: float, text: str) -> Fraction:
    exact = Fraction(*(int(part, 16) for part in text.split("/")))
    if exact <= 0 or _stored(exact) != (rho, text):
        raise ValueError("the two columns do not agree")
    return exact
