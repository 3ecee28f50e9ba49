"""Snapshot: the files as they stand before any row is read, checked against the domain."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from fitplug.domain import Attribute
from fitplug.errors import DataError, nearest
from fitplug_dask.codes import code_of_text, expected, kind, mismatch
from fitplug_dask.sources import Found, Key

_READERS = 16
_DICTIONARY_BYTES = 2**20
_INDEX_BYTES = 2.25  # 18 bits: more entries than a dictionary of 1 MB has


@dataclass(frozen=True)
class File:
    """A checked file.

    shown: its path as given, for messages; path: absolute, for readers; rows: rows of each row
    group by the footer; columns: the attributes its columns hold; dictionaries: those among them
    to read as dictionaries; keys: (attribute, code) of those its folders hold.
    """

    shown: str
    path: str
    size: int
    mtime_ns: int
    rows: tuple[int, ...]
    columns: tuple[str, ...]
    dictionaries: tuple[str, ...]
    keys: tuple[tuple[str, int], ...]

    def unchanged(self) -> bool:
        """Whether the file still has the size and time of the snapshot. Raises OSError."""
        now = os.stat(self.path)  # noqa: PTH116 (a plain path travels to workers)
        return (now.st_size, now.st_mtime_ns) == (self.size, self.mtime_ns)


def take_snapshot(found: Sequence[Found], attributes: Mapping[str, Attribute]) -> tuple[File, ...]:
    """Footers and schemas of all files; no row is read.

    attributes: those that will be counted, each a column or a folder key of every file. Raises
    DataError naming the first file that is missing, damaged, or of another schema.
    """
    with ThreadPoolExecutor(_READERS) as readers:
        return tuple(readers.map(lambda file: _file(file, attributes), found))


def _file(found: Found, attributes: Mapping[str, Attribute]) -> File:
    path = Path(found.path).absolute()
    size, mtime_ns, metadata, schema = _footer(found.path, path)
    columns, dictionaries, codes = [], [], []
    for name, attribute in attributes.items():
        key = _key(found, name, schema.names)
        if key:
            codes.append((name, _key_code(key, attribute)))
            continue
        arrow_type = _column_type(found, name, attribute, schema)
        columns.append(name)
        if kind(arrow_type) == "strings" and _is_dictionary(metadata, name):
            dictionaries.append(name)
    return File(
        shown=found.path,
        path=str(path),
        size=size,
        mtime_ns=mtime_ns,
        rows=_rows(metadata),
        columns=tuple(columns),
        dictionaries=tuple(dictionaries),
        keys=tuple(codes),
    )


def _key(found: Found, name: str, columns: Sequence[str]) -> Key | None:
    keys = [key for key in found.keys if key.name == name]
    if keys and name in columns:
        raise DataError(
            f"{found.path}: {name!r} is both a column and a folder name on the path; "
            "rename one of them"
        )
    if len(keys) > 1:
        raise DataError(f"{found.path}: the path has two folders that set {name!r}; keep one")
    return keys[0] if keys else None


def _key_code(key: Key, attribute: Attribute) -> int:
    code = code_of_text(attribute, key.value)
    if code is None:
        raise DataError(
            f"folder {key.folder}: the domain expects {expected(attribute)} for {key.name!r}, "
            "which the folder's name does not spell; rename the folder or change the domain"
        )
    return code


def _column_type(found: Found, name: str, attribute: Attribute, schema: Any) -> Any:
    names: list[str] = schema.names
    if names.count(name) > 1:
        raise DataError(f"{found.path} has two columns {name!r}; rename or drop one")
    if name not in names:
        known = {*names, *(key.name for key in found.keys)}
        raise DataError(f"{found.path} has no column {name!r}; {nearest(name, sorted(known))}")
    arrow_type = schema.field(name).type
    if why := mismatch(attribute, arrow_type):
        raise DataError(
            f"{found.path}: column {name!r} {why}; convert the column or change the domain"
        )
    return arrow_type


def _is_dictionary(metadata: Any, name: str) -> bool:
    """Whether a column of strings is stored with a dictionary all through.

    Writers give up on a dictionary of about 1 MB and go on with plain values. To read those as a
    dictionary would repeat, with every batch, all distinct values so far.
    """
    try:
        at = [metadata.schema.column(i).path for i in range(metadata.num_columns)].index(name)
        return all(
            chunk.has_dictionary_page
            and chunk.total_uncompressed_size <= _DICTIONARY_BYTES + _INDEX_BYTES * chunk.num_values
            for chunk in (
                metadata.row_group(group).column(at) for group in range(metadata.num_row_groups)
            )
        )
    except Exception:
        # Only the speed depends on it; what is wrong with the footer shows when rows are read.
        return False


def _rows(metadata: Any) -> tuple[int, ...]:
    return tuple(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))


def _footer(shown: str, path: Path) -> tuple[int, int, Any, Any]:
    fault = None
    try:
        state = path.stat()
        with pq.ParquetFile(path) as parquet:
            metadata, schema = parquet.metadata, parquet.schema_arrow
        rows = _rows(metadata)
        if sum(rows) != metadata.num_rows or min(rows, default=0) < 0:
            fault = "has a damaged footer; write it again"
    except Exception:
        # Raised below, outside this block: what pyarrow says may quote the file's content.
        fault = _unreadable(path)
    if fault:
        raise DataError(f"{shown} {fault}")
    return state.st_size, state.st_mtime_ns, metadata, schema


def _unreadable(path: Path) -> str:
    """Why no footer can be read, told by the file's size and its first and last four bytes."""
    try:
        with path.open("rb") as file:
            head = file.read(4)
            file.seek(0, os.SEEK_END)
            size = file.tell()
            file.seek(max(0, size - 4))
            tail = file.read(4)
    except FileNotFoundError:
        return "does not exist; check the path"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if not size:
        return "is empty (0 bytes); write it again or remove it"
    if head == b"PARE" or tail == b"PARE":
        return "is encrypted; store it decrypted"
    if head != b"PAR1":
        return "is not a Parquet file; convert it or remove it"
    if tail != b"PAR1":
        return "is truncated; write it again"
    return "has a damaged footer; write it again"
