"""Coders: what each value of an Arrow column adds to the number of its record's cell."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from fitplug.domain import Attribute, Categories, Codes, Dates, Integers
from fitplug_dask.codes import codes_of, codes_of_integers, days, kind, values_of
from fitplug_dask.loops import Lookup

_SPAN = 2**16

Terms = npt.NDArray[np.int64]


class Coder:
    """Turns batches of one column into terms: the stride times the code, or `outside`.

    stride: cells between two codes that follow each other; outside: the term of a value that has
    no cell, negative. Each dictionary and each public range of integers is looked up once, so that
    a batch costs one gather.
    """

    def __init__(self, attribute: Attribute, stride: int, outside: int) -> None:
        self._attribute = attribute
        self._stride, self._outside = stride, outside
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
            self._integer_outside = bool((codes < 0).any())

    def lookup(self, column: Any) -> Lookup:
        """What an Arrow array (n,) adds to its rows' cells."""
        holds = kind(column.type)
        if holds == "null":
            codes = np.full(len(column), self._attribute.null_code)
            return Lookup(codes, -1, self._of_code, strict=True, doubtful=True)
        if holds == "strings" and not pt.is_dictionary(column.type):
            column = column.dictionary_encode()
        if pt.is_dictionary(column.type):
            return self._by_entry(column.dictionary, column.indices)
        if holds == "dates":
            column, holds = days(column), "integers"
        if holds == "integers" and self._span:
            return self._by_integer(column, self._span)
        codes = codes_of(self._attribute, column)
        return Lookup(codes, -1, self._of_code, strict=True, doubtful=True)

    def _by_entry(self, entries: Any, indices: Any) -> Lookup:
        self._learn(entries)
        terms, doubtful = self._of_entry, self._entry_outside
        if not indices.null_count:
            return Lookup(_numbers(indices), 0, terms[:-1], strict=True, doubtful=doubtful)
        most = pc.max(indices).as_py()
        if most is not None and most >= len(entries):
            raise IndexError("an index points nowhere")
        # A narrow index may not hold one number more than there are entries.
        indices = indices.cast(pa.int64()).fill_null(len(entries))
        doubtful |= self._null < 0
        return Lookup(_numbers(indices), 0, terms, strict=True, doubtful=doubtful)

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

    def _by_integer(self, column: Any, span: tuple[int, int]) -> Lookup:
        low, high = span
        terms, doubtful = self._of_integer, self._integer_outside
        if not column.null_count:
            return Lookup(_numbers(column), low, terms[:-1], strict=False, doubtful=doubtful)
        values, missing = values_of(column)
        values = np.clip(_signed(values).astype(np.int64), low, high)
        values[missing] = high + 1
        doubtful |= self._null < 0
        return Lookup(values, low, terms, strict=False, doubtful=doubtful)

    def _terms_of(self, codes: Codes) -> Terms:
        return np.where(codes < 0, self._outside, codes * self._stride)


def _numbers(column: Any) -> npt.NDArray[Any]:
    """An Arrow array (n,) of integers without nulls, of a type that a Lookup takes: what is too
    large stays too large.

    Arrow's own conversion gives Python's lock away for it, which other threads then take.
    """
    if not len(column):
        return np.empty(0, dtype=np.int64)
    kind = column.type.to_pandas_dtype()
    start = column.offset * np.dtype(kind).itemsize
    return _signed(np.frombuffer(column.buffers()[1], kind, len(column), start))


def _signed(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.minimum(values, 2**63 - 1).astype(np.int64) if values.dtype == np.uint64 else values


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
