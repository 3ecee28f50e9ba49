"""Checkpoints: the counts of finished shares kept in a folder, so that a run that ended can resume.

What is kept is exact and confidential: the folder is its owner's alone, says so, and is removed
when the count has finished. Counts are met again only under the digest of all that they depend on:
the files as they stand, the domain's content, the joint tables, weights, filters and this code.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np
import pyarrow as pa

import fitplug
from fitplug.errors import FitplugError, InputError
from fitplug_dask.kernel import Fault, Job, Partial, count_share
from fitplug_dask.places import UNMARKED
from fitplug_dask.shares import Share
from fitplug_dask.snapshot import File

T = TypeVar("T")

_README = "README"
_LOCK = ".lock"
_WORKERS = "workers"
_OURS = re.compile(rf"{_README}|\.[0-9a-f]{{32}}\.partial|[0-9a-f]{{64}}")
"""What may be in the folder beside the lock: the rest is somebody else's, and left alone."""
_TEXT = """CONFIDENTIAL

This folder holds exact counts about people, without any protection. It was made by
fitplug, to resume a count that has not finished. It is removed when that count finishes.
If you do not mean to resume it, delete this folder.
"""


def check_place(path: str | os.PathLike[str]) -> Path:
    """The folder's absolute path, if it may hold a checkpoint. Raises InputError if not."""
    folder = Path(path).absolute()
    other = "holds files that are no checkpoint; name another folder"
    fault = None
    try:
        if not folder.parent.is_dir():
            fault = "has no folder to be in; make the folder first"
        elif folder.is_dir():
            names = {entry.name for entry in folder.iterdir()} - {_LOCK}
            ours = not names or (folder / _README).read_text(encoding="utf-8") == _TEXT
            fault = None if ours and all(map(_OURS.fullmatch, names)) else other
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
def opened(path: str | os.PathLike[str], job: Job, files: Sequence[File]) -> Iterator[Checkpoint]:
    """The checkpoint of one count in this folder, which is made if need be.

    What another count left here is removed on entering; everything is, if the block succeeds.
    Raises InputError if the folder holds something else or another process counts with it, and
    FitplugError if it cannot be written.
    """
    folder = check_place(path)
    for file in files:
        if file.stamp.startswith(UNMARKED):
            raise InputError(
                f"checkpoint {path} cannot be kept: the store of {file.shown} does not tell when "
                "its content changes; count without, or from a copy"
            )
    run = folder / _digest(job, files)
    lock = _done(path, lambda: _taken(folder))
    if lock is None:
        raise InputError(
            f"checkpoint {path} is in use by another count; wait for it or name another folder"
        )
    try:
        _done(path, lambda: _only(folder, run))
        yield Checkpoint(str(path), str(run))
        _done(path, lambda: _remove(folder))
    finally:
        os.close(lock)


