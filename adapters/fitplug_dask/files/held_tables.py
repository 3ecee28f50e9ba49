"""Held tables: rows that other libraries read: streams, fragments of data sets, Dask's partitions.

What they raise may quote values: callers drop it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from fitplug_dask.files.arrow_ipc import validate_batch, validate_column
from fitplug_dask.files.checked_file import Batches, CheckedFile, ReadRowGroup
from fitplug_dask.files.frames import convert_frame
from fitplug_dask.files.header import Header
from fitplug_dask.sources import SHARES, State

_GUESSED_ROWS = 2**18  # of a share, a fragment or a partition, none of which says how many it has

_TYPES = {"strings": pa.large_string(), "integers": pa.int64(), "": pa.null()}
"""What stands in a header for what a column of pandas holds."""


def read_stream_header(location: Any, state: State) -> Header:
    """Return the header of a stream, whose shares are its row groups."""
    return Header(location.schema, (_GUESSED_ROWS,) * SHARES, False, None)


@contextmanager
def open_stream(file: CheckedFile) -> Iterator[ReadRowGroup]:
    """Open a stream for pulling the batches of its shares."""

    def pull(share: int, rows: int) -> Batches:
        for batch in file.location.pull_batches(share, file.columns):
            yield from validate_batch(batch, file, rows)

    yield pull


def read_fragment_header(location: Any, state: State) -> Header:
    """Return the header of a fragment of a data set, whose schema is that of the data set."""
    return Header(location.schema, (_GUESSED_ROWS,), False, None)


@contextmanager
def open_fragment(file: CheckedFile) -> Iterator[ReadRowGroup]:
    """Open a fragment of a data set for reading its rows by Arrow."""
    location = file.location

    def scan(_: int, rows: int) -> Batches:
        batches = location.fragment.to_batches(
            schema=location.schema,
            columns=list(file.columns) or location.schema.names[:1],
            batch_size=rows,
            use_threads=False,
        )
        for batch in batches:
            yield from validate_batch(batch, file, rows)

    yield scan


def read_partition_header(location: Any, state: State) -> Header:
    """Return the header of a partition of Dask, whose types are known when it is computed."""
    schema = None
    if location.columns is not None:
        schema = pa.schema([(name, _TYPES[held]) for name, held in location.columns.items()])
    return Header(schema, (_GUESSED_ROWS,), False, None, unchecked=True)


@contextmanager
def open_dask_partition(file: CheckedFile) -> Iterator[ReadRowGroup]:
    """Open a partition of Dask, which is computed when it is read."""

    def compute(_: int, rows: int) -> Batches:
        adaptation = file.adaptation
        assert adaptation is not None  # as every file whose types are unchecked has one
        table = convert_frame(
            file.location.compute(), file.columns, adaptation.value_types, adaptation.zone
        )
        for batch in table.to_batches(max_chunksize=rows):
            columns = [validate_column(column) for column in batch.columns]
            yield pa.RecordBatch.from_arrays(columns, names=batch.schema.names)

    yield compute
