"""Readers: the rows of one unit of a file, in batches, in each format.

A unit is what can be read on its own: a row group of Parquet, a record batch of an Arrow file, a
whole Arrow stream, a whole CSV file (where a record begins is known only from all bytes before it,
as quoted values may hold line ends). What readers raise may quote values: callers drop it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any, TypeAlias
from uuid import uuid4

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.types as pt

from fitplug.files import Chunk
from fitplug_dask.formats import TEXTS, Format
from fitplug_dask.headers import (
    arrow_source,
    csv_bytes,
    csv_names,
    is_stream,
    parquet_file,
    parquet_footer,
)
from fitplug_dask.pages import chunk_agrees
from fitplug_dask.snapshot import File

Batches: TypeAlias = Iterator[Any]
"""Arrow record batches that hold at least the columns wanted."""

Unit: TypeAlias = Callable[[int, int], Batches]
"""From a unit's number and the most rows of a batch to its batches."""

_LOCAL_BUFFER = 2**20
_LOCAL_AHEAD = 2**10  # a page's header
_STORE_BUFFER = 2**22  # a request to a store takes as long as reading a few MB
_CSV_BLOCK = 2**22


def opened(file: File) -> AbstractContextManager[Unit]:
    """A file of the snapshot, open for reading its columns."""
    return _OPEN[file.format](file)


def damage(file: File, unit: int, what: str = "cannot be read") -> str:
    """A sentence that names the file and the unit that is at fault, and what to do."""
    if file.format in TEXTS:
        return (
            f"{file.shown} cannot be read as CSV to its end: records must have as many values as "
            "there are column names, quotes must close, and the last line must end; it may be "
            "truncated, write it again"
        )
    name = "row group" if file.format is Format.PARQUET else "record batch"
    return f"{file.shown}: {name} {unit} {what}; the file is damaged, write it again"


@contextmanager
def _parquet(file: File) -> Iterator[Unit]:
    footer = parquet_footer(file.place)
    flat = [
        at
        for at, column in enumerate(footer.columns)
        if column.flat and column.path in file.columns
    ]
    with parquet_file(
        file.place,
        footer,
        read_dictionary=list(file.dictionaries),
        buffer_size=_LOCAL_BUFFER if file.place.options is None else _STORE_BUFFER,
        pre_buffer=False,  # it would hold a whole row group, read by threads of Arrow's own
        page_checksum_verification=True,
    ) as parquet:

        def batches(unit: int, rows: int) -> Batches:
            if flat:
                _check_pages(file, [footer.chunks[unit][at] for at in flat], footer.rows[unit])
            # Threads of its own would only compete with the scheduler's.
            yield from parquet.iter_batches(rows, [unit], list(file.columns), use_threads=False)

        yield batches


def _check_pages(file: File, chunks: Sequence[Chunk], rows: int) -> None:
    """Before Arrow sees them. Of a file in a store, where headers cost as much as all that lies
    between them, those of one column.
    """
    far = file.place.options is not None
    if far:
        chunks = [min(chunks, key=lambda chunk: chunk.bytes)]
    ahead = _STORE_BUFFER if far else _LOCAL_AHEAD
    with file.place.open(in_order=False) as pages:
        if not all(chunk_agrees(pages, chunk, rows, ahead) for chunk in chunks):
            raise ValueError("the pages hold other rows than the footer says")


@contextmanager
def _arrow(file: File) -> Iterator[Unit]:
    with closing(arrow_source(file.place)) as source:
        if is_stream(source):
            yield lambda _, rows: _streamed(source, file, rows)
            return
        names = pa.ipc.open_file(source).schema.names
        fields = [names.index(name) for name in file.columns]
        # With no field named all are read; one will do to count the rows.
        options = pa.ipc.IpcReadOptions(included_fields=fields or [0], use_threads=False)
        reader = pa.ipc.open_file(source, options=options)
        yield lambda unit, rows: _sound(reader.get_batch(unit), file, rows)


