"""Files of the rows where a public file belongs: a domain is never read from the rows."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fitplug.errors import DomainError


def check_public(entries: Mapping[str, Any], folder: Path, data: str | None) -> None:
    """Raise DomainError if an attribute's entry names the very file of the rows as its codebook,
    list or crosswalk, by this or another path.

    entries: by attribute, as [domain] or a [[query]] has them; paths are relative to the folder.
    data: the path of the rows, which may be a glob; None if they are in a store.
    """
    if data is None:
        return
    named = [(name, text) for name, entry in entries.items() for text in _texts(entry)]
    found = [(name, text, key) for name, text in named if (key := _identity(folder / text))]
    if not found:
        return
    pattern = os.path.join(glob.escape(str(folder)), data)  # noqa: PTH118 - a glob, no path
    matched = glob.iglob(pattern, recursive=True)  # noqa: PTH207 - as the count has it
    rows = {_identity(folder / data), *map(_identity, map(Path, matched))}
    for name, text, key in found:
        if key in rows:
            raise DomainError(
                f"attribute {name!r}: {folder / text} is the file of the rows, [data] path, and a "
                "domain is never read from the rows; give a public file of its values"
            )


def _texts(entry: Any) -> Iterator[str]:
    """What an entry may name files by: the texts of its tables, not those of lists of values."""
    if isinstance(entry, Mapping):
        for value in entry.values():
            if isinstance(value, str):
                yield value
            else:
                yield from _texts(value)


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of a file; None if there is none."""
    try:
        held = path.stat()
    except (OSError, ValueError):
        return None
    return (held.st_dev, held.st_ino) if path.is_file() else None
