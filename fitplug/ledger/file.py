"""The file of a ledger: it appears complete or not at all, and is opened for one transaction.

It uses SQLite's rollback journal. A write-ahead log would need memory that processes share, which
network file systems lack, and would hold charges that are not in the file itself, so a copy of the
file or a deleted log could lose them. A file that other code gave such a log gets its journal back.

Locks keep processes apart, even on several machines if the file system shares locks between them. A
mount that keeps locks on its own machine, or a file system without locks, is refused.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Literal

from fitplug.display import format_delta
from fitplug.domain import Domain
from fitplug.errors import BudgetError, LedgerError
from fitplug.ledger import rows
from fitplug.ledger.records import Budget, DamagedError
from fitplug.numeric import ExactNumber, floor_written
from fitplug.workload import BoundUnit, Unit

_BUSY_SECONDS = 30.0

_MOUNTS = Path("/proc/self/mountinfo")
_LOCAL_LOCKS = {  # the options that keep locks on one machine, by file system
    "nfs": ("nolock", "local_lock=all", "local_lock=posix"),
    "nfs4": ("local_lock=all", "local_lock=posix"),
    "cifs": ("nobrl",),
    "smb3": ("nobrl",),
    "lustre": ("localflock",),
}

_DAMAGED = "is damaged. Restore it from a copy."
_NO_LOCKS = (
    "is on a file system without file locks, so two processes could spend the same budget. Move "
    "it to a local disk or another file system with locks, such as NFS 4."
)
_WRITE_AHEAD = (
    "has a write-ahead log (-wal), which this file system cannot share. Move both to a local "
    "disk and use the ledger once there."
)
_PREDICATES = {  # by words of SQLite's message, because only Python 3.11 and later have its codes
    "lock": "is in use by another process. Try again when that process is done.",
    "readonly": "cannot be written. Give this user write access to the file and its folder.",
    "unable to open": "cannot be opened. Check that it exists and its folder is writable.",
    "not a database": "is not a SQLite database, as ledgers are. Name another file or restore it.",
    "is full": "cannot be written because the disk is full. Free some space and try again.",
    "disk I/O": "cannot be read or written. Check the disk's space, quota and health.",
}


class LedgerFile:
    """The file of a ledger. Every method raises LedgerError, one sentence that names the file.

    Attributes:
        deferred: The budget of a ledger that has no file yet, else None. The first change creates
            the file. Until then the ledger reads as one in which nothing is spent.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._file = self.path.absolute()  # the working folder may change later
        self.deferred: Budget | None = None

    def make_sentence(self, predicate: str) -> str:
        """Make a sentence whose subject is this ledger."""
        return f"the ledger {self.path} {predicate}"

    def make_error(self, predicate: str) -> LedgerError:
        """Make an error from a sentence whose subject is this ledger."""
        return LedgerError(self.make_sentence(predicate))

    def exists(self) -> bool:
        """Return whether there is a file that may be a ledger; False if one may be created."""
        try:
            # Look for the journal first: a ledger in use has both files, and the main one stays.
            journal_exists = Path(f"{self._file}-journal").exists()
            status = self._file.stat()
        except FileNotFoundError:
            if not self._file.parent.is_dir():
                raise self.make_error(
                    "is in a folder that does not exist. Create the folder first."
                ) from None
            if journal_exists:  # SQLite would take it for the journal of the new ledger
                raise self.make_error(
                    "is missing, but its -journal file exists. Restore both."
                ) from None
            return False
        except (OSError, ValueError) as error:
            raise self.make_error(f"cannot be opened ({error}). Name another file.") from None
        if not self._file.is_file():
            raise self.make_error("is a folder or a device. Name a file.")
        if not status.st_size:  # a new ledger in its place could forget what was spent
            raise self.make_error(
                "is an empty file. Restore it from a copy, or remove it to create a new ledger."
            )
        return True

    def create(self, budget: Budget) -> None:
        """Create the ledger in a temporary folder, then link the complete file into its place."""
        try:
            with tempfile.TemporaryDirectory(prefix=".fitplug-", dir=self._file.parent) as folder:
                new = Path(folder, "ledger")
                with self._connect(new, "rwc") as database:
                    database.execute("BEGIN")
                    rows.create_tables(database, budget)
                    database.execute("COMMIT")
                with contextlib.suppress(FileExistsError):  # another process was first
                    os.link(new, self._file)
        except OSError as error:
            remedy = "Choose a folder on a local disk with free space and write access."
            raise self.make_error(f"cannot be created ({error.strerror}). {remedy}") from None

    @contextlib.contextmanager
    def open_transaction(
        self, kind: Literal["DEFERRED", "IMMEDIATE"] = "DEFERRED"
    ) -> Iterator[sqlite3.Connection]:
        """Open a transaction: after the block it is on the disk, or undone if the block raises."""
        if self.deferred is not None and not self.exists():
            if kind == "DEFERRED":
                with _open_unspent(self.deferred) as unspent:
                    yield unspent
                return
            self.create(self.deferred)
        with self._connect(self._file) as database:
            database.execute(f"BEGIN {kind}")
            self._check_version(database)
            if self.deferred is not None:  # another process may have created it with another budget
                self.check_total(rows.read_budget(database), self.deferred)
                self.deferred = None  # an existing file is never created again
            yield database
            database.execute("COMMIT")

    def lock_if_created(self) -> Literal["DEFERRED", "IMMEDIATE"]:
        """Choose the kind of transaction for a check before a change.

        It locks the file, so that a read-only file is noticed, unless that would create the file.
        """
        is_absent = self.deferred is not None and not self.exists()
        return "DEFERRED" if is_absent else "IMMEDIATE"

    def check_total(self, budget: Budget, given: Budget, rho: ExactNumber | None = None) -> None:
        """Raise LedgerError unless the ledger has the budget that a caller gives."""
        if not budget.has_total_of(given):
            wanted = _describe_total(given) if rho is None else _write_number(rho)
            raise self.make_error(
                f"has a budget of {_describe_total(budget)}, not {wanted}. Leave the budget out."
            )

    def _check_version(self, database: sqlite3.Connection) -> None:
        """Raise LedgerError unless the file is a ledger of this schema version."""
        if database.execute("PRAGMA application_id").fetchone() != (rows.APPLICATION,):
            raise self.make_error(
                "is not a ledger. Name another file, or restore the ledger from a copy."
            )
        if database.execute("PRAGMA user_version").fetchone() != (rows.SCHEMA_VERSION,):
            raise self.make_error("was written by another version of fitplug. Use that version.")

    @cached_property
    def _missing_locks(self) -> str | None:
        """The option of the network mount that keeps locks on this machine; it is read once."""
        return _find_missing_locks(self._file.parent)

    @contextlib.contextmanager
    def _connect(self, file: Path, mode: str = "rw") -> Iterator[sqlite3.Connection]:
        """Connect for one operation. Closing the connection undoes uncommitted changes."""
        if self._missing_locks is not None:
            raise self.make_error(
                f"is on a network file system mounted with {self._missing_locks}. Use a local disk."
            )
        # Never open the file in another way: closing it would drop SQLite's locks on it.
        uri = f"{file.as_uri()}?mode={mode}"
        try:
            connection = sqlite3.connect(uri, timeout=_BUSY_SECONDS, isolation_level=None, uri=True)
            with contextlib.closing(connection):
                # EXTRA syncs the folder too. Without it, a power failure could bring a journal back
                # and undo a charge.
                connection.execute("PRAGMA synchronous = EXTRA")
                if connection.execute("PRAGMA application_id").fetchone() == (rows.APPLICATION,):
                    connection.execute("PRAGMA journal_mode = DELETE")
                connection.execute("PRAGMA foreign_keys = ON")
                yield connection
        except DamagedError:
            raise self.make_error(_DAMAGED) from None
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self.make_error(self._explain(str(error))) from None

    def _explain(self, message: str) -> str:
        """Explain an error message of SQLite, which takes a file without locks for one in use or
        damaged.
        """
        if not _can_lock(self._file.parent):
            return _NO_LOCKS
        if "disk I/O" in message and Path(f"{self._file}-wal").exists():
            return _WRITE_AHEAD
        return next((text for words, text in _PREDICATES.items() if words in message), _DAMAGED)


