"""Files of codes: columns of public CSV and Parquet files, and lists of codes, one a line.

Codes of text files are texts, with their leading zeros; those of Parquet are texts or integers, as
the file has them. A file that is named by mistake may hold data: errors say where in a file
something is wrong, and never what it holds.
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
from fitplug_cli.files import text_of

Code: TypeAlias = str | int
Refusal: TypeAlias = type[InputError]

PARQUET = (".parquet", ".pq")


class CodeFile:
    """A CSV or Parquet file whose columns have names; a column is read when it is asked for."""

    def __init__(self, path: Path, what: str, error: Refusal) -> None:
        """what: what the file is called in errors. Raises an `error`."""
        self.path, self._error = path, error
        self._read: Callable[[int], list[Any]]
        if path.suffix.lower() in PARQUET:
            self.names, self._read = _parquet(path, what, error)
            self._lines: Sequence[int] | None = None
        else:
            self.names, self._read, self._lines = _csv(path, what, error)

    def column(self, name: str) -> list[Code]:
        """The codes of a column, none empty. Raises an `error` if it is not there once, or has
        other values than texts or integers.
        """
        there = [i for i, known in enumerate(self.names) if known == name]
        if len(there) != 1:
            found = "no column" if not there else "several columns"
            raise self._error(f"{self.path}: the file has {found} {name!r}; name the one to use")
        codes = self._read(there[0])
        for i, code in enumerate(codes):
            if code is None or code == "":
                # By number: where a first line of names is missing, a name is a value.
                raise self._error(f"{self.where(i)}: there is no value in column {there[0] + 1}")
        if not codes:
            raise self._error(f"{self.path}: there is nothing in column {there[0] + 1}")
        return codes

    def where(self, i: int) -> str:
        """The file, and the place of a row in it."""
        return f"{self.path}: {self.place(i)}"

    def place(self, i: int) -> str:
        """The place of a row in the file."""
        return f"row {i + 1}" if self._lines is None else f"line {self._lines[i]}"


def codes_of_lines(path: Path, what: str, error: Refusal) -> tuple[list[str], list[int]]:
    """The codes of a file, one a line, and their lines; empty lines are passed over. Raises an
    `error` also for what looks like a table, as a copy of the records would.
    """
    if path.suffix.lower() in (".csv", *PARQUET):
        raise error(
            f"{path}: a list of codes is a text with one code a line; for a table write "
            "codebook = FILE and column = NAME"
        )
    lines = text_of(path, what, "a text with one code a line", error).split("\n")
    held = [(text.strip(), number) for number, text in enumerate(lines, 1) if text.strip()]
    if not held:
        raise error(f"{path}: the {what} is empty")
    filled = [line for line in lines if line.strip()]
    for mark in ",;\t":
        cells = {line.count(mark) for line in filled}
        if len(filled) > 1 and len(cells) == 1 and cells != {0}:
            raise error(
                f"{path}: the {what} looks like a table; name its column: codebook = FILE, "
                "column = NAME"
            )
    codes, numbers = zip(*held, strict=True)
    return list(codes), list(numbers)


def _csv(
    path: Path, what: str, error: Refusal
) -> tuple[list[str], Callable[[int], list[Any]], list[int]]:
    text = text_of(path, what, "a CSV file", error)
    rows, lines = [], []
    try:
        for line, row in _rows(text):
            rows.append(row)
            lines.append(line)
            if len(row) != len(rows[0]):
                raise error(f"{path}: line {line} has another number of cells than the first line")
    except csv.Error:
        raise error(f"{path}: line {len(lines) + 1} or after it is no CSV") from None
    if not rows:
        raise error(f"{path}: the {what} is empty")
    return rows[0], lambda i: [row[i] for row in rows[1:]], lines[1:]


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    for row in reader:
        if row:
            yield reader.line_num, row


def _parquet(path: Path, what: str, error: Refusal) -> tuple[list[str], Callable[[int], list[Any]]]:
    try:
        file, _ = open_parquet(path.read_bytes())
        schema = file.schema_arrow
    except FileNotFoundError:
        raise error(f"{path}: there is no such {what}") from None
    except Exception:  # pyarrow raises many kinds on damage
        raise error(f"{path}: cannot be read; give a Parquet file") from None

    def column(i: int) -> list[Any]:
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

    return list(schema.names), column
