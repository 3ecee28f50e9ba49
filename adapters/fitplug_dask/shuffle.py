"""Shuffle: the rows of each person brought together by Dask, in rounds that bound the memory.

Of one round's persons, every share sends its rows to buckets by the person's hash; each bucket
then has all rows of its persons, keeps at most k of each, and counts them. Rounds read the files
again, so that no row and no count has to wait in a file of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

import numpy as np

from fitplug_dask.kernel import Fault, Job, Partial, add
from fitplug_dask.progress import Report
from fitplug_dask.schedule import RETRIES, attempt, awaited, fault_in, on_threads, raised, tree
from fitplug_dask.selection import (
    Part,
    Selection,
    bucket_of,
    count_bucket,
    rounds_needed,
    split_share,
)
from fitplug_dask.shares import Share, fan_in

MEMORY = 2**32
"""Bytes of rows that one process may hold, 4 GiB: some 40 million rows in one round."""

_OF_WORKER = 0.25
"""Of a worker's own memory limit: well below where it would write rows to its disk."""

_PER_WORKER = 2
_ROWS_PER_CELL = 4


def run(
    job: Job,
    selection: Selection,
    shares: Sequence[Share],
    client: Any,
    report: Report,
    workers: int,
) -> Partial:
    """The joint tables over all shares, of at most k rows of each person.

    client, report: as for `schedule.run`; a row is reported once per round. workers: threads that
    count at once in all. Rows take at most MEMORY at once; on a cluster, where they are spread
    over the workers, that or a quarter of what a worker may use, times the workers. This is the
    mean over the key: by chance a round has somewhat more or less than its part of the persons.
    Raises DataError and FitplugError.
    """
    rows = sum(share.rows for share in shares)
    total = Partial(tuple(np.zeros(job.cells(joint), np.int64) for joint in job.joints))
    memory = MEMORY if client is None else attempt(lambda: _memory(client))
    if isinstance(memory, Fault):
        raised(memory)
    rounds = rounds_needed(job, rows, memory)
    fewest = rows // (rounds * _ROWS_PER_CELL * job.total_cells)
    buckets = max(1, min(_PER_WORKER * workers, fewest))
    done = 0

    def finished(more: int) -> None:
        nonlocal done
        done += more
        report(done, rows * rounds)

    report(0, rows * rounds)
    for number in range(rounds if shares else 0):
        graph = _Graph(job, selection, shares, Part(number, rounds, buckets))
        if client is None:
            result = on_threads(graph.tasks, graph.top, graph.rows, finished)
        else:
            result = _on_cluster(graph, finished, client)
        counted = raised(result)
        for whole, part in zip(total.counts, counted.counts, strict=True):
            whole += part
    return total


def _memory(client: Any) -> int:
    """Bytes of rows that all workers of a cluster may hold together."""
    known = client.scheduler_info()["workers"].values()
    limits = [_OF_WORKER * worker["memory_limit"] for worker in known if worker["memory_limit"]]
    return int(min([MEMORY, *limits])) * max(1, len(client.nthreads()))


class _Graph:
    """The tasks of one round. top: the key of the sum; rows: of the tasks that read, by key."""

    def __init__(self, job: Job, selection: Selection, shares: Sequence[Share], part: Part) -> None:
        name = f"fitplug-count-{uuid4().hex}"
        self.tasks: dict[str, Any] = {}
        self.rows: dict[str, int] = {}
        self.checks: dict[str, str] = {}
        for i, share in enumerate(shares):
            read = f"{name}-split-{i}"
            self.tasks[read] = (split_share, job, selection, part, share)
            self.rows[read] = share.rows
            self.checks[f"{name}-check-{i}"] = read
        counted = []
        for b in range(part.buckets):
            taken = [f"{name}-take-{i}-{b}" for i in range(len(shares))]
            for key, read in zip(taken, self.rows, strict=True):
                self.tasks[key] = (bucket_of, read, b)
            counted.append(f"{name}-bucket-{b}")
            self.tasks[counted[-1]] = (count_bucket, job, selection, *taken)

        def join(parts: Sequence[str]) -> str:
            key = f"{name}-sum-{len(self.tasks)}"
            self.tasks[key] = (add, *parts)
            return key

        self.top = tree(counted, fan_in(job.total_cells), join)


def _on_cluster(graph: _Graph, finished: Callable[[int], None], client: Any) -> Partial | Fault:
    checks = {key: (fault_in, read) for key, read in graph.checks.items()}
    futures = attempt(
        lambda: client.get(
            {**graph.tasks, **checks}, [graph.top, *checks], sync=False, retries=RETRIES
        )
    )
    if isinstance(futures, Fault):
        return futures
    top, *watched = futures
    rows = dict(zip(watched, graph.rows.values(), strict=True))
    return awaited(client, top, rows, finished)
