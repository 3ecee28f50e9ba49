"""Public files: columns and rows of CSV and Parquet, and lists with one code on a line.

Codes of text files are texts that keep their leading zeros. Codes of Parquet files are texts or
integers, as the file has them. A file that is named by mistake may hold data. Errors therefore say
where in a file something is wrong, and never what is there.
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

BLANKS_FAULT = (
    "has blanks around it, which nobody sees; remove them, or list the values in the spec if the "
    "rows hold them so"
)
"""What is wrong with a value of `has_outer_blanks`."""

PARQUET_SUFFIXES = (".parquet", ".pq")


class CodeFile:
    """A public CSV or Parquet file whose columns have names, each read only when needed.

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
        """Read the codes of a column; no code may be empty, or have blanks around it.

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
            # The column is named by its number: without a first line of names, the name would be a
            # value.
            raise self._error(f"{self.locate(i)}: there is no value in column {number + 1}")
        if not codes:
            raise self._error(f"{self.path}: there is nothing in column {number + 1}")
        padded = next((i for i, code in enumerate(codes) if has_outer_blanks(code)), None)
        if padded is not None:
            what = f"the value in column {number + 1}"
            raise self._error(f"{self.locate(padded)}: {what} {BLANKS_FAULT}")
        return codes

    def read_labels(self, name: str) -> list[Any]:
        """Read a column of labels, of which some may be missing.

        Returns:
            A label for each row; None or an empty text where there is none.

        Raises:
            InputError: The file's `error` if there is no column of this name, or several.
        """
        return self._read(self._find_column(name))

    def _find_column(self, name: str) -> int:
        """Return the number of the only column of this name."""
        numbers = [i for i, known in enumerate(self.names) if known == name]
        if len(numbers) != 1:
            what = "no column" if not numbers else "several columns"
            raise self._error(f"{self.path}: the file has {what} {name!r}; name the one to use")
        return numbers[0]

    def iterate_rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the number of each row, from 0, and its value of each column."""
        columns = [self._read(i) for i in range(len(self.names))]
        for i, row in enumerate(zip(*columns, strict=True)):
            yield i, dict(zip(self.names, row, strict=True))

    def locate(self, i: int) -> str:
        """Return the path of the file and the line of row i, for an error."""
        return f"{self.path}: {self.locate_row(i)}"

    def locate_row(self, i: int) -> str:
        """Return the line of row i in a text file, or its number."""
        return f"row {i + 1}" if self._lines is None else f"line {self._lines[i]}"


def has_outer_blanks(value: Any) -> bool:
    """Return whether a value is a text that begins or ends with blanks, which nobody sees."""
    return isinstance(value, str) and value != value.strip()


def read_code_list(path: Path, what: str, error: ErrorClass) -> tuple[list[str], list[int]]:
    """Read a text file that has one code on each line; empty lines are skipped, and blanks around
    codes are no part of them.

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
        raise error(
            f"{path}: a list of codes is a text with one code a line; for a table write "
            "codebook = FILE and column = NAME"
        )
    lines = read_text(path, what, "a text with one code a line", error).split("\n")
    numbered = [(text.strip(), number) for number, text in enumerate(lines, 1) if text.strip()]
    if not numbered:
        raise error(f"{path}: the {what} is empty")
    filled = [line for line in lines if line.strip()]
    for separator in ",;\t":
        cells = {line.count(separator) for line in filled}
        if len(filled) > 1 and len(cells) == 1 and cells != {0}:
            raise error(
                f"{path}: the {what} looks like a table; name its column: codebook = FILE, "
                "column = NAME"
            )
    codes, numbers = zip(*numbered, strict=True)
    return list(codes), list(numbers)


def _read_csv(
    path: Path, what: str, error: ErrorClass
) -> tuple[list[str], ColumnReader, Sequence[int]]:
    """Read a CSV: the names of its columns, a reader of a column, and the line of each row."""
    rows, lines = _parse_rows(path, read_text(path, what, "a CSV file", error), error)
    if not rows:
        raise error(f"{path}: the {what} is empty")
    if len(set(map(len, rows))) > 1:
        line = next(n for n, row in zip(lines, rows, strict=True) if len(row) != len(rows[0]))
        raise error(f"{path}: line {line} has another number of cells than the first line")
    return rows[0], lambda i: [row[i] for row in rows[1:]], lines[1:]


def _parse_rows(path: Path, text: str, error: ErrorClass) -> tuple[list[list[str]], Sequence[int]]:
    """Parse the rows of a CSV that are not empty, and find the last line of each."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[list[str]] = []
    lines: list[int] = []
    longest = csv.field_size_limit(max(len(text), 1))  # expressions over many values are that long
    try:
        for row in filter(None, reader):
            rows.append(row)
            lines.append(reader.line_num)
    except csv.Error:
        raise error(
            f"{path}: line {reader.line_num} or before it is not CSV; check its quotes"
        ) from None
    finally:
        csv.field_size_limit(longest)
    return rows, lines


def _open_parquet(path: Path, what: str, error: ErrorClass) -> tuple[list[str], ColumnReader]:
    """Open a Parquet file: the names of its columns, and a reader of a column."""
    try:
        file = open_parquet(path.read_bytes())
        schema = file.schema_arrow
    except FileNotFoundError:
        raise error(f"{path}: there is no such {what}") from None
    except Exception:  # pyarrow raises many kinds on damage
        raise error(f"{path}: cannot be read; give a Parquet file") from None

    def read_column(i: int) -> list[Any]:
        kind = schema.types[i]
        inner = kind.value_type if pa.types.is_dictionary(kind) else kind
        texts = pa.types.is_string(inner) or pa.types.is_large_string(inner)
        if not texts and not pa.types.is_integer(inner):
            raise error(f"{path}: column {i + 1} must hold texts or integers, not {inner}")
        try:
            table = file.read(columns=[schema.names[i]], use_threads=False)
        except Exception:
            raise error(f"{path}: cannot be read; the file is damaged") from None
        return list(table.column(0).to_pylist())

    return list(schema.names), read_column
