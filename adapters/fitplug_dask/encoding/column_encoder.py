"""Column encoder: from the values of Arrow columns to the numbers of their cells.

The number of a row's cell is a sum of terms, one for each column. If a column has few distinct
values, their terms are looked up in a table; otherwise each value is encoded. Weights and measures
are read as codes, because they are numbers rather than cells.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from fitplug.domain import OUTSIDE, CategoriesCodec, Codes, Encoder, MeasureCodec, Texts, find_days
from fitplug_dask import compiled_loops as loops
from fitplug_dask.encoding.array_memory import view_numbers, view_stretches, view_validity
from fitplug_dask.encoding.column_types import classify_type
from fitplug_dask.encoding.stored_values import encode_texts

_MAX_SPAN = 2**16

_SHORT_DICTIONARY = 2**8
_MOST_TEXTS = 2**12  # the texts whose terms an encoder remembers

Terms = npt.NDArray[np.int64]


class Lookup(NamedTuple):
    """The terms of a column: terms[value - low], or the last term for a null.

    Attributes:
        values: The values (n,), integers of up to 32 bits, or int64.
        low: The value of the first term, from -2^62 to 2^62.
        terms: The terms (m,) of the values, int64; if `valid` is given, the term of null follows.
        strict: Whether values beyond the terms are refused. Otherwise they take the first or the
            last term of a value.
        doubtful: Whether a term may be negative.
        valid: The validity bits, lowest first: bit start + i is 0 if value i is null. None if no
            value is null.
        start: The position of the first bit.
    """

    values: npt.NDArray[Any]
    low: int
    terms: Terms
    strict: bool
    doubtful: bool
    valid: npt.NDArray[np.uint8] | None = None
    start: int = 0


def convert_to_days(column: Any) -> Any:
    """Return the days since 1970-01-01 as an Arrow array (n,) of int64, null where there is none.

    Args:
        column: An Arrow array (n,) of dates, or of times without a time zone.
    """
    unit = getattr(column.type, "unit", "ms")  # date64 is in milliseconds
    if pt.is_date32(column.type):
        column, unit = column.cast(pa.int32()), "D"
    ticks, missing = split_nulls(column.cast(pa.int64()))
    days, are_days = find_days(ticks, unit)
    if missing is not None:
        are_days &= ~missing
    return pa.array(days, mask=None if are_days.all() else ~are_days)


def encode_column(attribute: Encoder, column: Any) -> Codes:
    """Return the codes (n,) of an Arrow array (n,); -1 where a value has none.

    Args:
        attribute: The attribute whose values the column holds.
        column: An Arrow array without a dictionary, of a type that the attribute can read.
    """
    if classify_type(column.type) == "strings":
        if isinstance(attribute, CategoriesCodec) and attribute.value_type is str:
            codes = attribute.codes_of_texts(Texts.from_buffer(*view_stretches(column)))
            if column.null_count:
                codes[column.is_null().to_numpy(zero_copy_only=False)] = attribute.null_code
            return codes
        texts = _decode_texts(column)
        # Attributes of other types read text from CSV files, and dates from any file.
        if attribute.value_type is str:
            return attribute.codes(texts)
        return encode_texts(attribute, texts.tolist())
    if classify_type(column.type) == "dates":
        column = convert_to_days(column)
    values, missing = split_nulls(column)
    codes = attribute.codes_of_numbers(values)
    if missing is not None:
        codes[missing] = attribute.null_code
    return codes


def encode_measure(measure: MeasureCodec, column: Any, codes: Codes) -> None:
    """Encode an Arrow array (n,) of numbers or dates.

    Args:
        measure: The measure whose values the column holds.
        column: The array, without a dictionary.
        codes: The codes (n,), which are overwritten; -1 where a value has none.
    """
    if classify_type(column.type) == "dates":
        column = convert_to_days(column)
    if column.type in (pa.float16(), pa.uint64()) or not len(column):
        codes[:] = encode_column(measure, column)
        return
    bits, start = view_validity(column)
    first, last, unit = map(float, measure.scale)
    values, shares, null_code = view_numbers(column), measure.shares, measure.null_code
    loops.encode_numbers(values, bits, start, first, last, unit, shares, null_code, codes)


def split_nulls(column: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]:
    """Split an Arrow array of numbers or booleans into its values and its nulls.

    Returns:
        The values (n,), and whether each is null (n,), or None if none is. The values at nulls are
        arbitrary.
    """
    if not column.null_count:
        return column.to_numpy(zero_copy_only=False), None
    missing = column.is_null().to_numpy(zero_copy_only=False)
    if not pt.is_floating(column.type):  # Arrow turns null floats into NaN
        column = column.fill_null(pa.scalar(0).cast(column.type))
    return column.to_numpy(zero_copy_only=False), missing


def _decode_texts(column: Any) -> Any:
    """Return the texts (n,) of a column of strings or bytes, and None for null."""
    # Invalid UTF-8 is just another value outside the domain; it must not raise.
    raw = column.cast(pa.large_binary()).to_pylist()
    texts = np.empty(len(raw), dtype=object)
    texts[:] = [None if b is None else b.decode("utf-8", "surrogateescape") for b in raw]
    return texts


class ColumnEncoder:
    """Encodes batches of one column as terms: the stride times the code, or `outside`.

    Each dictionary and each public range of integers is encoded only once, so that a batch costs
    one table lookup per row.
    """

    def __init__(self, attribute: Encoder, stride: int, outside: int) -> None:
        """Prepare the term of null, and the terms of integers if they are few.

        Args:
            attribute: The attribute whose values the column holds.
            stride: The number of cells between two consecutive codes.
            outside: The term of a value without a code; negative.
        """
        self._attribute = attribute
        self._stride, self._outside = stride, outside
        self._entries: Any = None
        self._entry_outside = False
        self._term_of_entry: Terms = np.empty(0, dtype=np.int64)
        self._term_of_text: dict[bytes | None, int] = {}
        self._null = int(self._compute_terms(np.array([attribute.null_code]))[0])
        self._span = _find_span(attribute)
        if self._span:
            low, high = self._span
            codes = attribute.codes_of_numbers(np.arange(low, high + 1))
            # The term of null follows those of the integers.
            self._term_of_integer = np.append(self._compute_terms(codes), self._null)
            self._integer_outside = bool((codes < 0).any())

    @cached_property
    def _term_of_code(self) -> Terms:
        """The terms of all codes, for columns without a table of their values. The first one
        belongs to the code -1 of values outside the domain.
        """
        return self._compute_terms(np.arange(-1, self._attribute.code_count))

    def has_table(self, arrow_type: Any) -> bool:
        """Return whether the terms of this column type come from a table of its values."""
        kind = classify_type(arrow_type)
        if kind == "strings" or pt.is_dictionary(arrow_type):
            return True
        return kind in ("integers", "dates") and self._span is not None

    def make_lookup(self, column: Any) -> Lookup:
        """Return the terms of an Arrow array (n,)."""
        kind = classify_type(column.type)
        if kind == "null":
            codes = np.full(len(column), self._attribute.null_code)
            return Lookup(codes, -1, self._term_of_code, strict=True, doubtful=True)
        if kind == "strings" and not pt.is_dictionary(column.type):
            column = column.dictionary_encode()
        if pt.is_dictionary(column.type):
            self._encode_entries(column.dictionary)
            terms, doubtful = self._term_of_entry, self._entry_outside
            return self._look_up(column.indices, 0, terms, doubtful, strict=True)
        if kind == "dates":
            column, kind = convert_to_days(column), "integers"
        if kind == "integers" and self._span:
            terms, doubtful = self._term_of_integer, self._integer_outside
            return self._look_up(column, self._span[0], terms, doubtful, strict=False)
        codes = encode_column(self._attribute, column)
        return Lookup(codes, -1, self._term_of_code, strict=True, doubtful=True)

    def _encode_entries(self, entries: Any) -> None:
        """Encode those entries of a dictionary that are new."""
        known = self._entries
        if known is not None and entries.equals(known):
            return
        # Pages without a dictionary append to that of earlier pages; only what they append is new.
        grown = known is not None and entries.slice(0, len(known)).equals(known)
        start = len(known) if grown else 0
        new = self._compute_entry_terms(entries.slice(start))
        # The term of null follows those of the entries.
        self._term_of_entry = np.concatenate([self._term_of_entry[:start], new, [self._null]])
        self._entry_outside = bool((self._term_of_entry[:-1] < 0).any())
        self._entries = entries

    def _compute_entry_terms(self, entries: Any) -> Terms:
        """Return the terms (n,) of the entries (n,) of a dictionary.

        Each row group has its own dictionary, often of the same few texts in another order. So the
        terms of texts in short dictionaries are remembered.
        """
        if classify_type(entries.type) != "strings" or len(entries) > _SHORT_DICTIONARY:
            return self._compute_terms(encode_column(self._attribute, entries))
        texts = entries.cast(pa.large_binary()).to_pylist()
        known = [self._term_of_text.get(text) for text in texts]
        if None not in known:
            return np.array(known, dtype=np.int64)
        terms = self._compute_terms(encode_column(self._attribute, entries))
        if len(self._term_of_text) < _MOST_TEXTS:
            self._term_of_text.update(zip(texts, terms.tolist(), strict=True))
        return terms

    def _look_up(
        self, column: Any, low: int, terms: Terms, doubtful: bool, *, strict: bool
    ) -> Lookup:
        """Look up integers (n,) by their distance from `low`. The last term is that of null."""
        values, (valid, start) = _limit_to_int64(view_numbers(column)), view_validity(column)
        if valid is None:
            return Lookup(values, low, terms[:-1], strict, doubtful)
        return Lookup(values, low, terms, strict, doubtful or self._null < 0, valid, start)

    def _compute_terms(self, codes: Codes) -> Terms:
        """Return the terms (n,) of codes (n,)."""
        return np.where(codes < 0, self._outside, codes * self._stride)


def _limit_to_int64(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return uint64 values (n,) as int64, with larger ones replaced by the largest int64."""
    return np.minimum(values, 2**63 - 1).astype(np.int64) if values.dtype == np.uint64 else values


