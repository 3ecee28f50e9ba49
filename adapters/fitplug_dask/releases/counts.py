"""Exact counts of a release, and how the counts of a slab reach the task that splits them.

The counts are either tables of this process, which travel with the task, or slabs of tables that
are too large for one process. Each slab is counted by one task, which writes it next to the output,
encrypted with AES-GCM. The key is derived from the secret of the key file, which lies elsewhere and
is deleted when the release is published; without a ledger it is only in the memory of this run. The
seals of all slabs are in another encrypted file, and the seal of that file is entered in the ledger
with the charge. So a resumed run draws the missing parts from the counts that were charged for, and
does not count again.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from fitplug.counts import Tables, seal_slab, seal_slabs
from fitplug.domain import Domain
from fitplug.errors import FitplugError, InputError
from fitplug.families import PartedStrategy
from fitplug.files import LocalPlace, Place, make_folder
from fitplug.numeric import IntArray
from fitplug.plan import Plan
from fitplug_dask.encryption import decrypt_long, encrypt_long
from fitplug_opendp.count_checks import (
    CountedRows,
    check_limit,
    check_tables,
    find_seal,
    list_outside_attributes,
)
from fitplug_opendp.executor import ExactCounts
from fitplug_opendp.staging import RETRY

T = TypeVar("T")

_LASTING = {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EFBIG}
_PAUSES = (0.1, 0.5, 2.0)


def retry(act: Callable[[], T], place: object) -> T:
    """Return the result of `act`, which is called again if a store fails temporarily.

    Args:
        act: A function that may be called more than once.
        place: Where it reads and writes, for the message.

    Raises:
        FitplugError: It failed. The message names the place and advises the user.
    """
    for pause in (*_PAUSES, None):
        try:
            return act()
        except OSError as error:
            if error.errno not in _LASTING and pause is not None:
                time.sleep(pause)
                continue
            why = (error.strerror or "cannot be read or written").lower()
            fault = f"{place}: {why}. {RETRY}"
        except ImportError as error:
            fault = f"a worker lacks a library: {error}"
        break
    raise FitplugError(fault)


@dataclass(frozen=True, repr=False)
class CountStore:
    """The folder of the encrypted counts of a release.

    Attributes:
        place: The folder, which has a subfolder for each run that counted.
        nonce: The nonce that hides the counts in their seals, and from which their key is derived.
        run: The name of the subfolder of the run whose counts are written or read.
    """

    place: Place
    nonce: bytes
    run: str

    def __repr__(self) -> str:
        return "CountStore()"

    def write_slab(self, number: int, counts: IntArray) -> str:
        """Store the counts of a slab durably, and return their seal.

        If the task already ran on a worker that was lost, the counts that it wrote stay.

        Raises:
            OSError: The file cannot be written.
            InputError: The existing file is damaged.
        """
        # Each count takes 8 bytes, so that the size of the file does not reveal how large it is.
        content = np.ascontiguousarray(counts, dtype="<i8").tobytes()
        encrypted = encrypt_long(self._key, content, self._name_context(number, "slab"))
        if self._slabs.create(_name_slab(number), encrypted):
            return seal_slab(self.nonce, number, counts)
        return seal_slab(self.nonce, number, self._decrypt_slab(number))

    def read_slab(self, number: int, seal: str, shape: Sequence[int]) -> IntArray:
        """Read the counts of a slab.

        Args:
            number: The number of the slab.
            seal: Its seal.
            shape: Its shape.

        Raises:
            InputError: The file is missing or damaged, or does not have this seal.
            OSError: The file cannot be read.
        """
        counts = self._decrypt_slab(number)
        if not hmac.compare_digest(seal_slab(self.nonce, number, counts), seal):
            raise self._make_error(number)
        return counts.reshape(tuple(shape))

    def write_rows(self, number: int, content: bytes) -> None:
        """Store the kept rows of a bucket of persons durably, before slabs are counted.

        If the task already ran on a worker that was lost, the rows that it wrote stay.

        Raises:
            OSError: The file cannot be written.
        """
        encrypted = encrypt_long(self._key, content, self._name_context(number, "bucket"))
        self._slabs.create(_name_rows(number), encrypted)

    def read_rows(self, number: int) -> bytes:
        """Read the kept rows of a bucket of persons.

        Raises:
            InputError: The file is missing or damaged.
            OSError: The file cannot be read.
        """
        return self._read(number, _name_rows(number), "bucket")

    def remove_rows(self) -> None:
        """Remove the rows of persons; all slabs have been counted."""
        for name in self._slabs.list_sizes():
            if name.startswith(_name_rows(None)):
                self._slabs.remove(name)

    def write_seals(self, description: Mapping[str, Any], seals: Sequence[str]) -> str:
        """Store the seals of all slabs durably, and return the seal of all of them.

        Args:
            description: A description of the counts, in JSON types.
            seals: The seal of each slab.

        Raises:
            OSError: The file cannot be written.
        """
        seal = seal_slabs(self.nonce, description, seals)
        content = json.dumps({"run": self.run, "seals": list(seals)}).encode()
        encrypted = encrypt_long(self._key, content, seal.encode())
        self.place.create(_name_seals(seal, self.run), encrypted)
        return seal

    def find_seals(
        self, description: Mapping[str, Any], seal: str
    ) -> tuple[CountStore, tuple[str, ...]] | None:
        """Find the counts with a seal; return None if they are not here.

        Returns:
            The store of the run that counted them, and the seal of each slab.

        Raises:
            OSError: The file cannot be read.
        """
        for name in sorted(self.place.list_sizes()):
            if not name.startswith(_name_seals(seal, "")):
                continue
            try:
                encrypted = self.place.read(name)
                content = json.loads(decrypt_long(self._key, encrypted, seal.encode()))
            except (FileNotFoundError, ValueError):
                continue
            seals = tuple(content["seals"])
            if seal_slabs(self.nonce, description, seals) == seal:
                return CountStore(self.place, self.nonce, content["run"]), seals
        return None

    def open(self) -> None:
        """Make the folder.

        Raises:
            OSError: It cannot be made.
        """
        if isinstance(self.place, LocalPlace):
            # Another run that ends removes the folder only if it is empty.
            make_folder(self.place.path / self.run, 0o700)
            self.place.path.chmod(0o700)

    def remove(self) -> None:
        """Remove the counts of all runs."""
        self.place.remove_all()

    def remove_run(self) -> None:
        """Remove the counts of this run, but not of other runs, which another client may use."""
        self._slabs.remove_all()
        with suppress(OSError):
            for name in self.place.list_sizes():
                if name.endswith(f"-{self.run}"):
                    self.place.remove(name)
            if isinstance(self.place, LocalPlace):
                self.place.path.rmdir()  # fails if another run has counts there

    @property
    def _key(self) -> bytes:
        return hmac.new(self.nonce, b"the key of counts in slabs", hashlib.sha256).digest()

    @property
    def _slabs(self) -> Place:
        return self.place.join(self.run)

    def _name_context(self, number: int, what: str) -> bytes:
        return f"{what} {number} of {self.run}".encode()

    def _decrypt_slab(self, number: int) -> IntArray:
        """Return the counts of a slab as a one-dimensional int64 array."""
        content = self._read(number, _name_slab(number), "slab")
        return np.frombuffer(content, "<i8").astype(np.int64)

    def _read(self, number: int, name: str, what: str) -> bytes:
        """Return the content of an encrypted file of this run."""
        try:
            return decrypt_long(self._key, self._slabs.read(name), self._name_context(number, what))
        except (FileNotFoundError, ValueError):
            raise self._make_error(number) from None

    def _make_error(self, number: int) -> InputError:
        return InputError(
            f"{self.place}: file {number} of the encrypted counts is missing or damaged. "
            "Remove this folder and run again; nothing more will be charged."
        )


def label_counts(nonce: bytes, cut: str) -> str:
    """Return a name for the counts of a release and how they are cut, which reveals neither."""
    return hmac.new(nonce, f"the name of counts cut as {cut}".encode(), hashlib.sha256).hexdigest()[
        :16
    ]


def keep_slab(store: CountStore, number: int, counts: IntArray) -> str:
    """Store the counts of a slab durably in the task that has them, and return their seal."""
    return retry(lambda: store.write_slab(number, counts), store.place)


def keep_rows(store: CountStore, number: int, content: bytes) -> None:
    """Store the kept rows of a bucket of persons durably in the task that has them."""
    return retry(lambda: store.write_rows(number, content), store.place)


def find_rows(store: CountStore, number: int) -> bytes:
    """Read the kept rows of a bucket of persons in the task that counts them."""
    return retry(lambda: store.read_rows(number), store.place)


def _name_slab(number: int) -> str:
    return f"slab-{number:05}"


def _name_rows(number: int | None) -> str:
    return f"rows-{'' if number is None else number}"


def _name_seals(seal: str, run: str) -> str:
    return f"seals-{seal[:16]}-{run}"


@dataclass(frozen=True, repr=False, eq=False)
class SlabCounts:
    """The exact counts of a slab. They are confidential.

    Attributes:
        number: The number of the slab.
        counts: The counts, with an axis for each attribute of the slab's table, which travel with
            the task; or the seal of counts that are stored.
    """

    number: int
    counts: IntArray | str

    def __repr__(self) -> str:
        return f"SlabCounts({self.number})"

    def read(self, store: CountStore | None, parted: PartedStrategy, domain: Domain) -> IntArray:
        """Return the counts."""
        counts = self.counts
        if not isinstance(counts, str):
            return counts
        assert store is not None
        shape = parted.slabs[self.number].shape_in(domain)
        return retry(lambda: store.read_slab(self.number, counts, shape), store.place)


class SplitCounts(ExactCounts):
    """Exact counts that are cut into slabs; one task splits each slab into the pieces of the parts.

    Attributes:
        store: Where tasks find counts that do not travel with them; None for tables.
    """

    store: CountStore | None = None

    @abstractmethod
    def list_slabs(self, parted: PartedStrategy, numbers: Sequence[int]) -> Sequence[SlabCounts]:
        """List the counts of slabs for the tasks that split them."""


class TableCounts(SplitCounts):
    """Counts in tables of this process."""

    def __init__(self, tables: Tables, nonce: bytes) -> None:
        """Seal the tables.

        Args:
            tables: The tables.
            nonce: The nonce of the seal.
        """
        self._tables = tables
        self.rows, self.outside = CountedRows.from_tables(tables), tables.outside
        self.seal = Tables(
            tables.domain,
            dict(tables),
            unit=tables.unit,
            person=tables.person,
            rows=tables.rows,
            outside=tables.outside,
            copy=False,
            nonce=nonce,
        ).seal

    @property
    def published_seal(self) -> str | None:
        return find_seal(self._tables)

    def check(self, plan: Plan) -> None:
        check_limit(plan, self._tables)
        check_tables(plan, self._tables)

    def list_outside_attributes(self, plan: Plan) -> tuple[str, ...]:
        return list_outside_attributes(plan, self._tables)

    def list_slabs(self, parted: PartedStrategy, numbers: Sequence[int]) -> Sequence[SlabCounts]:
        slabs = {number: parted.slabs[number] for number in numbers}
        marginals = {slab.names: self._tables.marginal(slab.names) for slab in slabs.values()}
        return [
            SlabCounts(number, marginals[slab.names][slab.index]) for number, slab in slabs.items()
        ]


class StoredCounts(SplitCounts):
    """Counts of the plan's slabs, which are stored encrypted."""

    def __init__(
        self, store: CountStore, rows: CountedRows, seal: str, seals: Sequence[str]
    ) -> None:
        """Refer to counts that are stored.

        Args:
            store: Where the counts are.
            rows: A description of the counted rows.
            seal: The seal of all slabs.
            seals: The seal of each slab.
        """
        self.store, self.rows, self.seal, self._seals = store, rows, seal, tuple(seals)

    @property
    def published_seal(self) -> str | None:
        is_of_all_rows = self.rows.rows is None and self.rows.limited == "declared"
        return None if is_of_all_rows else self.seal

    def check(self, plan: Plan) -> None:
        """Do nothing: the slabs come from the plan, and enforce the limit that is charged for."""

    def list_outside_attributes(self, plan: Plan) -> tuple[str, ...]:
        return ()

    def list_slabs(self, parted: PartedStrategy, numbers: Sequence[int]) -> Sequence[SlabCounts]:
        return [SlabCounts(number, self._seals[number]) for number in numbers]
