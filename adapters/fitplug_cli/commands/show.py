"""`fitplug show`: released numbers with their margins of error."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import typer
from rich.table import Table

from fitplug.display import format_rho
from fitplug.errors import InputError, suggest_nearest
from fitplug.releases import (
    DISPLAY_COLUMNS,
    MEASURES,
    SERIES_RECORD,
    DisplayParts,
    PartialRelease,
    Release,
    choose_intervals,
    describe_rows_outside,
    open_display,
)
from fitplug.workload import DEFAULT_CONFIDENCE, check_confidence
from fitplug_cli.options import JsonOption, QuietOption
from fitplug_cli.render import (
    out,
    print_coverage,
    print_facts,
    print_json,
    print_table,
    set_up_output,
)
from fitplug_cli.render.messages import describe_not_counted
from fitplug_opendp.csv_tables import count_table_decimals, write_csv

_DELTA = 1e-9

_MOST_ROWS = 5
"""Rows shown of each table if no table is named."""

_DIGITS = 3


def show(
    folder: Annotated[
        str, typer.Argument(help="Folder of a release or a series, or a URL.", metavar="RELEASE")
    ],
    table: Annotated[
        str | None,
        typer.Argument(
            help="Table to show in full. [default: the first rows of each table]", metavar="TABLE"
        ),
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(
            "--confidence",
            help="Confidence of the intervals. [default: the target's, or 0.95]",
        ),
    ] = None,
    display: Annotated[
        bool,
        typer.Option(
            "--display",
            help="Show the display tables, which add up but are biased, instead of the estimates.",
        ),
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the table as CSV.")] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show released numbers with their margins of error. No data is read."""
    set_up_output(quiet=quiet, as_json=as_json or as_csv)
    if confidence is not None:
        check_confidence(confidence)
    release = _open(folder)
    known = release.plan.workload.names
    if table is not None and table not in known:
        raise InputError(f"{folder} has no table {table!r}. {suggest_nearest(table, known)}")
    if display and isinstance(release, PartialRelease):
        raise InputError(f"{folder} is an unfinished series. --display needs a complete release.")
    tables = _Tables(release, confidence, _open_display(folder) if display else None)
    if tables.display is not None and confidence is not None:
        raise InputError("--confidence and --display cannot be combined. Remove one of them.")
    if as_csv:
        if table is None or as_json:
            raise InputError("--csv needs the name of a TABLE, and cannot be combined with --json.")
        _print_csv(tables, table)
        return
    names = known if table is None else (table,)
    if as_json:
        print_json(_build_record(tables, folder, names))
        return
    cost = format_rho(release.rho, release.epsilon(_DELTA), _DELTA)
    facts = [("privacy cost", cost), ("unit", str(release.plan.unit))]
    facts.append(describe_not_counted(release.plan, release.limited))
    print_facts(*facts)
    if isinstance(release, PartialRelease):
        print_facts(("series", f"{release.drawn} of {release.period_count} periods drawn"))
    else:
        shown = tables.display or open_display(folder)
        if shown is not None:
            hint = "" if display else "; --display shows them"
            print_facts(("display tables", shown.summary + hint))
        print_coverage(release, confidence or DEFAULT_CONFIDENCE)
    for name in names:
        _print_group(tables, name, None if table is not None else _MOST_ROWS)
    if table is None:
        out.print(f"For a whole table: fitplug show {folder} TABLE")


def _open(folder: str) -> Release | PartialRelease:
    """Open a release, or what is drawn of a series."""
    if not Path(folder, SERIES_RECORD).is_file():
        return Release.load(folder)
    from fitplug_dask.series import open_series

    return open_series(folder).read()


@dataclass(frozen=True)
class _Tables:
    """The tables that are shown.

    Attributes:
        release: The release, or what is drawn of a series.
        confidence: The confidence of intervals; None for that of each target.
        display: The display tables, if they are shown instead of the unbiased ones.
    """

    release: Release | PartialRelease
    confidence: float | None
    display: DisplayParts | None

    @property
    def measures(self) -> tuple[str, ...]:
        """The columns of numbers."""
        return MEASURES if self.display is None else DISPLAY_COLUMNS[:-1]


