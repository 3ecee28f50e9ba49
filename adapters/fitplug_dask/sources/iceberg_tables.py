"""Iceberg tables: the files of a snapshot, with their renamed columns and deleted rows.

The metadata and the manifests are read here, without another library.
https://iceberg.apache.org/spec/
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fitplug.errors import DataError
from fitplug_dask.sources.file_search import FoundFile
from fitplug_dask.sources.formats import Format
from fitplug_dask.sources.iceberg_manifests import (
    EQUALITY_DELETES,
    POSITION_DELETES,
    IcebergFile,
    read_manifests,
)
from fitplug_dask.sources.locations import Options, redact_url
from fitplug_dask.sources.table_entries import (
    Deletion,
    DeletionKind,
    StoredColumn,
    TableEntry,
)
from fitplug_dask.sources.table_folders import (
    list_names,
    make_location,
    read_bytes,
    stamp_deletions,
)

_VERSIONS = (1, 2, 3)
_SPELLED_TYPES = ("boolean", "int", "long", "string")
_HINT = "version-hint.text"


@dataclass(frozen=True)
class IcebergTable:
    """An Iceberg table, whose manifests say which files and rows are in it.

        fpd.count(fpd.IcebergTable("lake/people/metadata/00007-....metadata.json"), plan)

    Position deletes, equality deletes, deletion vectors and renamed columns are respected. A table
    that needs more of its readers is refused. A Table of pyiceberg, as its catalogs load them, may
    be counted as it is; its files are reached with `storage_options`.

    Args:
        path: The file of the table's metadata, `....metadata.json`, or its URL. The folder of a
            table serves if it holds `metadata/version-hint.text`, as tables without a catalog do.
        snapshot_id: The snapshot to count; None for the current one.
    """

    path: str | Path
    snapshot_id: int | None = None


def find_iceberg_files(table: IcebergTable, options: Options | None) -> list[FoundFile]:
    """Find the files of a snapshot of an Iceberg table.

    Raises:
        DataError: There is no such table or snapshot, or it cannot be read as it demands.
    """
    path = _find_metadata(str(table.path), options)
    shown = redact_url(path)
    content = read_bytes(path, options)
    try:
        return _read_files(shown, json.loads(content), table.snapshot_id, options)
    except DataError:
        raise
    except Exception:  # a damaged file; what its reader says may quote values
        pass
    raise DataError(f"the metadata of the Iceberg table {shown} are damaged; check the table")


def _find_metadata(given: str, options: Options | None) -> str:
    """Return the path of the file of metadata."""
    if given.endswith(".json"):
        return given
    folder = f"{given.rstrip('/')}/metadata"
    names = list_names(folder, options)
    if _HINT in names:
        hint = read_bytes(f"{folder}/{_HINT}", options).decode("ascii", "replace").strip()
        for name in (f"v{hint}.metadata.json", f"{hint}.metadata.json", hint):
            if name in names:
                return f"{folder}/{name}"
    raise DataError(
        f"{redact_url(given)} does not say which version of an Iceberg table is the current one; "
        "name its file ....metadata.json, or give the table that a catalog of pyiceberg loads"
    )


def _read_files(
    shown: str, metadata: Mapping[str, Any], snapshot_id: int | None, options: Options | None
) -> list[FoundFile]:
    """Return the files of a snapshot."""
    if metadata["format-version"] not in _VERSIONS:
        raise DataError(f"{shown} is of an unknown version of Iceberg; write a copy as Parquet")
    snapshot = _find_snapshot(shown, metadata, snapshot_id)
    if snapshot is None:
        return []
    specs = _list_specs(metadata)
    data, deletes = read_manifests(snapshot, options)
    _check_files(shown, [*data, *deletes])
    schema = _find_schema(metadata, snapshot if snapshot_id is not None else {})
    columns = _list_columns(metadata, schema)
    plain = {field["id"] for field in schema["fields"] if field["type"] in _SPELLED_TYPES}
    chosen = [_choose_deletes(file, deletes, specs) for file in data]
    needed = list(dict.fromkeys(one for held in chosen for one in held))
    made = [_make_deletion(shown, one, columns, options) for one in needed]
    stamped = dict(zip(needed, stamp_deletions(made), strict=True))
    files = []
    for file, held in zip(data, chosen, strict=True):
        deletions = tuple(replace(stamped[one], file_path=file.path) for one in held)
        entry = TableEntry(_share_partition(columns, plain, file, specs), deletions, file.size)
        location = make_location(file.path, options)
        files.append(FoundFile(redact_url(file.path), (), location, Format.PARQUET, entry))
    return sorted(files, key=lambda file: file.location.path)


def _find_snapshot(
    shown: str, metadata: Mapping[str, Any], snapshot_id: int | None
) -> Mapping[str, Any] | None:
    """Return the snapshot to count, or None if the table has none yet, so that it has no rows."""
    wanted = metadata.get("current-snapshot-id") if snapshot_id is None else snapshot_id
    if snapshot_id is None and wanted in (None, -1):
        return None
    for snapshot in metadata.get("snapshots") or ():
        if snapshot["snapshot-id"] == wanted:
            held: Mapping[str, Any] = snapshot
            return held
    raise DataError(f"the Iceberg table {shown} has no snapshot {wanted}; check its history")


def _list_specs(metadata: Mapping[str, Any]) -> dict[int, list[Mapping[str, Any]]]:
    """Return the fields of each partition spec, by its number."""
    if "partition-specs" in metadata:
        return {spec["spec-id"]: spec["fields"] for spec in metadata["partition-specs"]}
    return {0: metadata["partition-spec"]}


def _find_schema(metadata: Mapping[str, Any], snapshot: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of the table.

    Args:
        metadata: The metadata of the table.
        snapshot: The snapshot whose schema is wanted; empty for the table's current schema.
    """
    if "schemas" not in metadata:
        only: Mapping[str, Any] = metadata["schema"]
        return only
    number = snapshot.get("schema-id", metadata["current-schema-id"])
    (schema,) = [one for one in metadata["schemas"] if one["schema-id"] == number]
    return schema


