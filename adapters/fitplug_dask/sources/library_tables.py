"""Library tables: tables of other libraries, in parts that tasks read.

The parts are fragments of a pyarrow.dataset.Dataset, partitions of a dask.dataframe, delayed
frames, or shares of a stream. A stream is a table that only this process can read, one batch after
another: a DuckDB query, a Polars frame, or an Arrow reader or table. All tasks of a count pull from
one stream, so that each batch goes to exactly one of them.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from fitplug.errors import DataError
from fitplug_dask.sources.locations import Location
from fitplug_dask.sources.source_files import (
    FolderKey,
    Format,
    SourceFile,
    StoredColumn,
    TableEntry,
    spell_value,
)
from fitplug_dask.sources.stores import UNTRACKED, State

OpenBatches: TypeAlias = Callable[[Sequence[str]], Iterator[Any]]
"""Maps the names of columns to Arrow batches with these columns."""

_BATCH_ROWS = 2**17

_numbers = itertools.count(1)


class LibraryLocation:
    """The location of rows that another library reads.

    Attributes:
        path: The name of the rows in messages.
        options: None, because fitplug does not open a store for them.
        listed: None, because no store listed them.
        schema: The Arrow schema; None if not even the names are known before rows are read.
        shares: The number of parts that tasks may read at once.
        unchecked: Whether the types of the columns are known only when rows are read.
    """

    path: str
    options = None
    listed = None
    schema: Any
    shares = 1
    unchecked = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"

    def read_state(self) -> State:
        """Return a meaningless size, and a stamp that never changes."""
        return 1, f"{UNTRACKED}{self.path}"


class SharedStream(LibraryLocation):
    """The location of a table that is read as a stream, by several threads at once."""

    shares = 64

    def __init__(self, called: str, schema: Any, open_batches: OpenBatches) -> None:
        """Prepare a stream, which is opened when the first batch is pulled.

        Args:
            called: The name of the table in messages.
            schema: The Arrow schema.
            open_batches: Restarts the stream whenever it is called.
        """
        self.path = f"{called} ({next(_numbers)})"
        self.schema = schema
        self._open_batches = open_batches
        self._lock = threading.Lock()
        self._batches: Iterator[Any] | None = None
        self._ended: set[int] = set()

    def __reduce__(self) -> Any:
        raise TypeError("a stream cannot be sent to another process")

    def pull_batches(self, share: int, columns: Sequence[str]) -> Iterator[Any]:
        """Yield batches until the stream has ended, each to only one share.

        When all shares have reached the end, the next pull starts the stream again.

        Args:
            share: The number of the share.
            columns: The columns to read. If there are none, one is read to count the rows.
        """
        wanted = list(columns) or self.schema.names[:1]
        while True:
            with self._lock:
                if self._batches is None:
                    self._batches = iter(self._open_batches(wanted))
                batch = None if self._ended else next(self._batches, None)
                if batch is None:
                    self._ended.add(share)
                    if len(self._ended) == self.shares:
                        self._batches, self._ended = None, set()
                    return
            yield batch


def find_arrow_stream(source: Any) -> list[SourceFile]:
    """Find the rows of an Arrow Table, RecordBatch, RecordBatchReader or Scanner."""
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
            raise ValueError(
                "an Arrow reader can be read only once. Give a new reader, or an Arrow table"
            )
        return (batch.select(list(columns)) for batch in unread.pop())

    return [make_stream("the Arrow reader", source.schema, open_reader)]


def find_capsule_stream(source: Any) -> list[SourceFile]:
    """Find the rows of any object that exports a stream through Arrow's C interface."""
    import pyarrow as pa

    def open_stream(columns: Sequence[str]) -> Iterator[Any]:
        reader = pa.RecordBatchReader.from_stream(source)
        return (batch.select(list(columns)) for batch in reader)

    schema = pa.RecordBatchReader.from_stream(source).schema
    return [make_stream("the Arrow stream", schema, open_stream)]


