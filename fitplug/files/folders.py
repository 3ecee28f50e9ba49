"""Folders that appear whole or not at all, and that last once they are there."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path


@contextmanager
def make_partial_folder(directory: Path, mark: str = "") -> Iterator[Path]:
    """A new empty folder beside `directory`, removed when the block is left unless it was moved.

    mark: goes into its name, after the directory's. Raises OSError.
    """
    parts = ["", directory.name, *([mark] if mark else []), secrets.token_hex(4), "partial"]
    partial = directory.with_name(".".join(parts))
    try:
        partial.mkdir(parents=True)
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def move_into_place(partial: Path, directory: Path) -> None:
    """Move a complete folder to its place, where there is nothing or an empty folder, and see that
    it lasts: everything is on the disk when this returns. Raises OSError.
    """
    for path in partial.rglob("*"):
        sync(path)
    sync(partial)
    if directory.is_dir():
        directory.rmdir()
    partial.replace(directory)
    sync(directory.parent)


def set_aside(directory: Path, made: float) -> Path:
    """Move a folder to a name that tells when it was made (seconds since 1970), and return that.

    Raises OSError.
    """
    stamp = datetime.fromtimestamp(made, timezone.utc).strftime("%Y%m%dT%H%M%S")
    kept, number = directory.with_name(f"{directory.name}-{stamp}"), 2
    while kept.exists():
        kept, number = directory.with_name(f"{directory.name}-{stamp}-{number}"), number + 1
    directory.replace(kept)
    sync(directory.parent)
    return kept


def sync(path: Path) -> None:
    """See that a file's content, or a folder's list of names, is on the disk. Raises OSError."""
    if os.name == "nt" and path.is_dir():
        return  # Windows opens no folders; it keeps their lists of names by itself
    number = os.open(path, os.O_RDONLY if os.name != "nt" else os.O_RDWR)
    try:
        os.fsync(number)
    finally:
        os.close(number)
