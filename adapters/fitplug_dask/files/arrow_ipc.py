"""Arrow IPC: the header and the record batches of Arrow files and streams.

PyArrow's errors may quote values, so callers do not pass them on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pd
import pyarrow.types as pt

from fitplug_dask.files.checked_file import (
    Batches,
    CheckedFile,
    DamagedFileError,
    Header,
    ReadRowGroup,
    guess_rows,
)
from fitplug_dask.sources import Location, State

END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_MAGIC = b"ARROW1"


def read_arrow_header(location: Location, state: State) -> Header:
    """Return the header of an Arrow file or stream.

    Raises:
        DamagedFileError: A stream has no end.
        Exception: The footer or the schema is damaged.
    """
    with closing(_open_source(location, state)) as source:
        if _is_stream(source):
            return _read_stream_header(source, state[0])
        if source.read(len(_MAGIC)) != _MAGIC:
            raise ValueError("not an Arrow file")
        reader = pa.ipc.open_file(source)
        batches = reader.num_record_batches
        records = pd.IpcFileFormat().make_fragment(source).count_rows()
    # How many rows each batch has is known only when it is read.
    rows = (max(1, records // batches),) * batches if batches else ()
    return Header(reader.schema, rows, False, records)


def _read_stream_header(source: Any, size: int) -> Header:
    """Return the header of a stream, and check that the stream has an end."""
    source.seek(size - len(END_OF_STREAM))
    if source.read() != END_OF_STREAM:
        raise DamagedFileError("has no end-of-stream mark. Write the file again.")
    source.seek(0)
    schema = pa.ipc.open_stream(source).schema
    return Header(schema, (guess_rows(size),), False, None)


@contextmanager
def open_arrow_row_groups(file: CheckedFile) -> Iterator[ReadRowGroup]:
    """Open an Arrow file for reading its record batches, or a stream for reading all of it."""
    with closing(_open_source(file.location, file.state)) as source:
        if _is_stream(source):
            yield lambda _, rows: _read_stream(source, file, rows)
            return
        names = pa.ipc.open_file(source).schema.names
        fields = [names.index(name) for name in file.columns]
        # Without included fields, all would be read; one is enough to count the rows.
        options = pa.ipc.IpcReadOptions(included_fields=fields or [0], use_threads=False)
        reader = pa.ipc.open_file(source, options=options)
        yield lambda row_group, rows: validate_batch(reader.get_batch(row_group), file, rows)


def _open_source(location: Location, state: State) -> Any:
    """Open an Arrow file unmapped: a mapped file that is truncated may crash the process."""
    if location.options is None:
        return pa.OSFile(location.path)
    return pa.PythonFile(location.open(sequential=False, state=state), mode="r")


def _is_stream(source: Any) -> bool:
    """Return whether an Arrow source is a stream, which has no footer."""
    start = source.read(8)
    source.seek(0)
    return bool(start[:4] == END_OF_STREAM[:4])


def _read_stream(source: Any, file: CheckedFile, rows: int) -> Batches:
    for batch in pa.ipc.open_stream(source):
        yield from validate_batch(batch, file, rows)
    if source.tell() != file.size:
        raise ValueError("there are bytes after the end of the stream")


def validate_batch(batch: Any, file: CheckedFile, rows: int) -> Batches:
    """Check that the offsets and indices of a batch lie in its buffers, and yield its slices.

    Arrow does not check them when it reads a batch.
    """
    columns = [validate_column(batch.column(name)) for name in file.columns]
    for start in range(0, batch.num_rows, rows):
        slices = [column.slice(start, rows) for column in columns]
        yield _make_batch(slices, file.columns, min(rows, batch.num_rows - start))


def validate_column(column: Any) -> Any:
    """Return the column, with text as bytes. Raise ArrowInvalid if it is damaged."""
    column.validate()
    if pt.is_dictionary(column.type):
        entries = validate_column(column.dictionary)
        # `safe` checks the indices.
        return pa.DictionaryArray.from_arrays(column.indices, entries, safe=True)
    raw = _BYTES_OF_TEXT.get(column.type)
    if raw is not None:  # text that is not UTF-8 does not count as damage
        column = column.cast(raw)
    column.validate(full=True)
    return column


_BYTES_OF_TEXT = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
}


def _make_batch(columns: list[Any], names: tuple[str, ...], rows: int) -> Any:
    """Make a batch of these columns, or of one column without a name if there are none."""
    if columns:
        return pa.RecordBatch.from_arrays(columns, names=list(names))
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], names=[""])
