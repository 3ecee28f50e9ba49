"""Patience: no call to a cluster waits without end.

How long is one number for everything that waits: for a scheduler or a worker to answer, and for
the first worker to come (`settings.read_timeout`). A task itself may take as long as it needs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, TypeVar
from uuid import uuid4

import toolz

from fitplug.errors import FitplugError
from fitplug_dask._compat import WorkerState, read_worker_states
from fitplug_dask.workers.settings import read_timeout

T = TypeVar("T")

_POLL_SECONDS = 0.2


def ask(client: Any, request: Callable[[], Awaitable[T]], seconds: float | None = None) -> T:
    """Return what a request to the cluster returns.

    Args:
        client: The client.
        request: Called in the event loop of the client, where its methods return awaitables.
        seconds: How long to wait; None for `read_timeout()`.

    Raises:
        FitplugError: The scheduler does not answer.
    """
    limit = read_timeout() if seconds is None else seconds

    async def act() -> T:
        return await request()

    return _await_answer(lambda: client.sync(act, callback_timeout=limit), limit)


def ask_blocking(request: Callable[[], T], seconds: float | None = None) -> T:
    """Return what a request to the cluster returns that blocks, and knows no limit of time.

    Args:
        request: Called in a thread of its own, which is left alone when the time is over.
        seconds: How long to wait; None for `read_timeout()`.

    Raises:
        FitplugError: The scheduler does not answer.
    """
    limit = read_timeout() if seconds is None else seconds
    answer: Future[T] = Future()

    def act() -> None:
        try:
            answer.set_result(request())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=act, daemon=True).start()
    return _await_answer(lambda: answer.result(limit), limit)


def _await_answer(wait: Callable[[], T], limit: float) -> T:
    """Return what `wait` returns, or raise FitplugError, which quotes nothing of the cluster's."""
    try:
        return wait()
    except Exception as error:
        failed = type(error).__name__
    within = f" within {limit:g} s" if failed == "TimeoutError" else ""
    raise FitplugError(
        f"the cluster does not answer{within} ({failed}); check that its scheduler runs and that "
        "this client is connected to it"
    )


def read_threads(client: Any) -> dict[str, int]:
    """Return the number of threads of each worker by its address.

    Raises:
        FitplugError: The scheduler does not answer.
    """
    return dict(ask(client, client.nthreads))


def list_workers(client: Any) -> list[WorkerState]:
    """List what the scheduler knows of each worker.

    Raises:
        FitplugError: The scheduler does not answer.
    """
    return ask_blocking(lambda: read_worker_states(client))


class WorkerWatch:
    """Notices that a cluster has had nothing that runs tasks for too long."""

    def __init__(self, client: Any) -> None:
        """Look at nothing yet.

        Args:
            client: The client.
        """
        self._client = client
        self._idle_since: float | None = None

    def check(self) -> None:
        """Look at the workers; this is called while no task ends.

        Raises:
            FitplugError: The scheduler does not answer, or for the time allowed there has been no
                worker, or only workers that Dask has paused and that run nothing.
        """
        why, remedy = self._find_obstacle()
        now = time.monotonic()
        if not why:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        elif now - self._idle_since > read_timeout():
            raise FitplugError(
                f"the cluster has had {why} for {read_timeout():g} s, so counting could not "
                f"finish; {remedy} and count again"
            )

    def _find_obstacle(self) -> tuple[str, str]:
        """Return why no task can run now, and what to do; empty texts if one can."""
        if not read_threads(self._client):
            return "no worker", "start workers"
        workers = list_workers(self._client)
        # Dask pauses a worker at 80 % of its memory; the tasks that it runs go on.
        if workers and all(worker.is_paused and not worker.is_busy for worker in workers):
            return "only workers that Dask paused for want of memory", "give them more memory"
        return "", ""


def demand_worker(client: Any) -> Any:
    """Keep at least one worker on a cluster that scales with demand.

    Such a cluster starts its first worker for the task whose future this returns, and its last
    worker stays while it holds the result. Without it, Dask would retire workers that only answer
    questions as idle, and start new ones for the next step.

    Returns:
        A future: the demand ends when it is released, or when nothing refers to it any more.
    """
    return client.submit(toolz.identity, None, key=f"fitplug-demand-worker-{uuid4().hex}")


def await_workers(client: Any) -> dict[str, int]:
    """Wait until the cluster has a worker.

    Returns:
        As `read_threads`.

    Raises:
        FitplugError: There is none within the time allowed.
    """
    limit = read_timeout()
    end = time.monotonic() + limit
    threads = read_threads(client)
    while not threads and time.monotonic() < end:
        time.sleep(_POLL_SECONDS)
        threads = read_threads(client)
    if threads:
        return threads
    raise FitplugError(
        f"the cluster has no worker, and none came within {limit:g} s; start workers that connect "
        "to this scheduler, or allow more time by the setting fitplug.timeout of Dask"
    )
