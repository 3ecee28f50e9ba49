"""Checks of the path of a release folder, and errors of writing there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fitplug.errors import FitplugError, InputError
from fitplug.release import read_digest

RETRY = "the release is not finished: run the same again, which charges nothing more"
"""What to do after a failure that follows the charge."""


def find_held_release(directory: Path) -> str | None:
    """Find the release that a folder holds already.

    Args:
        directory: The path of the release folder, which need not exist.

    Returns:
        The digest of the answers of the release there; None if the folder is missing or empty.

    Raises:
        InputError: No release folder can be moved there, or the folder holds other files.
    """
    if directory.exists() and not directory.is_dir():
        raise InputError(f"{directory} is a file; name another folder for the release")
    if directory.is_symlink() or directory.is_mount():  # no folder can be moved there
        what = "a link" if directory.is_symlink() else "a mount point"
        raise InputError(f"{directory} is {what}; name a folder of its own, such as one inside it")
    if not directory.is_dir() or not any(directory.iterdir()):
        return None
    held = read_digest(directory)
    if held is None:
        raise InputError(
            f"{directory} holds files that are no fitplug release; name another folder"
        )
    return held


@contextmanager
def report_write_errors(directory: Path, remedy: str) -> Iterator[None]:
    """Turn an OSError in the block into a FitplugError that names the folder and the remedy."""
    try:
        yield
    except OSError as error:
        why = (error.strerror or "it cannot be written").lower()
        raise FitplugError(f"{directory}: {why}; {remedy}") from None


def encode_path(path: str | os.PathLike[str]) -> str:
    """Write an absolute path as ledgers keep it, with bytes that are no text replaced."""
    return os.fsencode(Path(path).absolute()).decode(errors="replace")
