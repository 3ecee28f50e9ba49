"""What `fitplug estimate` shows and writes: a table, JSON, CSV or Parquet."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
from rich.table import Table

from fitplug.errors import InputError
from fitplug.release import MEASURES
from fitplug_cli import csvfile, files, show
from fitplug_cli.codefiles import PARQUET, CodeFile
from fitplug_cli.estimates import Estimates
from fitplug_cli.files import replacing

_DIGITS = 3
"""Of the std, where people read it; the others have as many decimals."""

_SUFFIXES = (".csv", *PARQUET)


def check_target(path: Path | None, *, spreadsheet_safe: bool) -> None:
    """Raise InputError if estimates cannot be written to this file: before they are computed."""
    if spreadsheet_safe and (path is None or path.suffix.lower() in PARQUET):
        raise InputError("--spreadsheet-safe is of CSV; give --output FILE.csv")
    if path is None:
        return
    if path.suffix.lower() not in _SUFFIXES:
        raise InputError(f"{path}: estimates are written as CSV or Parquet; end it in .csv")
    files.check_target(path, _check_estimates)


def _check_estimates(path: Path) -> None:
    """Raise InputError for a file that is none of estimates, which none may take the place of."""
    if not {"name", "estimate", "std"} <= set(
        CodeFile(path, "file of estimates", InputError).names
    ):
        raise InputError(f"{path}: these are no estimates")


def write(path: Path, found: Estimates, *, spreadsheet_safe: bool = False) -> None:
    """Write a table with a row per estimate, whole or not at all: as CSV with the digits that
    matter, as Parquet with all. Raises WriteError.
    """
    table = pa.table(found.columns)
    with replacing(path) as partial:
        if path.suffix.lower() in PARQUET:
            pa.parquet.write_table(table, partial)
        else:
            csvfile.write(partial, table, spreadsheet_safe=spreadsheet_safe)
        partial.chmod(0o666 & ~_umask())  # estimates are public, unlike what else is written so
    show.err.print(f"{len(found.asked):,} estimates written: {path}")


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def rows(found: Estimates) -> Iterator[dict[str, Any]]:
    """Per estimate its region, name and expression, value, std, moe and interval, and whether it is
    approximate; None for what has no value.
    """
    columns = {("value" if name == "estimate" else name): c for name, c in found.columns.items()}
    lists = [c if isinstance(c, list) else c.tolist() for c in columns.values()]
    for values in zip(*lists, strict=True):
        row = dict(zip(columns, values, strict=True))
        del row["confidence"]
        yield {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()}


def as_json(found: Estimates) -> None:
    """Everything, with all digits, on the standard output."""
    said = {
        "confidence": found.confidence,
        "simultaneous": found.simultaneous,
        "population": found.population,
        "estimates": list(rows(found)),
    }
    json.dump(said, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def as_table(found: Estimates) -> None:
    """A table for people, to the digits that the std says something of."""
    table = Table(box=None)
    if found.by is not None:
        table.add_column(found.by, overflow="fold")
    table.add_column("estimate of", overflow="fold")
    for column in ("value", *MEASURES[1:]):
        table.add_column(column, justify="right", no_wrap=True)
    nameless = False
    for row in rows(found):
        labels = [] if found.by is None else [row[found.by]]
        labels.append(row["name"] + (" (approximate)" if row["approximate"] else ""))
        if row["std"] is None:
            numbers = ["-"] * len(MEASURES)
            nameless = True
        else:
            decimals = _decimals(row["std"])
            numbers = [f"{row[column]:.{decimals}f}" for column in ("value", *MEASURES[1:])]
        table.add_row(*labels, *numbers)
    show.whole(table)
    each = "all intervals together" if found.simultaneous else "each interval"
    show.out.print(
        f"{each} at {100 * found.confidence:g}% confidence; the std is that of the noise"
    )
    if found.approximate.any():
        show.out.print("approximate: ratios, whose std is that of the delta method")
    if nameless:
        show.out.print(
            "-: ratios whose denominator is less than 3 stds from zero; ask for numerator and "
            "denominator apart"
        )
    show.out.print(found.population)


def _decimals(std: float) -> int:
    if std <= 0:
        return _DIGITS
    # Of the std as rounded to these digits: 9.999 has the decimals of 10.
    exponent = int(f"{std:.{_DIGITS - 1}e}".partition("e")[2])
    return min(max(_DIGITS - 1 - exponent, 0), 12)
