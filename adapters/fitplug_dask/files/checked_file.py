"""Checked file: one file of the snapshot, its header, and how its batches are adapted.

Most files need no adaptation. But a file of a lakehouse table may have a column under another name,
or deleted rows; a column of integers may be stored as decimals; and the value given by a folder
name may also be stored in each row.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from fitplug.domain import parse_day
from fitplug_dask.encoding import (
    classify_person_type,
    compact_batch,
    convert_persons,
    convert_to_days,
    convert_values,
    explain_person_mismatch,
    explain_value_mismatch,
    holds_integers_only,
    is_text,
    parse_text,
    spell_persons,
)
from fitplug_dask.sources import Format, State, StoredColumn, find_remaining, unpack_rows

_FIELD_ID = b"PARQUET:field_id"
_ROW_BYTES = 32  # a guess, for files that do not say how many rows they hold


@dataclass(frozen=True)
class Header:
    """The schema and the row groups of a file.

    A row group is a part that can be read on its own: a row group of Parquet, a record batch of an
    Arrow file, an entire Arrow stream, or an entire CSV file.

    Attributes:
        schema: The names and Arrow types of all columns. All columns of CSV are binary, because the
            domain decides the type of their text.
        rows: The number of rows of each row group; guesses of at least 1 unless `exact`.
        exact: Whether `rows` are exact.
        records: The number of rows of the file; None if it is known only after reading the file.
        footer: The footer of a Parquet file in a store, if it travels with the tasks.
        unchecked: Whether the types of the columns are known only when rows are read. The schema
            then has only the names, or is None if these are not known either.
        forms: By CSV column, the forms that its first values share and that some attributes cannot
            read; see `find_forms`.
    """

    schema: Any
    rows: tuple[int, ...]
    exact: bool
    records: int | None
    footer: bytes | None = None
    unchecked: bool = False
    forms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class ColumnRules:
    """The caller's rules for reading columns, beyond what their types determine.

    Attributes:
        zone: The time zone that determines the day of times with a zone; None refuses them.
        missing: For columns that a file may lack, the value that all of its rows then have; None
            is null.
        columns: By attribute, the name of its column in the files, where the two differ.
    """

    zone: str | None = None
    missing: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)


PLAIN_RULES = ColumnRules()


class DamagedFileError(Exception):
    """A fault of a file. The message quotes nothing of the file's content."""


