"""CSV tables, and what spreadsheets take for formulas in them.

A cell that begins with one of = + - @, a tab or a line end may be run as a formula by the program
that opens the file (OWASP, "CSV injection"). An apostrophe before it makes it a text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from fitplug.workload import Workload

_MOST_NAMED = 3

# Also in full width, as some programs fold it, and where spaces or what is not seen stand before.
_BEGINS = r"[\s\x00-\x1f\u200b-\u200f\u2060\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]"
# Where a program splits at other marks than commas, a cell begins behind each.
_PLACES = re.compile(rf"(?:^|(?<=[,;\t\r\n|'\"]))(?={_BEGINS})")
_NUMBER = r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_NUMBERS = re.compile(rf"{_NUMBER}(?:\.\.{_NUMBER})?")


def write(path: Path, table: Any, *, spreadsheet_safe: bool = False) -> None:
    """Write an Arrow table as CSV; spreadsheet_safe: with no text that begins as a formula does.
    Raises OSError.
    """
    if spreadsheet_safe:
        columns = [_neutral_column(column) for column in table.columns]
        table = pa.table(columns, names=[neutralise(name) for name in table.column_names])
    pa.csv.write_csv(table, path)


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
