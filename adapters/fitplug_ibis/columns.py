"""Columns: the kind of values in a database column, by its type, and whether they can be read.

Types are public. A type that cannot be read as in files is refused before any row is read.

SQLite stores values of any type in a column of any type. A value whose type differs from its
column's is outside the domain.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

from fitplug.counts import WEIGHT, suggest_column
from fitplug.domain import MOST_NUMBER, TYPE_NAMES, Codec, Encoder
from fitplug.errors import DataError

_ACCEPTED: dict[type, frozenset[str]] = {
    str: frozenset(["strings"]),
    int: frozenset(["integers", "floats", "decimals"]),
    bool: frozenset(["booleans"]),
    float: frozenset(["integers", "floats", "decimals"]),
    datetime.date: frozenset(["dates"]),
}
_FLOAT_DIGITS = 15
"""Decimals of at most this many digits have the same nearest float in every database."""

_STORED = {
    "strings": ["text"],
    "dates": ["text"],
    "integers": ["integer"],
    "booleans": ["integer"],
    "floats": ["integer", "real"],
    "decimals": ["integer", "real"],
}
"""SQLite's names of the value types that a column of each kind may hold."""


@dataclass(frozen=True)
class Column:
    """A column of a database.

    Attributes:
        name: Its name.
        kind: What it holds: "strings", "integers", "floats", "decimals", "booleans", "dates" or
            "null".
        value: The expression of its values; null where SQLite has one of another type.
        dtype: Its type, as Ibis names it.
        is_sqlite: Whether SQLite holds it.
    """

    name: str
    kind: str
    value: Any
    dtype: Any
    is_sqlite: bool

    @property
    def is_integer(self) -> bool:
        """Whether all values are integers."""
        return self.kind == "integers"


def read_column(table: Any, name: str, is_sqlite: bool) -> Column:
    """Find a column of an Ibis table by its name.

    Raises:
        DataError: There is no such column, or its type is one that is not read.
    """
    if name not in table.columns:
        raise DataError(f"the table has no column {name!r}. {suggest_column(name, table.columns)}")
    value = table[name]
    kind, dtype = _classify(value.type()), value.type()
    if kind is None:
        zoned = dtype.is_timestamp()
        why = "whose dates depend on the zone" if zoned else "which fitplug does not read"
        raise DataError(
            f"column {name!r} has the type {dtype}, {why}. Convert it{' to dates' if zoned else ''}"
            " in the database: table.mutate(...)."
        )
    if is_sqlite and kind in _STORED:
        value = value.typeof().isin(_STORED[kind]).ifelse(value, None)
    return Column(name, kind, value, dtype, is_sqlite)


def _classify(dtype: Any) -> str | None:
    """Return the kind of values of an Ibis type; None for types that cannot be read."""
    if dtype.is_timestamp():
        return "dates" if dtype.timezone is None else None
    kinds = {
        "strings": dtype.is_string(),
        "integers": dtype.is_integer(),
        "floats": dtype.is_floating(),
        "decimals": dtype.is_decimal(),
        "booleans": dtype.is_boolean(),
        "dates": dtype.is_date(),
        "null": dtype.is_null(),
        "uuids": dtype.is_uuid(),
    }
    return next((kind for kind, is_one in kinds.items() if is_one), None)


def check_column(column: Column, encoder: Encoder) -> None:
    """Raise DataError if an attribute, a filter or the weight cannot read a column."""
    if isinstance(encoder, Codec) and not encoder.__module__.startswith("fitplug."):
        # What cells hold is written as expressions for the kinds of fitplug only.
        raise DataError(
            f"attribute {column.name!r} is of the kind {type(encoder.attribute).__name__}, which "
            "fitplug cannot count in a database. Count the rows from files."
        )
    kind, dtype = column.kind, column.dtype
    if kind == "null":
        return
    if encoder is WEIGHT:
        fits = kind == "integers" or (kind == "decimals" and dtype.scale == 0)
        expected = f"weights are {TYPE_NAMES[int]}"
    else:
        fits = kind in _ACCEPTED[encoder.value_type]
        expected = f"the domain expects {TYPE_NAMES[encoder.value_type]}"
    if not fits:
        raise DataError(
            f"column {column.name!r} has the type {dtype}, but {expected}. Convert it in the "
            f"database: table.mutate(...)."
        )
    is_long = kind == "decimals" and (dtype.precision is None or dtype.precision > _FLOAT_DIGITS)
    if encoder.value_type is float and is_long and not column.is_sqlite:
        raise DataError(
            f"column {column.name!r} has the type {dtype}, which databases round to floats in "
            "different ways. Convert it to double in the database: table.mutate(...)."
        )
    if encoder.value_type is int and not column.is_integer and kind != "decimals":
        span = encoder.integer_span
        if span is not None and max(map(abs, span)) > MOST_NUMBER:
            raise DataError(
                f"column {column.name!r} has the type {dtype}, which does not hold all integers of "
                "the domain. Convert it to bigint in the database: table.mutate(...)."
            )
