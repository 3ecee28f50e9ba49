"""Insides of other libraries: everything undocumented that this adapter uses, in one place.

tests/dask/test_compat.py notices when one of these changes, and when another module of this
package uses an inside of its own. The libraries are imported when they are used, as importing
`fitplug_dask` must load none of them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from inspect import signature
from typing import Any, NamedTuple

_LOG = logging.getLogger(__name__)


def count_processors() -> int:
    """Return the number of processors that Dask's own schedulers count on.

    `dask.system` is in no documentation. It is used because it respects the limits of containers,
    which `os.cpu_count` does not, and because it is the default of Dask's threads.
    """
    from dask.system import CPU_COUNT

    processors: int = CPU_COUNT
    return processors


class WorkerState(NamedTuple):
    """What a scheduler knows of a worker.

    Attributes:
        threads: The number of its threads.
        memory_limit: The bytes that it may use; None if it has no limit.
        is_paused: Whether it takes no tasks, as it uses too much of its memory.
        is_busy: Whether it runs a task.
    """

    threads: int
    memory_limit: int | None
    is_paused: bool
    is_busy: bool


async def read_workers(client: Any) -> dict[str, WorkerState]:
    """Return what the scheduler knows of each worker by its address, from the client's event loop.

    `Client.scheduler_info` is documented. It blocks without limit, and from version 2025.4 to
    2026.6 it says of five workers only, unless it is asked for all; `identity` is what it calls.
    What is said of a worker is not documented.
    """
    from distributed import Scheduler

    # A scheduler before 2025.4 says of all, and knows no number; it has the version of the client.
    knows = "n_workers" in signature(Scheduler.identity).parameters
    said = await client.scheduler.identity(**({"n_workers": -1} if knows else {}))
    return {
        address: WorkerState(
            worker["nthreads"],
            worker["memory_limit"] or None,
            worker["status"] == "paused",
            bool(worker["metrics"].get("task_counts", {}).get("executing")),
        )
        for address, worker in said["workers"].items()
    }


def find_install_hint(scheme: str) -> str:
    """Return which package a scheme of URLs needs, as fsspec words it.

    The exception of fsspec says the same, but the exception of a store may hold credentials; the
    table of implementations holds none. Its key "err" is in no documentation.
    """
    from fsspec.registry import known_implementations

    hint: str = known_implementations.get(scheme, {}).get("err", "a package of fsspec is missing")
    return hint


def is_short_answer(error: Exception) -> bool:
    """Return whether a store sent another range than `obstore` asked for, and said so.

    All that has no exception of its own has one class, and only its text names this one, which
    `obstore` takes for final. Servers may do so in passing.
    """
    return type(error).__name__ == "GenericError" and "UnexpectedRange" in str(error)


def read_machine_memory() -> int:
    """Return the bytes that this process may use, with the limits of containers.

    `distributed.system` is in no documentation; it is what workers take their limits from.
    """
    from distributed.system import MEMORY_LIMIT

    limit: int = MEMORY_LIMIT
    return limit


# How workers send each other pieces of an exchange. Dask's own exchange between workers, of
# `distributed.shuffle`, does the same: a handler of the worker's server, called by its pool of
# connections, which use the cluster's TLS. Neither is in the documentation of workers, and there is
# no other way that sends from worker to worker what is no task's result.


def add_worker_operation(worker: Any, name: str, operation: Callable[..., Any]) -> None:
    """Let other workers call this coroutine function by its name."""
    worker.handlers[name] = operation


async def call_worker(worker: Any, address: str, name: str, what: dict[str, Any]) -> Any:
    """Call an operation of the worker at another address, from the event loop of this one."""
    return await getattr(worker.rpc(address), name)(**what)


def serialize_apart(content: bytes) -> Any:
    """Return what an operation answers with in place of large bytes, so that they are not copied.

    `to_serialize` is in no documentation.
    """
    from distributed.protocol import to_serialize

    return to_serialize(content)


def run_on_worker_loop(worker: Any, coroutine: Any, seconds: float) -> Any:
    """Run a coroutine on the event loop of a worker, from a thread of its tasks; await it.

    Args:
        worker: The worker.
        coroutine: The coroutine, which is cancelled when the time is over.
        seconds: How long to wait.

    Raises:
        TimeoutError: The coroutine did not end in time; in Python 3.10 that of concurrent.futures.
    """
    import asyncio

    running = asyncio.run_coroutine_threadsafe(coroutine, worker.loop.asyncio_loop)
    try:
        return running.result(seconds)
    finally:
        running.cancel()


def spawn_on_worker_loop(worker: Any, operation: Callable[[], Awaitable[None]]) -> None:
    """Run an operation in the background of a worker, until it ends or the worker closes.

    Event loops hold no task by themselves. The group of a worker's background tasks holds each one
    until it has ended, and cancels all of them when the worker closes.
    """

    async def run() -> None:
        try:
            await operation()
        except Exception as error:  # its words may quote what it worked with
            _LOG.warning("a background task of a worker failed (%s)", type(error).__name__)

    def start() -> None:
        group = worker._ongoing_background_tasks
        if not group.closed:
            group.call_soon(run)

    worker.loop.add_callback(start)


def is_running(worker: Any) -> bool:
    """Return whether a worker has not begun to close. Its status is in no documentation."""
    return worker.status.name in ("init", "running", "paused", "undefined")


async def knows_key(worker: Any, key: str) -> bool:
    """Return whether the scheduler has the result of a task, from the event loop of a worker."""
    holders = await worker.scheduler.who_has(keys=[key])
    return bool(holders.get(key))


async def knows_worker(worker: Any, address: str) -> bool:
    """Return whether the scheduler knows a worker, from the event loop of another one."""
    return address in await worker.scheduler.ncores()
