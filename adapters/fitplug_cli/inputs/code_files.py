"""Public files: columns and rows of CSV and Parquet, and lists with one code per line.

Codes in text files are text and keep leading zeros; codes in Parquet are text or integers, as
stored. Someone may name the confidential data by mistake, so errors give the place in a file and
never quote its content.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from fitplug.errors import InputError
from fitplug.files import open_parquet
from fitplug_cli.files import read_text

Code: TypeAlias = str | int
ErrorClass: TypeAlias = type[InputError]
ColumnReader: TypeAlias = Callable[[int], list[Any]]

BLANKS_FAULT = "must not start or end with white space. Remove this space."
"""The end of an error about a value with `has_outer_blanks`."""

_TABLE_FAULT = (
    "must be a text file with one code per line. For a table, set 'codebook' and 'column'."
)

PARQUET_SUFFIXES = (".parquet", ".pq")


class CodeFile:
    """A public CSV or Parquet file with named columns, each read only when needed.

    Attributes:
        path: The file.
        names: The names of the columns, in the order of the file.
    """

    def __init__(self, path: Path, what: str, error: ErrorClass) -> None:
        """Open the file.

        Args:
            path: The file.
            what: What the file is called in errors, such as "crosswalk".
            error: The class of the errors to raise.

        Raises:
            InputError: An `error` if the file cannot be read.
        """
        self.path, self._error = path, error
        self._read: ColumnReader
        if path.suffix.lower() in PARQUET_SUFFIXES:
            self.names, self._read = _open_parquet(path, what, error)
            self._lines: Sequence[int] | None = None
        else:
            self.names, self._read, self._lines = _read_csv(path, what, error)

    def read_column(self, name: str) -> list[Code]:
        """Read the codes of a column; none may be empty or have blanks around it.

        Returns:
            A code for each row.

        Raises:
            InputError: The file's `error` if there is no column of this name, or several, or if it
                has values that are neither texts nor integers.
        """
        number = self._find_column(name)
        codes = self._read(number)
        if None in codes or "" in codes:
            i = min(codes.index(empty) for empty in (None, "") if empty in codes)
            # The column is given by number: without a header, its name would be a value.
            raise self._error(f"{self.locate(i)}: no value in column {number + 1}. Add the value.")
        if not codes:
            raise self._error(f"{self.path}: column {number + 1} has no values. Add values.")
        padded = next((i for i, code in enumerate(codes) if has_outer_blanks(code)), None)
        if padded is not None:
            what = f"the value in column {number + 1}"
            raise self._error(f"{self.locate(padded)}: {what} {BLANKS_FAULT}")
        return codes

    def read_labels(self, name: str) -> list[Any]:
        """Read a column of labels, of which some may be missing.

        Returns:
            A label for each row; None or "" for rows without one.

        Raises:
            InputError: The file's `error` if there is no column of this name, or several.
        """
        return self._read(self._find_column(name))

    def _find_column(self, name: str) -> int:
        """Return the number of the only column of this name."""
        numbers = [i for i, known in enumerate(self.names) if known == name]
        if not numbers:
            raise self._error(f"{self.path} has no column {name!r}. Name a column of the file.")
        if len(numbers) > 1:
            raise self._error(f"{self.path} has several columns {name!r}. Rename all but one.")
        return numbers[0]

    def iterate_rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield each row's number, from 0, and its value in each column."""
        columns = [self._read(i) for i in range(len(self.names))]
        for i, row in enumerate(zip(*columns, strict=True)):
            yield i, dict(zip(self.names, row, strict=True))

    def locate(self, i: int) -> str:
        """Return the file and line of row i, for errors."""
        return f"{self.path}: {self.locate_row(i)}"

    def locate_row(self, i: int) -> str:
        """Return the line of row i in a text file, or its row number in Parquet."""
        return f"row {i + 1}" if self._lines is None else f"line {self._lines[i]}"


