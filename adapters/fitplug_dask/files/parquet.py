"""Parquet: the header and the row groups of a Parquet file.

What PyArrow raises may quote values: callers drop it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fitplug.files import (
    ColumnChunk,
    EncryptedError,
    Footer,
    ParquetSchema,
    RowGroup,
    SummaryError,
    decode_footer,
    read_footer,
)
from fitplug_dask.files.checked_file import Batches, CheckedFile, ReadRowGroup
from fitplug_dask.files.header import DamagedFileError, Header
from fitplug_dask.files.local_reads import open_local, read_at
from fitplug_dask.files.parquet_pages import holds_rows
from fitplug_dask.files.portions import INT96_UNIT
from fitplug_dask.sources import Location, State, open_stored_regions

ENCRYPTED_FAULT = "is encrypted, and fitplug takes no keys; store it decrypted"
DAMAGED_FOOTER_FAULT = "has a damaged footer; write it again"
ENCRYPTED_COLUMNS_FAULT = "has encrypted columns, and fitplug takes no keys; store it decrypted"
_SUMMARY_FAULT = "only sums up other files, which hold the rows; remove it, or count those files"

_LOCAL_BUFFER = 2**20
_LOCAL_READ_AHEAD = 2**10  # the header of a page
_STORE_BUFFER = 2**22  # a request to a store takes as long as reading a few MB
_STORE_BUFFERS = 2**25


def read_parquet_header(location: Location, state: State) -> Header:
    """Return the header of a Parquet file.

    Raises:
        DamagedFileError: The file is encrypted, or its rows are in other files.
        Exception: The footer is damaged.
    """
    try:
        footer = _read_footer(location, state)
    except EncryptedError:
        raise DamagedFileError(ENCRYPTED_COLUMNS_FAULT) from None
    except SummaryError:
        raise DamagedFileError(_SUMMARY_FAULT) from None
    schema = _read_arrow_schema(footer.schema)
    return Header(schema, footer.rows, True, sum(footer.rows), footer)


def _read_footer(location: Location, state: State) -> Footer:
    """Return the footer of a file. It raises what `read_footer` and the file system do."""
    if location.options is not None:
        with location.open(sequential=False, state=state) as file:
            return read_footer(file)
    # Of many small files, file objects would take as long as all else.
    descriptor = open_local(location.path)
    try:
        size = os.fstat(descriptor).st_size
        return decode_footer(size, lambda length: read_at(descriptor, length, size - length))
    finally:
        os.close(descriptor)


@lru_cache(2**7)
def _read_arrow_schema(schema: ParquetSchema) -> Any:
    """Return the names and the Arrow types of all columns, by Arrow's own rules."""
    with pq.ParquetFile(
        pa.BufferReader(schema.encode_file([])), coerce_int96_timestamp_unit=INT96_UNIT
    ) as parquet:
        return parquet.schema_arrow


@contextmanager
def open_parquet_row_groups(file: CheckedFile) -> Iterator[ReadRowGroup]:
    """Open a Parquet file for reading its row groups, from disk or store by and by."""
    with file.open(sequential=False) as opened:
        footer = read_footer(opened)
    flat = [
        index
        for index, column in enumerate(footer.columns)
        if column.flat and column.path in file.columns
    ]
    groups = footer.read_groups(flat)
    in_store = file.location.options is not None
    with pq.ParquetFile(
        _open_chunks(file, groups) if in_store else file.location.path,
        # Arrow looks at no footer but this one.
        metadata=pq.read_metadata(pa.BufferReader(footer.for_arrow)),
        coerce_int96_timestamp_unit=INT96_UNIT,
        read_dictionary=list(file.dictionaries),
        buffer_size=_choose_store_buffer(len(flat)) if in_store else _LOCAL_BUFFER,
        pre_buffer=False,  # it would hold an entire row group, read by threads of Arrow's own
        page_checksum_verification=True,
    ) as parquet:

        def read_row_group(row_group: int, rows: int) -> Batches:
            if flat:
                _check_pages(file, list(groups[row_group].chunks.values()), footer.rows[row_group])
            # Threads of Arrow's own would only compete with the scheduler's.
            yield from parquet.iter_batches(
                rows, [row_group], list(file.columns), use_threads=False
            )

        yield read_row_group


def _choose_store_buffer(columns: int) -> int:
    """Return how many bytes of each column are requested at once, and as many ahead."""
    return max(_LOCAL_BUFFER // 4, min(_STORE_BUFFER, _STORE_BUFFERS // max(1, columns)))


def _open_chunks(file: CheckedFile, groups: Sequence[RowGroup]) -> Any:
    """Open a file in a store whose column chunks are read in turns."""
    chunks = [chunk for group in groups for chunk in group.chunks.values()]
    regions = [(chunk.start, chunk.start + chunk.bytes) for chunk in chunks]
    return open_stored_regions(file.location.store(file.state), regions)


def _check_pages(file: CheckedFile, chunks: Sequence[ColumnChunk], rows: int) -> None:
    """Raise ValueError if the pages of a row group do not hold the rows that the footer says.

    This happens before Arrow reads the pages. Of a file in a store only the smallest column is
    checked, since the headers of pages cost as much there as all that lies between them.
    """
    in_store = file.location.options is not None
    if in_store:
        chunks = [min(chunks, key=lambda chunk: chunk.bytes)]
    read_ahead = _STORE_BUFFER if in_store else _LOCAL_READ_AHEAD
    with file.open(sequential=False) as pages:
        if not all(holds_rows(pages, chunk, rows, read_ahead) for chunk in chunks):
            raise ValueError("the pages hold other rows than the footer says")
