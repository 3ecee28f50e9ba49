"""Execution: a graph of tasks run on the workers of a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from dask import config

from fitplug.errors import FitplugError
from fitplug_dask.workers.faults import Fault
from fitplug_dask.workers.graphs import Graph, Key, draw_run, seal_graph, watch_tasks
from fitplug_dask.workers.handshake import check_workers
from fitplug_dask.workers.patience import WorkerWatch, ask
from fitplug_dask.workers.tasks import Run, read_outcome

RETRIES = 3
"""How often a cluster runs a task again that raises; that of a lost worker runs again anyway."""

_UPDATE_SECONDS = 0.1
"""Tasks that end within this time are looked at together."""

_IDLE_SECONDS = 2.0
"""When no task ended for so long, the scheduler and the number of workers are looked at."""

_CANCEL_SECONDS = 5.0


def run_on_cluster(
    client: Any,
    graph: Graph,
    top: Key,
    rows: Mapping[Key, int],
    report_rows: Callable[[int], None],
) -> Any:
    """Run a graph of tasks on a cluster whose workers all have the code of this process.

    Results that nobody needs any more are dropped. No call waits without end: see `patience`.

    Args:
        client: The client.
        graph: The tasks by key.
        top: The key of the result.
        rows: The rows of each task that reads, by key.
        report_rows: Called with the rows of the tasks that have ended, at most ten times a second.

    Returns:
        The result of the task `top`, or the first fault. The fault that a worker differs names it.
        All other tasks are cancelled after a fault.
    """
    try:
        run = Run.begin()
    except FitplugError as error:
        return Fault(str(error), of_data=False)
    watched = watch_tasks(rows, draw_run())
    tasks = {**seal_graph(graph, run), **watched}
    submitted = attempt(lambda: _submit(client, tasks, [top, *watched]), client)
    if isinstance(submitted, Fault):
        return submitted
    ended, *checks = submitted
    amounts = dict(zip(checks, rows.values(), strict=True))
    try:
        result = _await_result(client, ended, run.key, amounts, report_rows)
    except BaseException:  # what `report_rows` raises, or the user's interrupt
        cancel(client, submitted)
        raise
    if isinstance(result, Fault):
        cancel(client, submitted)
    return result


def attempt(act: Callable[[], Any], client: Any = None) -> Any:
    """Return what `act` returns, or a Fault if the cluster itself fails.

    Args:
        act: What may raise.
        client: The client, which is asked whether the scheduler is what failed; None if `act` does
            not talk to it.
    """
    try:
        return act()
    except FitplugError as error:
        return Fault(str(error), of_data=False)
    except Exception as error:
        failed = type(error).__name__
    if client is not None:
        # Dask cancels all futures when the scheduler is lost, which says nothing of workers.
        # A worker that came later and has no fitplug fails when it reads a task.
        answer = attempt(lambda: check_workers(client))
        if isinstance(answer, Fault):
            return answer
    return Fault(
        f"the cluster could not finish counting ({failed}); check that its workers run, have "
        'memory to spare and the same version of "fitplug[dask]"',
        of_data=False,
    )


def _submit(client: Any, tasks: Graph, wanted: list[Key]) -> list[Any]:
    """Submit all tasks at once, and return the futures of those that are wanted.

    All at once, so that Dask orders them: it adds up early counts before it reads later rows.
    """
    # What is held may be large, and is sent once.
    with config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
        futures: list[Any] = client.get(dict(tasks), wanted, sync=False, retries=RETRIES)
    return futures


def _await_result(
    client: Any,
    top: Any,
    secret: bytes,
    checks: dict[Any, int],
    report_rows: Callable[[int], None],
) -> Any:
    """Wait for the result of a future, or for the first fault.

    Args:
        client: The client.
        top: The future of the result.
        secret: The key under which it is encrypted.
        checks: The futures of `watch_tasks`, with the rows of the task that each watches.
        report_rows: Called with the rows of the tasks that have ended.
    """
    ends: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for check in checks:
        check.add_done_callback(ends.put)
    left = len(checks)
    while left:
        batch = attempt(partial(gather_ended, client, ends, left), client)
        if isinstance(batch, Fault):
            return batch
        left -= len(batch)
        for fault in batch.values():
            if fault is not None:
                return Fault(*fault)
        # Outside of `attempt`: what this raises is the caller's.
        report_rows(sum(checks[check] for check in batch))
    top.add_done_callback(ends.put)
    ended = attempt(partial(gather_ended, client, ends, 1), client)
    return ended if isinstance(ended, Fault) else attempt(lambda: read_outcome(secret, ended[top]))


def cancel(client: Any, futures: list[Any]) -> None:
    """Cancel futures if the scheduler answers."""
    with contextlib.suppress(Exception):
        ask(client, partial(client.cancel, futures), _CANCEL_SECONDS)


def gather_ended(client: Any, ends: queue.SimpleQueue[Any], left: int) -> dict[Any, Any]:
    """Wait until futures end, and return their results.

    Fetching takes as long as it takes while the scheduler answers and has workers: a worker that
    is lost now has its task run again.

    Args:
        client: The client.
        ends: The futures that have ended.
        left: The number of futures that have not been gathered.

    Raises:
        FitplugError: The scheduler does not answer, or no worker can run tasks for too long.
    """
    futures = [_await_end(client, ends)]
    time.sleep(_UPDATE_SECONDS if left > 1 else 0)
    with contextlib.suppress(queue.Empty):
        while True:
            futures.append(ends.get_nowait())
    fetched: queue.SimpleQueue[Any] = queue.SimpleQueue()

    async def gather() -> Any:
        return await client.gather(futures)

    fetching = asyncio.run_coroutine_threadsafe(gather(), client.loop.asyncio_loop)
    fetching.add_done_callback(fetched.put)
    try:
        return dict(zip(futures, _await_end(client, fetched).result(), strict=True))
    finally:
        fetching.cancel()


def await_result(client: Any, future: Any) -> Any:
    """Return the result of a future, which may take as long as it needs while workers run.

    Raises:
        FitplugError: As by `gather_ended`.
    """
    ends: queue.SimpleQueue[Any] = queue.SimpleQueue()
    future.add_done_callback(ends.put)
    return gather_ended(client, ends, 1)[future]


def _await_end(client: Any, ends: queue.SimpleQueue[Any]) -> Any:
    """Wait for the next element of a queue.

    Raises:
        FitplugError: The scheduler does not answer, or no worker can run tasks for too long.
    """
    watch = WorkerWatch(client)
    while True:
        with contextlib.suppress(queue.Empty):
            return ends.get(timeout=_IDLE_SECONDS)
        watch.check()
