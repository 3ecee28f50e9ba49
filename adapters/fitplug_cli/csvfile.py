"""CSV tables, and what spreadsheets take for formulas in them.

A cell that begins with one of = + - @, a tab or a line end may be run as a formula by the program
that opens the file (OWASP, "CSV injection"). An apostrophe before it makes it a text.

Numbers have the decimals that the std says something of, the same in all columns of a table; the
Parquet tables have all digits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from fitplug.release import MEASURES
from fitplug.workload import Workload

DIGITS = 4
"""Of the smallest std of a table; all its numbers have as many decimals."""

_MOST_DECIMALS = 15

_MOST_NAMED = 3

# Also in full width, as some programs fold it, and where spaces or what is not seen stand before.
_BEGINS = r"[\s\x00-\x1f\u200b-\u200f\u2060\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]"
# Where a program splits at other marks than commas, a cell begins behind each.
_PLACES = re.compile(rf"(?:^|(?<=[,;\t\r\n|'\"]))(?={_BEGINS})")
_NUMBER = r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_NUMBERS = re.compile(rf"{_NUMBER}(?:\.\.{_NUMBER})?")


def write(path: Path, table: Any, *, spreadsheet_safe: bool = False) -> None:
    """Write an Arrow table as CSV, estimates and their spread to the decimals that matter;
    spreadsheet_safe: with no text that begins as a formula does. Raises OSError.
    """
    table = _rounded(table)
    if spreadsheet_safe:
        columns = [_neutral_column(column) for column in table.columns]
        table = pa.table(columns, names=[neutralise(name) for name in table.column_names])
    pa.csv.write_csv(table, path)


def decimals(stds: npt.NDArray[np.float64]) -> int:
    """How many decimals the smallest std above zero says something of: DIGITS digits of it."""
    least = stds[stds > 0].min(initial=np.inf)
    if not np.isfinite(least):
        return _MOST_DECIMALS
    # Of the std as rounded to these digits: 9.9999 has the decimals of 10.
    exponent = int(f"{least:.{DIGITS - 1}e}".partition("e")[2])
    return min(max(DIGITS - 1 - exponent, 0), _MOST_DECIMALS)


def _rounded(table: Any) -> Any:
    """A table of Arrow with MEASURES rounded, if it has a std."""
    if "std" not in table.column_names:
        return table
    places = decimals(table["std"].to_numpy())
    for name in set(MEASURES) & set(table.column_names):
        # + 0.0 turns -0.0 into 0.0. What is nan has no value.
        values = np.round(table[name].to_numpy(), places) + 0.0
        column = pa.array(values, mask=np.isnan(values))
        table = table.set_column(table.column_names.index(name), name, column)
    return table


def neutralise(text: str) -> str:
    """A text with an apostrophe wherever a spreadsheet might begin a formula. Numbers, and
    intervals of numbers such as -5..-1, stay as they are: they compute nothing.
    """
    return text if _NUMBERS.fullmatch(text) else _PLACES.sub("'", text)


def neutral_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """The same of the texts among a record's values."""
    return {
        name: neutralise(value) if isinstance(value, str) else value
        for name, value in record.items()
    }


def warning(workload: Workload) -> str | None:
    """Which names and labels of the tables are taken for formulas, and what to do; None if none
    are. Labels are public: they are those of the domain.
    """
    found: dict[str, list[str]] = {}
    for group in workload.groups:
        for factor in group.factors:
            texts = (factor.attribute, *factor.labels(workload.domain[factor.attribute]))
            held = found.setdefault(factor.attribute, [])
            held += [
                text
                for text in texts
                if isinstance(text, str) and neutralise(text) != text and text not in held
            ]
    told = [f"{name!r} ({_some(texts)})" for name, texts in found.items() if texts]
    if not told:
        return None
    shown = ", ".join(told[:_MOST_NAMED]) + (", ..." if len(told) > _MOST_NAMED else "")
    return (
        f"spreadsheets may take labels of {shown} for formulas when they open the CSV tables; "
        "write [output] spreadsheet_safe = true to put an apostrophe before them"
    )


def _some(texts: list[str]) -> str:
    more = len(texts) - _MOST_NAMED
    named = ", ".join(map(repr, texts[:_MOST_NAMED]))
    return named if more <= 0 else f"{named} and {more:,} more"


def _neutral_column(column: Any) -> Any:
    """A column of Arrow; only texts are changed, each distinct one looked at once."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    codes = column.combine_chunks().dictionary_encode()
    texts = [neutralise(text) for text in codes.dictionary.to_pylist()]
    return pa.array(texts, column.type).take(codes.indices)
