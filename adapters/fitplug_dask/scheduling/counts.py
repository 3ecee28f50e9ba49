"""Counts: the joint tables over all partitions, counted on threads or on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from fitplug.errors import DataError, FitplugError
from fitplug_dask.kernel import (
    Fault,
    Job,
    PartialCounts,
    Partition,
    count_partition,
)
from fitplug_dask.progress import Report
from fitplug_dask.scheduling.graph import CountGraph, run_graph

T = TypeVar("T")


def count_partitions(
    job: Job,
    partitions: Sequence[Partition],
    client: Any,
    report: Report,
) -> PartialCounts:
    """Count the joint tables over all partitions.

    Args:
        job: What to count.
        partitions: The partitions of the rows.
        client: A client of dask.distributed, or None for threads of this process.
        report: Called in this thread, with the rows of the tasks that have ended and of all.

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
    graph = CountGraph(job)
    for i, partition in enumerate(partitions):
        key = graph.add("count-partition", i, count_partition, graph.job, partition)
        graph.rows[key] = partition.rows
    graph.add_up(list(graph.rows))
    return raise_fault(run_graph(graph, client, report_rows))


def make_empty_counts(job: Job) -> PartialCounts:
    """Return the joint tables of no rows."""
    counts = tuple(np.zeros(job.count_cells(joint), np.int64) for joint in job.joints)
    return PartialCounts(counts, job.shares)


def raise_fault(result: T | Fault) -> T:
    """Return the result if it is no fault.

    Raises:
        DataError: A file is at fault.
        FitplugError: The machines are at fault.
    """
    if isinstance(result, Fault):
        raise DataError(result.message) if result.of_data else FitplugError(result.message)
    return result
