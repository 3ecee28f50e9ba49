"""Display tables of a series: those of a period are made when it is drawn, and never change.

The counts of a period are the nearest nonnegative numbers to the answers drawn in it, given the
counts of the earlier periods. So published numbers stay, and add up with later ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fitplug.errors import InputError, WorkloadError
from fitplug.families import (
    build_dense_strategy,
    date_answers,
    date_queries,
    separates_periods,
)
from fitplug.files import ArrowTable, decode_parquet, write_parquet
from fitplug.numeric import AnyArray, FloatArray
from fitplug.plan import Plan
from fitplug.releases.display import Display, check_display_names
from fitplug.releases.display_parts import agree, choose_method
from fitplug.releases.display_tables import DisplayTables
from fitplug.releases.finest_tables import FinestTable
from fitplug.releases.least_squares import round_to_integers, solve_nonnegative
from fitplug.releases.manifest import name_files
from fitplug.releases.periods import PartialRelease, report_damage
from fitplug.releases.resolutions import Resolutions
from fitplug.releases.tables import choose_intervals, have_equal_metadata, make_arrow

_MOST_ENTRIES = 2**25
"""The largest number of cells times answers, whose matrix takes 256 MB."""


def check_period_display(plan: Plan, periods: str) -> None:
    """Check before a series is charged that its periods can have display tables.

    Args:
        plan: A plan that is causal along the attribute.
        periods: The attribute whose cells are the periods.

    Raises:
        WorkloadError: They cannot have display tables.
    """
    for group in plan.workload.groups:
        check_display_names(group)
    if not separates_periods(plan.strategy, periods):
        raise WorkloadError(
            f"display tables of a series need separate counts for each cell of {periods}. Leave "
            "display tables out."
        )
    entries = plan.workload.cell_count * plan.strategy.size
    if entries > _MOST_ENTRIES:
        raise WorkloadError(
            f"{plan.strategy.size:,} answers times {plan.workload.cell_count:,} cells exceed the "
            f"limit of {_MOST_ENTRIES:,} for display tables of a series. Leave display tables out."
        )


def write_period_display(
    release: PartialRelease, folder: Path, confidence: float, digest: str
) -> None:
    """Write the display tables of the answers that the newest period completed into its folder.

    Args:
        release: The release so far.
        folder: The folder.
        confidence: The confidence of the intervals, for groups whose target has no confidence.
        digest: The digest of the answers.

    Raises:
        ImportError: pyarrow is not installed.
        OSError: The folder cannot be written.
    """
    shown = make_period_display(release)
    for file, table in _make_tables(shown, release, confidence, digest):
        write_parquet(folder / file, table)


def verify_period_display(
    release: PartialRelease, folder: Path, confidence: float, digest: str
) -> None:
    """Check the display tables of the newest period as `write_period_display` writes them.

    Raises:
        InputError: A table is missing or damaged, or does not follow from the answers.
    """
    shown = make_period_display(release)
    for file, expected in _make_tables(shown, release, confidence, digest):
        path = folder / file
        with report_damage(path):
            table = decode_parquet(path.read_bytes())
        if not (have_equal_metadata(table, expected) and agree(shown.display, table, expected)):
            raise InputError(
                f"{path}: the display table does not match the answers. Get the folder again from "
                "its publisher."
            )


def _make_tables(
    shown: DisplayTables, release: PartialRelease, confidence: float, digest: str
) -> Iterator[tuple[str, ArrowTable]]:
    """Make the display tables of the answers that the newest period completed, with file names."""
    names = name_files(release.plan.workload)
    for group in release.plan.workload.groups:
        dates = date_queries(group, release.periods, release.period_count).ravel()
        chosen = dates == release.drawn - 1
        if not chosen.any():
            continue
        intervals = choose_intervals(group, None, default=confidence)
        columns, metadata = shown.make_table(group, intervals)
        columns = {name: np.asarray(column)[chosen] for name, column in columns.items()}
        metadata |= {"fitplug.periods": release.periods, "fitplug.drawn": str(release.drawn)}
        metadata |= {"fitplug.answers_digest": digest}
        yield f"{names[group.name]}.display.parquet", make_arrow(columns, metadata)


def make_period_display(release: PartialRelease) -> DisplayTables:
    """Make display tables of what is released so far; counts of later periods are zero."""
    workload = release.plan.workload
    resolutions = Resolutions(workload)
    finest = FinestTable(resolutions.finest, workload.groups[0])
    method = choose_method(release.plan)
    counts = _solve_periods(release, integers=method == "integers").reshape(workload.shape)
    display = Display(release, method, {}, resolutions, [], [finest], True, None)
    return DisplayTables(display, (counts,))


def _solve_periods(release: PartialRelease, *, integers: bool) -> AnyArray:
    """Compute the counts of all cells (d,), period by period."""
    plan, attribute = release.plan, release.periods
    workload, std = plan.workload, plan.noise_std
    A = build_dense_strategy(plan.strategy) / std
    y = np.asarray(release.answers) / std
    dates = date_answers(plan.strategy, attribute)
    periods = np.indices(workload.shape)[workload.attributes.index(attribute)].ravel()
    counts = np.zeros(workload.cell_count, dtype=np.int64 if integers else np.float64)
    for period in range(release.drawn):
        drawn, mine = dates == period, periods == period
        if drawn.any():
            left = y[drawn] - A[drawn] @ counts
            counts[mine] = _solve_period(A[np.ix_(drawn, mine)], left, integers=integers)
    return counts


def _solve_period(A: FloatArray, y: FloatArray, *, integers: bool) -> AnyArray:
    """Compute the counts (d,) of one period from its answers (n,)."""
    totals = np.zeros((0, A.shape[1])), np.zeros(0)
    try:
        x = solve_nonnegative(A, y, *totals)
    except RuntimeError:  # The period is drawn, and must be finished.
        x = np.maximum(np.linalg.lstsq(A, y, rcond=None)[0], 0.0)
    return round_to_integers(A, x, *totals) if integers else x
