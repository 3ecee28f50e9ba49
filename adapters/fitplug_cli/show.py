"""What people see in the terminal: results on stdout, progress on stderr."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

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

from fitplug.counts import filters_of, say_rows
from fitplug.display import format_down, format_up
from fitplug.ledger import Ledger
from fitplug.numeric import ceil_float
from fitplug.plan import Plan
from fitplug.release import Release
from fitplug.structure import listed
from fitplug.workload import Workload
from fitplug_cli import costs, csvfile

if TYPE_CHECKING:
    from fitplug_cli.spec import Data
    from fitplug_dask import Survey
    from fitplug_opendp.publication import PublicationState, PublishedRelease

# Names of groups and paths are shown as they are, whatever brackets they hold.
out = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
err = Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)

_MOST_VALUES = 3
"""Of a filter, named in a line; the others are only numbered."""

_WIDE = 10_000
"""Characters of a line, at most, where there is no terminal to fit."""


def mode(*, quiet: bool, as_json: bool, verbose: bool = False) -> None:
    """Print nothing but errors, or leave the standard output to one JSON object. verbose: the log
    of what is done goes to the standard error.
    """
    out.quiet, err.quiet = quiet or as_json, quiet
    if verbose:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
        for package in ("fitplug", "fitplug_opendp", "fitplug_dask"):
            logging.getLogger(package).addHandler(handler)
            logging.getLogger(package).setLevel(logging.INFO)


def plan(plan: Plan, contributions: int, delta: float) -> None:
    """The plan as a person reads it before any data is touched."""
    from fitplug.privacy import epsilon_at

    cost = costs.privacy_cost(plan, contributions)
    rows = Table.grid(padding=(0, 2))
    rows.add_row("privacy cost", f"rho = {format_up(costs.rho(plan, contributions))} (zCDP)")
    if contributions > 1:
        rows.add_row(
            "",
            f"{contributions:,} records a person cost {contributions**2:,} x {format_up(plan.rho)}",
        )
    rows.add_row(
        f"epsilon at delta {delta:g}",
        f"{format_up(epsilon_at(cost, delta, 'zcdp'), 4)}, proven from rho for the discrete noise",
    )
    rows.add_row(
        "", f"{format_up(epsilon_at(cost, delta), 4)} on the curve of continuous Gaussian noise"
    )
    rows.add_row(
        "certified gap", f"{format_up(plan.gap, 2)}: Delta = {format_up(plan.privacy_cost)};"
    )
    rows.add_row("", plan.certificate)
    if plan.gap > plan.tolerance:
        rows.add_row("", plan.status)
    if plan.scale != 1.0:
        rows.add_row("budget given", f"all target variances scaled by {format_up(plan.scale)}")
    rows.add_row("counts needed", ", ".join(" x ".join(t) or "total" for t in plan.tables))
    if strict := _strict(plan):
        rows.add_row("in no table", f"rows with a value outside the domain of {listed(strict)}")
    whole(rows)
    groups = Table("group", "queries", "target", "std it gets", "of the target", box=None)
    for row in plan.group_rows():
        spread = format_up(row.largest_std, 4)
        if format_up(row.smallest_std, 4) != spread:
            spread = f"{format_up(row.smallest_std, 4)} to {spread}"
        groups.add_row(row.name, f"{row.queries:,}", row.target, spread, f"{row.used:.1%}")
    whole(groups)


def _strict(plan: Plan) -> list[str]:
    """The attributes used that have no cell for other values."""
    used = {name for names in plan.tables for name in names}
    return [name for name in plan.domain.names if name in used and plan.domain[name].null_code < 0]


def rows(data: Data) -> None:
    """How rows are understood, if each is not one record or not all are counted."""
    said = say_rows(data.weight, filters_of(data.where), _MOST_VALUES)
    if said is not None:
        out.print(f"rows counted: {said}")


def survey(survey: Survey) -> None:
    """What a count would read and take."""
    rows = "not known before they are read"
    if survey.rows is not None:
        rows = f"{survey.rows:,}, by the files' footers: exact, so CONFIDENTIAL"
    table = Table.grid(padding=(0, 2))
    files = f"{survey.files:,} {survey.format}"
    if survey.left_out:
        files += f"; {survey.left_out:,} more lie in folders that where leaves out"
    table.add_row("files", files)
    table.add_row("rows", rows)
    table.add_row("tasks", f"{survey.tasks:,} on {survey.threads:,} threads")
    table.add_row("cells", f"{survey.cells:,} counted jointly")
    table.add_row("memory", f"about {survey.memory / 2**30:.1f} GiB")
    whole(table)
    out.print(f"how rows are understood: {survey.rows_are}")
    if survey.counts:
        names = " or ".join(f"weight = {json.dumps(n, ensure_ascii=False)}" for n in survey.counts)
        out.print(
            f"if rows are aggregates, name the column of counts in [data]: {names}; never a "
            "survey's sampling weight, as there one person is one row"
        )
    out.print("nothing was counted, written or charged")


def whole(table: Table) -> None:
    """A table on stdout; where there is no terminal to fit, with no line broken or padded."""
    if out.is_terminal or out.quiet:
        out.print(table)
        return
    wide = out.options.update(max_width=_WIDE)
    fitting = wide.update(width=out.measure(table, options=wide).maximum)
    for line in out.render_lines(table, fitting):
        out.print("".join(piece.text for piece in line).rstrip())


def formulas(workload: Workload, *, safe: bool) -> None:
    """Warn of labels that spreadsheets take for formulas, unless they are written safe."""
    warning = None if safe else csvfile.warning(workload)
    if warning is not None:
        err.print(f"warning: {warning}")


def released(made: PublishedRelease, directory: Path, state: PublicationState) -> None:
    """Where the release is."""
    if state == "published":
        out.print(f"this release is done already, nothing was charged or drawn: {made.folder}")
        return
    drawn = made.release
    if state == "made":
        out.print("an earlier run had drawn these answers; the data was not counted again")
    out.print(
        f"released {drawn.plan.workload.query_count:,} answers at rho = {format_up(drawn.rho)}: "
        f"{directory}"
    )
    out.print(drawn.population)
    if made.earlier is not None:
        out.print(f"the earlier release was kept as {made.earlier}")


def charged(ledger: Ledger | None, drawn: Release, state: PublicationState) -> None:
    """What the ledger says after a charge, or that there is none."""
    if ledger is None:
        out.print(
            f"no [ledger] in the spec: rho = {format_up(drawn.rho)} was spent and is recorded "
            "nowhere"
        )
        return
    entry = drawn.entry
    assert entry is not None
    if entry.within is not None:
        said = f"free within the charge {entry.within} of {ledger.path}"
    else:
        said = f"charged rho = {format_up(ceil_float(entry.rho))} to {ledger.path}"
    if state != "new":
        said += f" before, as number {entry.id}, and nothing more now"
    out.print(
        f"{said}: {format_up(ledger.spent)} of {format_down(ledger.total)} spent "
        f"by {len(ledger.entries())} release(s), {format_down(ledger.remaining)} remains"
    )


class Bar:
    """One line of progress. A share between 0 and 1, or None while it cannot be known."""

    def __init__(self, progress: Progress, what: str) -> None:
        self._progress = progress
        self._task = progress.add_task(what, total=None, note="")

    def show(self, share: float | None, note: str = "") -> None:
        if share is None:
            self._progress.update(self._task, note=note)
        else:
            self._progress.update(self._task, total=1.0, completed=share, note=note)


def gap_progress(bar: Bar, wanted: float) -> Callable[[int, float], None]:
    """Progress of a design for the solver: how far the gap has come down, on a log scale."""
    first: list[float] = []

    def progress(iteration: int, gap: float) -> None:
        first.append(max(gap, 2 * wanted))
        left = math.log(max(gap, wanted) / wanted) / math.log(first[0] / wanted)
        bar.show(min(max(1 - left, 0.0), 1.0), f"iteration {iteration}, gap {gap:.1e}")

    return progress


@contextmanager
def bar(what: str) -> Iterator[Bar]:
    """A progress bar on stderr, shown on terminals only."""
    with Progress(
        SpinnerColumn(finished_text=" "),
        TextColumn("{task.description:<9}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=err,
        disable=err.quiet or not err.is_terminal,
    ) as progress:
        line = Bar(progress, what)
        yield line
        line.show(1.0)
