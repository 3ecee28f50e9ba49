"""Console output: results on standard output, progress and warnings on standard error."""

from __future__ import annotations

import json
import logging
import math
import re
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
    """A console that prints text without markup and wraps lines only on a terminal."""

    def __init__(self, *, stderr: bool = False) -> None:
        # Names of groups and paths may contain brackets.
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print text, wrapped on a terminal."""
        super().print(*objects, **{"soft_wrap": not self.is_terminal} | options)

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError, which `main` explains; rich would exit silently."""
        raise BrokenPipeError


out = _Console()
err = _Console(stderr=True)

_MOST_COLUMNS = 10_000
"""The longest line without a terminal."""

_NUMBER = re.compile(r"(?=.*\d)[-+\d.,:%e]+")
"""A word of a table that is a number, a percentage, a date or a time."""

_LABEL_WIDTH = 12
"""The width of the labels of facts, so that facts printed separately line up."""

_LONG_STEP = 1.0
"""The progress bar of a step that took at least this many seconds stays on the screen."""


def set_up_output(*, quiet: bool, as_json: bool, verbose: bool = False) -> None:
    """Choose what is printed from now on.

    Args:
        quiet: Whether to print nothing but errors.
        as_json: Whether standard output is reserved for one JSON object.
        verbose: Whether to log to standard error.
    """
    out.quiet, err.quiet = quiet or as_json, quiet
    if verbose:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
        for package in ("fitplug", "fitplug_opendp", "fitplug_dask"):
            logging.getLogger(package).addHandler(handler)
            logging.getLogger(package).setLevel(logging.INFO)


def print_json(record: Mapping[str, Any], *, ascii_only: bool = False) -> None:
    """Print a record as JSON on standard output, even if the consoles are quiet.

    Args:
        record: The record.
        ascii_only: Whether to escape non-ASCII characters.
    """
    json.dump(record, sys.stdout, indent=2, ensure_ascii=ascii_only)
    sys.stdout.write("\n")


def warn(text: str) -> None:
    """Print a warning on standard error, its first word in colour on a terminal."""
    err.print(Text.assemble(("warning:", "bold yellow"), f" {text}"))


def print_facts(*facts: tuple[str, str]) -> None:
    """Print facts as two aligned columns, labels and texts."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(min_width=_LABEL_WIDTH, no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in facts:
        grid.add_row(label, text)
    print_table(grid)


def print_table(table: Table) -> None:
    """Print a table on standard output, without wrapping or padding unless on a terminal.

    Rich cuts what does not fit a narrow terminal. A number is never cut: the terminal wraps it.
    """
    if out.is_terminal or out.quiet:
        for column in table.columns:
            words = [word for cell in column.cells for word in str(cell).split()]
            numbers = [len(word) for word in words if _NUMBER.fullmatch(word)]
            column.min_width = max([column.min_width or 0, *numbers])
        out.print(table, crop=False)
        return
    wide = out.options.update(max_width=_MOST_COLUMNS)
    fitting = wide.update(width=out.measure(table, options=wide).maximum)
    for line in out.render_lines(table, fitting):
        out.print("".join(piece.text for piece in line).rstrip())


class ProgressBar:
    """One line of progress on standard error."""

    def __init__(self, progress: Progress, what: str) -> None:
        """Add a line for the step `what`."""
        self._progress = progress
        self._task = progress.add_task(what, total=None, note="")

    def show(self, share: float | None, note: str = "") -> None:
        """Update the bar.

        Args:
            share: The share done, from 0 to 1; None if unknown.
            note: Text next to the bar.
        """
        if share is None:
            self._progress.update(self._task, note=note)
        else:
            self._progress.update(self._task, total=1.0, completed=share, note=note)


@contextmanager
def open_progress_bar(what: str) -> Iterator[ProgressBar]:
    """Show a progress bar while the block runs, if standard error is a terminal.

    Args:
        what: What the block does, in a word.

    Yields:
        The bar, which stays on the screen after a long block.
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


def make_gap_reporter(
    show: Callable[[float, str], object], tolerance: float
) -> Callable[[int, float], None]:
    """Make the `progress` function of a design, which shows how far the gap has shrunk.

    Args:
        show: Shows the share that is done, which is linear in the logarithm of the gap, and what
            is being done.
        tolerance: The gap at which the design ends.

    Returns:
        A function of the iteration and the gap.
    """
    first: list[float] = []

    def report(iteration: int, gap: float) -> None:
        first.append(max(gap, 2 * tolerance))
        left = math.log(max(gap, tolerance) / tolerance) / math.log(first[0] / tolerance)
        show(min(max(1 - left, 0.0), 1.0), f"iteration {iteration}, gap {gap:.1e}")

    return report
