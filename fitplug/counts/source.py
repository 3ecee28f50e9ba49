"""Sources, which name the data of a count, and previews of what a count would read.

Nothing here looks at the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from os import PathLike, fspath
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fitplug.counts.records import Where, check_weight, describe_rows, make_filters
from fitplug.counts.tables import Tables
from fitplug.errors import DomainError, InputError
from fitplug.files import redact_url


@dataclass(frozen=True, repr=False)
class DeltaTable:
    """A Delta table, whose log lists its files and rows.

        fp.count(fp.DeltaTable("lake/people", version=12), plan)

    The package `deltalake` reads the log. Deletion vectors and renamed columns are supported. A
    table that needs any other reader feature is refused. `fp.count` also takes a
    `deltalake.DeltaTable` and counts the version that it has loaded.

    Args:
        path: The folder of the table: a path or a URL.
        version: The version to count; None for the version that is the latest when counting begins.
    """

    path: str | PathLike[str]
    version: int | None = None

    def __repr__(self) -> str:
        version = "" if self.version is None else f", version={self.version}"
        return f"DeltaTable({redact_url(fspath(self.path))!r}{version})"


@dataclass(frozen=True, repr=False)
class IcebergTable:
    """An Iceberg table, whose manifests list its files and rows.

        fp.count(fp.IcebergTable("lake/people/metadata/00007-....metadata.json"), plan)

    The package `pyiceberg` reads the manifests. Position deletes, deletion vectors and renamed
    columns are supported. A table that needs any other reader feature, such as equality deletes, is
    refused. `fp.count` also takes a table that a pyiceberg catalog loads, or an unfiltered scan of
    such a table; `storage_options` then give access to the table's files.

    Args:
        path: The file of the table's metadata, `....metadata.json`: a path or a URL. The folder of
            the table also works if it contains `metadata/version-hint.text`, as for tables without
            a catalog.
        snapshot_id: The snapshot to count; None for the current snapshot.
    """

    path: str | PathLike[str]
    snapshot_id: int | None = None

    def __repr__(self) -> str:
        snapshot = "" if self.snapshot_id is None else f", snapshot_id={self.snapshot_id}"
        return f"IcebergTable({redact_url(fspath(self.path))!r}{snapshot})"


@dataclass(frozen=True, repr=False)
class DatabaseTable:
    """A database table. Ibis connects to the database, and the database counts the rows.

        fp.count(fp.DatabaseTable("postgresql://me:${PASSWORD}@host/census", "people"), plan)

    `fp.count` also takes an Ibis table or expression: `fp.count(connection.table("people"), plan)`.
    This is tested with DuckDB, SQLite, PostgreSQL and Spark, and not with the other databases of
    Ibis.

    Args:
        connection: A URL for `ibis.connect`. Each `${NAME}` in the URL is replaced with the
            environment variable NAME when counting begins. The variable's value is never shown.
        name: The name of the table, or "schema.table".
    """

    connection: str
    name: str

    def __repr__(self) -> str:
        return f"DatabaseTable({redact_url(self.connection)!r}, {self.name!r})"


@dataclass(frozen=True, repr=False)
class Source:
    """The rows to count: where they are, which of them count, and how their columns are read.

        source = fp.Source("s3://bucket/people/", person="id", where={"state": ["01", "02"]})
        tables = fp.count(source, plan)

    A path alone also works as a source: `fp.count("people/", plan)`.

    Args:
        path: A file, a folder, a glob (`data/state=*/`), or a list of these; each a local path or a
            URL of a store (`s3://bucket/people/`). In a folder, all files that end in .parquet,
            .parq, .arrow, .feather, .ipc, .arrows, .csv or .csv.gz are read, at any depth, except
            below names that start with "_" or "."; all these files must have the same format.
            Folders named `key=value` make `key` a column. CSV files must use commas and have the
            column names in the first line. In folder names and CSV files, values are text that is
            read as the type of the attribute: text that cannot be read so is outside the domain. In
            CSV files, an empty value is null, and a quoted empty value is the empty string.

            Or a `DeltaTable`, `IcebergTable` or `DatabaseTable`, or an Ibis table; a
            dask.dataframe, or delayed pandas, Polars or Arrow frames; an Arrow Dataset, Table or
            RecordBatchReader; a pandas or Polars DataFrame, a Polars LazyFrame, a DuckDB relation
            or any object with `__arrow_c_stream__`. Arrow Tables and readers, frames of pandas and
            Polars, and relations are streams that one process reads, so they cannot be counted on a
            cluster.
        where: {column: value, or values}: count only rows that have one of the given values in each
            of these columns. Rows that are filtered out do not count towards the limit on the rows
            per person. The values of a column are strings, integers, booleans or dates, all of one
            type, which decides how the column is read. Null never matches. The columns need not be
            attributes. If such a column is the key of folders (`key=value`), folders with other
            values are not read.
        weight: A column of integers, the number of people that each row stands for. Null and
            numbers below 0 count as 0, and numbers above 2^40 count as 2^40, because no value of a
            row may cause an error. One more person adds 1 to the weight of one row, so rho is the
            same as if each person had a row. Do not use a survey's sampling weights. `weight` and
            `person` cannot be combined.
        person: The column that identifies persons, or the columns that together identify them, such
            as `["household", "line"]`. At most as many rows of each person are counted as the unit
            of privacy allows; a keyed hash chooses these rows. A row is left out if it has no value
            in one of these columns.
        zone: The time zone, such as "Europe/Berlin", in which the day of a time with a time zone is
            determined. It also applies to text with an offset, such as "2020-12-31T23:30Z". Without
            `zone`, such text counts on the day that it shows, and columns of times with a time zone
            are refused.
        missing: {column: value}: for each column that some files lack, the value to use for all
            rows of these files; None is null. A file that lacks a column not listed here is
            refused.
        columns: {attribute: column}: for each attribute whose column in the data has a different
            name, the name of this column.
        storage_options: Options for access to the object stores of URLs, such as credentials. They
            are sent to the workers, and never appear in a repr, message or task name.

    Raises:
        InputError: The path is invalid, or `weight` is given with `person`.
        DomainError: A column, filter, time zone or value is invalid.
    """

    path: Any
    _: KW_ONLY
    where: Where | None = None
    weight: str | None = None
    person: str | Sequence[str] | None = None
    zone: str | None = None
    missing: Mapping[str, Any] | None = None
    columns: Mapping[str, str] | None = None
    storage_options: Mapping[str, Any] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.path, (Source, Tables)):
            raise InputError(
                f"the path of an fp.Source must name rows, not an fp.{type(self.path).__name__}"
            )
        object.__setattr__(self, "person", _read_person(self.person))
        if self.zone is not None and not _is_zone(self.zone):
            raise DomainError(
                f'zone = {self.zone!r} is not a time zone. Use a name such as "Europe/Berlin".'
            )
        filters = make_filters(self.where)
        for name in ("where", "missing", "columns", "storage_options"):
            given = getattr(self, name)
            if given is not None and not isinstance(given, Mapping):
                # The value is not quoted: it may be a secret.
                raise DomainError(f"{name} must be a mapping, not {type(given).__name__}")
            object.__setattr__(self, name, None if given is None else dict(given))
        for name, column in (self.columns or {}).items():
            if not isinstance(column, str) or not column:
                raise DomainError(
                    f"the setting 'columns' must map {name!r} to a column name, not to {column!r}"
                )
            if column in list_person_columns(self):
                raise DomainError(
                    f"column {column!r} identifies persons, so it cannot be the attribute "
                    f"{name!r}. Name another column in 'columns'."
                )
        columns = (self.columns or {}).values()
        check_weight(self.weight, filters, columns, list_person_columns(self))

    def __repr__(self) -> str:
        shown = [_describe_path(self.path)]
        for one in fields(self)[1:]:
            given = getattr(self, one.name)
            if given and one.name != "storage_options":
                shown.append(f"{one.name}={given!r}")
        return f"Source({', '.join(shown)})"


def read_source(data: Any) -> Source:
    """Return a source as it is, and anything else as the source of that path."""
    return data if isinstance(data, Source) else Source(data)


def is_in_database(source: Source) -> bool:
    """Return whether a database counts the rows: the path is a table of Ibis, or names one."""
    library = type(source.path).__module__.partition(".")[0]
    return library == "ibis" or isinstance(source.path, DatabaseTable)


def list_person_columns(source: Source) -> tuple[str, ...]:
    """List the columns that identify persons together; none if no column does."""
    person = source.person
    return () if person is None else (person,) if isinstance(person, str) else tuple(person)


def describe_source_rows(source: Source) -> str | None:
    """Describe how rows are weighted and filtered, in the words of `Tables.rows`."""
    return describe_rows(source.weight, make_filters(source.where))


def name_person(columns: Sequence[str]) -> str:
    """Name the columns that identify persons in a sentence, such as "'household' and 'line'"."""
    return " and ".join(map(repr, columns))


def _read_person(person: Any) -> str | tuple[str, ...] | None:
    """Return the column that identifies persons, or the columns, without a list around one.

    Raises:
        DomainError: A name is not a column name, or is listed twice.
    """
    if person is None:
        return None
    columns = (person,) if isinstance(person, str) else person
    if not isinstance(columns, (list, tuple)) or not columns:
        columns = ("",)
    if not all(isinstance(name, str) and name for name in columns):
        raise DomainError(f"person must be a column name or a list of column names, not {person!r}")
    if len(set(columns)) < len(columns):
        raise DomainError(f"person = {person!r} names a column twice. Name each column once.")
    return columns[0] if len(columns) == 1 else tuple(columns)


def _describe_path(path: Any) -> str:
    """Describe a path without passwords, and an object of another library only by its type."""
    if isinstance(path, (str, PathLike)):
        return repr(redact_url(fspath(path)))
    if isinstance(path, (DeltaTable, IcebergTable, DatabaseTable)):
        return repr(path)
    if isinstance(path, Sequence) and all(isinstance(one, (str, PathLike)) for one in path):
        paths = [_describe_path(one) for one in path[:3]]
        more = [f"... {len(path) - 3} more"] if len(path) > 3 else []
        return f"[{', '.join([*paths, *more])}]"
    kind = type(path)
    return f"<{kind.__module__.partition('.')[0]} {kind.__name__}>"


def _is_zone(name: object) -> bool:
    """Return whether there is a time zone with this name."""
    try:
        return isinstance(name, str) and bool(ZoneInfo(name))
    except (ValueError, OSError, ZoneInfoNotFoundError):
        return False


@dataclass(frozen=True, repr=False)
class Preview:
    """What a count would read and how much memory it would need, from `fitplug.preview`.

        fp.preview("people/", plan).tasks

    Attributes:
        files: The number of files to read.
        format: The format of the files.
        rows: The exact number of rows in all files, which is CONFIDENTIAL. None if the files do not
            record the number (CSV, Arrow streams).
        tasks: The number of partitions of the rows, each counted by one task.
        threads: The number of threads that will run the tasks.
        cells: The total number of cells in the tables that the count fills.
        memory: Approximately the largest memory of one process, in bytes.
        left_out: The number of files that are not read, because the filters exclude their folders.
        rows_are: A sentence that describes how rows are counted.
        without_checksums: How many Parquet files have pages without checksums; up to 100 files
            are inspected. Damage in such pages may go unnoticed.
        counts: The columns that may be weights: their names and types suggest that they hold the
            number of people that a row stands for. Empty if `weight` is given.
    """

    files: int
    format: str
    rows: int | None
    tasks: int
    threads: int
    cells: int
    memory: int
    left_out: int = 0
    rows_are: str = "each row counts once"
    counts: tuple[str, ...] = ()
    without_checksums: int = field(default=0, compare=False)

    def __repr__(self) -> str:
        return f"Preview({self.files} {self.format} files, {self.cells} cells; rows confidential)"