def find_pandas_stream(source: Any) -> list[SourceFile]:
    """Find the rows of a pandas DataFrame."""
    import pyarrow as pa

    fields = [pa.field(str(name), _infer_type(column)) for name, column in source.items()]
    places = {field.name: place for place, field in enumerate(fields)}

    def open_frame(columns: Sequence[str]) -> Iterator[Any]:
        for start in range(0, len(source), _BATCH_ROWS):
            rows = source.iloc[start : start + _BATCH_ROWS]
            arrays = [
                pa.array(rows.iloc[:, places[name]], fields[places[name]].type, from_pandas=True)
                for name in columns
            ]
            yield from pa.Table.from_arrays(arrays, names=list(columns)).to_batches()

    return [make_stream("the pandas frame", pa.schema(fields), open_frame)]


def _infer_type(column: Any) -> Any:
    """Return the Arrow type of a pandas column; an empty struct if there is none."""
    import pyarrow as pa

    try:
        if column.dtype == object:
            return pa.infer_type(column, from_pandas=True)
        return pa.array(column.iloc[:0], from_pandas=True).type
    except (pa.ArrowException, TypeError):
        return pa.struct([])  # no attribute reads it


def find_polars_stream(source: Any) -> list[SourceFile]:
    """Find the rows of a Polars LazyFrame or DataFrame."""
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


def find_duckdb_stream(source: Any) -> list[SourceFile]:
    """Find the rows of a DuckDB relation."""

    def read(relation: Any) -> Any:
        if hasattr(relation, "to_arrow_reader"):
            return relation.to_arrow_reader(_BATCH_ROWS)
        return relation.fetch_record_batch(_BATCH_ROWS)

    def open_relation(columns: Sequence[str]) -> Iterator[Any]:
        # Quoted SQL treats a name with a dot or a quote as one column, unlike ColumnExpression.
        quoted = (name.replace('"', '""') for name in columns)
        return iter(read(source.project(", ".join(f'"{name}"' for name in quoted))))

    return [make_stream("the DuckDB relation", read(source.limit(0)).schema, open_relation)]


def make_stream(called: str, schema: Any, open_batches: OpenBatches) -> SourceFile:
    """Return a stream as a source file; the arguments are those of `SharedStream`."""
    stream = SharedStream(called, schema, open_batches)
    return SourceFile(called, (), stream, Format.STREAM)


@dataclass(frozen=True, repr=False)
class FragmentLocation(LibraryLocation):
    """The location of a fragment of a data set that Arrow reads.

    Attributes:
        path: The name of the fragment in messages.
        fragment: The fragment.
        schema: The schema of the data set, with which all fragments are read.
    """

    path: str
    fragment: Any
    schema: Any

    def read_state(self) -> State:
        """Return the size and a stamp of the fragment's file, if it has one."""
        path = getattr(self.fragment, "path", None)
        if not path:
            return super().read_state()
        info = self.fragment.filesystem.get_file_info(path)
        if not info.is_file:
            raise FileNotFoundError
        return max(1, info.size), f"mtime={info.mtime_ns}"


def find_fragments(source: Any) -> list[SourceFile]:
    """Find the fragments of a data set.

    Local Parquet and Arrow files are read as if their paths had been given, with all checks. Arrow
    reads all other fragments. A filtered data set does not list its fragments, so it is read as a
    stream.
    """
    import pyarrow.dataset as pd

    try:
        fragments = list(source.get_fragments())
    except ValueError:

        def scan(columns: Sequence[str]) -> Iterator[Any]:
            batches: Iterator[Any] = source.to_batches(columns=list(columns))
            return batches

        return [make_stream("the filtered data set", source.schema, scan)]
    plain = isinstance(source, pd.FileSystemDataset)
    if plain and all(_is_plain(fragment) for fragment in fragments):
        return [_find_file(fragment, source.schema) for fragment in fragments]
    files = []
    for number, fragment in enumerate(fragments):
        path = getattr(fragment, "path", None) or f"fragment {number}"
        location = FragmentLocation(f"{path} ({number})", fragment, source.schema)
        files.append(SourceFile(path, (), location, Format.FRAGMENT))
    return files


