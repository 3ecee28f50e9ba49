"""Counts that are interrupted, and the checkpoints that they leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fitplug as fp
import fitplug_dask as fpd

DOMAIN = fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 9)})
WANTED = (DOMAIN, [("sex", "age"), ()])


class KilledError(Exception):
    """What a test ends a count with."""


def interrupted(people: Path, folder: Path, wanted: Any = WANTED, **options: Any) -> None:
    """A count that ends when at least half of its rows are counted."""

    def end(done: int, total: int) -> None:
        if 2 * done >= total:
            raise KilledError

    with pytest.raises(KilledError):
        fpd.count(people, wanted, checkpoint=folder, progress=end, **options)


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*.part"))
