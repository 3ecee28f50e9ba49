"""Progress: how a count reports the number of rows that it has counted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeAlias

Report: TypeAlias = Callable[[int, int], None]
"""Called with the rows counted and the rows in all.

Both are exact, so confidential: a report shows their ratio, never the numbers.
"""


def choose_report(progress: bool | Report | None) -> Report:
    """Return the report that `progress` asks for.

    Args:
        progress: True for a percentage on stderr, False or None for nothing, or a callable, which
            is returned.

    Raises:
        TypeError: It is anything else.
    """
    if callable(progress):
        return progress
    if progress is True:
        return _print_percentage
    if progress is None or progress is False:
        return _ignore
    raise TypeError(f"progress must be True, False or a callable, not {type(progress).__name__}")


def _ignore(done: int, total: int) -> None:
    pass


def _print_percentage(done: int, total: int) -> None:
    if total:
        end = "\n" if done == total else ""
        print(f"\rcounting: {100 * done // total:3d} %", end=end, file=sys.stderr, flush=True)
