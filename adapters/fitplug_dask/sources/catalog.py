"""Catalog: finding the files of a source by its type, and the keys of their folders.

The name of a hive folder (`state=01/`) consists of a key and a value, both percent-encoded.

To add a kind of source, write a function in `library_tables` or a new module, and add an entry
here. Types are recognized by name: whoever has made a source has imported its library, so nothing
need be imported here.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

from fitplug.counts import Source
from fitplug.errors import DataError
from fitplug.files import is_url, redact_url
from fitplug_dask.sources.delta_tables import find_delta_files
from fitplug_dask.sources.file_search import (
    FindLake,
    list_local_files,
    list_stored_files,
    make_resolver,
)
from fitplug_dask.sources.iceberg_tables import find_iceberg_files
from fitplug_dask.sources.library_tables import (
    find_arrow_stream,
    find_capsule_stream,
    find_dask_partitions,
    find_duckdb_stream,
    find_fragments,
    find_pandas_stream,
    find_polars_stream,
)
from fitplug_dask.sources.locations import Location, strip_local_scheme
from fitplug_dask.sources.source_files import FolderKey, SourceFile, find_lake_above, infer_format
from fitplug_dask.sources.stores import (
    Options,
    get_request_pool,
)

Paths: TypeAlias = str | Path | Sequence[str | Path]

_NULL = "__HIVE_DEFAULT_PARTITION__"

_FIND_TABLES: dict[tuple[str, str], Callable[[Any, Options | None], list[SourceFile]]] = {
    ("fitplug", "DeltaTable"): find_delta_files,
    ("deltalake", "DeltaTable"): find_delta_files,
    ("fitplug", "IcebergTable"): find_iceberg_files,
    ("pyiceberg", "Table"): find_iceberg_files,
    ("pyiceberg", "DataScan"): find_iceberg_files,
}
"""Lakehouse tables; the keys are those of `_FIND`."""

_FIND: dict[tuple[str, str], Callable[[Any], list[SourceFile]]] = {
    ("pyarrow", "Dataset"): find_fragments,
    ("pyarrow", "Table"): find_arrow_stream,
    ("pyarrow", "RecordBatch"): find_arrow_stream,
    ("pyarrow", "RecordBatchReader"): find_arrow_stream,
    ("pyarrow", "Scanner"): find_arrow_stream,
    ("pandas", "DataFrame"): find_pandas_stream,
    ("polars", "LazyFrame"): find_polars_stream,
    ("polars", "DataFrame"): find_polars_stream,
    ("_duckdb", "DuckDBPyRelation"): find_duckdb_stream,
    ("duckdb", "DuckDBPyRelation"): find_duckdb_stream,
    ("dask", "Delayed"): find_dask_partitions,
    ("dask", "DataFrame"): find_dask_partitions,
    ("dask", "FrameBase"): find_dask_partitions,
}
"""By the package and name of the source's class, or of one of its base classes."""


def find_files(source: Source) -> list[SourceFile]:
    """Find the files, or the parts of a table, that a source refers to.

    Args:
        source: The source; only its path and storage options are used.

    Returns:
        The files, in a fixed order.

    Raises:
        DataError: There is no such file, a file is named twice, there are several formats, or a
            table cannot be read as its format requires.
    """
    path, options = source.path, source.storage_options
    if isinstance(path, (str, Path)):
        return _find_by_path(path, options)
    names = list(_list_classes(type(path)))
    for name in names:
        if name in _FIND_TABLES:
            files = _FIND_TABLES[name](path, options)
            _check_each_once(files)
            return files
    for name in names:
        if name in _FIND:
            return _find_library_rows(_FIND[name], path)
    if isinstance(path, Sequence):
        if path and all(("dask", "Delayed") in _list_classes(type(one)) for one in path):
            return _find_library_rows(find_dask_partitions, path)
        if all(isinstance(one, (str, Path)) for one in path):
            return _find_by_path(path, options)
    if hasattr(path, "__arrow_c_stream__"):
        return _find_library_rows(find_capsule_stream, path)
    advice = ""
    if isinstance(path, Mapping):
        advice = ". Count rows in memory with fitplug.Tables.from_records(domain, records, tables)."
    raise DataError(
        "the data must be a path, a list of paths, a table or a data frame, not "
        f"{_describe_type(path)}{advice}"
    )


def _list_classes(kind: type) -> Iterator[tuple[str, str]]:
    """Yield the package and name of a class and of its base classes."""
    for one in kind.__mro__:
        yield one.__module__.partition(".")[0], one.__name__


def _describe_type(source: object) -> str:
    if isinstance(source, Sequence) and not isinstance(source, (str, bytes)):
        return f"a {type(source).__name__} of other objects"
    return type(source).__name__


