"""Counting: from files and wanted tables to exact Tables."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fitplug.counts import (
    OutsideCounts,
    Source,
    Tables,
    check_request,
    describe_source_rows,
    list_person_columns,
    list_tables,
    read_source,
    sum_to_tables,
)
from fitplug.display import Progress, Report, accumulate, choose_report
from fitplug.errors import BudgetError
from fitplug.plan import Plan
from fitplug.workload import AddRemove, Unit
from fitplug_dask.request import (
    Wanted,
    check_client,
    check_files,
    check_libraries,
    prepare_request,
    prepare_rules,
)
from fitplug_dask.sources import find_files

if TYPE_CHECKING:
    from distributed import Client

    from fitplug_dask.files import CheckedFile
    from fitplug_dask.kernel import Job, PartialCounts, Partition
    from fitplug_dask.persons import RowStore, Selection
    from fitplug_dask.sharding import Shards
    from fitplug_dask.workers import Runner


_LOG = logging.getLogger(__name__)


def count(
    source: Source | Any,
    plan: Wanted,
    *,
    client: Client | Runner | None = None,
    person_key: bytes | None = None,
    unit: Unit | None = None,
    progress: Progress = None,
) -> Tables:
    """Count the exact tables that a plan needs; see `fitplug.count`, which calls this.

    Each process needs about 300 MB, whatever the number of rows. In addition, each cell needs 4
    bytes per thread (8 bytes if rows are weighted or have measures) and another 24 bytes (72 bytes
    if there are at most 2^20 cells). If the total exceeds 60% of a worker's memory, tables are
    counted in shards: each task then counts a range of the cells, and this process needs 24 bytes
    for each cell.
    """
    report = choose_report(progress)
    check_client(client)
    domain, names = list_tables(plan)
    check_libraries()
    from fitplug_dask.kernel import cut_partitions, cut_small_partitions
    from fitplug_dask.kernel.outside_counter import OutsideCounter
    from fitplug_dask.persons import count_by_person
    from fitplug_dask.sharding import count_tables

    source = read_source(source)
    request = prepare_request(domain, names, client, source)
    job, runner = request.job, request.runner
    limit = check_request(plan, source, job.attributes, unit)
    if isinstance(plan, Plan) and plan.coverage is not None:
        job = replace(job, outside=plan.coverage.names)
    selection = _make_selection(list_person_columns(source), limit, person_key, job)
    sharded = request.choose_sharding(whole=selection is not None or bool(job.outside))
    files = _find_checked_files(source, job, runner)

    outside = None
    start = time.perf_counter()
    if sharded:
        tables = count_tables(domain, names, job, files, runner, report)
    else:
        if selection is not None:
            partitions = cut_small_partitions(files, runner.threads)
            counted = count_by_person(job, selection, partitions, runner, report)
        else:
            partitions = cut_partitions(files, job.total_cells, runner.threads)
            counted = count_partitions(job, partitions, runner, report)
        joints = dict(zip(job.joints, counted.counts, strict=False))
        if job.outside:
            numbers = OutsideCounter.join_limbs(counted.counts[-1])
            outside = OutsideCounts(job.outside, tuple(numbers[:-1]), numbers[-1])
        tables = sum_to_tables(domain, joints, names)
    # The log must not give the number of rows, which is as confidential as the counts.
    seconds = time.perf_counter() - start
    _LOG.info("counted %d tables from %d files in %.1f s", len(tables), len(files), seconds)
    if selection is None or limit is None:
        return Tables(
            domain, tables, rows=describe_source_rows(source), outside=outside, copy=False
        )
    return Tables(
        domain,
        tables,
        unit=limit,
        person=source.person,
        rows=describe_source_rows(source),
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
        report: Called in this thread with the rows of the finished tasks and of all tasks.

    Raises:
        DataError: A file is at fault; the first fault found is named.
        FitplugError: The workers fail.
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


def count_slabs(
    source: Source,
    plan: Wanted,
    shards: Shards,
    *,
    client: Client | Runner | None = None,
    person_key: bytes | None = None,
    progress: Progress = None,
    rows: RowStore | None = None,
) -> list[Any]:
    """Count slabs of tables.

    Args:
        source: The data to count. If it sets `person`, give `rows`, too.
        plan: The tables that the slabs belong to, as for `count`. A row that is outside the domain
            on any of their attributes is left out of all slabs.
        shards: The slabs.
        client: As for `count`, or a runner.
        person_key: The key that chooses the rows of each person.
        progress: How to report the rows that have been counted.
        rows: Where the chosen rows of all persons are stored in the meantime.

    Returns:
        What `consume` returned for each slab.

    Raises:
        FitplugError: As for `count`.
    """
    from fitplug_dask.kernel import cut_small_partitions
    from fitplug_dask.persons import count_person_shards
    from fitplug_dask.sharding import count_shards

    domain, names = list_tables(plan)
    person = list_person_columns(source)
    request = prepare_request(domain, names, client, source)
    job, runner = request.job, request.runner
    limit = check_request(plan, source, job.attributes)
    selection = None if not person else _make_selection(person, limit, person_key, job)
    files = _find_checked_files(source, job, runner)
    how: dict[str, Any] = {"client": runner, "report": choose_report(progress)}
    partitions = cut_small_partitions(files, runner.threads)
    if selection is None:
        return count_shards(job, partitions, shards, **how)
    assert rows is not None
    return count_person_shards(job, selection, partitions, shards, rows, **how)


def _find_checked_files(source: Source, job: Job, runner: Runner) -> tuple[CheckedFile, ...]:
    """Find and check all files, and log how many have pages without checksums."""
    from fitplug_dask.files import sample_checksums

    start = time.perf_counter()
    rules = prepare_rules(job, source)
    files = check_files(find_files(source), job, list_person_columns(source), rules, runner)
    _LOG.info("found and checked %d files in %.1f s", len(files), time.perf_counter() - start)
    lacking, looked_at = sample_checksums(files)
    if lacking:
        _LOG.info(
            "%d of %d inspected Parquet files have pages without checksums, so damage in them "
            "may go unnoticed",
            lacking,
            looked_at,
        )
    return files


def _make_selection(
    person: Sequence[str], limit: AddRemove | None, key: bytes | None, job: Job
) -> Selection | None:
    """Return the selection of each person's rows, or None if all rows are counted."""
    from fitplug_dask.persons import Selection, check_selection_once, find_record_groups

    if not person or limit is None:
        if key is not None:
            raise BudgetError(
                "person_key= needs a count that limits the rows per person. Remove person_key=."
            )
        return None
    selection = Selection.create(person, limit.records, key, find_record_groups(limit, job))
    check_selection_once()  # each process that reads or selects rows runs this test, too
    return selection
