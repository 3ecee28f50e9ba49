"""Column codes: the codes of an Arrow column's values, by the public domain."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from fitplug.domain import Categories, Codes, Encoder, Measure, Texts, find_days
from fitplug_dask import loops
from fitplug_dask.encoding.array_memory import view_numbers, view_stretches, view_validity
from fitplug_dask.encoding.column_types import classify_type
from fitplug_dask.encoding.text_values import encode_texts


def convert_to_days(column: Any) -> Any:
    """Return the days since 1970-01-01, an Arrow array of int64 (n,); null if there is no day.

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
        if isinstance(attribute, Categories) and attribute.value_type is str:
            return _encode_strings(attribute, column)
        texts = _decode_texts(column)
        # Text comes to attributes of other types from CSV files, and to dates from any file.
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


def encode_measure(measure: Measure, column: Any, codes: Codes) -> None:
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
        The values (n,), and where they are null (n,), or None if none is. The value of a null
        means nothing.
    """
    if not column.null_count:
        return column.to_numpy(zero_copy_only=False), None
    missing = column.is_null().to_numpy(zero_copy_only=False)
    if not pt.is_floating(column.type):  # a null float becomes NaN by itself
        column = column.fill_null(pa.scalar(0).cast(column.type))
    return column.to_numpy(zero_copy_only=False), missing


def _encode_strings(attribute: Categories, column: Any) -> Codes:
    """Return the codes (n,) of a column of strings or bytes, without making texts of Python."""
    codes = attribute.codes_of_texts(Texts.from_buffer(*view_stretches(column)))
    if column.null_count:
        codes[column.is_null().to_numpy(zero_copy_only=False)] = attribute.null_code
    return codes


def _decode_texts(column: Any) -> Any:
    """Return the texts (n,) of a column of strings or bytes, and None for null."""
    # Damaged UTF-8 is a value like any other that the domain does not have; it must not raise.
    raw = column.cast(pa.large_binary()).to_pylist()
    texts = np.empty(len(raw), dtype=object)
    texts[:] = [None if b is None else b.decode("utf-8", "surrogateescape") for b in raw]
    return texts
