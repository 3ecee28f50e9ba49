"""Header: what a file says about itself before any row is read, and its names of columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fitplug_dask.sources import StoredColumn

_FIELD_ID = b"PARQUET:field_id"
_ROW_BYTES = 32  # a guess, for files that do not say how many rows they hold


@dataclass(frozen=True)
class Header:
    """What a file says about itself.

    A row group is what can be read independently of the other rows: a row group of Parquet, a
    record batch of an Arrow file, an entire Arrow stream, or an entire CSV file.

    Attributes:
        schema: The names and Arrow types of all columns. All columns of CSV are binary, as their
            text is typed by the domain.
        rows: The rows of each row group; guesses of at least 1 unless `exact`.
        exact: Whether `rows` are exact.
        records: The rows of the file, None if only reading the file can count them.
        footer: The footer of a Parquet file in a store, if tasks take it along.
        unchecked: Whether the types of the columns are known only when rows are read. The schema
            then has the names, or is None if these are not known either.
    """

    schema: Any
    rows: tuple[int, ...]
    exact: bool
    records: int | None
    footer: bytes | None = None
    unchecked: bool = False


class DamagedFileError(Exception):
    """A fault of a file, in words that quote nothing of its content."""


def guess_rows(size: int) -> int:
    """Return a guess of the rows of a file of `size` bytes, at least 1.

    Partitions and progress use it where no footer says how many rows there are.
    """
    return max(1, size // _ROW_BYTES)


def find_stored_column(schema: Any, column: StoredColumn) -> str | None:
    """Return the name of a column in a file, or None if the file lacks it.

    Args:
        schema: The Arrow schema of the file.
        column: What the table says of the column. If the file numbers its columns, its number
            decides, as columns may be renamed.
    """
    if column.field_id is not None and not lacks_numbers(schema):
        for field in schema:
            if _read_field_id(field) == column.field_id:
                name: str = field.name
                return name
        return None
    return next((name for name in column.names if name in schema.names), None)


def lacks_numbers(schema: Any) -> bool:
    """Return whether a file numbers none of its columns."""
    return all(_read_field_id(field) is None for field in schema)


def _read_field_id(field: Any) -> int | None:
    """Return the number of a column in the footer, if the file numbers its columns."""
    held = (field.metadata or {}).get(_FIELD_ID)
    return None if held is None or not held.lstrip(b"-").isdigit() else int(held)
