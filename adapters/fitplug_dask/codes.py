"""Codes: the cells of an Arrow column's values, by the public domain."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from fitplug.domain import Attribute, Categories, Codes, Dates, Integers
from fitplug_dask.texts import codes_of_texts, expected

_SPAN = 2**16

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
    values, missing = _values(column.cast(pa.int64()))
    return pa.array(values // ticks, mask=missing)


def mismatch(attribute: Attribute, arrow_type: Any) -> str | None:
    """Why a column of this type cannot be coded by `attribute`, or None if it can."""
    if kind(arrow_type) in _ACCEPTED[attribute.value_type]:
        return None
    return f"holds {arrow_type}, but the domain expects {expected(attribute)}"


class Coder:
    """Codes the batches of one column, of at most `rows` rows each.

    It looks up each dictionary and each public range of integers once, and writes to one array
    again and again: on fresh memory, page faults take longer than the codes.
    """

    def __init__(self, attribute: Attribute, rows: int) -> None:
        self._attribute = attribute
        self._codes = np.empty(rows, dtype=np.int64)
        self._entries: Any = None
        self._of_entry: Codes = np.empty(0, dtype=np.int64)
        self._span = _span(attribute)
        if self._span:
            low, high = self._span
            self._of_integer = _of_integers(attribute, np.arange(low, high + 1))
            self._integers = np.empty(rows, dtype=np.int64)

    def codes(self, column: Any) -> Codes:
        """Cells (n,) of an Arrow array (n,), until the next call; -1 where there is none."""
        out = self._codes[: len(column)]
        holds = kind(column.type)
        if holds == "null":
            out.fill(self._attribute.null_code)
            return out
        if holds == "strings" and not pt.is_dictionary(column.type):
            column = column.dictionary_encode()
        if pt.is_dictionary(column.type):
            return self._by_entry(column.dictionary, column.indices, out)
        if holds == "dates":
            column, holds = days(column), "integers"
        if holds == "integers" and self._span:
            return self._by_integer(column, self._span, out)
        return _plain(self._attribute, column)

    def _by_entry(self, entries: Any, indices: Any, out: Codes) -> Codes:
        self._learn(entries)
        if indices.null_count:
            # A narrow index may not hold one number more than there are entries.
            indices = indices.cast(pa.int64()).fill_null(len(entries))
        at = indices.to_numpy()
        if len(at) and not (at.min() >= 0 and at.max() < len(self._of_entry)):
            raise IndexError("a dictionary index points nowhere")
        # Checked just before, as `take` checks only in memory of its own.
        return np.take(self._of_entry, at, out=out, mode="clip")

    def _learn(self, entries: Any) -> None:
        known = self._entries
        if known is not None and entries.equals(known):
            return
        # Pages without a dictionary append to that of the pages before; only their part is new.
        grown = known is not None and entries.slice(0, len(known)).equals(known)
        start = len(known) if grown else 0
        new = _plain(self._attribute, entries.slice(start))
        # The code of null follows those of the entries.
        null = np.array([self._attribute.null_code])
        self._of_entry = np.concatenate([self._of_entry[:start], new, null])
        self._entries = entries

    def _by_integer(self, column: Any, span: tuple[int, int], out: Codes) -> Codes:
        low, high = span
        at = self._integers[: len(column)]
        values, missing = _values(column)
        if values.dtype == np.uint64:
            values = np.minimum(values, np.uint64(2**63 - 1))
        # Widened before anything else: narrow or unsigned integers wrap.
        np.copyto(at, values, casting="unsafe")
        np.clip(at, low, high, out=at)
        at -= low
        np.take(self._of_integer, at, out=out, mode="clip")
        if missing is not None:
            out[missing] = self._attribute.null_code
        return out


def _span(attribute: Attribute) -> tuple[int, int] | None:
    """Ends of a short range of integers outside which all have the same code as its ends."""
    if isinstance(attribute, Integers):
        low, high = attribute.low - 1, attribute.high + 1
    elif isinstance(attribute, Categories) and attribute.value_type is int:
        known = [int(value) for value in attribute.values]
        low, high = min(known) - 1, max(known) + 1
    elif isinstance(attribute, Dates):
        low, high = attribute.days[0] - 1, attribute.days[1] + 1
    else:
        return None
    return (low, high) if high - low < _SPAN and abs(low) < 2**62 else None


def _plain(attribute: Attribute, column: Any) -> Codes:
    if kind(column.type) == "strings":
        texts = _texts(column)
        # Text comes to attributes of other types from CSV files, and to dates from anywhere.
        typed = attribute.value_type is str
        return attribute.codes(texts) if typed else codes_of_texts(attribute, texts.tolist())
    if kind(column.type) == "dates":
        column = days(column)
    values, missing = _values(column)
    codes = _of_integers(attribute, values)
    if missing is not None:
        codes[missing] = attribute.null_code
    return codes


def _of_integers(attribute: Attribute, values: npt.NDArray[Any]) -> Codes:
    """Cells (n,) of values that are numbers or booleans, which for dates are days."""
    return (attribute.codes_of_days if isinstance(attribute, Dates) else attribute.codes)(values)


def _values(column: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]:
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