def guess_rows(size: int) -> int:
    """Guess the number of rows of a file of `size` bytes, at least 1.

    Partitions and progress use the guess where no footer gives the number.
    """
    return max(1, size // _ROW_BYTES)


def find_stored_column(schema: Any, column: StoredColumn) -> str | None:
    """Return the name of a column in a file, or None if the file lacks it.

    Args:
        schema: The Arrow schema of the file.
        column: The column as the table describes it. If the file numbers its columns, the number
            decides, because columns may be renamed.
    """
    if column.field_id is not None and not lacks_numbers(schema):
        for field in schema:
            if _read_field_id(field) == column.field_id:
                name: str = field.name
                return name
        return None
    return next((name for name in column.names if name in schema.names), None)


def lacks_numbers(schema: Any) -> bool:
    """Return whether none of a file's columns has a number."""
    return all(_read_field_id(field) is None for field in schema)


def _read_field_id(field: Any) -> int | None:
    """Return the number that the footer gives a column, or None."""
    field_id = (field.metadata or {}).get(_FIELD_ID)
    return None if field_id is None or not field_id.lstrip(b"-").isdigit() else int(field_id)


Adapt: TypeAlias = Callable[[Any, int], Any]
"""Maps a batch (n,) and the position of its first row in the file to the batch to count."""

Batches: TypeAlias = Iterator[Any]
"""Arrow record batches that hold at least the columns wanted."""

ReadRowGroup: TypeAlias = Callable[[int, int], Batches]
"""Maps the number of a row group and the largest number of rows of a batch to the batches."""


@dataclass(frozen=True)
class RepeatedKey:
    """A key of a folder that the files also hold as a column.

    The folder's value applies to all rows. Rows whose own value differs contradict it and are left
    out of all tables, without an error, because no error may reveal that there are such rows.

    Attributes:
        column: The name of the column in the file.
        value_type: The type of the values of the attribute or the filter.
        text: The value in the folder's name; None is null.
    """

    column: str
    value_type: type
    text: str | None


@dataclass(frozen=True)
class Adaptation:
    """How the batches of one file become the columns that are counted.

    Attributes:
        stored: By column to count, its name in the file.
        value_types: By converted column, the type of the values that it becomes.
        persons: By converted column of person identifiers, what it holds (see
            `classify_person_type`); "" if it may hold text or integers.
        weight: The column of weights, if its type is unchecked.
        zone: The time zone that determines the day of times with a zone.
        repeated: The keys of folders that the file also holds as columns.
        filled: By column that the file lacks, the integer that all rows have instead.
        deleted: Which rows are deleted, for `unpack_rows`; None if there are none. CONFIDENTIAL.
        unchecked: Whether the types of the columns are known only when they are read.
        missing: If so: by column that may be missing, the value that all rows have instead.
    """

    stored: Mapping[str, str]
    value_types: Mapping[str, type] = field(default_factory=dict)
    persons: Mapping[str, str] = field(default_factory=dict)
    weight: str | None = None
    zone: str | None = None
    repeated: tuple[RepeatedKey, ...] = ()
    filled: Mapping[str, int | None] = field(default_factory=dict)
    deleted: bytes | None = field(default=None, repr=False)
    unchecked: bool = False
    missing: Mapping[str, Any] = field(default_factory=dict)

    @property
    def read_columns(self) -> tuple[str, ...]:
        """The columns to read, by their names in the file."""
        names = [*self.stored.values(), *(key.column for key in self.repeated)]
        return tuple(dict.fromkeys(names))

    def load(self) -> Adapt:
        """Return the function that adapts a batch."""
        bits = None if self.deleted is None else unpack_rows(self.deleted)
        return lambda batch, first: self._adapt(batch, first, bits)

    def _adapt(self, batch: Any, first: int, bits: Any) -> Any:
        conditions = [] if bits is None else [find_remaining(bits, first, batch.num_rows)]
        conditions += [
            _find_agreeing(batch.column(key.column), key, self.zone) for key in self.repeated
        ]
        masks = [mask for mask in conditions if mask is not None]
        if masks:
            batch = batch.filter(pa.array(np.logical_and.reduce(masks)))
        columns = {name: self._read_column(batch, name) for name in self.stored}
        for name, value in self.filled.items():
            columns[name] = pa.repeat(pa.scalar(value, pa.int64()), batch.num_rows)
        if not columns:
            return pa.RecordBatch.from_arrays([pa.nulls(batch.num_rows)], names=[""])
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _read_column(self, batch: Any, name: str) -> Any:
        stored = self.stored[name]
        if self.unchecked and stored not in batch.schema.names:
            return self._fill_column(name, batch.num_rows)
        column = batch.column(stored)
        if name in self.persons:
            return self._read_persons(name, column, self.persons[name])
        value_type = self.value_types.get(name)
        if value_type is None:
            return column
        if self.unchecked:
            why = explain_value_mismatch(value_type, column.type, "the count expects", self.zone)
            if name == self.weight and not (why or holds_integers_only(column.type)):
                why = f"has the type {column.type}, but weights are integers"
            if why:
                raise DamagedFileError(f"cannot be counted: column {name!r} {why}")
        return convert_values(column, value_type, self.zone)

    def _read_persons(self, name: str, column: Any, kind: str) -> Any:
        if not self.unchecked:
            return convert_persons(column)
        why = explain_person_mismatch(column.type, floats=True)
        if not why and kind == "":
            return spell_persons(column)
        read = convert_persons(convert_values(column, int))
        if why or classify_person_type(read.type) not in (kind, "null"):
            why = why or f"has the type {column.type}, but the table declares {kind}"
            raise DamagedFileError(f"cannot be counted: column {name!r} {why}")
        return read

    def _fill_column(self, name: str, rows: int) -> Any:
        """Return the values (rows,) that stand for a missing column."""
        if name not in self.missing:
            raise DamagedFileError(
                f"has no column {name!r}. Check the spelling, or set a value in 'missing'."
            )
        return pa.repeat(pa.scalar(self.missing[name]), rows)


def _find_agreeing(column: Any, key: RepeatedKey, zone: str | None) -> Any:
    """Return whether each row (n,) of a repeated key agrees with the folder."""
    column = convert_values(column, key.value_type, zone)
    if key.text is None:
        return column.is_null().to_numpy(zero_copy_only=False)
    if pt.is_dictionary(column.type):
        column = column.dictionary_decode()
    value = parse_text(key.value_type, key.text)
    if is_text(column.type) and value is not None and key.value_type is not str:
        # The text of CSV files may write the same value in another way.
        texts = column.cast(pa.large_binary()).to_pylist()
        return np.array([t is not None and _parse(key.value_type, t) == value for t in texts], bool)
    if is_text(column.type):
        column = column.cast(pa.large_binary())
        wanted = pa.scalar(key.text.encode(), pa.large_binary())
    elif key.value_type is datetime.date:
        column = convert_to_days(column)
        wanted = pa.scalar(parse_day(key.text), pa.int64())
    else:
        wanted = _make_scalar(value, column.type)
        if wanted is None:
            return np.zeros(len(column), dtype=bool)
    return pc.equal(column, wanted).fill_null(False).to_numpy(zero_copy_only=False)


def _parse(value_type: type, raw: bytes) -> Any:
    return parse_text(value_type, raw.decode("utf-8", "surrogateescape"))


def _make_scalar(value: Any, arrow_type: Any) -> Any:
    """Return the value as a scalar of a type, or None if the type cannot hold it."""
    try:
        return pa.scalar(value, arrow_type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None


@dataclass(frozen=True)
class CheckedFile:
    """A file in the state of the snapshot.

    Attributes:
        display_path: The path as the user gave it, for messages.
        location: Where the file is opened; a Location, unless another library reads it.
        format: The format of the file.
        size: The size in bytes.
        stamp: The version of the content, as the file system or the store gives it.
        rows: The number of rows of each row group: from the footer if `exact`, otherwise guesses
            of at least 1.
        exact: Whether `rows` are exact.
        columns: The columns to read: those of attributes, filters, weights and persons.
        dictionaries: The columns among them to read as dictionaries.
        folder_codes: Attributes and the codes that the file's folders give them.
        records: The number of rows of the file; None if it is known only after reading the file.
        person_types: What each column of person identifiers holds; None if that is known only when
            it is read.
        left_out: Whether, by its folders, no row of the file passes the filters.
        adaptation: How its batches become the columns to count; None if they need no adaptation.
        footer: The footer of a Parquet file in a store; None if tasks read it again. CONFIDENTIAL.
    """

    display_path: str
    location: Any
    format: Format
    size: int
    stamp: str
    rows: tuple[int, ...] = field(repr=False)
    exact: bool
    records: int | None = field(repr=False)
    columns: tuple[str, ...]
    dictionaries: tuple[str, ...]
    folder_codes: tuple[tuple[str, int], ...]
    person_types: tuple[tuple[str, str | None], ...] = ()
    left_out: bool = False
    adaptation: Adaptation | None = None
    footer: bytes | None = field(default=None, repr=False)

    @property
    def state(self) -> State:
        """The size and the stamp."""
        return self.size, self.stamp

    def open(self, *, sequential: bool) -> Any:
        """Open the file's bytes as `Location.open` does, in the state of the snapshot."""
        return self.location.open(sequential=sequential, state=self.state)

    def is_unchanged(self) -> bool:
        """Return whether the file is still the one of the snapshot.

        Raises:
            Exception: Any error of the file system or the client of the store.
        """
        return self.location.read_state() == self.state

    def name_stored(self) -> CheckedFile:
        """Return the same file with the names that its columns have in the file."""
        if self.adaptation is None:
            return self
        stored = self.adaptation.stored
        columns = self.adaptation.read_columns
        names = tuple(stored[name] for name in self.dictionaries)
        return replace(self, columns=columns, dictionaries=names)

    def load_adaptation(self) -> Adapt | None:
        """Return the function that turns each batch that is read into the columns to count.

        Returns:
            A function from any batch to a compact one. None if the batches of a Parquet file need
            no adaptation: they are compacted when they are joined.
        """
        if self.adaptation is None:
            compact = self.format is not Format.PARQUET
            return (lambda batch, first: compact_batch(batch)) if compact else None
        adapt = self.adaptation.load()
        return lambda batch, first: adapt(compact_batch(batch), first)
