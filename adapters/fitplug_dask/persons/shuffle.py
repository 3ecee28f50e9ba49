"""Shuffle: the rows of each person brought together, each read once.

Every partition sends the rows of each person to a bucket, by the person's hash. Each bucket then
has all rows of its persons, keeps at most k of each, and counts them. The rows that exceed the
memory they may take are written to disks encrypted, under keys that exist in memory only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fitplug_dask.exchange import Exchange, add_exchange, measure_memory
from fitplug_dask.files import CheckedFile
from fitplug_dask.kernel import (
    Job,
    PartialCounts,
    Partition,
    add_partial_counts,
    cut_partitions,
    make_empty_counts,
)
from fitplug_dask.persons.buckets import PersonJob, count_buckets, split_partition
from fitplug_dask.persons.packing import Packing
from fitplug_dask.persons.selection import Selection
from fitplug_dask.progress import Report
from fitplug_dask.workers import Runner

_PARTITION_ROWS = 2**20
_BUCKET_ROWS = 2**16
"""The rows of a bucket that are grouped fastest: they stay in a core's cache."""

_MOST_BUCKETS = 2**16
_BUCKETS_PER_THREAD = 3
_FEWEST_ROWS = 2**14
"""Below this a bucket costs more than its rows."""

_COPIES = 4
"""How often a row is in memory while its bucket is counted: sent, joined, unpacked and sorted."""


def cut_person_partitions(files: Sequence[CheckedFile], threads: int) -> list[Partition]:
    """Cut files into partitions whose rows fit in memory several times.

    Args:
        files: The files.
        threads: The number of threads that read at once.
    """
    rows = sum(sum(file.rows) for file in files if not file.left_out)
    # Tables do not matter: no partition is counted. `cut_partitions` makes three for each thread.
    return cut_partitions(files, 1, max(threads, rows // (3 * _PARTITION_ROWS)))


def count_by_person(
    job: Job,
    selection: Selection,
    partitions: Sequence[Partition],
    runner: Runner,
    report: Report,
) -> PartialCounts:
    """Count the joint tables over all partitions, with at most k rows of each person.

    Args:
        job: What to count.
        selection: Which rows of each person are counted.
        partitions: The partitions of the rows.
        runner: What runs the tasks.
        report: Called in this thread, with the rows of the tasks that have ended and of all. A row
            is reported when it is read, and once more when it is counted.

    Raises:
        DataError: A file is at fault; the first fault found is named.
        FitplugError: The workers themselves fail.
    """
    if not partitions:
        report(0, 0)
        return make_empty_counts(job)
    memory = measure_memory(runner)
    sizes = [partition.rows for partition in partitions]
    shared = PersonJob(job, selection, choose_buckets(job, sum(sizes), memory, runner.threads))
    exchange = Exchange(split_partition, shared.buckets, shared=shared, memory=memory)
    counted: PartialCounts = add_exchange(
        exchange,
        count_buckets,
        add_partial_counts,
        partitions,
        client=runner,
        sizes=sizes,
        report=report,
    )
    return counted


def choose_buckets(job: Job, rows: int, memory: int, threads: int) -> int:
    """Return the number of buckets.

    Args:
        job: What to count.
        rows: The number of rows.
        memory: The bytes that the buckets of one process may take together.
        threads: The number of threads that count at once in all.
    """
    row_bytes = _COPIES * (Packing(job).row_bytes + Packing(job).record.itemsize)
    most_rows = max(1, min(_BUCKET_ROWS, memory // (row_bytes * threads)))
    wanted = max(
        math.ceil(rows / most_rows), min(_BUCKETS_PER_THREAD * threads, rows // _FEWEST_ROWS)
    )
    return max(1, min(wanted, _MOST_BUCKETS))
