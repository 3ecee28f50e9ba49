"""The file of a ledger: begun whole or not at all, opened for one transaction at a time."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from fitplug.errors import LedgerError
from fitplug.ledger import rows as rows
from fitplug.ledger.stages import DamagedError

_BUSY_SECONDS = 30.0

_DAMAGED = "is damaged: restore it from a copy"
_SENTENCES = {  # by what SQLite says, as error codes came with Python 3.11
    "lock": "is in use by another process: try again when that one is done",
    "readonly": "cannot be written: let this user write the file and its folder",
    "unable to open": "cannot be opened: see that it exists and let this user write its folder too",
    "not a database": "is not a SQLite database: name another file or restore it from a copy",
    "is full": "cannot be written, the disk is full: make room and try again",
    "disk I/O": "cannot be read or written: check the disk's space, quota and health and try again",
}


class LedgerFile:
    """A place for a ledger. Every method raises LedgerError, one sentence that names the file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._file = self.path.absolute()  # whatever the working folder is later

    def sentence(self, predicate: str) -> str:
        """A sentence whose subject is this ledger."""
        return f"the ledger {self.path} {predicate}"

    def error(self, predicate: str) -> LedgerError:
        return LedgerError(self.sentence(predicate))

    def exists(self) -> bool:
        """Whether there is a file that may be a ledger; False if one may be begun."""
        try:
            # Asked first: a ledger in use has both files, and never loses the main one.
            log_exists = Path(f"{self._file}-wal").exists()
            status = self._file.stat()
        except FileNotFoundError:
            if not self._file.parent.is_dir():
                raise self.error("has no folder to be in: make the folder first") from None
            if log_exists:  # SQLite would take it for a part of the new ledger
                raise self.error("is gone, but its -wal file is there: restore both") from None
            return False
        except (OSError, ValueError) as error:
            raise self.error(f"cannot be opened ({error}): name another file") from None
        if not self._file.is_file():
            raise self.error("is a folder or a device: name a file")
        if not status.st_size:  # beginning anew here could forget what was spent
            raise self.error("is an empty file: restore it from a copy, or remove it to begin one")
        return True

    def begin(self, budget: rows.Budget) -> None:
        """Make a ledger aside, then link it into place: it is there as a whole or not at all."""
        try:
            with tempfile.TemporaryDirectory(prefix=".fitplug-", dir=self._file.parent) as aside:
                new = Path(aside, "ledger")
                with self._connection(new, "rwc") as database:
                    # Write-ahead comes last, so that the one file that is linked holds everything.
                    database.execute("BEGIN")
                    rows.create(database, budget)
                    database.execute("COMMIT")
                    if database.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
                        raise self.error("cannot be kept on this file system: use a local disk")
                with contextlib.suppress(FileExistsError):  # another process was first
                    os.link(new, self._file)
        except OSError as error:
            remedy = "choose a folder with room, on a local disk, that this user may write"
            raise self.error(f"cannot be made ({error.strerror}): {remedy}") from None

    def upgrade(self) -> None:
        """Bring a file of an older schema version to this one, in one transaction."""
        with self._connection(self._file) as database:
            if self._version(database) not in (1, 2):
                return
            database.execute("BEGIN IMMEDIATE")
            version = self._version(database)  # another process may have been first
            if version == 2:
                rows.upgrade_version_2(database)
                database.execute("COMMIT")
            if version != 1:
                return
            total, entries = rows.read_version_1(database)
            for table in ("entry", "budget"):
                database.execute(f"DROP TABLE {table}")
            budget = rows.Budget.unspent(total, None, None)
            rows.create(database, budget)
            for entry in entries:
                budget = rows.add(database, budget, entry)
            database.execute("COMMIT")

    @contextlib.contextmanager
    def transaction(
        self, kind: Literal["DEFERRED", "IMMEDIATE"] = "DEFERRED"
    ) -> Iterator[sqlite3.Connection]:
        """One transaction, on the disk when the block is left, or undone if the block raises."""
        with self._connection(self._file) as database:
            database.execute(f"BEGIN {kind}")
            if self._version(database) != rows.SCHEMA_VERSION:
                raise self.error("is of another schema version: use the fitplug that wrote it")
            yield database
            database.execute("COMMIT")

    def _version(self, database: sqlite3.Connection) -> int:
        if database.execute("PRAGMA application_id").fetchone() != (rows.APPLICATION,):
            raise self.error("is not a ledger: name another file or restore it from a copy")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        return int(version)

    @contextlib.contextmanager
    def _connection(self, file: Path, mode: str = "rw") -> Iterator[sqlite3.Connection]:
        """A connection for one operation; closing it rolls back what is not committed."""
        # The file is never opened in another way: closing that would drop SQLite's locks on it.
        uri = f"{file.as_uri()}?mode={mode}"
        try:
            connection = sqlite3.connect(uri, timeout=_BUSY_SECONDS, isolation_level=None, uri=True)
            with contextlib.closing(connection):
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA foreign_keys = ON")
                yield connection
        except DamagedError:
            raise self.error(_DAMAGED) from None
        except (sqlite3.Error, UnicodeDecodeError) as error:
            known = (sentence for said, sentence in _SENTENCES.items() if said in str(error))
            raise self.error(next(known, _DAMAGED)) from None
