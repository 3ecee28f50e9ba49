"""A check that no file of a spec's domain or queries is the file of the rows.

A domain is public and never read from the rows.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fitplug.errors import DomainError


def check_files_are_public(entries: Mapping[str, Any], folder: Path, data: str | None) -> None:
    """Check that no attribute names the file of the rows as its codebook, list or crosswalk.

    Args:
        entries: The entry of each attribute in [domain] or in a [[query]].
        folder: The folder that paths are relative to.
        data: The path of the rows, which may be a glob; None if the rows are in a store.

    Raises:
        DomainError: If an entry names the file of the rows, by the same or by another path.
    """
    if data is None:
        return
    named = [(name, text) for name, entry in entries.items() for text in _find_texts(entry)]
    found = [(name, text, key) for name, text in named if (key := _identify_file(folder / text))]
    if not found:
        return
    rows = set(map(_identify_file, match_rows(folder, data)))
    for name, text, key in found:
        if key in rows:
            raise DomainError(
                f"attribute {name!r}: {folder / text} is the file of the rows, [data] path, and a "
                "domain is never read from the rows; give a public file of its values"
            )


def match_rows(folder: Path, data: str) -> Iterator[Path]:
    """Yield the path that [data] path names, which need not exist, and those that it matches.

    Args:
        folder: The folder that paths are relative to.
        data: The path of the rows, which may be a glob.
    """
    yield folder / data
    pattern = os.path.join(glob.escape(str(folder)), data)  # noqa: PTH118 - a glob, no path
    yield from map(Path, glob.iglob(pattern, recursive=True))  # noqa: PTH207 - as the count does


def _find_texts(entry: Any) -> Iterator[str]:
    """Yield the texts in the tables of an entry, which may be paths; lists hold values instead."""
    if isinstance(entry, Mapping):
        for value in entry.values():
            if isinstance(value, str):
                yield value
            else:
                yield from _find_texts(value)


def _identify_file(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of a file, or None if there is no such file."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return (status.st_dev, status.st_ino) if path.is_file() else None