def _taken(folder: Path) -> int | None:
    """The folder, made if need be, for this process alone until it closes this file or ends; None
    if another has it.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The one who had it before may have removed the file that is locked here.
        held = os.fstat(lock).st_nlink > 0
        if held:
            _write(folder / _README, _TEXT.encode())
            return lock
    except BlockingIOError:
        pass
    os.close(lock)
    return None


def _only(folder: Path, run: Path) -> None:
    """Leave the counts of this run only."""
    for entry in folder.iterdir():
        if entry.is_dir() and entry != run and _OURS.fullmatch(entry.name):
            shutil.rmtree(entry)
    run.mkdir(mode=0o700, exist_ok=True)


def _remove(folder: Path) -> None:
    """Remove all of a checkpoint; last what tells that it is one, should this be cut short."""
    for entry in folder.iterdir():
        if entry.is_dir() and _OURS.fullmatch(entry.name):
            shutil.rmtree(entry)
    for entry in folder.glob(".*.partial"):
        if _OURS.fullmatch(entry.name):
            entry.unlink()
    (folder / _LOCK).unlink()
    (folder / _README).unlink()
    with contextlib.suppress(OSError):  # something else was put here meanwhile
        folder.rmdir()


@dataclass(frozen=True)
class Checkpoint:
    """shown: the folder as given, for messages; run: that of this very count, absolute."""

    shown: str
    run: str

    def workers(self, now: int) -> int:
        """The number of workers that the shares were cut for when this count first began: cut for
        another number, they would not be met again.
        """
        path = Path(self.run, _WORKERS)
        kept = _read(path)
        if kept is not None and kept.isdigit() and int(kept) > 0:
            return int(kept)
        _done(self.shown, lambda: _write(path, str(now).encode()))
        return now

    def count_share(self, job: Job, share: Share) -> Partial | Fault:
        """The joint tables of one share: those kept, or else counted now and kept."""
        path = Path(self.run, _name(share))
        kept = self._kept(path, job)
        if kept is not None:
            return kept
        part = count_share(job, share)
        if isinstance(part, Fault):
            return part
        payload = zlib.compress(b"".join(c.astype("<i8").tobytes() for c in part.counts), 1)
        try:
            _write(path, self._mark(path, payload) + payload)
        except OSError as error:
            return Fault(
                f"checkpoint {self.shown} cannot be written ({error.strerror}); make room, and see "
                "that every worker has the folder under the same path",
                of_data=False,
            )
        return part

    def _kept(self, path: Path, job: Job) -> Partial | None:
        content = _read(path)
        if content is None or content[:32] != self._mark(path, content[32:]):
            return None
        ends = np.cumsum([job.cells(joint) for joint in job.joints])
        size = 8 * int(ends[-1])
        try:  # no more than these counts take, whatever the file would unpack to
            plain = zlib.decompressobj().decompress(content[32:], size + 1)
        except zlib.error:
            return None
        if len(plain) != size:
            return None
        counts = np.frombuffer(plain, dtype="<i8").astype(np.int64)
        return Partial(tuple(np.split(counts, ends[:-1])))

    def _mark(self, path: Path, payload: bytes) -> bytes:
        """SHA-256 of a file's content and its place, which says what it counts."""
        return hashlib.sha256(f"{Path(self.run).name}/{path.name}\n".encode() + payload).digest()


def _digest(job: Job, files: Sequence[File]) -> str:
    """SHA-256, in hex, of all that the counts depend on."""
    stands = [
        {**vars(file), "place": file.place.path, "format": file.format.value, "shown": None}
        for file in files
    ]
    content = {
        "code": _code(),
        "attributes": [[name, attribute.spec()] for name, attribute in job.attributes.items()],
        "joints": job.joints,
        "weight": job.weight,
        "filters": [[name, wanted.spec()] for name, wanted in job.filters.items()],
        "files": stands,
    }
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _code() -> list[Any]:
    """The versions, and a digest of the sources, of what turns files into counts."""
    sources = hashlib.sha256()
    for package in (fitplug.__file__, __file__):
        for source in sorted(Path(package).parent.glob("*.py*")):
            sources.update(source.name.encode() + b"\0" + source.read_bytes())
    return [fitplug.__version__, np.__version__, pa.__version__, sources.hexdigest()]


def _name(share: Share) -> str:
    held = [[piece.file.place.path, piece.row_groups] for piece in share.pieces]
    return hashlib.sha256(json.dumps(held).encode()).hexdigest() + ".part"


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _write(path: Path, content: bytes) -> None:
    """Write a file of this user's alone, whole or not at all. Raises OSError."""
    partial = path.with_name(f".{uuid4().hex}.partial")
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _done(shown: str | os.PathLike[str], act: Callable[[], T]) -> T:
    """What `act` returns. Raises FitplugError, naming the checkpoint, for an OSError."""
    try:
        return act()
    except OSError as error:
        reason = error.strerror or "it cannot be written"
    raise FitplugError(f"checkpoint {shown}: {reason}; make room or name another folder")
