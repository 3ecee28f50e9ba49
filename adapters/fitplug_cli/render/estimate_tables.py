"""Estimates of expressions as a printed table, JSON, CSV or Parquet."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet
from rich.table import Table

from fitplug.errors import InputError
from fitplug.releases import MEASURES
from fitplug_cli.files import check_target, replace_file
from fitplug_cli.inputs import PARQUET_SUFFIXES, CodeFile, NamedExpression
from fitplug_cli.render.console import err, out, print_json, print_table
from fitplug_opendp.csv_tables import count_decimals, write_csv

Array: TypeAlias = npt.NDArray[np.float64]

_DIGITS = 3
"""Digits of a printed std; the other numbers of a row have the same decimals."""

_MOST_DECIMALS = 12


@dataclass(frozen=True, eq=False)
class Estimates:
    """The estimates of k expressions.

    Attributes:
        expressions: The expression of each estimate (k,).
        region_column: The name of the column of regions; None without regions.
        regions: The region of each estimate (k,), empty without regions.
        results: The columns of MEASURES (k,); nan for a ratio whose denominator is too close to
            zero. A margin of error is the distance to the farther end of the interval; an
            unbounded end is infinite.
        approximate: Which estimates are ratios or formulas with approximate stds (k,).
        confidence: The confidence of the intervals.
        simultaneous: Whether all intervals hold jointly at this confidence.
        population: Which rows were counted; see `Release.population`.
        is_of_all_rows: Whether all rows were counted, so the population need not be shown.
    """

    expressions: Sequence[NamedExpression]
    region_column: str | None
    regions: Sequence[str]
    results: Mapping[str, Array]
    approximate: npt.NDArray[np.bool_]
    confidence: float
    simultaneous: bool
    population: str
    is_of_all_rows: bool

    @property
    def columns(self) -> dict[str, Any]:
        """The columns (k,) of a table: labels, then results.

        With regions, the expression itself is left out, because it may be long.
        """
        labels: dict[str, Any] = {}
        if self.region_column is not None:
            labels[self.region_column] = list(self.regions)
        labels["name"] = [expression.name for expression in self.expressions]
        if self.region_column is None:
            labels["expression"] = [expression.text for expression in self.expressions]
        return {
            **labels,
            **self.results,
            "confidence": np.full(len(self.expressions), self.confidence),
            "approximate": self.approximate,
        }


def check_estimates_target(path: Path | None, *, spreadsheet_safe: bool) -> None:
    """Check, before estimates are computed, that the output options are valid.

    Args:
        path: The file; None to print.
        spreadsheet_safe: Whether text that looks like a formula gets an apostrophe.

    Raises:
        InputError: If the file cannot be written, or has another format.
    """
    if spreadsheet_safe and (path is None or path.suffix.lower() in PARQUET_SUFFIXES):
        raise InputError("--spreadsheet-safe needs --output FILE.csv")
    if path is None:
        return
    if path.suffix.lower() not in (".csv", *PARQUET_SUFFIXES):
        raise InputError(f"{path}: the name must end in .csv or .parquet")
    check_target(path, _check_has_estimates)


def _check_has_estimates(path: Path) -> None:
    """Raise InputError for a file without estimates, which must not be replaced."""
    names = CodeFile(path, "file of estimates", InputError).names
    if not {"name", "estimate", "std"} <= set(names):
        raise InputError(f"{path} does not contain estimates. Name another file.")


def write_estimates(path: Path, estimates: Estimates, *, spreadsheet_safe: bool = False) -> None:
    """Write a table with a row for each estimate.

    Args:
        path: The file. CSV has rounded numbers, Parquet all digits.
        estimates: The estimates.
        spreadsheet_safe: Whether text in CSV that looks like a formula gets an apostrophe.

    Raises:
        WriteError: If the file cannot be written. An earlier file is then unchanged.
    """
    table = pa.table(estimates.columns)
    # Estimates are public, so they get the usual permissions.
    with replace_file(path, 0o666 & ~_read_umask()) as partial:
        if path.suffix.lower() in PARQUET_SUFFIXES:
            pa.parquet.write_table(table, partial)
        else:
            write_csv(partial, table, spreadsheet_safe=spreadsheet_safe)
    err.print(f"{len(estimates.expressions):,} estimates written to {path}")


def _read_umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _iterate_rows(estimates: Estimates) -> Iterator[dict[str, Any]]:
    """Yield the labels and results of each estimate; None for a missing result."""
    columns = {
        ("value" if name == "estimate" else name): c for name, c in estimates.columns.items()
    }
    lists = [c if isinstance(c, list) else c.tolist() for c in columns.values()]
    for values in zip(*lists, strict=True):
        row = dict(zip(columns, values, strict=True))
        del row["confidence"]
        finite = (not isinstance(v, float) or math.isfinite(v) for v in row.values())
        yield {k: v if known else None for (k, v), known in zip(row.items(), finite, strict=True)}


def print_estimates_as_json(estimates: Estimates) -> None:
    """Print all estimates as one JSON object, with all digits."""
    print_json(
        {
            "confidence": estimates.confidence,
            "simultaneous": estimates.simultaneous,
            "population": estimates.population,
            "estimates": list(_iterate_rows(estimates)),
        }
    )


def print_estimates(estimates: Estimates) -> None:
    """Print a table of the estimates with meaningful digits."""
    table = Table(box=None)
    if estimates.region_column is not None:
        table.add_column(estimates.region_column, overflow="fold")
    table.add_column("estimate of", overflow="fold")
    for column in ("value", *MEASURES[1:]):
        table.add_column(column, justify="right", no_wrap=True)
    any_without_value = False
    for row in _iterate_rows(estimates):
        labels = [] if estimates.region_column is None else [row[estimates.region_column]]
        labels.append(row["name"] + (" (approximate)" if row["approximate"] else ""))
        if row["value"] is None:
            numbers = ["-"] * len(MEASURES)
            any_without_value = True
        elif row["std"] is None:  # a quantile
            numbers = ["-" if row[c] is None else f"{row[c]:.7g}" for c in ("value", *MEASURES[1:])]
        else:
            std = row["std"]
            decimals = count_decimals(std, _DIGITS, _MOST_DECIMALS) if std > 0 else _DIGITS
            numbers = [
                "-" if row[column] is None else f"{row[column]:.{decimals}f}"
                for column in ("value", *MEASURES[1:])
            ]
        table.add_row(*labels, *numbers)
    print_table(table)
    each = "All intervals hold together" if estimates.simultaneous else "Each interval holds"
    out.print(f"{each} at {100 * estimates.confidence:g}% confidence.")
    if estimates.approximate.any():
        out.print("approximate: the std of a ratio is computed by the delta method")
    if np.isinf(estimates.results["upper"]).any():
        out.print("no margin (-): the interval is unbounded, because the denominator may be zero")
    if any_without_value:
        out.print(
            "no value (-): a ratio's denominator is less than 3 stds from zero, or a quantile has "
            "no rows. Estimate the counts of a ratio separately."
        )
    if not estimates.is_of_all_rows:
        out.print(estimates.population)
