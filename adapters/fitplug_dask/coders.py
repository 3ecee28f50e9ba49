"""Coders: what each value of an Arrow column adds to the number of its record's cell."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from fitplug.domain import Attribute, Categories, Codes, Dates, Integers
from fitplug_dask.codes import codes_of, codes_of_integers, days, kind, values_of

_SPAN = 2**16

Terms = npt.NDArray[np.int64]


class Coder:
    """Turns batches of one column into terms: the stride times the code, or `outside`.

    stride: cells between two codes that follow each other; outside: the term of a value that has
    no cell, negative; rows: most of a batch. Each dictionary and each public range of integers is
    looked up once, so that a batch costs one gather; what is written is memory of the caller, for
    on fresh memory page faults take longer than the gather.
    """

    def __init__(self, attribute: Attribute, stride: int, outside: int, rows: int) -> None:
        self._attribute = attribute
        self._stride, self._outside = stride, outside
        self._at = np.empty(rows, dtype=np.int64)
        self._entries: Any = None
        self._entry_outside = False
        self._of_entry: Terms = np.empty(0, dtype=np.int64)
        # Code by code; before the first, the code -1.
        self._of_code = self._terms_of(np.arange(-1, attribute.size))
        self._null = int(self._terms_of(np.array([attribute.null_code]))[0])
        self._span = _span(attribute)
        if self._span:
            low, high = self._span
            codes = codes_of_integers(attribute, np.arange(low, high + 1))
            # The term of null follows those of the integers.
            self._of_integer = np.append(self._terms_of(codes), self._null)
            self._inner_outside = bool((codes[1:-1] < 0).any())

    def terms(self, column: Any, out: Terms) -> bool:
        """Writes the terms of an Arrow array (n,) to `out` (n,): whether any may be `outside`."""
        holds = kind(column.type)
        if holds == "null":
            out.fill(self._null)
            return self._null < 0
        if holds == "strings" and not pt.is_dictionary(column.type):
            column = column.dictionary_encode()
        if pt.is_dictionary(column.type):
            return self._by_entry(column.dictionary, column.indices, out)
        if holds == "dates":
            column, holds = days(column), "integers"
        if holds == "integers" and self._span:
            return self._by_integer(column, self._span, out)
        at = self._at[: len(column)]
        np.add(codes_of(self._attribute, column), 1, out=at)
        _gather(self._of_code, at, out)
        return True

    def _by_entry(self, entries: Any, indices: Any, out: Terms) -> bool:
        self._learn(entries)
        doubtful = self._entry_outside
        if indices.null_count:
            doubtful |= self._null < 0
            # A narrow index may not hold one number more than there are entries.
            indices = indices.cast(pa.int64()).fill_null(len(entries))
        narrow = indices.to_numpy()
        if len(narrow) and not (narrow.min() >= 0 and narrow.max() < len(self._of_entry)):
            raise IndexError("a dictionary index points nowhere")
        # Widened here, into memory used before: `take` would do it in memory of its own.
        at = self._at[: len(narrow)]
        np.copyto(at, narrow, casting="unsafe")
        _gather(self._of_entry, at, out)
        return doubtful

    def _learn(self, entries: Any) -> None:
        known = self._entries
        if known is not None and entries.equals(known):
            return
        # Pages without a dictionary append to that of the pages before; only their part is new.
        grown = known is not None and entries.slice(0, len(known)).equals(known)
        start = len(known) if grown else 0
        new = self._terms_of(codes_of(self._attribute, entries.slice(start)))
        # The term of null follows those of the entries.
        self._of_entry = np.concatenate([self._of_entry[:start], new, [self._null]])
        self._entry_outside = bool((self._of_entry[:-1] < 0).any())
        self._entries = entries

    def _by_integer(self, column: Any, span: tuple[int, int], out: Terms) -> bool:
        low, high = span
        at = self._at[: len(column)]
        values, missing = values_of(column)
        if not len(values):
            return False
        inside = bool(values.min() > low and values.max() < high)
        if not inside and values.dtype == np.uint64:
            values = np.minimum(values, np.uint64(2**63 - 1))
        # Widened before anything else: narrow or unsigned integers wrap.
        np.copyto(at, values, casting="unsafe")
        if not inside:
            np.clip(at, low, high, out=at)
        at -= low
        if missing is not None:
            at[missing] = len(self._of_integer) - 1
        _gather(self._of_integer, at, out)
        return self._inner_outside or not inside or missing is not None

    def _terms_of(self, codes: Codes) -> Terms:
        return np.where(codes < 0, self._outside, codes * self._stride)


def _gather(table: Terms, at: npt.NDArray[Any], out: Terms) -> None:
    # All of `at` is within the table; only if told what to do otherwise does `take` write straight
    # to `out`, and a fifth faster when it is to wrap than to clip.
    np.take(table, at, out=out, mode="wrap")


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
