"""Streams: tables that only this process can read, as batches one after another.

A query of DuckDB, a LazyFrame of Polars, or a reader or table of Arrow gives its batches in turn.
All tasks of a count pull from one stream, so that each batch goes to exactly one of them.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from fitplug_dask.sources.file_search import FoundFile
from fitplug_dask.sources.formats import Format
from fitplug_dask.sources.locations import UNTRACKED

OpenBatches: TypeAlias = Callable[[Sequence[str]], Iterator[Any]]
"""From the names of columns to the batches of Arrow that hold them."""

SHARES = 64
"""How many tasks at most pull from a stream at once."""

_BATCH_ROWS = 2**17

_numbers = itertools.count(1)


class SharedStream:
    """The location of a table that is read as a stream, by several threads at once.

    Attributes:
        path: What the table is called in messages, with a number of its own.
        options: None, as it lies in no store.
        listed: None, as no store listed it.
        schema: The Arrow schema.
    """

    options = None
    listed = None

    def __init__(self, called: str, schema: Any, open_batches: OpenBatches) -> None:
        """Prepare a stream, which is opened when the first batch is pulled.

        Args:
            called: What the table is called in messages.
            schema: The Arrow schema.
            open_batches: Begins the stream anew, whenever it is called.
        """
        self.path = f"{called} ({next(_numbers)})"
        self.schema = schema
        self._open_batches = open_batches
        self._lock = threading.Lock()
        self._batches: Iterator[Any] | None = None
        self._ended: set[int] = set()

    def __reduce__(self) -> Any:
        raise TypeError("a stream cannot leave its process")

    def read_state(self) -> tuple[int, str]:
        """Return a size, which means nothing, and a stamp that says that changes are not seen."""
        return 1, f"{UNTRACKED}{self.path}"

    def pull_batches(self, share: int, columns: Sequence[str]) -> Iterator[Any]:
        """Yield batches until the stream has ended, each to one share only.

        When all shares have seen the end, the next one to pull begins a new reading.

        Args:
            share: The number of the share, below SHARES.
            columns: The columns to read. If there are none, batches hold one that counts rows.
        """
        wanted = list(columns) or self.schema.names[:1]
        while True:
            with self._lock:
                if self._batches is None:
                    self._batches = iter(self._open_batches(wanted))
                batch = None if self._ended else next(self._batches, None)
                if batch is None:
                    self._ended.add(share)
                    if len(self._ended) == SHARES:
                        self._batches, self._ended = None, set()
                    return
            yield batch


def find_arrow_stream(source: Any) -> list[FoundFile]:
    """Find the rows of a Table, RecordBatch, RecordBatchReader or Scanner of Arrow."""
    import pyarrow as pa

    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if isinstance(source, pa.Table):

        def open_table(columns: Sequence[str]) -> Iterator[Any]:
            return iter(source.select(list(columns)).to_batches(max_chunksize=_BATCH_ROWS))

        return [make_stream("the Arrow table", source.schema, open_table)]
    if not isinstance(source, pa.RecordBatchReader):  # a Scanner
        return [make_stream("the scanner", source.projected_schema, lambda _: source.to_batches())]
    unread = [source]

    def open_reader(columns: Sequence[str]) -> Iterator[Any]:
        if not unread:
            raise ValueError("a reader can be read only once")
        return (batch.select(list(columns)) for batch in unread.pop())

    return [make_stream("the Arrow reader", source.schema, open_reader)]


def find_polars_stream(source: Any) -> list[FoundFile]:
    """Find the rows of a LazyFrame or DataFrame of Polars."""
    import polars as pl

    frame = source.lazy()
    oldest = pl.CompatLevel.oldest()

    def open_frame(columns: Sequence[str]) -> Iterator[Any]:
        frames = frame.select(list(columns)).collect_batches(
            chunk_size=_BATCH_ROWS, maintain_order=False, engine="streaming"
        )
        for part in frames:
            yield from part.to_arrow(compat_level=oldest).to_batches()

    schema = frame.collect_schema().to_frame().to_arrow(compat_level=oldest).schema
    return [make_stream("the Polars frame", schema, open_frame)]


def find_duckdb_stream(source: Any) -> list[FoundFile]:
    """Find the rows of a relation of DuckDB."""
    import duckdb

    def read(relation: Any) -> Any:
        if hasattr(relation, "to_arrow_reader"):
            return relation.to_arrow_reader(_BATCH_ROWS)
        return relation.fetch_record_batch(_BATCH_ROWS)

    def open_relation(columns: Sequence[str]) -> Iterator[Any]:
        return iter(read(source.select(*map(duckdb.ColumnExpression, columns))))

    return [make_stream("the DuckDB relation", read(source.limit(0)).schema, open_relation)]


def make_stream(called: str, schema: Any, open_batches: OpenBatches) -> FoundFile:
    """Return a stream as what is found; the arguments are those of `SharedStream`."""
    stream = SharedStream(called, schema, open_batches)
    return FoundFile(called, (), stream, Format.STREAM)
