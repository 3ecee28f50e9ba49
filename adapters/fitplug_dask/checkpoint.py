"""Checkpoint: the counts of finished partitions, kept in a folder so that a run can resume.

What is kept is exact and confidential. It is encrypted (`key_file`), only its owner may read the
folder, and it is removed when the count has finished. Counts are used again only under the
digest of all that they depend on: the state of the files, the domain's content, the joint tables,
weights, filters and this code.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import numpy as np

import fitplug
from fitplug.errors import FitplugError, InputError
from fitplug.files import replace_file, sync
from fitplug.ledger import hash_values
from fitplug_dask.encryption import EncryptionMissingError, decrypt_long, encrypt_long
from fitplug_dask.files import CheckedFile
from fitplug_dask.kernel import Fault, Job, PartialCounts, Partition, count_partition
from fitplug_dask.key_file import KeyFile, check_encryption, derive_key
from fitplug_dask.sources import UNTRACKED
from fitplug_dask.workers import COUNTING_PACKAGES, describe_sources

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

T = TypeVar("T")

_LIBRARIES = {"NumPy": "numpy", "PyArrow": "pyarrow"}
_README = "README"
_LOCK = ".lock"
_WORKERS = "workers"
_PART = ".part"
_OWN_NAMES = re.compile(rf"{_README}|\.[0-9a-f]{{32}}\.partial|[0-9a-f]{{64}}")
"""What a checkpoint holds beside the lock. Other files are somebody else's and are left alone."""
_TEXT = """CONFIDENTIAL

This folder holds exact counts about people, encrypted under a key that is not in it. It
was made by fitplug, to resume a count that has not finished. It is removed when that
count finishes. If you do not mean to resume it, delete this folder.
"""
_EARLIER_TEXT = """CONFIDENTIAL

This folder holds exact counts about people, without any protection. It was made by
fitplug, to resume a count that has not finished. It is removed when that count finishes.
If you do not mean to resume it, delete this folder.
"""
"""Of versions that did not encrypt. Their counts are removed on entering, as of other code."""


