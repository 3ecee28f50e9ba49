"""Stored columns: under which name a file holds a column of a table."""

from __future__ import annotations

from typing import Any

from fitplug_dask.sources import StoredColumn

_FIELD_ID = b"PARQUET:field_id"


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