def _find_span(attribute: Encoder) -> tuple[int, int] | None:
    """Return a short range of integers such that all values outside it have the codes of its ends.

    Returns:
        The first and the last integer; None if there is no range short enough for a table.
    """
    if attribute.integer_span is None:
        return None
    low, high = attribute.integer_span
    return (low, high) if high - low < _MAX_SPAN and abs(low) < 2**62 else None


class CodeReader:
    """Reads batches of one column as codes, even if there are too many codes for a table."""

    def __init__(self, attribute: Encoder, rows: int) -> None:
        """Allocate the memory of one batch.

        Args:
            attribute: The attribute whose values the column holds, or the encoder of weights.
            rows: The largest number of rows in a batch.
        """
        self._attribute = attribute
        # With a stride of 1, the term of a value is its code.
        self._encoder = ColumnEncoder(attribute, stride=1, outside=OUTSIDE)
        self._buffer = np.empty(rows, dtype=np.int64)

    def read(self, column: Any) -> Codes:
        """Return the codes (n,) of an Arrow array (n,). The next call overwrites them."""
        codes = self._buffer[: len(column)]
        if classify_type(column.type) == "null":
            codes.fill(self._attribute.null_code)
        elif self._encoder.has_table(column.type):
            loops.locate([self._encoder.make_lookup(column)], 0, codes)
        elif isinstance(self._attribute, MeasureCodec):
            encode_measure(self._attribute, column, codes)
        else:
            codes = encode_column(self._attribute, column)
        return codes