def has_outer_blanks(value: Any) -> bool:
    """Return whether a value is text with blanks at its start or end."""
    return isinstance(value, str) and value != value.strip()


def read_code_list(path: Path, what: str, error: ErrorClass) -> tuple[list[str], list[int]]:
    """Read a text file with one code per line, without empty lines and outer blanks.

    Args:
        path: The file.
        what: What the file is called in errors.
        error: The class of the errors to raise.

    Returns:
        The codes, and the number of the line of each.

    Raises:
        InputError: An `error` if the file cannot be read, is empty, or looks like a table, as a
            copy of the records would.
    """
    if path.suffix.lower() in (".csv", *PARQUET_SUFFIXES):
        raise error(f"{path} {_TABLE_FAULT}")
    lines = read_text(path, what, "a text file with one code per line", error).split("\n")
    numbered = [(text.strip(), number) for number, text in enumerate(lines, 1) if text.strip()]
    if not numbered:
        raise error(f"{path}: the {what} is empty. Write one code per line.")
    filled = [line for line in lines if line.strip()]
    for separator in ",;\t":
        cells = {line.count(separator) for line in filled}
        if len(filled) > 1 and len(cells) == 1 and cells != {0}:
            raise error(f"{path} {_TABLE_FAULT}")
    codes, numbers = zip(*numbered, strict=True)
    return list(codes), list(numbers)


def _read_csv(
    path: Path, what: str, error: ErrorClass
) -> tuple[list[str], ColumnReader, Sequence[int]]:
    """Read a CSV file: column names, a reader of columns, and the line of each row."""
    rows, lines = _parse_rows(path, read_text(path, what, "a CSV file", error), error)
    if not rows:
        raise error(f"{path}: the {what} is empty. Add a line of column names and a line per row.")
    if len(set(map(len, rows))) > 1:
        line = next(n for n, row in zip(lines, rows, strict=True) if len(row) != len(rows[0]))
        raise error(f"{path}: line {line} must have as many values as the first line")
    return rows[0], lambda i: [row[i] for row in rows[1:]], lines[1:]


def _parse_rows(path: Path, text: str, error: ErrorClass) -> tuple[list[list[str]], Sequence[int]]:
    """Parse the rows of a CSV file that are not empty, and find the last line of each."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[list[str]] = []
    lines: list[int] = []
    longest = csv.field_size_limit(max(len(text), 1))  # expressions over many values are long
    try:
        for row in filter(None, reader):
            rows.append(row)
            lines.append(reader.line_num)
    except csv.Error:
        raise error(
            f"{path}: not valid CSV at line {reader.line_num} or before. Check the quotes."
        ) from None
    finally:
        csv.field_size_limit(longest)
    return rows, lines


def _open_parquet(path: Path, what: str, error: ErrorClass) -> tuple[list[str], ColumnReader]:
    """Open a Parquet file: column names, and a reader of columns."""
    try:
        file = open_parquet(path.read_bytes())
        schema = file.schema_arrow
    except FileNotFoundError:
        raise error(f"{path}: no such {what}. Check the path.") from None
    except Exception:  # pyarrow raises many kinds on damage
        raise error(f"{path} cannot be read. Give a Parquet file.") from None

    def read_column(i: int) -> list[Any]:
        kind = schema.types[i]
        inner = kind.value_type if pa.types.is_dictionary(kind) else kind
        texts = pa.types.is_string(inner) or pa.types.is_large_string(inner)
        if not texts and not pa.types.is_integer(inner):
            raise error(f"{path}: column {i + 1} must contain text or integers, not {inner}")
        try:
            table = file.read(columns=[schema.names[i]], use_threads=False)
        except Exception:  # pages that cannot be decoded raise errors of many kinds
            raise error(f"{path} is damaged. Restore the file.") from None
        return list(table.column(0).to_pylist())

    return list(schema.names), read_column
