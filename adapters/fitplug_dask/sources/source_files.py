"""Source files: the files of a source, and what follows from their names, folders or tables.

The suffix of a file gives its format. Some names forbid reading a folder as files: the files of a
lakehouse table also contain deleted or replaced rows, and only its metadata tell which. Other names
seem to belong to files of rows that cannot be read: if these were ignored silently, they would be
missing from the counts.

A lakehouse table, or a data set, knows more about a file than the file itself: under which names
its columns are stored, which values all its rows share, and which of its rows are deleted.
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

from fitplug.errors import DataError
from fitplug.files import is_url


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
"""Formats whose columns have no type. The domain decides how their text is read."""

LIBRARY_FORMATS = (Format.STREAM, Format.FRAGMENT, Format.DELAYED)
"""Formats that other libraries read, so that fitplug opens no file itself."""

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
"""Files and folders whose names begin with these are ignored: they contain no rows."""


def infer_format(path: str) -> Format:
    """Infer the format from the suffix of a file name; without a known suffix it is Parquet."""
    for suffix, known in _FORMAT_OF_SUFFIX.items():
        if path.lower().endswith(suffix):
            return known
    return Format.PARQUET


_WITHOUT_ROWS = ("README", "LICENSE", "LICENCE", "NOTICE", "CHANGELOG", "COPYING", "MANIFEST")
"""Names without a suffix of files that usually contain no rows."""

_STRAY_SUFFIXES = (
    *(".pq", ".pqt", ".parquet.gz", ".parquet.snappy", ".snappy", ".gz.parq", ".orc", ".avro"),
    *(".tsv", ".psv", ".tab", ".dat", ".csv.bz2", ".csv.xz", ".csv.zst", ".csv.zip", ".json"),
    *(".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz", ".arrow.gz", ".xlsx", ".xls"),
    *(".sas7bdat", ".dta", ".sav", ".rds", ".h5", ".hdf5", ".sqlite", ".duckdb"),
)
"""Suffixes of files that usually contain rows but are not supported."""

_DELTA, _HUDI, _ICEBERG = "_delta_log", ".hoodie", "metadata"
_ICEBERG_FILE = ".metadata.json"

_NAME_IT = {
    "a Delta table": "Give the table as fp.DeltaTable(path).",
    "an Iceberg table": "Give the table as fp.IcebergTable(path of its file *.metadata.json).",
    "a Hudi table": "fitplug does not support Hudi. Write a copy of the table as plain Parquet.",
}


def describe_lake(kind: str) -> str:
    """Explain why a lakehouse table is not read as a folder of files, with advice."""
    return f"{kind}. {_NAME_IT[kind]}"


def check_is_lake(path: str, kind: str) -> None:
    """Raise DataError if the path of a lakehouse table is one local file.

    Args:
        path: The path or URL.
        kind: "delta" or "iceberg", as in a spec.
    """
    if not is_url(path) and Path(path).is_file():
        raise DataError(
            f"{path} is a file, but {kind.title()} tables are folders. Remove table = {kind!r} (in "
            f"Python, {kind.title()}Table)."
        )


def find_local_lake(folder: str | Path, names: Collection[str]) -> str | None:
    """Return which kind of lakehouse table a local folder is, or None.

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
    """Find the innermost lakehouse table at or above a local folder, and its kind; or None."""
    inner = Path(folder).absolute()
    for above in (inner, *inner.parents):
        marks = [name for name in (_DELTA, _HUDI, _ICEBERG) if (above / name).is_dir()]
        if kind := find_local_lake(above, marks):
            return above, kind
    return None


