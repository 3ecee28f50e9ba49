"""Shuffle: the rows of each person brought together by Dask, in rounds that bound the memory.

In each round, every partition sends the rows of the round's persons to buckets, by the person's
hash. Each bucket then has all rows of its persons, keeps at most k of each, and counts them.
Every round reads the files again, so that no row and no count is ever written to a file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

from fitplug_dask._compat import read_worker_memory_limits
from fitplug_dask.kernel import (
    Fault,
    Job,
    PartialCounts,
    Partition,
    add_partial_counts,
    choose_fan_in,
)
from fitplug_dask.persons.buckets import (
    Round,
    count_bucket,
    count_rounds,
    split_partition,
    take_bucket,
)
from fitplug_dask.persons.selection import Selection
from fitplug_dask.progress import Report
from fitplug_dask.scheduling import (
    RETRIES,
    allow_large_job,
    attempt,
    await_result,
    get_fault,
    hold_job,
    make_empty_counts,
    raise_fault,
    reduce_tree,
    run_on_threads,
)

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
        graph = _RoundGraph(job, selection, partitions, Round(number, rounds, buckets))
        if client is None:
            result = run_on_threads(graph.tasks, graph.top, graph.rows, report_rows)
        else:
            result = _run_on_cluster(graph, report_rows, client)
        counted = raise_fault(result)
        for sums, counts in zip(total.counts, counted.counts, strict=True):
            sums += counts
    return total


def _measure_memory(client: Any) -> int:
    """Return the bytes of rows that all workers of a cluster may hold together."""
    limits = [_WORKER_SHARE * limit for limit in read_worker_memory_limits(client)]
    return int(min([MEMORY, *limits])) * max(1, len(client.nthreads()))


class _RoundGraph:
    """The tasks of one round.

    Attributes:
        tasks: The tasks by key.
        rows: The rows of the tasks that read, by key.
        checks: The keys of the tasks that read, by the keys of the tasks that watch them.
        top: The key of the sum.
    """

    def __init__(
        self, job: Job, selection: Selection, partitions: Sequence[Partition], persons: Round
    ) -> None:
        name = f"fitplug-count-{uuid4().hex}"
        self.tasks: dict[str, Any] = {}
        self.rows: dict[str, int] = {}
        self.checks: dict[str, str] = {}
        held = f"{name}-job-0"
        self.tasks[held] = (hold_job, job)
        for i, partition in enumerate(partitions):
            read = f"{name}-split-{i}"
            self.tasks[read] = (split_partition, held, selection, persons, partition)
            self.rows[read] = partition.rows
            self.checks[f"{name}-check-{i}"] = read
        counted = []
        for b in range(persons.buckets):
            taken = [f"{name}-take-{i}-{b}" for i in range(len(partitions))]
            for key, read in zip(taken, self.rows, strict=True):
                self.tasks[key] = (take_bucket, read, b)
            counted.append(f"{name}-bucket-{b}")
            self.tasks[counted[-1]] = (count_bucket, held, selection, *taken)

        def join(terms: Sequence[str]) -> str:
            key = f"{name}-sum-{len(self.tasks)}"
            self.tasks[key] = (add_partial_counts, *terms)
            return key

        self.top = reduce_tree(counted, choose_fan_in(job.total_cells), join)


def _run_on_cluster(
    graph: _RoundGraph, report_rows: Callable[[int], None], client: Any
) -> PartialCounts | Fault:
    checks = {key: (get_fault, read) for key, read in graph.checks.items()}
    with allow_large_job():
        futures = attempt(
            lambda: client.get(
                {**graph.tasks, **checks}, [graph.top, *checks], sync=False, retries=RETRIES
            )
        )
    if isinstance(futures, Fault):
        return futures
    top, *watched = futures
    rows = dict(zip(watched, graph.rows.values(), strict=True))
    return await_result(client, top, rows, report_rows)