def _streamed(source: Any, file: File, rows: int) -> Batches:
    for batch in pa.ipc.open_stream(source):
        yield from _sound(batch, file, rows)
    if source.tell() != file.size:
        raise ValueError("bytes follow the end of the stream")


def _sound(batch: Any, file: File, rows: int) -> Batches:
    """Slices of a batch whose offsets and indices point into its buffers: nothing checked them."""
    columns = [_checked(batch.column(name)) for name in file.columns]
    for start in range(0, batch.num_rows, rows):
        held = [column.slice(start, rows) for column in columns]
        yield _batch(held, file.columns, min(rows, batch.num_rows - start))


def _checked(column: Any) -> Any:
    column.validate()
    if pt.is_dictionary(column.type):
        entries = _checked(column.dictionary)
        # `safe` looks at the indices.
        return pa.DictionaryArray.from_arrays(column.indices, entries, safe=True)
    raw = _RAW.get(column.type)
    if raw is not None:  # whether text is UTF-8 is no damage
        column = column.cast(raw)
    column.validate(full=True)
    return column


_RAW = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
}


def _batch(columns: list[Any], names: tuple[str, ...], rows: int) -> Any:
    if columns:
        return pa.RecordBatch.from_arrays(columns, names=list(names))
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], names=[""])


@contextmanager
def _csv(file: File) -> Iterator[Unit]:
    yield lambda _, rows: _parsed(file, rows)


def _parsed(file: File, rows: int) -> Batches:
    """The text of each column, as binary: what is a value of the attribute is told when coded.

    An empty value is null; a quoted empty one is the empty string.
    """
    zipped = file.format is Format.CSV_GZ
    names = csv_names(file.place, zipped=zipped)
    wanted = list(file.columns) or [names[0]]
    mark = uuid4().hex.encode()
    with csv_bytes(file.place, zipped=zipped) as stream:
        reader = pc.open_csv(
            _Marked(stream, b",".join([mark] * len(names)) + b"\n"),
            read_options=pc.ReadOptions(use_threads=False, block_size=_CSV_BLOCK),
            # A line of one column that holds nothing is a null.
            parse_options=pc.ParseOptions(
                newlines_in_values=True, ignore_empty_lines=len(names) > 1
            ),
            convert_options=pc.ConvertOptions(
                include_columns=wanted,
                column_types={name: pa.binary() for name in wanted},
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                check_utf8=False,
            ),
        )
        yield from _sliced(_without_mark(reader, mark), rows)


class _Marked:
    """A stream of bytes with a record of marks after the end.

    A parser takes the end of the file for the end of an open quote. Then the marks are no record.
    Of a line feed that begins a block it does not see that it stands in a quote, and drops it if
    the block before ended in a carriage return. So no block ends in one.
    """

    def __init__(self, stream: Any, record: bytes) -> None:
        self._stream, self._record = stream, record
        self._last = b"\n"
        self._held = b""
        self.closed = False

    def read(self, size: int) -> bytes:
        read: bytes = self._held + self._stream.read(size - 2)
        self._held = b""
        if read.endswith(b"\r"):
            read += self._stream.read(1)
        if read.endswith(b"\r") and len(read) > 1:
            read, self._held = read[:-1], read[-1:]
        if read:
            self._last = read[-1:]
            return read
        if self._last not in (b"\n", b"\r"):
            raise ValueError("the last line does not end")
        record, self._record = self._record, b""
        return record


def _without_mark(reader: Any, mark: bytes) -> Batches:
    """The batches without the last record, which must be the mark's."""
    held = None
    for batch in reader:
        if not batch.num_rows:
            continue
        if held is not None:
            yield held
        held = batch
    if held is None or held.column(0)[-1].as_py() != mark:
        raise ValueError("the file ends within a quote")
    yield held.slice(0, held.num_rows - 1)


def _sliced(batches: Batches, rows: int) -> Batches:
    for batch in batches:
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


_OPEN: dict[Format, Callable[[File], AbstractContextManager[Unit]]] = {
    Format.PARQUET: _parquet,
    Format.ARROW: _arrow,
    Format.CSV: _csv,
    Format.CSV_GZ: _csv,
}