def check_folder(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path of a folder that may hold a checkpoint.

    Raises:
        InputError: It may not hold one, or this system cannot lock it.
    """
    if fcntl is None:
        raise InputError(
            f"checkpoint {path} cannot be kept: this system, as Windows, has no lock that keeps "
            "other counts out of the folder; count without a checkpoint"
        )
    folder = Path(path).absolute()
    other = "holds files that are no checkpoint; name another folder"
    fault = None
    try:
        if not folder.parent.is_dir():
            fault = "has no folder to be in; make the folder first"
        elif folder.is_dir():
            names = {entry.name for entry in folder.iterdir()} - {_LOCK}
            said = (folder / _README).read_text(encoding="utf-8") if names else _TEXT
            ours = said in (_TEXT, _EARLIER_TEXT)
            fault = None if ours and all(map(_OWN_NAMES.fullmatch, names)) else other
        elif folder.exists():
            fault = "is a file; name a folder"
    except (FileNotFoundError, UnicodeDecodeError):
        fault = other
    except OSError:
        fault = "cannot be read; name another folder"
    if fault:
        raise InputError(f"checkpoint {path} {fault}")
    return folder


@contextlib.contextmanager
def open_checkpoint(
    path: str | os.PathLike[str],
    job: Job,
    files: Sequence[CheckedFile],
    key_file: str | os.PathLike[str] | None = None,
) -> Iterator[Checkpoint]:
    """Open the checkpoint of one count in a folder, which is made if it does not exist.

    What another count left there is removed on entering. Everything is removed if the block
    succeeds.

    Args:
        path: The folder.
        job: What is counted.
        files: The snapshot of the files.
        key_file: The file of the key; None for one in the account of this user.

    Raises:
        InputError: The folder holds something else, another process counts with it, it cannot be
            encrypted or locked, or the key of what it holds is missing.
        FitplugError: The folder, or the key, cannot be written.
    """
    folder = check_folder(path)
    for file in files:
        if file.stamp.startswith(UNTRACKED):
            raise InputError(
                f"checkpoint {path} cannot be kept: the store of {file.display_path} does not tell "
                "when its content changes; count without, or from a copy"
            )
    key = locate_key(folder, key_file)
    run = folder / _digest_count(job, files)
    lock = _name_failure(path, lambda: _lock_folder(folder))
    if lock is None:
        raise InputError(
            f"checkpoint {path} is in use by another count; wait for it or name another folder"
        )
    try:
        is_begun = any(run.glob(f"*{_PART}"))
        secret = key.read("or remove the folder to count all anew") if is_begun else key.keep()
        _name_failure(path, lambda: _keep_only(folder, run))
        yield Checkpoint(str(path), str(run), derive_key(secret, "the counts of a checkpoint"))
        _name_failure(path, lambda: _remove(folder))
        key.remove()
    finally:
        os.close(lock)


def locate_key(folder: Path, named: str | os.PathLike[str] | None) -> KeyFile:
    """Say where the key of a checkpoint is kept, and check that it can be used.

    Args:
        folder: The folder of the checkpoint, absolute.
        named: The file that the publisher names, if there is one.

    Raises:
        InputError: The file would lie beside the counts, or the package that encrypts is missing.
    """
    subject = f"checkpoint {folder}"
    check_encryption(subject)
    owner = hash_values("checkpoint", os.fsencode(folder.resolve()).hex())
    return KeyFile.locate(named, subject, owner, beside=(folder,))


def _lock_folder(folder: Path) -> int | None:
    """Make the folder if it does not exist, and lock it for this process.

    Returns:
        The open lock, which is released when it is closed or the process ends; None if another
        process has it.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The process that had the lock before may have removed the file that is locked here.
        held = os.fstat(lock).st_nlink > 0
        if held:
            _write_file(folder / _README, _TEXT.encode())
            return lock
    except BlockingIOError:
        pass
    os.close(lock)
    return None


def _keep_only(folder: Path, run: Path) -> None:
    """Remove the counts of all runs but this one."""
    for entry in folder.iterdir():
        if entry.is_dir() and entry != run and _OWN_NAMES.fullmatch(entry.name):
            shutil.rmtree(entry)
    run.mkdir(mode=0o700, exist_ok=True)


def _remove(folder: Path) -> None:
    """Remove all of a checkpoint, its README last, as that identifies what a kill leaves."""
    for entry in folder.iterdir():
        if entry.is_dir() and _OWN_NAMES.fullmatch(entry.name):
            shutil.rmtree(entry)
    for entry in folder.glob(".*.partial"):
        if _OWN_NAMES.fullmatch(entry.name):
            entry.unlink()
    (folder / _LOCK).unlink()
    (folder / _README).unlink()
    with contextlib.suppress(OSError):  # something else was put here meanwhile
        folder.rmdir()


@dataclass(frozen=True, repr=False)
class Checkpoint:
    """The checkpoint of one count.

    Attributes:
        display_path: The folder as it was given, for messages.
        run: The absolute path of the folder of this very count.
        key: The secret key of 32 bytes under which counts are encrypted.
    """

    display_path: str
    run: str
    key: bytes

    def __repr__(self) -> str:
        return f"Checkpoint({self.display_path!r}; key secret)"

    def recall_workers(self, now: int) -> int:
        """Return the number of workers that rows were partitioned for when this count first began.

        The partitions for another number would be others, whose counts are not kept.

        Args:
            now: The number of workers now, which is kept if this is the beginning.
        """
        path = Path(self.run, _WORKERS)
        kept = _read_file(path)
        if kept is not None and kept.isdigit() and int(kept) > 0:
            return int(kept)
        _name_failure(self.display_path, lambda: _write_file(path, str(now).encode()))
        return now

    def count_partition(self, job: Job, partition: Partition) -> PartialCounts | Fault:
        """Return the joint tables of one partition: those kept, or else counted now and kept."""
        path = Path(self.run, _name_file(partition))
        kept = self._load(path, job)
        if kept is not None:
            return kept
        counted = count_partition(job, partition)
        if isinstance(counted, Fault):
            return counted
        payload = zlib.compress(b"".join(c.astype("<i8").tobytes() for c in counted.counts), 1)
        try:
            _write_file(path, encrypt_long(self.key, payload, self._name_content(path)))
        except EncryptionMissingError:
            return Fault(
                f"checkpoint {self.display_path} cannot be encrypted by a worker; install there: "
                'pip install "fitplug[dask]"',
                of_data=False,
            )
        except OSError as error:
            return Fault(
                f"checkpoint {self.display_path} cannot be written ({error.strerror}); make room, "
                "and see that every worker has the folder under the same path",
                of_data=False,
            )
        return counted

    def _load(self, path: Path, job: Job) -> PartialCounts | None:
        """Return the counts in a file, or None if it does not exist or is damaged."""
        content = _read_file(path)
        if content is None:
            return None
        try:
            payload = decrypt_long(self.key, content, self._name_content(path))
        except (ValueError, EncryptionMissingError):
            return None
        ends = np.cumsum([job.count_cells(joint) for joint in job.joints])
        size = 8 * int(ends[-1])
        try:  # no more than these counts take, whatever the file would unpack to
            plain = zlib.decompressobj().decompress(payload, size + 1)
        except zlib.error:
            return None
        if len(plain) != size:
            return None
        counts = np.frombuffer(plain, dtype="<i8").astype(np.int64)
        return PartialCounts(tuple(np.split(counts, ends[:-1])), job.shares)

    def _name_content(self, path: Path) -> bytes:
        """Return the context of a file's content: its path, which says what it counts."""
        return f"{Path(self.run).name}/{path.name}".encode()


def _digest_count(job: Job, files: Sequence[CheckedFile]) -> str:
    """Return the SHA-256, in hex, of all that the counts depend on."""
    # Of the location only the path: its options may be credentials, which a digest may not hold.
    states = [
        {
            **vars(file),
            "location": file.location.path,
            "format": file.format.value,
            "display_path": None,
        }
        for file in files
    ]
    content = {
        "code": [fitplug.__version__, describe_sources(COUNTING_PACKAGES, _LIBRARIES)],
        "attributes": [[name, attribute.spec()] for name, attribute in job.attributes.items()],
        "joints": job.joints,
        "weight": job.weight,
        "filters": [[name, wanted.spec()] for name, wanted in job.filters.items()],
        "files": states,
    }
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _name_file(partition: Partition) -> str:
    """Return the name of the file that keeps the counts of a partition."""
    held = [[one.file.location.path, one.row_groups] for one in partition.slices]
    return hashlib.sha256(json.dumps(held).encode()).hexdigest() + _PART


def _read_file(path: Path) -> bytes | None:
    """Return the content of a file, or None if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return None


def _write_file(path: Path, content: bytes) -> None:
    """Write a file, completely or not at all, that only this user may read. Raise OSError."""
    with replace_file(path, mode=0o600, partial_name=f".{uuid4().hex}.partial") as partial:
        partial.write_bytes(content)
    sync(path.parent)


def _name_failure(displayed: str | os.PathLike[str], act: Callable[[], T]) -> T:
    """Return what `act` returns. Raise FitplugError, which names the checkpoint, for an OSError."""
    try:
        return act()
    except OSError as error:
        reason = error.strerror or "it cannot be written"
    raise FitplugError(f"checkpoint {displayed}: {reason}; make room or name another folder")
