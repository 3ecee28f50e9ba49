"""Source files: the files that a source means, and what their names, folders or tables say of each.

A name says the format, and whether a file holds rows or forbids to read its folder: the files of a
lake's table also hold rows that are deleted or replaced, and only its metadata say which. And a
file that is passed over in silence would be missing from the counts.

A table of a lake, or a data set, knows more of a file than the file itself: under which names its
columns are stored, which values all its rows share, and which of its rows are deleted.
"""

from __future__ import annotations

import datetime
import posixpath
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


class Format(Enum):
    """How the rows of a file are stored; the value is the name of the format in messages."""

    PARQUET = "Parquet"
    ARROW = "Arrow"
    CSV = "CSV"
    CSV_GZ = "gzipped CSV"
    STREAM = "stream"
    FRAGMENT = "data set fragment"
    DELAYED = "Dask partition"


TEXT_FORMATS = (Format.CSV, Format.CSV_GZ)
"""Formats whose columns have no type. The domain says how their text is read."""

LIBRARY_FORMATS = (Format.STREAM, Format.FRAGMENT, Format.DELAYED)
"""Formats of what other libraries read, so that no path of a file is opened here."""

_FORMAT_OF_SUFFIX = {
    ".parquet": Format.PARQUET,
    ".parq": Format.PARQUET,
    ".arrow": Format.ARROW,
    ".feather": Format.ARROW,
    ".ipc": Format.ARROW,
    ".arrows": Format.ARROW,
    ".csv": Format.CSV,
    ".csv.gz": Format.CSV_GZ,
}

SUFFIXES = tuple(_FORMAT_OF_SUFFIX)
SUFFIX_LIST = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
"""The suffixes as messages list them."""

IGNORED_PREFIXES = ("_", ".")
"""Files and folders whose names begin with these hold no rows."""


def infer_format(path: str) -> Format:
    """Return the format that the suffix of a file name means.

    Files without a known suffix are read as Parquet.
    """
    for suffix, known in _FORMAT_OF_SUFFIX.items():
        if path.lower().endswith(suffix):
            return known
    return Format.PARQUET


_WITHOUT_ROWS = ("README", "LICENSE", "LICENCE", "NOTICE", "CHANGELOG", "COPYING", "MANIFEST")
"""Names without a suffix that usually hold no rows."""

_STRAY_SUFFIXES = (
    *(".pq", ".pqt", ".parquet.gz", ".parquet.snappy", ".snappy", ".gz.parq", ".orc", ".avro"),
    *(".tsv", ".psv", ".tab", ".dat", ".csv.bz2", ".csv.xz", ".csv.zst", ".csv.zip", ".json"),
    *(".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz", ".arrow.gz", ".xlsx", ".xls"),
    *(".sas7bdat", ".dta", ".sav", ".rds", ".h5", ".hdf5", ".sqlite", ".duckdb"),
)
"""Suffixes of files that usually hold rows and that are not read."""

_DELTA, _HUDI, _ICEBERG = "_delta_log", ".hoodie", "metadata"
_ICEBERG_FILE = ".metadata.json"

_NAME_IT = {
    "a Delta table": "Give the table as fp.DeltaTable(path).",
    "an Iceberg table": "Give the table as fp.IcebergTable(path of its ....metadata.json).",
    "a Hudi table": "fitplug does not support Hudi. Write a copy of the table as plain Parquet.",
}


def describe_lake(kind: str) -> str:
    """Return why a table of a lake is not read as a folder of files, and what to do."""
    return f"{kind}, whose files may also hold deleted or replaced rows. {_NAME_IT[kind]}"


def find_local_lake(folder: str | Path, names: Collection[str]) -> str | None:
    """Return which kind of lake's table a local folder is, or None.

    Args:
        folder: The folder.
        names: The names in it.
    """
    if _DELTA in names:
        return "a Delta table"
    if _HUDI in names:
        return "a Hudi table"
    if _ICEBERG in names:
        try:
            inside = [entry.name for entry in Path(folder, _ICEBERG).iterdir()]
        except OSError:
            return None
        if any(name.endswith(_ICEBERG_FILE) for name in inside):
            return "an Iceberg table"
    return None


def find_lake_above(folder: str) -> tuple[Path, str] | None:
    """Return a local folder or one above it that is a lake's table, and of which kind; or None."""
    inner = Path(folder).absolute()
    for above in (inner, *inner.parents):
        marks = [name for name in (_DELTA, _HUDI, _ICEBERG) if (above / name).is_dir()]
        if kind := find_local_lake(above, marks):
            return above, kind
    return None


def find_stored_lake(inside: Iterable[str]) -> str | None:
    """Return which kind of lake's table lies in a folder of a store, or None.

    Args:
        inside: The paths of all files at any depth below the folder.
    """
    for path in inside:
        folders = path.split("/")[:-1]
        if _DELTA in folders:
            return "a Delta table"
        if _HUDI in folders:
            return "a Hudi table"
        if folders[-1:] == [_ICEBERG] and path.endswith(_ICEBERG_FILE):
            return "an Iceberg table"
    return None


