"""Deletions: which rows of a file are deleted, as files beside it tell.

What PyArrow raises may quote values: callers drop it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from fitplug_dask.files.header import DamagedFileError
from fitplug_dask.files.roaring_bitmaps import read_framed_positions, read_positions
from fitplug_dask.files.stored_columns import find_stored_column
from fitplug_dask.sources import Deletion, DeletionKind, StoreError

Kept = npt.NDArray[np.bool_]

_FILE_PATH, _POSITION = "file_path", "pos"
_CHECK = "check the table"


class DeletedRows(Protocol):
    """The rows of one file that are deleted."""

    def find_kept(self, batch: Any, first: int) -> Kept | None:
        """Find the rows that are not deleted.

        Args:
            batch: An Arrow batch (n,) with the columns by which rows are deleted.
            first: The position in the file of its first row.

        Returns:
            Whether each row is kept (n,); None if all are.
        """


@dataclass(frozen=True)
class PlannedDeletion:
    """A deletion, and where the file whose rows it deletes holds what is compared.

    Attributes:
        deletion: The deletion.
        compared: For equal values: each column of the deletion, and its name in the file whose
            rows are deleted; None if that file lacks it, so that its values are null.
    """

    deletion: Deletion
    compared: tuple[tuple[str, str | None], ...] = ()


def load_deleted_rows(planned: PlannedDeletion) -> DeletedRows:
    """Read which rows are deleted.

    Raises:
        DamagedFileError: What tells is damaged or gone, or changed since the table was looked at.
        StoreError: The store does not send it.
    """
    try:
        return _load(planned)
    except (DamagedFileError, StoreError, MemoryError):
        raise
    except FileNotFoundError:
        fault = "is gone"
    except Exception:  # what a reader says may quote values
        fault = "is damaged"
    raise DamagedFileError(f"has deleted rows, and the file that tells which {fault}; {_CHECK}")


def _load(planned: PlannedDeletion) -> DeletedRows:
    deletion = planned.deletion
    location = deletion.location
    if location is None:
        return _DeletedPositions(_check_count(read_positions(deletion.content), deletion))
    state = deletion.size, deletion.stamp
    if location.read_state() != state:
        raise DamagedFileError(
            "has deleted rows, and the file that tells which changed while it was counted; count "
            "again"
        )
    with closing(location.open(sequential=False, state=state)) as file:
        if deletion.kind is DeletionKind.EQUAL_VALUES:
            return _DeletedValues.read(file, planned)
        if deletion.kind is DeletionKind.POSITIONS:
            return _DeletedPositions(_read_position_file(file, deletion.file_path))
        file.seek(deletion.start)
        positions = read_framed_positions(file.read(deletion.length))
        return _DeletedPositions(_check_count(positions, deletion))


def _read_position_file(file: Any, file_path: str) -> npt.NDArray[np.int64]:
    """Return the positions (n,) that a file of positions tells of one file."""
    found = [np.zeros(0, dtype=np.int64)]
    for batch in _read_checked(file, [_FILE_PATH, _POSITION]):
        of_file = pc.equal(batch.column(_FILE_PATH), file_path)
        held = batch.column(_POSITION).filter(of_file).cast(pa.int64())
        found.append(held.to_numpy(zero_copy_only=False))
    return np.unique(np.concatenate(found))


def _read_checked(file: Any, columns: Sequence[str]) -> Iterator[Any]:
    """Yield the batches of a Parquet file.

    Raises:
        ValueError: The file lacks a column, or does not hold as many rows as its footer says.
    """
    file.seek(0)
    rows = 0
    with pq.ParquetFile(file, page_checksum_verification=True) as parquet:
        if any(parquet.schema_arrow.names.count(name) != 1 for name in columns):
            raise ValueError("the file has not each column once")
        for batch in parquet.iter_batches(columns=list(columns), use_threads=False):
            rows += batch.num_rows
            yield batch
        if rows != parquet.metadata.num_rows:
            raise ValueError("other rows than the footer says")


def _check_count(positions: npt.NDArray[np.int64], deletion: Deletion) -> npt.NDArray[np.int64]:
    """Return the positions. Raise ValueError if they are not as many as the metadata say."""
    if deletion.count is not None and len(positions) != deletion.count:
        raise ValueError("the bitmap has another number of rows")
    return positions


class _DeletedPositions:
    """Rows that are deleted by their positions in the file."""

    def __init__(self, positions: npt.NDArray[np.int64]) -> None:
        self._positions = positions  # sorted, each once

    def find_kept(self, batch: Any, first: int) -> Kept | None:
        begin, end = np.searchsorted(self._positions, [first, first + batch.num_rows])
        if begin == end:
            return None
        kept = np.ones(batch.num_rows, dtype=bool)
        kept[self._positions[begin:end] - first] = False
        return kept


class _DeletedValues:
    """Rows that are deleted because they hold the same values as a row of a file of values.

    Null equals null there.
    """

    def __init__(self, names: Sequence[str | None], columns: Sequence[Any]) -> None:
        """Number the values of each column, so that rows are compared by numbers.

        Args:
            names: The columns of the file whose rows are deleted; None for one that it lacks.
            columns: The values (d,) of each column in the file of values.
        """
        self._names = names
        self._values = [_unify(column).unique() for column in columns]
        numbers = [
            _number(_unify(column), values)
            for column, values in zip(columns, self._values, strict=True)
        ]
        self._deleted = set(zip(*(n.tolist() for n in numbers), strict=True))

    @classmethod
    def read(cls, file: Any, planned: PlannedDeletion) -> _DeletedValues:
        schema = pq.read_schema(file)
        stored = {
            name: find_stored_column(schema, column)
            for name, column in planned.deletion.columns.items()
        }
        if None in stored.values():
            raise ValueError("a column of the deleted values is missing")
        names = [str(s) for s in stored.values()]
        table = pa.Table.from_batches(
            list(_read_checked(file, names)), pa.schema([schema.field(name) for name in names])
        )
        columns = [table.column(str(stored[name])).combine_chunks() for name, _ in planned.compared]
        return cls([name for _, name in planned.compared], columns)

    def find_kept(self, batch: Any, first: int) -> Kept | None:
        numbers = []
        for name, values in zip(self._names, self._values, strict=True):
            if name is None:
                column = pa.nulls(batch.num_rows, values.type)
            else:
                column = _unify(batch.column(name))
            numbers.append(_number(column, values))
        possible = np.logical_and.reduce([n >= 0 for n in numbers])
        if not possible.any():
            return None
        kept = np.ones(batch.num_rows, dtype=bool)
        rows = np.flatnonzero(possible)
        held = zip(*(n[rows].tolist() for n in numbers), strict=True)
        kept[rows] = [row not in self._deleted for row in held]
        return kept


def _number(column: Any, values: Any) -> npt.NDArray[np.int64]:
    """Return the position (n,) of each value among `values`, -1 if it is not there."""
    if column.type != values.type:
        raise ValueError("the deleted values have another type than the column")
    return pc.index_in(column, values).cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)


def _unify(column: Any) -> Any:
    """Return a column in the widest type of its kind, as files of one table may differ in it."""
    if pt.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pt.is_signed_integer(column.type):
        return column.cast(pa.int64())
    if pt.is_floating(column.type):
        return column.cast(pa.float64())
    if pt.is_decimal(column.type):
        return column.cast(pa.decimal128(38, column.type.scale))
    if pt.is_timestamp(column.type) and column.type.unit == "ms":
        return column.cast(pa.timestamp("us", column.type.tz))
    for wide, kinds in _WIDE.items():
        if any(test(column.type) for test in kinds):
            return column.cast(wide)
    return column


_WIDE: dict[Any, tuple[Any, ...]] = {
    pa.large_string(): (pt.is_string, pt.is_large_string, pt.is_string_view),
    pa.large_binary(): (pt.is_binary, pt.is_large_binary, pt.is_binary_view),
}