def find_stored_lake(inside: Iterable[str]) -> str | None:
    """Return which kind of lakehouse table is in a folder of a store, or None.

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
    """Return whether files and folders of this name are ignored."""
    return name.startswith(IGNORED_PREFIXES)


def is_stray(path: str) -> bool:
    """Return whether a file seems to contain rows but has no supported suffix.

    Its suffix has other letter case, belongs to another format, or is missing.
    """
    name = posixpath.basename(path)
    if name.endswith(SUFFIXES) or is_ignored(name):
        return False
    if "." not in name:
        return name.upper() not in _WITHOUT_ROWS
    return name.lower().endswith((*SUFFIXES, *_STRAY_SUFFIXES))


def describe_stray(path: str) -> str:
    """Return a message about a stray file, with advice."""
    return f"{path} must end in one of {', '.join(SUFFIXES)}. Rename the file, or move it away."


def names_suffix(pattern: str, path: str) -> bool:
    """Return whether a pattern asks for a file explicitly, whatever its suffix is.

    Its last part must give the suffix of the file, like `*.pq`, or, for a file without a suffix,
    some letters of the name, like `part-*`.
    """
    wanted, name = posixpath.basename(pattern.rstrip("/")), posixpath.basename(path)
    suffix = wanted.rpartition(".")[2] if "." in wanted else ""
    if suffix and not set(suffix) & set("*?[]"):
        return name.endswith(f".{suffix}")
    return "." not in name and bool(wanted.strip("*"))


Rows = npt.NDArray[np.bool_]


class StoredColumn(NamedTuple):
    """How to find a column of a table in a file.

    Attributes:
        names: The names that the column may have; the file has at most one of them.
        field_id: The number of the column in the file's footer; if given, it alone decides.
        shared: If the file lacks the column, the text of the value that all rows have; empty for
            null.
        absent: Why a file without the column cannot be read, if it cannot.
    """

    names: tuple[str, ...]
    field_id: int | None = None
    shared: tuple[str | None, ...] = ()
    absent: str | None = None


def pack_rows(deleted: Rows) -> bytes:
    """Pack the deleted rows (n,) of a file with at least n rows, one bit each, to travel with it.

    Because delete files are not read again, changes to the table meanwhile cannot affect the count.
    """
    return zlib.compress(np.packbits(deleted, bitorder="little").tobytes(), 1)


def unpack_rows(packed: bytes) -> npt.NDArray[np.uint8]:
    """Return the bits of deleted rows, eight per element, for `find_remaining`."""
    return np.frombuffer(zlib.decompress(packed), dtype=np.uint8)


def find_remaining(bits: npt.NDArray[np.uint8], first: int, rows: int) -> Rows | None:
    """Return whether each of n consecutive rows remains (n,); None if all of them remain.

    Args:
        bits: The bits from `unpack_rows`.
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
    """The entry of a file in the metadata of its table.

    Attributes:
        columns: All columns of the table, by name.
        deleted: The deleted rows, packed by `pack_rows`; None if there are none. CONFIDENTIAL.
        size: The size of the file in bytes; None if unknown.
        refused: By column that cannot be counted, the reason.
    """

    columns: Mapping[str, StoredColumn]
    deleted: bytes | None = field(default=None, repr=False)
    size: int | None = None
    refused: Mapping[str, str] = field(default_factory=dict)


class FolderKey(NamedTuple):
    """One folder `name=value` in the path of a file.

    Attributes:
        name: The name of an attribute or of another column.
        value: The value that all rows of the file have; None is null.
        folder: The path of the folder, for messages.
    """

    name: str
    value: str | None
    folder: str


class SourceFile(NamedTuple):
    """A file, or a part of a table, of a source.

    Attributes:
        path: The path as it was given or found, without credentials.
        keys: The keys of the file's folders.
        location: Where the file is opened; a Location, unless another library reads it.
        format: The format of the file.
        entry: The entry of the file in its table's metadata; None if it belongs to no table.
    """

    path: str
    keys: tuple[FolderKey, ...]
    location: Any
    format: Format
    entry: TableEntry | None = None


def spell_value(value: Any) -> str | None:
    """Return a value as folder names write it; None is null."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return value.isoformat() if isinstance(value, datetime.date) else str(value)