def _open_display(folder: str) -> DisplayParts:
    """Open the display tables of a folder. Raises InputError if it has none."""
    display = open_display(folder)
    if display is None:
        raise InputError(
            f"{folder} has no display tables. Set [output] display = true before the next release."
        )
    return display


def _read_chunks(tables: _Tables, name: str) -> Iterator[Any]:
    """Read the Arrow tables of a group, with intervals at a confidence if one is given."""
    if tables.display is not None:
        yield from tables.display.iterate(name)
        return
    release, confidence = tables.release, tables.confidence
    if isinstance(release, PartialRelease):
        yield release.to_arrow(name, confidence=confidence)
        return
    group = release.plan.workload[name]
    for chunk in release.iter_tables(name):
        if confidence is not None:
            estimate, std = (chunk[column].to_numpy() for column in ("estimate", "std"))
            moe = choose_intervals(group, confidence).compute_moe(group, std)
            ends = {"moe": moe, "lower": estimate - moe, "upper": estimate + moe}
            for column, values in {**ends, "confidence": np.full(len(moe), confidence)}.items():
                at = chunk.column_names.index(column)
                chunk = chunk.set_column(at, column, pa.array(values))
        yield chunk


def _print_csv(tables: _Tables, name: str) -> None:
    """Print a table as CSV, rounded as in the release folder."""
    for number, chunk in enumerate(_read_chunks(tables, name)):
        text = io.BytesIO()
        write_csv(text, chunk)
        header, _, rows = text.getvalue().decode().partition("\n")
        sys.stdout.write(rows if number else f"{header}\n{rows}")


def _build_record(tables: _Tables, folder: str, names: tuple[str, ...]) -> dict[str, Any]:
    """Build the JSON record of tables, with all digits."""
    from fitplug_opendp.release_files import build_coverage_record

    release, confidence = tables.release, tables.confidence
    groups = release.plan.workload
    display = {} if tables.display is None else {"display": tables.display.summary}
    if isinstance(release, PartialRelease):
        more = {"drawn": release.drawn, "periods": release.period_count}
    else:
        more = build_coverage_record(release, confidence or DEFAULT_CONFIDENCE)
    return {
        "folder": folder,
        "rho": release.rho,
        "unit": release.plan.unit.to_spec(),
        "population": release.population,
        "not_counted": describe_rows_outside(release.plan, release.limited),
        **more,
        **display,
        "tables": [
            {
                "name": name,
                "quantity": groups[name].quantity,
                **choose_intervals(groups[name], confidence)._asdict(),
                "rows": list(_iterate_rows(tables, name)),
            }
            for name in names
        ],
    }


def _iterate_rows(tables: _Tables, name: str) -> Iterator[dict[str, Any]]:
    for chunk in _read_chunks(tables, name):
        yield from chunk.to_pylist()


def _print_group(tables: _Tables, name: str, most: int | None) -> None:
    """Print a table of a release, or its first rows."""
    group, measures = tables.release.plan.workload[name], tables.measures
    rows = list(islice(_iterate_rows(tables, name), most))
    if not rows:
        out.print(f"{name}: no answers yet")
        return
    decimals = 0
    if tables.display is None:
        decimals = count_table_decimals([row["std"] for row in rows], _DIGITS)
    elif tables.display.header["method"] != "integers":
        stds = np.sqrt(tables.release.variances[name]).ravel()
        decimals = count_table_decimals(stds, _DIGITS)
    labels = [column for column in rows[0] if column not in (*measures, "confidence")]
    title = f"{name}: {group.quantity}, {choose_intervals(group, tables.confidence)}"
    table = Table(*labels, title=title, title_justify="left", title_style="bold", box=None)
    for measure in measures:
        table.add_column(measure, justify="right", no_wrap=True)
    for row in rows:
        numbers = [f"{row[measure] + 0.0:,.{decimals}f}" for measure in measures]
        table.add_row(*(str(row[label]) for label in labels), *numbers)
    print_table(table)
    size, release = group.size, tables.release
    if isinstance(release, PartialRelease):
        size = int(release.known[name].sum())
    if len(rows) < size:
        out.print(f" ... and {size - len(rows):,} more")
