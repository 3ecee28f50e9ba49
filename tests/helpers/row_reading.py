"""Spies on the reading of rows, file by file."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fitplug_dask.kernel import Fault, reading


class ReadRowGroup(NamedTuple):
    """A row group whose rows were read."""

    path: Path
    row_group: int


def watch_reading(monkeypatch: pytest.MonkeyPatch) -> list[ReadRowGroup]:
    """Return a list to which each row group is added when it is read, in this process."""
    seen: list[ReadRowGroup] = []
    read_slice = reading._read_slice

    # Without `wraps`, workers would be refused for code that is not that of a file.
    @functools.wraps(read_slice)
    def watch_slice(joiner: Any, file_slice: Any, ahead: Any) -> Any:
        path = Path(file_slice.file.location.path)
        seen.extend(ReadRowGroup(path, group) for group in file_slice.row_groups)
        return read_slice(joiner, file_slice, ahead)

    monkeypatch.setattr(reading, "_read_slice", watch_slice)
    return seen


def fail_reading(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    """Let every reading of rows end with a fault, whose message is `words`."""
    monkeypatch.setattr(reading, "_read_slice", lambda *_: Fault(words))