def _list_columns(
    metadata: Mapping[str, Any], schema: Mapping[str, Any]
) -> dict[str, StoredColumn]:
    """Return the columns of a schema, by name."""
    mapping = (metadata.get("properties") or {}).get("schema.name-mapping.default")
    names = {
        one["field-id"]: tuple(one["names"])
        for one in (json.loads(mapping) if mapping else ())
        if "field-id" in one
    }
    columns = {}
    for field in schema["fields"]:
        default = field.get("initial-default")
        absent = "is missing there, and has a default, which is not supported"
        columns[field["name"]] = StoredColumn(
            names.get(field["id"], ()),
            field["id"],
            absent=None if default is None else absent,
        )
    return columns


def _check_files(shown: str, files: Sequence[IcebergFile]) -> None:
    """Raise DataError if a file is of a kind that is not read here."""
    for file in files:
        is_bitmap = file.content == POSITION_DELETES and file.format == "puffin"
        fault = None
        if file.format != "parquet" and not is_bitmap:
            fault = f"has files of {file.format}"
        elif file.is_encrypted:
            fault = "has encrypted files"
        if fault:
            raise DataError(
                f"the Iceberg table {shown} {fault}, which is not supported; "
                "write a copy of it as plain Parquet"
            )


def _choose_deletes(
    file: IcebergFile,
    deletes: Sequence[IcebergFile],
    specs: Mapping[int, Sequence[Mapping[str, Any]]],
) -> list[IcebergFile]:
    """Return the deletes that work on a file of data, as the section "Scan Planning" says."""
    positions, bitmaps, values = [], [], []
    for delete in deletes:
        same = delete.spec == file.spec and delete.partition == file.partition
        if delete.content == EQUALITY_DELETES:
            if file.sequence < delete.sequence and (same or not specs[delete.spec]):
                values.append(delete)
        elif file.sequence <= delete.sequence:
            if delete.format == "puffin":
                if delete.referenced == file.path:
                    bitmaps.append(delete)
            elif same and delete.referenced in (None, file.path):
                positions.append(delete)
    # A bitmap holds all that earlier files of positions say.
    return [*(bitmaps or positions), *values]


def _make_deletion(
    shown: str,
    delete: IcebergFile,
    columns: Mapping[str, StoredColumn],
    options: Options | None,
) -> Deletion:
    """Return which rows a file of deletes deletes."""
    location = make_location(delete.path, options)
    if delete.content == EQUALITY_DELETES:
        compared = {
            name: column
            for name, column in columns.items()
            if column.field_id in delete.equality_ids
        }
        if len(compared) != len(delete.equality_ids):
            raise DataError(
                f"the Iceberg table {shown} deletes rows by a column that it no longer has, or "
                "that is nested, which is not supported; write a copy of it as plain Parquet"
            )
        return Deletion(DeletionKind.EQUAL_VALUES, location, columns=compared)
    if delete.format == "puffin":
        if delete.blob is None:
            raise ValueError("a bitmap of deleted rows has no place in its file")
        start, length = delete.blob
        return Deletion(
            DeletionKind.BITMAP, location, start=start, length=length, count=delete.records
        )
    return Deletion(DeletionKind.POSITIONS, location)


def _share_partition(
    columns: Mapping[str, StoredColumn],
    plain: Container[int],
    file: IcebergFile,
    specs: Mapping[int, Sequence[Mapping[str, Any]]],
) -> dict[str, StoredColumn]:
    """Return the columns, with the values that the partition gives where a file lacks them.

    Args:
        columns: The columns of the table, by name.
        plain: The numbers of the columns whose values in a partition are spelled here.
        file: The file of data.
        specs: The fields of each partition spec.
    """
    shared = {
        field["source-id"]: value
        for field, value in zip(specs[file.spec], file.partition, strict=True)
        if field["transform"] == "identity"
    }
    filled = {}
    for name, column in columns.items():
        filled[name] = column
        if column.field_id in shared and column.field_id in plain:
            filled[name] = column._replace(shared=(_spell(shared[column.field_id]),))
        elif column.field_id in shared:
            filled[name] = column._replace(absent="is missing there, and its partition gives it")
    return filled


def _spell(value: str | int | None) -> str | None:
    """Return the text of a value as names of folders spell it."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)
