"""CSV tables, with optional protection from text that spreadsheets run as formulas.

A spreadsheet may run a cell that begins with = + - @, a tab or a line end as a formula (OWASP, "CSV
injection"). An apostrophe in front makes it text.

Numbers are rounded to decimals that are meaningful given the std, the same for all columns of a
table. The Parquet tables have all digits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from fitplug.domain import Domain
from fitplug.releases import MEASURES, RESULT_COLUMNS
from fitplug.workload import QueryGroup

DIGITS = 4
"""Digits to show of a table's smallest std; all its numbers have the same number of decimals."""

_MOST_DECIMALS = 15

# Full-width characters are included, because some programs fold them, and so are characters after
# spaces or invisible characters.
_BEGINS = r"[\s\x00-\x1f\u200b-\u200f\u2060\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]"
# Programs may split lines at separators other than commas, so a cell may begin after each.
_CELL_STARTS = re.compile(rf"(?:^|(?<=[,;\t\r\n|'\"]))(?={_BEGINS})")
_NUMBER = r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_NUMBERS = re.compile(rf"{_NUMBER}(?:\.\.{_NUMBER})?")


def write_csv(path: Path | BinaryIO, table: Any, *, spreadsheet_safe: bool = False) -> None:
    """Write an Arrow table as CSV, with estimates and their spread rounded.

    Args:
        path: The file, or its path.
        table: The table.
        spreadsheet_safe: Whether text that looks like a formula gets an apostrophe.

    Raises:
        OSError: If the file cannot be written.
    """
    table = _round_measures(table)
    if spreadsheet_safe:
        columns = [_neutralise_column(column) for column in table.columns]
        table = pa.table(columns, names=[neutralise(name) for name in table.column_names])
    pa.csv.write_csv(table, path)


_NUMBER_BYTES = 16
"""Approximate bytes of a rounded number and its comma, for counts of up to ten digits."""


def estimate_csv_size(domain: Domain, group: QueryGroup) -> int:
    """Estimate the bytes of the CSV table of a group from its labels and number of rows."""
    row_bytes: float = _NUMBER_BYTES * len(RESULT_COLUMNS)
    for factor in group.factors:
        labels = factor.labels(domain[factor.attribute])
        row_bytes += sum(len(f'"{label}",'.encode()) for label in labels) / len(labels)
    return math.ceil(group.size * row_bytes)


def count_table_decimals(stds: npt.ArrayLike, digits: int = DIGITS) -> int:
    """Return the number of decimals that show `digits` digits of the smallest std above zero.

    Returns:
        The number of decimals; the largest allowed one if no std is above zero.
    """
    stds = np.asarray(stds)
    least = stds[stds > 0].min(initial=np.inf)
    return count_decimals(least, digits, _MOST_DECIMALS) if np.isfinite(least) else _MOST_DECIMALS


def count_decimals(std: float, digits: int, most: int) -> int:
    """Return the number of decimals that show `digits` digits of a std.

    Args:
        std: The std, which must be positive.
        digits: The number of its digits to show.
        most: The largest number of decimals to return.
    """
    # The std is rounded first, so that 9.9999 has the decimals of 10.
    exponent = int(f"{std:.{digits - 1}e}".partition("e")[2])
    return min(max(digits - 1 - exponent, 0), most)


def _round_measures(table: Any) -> Any:
    """Round the columns of MEASURES in an Arrow table that has a std."""
    if "std" not in table.column_names:
        return table
    decimals = count_table_decimals(table["std"].to_numpy())
    for name in set(MEASURES) & set(table.column_names):
        # Adding 0.0 turns -0.0 into 0.0. A nan becomes an empty cell.
        values = np.round(table[name].to_numpy(), decimals) + 0.0
        column = pa.array(values, mask=np.isnan(values))
        table = table.set_column(table.column_names.index(name), name, column)
    return table


def neutralise(text: str) -> str:
    """Put an apostrophe wherever a spreadsheet might begin a formula.

    Numbers and intervals such as -5..-1 are unchanged, because they are harmless.
    """
    return text if _NUMBERS.fullmatch(text) else _CELL_STARTS.sub("'", text)


def neutralise_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Neutralise the strings among the values of a record."""
    return {
        name: neutralise(value) if isinstance(value, str) else value
        for name, value in record.items()
    }


def _neutralise_column(column: Any) -> Any:
    """Neutralise the strings of an Arrow column, each distinct string once."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    codes = column.combine_chunks().dictionary_encode()
    texts = [neutralise(text) for text in codes.dictionary.to_pylist()]
    return pa.array(texts, column.type).take(codes.indices)
