"""Codes: the cells of an Arrow column's values, by the public domain."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from fitplug.domain import Attribute, Categories, Codes, Integers
from fitplug_dask.texts import codes_of_days, codes_of_texts, expected

_SPAN = 2**16

_STRINGS = ("is_string", "is_large_string", "is_string_view")
_BYTES = ("is_binary", "is_large_binary", "is_binary_view")
_UTC = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")
_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_ACCEPTED: dict[type, set[str]] = {
    str: {"strings", "null"},
    int: {"integers", "null"},
    bool: {"booleans", "null"},
    float: {"integers", "floats", "null"},
    datetime.date: {"dates", "null"},
}


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
    if pt.is_date(arrow_type) or pt.is_timestamp(arrow_type):
        return "dates"
    return "null" if pt.is_null(arrow_type) else None


def mismatch(attribute: Attribute, arrow_type: Any) -> str | None:
    """Why a column of this type cannot be coded by `attribute`, or None if it can."""
    if kind(arrow_type) not in _ACCEPTED[attribute.value_type]:
        return f"holds {arrow_type}, but the domain expects {expected(attribute)}"
    if pt.is_timestamp(arrow_type) and arrow_type.tz not in (None, *_UTC):
        return f"holds times of the zone {arrow_type.tz}, where days begin at another time than UTC"
    return None


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
            self._of_integer = attribute.codes(np.arange(low, high + 1))
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
    else:
        return None
    return (low, high) if high - low < _SPAN and abs(low) < 2**62 else None


def _plain(attribute: Attribute, column: Any) -> Codes:
    holds = kind(column.type)
    if holds == "strings":
        texts = _texts(column)
        # Only the text of CSV files comes to attributes of other types.
        typed = attribute.value_type is str
        return attribute.codes(texts) if typed else codes_of_texts(attribute, texts.tolist())
    if holds == "dates":
        values, missing = _days(column)
        codes = codes_of_days(attribute, values)
    else:
        values, missing = _values(column)
        codes = attribute.codes(values)
    if missing is not None:
        codes[missing] = attribute.null_code
    return codes


def _values(column: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]:
    """A column (n,) of numbers or booleans and where it is null; there the value means nothing."""
    if not column.null_count:
        return column.to_numpy(zero_copy_only=False), None
    missing = column.is_null().to_numpy(zero_copy_only=False)
    if not pt.is_floating(column.type):  # a null float becomes NaN by itself
        column = column.fill_null(pa.scalar(0).cast(column.type))
    return column.to_numpy(zero_copy_only=False), missing


def _days(column: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]:
    """Days (n,) since 1970 of dates and times, the latter in their own zone, and where it is null.

    The day of a time is the one that has begun, before 1970 too.
    """
    if pt.is_date32(column.type):
        return _values(column.view(pa.int32()))
    per_day = _PER_DAY["ms" if pt.is_date64(column.type) else column.type.unit]
    values, missing = _values(column.view(pa.int64()))
    return values // per_day, missing


def _texts(column: Any) -> Any:
    # Damaged UTF-8 is a value like any other that the domain does not have; it must not raise.
    raw = column.cast(pa.large_binary()).to_pylist()
    texts = np.empty(len(raw), dtype=object)
    texts[:] = [None if b is None else b.decode("utf-8", "surrogateescape") for b in raw]
    return texts
