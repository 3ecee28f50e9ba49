"""Source files: the files that a source means, and what folders or a table say of each file.

A table of a lake, or a data set, knows more of a file than the file itself: under which names its
columns are stored, which values all its rows share, and which of its rows are deleted.
"""

from __future__ import annotations

import datetime
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fitplug_dask.sources.file_names import Format

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
