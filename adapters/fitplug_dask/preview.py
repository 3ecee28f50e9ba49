"""Preview: the columns of the data, and what a count would read and take. It reads no row."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fitplug.counts import (
    Filters,
    Where,
    can_name_columns,
    check_weight,
    describe_rows,
    make_filters,
)
from fitplug.errors import DataError
from fitplug_dask.request import (
    Wanted,
    check_client,
    check_files,
    check_libraries,
    check_person,
    list_tables,
    prepare_request,
    prepare_rules,
)
from fitplug_dask.sources import TEXT_FORMATS, Options, Source, SourceFile, find_files

if TYPE_CHECKING:
    from distributed import Client

_THREAD_BYTES = 2**27  # what a thread takes for the rows it reads, measured on 20 columns

_COUNT_COLUMN = re.compile(
    r"(n|num|number|(.*[^a-z])?"
    r"(counts?|cnt|pop|population|people|persons|records|weights?|wg?t|freq|frequency|tot|total))"
    r"[^a-z]*"
)
"""Names that columns of counts usually have, in small letters."""

_FILTER_VALUES = 3
"""How many values of a filter the sentence about rows names; the others are only numbered."""


@dataclass(frozen=True, repr=False)
class Preview:
    """What a count would read and take.

    Attributes:
        files: The number of files to read.
        format: The format of the files.
        rows: The rows of all files to read. They are exact and so CONFIDENTIAL; None where the
            files do not say (CSV, Arrow streams).
        tasks: The number of partitions of the rows, each counted by one task.
        threads: The number of threads that the tasks are for.
        cells: The number of cells of all tables that are counted jointly.
        memory: The most bytes that one process will hold, about.
        left_out: How many more files lie in folders whose rows do not pass the filters.
        rows_are: A sentence that says how rows are understood.
        without_checksums: How many Parquet files, of up to 100 that were looked at, have pages
            without checksums, in which damage may not be noticed.
        counts: If each row is taken for one record, the columns that by their names and types may
            say of how many records the row is an aggregate.
    """

    files: int
    format: str
    rows: int | None
    tasks: int
    threads: int
    cells: int
    memory: int
    left_out: int = 0
    rows_are: str = "each row is one record"
    counts: tuple[str, ...] = ()
    without_checksums: int = field(default=0, compare=False)

    def __repr__(self) -> str:
        return f"Preview({self.files} {self.format} files, {self.cells} cells; rows confidential)"


def preview(
    source: Source,
    wanted: Wanted,
    *,
    client: Client | None = None,
    storage_options: Options | None = None,
    person: str | None = None,
    weight: str | None = None,
    where: Where | None = None,
    zone: str | None = None,
    missing: Mapping[str, Any] | None = None,
) -> Preview:
    """Tell what `count` with the same arguments would read and take.

    This finds the files and checks their footers and schemas as `count` does, but it reads no row
    and writes nothing.

    Args:
        source: As for `count`.
        wanted: As for `count`.
        client: As for `count`.
        storage_options: As for `count`.
        person: As for `count`.
        weight: As for `count`.
        where: As for `count`.
        zone: As for `count`.
        missing: As for `count`.

    Raises:
        DataError: As by `count`.
        TablesError: As by `count`.
        DomainError: As by `count`.
    """
    check_client(client)
    domain, names = list_tables(wanted)
    check_libraries()
    from fitplug_dask.files import sample_checksums
    from fitplug_dask.kernel import cut_partitions

    request = prepare_request(domain, names, client, weight, make_filters(where))
    sharded = request.choose_sharding(whole=person is not None)
    job, runner = request.job, request.runner
    check_weight(weight, job.filters, job.attributes, person)
    check_person(person, job.attributes)
    rules = prepare_rules(job, zone, missing, person)
    sources = find_files(source, storage_options)
    files = check_files(sources, job, person, rules, runner)
    read = [file for file in files if not file.left_out]
    records = [file.records for file in read]
    known = (*domain.names, *job.filters)
    single = weight is None and person is None
    return Preview(
        files=len(read),
        format=files[0].format.value if files else "no",
        rows=None if None in records else sum(n for n in records if n is not None),
        tasks=len(cut_partitions(files, job.total_cells, runner.threads)),
        threads=runner.threads,
        cells=job.total_cells,
        memory=request.estimate_memory(sharded=sharded) + runner.process_threads * _THREAD_BYTES,
        left_out=len(files) - len(read),
        without_checksums=sample_checksums(read).lacking,
        rows_are=_describe_rows(weight, person, job.filters),
        counts=_find_count_columns(sources[0], known)
        if single and files and files[0].columns
        else (),
    )


def _describe_rows(weight: str | None, person: str | None, filters: Filters) -> str:
    """Return a sentence that says how rows are understood."""
    record = "each row is one record"
    if person is not None:
        record += f" of the person in column {person!r}, of whom no more are counted than the limit"
    said = describe_rows(weight, filters, _FILTER_VALUES)
    if weight is not None and said is not None:
        return said
    return "; ".join(filter(None, [record, said]))


def _find_count_columns(file: SourceFile, known: Sequence[str]) -> tuple[str, ...]:
    """Return the columns named as columns of counts usually are, except those in `known`.

    They hold integers, or text in CSV files.
    """
    from fitplug_dask.encoding import classify_type
    from fitplug_dask.files import read_source_header

    _, header = read_source_header(file)
    if header.unchecked:
        return ()
    return tuple(
        name
        for name, arrow_type in zip(header.schema.names, header.schema.types, strict=True)
        if name not in known
        and (file.format in TEXT_FORMATS or classify_type(arrow_type) == "integers")
        and _COUNT_COLUMN.fullmatch(name.lower())
    )


FOLDER = "folder"
"""The type of the keys of folders."""

TEXT = "text"
"""The type of the columns of CSV files, which the domain alone types."""


def list_columns(
    source: Source, *, header: bool = False, storage_options: Options | None = None
) -> Mapping[str, str]:
    """List the columns of the first file, and the keys of the folders it lies in. Read no row.

    Args:
        source: The files, as for `count`.
        header: Whether the first line of a CSV file names its columns, whatever it looks like.
            If False, a first line with a number, a date, an empty value or a repeated one, as
            records have them, is refused and not quoted.
        storage_options: How the stores of URLs are reached.

    Returns:
        By name, the type: "strings", "integers", "floats", "booleans", "dates", "folder", "text"
        (of CSV), or that of Arrow for columns that cannot be counted.

    Raises:
        DataError: There is no file, or its header cannot be read.
    """
    check_libraries()
    from fitplug_dask.encoding import classify_type
    from fitplug_dask.files import read_source_header

    files = find_files(source, storage_options)
    if not files:
        raise DataError("the table has no files, so nothing says which columns it has")
    first = files[0]
    _, file_header = read_source_header(first)
    schema = file_header.schema
    if first.format in TEXT_FORMATS and len(names := schema.names) == 1:
        for separator, called in ((";", "semicolons"), ("\t", "tabs")):
            if separator in names[0]:
                raise DataError(
                    f"{first.path} seems to have {called} between its values; write it with commas"
                )
    if first.format in TEXT_FORMATS and not header and not can_name_columns(schema.names):
        raise DataError(
            f"the first line of {first.path} holds numbers, dates, empty or repeated values, so it "
            "seems to be a record and not the names of the columns; write these in front of it, or "
            "say --header (in Python header=True) if it is the header"
        )
    columns = {
        name: TEXT if first.format in TEXT_FORMATS else classify_type(arrow_type) or str(arrow_type)
        for name, arrow_type in zip(schema.names, schema.types, strict=True)
    }
    return columns | {key.name: FOLDER for key in first.keys}
