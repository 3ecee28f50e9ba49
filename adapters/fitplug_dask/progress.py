"""Progress: who is told how many rows have been counted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeAlias

Report: TypeAlias = Callable[[int, int], None]
"""Called with the rows counted and the rows in all.

Both are exact, so confidential: a report shows their ratio, never the numbers.
"""


def reporter(progress: bool | Report | None) -> Report:
    """What `progress` stands for: nothing, a percentage on stderr, or the callable itself.

    Raises TypeError for anything else.
    """
    if callable(progress):
        return progress
    if progress is True:
        return _percentage
    if progress is None or progress is False:
        return _nothing
    raise TypeError(f"progress must be True, False or a callable, not {type(progress).__name__}")


def _nothing(done: int, total: int) -> None:
    pass


def _percentage(done: int, total: int) -> None:
    if total:
        end = "\n" if done == total else ""
        print(f"\rcounting: {100 * done // total:3d} %", end=end, file=sys.stderr, flush=True)