def _is_plain(fragment: Any) -> bool:
    """Return whether a fragment is an entire local Parquet or Arrow file."""
    import pyarrow.dataset as pd
    from pyarrow.fs import LocalFileSystem

    if not isinstance(fragment.filesystem, LocalFileSystem):
        return False
    if isinstance(fragment.format, pd.ParquetFileFormat):
        every = len(fragment.row_groups) == fragment.metadata.num_row_groups
        return every and fragment.format == pd.ParquetFileFormat()
    return isinstance(fragment.format, pd.IpcFileFormat)


def _find_file(fragment: Any, schema: Any) -> SourceFile:
    """Return the file of a fragment, with the keys from its partition expression."""
    import pyarrow.dataset as pd

    keys = tuple(
        FolderKey(name, spell_value(value), str(Path(fragment.path).parent))
        for name, value in pd.get_partition_keys(fragment.partition_expression).items()
    )
    is_parquet = isinstance(fragment.format, pd.ParquetFileFormat)
    return SourceFile(
        fragment.path,
        keys,
        Location(str(Path(fragment.path).absolute())),
        Format.PARQUET if is_parquet else Format.ARROW,
        TableEntry({name: StoredColumn((name,)) for name in schema.names}),
    )


@dataclass(frozen=True, repr=False)
class DaskPartition(LibraryLocation):
    """The location of one partition, which a task computes.

    A partition that is computed again, for instance because a worker was lost, must have the same
    rows: its computation must not depend on anything that changes.

    Attributes:
        path: The name of the partition in messages.
        delayed: A Dask Delayed whose value is a pandas, Polars or Arrow frame.
        schema: The type of each column: text, integers, or null if it is known only when rows are
            read.
    """

    path: str
    delayed: Any
    schema: Any
    unchecked = True

    def compute(self) -> Any:
        """Compute the frame, in this thread or, within a task of a cluster, on the cluster."""
        try:
            from distributed import get_worker, worker_client

            from fitplug_dask.workers.limits import await_result  # it imports Dask

            get_worker()
        except (ImportError, ValueError):  # this is not a task of a cluster
            from dask import get

            # The function rather than its name, because with a client old versions warn of names.
            return self.delayed.compute(scheduler=get)
        with worker_client() as client:
            return await_result(client, client.compute(self.delayed))


def find_dask_partitions(source: Any) -> list[SourceFile]:
    """Find the partitions of a dask.dataframe, a Delayed, or a sequence of Delayed.

    Raises:
        DataError: It is another Dask collection.
    """
    import pyarrow as pa
    from dask.delayed import Delayed

    schema: Any = None
    if isinstance(source, Delayed):
        delayed = [source]
    elif isinstance(source, Sequence):
        delayed = list(source)
    elif hasattr(source, "to_delayed") and hasattr(source, "columns"):
        schema = pa.schema(
            [(str(name), _classify_dtype(dtype)) for name, dtype in source.dtypes.items()]
        )
        delayed = list(source.to_delayed())
    else:
        raise DataError(
            f"the data must be a dask.dataframe or delayed frames, not {type(source).__name__}"
        )
    return [
        SourceFile(
            f"partition {number}",
            (),
            DaskPartition(f"partition {number}", _cull(one, Delayed), schema),
            Format.DELAYED,
        )
        for number, one in enumerate(delayed)
    ]


def _classify_dtype(dtype: Any) -> Any:
    """Return the Arrow type of a pandas column if its dtype determines it; otherwise null."""
    import pyarrow as pa

    if getattr(dtype, "kind", "") in ("i", "u"):
        return pa.int64()
    is_text = getattr(dtype, "na_value", None) is not None and dtype == "string"
    return pa.large_string() if is_text else pa.null()


def _cull(one: Any, make: Any) -> Any:
    """Return a Delayed with only the tasks that it needs, so that no others travel with it."""
    from dask.optimization import cull

    graph: Mapping[Any, Any] = dict(one.__dask_graph__())
    needed, _ = cull(graph, [one.key])
    return make(one.key, needed)