def _can_lock(folder: Path) -> bool:
    """Return False if files in a folder cannot be locked; True if they can, or it is unknown."""
    try:
        import fcntl
    except ImportError:  # Windows, which has locks
        return True
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return False
    except OSError:  # the folder cannot be written, which SQLite's own error explains
        pass
    return True


def _find_missing_locks(folder: Path) -> str | None:
    """Find the option of a network mount that keeps locks on this machine, on Linux.

    Returns:
        The option; None if locks hold between machines, or it is unknown whether they do.
    """
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
        device = folder.stat().st_dev
    except OSError:
        return None
    number = f"{os.major(device)}:{os.minor(device)}"
    for mount in map(str.split, mounts):  # see proc_pid_mountinfo(5)
        if len(mount) > 4 and mount[2] == number:
            options = {*mount[5].split(","), *mount[-1].split(",")}
            local = _LOCAL_LOCKS.get(mount[mount.index("-") + 1], ())
            return next((option for option in local if option in options), None)
    return None


@contextlib.contextmanager
def _open_unspent(budget: Budget) -> Iterator[sqlite3.Connection]:
    """Open a read-only ledger in memory in which nothing is spent."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        rows.create_tables(database, budget)
        database.execute("PRAGMA query_only = ON")
        yield database


def open_ledger(
    file: LedgerFile,
    given: Budget | None,
    rho: ExactNumber | None,
    bound: BoundUnit | None,
    *,
    deferred: bool = False,
) -> None:
    """Create the file of a ledger, or check its budget and unit: see `Ledger`.

    Args:
        file: The file.
        given: The budget that the caller gives, if any.
        rho: The rho that the caller gives, for error messages.
        bound: The unit of privacy that the caller gives, if any.
        deferred: Whether the first change creates the file.
    """
    if not file.exists():
        if given is None:
            raise file.make_error(
                "does not exist yet. Give rho, or epsilon and delta, to create the ledger."
            )
        if deferred:
            file.deferred = given
        else:
            file.create(given)
    with file.open_transaction() as database:
        budget, _ = rows.read_entries(database)
    if given is not None:
        file.check_total(budget, given, rho)
    if bound is not None and budget.bound_unit != bound:
        _set_unit(file, bound)


def _write_number(rho: ExactNumber) -> str:
    """Write a number as a float's decimal if that is the same number."""
    shown = repr(floor_written(Fraction(rho)))
    return shown if Fraction(shown) == rho else str(rho)


