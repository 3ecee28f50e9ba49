"""Codes: the cells of an Arrow column's values, by the public domain."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from fitplug.domain import Attribute, Codes, Dates
from fitplug_dask.texts import codes_of_texts, expected

_STRINGS = ("is_string", "is_large_string", "is_string_view")
_BYTES = ("is_binary", "is_large_binary", "is_binary_view")
_ACCEPTED: dict[type, set[str]] = {
    str: {"strings", "null"},
    int: {"integers", "null"},
    bool: {"booleans", "null"},
    float: {"integers", "floats", "null"},
    datetime.date: {"dates", "strings", "null"},
}

_SECONDS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def kind(arrow_type: Any) -> str | None:
    """What a column of this Arrow type holds, as attributes tell values apart; None for others.

    Binary columns count as strings: writers that set no logical type store UTF-8 text so.
    """
    if pt.is_dictionary(arrow_type):
        return kind(arrow_type.value_type)
    if any(getattr(pt, test)(arrow_type) for test in (*_STRINGS, *_BYTES)):
        return "strings"
    if pt.is_integer(arrow_type):
        return "integers"
    if pt.is_floating(arrow_type):
        return "floats"
    if pt.is_boolean(arrow_type):
        return "booleans"
    if is_date(arrow_type):
        return "dates"
    return "null" if pt.is_null(arrow_type) else None


def is_date(arrow_type: Any) -> bool:
    """Whether a column of this type says which day: not a time of a zone, whose day depends on
    where one is.
    """
    return pt.is_date(arrow_type) or (pt.is_timestamp(arrow_type) and arrow_type.tz is None)


def days(column: Any) -> Any:
    """Days since 1970-01-01, an Arrow array of int64 (n,), of dates or times without a zone."""
    if pt.is_date32(column.type):
        return column.cast(pa.int32()).cast(pa.int64())
    ticks = 86_400 * _SECONDS[getattr(column.type, "unit", "ms")]  # date64 is in milliseconds
    values, missing = values_of(column.cast(pa.int64()))
    return pa.array(values // ticks, mask=missing)


def mismatch(attribute: Attribute, arrow_type: Any, says: str = "the domain expects") -> str | None:
    """Why a column of this type cannot be coded by `attribute`, or None if it can."""
    if kind(arrow_type) in _ACCEPTED[attribute.value_type]:
        return None
    return f"holds {arrow_type}, but {says} {expected(attribute)}"


def codes_of(attribute: Attribute, column: Any) -> Codes:
    """Cells (n,) of an Arrow array (n,) without dictionary; -1 where a value has none."""
    if kind(column.type) == "strings":
        texts = _texts(column)
        # Text comes to attributes of other types from CSV files, and to dates from anywhere.
        typed = attribute.value_type is str
        return attribute.codes(texts) if typed else codes_of_texts(attribute, texts.tolist())
    if kind(column.type) == "dates":
        column = days(column)
    values, missing = values_of(column)
    codes = codes_of_integers(attribute, values)
    if missing is not None:
        codes[missing] = attribute.null_code
    return codes


def codes_of_integers(attribute: Attribute, values: npt.NDArray[Any]) -> Codes:
    """Cells (n,) of values that are numbers or booleans, which for dates are days."""
    return (attribute.codes_of_days if isinstance(attribute, Dates) else attribute.codes)(values)


def values_of(column: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]:
    """A column (n,) of numbers or booleans and where it is null; there the value means nothing."""
    if not column.null_count:
        return column.to_numpy(zero_copy_only=False), None
    missing = column.is_null().to_numpy(zero_copy_only=False)
    if not pt.is_floating(column.type):  # a null float becomes NaN by itself
        column = column.fill_null(pa.scalar(0).cast(column.type))
    return column.to_numpy(zero_copy_only=False), missing


def _texts(column: Any) -> Any:
    # Damaged UTF-8 is a value like any other that the domain does not have; it must not raise.
    raw = column.cast(pa.large_binary()).to_pylist()
    texts = np.empty(len(raw), dtype=object)
    texts[:] = [None if b is None else b.decode("utf-8", "surrogateescape") for b in raw]
    return texts