def _find_library_rows(find: Callable[[Any], list[SourceFile]], source: Any) -> list[SourceFile]:
    """Find the parts of another library's table. Drop its errors, which may quote values."""
    try:
        return find(source)
    except DataError:
        raise
    except Exception:
        fault = f"the {type(source).__name__} cannot be read. Check that it can be computed."
    raise DataError(fault)


def _find_by_path(source: Paths, options: Options | None) -> list[SourceFile]:
    """Find the files that `source` refers to.

    Args:
        source: A file, a folder (all files of known suffixes below it, except names that begin
            with "_" or "."), a glob of files or folders, or a sequence of these. Each is a local
            path or the URL of a store.
        options: How the stores of URLs are reached.

    Returns:
        The files, in a fixed order.

    Raises:
        DataError: An entry matches no file, a file is found twice (its rows would count twice), or
            the files have several formats.
    """
    given = [source] if isinstance(source, (str, Path)) else source
    if not given:
        raise DataError("the list of data files is empty. Name at least one file or folder.")
    urls = list(dict.fromkeys(url for url in map(str, given) if is_url(url)))
    listed = partial(list_stored_files, options=options or {})
    locations = get_request_pool().map(listed, urls) if len(urls) > 1 else map(listed, urls)
    stored = dict(zip(urls, locations, strict=True))
    find_lake = cache(find_lake_above)  # by folder, since a folder may have many files
    files = [
        file
        for entry in map(str, given)
        for file in (
            map(_describe_stored, stored[entry])
            if entry in stored
            else _find_local(entry, find_lake)
        )
    ]
    _check_each_once(files)
    _check_one_format(files)
    return files


def _describe_stored(location: Location) -> SourceFile:
    """Return a file in a store, with the keys of its folders."""
    displayed = redact_url(location.path)
    scheme, _, path = displayed.partition("://")
    keys = (
        key._replace(folder=f"{scheme}://{key.folder}")
        for key in _parse_keys(os.path.dirname(path))  # noqa: PTH120 (a plain path)
    )
    return SourceFile(displayed, tuple(keys), location, infer_format(displayed))


def _find_local(given: str, find_lake: FindLake) -> Iterator[SourceFile]:
    """Yield the files of one local path or glob."""
    here = os.getcwd()  # noqa: PTH109 (a plain path)
    for path in list_local_files(strip_local_scheme(given), find_lake):
        location = Location(os.path.join(here, path))  # noqa: PTH118 (a plain path)
        keys = _parse_keys(os.path.dirname(path))  # noqa: PTH120 (a plain path)
        yield SourceFile(path, keys, location, infer_format(path))


def _check_each_once(files: Sequence[SourceFile]) -> None:
    """Raise DataError if a file is found twice, even by a link: its rows would count twice."""
    seen: dict[object, SourceFile] = {}
    resolve = make_resolver()
    for file in files:
        for identity in _identify(file.location, resolve):
            if identity in seen:
                raise DataError(
                    f"{file.path} is the same file as {seen[identity].path}. Name every file once."
                )
            seen[identity] = file


def _identify(location: Location, resolve: Callable[[str], str]) -> Iterator[object]:
    """Yield the identities of a file: its path, and its inode if it has one."""
    path = location.path
    if location.options is not None:
        yield path
        return
    now = None
    with suppress(OSError):  # such a file cannot be read either, which raises later
        now = os.lstat(path)
    if now is None or stat.S_ISLNK(now.st_mode):
        yield os.path.realpath(path)
        with suppress(OSError):
            now = os.stat(path)  # noqa: PTH116 (a plain path)
    else:
        folder, name = os.path.split(path)
        yield os.path.join(resolve(folder), name)  # noqa: PTH118 (a plain path)
    if now is not None and now.st_ino:
        # The size and the times are needed because some mounts give several files one inode.
        yield now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns


def _check_one_format(files: Sequence[SourceFile]) -> None:
    """Raise DataError if the files have several formats."""
    first = files[0]
    for file in files:
        if file.format is not first.format:
            raise DataError(
                f"the data mix {first.format.value} ({first.path}) and {file.format.value} "
                f"({file.path}). Name the files of one format."
            )


@lru_cache(2**10)
def _parse_keys(folder: str) -> tuple[FolderKey, ...]:
    """Return the keys of a hive folder and those above it, outermost first."""
    above, inner = os.path.split(folder)
    outer = () if above in ("", folder) else _parse_keys(above)
    name, equals, value = inner.partition("=")
    if not (equals and name):
        return outer
    return *outer, FolderKey(unquote(name), None if value == _NULL else unquote(value), folder)
