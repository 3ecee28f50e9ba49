"""Progress: how a count or a release reports how much of a step is done."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

Report: TypeAlias = Callable[[int, int], None]
"""Called with the rows counted and the rows in all.

Both are exact, so confidential: a report shows their ratio, never the numbers.
"""


Progress: TypeAlias = bool | Report | None
"""True for a percentage on stderr, False or None for nothing, or a callable."""


def choose_report(progress: Progress, step: str = "counting") -> Report:
    """Return the function that reports progress as `progress` asks.

    Args:
        progress: True for a percentage on stderr, False or None for nothing, or a callable, which
            is returned.
        step: What is done, in words that are printed before the percentage.

    Raises:
        TypeError: `progress` is anything else.
    """
    if callable(progress):
        return progress
    if progress is True:
        return partial(_print_percentage, step)
    if progress is None or progress is False:
        return ignore
    raise TypeError(f"progress must be True, False or a callable, not {type(progress).__name__}")


def accumulate(report: Report | None, total: int) -> Callable[[int], None]:
    """Return a function that adds the weight of a finished task and reports the sum.

    Args:
        report: The function that reports. It is called at once, and after each task.
        total: The weight of all tasks.
    """
    done = 0

    def add_weight(weight: int) -> None:
        nonlocal done
        done += weight
        if report is not None:
            report(done, total)

    add_weight(0)
    return add_weight


def ignore(done: int, total: int) -> None:
    """Report nothing."""


def _print_percentage(step: str, done: int, total: int) -> None:
    if total:
        end = "\n" if done == total else ""
        print(f"\r{step}: {100 * done // total:3d}%", end=end, file=sys.stderr, flush=True)
