"""Table entries: what the metadata of a table say of one of its files.

A table of a lake, or a data set, knows more of a file than the file itself: under which names its
columns are stored, which values all its rows share, and which of its rows are deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from fitplug_dask.sources.locations import Location


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


class DeletionKind(Enum):
    """How the deleted rows of a file are told."""

    BITMAP = "a bitmap of positions"
    POSITIONS = "a Parquet file of files and positions"
    EQUAL_VALUES = "a Parquet file of values, whose rows are deleted wherever they are equal"


@dataclass(frozen=True)
class Deletion:
    """Rows of one file that are deleted, as a file beside it tells.

    Attributes:
        kind: How they are told.
        location: The file that tells; None if `content` holds it.
        size: The size of that file in bytes when the metadata were read.
        stamp: The stamp of that file then, or what distinguishes `content` from others. A
            checkpoint holds it.
        content: The bitmap itself, if the metadata hold it.
        start: Where in the file the bitmap begins.
        length: The bytes of the bitmap.
        count: How many rows the bitmap deletes, None if the metadata do not say.
        file_path: How a file of positions names the file whose rows are deleted.
        columns: For equal values: the columns of the table that are compared, by their names in
            the file of values.
    """

    kind: DeletionKind
    location: Location | None = None
    size: int = 0
    stamp: str = ""
    content: bytes = field(default=b"", repr=False)
    start: int = 0
    length: int = 0
    count: int | None = None
    file_path: str = ""
    columns: Mapping[str, StoredColumn] = field(default_factory=dict)


@dataclass(frozen=True)
class TableEntry:
    """What the metadata of a table say of one of its files.

    Attributes:
        columns: All columns of the table, by name.
        deletions: Which rows are deleted.
        size: The bytes of the file, None if the metadata do not say.
        refused: Why a column cannot be counted, by its name.
    """

    columns: Mapping[str, StoredColumn]
    deletions: tuple[Deletion, ...] = ()
    size: int | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
