"""Threads: graphs of tasks that run on threads of this process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dask import config

from fitplug_dask._compat import count_processors, run_threaded
from fitplug_dask.kernel import Fault
from fitplug_dask.workers import Graph, Key, read_threads


def count_threads(client: Any) -> tuple[int, int]:
    """Return how many threads count at once: in all, and at most in one process."""
    if client is None:
        threads = config.get("num_workers", None) or count_processors()
        return threads, threads
    counts = read_threads(client).values()
    return max(1, sum(counts)), max(counts, default=1)


class _StopError(Exception):
    """Ends a run of the threaded scheduler early."""


def run_on_threads(
    graph: Graph,
    top: Key,
    rows: Mapping[Key, int],
    report_rows: Callable[[int], None],
) -> Any:
    """Run a graph of tasks on threads.

    When this returns or raises, no task runs any more, and so no task reads or writes behind the
    caller. The exception is a pool that Dask is configured to use.

    Args:
        graph: The tasks by key.
        top: The key of the result.
        rows: The rows of each task that reads, by key.
        report_rows: Called with the rows of a task when it has ended.

    Returns:
        The result of the task `top`, or the first fault.
    """
    faults: list[Fault] = []

    def end_task(key: Any, result: Any, *_: Any) -> None:
        if isinstance(result, Fault):
            faults.append(result)
            raise _StopError
        if key in rows:
            report_rows(rows[key])

    with contextlib.suppress(_StopError), _open_pool() as pool:
        return run_threaded(graph, top, pool, end_task)
    return faults[0]


def _open_pool() -> contextlib.AbstractContextManager[Any]:
    """Open the pool that Dask is configured to use, or threads whose end waits for their tasks."""
    configured = config.get("pool", None)
    if configured is not None:
        return contextlib.nullcontext(configured)
    threads, _ = count_threads(None)
    return ThreadPoolExecutor(threads, thread_name_prefix="fitplug-count")
