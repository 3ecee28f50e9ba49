"""Catalog: what each kind of source means, by its type.

Another kind of source goes in as a function of `library_tables` or as a new module, and as one
entry here. The libraries that make sources are imported by whoever has made one, so that nothing is
imported here to recognize it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from fitplug.errors import DataError
from fitplug_dask.sources.delta_tables import DeltaTable, find_delta_files
from fitplug_dask.sources.file_search import Paths, check_each_once, find_by_path
from fitplug_dask.sources.found_files import FoundFile
from fitplug_dask.sources.iceberg_tables import IcebergTable, find_iceberg_files
from fitplug_dask.sources.library_tables import (
    find_arrow_stream,
    find_dask_partitions,
    find_duckdb_stream,
    find_fragments,
    find_polars_stream,
)
from fitplug_dask.sources.stores import Options

Source: TypeAlias = Paths | DeltaTable | IcebergTable | Any
"""What `count` counts: paths, tables of lakes, or the tables of other libraries."""

_KINDS = (
    "a path, a list of paths, a table of Delta or Iceberg, a dask.dataframe, delayed frames, a "
    "data set, table or reader of Arrow, a frame of Polars or a relation of DuckDB"
)

_FIND_TABLES: dict[tuple[str, str], Callable[[Any, Options | None], list[FoundFile]]] = {
    ("fitplug_dask", "DeltaTable"): find_delta_files,
    ("deltalake", "DeltaTable"): find_delta_files,
    ("fitplug_dask", "IcebergTable"): find_iceberg_files,
    ("pyiceberg", "Table"): find_iceberg_files,
    ("pyiceberg", "DataScan"): find_iceberg_files,
}
"""Tables of lakes, as `_FIND`."""

_FIND: dict[tuple[str, str], Callable[[Any], list[FoundFile]]] = {
    ("pyarrow", "Dataset"): find_fragments,
    ("pyarrow", "Table"): find_arrow_stream,
    ("pyarrow", "RecordBatch"): find_arrow_stream,
    ("pyarrow", "RecordBatchReader"): find_arrow_stream,
    ("pyarrow", "Scanner"): find_arrow_stream,
    ("polars", "LazyFrame"): find_polars_stream,
    ("polars", "DataFrame"): find_polars_stream,
    ("_duckdb", "DuckDBPyRelation"): find_duckdb_stream,
    ("duckdb", "DuckDBPyRelation"): find_duckdb_stream,
    ("dask", "Delayed"): find_dask_partitions,
    ("dask", "DataFrame"): find_dask_partitions,
    ("dask", "FrameBase"): find_dask_partitions,
}
"""By the package and the name of a class of the source's type, or of a class that it extends."""


def find_files(source: Source, options: Options | None = None) -> list[FoundFile]:
    """Find the files, or the parts of a table, that `source` means.

    Args:
        source: See `count`.
        options: How the stores of URLs are reached.

    Returns:
        The files, in a fixed order.

    Raises:
        DataError: It means no file, a file twice, files of several formats, or a table that cannot
            be read as its format demands.
    """
    if isinstance(source, (str, Path)):
        return find_by_path(source, options)
    names = list(_list_classes(type(source)))
    for name in names:
        if name in _FIND_TABLES:
            files = _FIND_TABLES[name](source, options)
            check_each_once(files)
            return files
    for name in names:
        if name in _FIND:
            return _find_held(_FIND[name], source)
    if isinstance(source, Sequence):
        if source and all(("dask", "Delayed") in _list_classes(type(one)) for one in source):
            return _find_held(find_dask_partitions, source)
        if all(isinstance(one, (str, Path)) for one in source):
            return find_by_path(source, options)
    raise DataError(f"the data must be {_KINDS}; not {_describe_type(source)}")


def _list_classes(kind: type) -> Iterator[tuple[str, str]]:
    """Yield the package and the name of a class and of all that it extends."""
    for one in kind.__mro__:
        yield one.__module__.partition(".")[0], one.__name__


def _describe_type(source: object) -> str:
    if isinstance(source, Sequence) and not isinstance(source, (str, bytes)):
        return f"a {type(source).__name__} of other things"
    return type(source).__name__


def _find_held(find: Callable[[Any], list[FoundFile]], source: Any) -> list[FoundFile]:
    """Return what another library holds. What it raises may quote values, so it is dropped."""
    try:
        return find(source)
    except DataError:
        raise
    except Exception:
        fault = f"the {type(source).__name__} cannot be read; check that it can be computed"
    raise DataError(fault)
