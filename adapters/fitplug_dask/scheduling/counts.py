"""Counts: the joint tables over all partitions, counted on threads or on a cluster.

Each result has one key, which is new in every run: a task that runs again after a lost worker
replaces its result, and no run uses the results of another.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar
from uuid import uuid4

import numpy as np

from fitplug.errors import DataError, FitplugError
from fitplug_dask.kernel import (
    Fault,
    Job,
    PartialCounts,
    Partition,
    add_partial_counts,
    choose_fan_in,
    count_partition,
)
from fitplug_dask.progress import Report
from fitplug_dask.scheduling.cluster import (
    RETRIES,
    allow_large_job,
    attempt,
    await_result,
    get_fault,
    hold_job,
)
from fitplug_dask.scheduling.reduction import reduce_tree
from fitplug_dask.scheduling.threads import run_on_threads

CountPartition: TypeAlias = Callable[[Job, Partition], "PartialCounts | Fault"]
T = TypeVar("T")


def count_partitions(
    job: Job,
    partitions: Sequence[Partition],
    client: Any,
    report: Report,
    count_one: CountPartition = count_partition,
) -> PartialCounts:
    """Count the joint tables over all partitions.

    Args:
        job: What to count.
        partitions: The partitions of the rows.
        client: A client of dask.distributed, or None for threads of this process.
        report: Called in this thread, with the rows of the tasks that have ended and of all.
        count_one: Counts one partition.

    Raises:
        DataError: A file is at fault; the first fault found is named.
        FitplugError: The workers themselves fail.
    """
    total = sum(partition.rows for partition in partitions)
    done = 0
    report(done, total)

    def report_rows(rows: int) -> None:
        nonlocal done
        done += rows
        report(done, total)

    if not partitions:
        return make_empty_counts(job)
    name = f"fitplug-count-{uuid4().hex}"
    if client is None:
        result = _count_on_threads(job, partitions, name, report_rows, count_one)
    else:
        result = _count_on_cluster(job, partitions, name, report_rows, count_one, client)
    return raise_fault(result)


def make_empty_counts(job: Job) -> PartialCounts:
    """Return the joint tables of no rows."""
    return PartialCounts(tuple(np.zeros(job.count_cells(joint), np.int64) for joint in job.joints))


def raise_fault(result: T | Fault) -> T:
    """Return the result if it is no fault.

    Raises:
        DataError: A file is at fault.
        FitplugError: The machines are at fault.
    """
    if isinstance(result, Fault):
        raise DataError(result.message) if result.of_data else FitplugError(result.message)
    return result


def _count_on_threads(
    job: Job,
    partitions: Sequence[Partition],
    name: str,
    report_rows: Callable[[int], None],
    count_one: CountPartition,
) -> PartialCounts | Fault:
    graph: dict[Any, Any] = {}
    rows: dict[Any, int] = {}
    for i, partition in enumerate(partitions):
        graph[f"{name}-{i}"] = (count_one, job, partition)
        rows[f"{name}-{i}"] = partition.rows

    def join(terms: Sequence[str]) -> str:
        key = f"{name}-sum-{len(graph)}"
        graph[key] = (add_partial_counts, *terms)
        return key

    top = reduce_tree(list(graph), choose_fan_in(job.total_cells), join)
    return run_on_threads(graph, top, rows, report_rows)


def _count_on_cluster(
    job: Job,
    partitions: Sequence[Partition],
    name: str,
    report_rows: Callable[[int], None],
    count_one: CountPartition,
    client: Any,
) -> PartialCounts | Fault:
    submitted = attempt(lambda: _submit(job, partitions, name, count_one, client))
    if isinstance(submitted, Fault):
        return submitted
    top, checks = submitted
    return await_result(client, top, checks, report_rows)


def _submit(
    job: Job, partitions: Sequence[Partition], name: str, count_one: CountPartition, client: Any
) -> tuple[Any, dict[Any, int]]:
    """Submit all tasks.

    Returns:
        The future of the sum; and one future for each partition's fault (or None), with the rows
        of the partition.
    """
    with allow_large_job():
        held = client.submit(hold_job, job, key=f"{name}-job-0", retries=RETRIES)
    leaves = [
        client.submit(count_one, held, partition, key=f"{name}-{i}", retries=RETRIES)
        for i, partition in enumerate(partitions)
    ]
    numbers = itertools.count()

    def join(terms: Sequence[Any]) -> Any:
        key = f"{name}-sum-{next(numbers)}"
        return client.submit(add_partial_counts, *terms, key=key, retries=RETRIES)

    top = reduce_tree(leaves, choose_fan_in(job.total_cells), join)
    # Once the leaves are forgotten here, workers drop the counts that are already added up.
    checks = {
        client.submit(get_fault, leaf, key=f"{name}-check-{i}", retries=RETRIES): partition.rows
        for i, (leaf, partition) in enumerate(zip(leaves, partitions, strict=True))
    }
    return top, checks
