"""Array memory: the buffers of Arrow arrays as NumPy arrays.

Only this module reads buffers. The values of an array begin at its offset in the buffers, which is
not 0 for a slice. An array that Arrow derives from a slice may keep the slice's offset or have
offset 0, depending on the version of PyArrow, the type and the nulls. So each function here takes
the buffers and the offset from the same array, and works at every offset.

The batches of every source go through `compact_batch` first, which makes arrays that begin at 0
and hold their values directly. The functions here refuse arrays of any other type.
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
        A batch (n,) of the same values whose arrays, and the entries of dictionaries, have offset
        0. The entries are not dictionaries themselves, UUIDs are stored as 16 bytes, and views of
        text or bytes are stored as large text or bytes. Only arrays that differ from this are
        copied; if none does, the batch itself is returned.
    """
    columns = batch.columns
    compact = [_compact_array(column) for column in columns]
    if all(new is old for new, old in zip(compact, columns, strict=True)):
        return batch
    return pa.RecordBatch.from_arrays(compact, names=batch.schema.names)


def join_batches(batches: Sequence[Any]) -> list[Any]:
    """Join batches of one schema into as few compact batches as possible."""
    if len(batches) > 1:
        if not all(map(_joins, batches[0].schema.types)):
            batches = [compact_batch(batch) for batch in batches]
        batches = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return [compact_batch(batch) for batch in batches]


@lru_cache(2**8)
def _joins(arrow_type: Any) -> bool:
    """Return whether Arrow can join arrays of a type even if they are not compact."""
    simple = pt.is_primitive(arrow_type) or pt.is_string(arrow_type) or pt.is_binary(arrow_type)
    return simple or (pt.is_dictionary(arrow_type) and _joins(arrow_type.value_type))


def _compact_array(column: Any) -> Any:
    if isinstance(column, pa.ExtensionArray) and isinstance(column.type, pa.UuidType):
        column = column.storage
    if isinstance(column, pa.DictionaryArray):
        return _compact_dictionary(column)
    if isinstance(column, (pa.StringViewArray, pa.BinaryViewArray)):
        column = column.cast(_VIEWS[column.type])
    # Arrow copies even a single array, from its offset on.
    return pa.concat_arrays([column]) if column.offset else column


def _compact_dictionary(column: Any) -> Any:
    entries = dictionary = column.dictionary
    if isinstance(entries, pa.DictionaryArray):
        entries = _compact_dictionary(entries).dictionary_decode()
    entries = _compact_array(entries)
    if entries is dictionary and not column.offset:
        return column
    # The reader has checked that indices are in range, and they are checked again when used.
    return pa.DictionaryArray.from_arrays(_compact_array(column.indices), entries, safe=False)


def find_number_type(arrow_type: Any) -> np.dtype[Any]:
    """Return the NumPy type that views the buffer of an array of integers or floats.

    Arrow's own `to_pandas_dtype` is not used, because in PyArrow 25 it needs pandas.
    """
    is_float = pt.is_floating(arrow_type)
    if not (is_float or pt.is_integer(arrow_type)):
        _refuse(arrow_type)
    kind = "f" if is_float else "i" if pt.is_signed_integer(arrow_type) else "u"
    return np.dtype(f"{kind}{arrow_type.bit_width // 8}")


def view_numbers(column: Any) -> npt.NDArray[Any]:
    """View an Arrow array (n,) of integers or floats. The elements at nulls are arbitrary.

    Arrow's own conversion is not used because it releases Python's global lock, which other
    threads then take.
    """
    return _view(column, 1, find_number_type(column.type), column.offset, len(column))


def view_validity(column: Any) -> tuple[Bytes | None, int]:
    """View which values of an Arrow array (n,) are not null.

    Returns:
        The validity bits, lowest first, and the position of the first value's bit; None and 0 if no
        value is null.
    """
    if not column.null_count:
        return None, 0
    ends = column.offset + len(column)
    return _view(column, 0, np.dtype(np.uint8), 0, -(-ends // 8)), column.offset


def view_stretches(column: Any) -> tuple[Bytes, npt.NDArray[np.int64]]:
    """View an Arrow array (n,) of text or bytes. The elements at nulls are arbitrary.

    Returns:
        The bytes of all values, and the positions (n + 1,) in them where each value begins and the
        last one ends. The caller must check that the positions are in order and inside the bytes.
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
        f"PyArrow {pa.__version__} stores arrays of {arrow_type} in a way that fitplug cannot "
        "read. Install another version of PyArrow."
    )
