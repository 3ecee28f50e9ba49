"""Limits: no call to a cluster waits forever, and operators may set how long it waits.

One setting limits all waiting: for an answer of the scheduler or a worker, and for the first worker
to join. A task itself may take as long as it needs.

`fitplug.timeout` of Dask's configuration is `DASK_FITPLUG__TIMEOUT` in the environment, and
`fitplug.rows-per-task` is `DASK_FITPLUG__ROWS_PER_TASK`.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from dask import config
from dask.utils import parse_timedelta

from fitplug.errors import FitplugError, InputError
from fitplug_dask._compat import WorkerState, read_workers

T = TypeVar("T")

_TIMEOUT = "60s"

_UPDATE_SECONDS = 0.1
"""Tasks that end within this time are gathered together."""

_IDLE_SECONDS = 2.0
"""If no task ends within this time, the scheduler and the workers are checked."""


def read_timeout() -> float:
    """Return how many seconds a call waits for an answer, or a count for its first worker.

    Raises:
        InputError: The setting is not a time above 0.
    """
    setting = config.get("fitplug.timeout", _TIMEOUT)
    try:
        seconds = float(parse_timedelta(setting, default="s"))
    except (TypeError, ValueError, KeyError):
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise InputError(
            'Dask\'s setting fitplug.timeout must be a time above 0, such as "60s", not '
            f"{setting!r}"
        )
    return seconds


def read_rows_per_task() -> int | None:
    """Return about how many rows a task reads at most; None if this is not set.

    Raises:
        InputError: The setting is not a number of rows.
    """
    setting: Any = config.get("fitplug.rows-per-task", None)
    if setting is None:
        return None
    if isinstance(setting, bool) or not isinstance(setting, int) or setting < 1:
        raise InputError(
            "Dask's setting fitplug.rows-per-task must be a whole number of at least 1, not "
            f"{setting!r}"
        )
    return setting


def ask(client: Any, request: Callable[[], Awaitable[T]], seconds: float | None = None) -> T:
    """Return the result of a request to the cluster.

    Args:
        client: The client.
        request: Called in the event loop of the client, where the client's methods return
            awaitables.
        seconds: How long to wait; None for `read_timeout()`.

    Raises:
        FitplugError: The scheduler does not answer. The message quotes nothing from the cluster.
    """
    limit = read_timeout() if seconds is None else seconds

    async def act() -> T:
        return await request()

    began = time.monotonic()
    try:
        answer: T = client.sync(act, callback_timeout=limit)
        return answer
    except Exception as error:
        failed = type(error).__name__
    # A connection may time out earlier.
    within = f" within {limit:g} s" if time.monotonic() - began >= limit else ""
    raise FitplugError(
        f"the cluster does not answer{within} ({failed}). Check that the scheduler runs, and "
        "run again."
    )


def list_workers(client: Any) -> dict[str, WorkerState]:
    """Return the state of each worker by its address.

    Raises:
        FitplugError: The scheduler does not answer.
    """
    return ask(client, partial(read_workers, client))


def _find_obstacle(client: Any) -> tuple[str, str]:
    """Return why no task can run now, and advice; empty texts if one can."""
    workers = list_workers(client).values()
    if not workers:
        return "no worker", "Start workers"
    # Dask pauses a worker at 80% of its memory, but the tasks that it runs continue.
    if all(worker.is_paused and not worker.is_busy for worker in workers):
        return "only workers that Dask paused because of low memory", "Give them more memory"
    return "", ""


def await_result(client: Any, future: Any) -> Any:
    """Return the result of a future. There is no time limit while workers can run tasks.

    Raises:
        FitplugError: The scheduler does not answer, or no worker can run tasks for too long.
    """
    ends: queue.SimpleQueue[Any] = queue.SimpleQueue()
    future.add_done_callback(ends.put)
    return gather_ended(client, ends, 1)[future]


def gather_ended(client: Any, ends: queue.SimpleQueue[Any], left: int) -> dict[Any, Any]:
    """Wait until futures end, and return their results.

    Fetching results has no time limit while the scheduler answers and has workers: if a worker is
    lost, its tasks run again.

    Args:
        client: The client.
        ends: The futures that have ended.
        left: The number of futures not gathered yet.

    Raises:
        FitplugError: The scheduler does not answer, or no worker can run tasks for too long.
    """
    futures = [_await_end(client, ends)]
    until = time.monotonic() + _UPDATE_SECONDS
    with contextlib.suppress(queue.Empty):
        while len(futures) < left:
            futures.append(ends.get(timeout=max(0.0, until - time.monotonic())))
    fetched: queue.SimpleQueue[Any] = queue.SimpleQueue()

    async def gather() -> Any:
        return await client.gather(futures)

    gathering = gather()
    try:
        fetching = asyncio.run_coroutine_threadsafe(gathering, client.loop.asyncio_loop)
    except RuntimeError:  # the client was closed meanwhile
        gathering.close()
        raise
    fetching.add_done_callback(fetched.put)
    try:
        return dict(zip(futures, _await_end(client, fetched).result(), strict=True))
    finally:
        fetching.cancel()


def _await_end(client: Any, ends: queue.SimpleQueue[Any]) -> Any:
    """Wait for the next element of a queue.

    Raises:
        FitplugError: The scheduler does not answer, or for `read_timeout()` seconds there were no
            workers, or only paused workers without running tasks.
    """
    idle_since: float | None = None
    while True:
        with contextlib.suppress(queue.Empty):
            return ends.get(timeout=_IDLE_SECONDS)
        why, remedy = _find_obstacle(client)
        now = time.monotonic()
        if not why:
            idle_since = None
        elif idle_since is None:
            idle_since = now
        elif now - idle_since > read_timeout():
            raise FitplugError(
                f"for {read_timeout():g} s, the cluster had {why}. {remedy} and count again."
            )
