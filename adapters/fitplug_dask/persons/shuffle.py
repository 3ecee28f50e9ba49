"""Shuffle: the rows of each person brought together by Dask, in rounds that bound the memory.

In each round, every partition sends the rows of the round's persons to buckets, by the person's
hash. Each bucket then has all rows of its persons, keeps at most k of each, and counts them.
Every round reads the files again, so that no row and no count is ever written to a file.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from fitplug_dask._compat import read_worker_memory_limits
from fitplug_dask.kernel import Fault, Job, PartialCounts, Partition
from fitplug_dask.persons.buckets import (
    Round,
    count_bucket,
    count_rounds,
    split_partition,
    take_bucket,
)
from fitplug_dask.persons.selection import Selection
from fitplug_dask.progress import Report
from fitplug_dask.scheduling import CountGraph, make_empty_counts, raise_fault, run_graph
from fitplug_dask.workers import attempt

MEMORY = 2**32
"""Bytes of rows that one process may hold, 4 GiB: some 40 million rows in one round."""

_WORKER_SHARE = 0.25
"""The fraction of a worker's own memory limit: well below where it would write rows to its disk."""

_BUCKETS_PER_WORKER = 2
_ROWS_PER_CELL = 4


def count_by_person(
    job: Job,
    selection: Selection,
    partitions: Sequence[Partition],
    client: Any,
    report: Report,
    workers: int,
) -> PartialCounts:
    """Count the joint tables over all partitions, with at most k rows of each person.

    The rows in memory take at most MEMORY bytes. On a cluster, where they are spread over the
    workers, they take at most that or a quarter of what a worker may use, times the number of
    workers. This is the mean over the key: by chance a round has somewhat more or fewer persons
    than others.

    Args:
        job: What to count.
        selection: Which rows of each person are counted.
        partitions: The partitions of the rows.
        client: A client of dask.distributed, or None for threads of this process.
        report: Called in this thread, with the rows of the tasks that have ended and of all. A row
            is reported once per round.
        workers: The number of threads that count at once in all.

    Raises:
        DataError: A file is at fault; the first fault found is named.
        FitplugError: The workers themselves fail.
    """
    rows = sum(partition.rows for partition in partitions)
    total = make_empty_counts(job)
    memory = MEMORY if client is None else attempt(lambda: _measure_memory(client))
    if isinstance(memory, Fault):
        raise_fault(memory)
    rounds = count_rounds(job, rows, memory)
    fewest = rows // (rounds * _ROWS_PER_CELL * job.total_cells)
    buckets = max(1, min(_BUCKETS_PER_WORKER * workers, fewest))
    done = 0

    def report_rows(more: int) -> None:
        nonlocal done
        done += more
        report(done, rows * rounds)

    report(0, rows * rounds)
    for number in range(rounds if partitions else 0):
        graph = _make_round_graph(job, selection, partitions, Round(number, rounds, buckets))
        counted = raise_fault(run_graph(graph, client, report_rows))
        for sums, counts in zip(total.counts, counted.counts, strict=True):
            sums += counts
    return total


def _measure_memory(client: Any) -> int:
    """Return the bytes of rows that all workers of a cluster may hold together."""
    limits = [_WORKER_SHARE * limit for limit in read_worker_memory_limits(client)]
    return int(min([MEMORY, *limits])) * max(1, len(client.nthreads()))


def _make_round_graph(
    job: Job, selection: Selection, partitions: Sequence[Partition], persons: Round
) -> CountGraph:
    """Make the tasks of one round."""
    graph = CountGraph(job)
    for i, partition in enumerate(partitions):
        read = graph.add(
            "split-partition", i, split_partition, graph.job, selection, persons, partition
        )
        graph.rows[read] = partition.rows
    counted = []
    numbers = itertools.count()
    for b in range(persons.buckets):
        taken = [graph.add("take-bucket", next(numbers), take_bucket, r, b) for r in graph.rows]
        counted.append(graph.add("count-bucket", b, count_bucket, graph.job, selection, *taken))
    graph.add_up(counted)
    return graph
