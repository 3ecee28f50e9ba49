"""Counting: from files and wanted tables to exact Tables."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fitplug.counts import (
    Tables,
    Where,
    check_weight,
    describe_rows,
    make_filters,
)
from fitplug.errors import BudgetError
from fitplug.plan import Plan
from fitplug.workload import AddRemove, Unit
from fitplug_dask.progress import Progress, Report, accumulate, choose_report
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
from fitplug_dask.sources import Options, Source, find_files

if TYPE_CHECKING:
    from distributed import Client

    from fitplug.families import Slab
    from fitplug_dask.files import CheckedFile
    from fitplug_dask.kernel import Job, PartialCounts, Partition
    from fitplug_dask.persons import RowStore, Selection
    from fitplug_dask.sharding import Consume
    from fitplug_dask.workers import Runner


_LOG = logging.getLogger(__name__)


def count(
    source: Source,
    wanted: Wanted,
    *,
    client: Client | Runner | None = None,
    progress: Progress = None,
    person: str | None = None,
    unit: Unit | None = None,
    key: bytes | None = None,
    storage_options: Options | None = None,
    weight: str | None = None,
    where: Where | None = None,
    zone: str | None = None,
    missing: Mapping[str, Any] | None = None,
) -> Tables:
    """Count the tables that a plan needs, exactly, from files, tables of lakes, or frames.

    A record that is null or outside the domain on any attribute that any wanted table uses is left
    out of every table, as the tables must be marginals of one histogram.

    Tables with measures count shares of records, in the same pass: a record has `shares` of each,
    divided between the cells of its value's bounds. Columns of measures hold integers, floats or
    decimals, or the text of CSV files; text that spells no number, null and NaN are no value.

    Whatever the number of rows, a process holds about 250 MB, and for each cell 4 bytes a thread
    (8 if rows are weighted or measured) and 24 more, or 72 more if there are at most 2^20 cells.
    Where that is more than 60 % of the memory of a worker, tables are counted in shards: a task
    then holds a range of their cells, and this process 24 bytes for each cell.

    Workers may be lost: what they held is counted again, and no row counts twice. Where workers
    are lost frequently, raise Dask's `distributed.scheduler.allowed-failures`.

    No message reveals anything that rows hold.

    Args:
        source: A file, a folder, a glob (`data/state=*/`), or a list of these; each a local path
            or a URL of a store (`s3://bucket/people/`). In a folder all files at any depth are read
            that end in .parquet, .parq, .arrow, .feather, .ipc, .arrows, .csv or .csv.gz, except
            below names that start with "_" or "."; all must be of one format. Folders named
            `key=value` make `key` an attribute, whose values the domain types. The domain also
            types the text of CSV files, whose first line must name the columns, with commas
            between them: text that spells no value of the attribute's type is a value outside the
            domain, and an empty value is null (a quoted one is the empty string).

            Or a `DeltaTable` or `IcebergTable`; a dask.dataframe, or delayed frames of pandas,
            Polars or Arrow; a data set, Table or RecordBatchReader of Arrow; a LazyFrame of
            Polars or a relation of DuckDB. The last four are streams that this process reads: they
            are never whole in memory, and cannot be counted with `client`.
        wanted: A Plan, a Workload, or (domain, attribute sets); the set () is the total.
        client: A dask.distributed Client whose workers see the files under the same paths and have
            the code of this process, which is checked; None counts on threads of this process. A
            CSV file is one task, however large; of other files every row group or record batch may
            be one.
        progress: True shows a percentage on stderr; a callable is told (rows counted, rows in all)
            in this process when tasks end. Those numbers are exact, so show their ratio
            only; for files that do not say how many rows they hold they are guesses by their bytes.
        person: A column that identifies persons. No more rows of each are counted than the unit of
            privacy says: at most `records`; with `distinct` at most one in each cell over all
            attributes that are counted; with `once_per` at most one in each cell of that
            attribute; one for `ReplaceOne`, which may name no `within`. `tables.unit` is this
            limit. A keyed hash of the person's own rows decides which rows are counted, so that one
            person more or less changes the tables by at most so many rows; see
            `fitplug_dask.persons.selection`. Rows without a person are left out.
        unit: The unit of privacy that `person` enforces, for a Workload or attribute sets; a plan
            has its own.
        key: The key of that hash, at least 16 secret bytes; drawn anew if left out. The same key
            keeps the same rows, whatever the files, their order and the workers.
        storage_options: How the stores of URLs are reached, such as credentials; they go
            to the workers, and into no message or name of a task.
        weight: A column of integers that says how many records each row stands for, if rows are
            aggregates. Null counts as 0, a number below 0 as 0, and one above 2^40 as 2^40, as
            what rows hold may not cause an error. One person more adds 1 to one row, so that rho
            is the same as for single rows; this does not hold for a survey's sampling weights. It
            cannot be combined with `person`, whose rows are single.
        where: {column: value, or values}: only rows that hold one of the values in each of these
            columns are counted, and only they compete for a person's k. Values are strings,
            integers, booleans or dates, of one type a column, which say how its values are read,
            as attributes do; null never matches. The columns may be attributes, folder keys (files
            in folders of other keys are not read) or neither.
        zone: The time zone in which times with a zone are read as days, such as "Europe/Berlin";
            also text with an offset, such as "2020-12-31T23:30Z". Without it such text counts on
            the day that it shows, and columns of the type of such times are refused.
        missing: {column: value}: for files without the column, the value of all of their rows;
            None is null. Without it such files are refused.

    Returns:
        Tables of int64 arrays, one for each attribute set, axes in the domain's order.

    Raises:
        DataError: Files are missing, damaged, found twice (also by links), of another schema than
            the domain, or change meanwhile.
        TablesError: The tables cannot be counted or need too much memory.
        DomainError: The domain does not have an attribute, or weights or filters are invalid.
        BudgetError: The unit of privacy is missing, or not that of the plan, or no count keeps it.
        FitplugError: The workers of `client` fail or have other code than this process.
    """
    report = choose_report(progress)
    check_client(client)
    domain, names = list_tables(wanted)
    check_libraries()
    from fitplug_dask.kernel import cut_partitions, sum_to_tables
    from fitplug_dask.persons import choose_limit, count_by_person, cut_person_partitions
    from fitplug_dask.sharding import count_tables

    request = prepare_request(domain, names, client, weight, make_filters(where))
    job, runner = request.job, request.runner
    check_weight(weight, job.filters, job.attributes, person)
    limit = choose_limit(_find_unit(wanted, unit, person))
    selection = _make_selection(person, limit, key, job)
    sharded = request.choose_sharding(whole=selection is not None)
    files = _find_checked_files(source, storage_options, job, person, zone, missing, runner)

    start = time.perf_counter()
    if sharded:
        tables = count_tables(domain, names, job, files, runner, report)
    else:
        if selection is not None:
            partitions = cut_person_partitions(files, runner.threads)
            counted = count_by_person(job, selection, partitions, runner, report)
        else:
            partitions = cut_partitions(files, job.total_cells, runner.threads)
            counted = count_partitions(job, partitions, runner, report)
        joints = dict(zip(job.joints, counted.counts, strict=True))
        tables = sum_to_tables(domain, joints, names)
    rows = describe_rows(weight, job.filters)
    # Nothing of how many rows there are: that is as confidential as the counts.
    seconds = time.perf_counter() - start
    _LOG.info("counted %d tables from %d files in %.1f s", len(tables), len(files), seconds)
    if selection is None or limit is None:
        return Tables(domain, tables, rows=rows, copy=False)
    return Tables(
        domain,
        tables,
        unit=limit,
        person=person,
        rows=rows,
        copy=False,
    )


def count_partitions(
    job: Job, partitions: Sequence[Partition], runner: Runner, report: Report
) -> PartialCounts:
    """Count the joint tables over all partitions.

    Args:
        job: What to count.
        partitions: The partitions of the rows.
        runner: What runs the tasks.
        report: Called in this thread, with the rows of the tasks that have ended and of all.

    Raises:
        DataError: A file is at fault; the first fault found is named.
        FitplugError: The workers themselves fail.
    """
    from fitplug_dask import kernel

    rows = [partition.rows for partition in partitions]
    add_rows = accumulate(report, sum(rows))
    if not partitions:
        return kernel.make_empty_counts(job)
    counted: PartialCounts = runner.map_sum(
        "count-partition",
        kernel.count_partition,
        partitions,
        kernel.add_partial_counts,
        kernel.choose_fan_in(job.total_cells),
        shared=job,
        weights=rows,
        report=add_rows,
    )
    return counted


def _find_unit(wanted: Wanted, unit: Unit | None, person: str | None) -> Unit | None:
    """Return the unit that the count enforces; None if it counts all rows.

    Raises:
        BudgetError: The plan has another unit than the one that was given, or nothing says how
            many rows of a person are counted.
    """
    if isinstance(wanted, Plan) and unit not in (None, wanted.unit):
        raise BudgetError(f"the plan has another unit of privacy ({wanted.unit}). Leave out unit")
    if person is None:
        if unit is not None:
            raise BudgetError(
                "unit limits the rows of each person. Name the column that identifies persons, "
                'person="..."'
            )
        return None
    chosen = wanted.unit if isinstance(wanted, Plan) else unit
    if chosen is None:
        raise BudgetError(
            f"person = {person!r} does not say how many rows of a person to count. Give a unit of "
            "privacy, such as unit=fp.AddRemove(records=3)"
        )
    return chosen


def count_slabs(
    source: Source,
    wanted: Wanted,
    slabs: Sequence[Slab],
    consume: Consume,
    *,
    shared: Any,
    memory: int,
    client: Client | Runner | None = None,
    progress: Progress = None,
    storage_options: Options | None = None,
    weight: str | None = None,
    where: Where | None = None,
    zone: str | None = None,
    missing: Mapping[str, Any] | None = None,
    person: str | None = None,
    key: bytes | None = None,
    rows: RowStore | None = None,
) -> list[Any]:
    """Count slabs of tables, none of which any process need hold as a whole.

    Args:
        source: The rows, as `count` takes them.
        wanted: The tables that the slabs are of; a row that is outside the domain on any of their
            attributes is left out of all slabs.
        slabs: The slabs.
        consume: What the task of a slab does with its counts; see `count_shards`.
        shared: What `consume` takes first.
        memory: The most bytes of counts that one process holds for slabs that are not counted yet.
        client: As for `count`, or a runner; all arguments that follow are as for `count`.
        progress: How it is reported which rows are counted.
        storage_options: How the stores of the source are reached.
        weight: A column of integers.
        where: Which rows are counted.
        zone: The time zone whose days times fall on.
        missing: The values of columns that some files lack.
        person: The column that identifies persons; it needs `rows`.
        key: The key that chooses them.
        rows: Where the rows that persons keep are stored meanwhile.

    Returns:
        What `consume` returned for each slab.

    Raises:
        FitplugError: As for `count`.
    """
    from fitplug_dask.persons import choose_limit, count_person_shards, cut_person_partitions
    from fitplug_dask.sharding import count_shards, cut_shard_partitions

    domain, names = list_tables(wanted)
    request = prepare_request(domain, names, client, weight, make_filters(where))
    job, runner = request.job, request.runner
    check_weight(weight, job.filters, job.attributes, person)
    limit = choose_limit(_find_unit(wanted, None, person))
    selection = None if person is None else _make_selection(person, limit, key, job)
    files = _find_checked_files(source, storage_options, job, person, zone, missing, runner)
    how: dict[str, Any] = {
        "client": runner,
        "shared": shared,
        "report": choose_report(progress),
        "memory": memory,
    }
    if selection is None:
        partitions = cut_shard_partitions(files, runner.threads)
        return count_shards(job, partitions, slabs, consume, **how)
    assert rows is not None
    partitions = cut_person_partitions(files, runner.threads)
    return count_person_shards(job, selection, partitions, slabs, consume, rows, **how)


def _find_checked_files(
    source: Source,
    storage_options: Options | None,
    job: Job,
    person: str | None,
    zone: str | None,
    missing: Mapping[str, Any] | None,
    runner: Runner,
) -> tuple[CheckedFile, ...]:
    """Find all files and check them, and log how many have pages without checksums."""
    from fitplug_dask.files import sample_checksums

    start = time.perf_counter()
    rules = prepare_rules(job, zone, missing, person)
    files = check_files(find_files(source, storage_options), job, person, rules, runner)
    _LOG.info("found and checked %d files in %.1f s", len(files), time.perf_counter() - start)
    lacking, looked_at = sample_checksums(files)
    if lacking:
        _LOG.info(
            "%d of %d Parquet files that were looked at have pages without checksums, in which "
            "damage may not be noticed",
            lacking,
            looked_at,
        )
    return files


def _make_selection(
    person: str | None, limit: AddRemove | None, key: bytes | None, job: Job
) -> Selection | None:
    """Return which rows of each person are counted, or None if all rows are."""
    from fitplug_dask.persons import Selection, check_selection_once, find_record_groups

    if person is None or limit is None:
        if key is not None:
            raise BudgetError(
                "key chooses the rows of each person. Give person too, or leave out key"
            )
        return None
    selection = Selection.create(person, limit.records, key, find_record_groups(limit, job))
    check_person(person, tuple(job.attributes))
    check_selection_once()  # each process that reads or selects rows makes this test, too
    return selection
