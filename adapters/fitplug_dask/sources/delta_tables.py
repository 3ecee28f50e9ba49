"""Delta tables: the files of a version, with their partition values and deleted rows.

The package `deltalake` reads the log, its checkpoints and the deletion vectors.
https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import numpy as np

from fitplug.counts import DeltaTable
from fitplug.errors import DataError
from fitplug.files import is_url, redact_url, rename_option
from fitplug_dask.sources.locations import locate
from fitplug_dask.sources.source_files import (
    FolderKey,
    Format,
    SourceFile,
    StoredColumn,
    TableEntry,
    check_is_lake,
    pack_rows,
    spell_value,
)
from fitplug_dask.sources.stores import Options

_ZONED = "is a time with a time zone that partitions the table, which fitplug does not support"

_KNOWN_FEATURES = {
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
}
"""The reader features that `deltalake` and this module support. Type widening needs no support
because each file is read by its own types; vacuumProtocolCheck only concerns removing files.
"""


def find_delta_files(table: DeltaTable | Any, options: Options | None) -> list[SourceFile]:
    """Find the files of a Delta table, given by its path or as a table of `deltalake`.

    Raises:
        DataError: There is no such table or version, it cannot be read as its log requires, or
            `deltalake` is missing.
    """
    if isinstance(table, DeltaTable):
        root = str(table.path)
        check_is_lake(root, "delta")
        opened = _open(root, table.version, options)
    else:
        root, opened = table.table_uri, table
        root = unquote(root) if root.startswith("file:") else root
    shown = redact_url(root)
    try:
        _check_features(shown, opened.protocol())
        return sorted(_read_files(root, opened, options), key=lambda file: file.location.path)
    except DataError:
        raise
    except Exception:  # the package's message may quote values
        pass
    raise DataError(
        f"the log or a deletion file of the Delta table {shown} is damaged or missing. Check the "
        "table."
    )


def _open(root: str, version: int | None, options: Options | None) -> Any:
    """Open a table with `deltalake`."""
    shown = redact_url(root)
    try:
        import deltalake
    except ImportError:
        deltalake = None
    if deltalake is None:
        raise DataError(
            f"the Delta table {shown} needs the package deltalake. Install it with: pip install "
            '"fitplug[delta]"'
        )
    storage = None
    if is_url(root):
        from fitplug_dask.workers import read_timeout  # it imports Dask

        limit = f"{round(1000 * read_timeout())}ms"  # of each request
        storage = {"timeout": limit, "retry_timeout": limit}
        storage |= dict(_translate_options(root, options or {}))
    path = root if is_url(root) else locate(root, None).path
    try:
        return deltalake.DeltaTable(path, version=version, storage_options=storage)
    except Exception as error:  # the package's message may quote values or credentials
        unsupported = re.search(r"Feature '(\w+)' is not supported", str(error))
    if unsupported:
        raise _make_feature_error(shown, [unsupported[1]])
    fault = (
        f"the log of the Delta table {shown} is damaged or cannot be reached. Check the table, "
        "and storage_options if it is in a store."
    )
    with suppress(Exception):
        if not deltalake.DeltaTable.is_deltatable(path, storage_options=storage):
            fault = f"{shown} is not a Delta table: it has no _delta_log. Check the path."
        elif version is not None:
            latest = deltalake.DeltaTable(path, storage_options=storage).version()
            fault = (
                f"{shown} has no version {version}, or its log is incomplete. The latest "
                f"version is {latest}."
            )
    raise DataError(fault)


def _translate_options(root: str, options: Options) -> Iterator[tuple[str, str]]:
    """Yield a store's options as `deltalake` spells them; it uses the same store library."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _translate_options(root, value)
        elif isinstance(value, (str, bool)):
            plain = rename_option(name)
            yield f"aws_{plain}" if root.startswith("s3") else plain, spell_value(value) or ""
            if plain == "endpoint" and str(value).startswith("http://"):
                yield "allow_http", "true"


def _check_features(shown: str, protocol: Any) -> None:
    """Raise DataError if the table needs reader features that are not supported."""
    unknown = sorted(set(protocol.reader_features or ()) - _KNOWN_FEATURES)
    if unknown:
        raise _make_feature_error(shown, unknown)


def _make_feature_error(shown: str, features: list[str]) -> DataError:
    return DataError(
        f"the Delta table {shown} uses {', '.join(features)}, which fitplug does not support. "
        "Write a copy of the table as plain Parquet."
    )


def _read_files(root: str, opened: Any, options: Options | None) -> Iterator[SourceFile]:
    """Yield the files of an open table."""
    import pyarrow as pa

    fields = json.loads(opened.schema().to_json())["fields"]
    mode = opened.metadata().configuration.get("delta.columnMapping.mode", "none")
    columns = {field["name"]: _find_stored(field, mode) for field in fields}
    zoned = {field["name"] for field in fields if field["type"] == "timestamp"}
    vectors = _read_vectors(opened)
    for action in pa.table(opened.get_add_actions()).to_pylist():
        path = unquote(action["path"])
        if not is_url(path) and not path.startswith(("/", "file:")):
            path = f"{root.rstrip('/')}/{path}"
        partition = action.get("partition") or {}
        keys = tuple(
            FolderKey(name, spell_value(value), redact_url(path.rpartition("/")[0]))
            for name, value in partition.items()
            if name not in zoned
        )
        entry = TableEntry(
            columns,
            vectors.pop(_identify(opened.table_uri, action["path"]), None),
            action["size_bytes"],
            dict.fromkeys(zoned & set(partition), _ZONED),
        )
        location = locate(path, options)
        shown = redact_url(path) if is_url(path) else location.path
        yield SourceFile(shown, keys, location, Format.PARQUET, entry)
    if vectors:
        raise ValueError("a deletion vector is for a file that is not in the table")


def _find_stored(described: Mapping[str, Any], mode: str) -> StoredColumn:
    """Return how to find a column in files, given the mode of the table's column mapping."""
    if mode == "none":
        return StoredColumn((described["name"],))
    physical = described["metadata"]["delta.columnMapping.physicalName"]
    number = described["metadata"]["delta.columnMapping.id"] if mode == "id" else None
    return StoredColumn((physical,), number)


def _read_vectors(opened: Any) -> dict[str, bytes]:
    """Return the deleted rows of each file that has some, by the identity of the file."""
    import pyarrow as pa

    vectors = {}
    for batch in pa.RecordBatchReader.from_stream(opened.deletion_vectors()):
        for uri, remaining in zip(*batch.columns, strict=True):
            bits = remaining.values.to_numpy(zero_copy_only=False)
            vectors[_identify("", uri.as_py())] = pack_rows(~np.asarray(bits, dtype=bool))
    return vectors


def _identify(table_uri: str, path: str) -> str:
    """Return a file's identity: its absolute URI; the log may give it relative to the table."""
    absolute = is_url(path) or path.startswith(("/", "file:"))
    return unquote(path if absolute else f"{table_uri.rstrip('/')}/{path}")
