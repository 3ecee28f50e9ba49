"""`fitplug estimate`: what expressions come to on a release, without the data."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from fitplug.combination import Combinations
from fitplug.errors import InputError
from fitplug.exports import MEASURES
from fitplug.release import Release
from fitplug_cli import show
from fitplug_cli.files import text_of

_DIGITS = 3
"""Of the std; the others have as many decimals."""


def named(expressions: Sequence[str], table: Path | None) -> dict[str, str]:
    """Expressions by name: those given, which are their own names, and those of a file.

    The file is a CSV with columns name and expression if its name ends in .csv, else a text with
    a line "name: expression" or "expression" each; empty lines and lines after # are skipped.
    Raises InputError.
    """
    found = {text: text for text in expressions}
    for where, name, text in [] if table is None else _lines(table):
        if not text:
            raise InputError(f"{where}: {name!r} has no expression; write one")
        if name in found and found[name] != text:
            raise InputError(f"{where}: {name!r} names two expressions; give each its own name")
        found[name] = text
    if not found:
        raise InputError(
            'nothing to estimate: give an expression such as "total", or a table of them by --from'
        )
    return found


def _lines(path: Path) -> list[tuple[str, str, str]]:
    """Where, name and expression of each line."""
    text = text_of(path, "file of expressions", "a text", InputError)
    if path.suffix.lower() == ".csv":
        rows = csv.DictReader(text.splitlines())
        if set(rows.fieldnames or ()) != {"name", "expression"}:
            raise InputError(f"{path}: the first line of the table must be: name,expression")
        return [
            (f"{path}: line {rows.line_num}", _text(row["name"]), _text(row["expression"]))
            for row in rows
        ]
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        said = line.strip()
        if not said or said.startswith("#"):
            continue
        name, colon, rest = said.partition(":")
        # A colon within the quotes of a group's name begins no expression.
        whole = not colon or "'" in name or '"' in name
        found.append(
            (f"{path}: line {number}", said if whole else name.strip(), said if whole else rest)
        )
    return [(where, name, text.strip()) for where, name, text in found]


def _text(value: str | None) -> str:
    return (value or "").strip()


def estimate(
    release: Release, asked: Mapping[str, str], confidence: float, simultaneous: bool
) -> list[dict[str, Any]]:
    """Per expression its name, the expression, its value, std, moe and interval, and whether it is
    approximate. Raises InputError.
    """
    found = release.combine_all(asked)
    return [
        {"name": name, "expression": asked[name], **row}
        for name, row in _rows(found, confidence, simultaneous).items()
    ]


def _rows(found: Combinations, confidence: float, simultaneous: bool) -> dict[str, dict[str, Any]]:
    moe = found.moe(confidence, simultaneous=simultaneous)
    results = (
        found.values,
        found.stds,
        moe,
        *found.interval(confidence, simultaneous=simultaneous),
    )
    columns = dict(zip(("value", *MEASURES[1:]), results, strict=True))
    return {
        name: {column: float(values[k]) for column, values in columns.items()}
        | {"approximate": bool(found.approximate[k])}
        for k, name in enumerate(found.names)
    }


def as_json(
    rows: Sequence[Mapping[str, Any]], population: str, confidence: float, simultaneous: bool
) -> None:
    """Everything, with all digits, on the standard output. population: of the release."""
    said = {
        "confidence": confidence,
        "simultaneous": simultaneous,
        "population": population,
        "estimates": rows,
    }
    json.dump(said, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def as_table(
    rows: Sequence[Mapping[str, Any]], population: str, confidence: float, simultaneous: bool
) -> None:
    """A table for people, to the digits that the std says something of. population: of the
    release.
    """
    table = Table(box=None)
    table.add_column("estimate of", overflow="fold")
    for column in ("value", *MEASURES[1:]):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        decimals = _decimals(row["std"])
        numbers = [f"{row[column]:.{decimals}f}" for column in ("value", *MEASURES[1:])]
        table.add_row(row["name"] + (" (approximate)" if row["approximate"] else ""), *numbers)
    show.whole(table)
    each = "all intervals together" if simultaneous else "each interval"
    show.out.print(f"{each} at {100 * confidence:g}% confidence; the std is that of the noise")
    if any(row["approximate"] for row in rows):
        show.out.print("approximate: ratios, whose std is that of the delta method")
    show.out.print(population)


def _decimals(std: float) -> int:
    if std <= 0:
        return _DIGITS
    # Of the std as rounded to these digits: 9.999 has the decimals of 10.
    exponent = int(f"{std:.{_DIGITS - 1}e}".partition("e")[2])
    return min(max(_DIGITS - 1 - exponent, 0), 12)