def is_ignored(name: str) -> bool:
    """Return whether a name begins as those do that hold no rows."""
    return name.startswith(IGNORED_PREFIXES)


def is_stray(path: str) -> bool:
    """Return whether a file seems to hold rows and yet has no suffix that is read.

    Its suffix is one in other letters, one of another format, or missing.
    """
    name = posixpath.basename(path)
    if name.endswith(SUFFIXES) or is_ignored(name):
        return False
    if "." not in name:
        return name.upper() not in _WITHOUT_ROWS
    return name.lower().endswith((*SUFFIXES, *_STRAY_SUFFIXES))


def describe_stray(path: str) -> str:
    """Return the sentence about a file that would be passed over, and what to do."""
    return (
        f"{path} would be ignored, because its suffix is not one of {', '.join(SUFFIXES)}. "
        "Rename it, move it away, or name the files with a glob."
    )


def names_suffix(pattern: str, path: str) -> bool:
    """Return whether the last part of a pattern spells how the name of a file ends, or begins.

    Such a pattern asks for the file whatever its suffix is: `*.pq`, or `part-*`.
    """
    wanted, name = posixpath.basename(pattern.rstrip("/")), posixpath.basename(path)
    suffix = wanted.rpartition(".")[2] if "." in wanted else ""
    if suffix and not set(suffix) & set("*?[]"):
        return name.endswith(f".{suffix}")
    return "." not in name and bool(wanted.strip("*"))


Rows = npt.NDArray[np.bool_]


class StoredColumn(NamedTuple):
    """Where a column of a table is found in a file.

    Attributes:
        names: The names that it may have in the file; one of them at most is there.
        field_id: Its number in the footer of the file, which decides alone if it is given.
        shared: If a file lacks the column, the text of the value of all its rows; null if empty.
        absent: Why a file that lacks the column cannot be read, if it cannot.
    """

    names: tuple[str, ...]
    field_id: int | None = None
    shared: tuple[str | None, ...] = ()
    absent: str | None = None


def pack_rows(deleted: Rows) -> bytes:
    """Return the deleted rows (n,) of a file with at least n rows, as they travel with the file.

    A bit stands for each row. A table that changes meanwhile cannot change the count, as its files
    of deleted rows are not read again.
    """
    return zlib.compress(np.packbits(deleted, bitorder="little").tobytes(), 1)


def unpack_rows(packed: bytes) -> npt.NDArray[np.uint8]:
    """Return the bits of deleted rows, eight in an element, for `find_remaining`."""
    return np.frombuffer(zlib.decompress(packed), dtype=np.uint8)


def find_remaining(bits: npt.NDArray[np.uint8], first: int, rows: int) -> Rows | None:
    """Return whether each of some rows (n,) is not deleted; None if none of them is.

    Args:
        bits: What `unpack_rows` returns.
        first: The position in the file of the first row.
        rows: The number n of rows.
    """
    begin = first // 8
    near = np.unpackbits(bits[begin : (first + rows + 7) // 8], bitorder="little")
    deleted = near[first - 8 * begin :][:rows]
    if not deleted.any():
        return None
    remaining = np.ones(rows, dtype=bool)
    remaining[: len(deleted)] = deleted == 0
    return remaining


@dataclass(frozen=True)
class TableEntry:
    """What the metadata of a table say of one of its files.

    Attributes:
        columns: All columns of the table, by name.
        deleted: Which rows are deleted, as `pack_rows` returns them; None if there are none.
            CONFIDENTIAL.
        size: The bytes of the file, None if the metadata do not say.
        refused: Why a column cannot be counted, by its name.
    """

    columns: Mapping[str, StoredColumn]
    deleted: bytes | None = field(default=None, repr=False)
    size: int | None = None
    refused: Mapping[str, str] = field(default_factory=dict)


class FolderKey(NamedTuple):
    """One folder `name=value` on the way to a file.

    Attributes:
        name: The name of an attribute or of another column.
        value: The value that all rows of the file have; None is null.
        folder: The path of the folder, for messages.
    """

    name: str
    value: str | None
    folder: str


class SourceFile(NamedTuple):
    """A file, or a part of a table, that a source means.

    Attributes:
        path: The path as it was given or found, without credentials.
        keys: The keys of the folders that the file lies in.
        location: Where the file is opened. It is a Location, unless another library reads it.
        format: The format of the file.
        entry: What a table says of the file, None if it belongs to no table.
    """

    path: str
    keys: tuple[FolderKey, ...]
    location: Any
    format: Format
    entry: TableEntry | None = None


def spell_value(value: Any) -> str | None:
    """Return the text of a value as names of folders spell it; None is null."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return value.isoformat() if isinstance(value, datetime.date) else str(value)
