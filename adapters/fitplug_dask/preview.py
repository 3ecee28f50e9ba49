"""Preview: reporting what a count would read and need, and listing columns, without any row."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fitplug.counts import (
    Preview,
    Source,
    can_name_columns,
    check_person,
    check_weight,
    describe_rows,
    find_separator,
    list_person_columns,
    list_tables,
    make_filters,
    name_person,
    read_source,
)
from fitplug.errors import DataError
from fitplug_dask.request import (
    Wanted,
    check_client,
    check_files,
    check_libraries,
    prepare_request,
    prepare_rules,
)
from fitplug_dask.sources import TEXT_FORMATS, SourceFile, find_files

FOLDER = "folder"
"""The type of folder keys."""

ZONED = "times"
"""The type of columns of times with a zone, whose dates depend on the chosen zone."""

TEXT = "text"
"""The type of columns of CSV files; the domain decides how their text is read."""


def list_columns(source: Source | Any, *, header: bool = False) -> Mapping[str, str]:
    """List the columns of the first file and the keys of its folders, without reading rows.

    Args:
        source: The files, as a `fitplug.Source` or its path.
        header: Whether the first line of a CSV file names its columns, whatever it looks like. If
            False, a first line that looks like a record, with a number, a date, or an empty or
            repeated value, is refused and not quoted.

    Returns:
        By name, the type: "strings", "integers", "floats", "booleans", "dates", "times" (with a
        zone), "folder", "text" (of CSV), or that of Arrow for columns that cannot be counted.

    Raises:
        DataError: There is no file, or its header cannot be read.
    """
    check_libraries()
    from fitplug_dask.encoding import classify_type, is_zoned
    from fitplug_dask.files import read_source_header

    files = find_files(read_source(source))
    if not files:
        raise DataError("the table has no files. Add rows first.")
    first = files[0]
    _, file_header = read_source_header(first)
    schema = file_header.schema
    names = list(schema.names)
    if first.format in TEXT_FORMATS and (separator := find_separator(names)):
        raise DataError(f"{first.path} must have commas between its values, not {separator}")
    if first.format in TEXT_FORMATS and names[:1] == [""]:
        del names[0]  # the numbers of the rows, as R and pandas write them
    if first.format in TEXT_FORMATS and not header and not can_name_columns(names):
        raise DataError(
            f"the first line of {first.path} looks like data. Add a line of column names, or use "
            "--header (header=True in Python)."
        )
    columns = {
        name: TEXT
        if first.format in TEXT_FORMATS
        else ZONED
        if is_zoned(arrow_type)
        else classify_type(arrow_type) or str(arrow_type)
        for name, arrow_type in zip(schema.names, schema.types, strict=True)
        if name in names
    }
    return columns | {key.name: FOLDER for key in first.keys}


if TYPE_CHECKING:
    from distributed import Client

_THREAD_BYTES = 2**27  # the memory of a thread for the rows it reads, measured on 20 columns

_COUNT_COLUMN = re.compile(
    r"(n|num|number|(.*[^a-z])?"
    r"(counts?|cnt|pop|population|people|persons|records|weights?|wg?t|freq|frequency|tot|total))"
    r"[^a-z]*"
)
"""Names that columns of counts usually have, in lower case."""

_FILTER_VALUES = 3
"""The number of values of a filter that the sentence about rows names; it counts the others."""


def preview(source: Source | Any, plan: Wanted, *, client: Client | None = None) -> Preview:
    """Show what a count would read and how much memory it would need; see `fitplug.preview`."""
    check_client(client)
    domain, names = list_tables(plan)
    check_libraries()
    from fitplug_dask.files import sample_checksums
    from fitplug_dask.kernel import cut_partitions

    source = read_source(source)
    request = prepare_request(domain, names, client, source)
    sharded = request.choose_sharding(whole=source.person is not None)
    job, runner = request.job, request.runner
    check_weight(job.weight, job.filters, job.attributes, list_person_columns(source))
    check_person(list_person_columns(source), job.attributes)
    rules = prepare_rules(job, source)
    sources = find_files(source)
    files = check_files(sources, job, list_person_columns(source), rules, runner)
    read = [file for file in files if not file.left_out]
    records = [file.records for file in read]
    known = (*domain.names, *job.filters)
    single = source.weight is None and source.person is None
    return Preview(
        files=len(read),
        format=files[0].format.value if files else "no",
        rows=None if None in records else sum(n for n in records if n is not None),
        tasks=len(cut_partitions(files, job.total_cells, runner.threads)),
        threads=runner.threads,
        cells=job.total_cells,
        memory=request.estimate_memory(sharded=sharded) + runner.process_threads * _THREAD_BYTES,
        left_out=len(files) - len(read),
        without_checksums=sample_checksums(read)[0],
        rows_are=_describe_rows(source),
        counts=_find_count_columns(sources[0], known)
        if single and files and files[0].columns
        else (),
    )


def _describe_rows(source: Source) -> str:
    """Return a sentence that explains what a row means."""
    record = "each row counts once"
    if person := list_person_columns(source):
        column = "column" if len(person) == 1 else "columns"
        record += (
            f", for the person in {column} {name_person(person)}; rows beyond the limit per "
            "person and rows without an identifier are not counted"
        )
    said = describe_rows(source.weight, make_filters(source.where), _FILTER_VALUES)
    if source.weight is not None and said is not None:
        return said
    return "; ".join(filter(None, [record, said]))


def _find_count_columns(file: SourceFile, known: Sequence[str]) -> tuple[str, ...]:
    """Return the columns whose names suggest counts, except those in `known`.

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
