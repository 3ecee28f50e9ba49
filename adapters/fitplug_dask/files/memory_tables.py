"""Tables in memory: rows that other libraries read, such as streams and Dask's partitions.

Partitions are pandas, Polars or Arrow tables that a task computes. A pandas column may hold objects
of any type. The type that the attribute expects decides which of them are values; the others become
null, because no error may reveal what rows contain. The libraries' errors may quote values, so
callers do not pass them on.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from fitplug.domain import EPOCH, find_day
from fitplug_dask.files.arrow_ipc import validate_batch, validate_column
from fitplug_dask.files.checked_file import Batches, CheckedFile, DamagedFileError, Header
from fitplug_dask.sources import State

_INT64 = range(-(2**63), 2**63)
_GUESSED_ROWS = 2**18  # of a share, a fragment or a partition, whose number of rows is unknown


def read_library_header(location: Any, state: State) -> Header:
    """Return the header of rows that another library reads; its shares count as row groups."""
    rows = (_GUESSED_ROWS,) * location.shares
    return Header(location.schema, rows, False, None, unchecked=location.unchecked)


def pull_stream(file: CheckedFile, share: int, rows: int) -> Batches:
    """Read the batches of one share of a stream."""
    for batch in file.location.pull_batches(share, file.columns):
        yield from validate_batch(batch, file, rows)


def scan_fragment(file: CheckedFile, _: int, rows: int) -> Batches:
    """Read the rows of a fragment of an Arrow data set."""
    location = file.location
    batches = location.fragment.to_batches(
        schema=location.schema,
        columns=list(file.columns) or location.schema.names[:1],
        batch_size=rows,
        use_threads=False,
    )
    for batch in batches:
        yield from validate_batch(batch, file, rows)


def compute_partition(file: CheckedFile, _: int, rows: int) -> Batches:
    """Compute a Dask partition, and read its rows."""
    adaptation = file.adaptation
    assert adaptation is not None  # because the types of its columns are unchecked
    types = {adaptation.stored[name]: kind for name, kind in adaptation.value_types.items()}
    table = convert_frame(file.location.compute(), file.columns, types, adaptation.zone)
    for batch in table.to_batches(max_chunksize=rows):
        columns = [validate_column(column) for column in batch.columns]
        yield pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def convert_frame(
    frame: Any,
    columns: Sequence[str],
    value_types: Mapping[str, type],
    zone: str | None,
) -> Any:
    """Convert a frame to an Arrow table with the requested columns, except those it lacks.

    Args:
        frame: A pandas or Polars frame, or an Arrow Table or RecordBatch.
        columns: The names of the columns. If the frame has none of them, the table has one unnamed
            column of nulls.
        value_types: The types of the values that attributes expect. A column without one
            identifies persons.
        zone: The time zone that determines the day of times with a zone.

    Raises:
        DamagedFileError: The object is not a frame, or has a column twice.
    """
    package = type(frame).__module__.partition(".")[0]
    if package == "polars" and hasattr(frame, "to_arrow"):
        frame = frame.to_arrow()
    if isinstance(frame, pa.RecordBatch):
        frame = pa.Table.from_batches([frame])
    if isinstance(frame, pa.Table):
        names = frame.schema.names
    elif package == "pandas" and hasattr(frame, "columns"):
        names = list(frame.columns)
    else:
        raise DamagedFileError("is not a pandas, Polars or Arrow frame. Return such a frame.")
    for name in columns:
        if names.count(name) > 1:
            raise DamagedFileError(f"has two columns {name!r}. Rename or drop one.")
    known = [name for name in columns if name in names]
    if not known:
        return pa.table({"": pa.nulls(len(frame))})
    if isinstance(frame, pa.Table):
        return frame.select(known)
    return pa.table(
        {name: _convert_series(frame[name], value_types.get(name), zone) for name in known}
    )


def _convert_series(series: Any, value_type: type | None, zone: str | None) -> Any:
    """Convert a pandas column to an Arrow array."""
    if hasattr(series.dtype, "categories"):
        codes = series.cat.codes.to_numpy()
        entries = _convert_series(series.cat.categories.to_series(), value_type, zone)
        if isinstance(entries, pa.ChunkedArray):
            entries = entries.combine_chunks()
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), entries)
    if series.dtype == object:
        read = _read_person if value_type is None else _READ[value_type]
        values = [read(value, zone) for value in series.tolist()]
        return pa.array(values, _ARROW_TYPES[value_type])
    return pa.array(series, from_pandas=True)


def _read_text(value: Any, zone: str | None) -> bytes | None:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return value if isinstance(value, bytes) else None


def _read_integer(value: Any, zone: str | None) -> int | None:
    if isinstance(value, (bool, np.bool_)) or not isinstance(
        value, (int, np.integer, float, np.floating, Decimal)
    ):
        return None
    try:
        whole = int(value)
    except (ValueError, OverflowError):  # NaN and infinity
        return None
    return whole if whole == value and whole in _INT64 else None


def _read_number(value: Any, zone: str | None) -> float | None:
    if isinstance(value, (bool, np.bool_)) or not isinstance(
        value, (int, np.integer, float, np.floating, Decimal)
    ):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _read_boolean(value: Any, zone: str | None) -> bool | None:
    return bool(value) if isinstance(value, (bool, np.bool_)) else None


def _read_day(value: Any, zone: str | None) -> bytes | None:
    """Return a day as text. The attribute later reads text, which may be a month, and times with a
    zone, whose day depends on the chosen zone.
    """
    if isinstance(value, str):
        return _read_text(value, zone)
    if value != value:  # pandas' NaT, which is a time
        return None
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return None if zone is None else value.isoformat().encode()
    try:
        day = find_day(value)
    except TypeError:
        return None
    return None if day is None else datetime.date.fromordinal(day + EPOCH).isoformat().encode()


def _read_person(value: Any, zone: str | None) -> bytes | None:
    """Return a person identifier, text or an integer, as text."""
    if isinstance(value, (str, bytes)):
        return _read_text(value, zone)
    whole = _read_integer(value, zone)
    return None if whole is None else str(whole).encode()


_READ: dict[type, Callable[[Any, str | None], Any]] = {
    str: _read_text,
    int: _read_integer,
    float: _read_number,
    bool: _read_boolean,
    datetime.date: _read_day,
}

_ARROW_TYPES: dict[type | None, Any] = {
    None: pa.large_binary(),
    str: pa.large_binary(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    datetime.date: pa.large_binary(),
}