def _describe_total(budget: Budget) -> str:
    """Describe the total of a budget as it was given."""
    if budget.epsilon is None or budget.delta is None:
        return f"rho = {floor_written(budget.total)!r}"
    of_any = " for any noise" if budget.any_noise else ""
    return f"epsilon = {budget.epsilon!r} at delta = {format_delta(budget.delta)}{of_any}"


def bind_unit(unit: Unit | None, domain: Domain | None) -> BoundUnit | None:
    """Bind the unit that a caller gives to the cells of the domain, if a domain is given.

    Raises:
        BudgetError: There is a domain and no unit.
        DomainError: The domain does not have the attributes that the unit names.
    """
    if unit is None:
        if domain is not None:
            raise BudgetError("domain= needs unit=. Give both, or neither.")
        return None
    return BoundUnit(unit) if domain is None else BoundUnit.bind(unit, domain)


def _set_unit(file: LedgerFile, unit: BoundUnit) -> None:
    """Set the unit of a ledger without a unit, or the cells of its unit if they are not known.

    Raises:
        LedgerError: The ledger has another unit, or its unit has other cells.
    """
    with file.open_transaction("IMMEDIATE") as database:
        budget: Budget = rows.read_budget(database)
        completed = budget.complete_unit(unit)
        if completed.unit != unit.unit or unit.cells not in (None, completed.cells):
            raise file.make_error(
                f"is for the unit of privacy ({completed}). Use this unit instead of ({unit})."
            )
        if completed != budget.bound_unit:
            rows.write_budget(database, replace(budget, bound_unit=completed))
