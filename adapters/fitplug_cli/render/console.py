"""The consoles: results go to the standard output, progress and warnings to the standard error."""

from __future__ import annotations

import json
import logging
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text


class _Console(Console):
    """A console that prints text as it is, and breaks long lines only on a terminal."""

    def __init__(self, *, stderr: bool = False) -> None:
        # Names of groups and paths may have brackets.
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print text, wrapped between words if this is a terminal."""
        super().print(*objects, **{"soft_wrap": not self.is_terminal} | options)

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError, which `main` explains; rich would exit without a message."""
        raise BrokenPipeError


out = _Console()
err = _Console(stderr=True)

_MOST_COLUMNS = 10_000
"""The largest number of characters of a line where there is no terminal that it must fit."""

_LABEL_WIDTH = 12
"""The width of the labels of facts, the same for all, so that facts printed apart line up."""

_LONG_STEP = 1.0
"""Seconds after which the bar of a finished step stays on the screen."""


def set_up_output(*, quiet: bool, as_json: bool, verbose: bool = False) -> None:
    """Decide what is printed from now on.

    Args:
        quiet: Whether nothing but errors is printed.
        as_json: Whether the standard output is left to one JSON object.
        verbose: Whether the log is printed on the standard error.
    """
    out.quiet, err.quiet = quiet or as_json, quiet
    if verbose:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
        for package in ("fitplug", "fitplug_opendp", "fitplug_dask"):
            logging.getLogger(package).addHandler(handler)
            logging.getLogger(package).setLevel(logging.INFO)


def print_json(record: Mapping[str, Any], *, ascii_only: bool = False) -> None:
    """Print a record as JSON on the standard output, even if the consoles are quiet.

    Args:
        record: The record.
        ascii_only: Whether other characters than ASCII are escaped.
    """
    json.dump(record, sys.stdout, indent=2, ensure_ascii=ascii_only)
    sys.stdout.write("\n")


def warn(text: str) -> None:
    """Print a warning on the standard error, with its first word in colour on a terminal."""
    err.print(Text.assemble(("warning:", "bold yellow"), f" {text}"))


def print_facts(*facts: tuple[str, str]) -> None:
    """Print facts, each with a label, as two columns that line up with other facts."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(min_width=_LABEL_WIDTH, no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in facts:
        grid.add_row(label, text)
    print_table(grid)


def print_table(table: Table) -> None:
    """Print a table on the standard output.

    Where there is no terminal that it must fit, no line is broken or padded.
    """
    if out.is_terminal or out.quiet:
        out.print(table)
        return
    wide = out.options.update(max_width=_MOST_COLUMNS)
    fitting = wide.update(width=out.measure(table, options=wide).maximum)
    for line in out.render_lines(table, fitting):
        out.print("".join(piece.text for piece in line).rstrip())


class ProgressBar:
    """One line of progress on the standard error."""

    def __init__(self, progress: Progress, what: str) -> None:
        """Add a line to a display of rich that says what is being done."""
        self._progress = progress
        self._task = progress.add_task(what, total=None, note="")

    def show(self, share: float | None, note: str = "") -> None:
        """Show how far the work is.

        Args:
            share: The share that is done, from 0 to 1; None while it cannot be known.
            note: A text beside the bar.
        """
        if share is None:
            self._progress.update(self._task, note=note)
        else:
            self._progress.update(self._task, total=1.0, completed=share, note=note)


@contextmanager
def open_progress_bar(what: str) -> Iterator[ProgressBar]:
    """Show a progress bar while the block runs, if the standard error is a terminal.

    Args:
        what: What the block does, in a word.

    Yields:
        The bar. It is full after the block, and stays on the screen if that took a while.
    """
    shown = err.is_terminal and not err.quiet
    progress = Progress(
        SpinnerColumn(finished_text=" "),
        TextColumn("{task.description:<9}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=err,
        disable=not shown,
    )
    with progress if shown else nullcontext():  # rich before 14.3 ends a disabled one with a line
        bar = ProgressBar(progress, what)
        begun = time.monotonic()
        try:
            yield bar
            bar.show(1.0)
        finally:
            progress.live.transient = time.monotonic() - begun < _LONG_STEP


def make_gap_reporter(bar: ProgressBar, tolerance: float) -> Callable[[int, float], None]:
    """Make the `progress` of a design, which shows how far the gap has come down.

    Args:
        bar: The bar to show it on; its share is linear in the logarithm of the gap.
        tolerance: The gap at which the design is finished.

    Returns:
        A function of the iteration and the gap.
    """
    first: list[float] = []

    def report(iteration: int, gap: float) -> None:
        first.append(max(gap, 2 * tolerance))
        left = math.log(max(gap, tolerance) / tolerance) / math.log(first[0] / tolerance)
        bar.show(min(max(1 - left, 0.0), 1.0), f"iteration {iteration}, gap {gap:.1e}")

    return report
