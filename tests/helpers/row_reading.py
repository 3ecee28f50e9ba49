"""Spies on the reading of rows: in portions of row groups, and file by file."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fitplug_dask.kernel import Fault, reading


class ReadRowGroup(NamedTuple):
    """A row group whose rows were read, and the name of the function that read it."""

    path: Path
    row_group: int
    reader: str


def watch_reading(monkeypatch: pytest.MonkeyPatch) -> list[ReadRowGroup]:
    """Return a list to which each row group is added when it is read, in this process."""
    seen: list[ReadRowGroup] = []
    read_portion, read_slice = reading._read_portion, reading._read_slice

    # Without `wraps`, workers would be refused for code that is not that of a file.
    @functools.wraps(read_portion)
    def watch_portion(consumer: Any, portion: Any, fetcher: Any) -> Any:
        for member in portion.members:
            path = Path(member.file.location.path)
            seen.append(ReadRowGroup(path, member.row_group, "portion"))
        return read_portion(consumer, portion, fetcher)

    @functools.wraps(read_slice)
    def watch_slice(consumer: Any, file_slice: Any) -> Any:
        path = Path(file_slice.file.location.path)
        seen.extend(ReadRowGroup(path, group, "slice") for group in file_slice.row_groups)
        return read_slice(consumer, file_slice)

    monkeypatch.setattr(reading, "_read_portion", watch_portion)
    monkeypatch.setattr(reading, "_read_slice", watch_slice)
    return seen


def fail_reading(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    """Let every reading of rows end with a fault, whose message is `words`."""
    for name in ("_read_portion", "_read_slice"):
        monkeypatch.setattr(reading, name, lambda *_: Fault(words))
