"""Folders and files that appear completely or not at all, and outlive a power failure."""

from __future__ import annotations

import os
import secrets
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from os import PathLike
from pathlib import Path

from fitplug.errors import InputError


@contextmanager
def fill_new_folder(directory: str | PathLike[str]) -> Iterator[Path]:
    """Make a new folder, which appears at the end of the block, complete, or not at all.

    Args:
        directory: The folder, which must be new or empty.

    Yields:
        The path of the folder until it is complete.

    Raises:
        InputError: The folder is not empty.
        OSError: The folder cannot be written.
    """
    place = Path(directory).absolute()
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise InputError(f"{place} already exists. Name a folder that is new or empty.")
    with make_partial_folder(place) as partial:
        yield partial
        move_into_place(partial, place)


@contextmanager
def make_partial_folder(directory: Path, label: str = "") -> Iterator[Path]:
    """Make a new empty folder next to a directory, and remove it later unless it was moved.

    Args:
        directory: Where the complete folder will go.
        label: A text that stands in the folder's name, after the directory's.

    Yields:
        The path of the new folder. It is removed at the end of the block, if it is still there.

    Raises:
        OSError: The folder cannot be made.
    """
    words = ["", directory.name, *([label] if label else []), secrets.token_hex(4), "partial"]
    partial = directory.with_name(".".join(words))
    try:
        partial.mkdir(parents=True)
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Make a folder and those above it, unless they are there.

    Another process may remove folders while they are empty, which it made for nothing.

    Raises:
        OSError: The folder cannot be made.
    """
    for _ in range(10):
        with suppress(FileNotFoundError, FileExistsError):
            path.mkdir(mode, parents=True, exist_ok=True)
            return
    path.mkdir(mode, parents=True, exist_ok=True)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Keep other processes out of such blocks for a folder, where the system can lock it.

    Windows and some network file systems lock no folders. The lock ends with a killed process.

    Raises:
        OSError: The folder cannot be opened.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        with suppress(OSError):  # a child of this process may have the open folder, too
            fcntl.flock(number, fcntl.LOCK_UN)
        os.close(number)


def move_into_place(partial: Path, directory: Path) -> None:
    """Move a complete folder to its place, and wait until all of it is on the disk.

    Args:
        partial: The complete folder.
        directory: Its place, where there is nothing or an empty folder.

    Raises:
        OSError: The folder cannot be moved.
    """
    for path in partial.rglob("*"):
        sync(path)
    sync(partial)
    if directory.is_dir():
        directory.rmdir()
    partial.replace(directory)
    sync(directory.parent)


def set_aside(directory: Path, made: float) -> Path:
    """Move a folder to a name that tells when it was made.

    Args:
        directory: The folder.
        made: When it was made, in seconds since 1970.

    Returns:
        The new path.

    Raises:
        OSError: The folder cannot be moved.
    """
    stamp = datetime.fromtimestamp(made, timezone.utc).strftime("%Y%m%dT%H%M%S")
    moved, number = directory.with_name(f"{directory.name}-{stamp}"), 2
    while moved.exists():
        moved, number = directory.with_name(f"{directory.name}-{stamp}-{number}"), number + 1
    directory.replace(moved)
    sync(directory.parent)
    return moved


def sync(path: Path) -> None:
    """Wait until the content of a file, or the list of names of a folder, is on the disk.

    Raises:
        OSError: The file or folder cannot be opened.
    """
    if os.name == "nt" and path.is_dir():
        return  # Windows opens no folders, and writes their lists of names by itself.
    number = os.open(path, os.O_RDONLY if os.name != "nt" else os.O_RDWR)
    try:
        os.fsync(number)
    finally:
        os.close(number)


@contextmanager
def replace_file(
    path: str | os.PathLike[str], *, mode: int = 0o666, partial_name: str | None = None
) -> Iterator[Path]:
    """Write a file next to its destination, and move it there if the block succeeds.

    The content is on the disk before the file is moved. A reader sees the former file or the new
    one, never a part of either, even if the process is killed.

    Args:
        path: Where the file goes; a file that is there is replaced.
        mode: The permissions of the new file, less those that the umask takes away.
        partial_name: The name of the partial file. It must be one that no other thread writes;
            by default it is made of the file's name and the system's number of this thread.

    Yields:
        The path of a new empty file in the same folder, to be opened and written.

    Raises:
        OSError: The file cannot be made, written or moved. The partial file is then removed.
    """
    target = Path(path)
    partial = target.with_name(
        partial_name or f".{target.name}.{threading.get_native_id()}.partial"
    )
    # A process that was killed may have left a file of this name, with other permissions.
    partial.unlink(missing_ok=True)
    os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
    try:
        yield partial
        sync(partial)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
