"""Delta tables: the files of a version, with their partition values and deleted rows."""

from __future__ import annotations

import hashlib
import json
import struct
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from fitplug.errors import DataError
from fitplug_dask.sources.delta_log import replay_log
from fitplug_dask.sources.file_search import FolderKey, FoundFile
from fitplug_dask.sources.formats import Format
from fitplug_dask.sources.locations import Options, redact_url
from fitplug_dask.sources.table_entries import (
    Deletion,
    DeletionKind,
    StoredColumn,
    TableEntry,
)
from fitplug_dask.sources.table_folders import join_path, make_location, stamp_deletions

_ZONED = "is a time with a zone that partitions the table, which is not supported"
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_UUID_CHARACTERS = 20
_FRAME_BYTES = 8  # the length before a deletion vector in a file, and the checksum after it


@dataclass(frozen=True)
class DeltaTable:
    """A Delta table, whose log says which files and rows are in it.

        fpd.count(fpd.DeltaTable("lake/people", version=12), plan)

    The log and its checkpoints are read here, without another library. Deletion vectors and
    renamed columns are respected, and a table that needs more of its readers is refused.

    Args:
        path: The folder of the table, or its URL.
        version: The version to count; None for the latest when counting begins.
    """

    path: str | Path
    version: int | None = None


def find_delta_files(table: DeltaTable, options: Options | None) -> list[FoundFile]:
    """Find the files of a Delta table.

    Raises:
        DataError: There is no such table or version, or it cannot be read as its log demands.
    """
    root = str(table.path)
    _, state = replay_log(root, table.version, options)
    try:
        return _read_files(root, state.metadata, list(state.files.values()), options)
    except DataError:
        raise
    except Exception:  # a damaged log; what its reader says may quote values
        pass
    raise DataError(f"the log of the Delta table {redact_url(root)} is damaged; check the table")


def _read_files(
    root: str, metadata: Mapping[str, Any], actions: list[dict[str, Any]], options: Options | None
) -> list[FoundFile]:
    """Return the files that the actions add."""
    if metadata["format"]["provider"] != "parquet":
        raise DataError(f"the files of the Delta table {redact_url(root)} are not Parquet")
    fields = json.loads(metadata["schemaString"])["fields"]
    mode = (metadata.get("configuration") or {}).get("delta.columnMapping.mode", "none")
    columns = {one["name"]: _find_stored(one, mode) for one in fields}
    partitions = {one["name"]: one["type"] for one in fields} if mode == "none" else {}
    if mode != "none":
        partitions = {columns[one["name"]].names[0]: one["type"] for one in fields}
    names = {column.names[0]: name for name, column in columns.items()}
    held = stamp_deletions([_find_deletion(root, action, options) for action in actions])
    files = []
    for action, deletion in zip(actions, held, strict=True):
        path = join_path(root, unquote(action["path"]))
        values = action.get("partitionValues") or {}
        refused = {names[stored]: _ZONED for stored in values if partitions[stored] == "timestamp"}
        keys = tuple(
            FolderKey(names[stored], text or None, redact_url(path.rpartition("/")[0]))
            for stored, text in values.items()
            if names[stored] not in refused
        )
        vectors = (deletion,) if action.get("deletionVector") else ()
        entry = TableEntry(columns, vectors, action["size"], refused)
        location = make_location(path, options)
        files.append(FoundFile(redact_url(path), keys, location, Format.PARQUET, entry))
    return sorted(files, key=lambda file: file.location.path)


def _find_stored(described: Mapping[str, Any], mode: str) -> StoredColumn:
    """Return where files hold a column, by the mode of the table's column mapping."""
    if mode == "none":
        return StoredColumn((described["name"],))
    physical = described["metadata"]["delta.columnMapping.physicalName"]
    number = described["metadata"]["delta.columnMapping.id"] if mode == "id" else None
    return StoredColumn((physical,), number)


def _find_deletion(root: str, action: Mapping[str, Any], options: Options | None) -> Deletion:
    """Return which rows a deletion vector deletes; an empty one if there is none."""
    vector = action.get("deletionVector")
    none = Deletion(DeletionKind.BITMAP)
    if not vector:
        return none
    kind, told = vector["storageType"], vector["pathOrInlineDv"]
    count = vector["cardinality"]
    if kind == "i":
        content = decode_z85(told)[: vector["sizeInBytes"]]
        stamp = hashlib.sha256(content).hexdigest()
        return replace(none, content=content, stamp=stamp, count=count)
    if kind == "u":
        folder, name = told[:-_UUID_CHARACTERS], told[-_UUID_CHARACTERS:]
        file = f"deletion_vector_{uuid.UUID(bytes=decode_z85(name))}.bin"
        told = join_path(root, f"{folder}/{file}" if folder else file)
    elif kind == "p":
        told = unquote(told)
    else:
        raise ValueError("unknown kind of deletion vector")
    return replace(
        none,
        location=make_location(told, options),
        start=vector.get("offset") or 0,
        length=vector["sizeInBytes"] + _FRAME_BYTES,
        count=count,
    )


def decode_z85(text: str) -> bytes:
    """Return the bytes that a text of ZeroMQ's base 85 spells.

    Raises:
        ValueError: The text is none.
    """
    if len(text) % 5:
        raise ValueError("no base 85")
    words = []
    for start in range(0, len(text), 5):
        word = 0
        for character in text[start : start + 5]:
            word = word * 85 + _Z85.index(character)
        words.append(struct.pack(">I", word))
    return b"".join(words)
