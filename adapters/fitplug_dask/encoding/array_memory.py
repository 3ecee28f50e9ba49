"""Array memory: the buffers of Arrow arrays as arrays of NumPy.

Only this module reads buffers. The values of an array begin in them at its offset, which is not 0
if the array is a slice, and an array that Arrow made of a slice may have its offset or 0: this
depends on the version of PyArrow, on types and on nulls. So each function here takes the buffers
and the offset from the same array, and works at every offset.

What is read is compacted first: `compact_batch` makes of the batches of every source arrays that
begin at 0 and hold their values directly. Other arrays than those are refused here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from fitplug_dask.workers import CheckError

Bytes: TypeAlias = npt.NDArray[np.uint8]

_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}


def compact_batch(batch: Any) -> Any:
    """Make a record batch compact.

    Args:
        batch: A batch (n,) of Arrow.

    Returns:
        A batch (n,) of the same values, whose arrays have the offset 0, and so have the entries of
        dictionaries. Entries are no dictionaries themselves, UUIDs are their 16 bytes, and what was
        stored as views of text or bytes is stored as large text or bytes. Only what differs from
        this is copied: the batch itself is returned if nothing does.
    """
    columns = batch.columns
    compact = [_compact_array(column) for column in columns]
    if all(new is old for new, old in zip(compact, columns, strict=True)):
        return batch
    return pa.RecordBatch.from_arrays(compact, names=batch.schema.names)


def join_batches(batches: Sequence[Any]) -> list[Any]:
    """Return the rows of some batches of one schema in as few compact batches as hold them."""
    if len(batches) > 1:
        if not all(map(_joins, batches[0].schema.types)):
            batches = [compact_batch(batch) for batch in batches]
        batches = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return [compact_batch(batch) for batch in batches]


@lru_cache(2**8)
def _joins(arrow_type: Any) -> bool:
    """Return whether Arrow joins arrays of a type that are not compact."""
    simple = pt.is_primitive(arrow_type) or pt.is_string(arrow_type) or pt.is_binary(arrow_type)
    return simple or (pt.is_dictionary(arrow_type) and _joins(arrow_type.value_type))


def _compact_array(column: Any) -> Any:
    if isinstance(column, pa.ExtensionArray) and isinstance(column.type, pa.UuidType):
        column = column.storage
    if isinstance(column, pa.DictionaryArray):
        return _compact_dictionary(column)
    if isinstance(column, (pa.StringViewArray, pa.BinaryViewArray)):
        column = column.cast(_VIEWS[column.type])
    # Arrow copies a single array, too, from its offset on.
    return pa.concat_arrays([column]) if column.offset else column


def _compact_dictionary(column: Any) -> Any:
    entries = dictionary = column.dictionary
    if isinstance(entries, pa.DictionaryArray):
        entries = _compact_dictionary(entries).dictionary_decode()
    entries = _compact_array(entries)
    if entries is dictionary and not column.offset:
        return column
    # Whether indices are in range was checked by what read them, and is again where they are used.
    return pa.DictionaryArray.from_arrays(_compact_array(column.indices), entries, safe=False)


def find_number_type(arrow_type: Any) -> np.dtype[Any]:
    """Return the type of NumPy in which the buffer of an integer or a float can be viewed.

    Arrow's own `to_pandas_dtype` is not used, because in PyArrow 25 it needs pandas.
    """
    is_float = pt.is_floating(arrow_type)
    if not (is_float or pt.is_integer(arrow_type)):
        _refuse(arrow_type)
    kind = "f" if is_float else "i" if pt.is_signed_integer(arrow_type) else "u"
    return np.dtype(f"{kind}{arrow_type.bit_width // 8}")


def view_numbers(column: Any) -> npt.NDArray[Any]:
    """View an Arrow array (n,) of integers or floats. What stands for a null means nothing.

    Arrow's own conversion is not used: it releases Python's lock, which other threads then take.
    """
    return _view(column, 1, find_number_type(column.type), column.offset, len(column))


def view_validity(column: Any) -> tuple[Bytes | None, int]:
    """View which values of an Arrow array (n,) are there.

    Returns:
        Bits, lowest first, and the position of that of the first value; None and 0 if no value is
        null.
    """
    if not column.null_count:
        return None, 0
    ends = column.offset + len(column)
    return _view(column, 0, np.dtype(np.uint8), 0, -(-ends // 8)), column.offset


def view_stretches(column: Any) -> tuple[Bytes, npt.NDArray[np.int64]]:
    """View an Arrow array (n,) of text or bytes. What stands for a null means nothing.

    Returns:
        The bytes of all values, and where each begins in them and the last ends (n + 1,). Whether
        these places lie in the bytes, one behind the other, is for the caller to check.
    """
    kind, size = column.type, len(column)
    if pt.is_fixed_size_binary(kind):
        places = np.arange(column.offset, column.offset + size + 1, dtype=np.int64)
        places *= kind.byte_width
    elif pt.is_large_string(kind) or pt.is_large_binary(kind):
        places = _view(column, 1, np.dtype(np.int64), column.offset, size + 1 if size else 0)
    elif pt.is_string(kind) or pt.is_binary(kind):
        places = _view(column, 1, np.dtype(np.int32), column.offset, size + 1 if size else 0)
    else:
        _refuse(kind)
    if not size:
        return np.zeros(0, dtype=np.uint8), np.zeros(1, dtype=np.int64)
    content = column.buffers()[-1]
    values = np.zeros(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)
    return values, places.astype(np.int64, copy=False)


def _view(
    column: Any, buffer: int, dtype: np.dtype[Any], start: int, count: int
) -> npt.NDArray[Any]:
    """View `count` elements of a buffer from `start` on. Raise CheckError if it has fewer."""
    if not count:
        return np.empty(0, dtype=dtype)
    content = column.buffers()[buffer]
    if content is None or content.size < (start + count) * dtype.itemsize:
        _refuse(column.type)
    return np.frombuffer(content, dtype, count, start * dtype.itemsize)


def _refuse(arrow_type: Any) -> NoReturn:
    raise CheckError(
        f"PyArrow {pa.__version__} stores arrays of {arrow_type} in memory in a way that "
        "fitplug cannot read. Nothing was counted. Install another version of PyArrow, or "
        "store the column as another type."
    )
