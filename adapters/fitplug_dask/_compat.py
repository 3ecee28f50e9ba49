"""Compatibility: all undocumented features of other libraries that this adapter uses.

tests/dask/test_compat.py fails when one of these features changes, or when another module of this
package uses an undocumented feature directly. The libraries are imported where they are used,
because importing `fitplug_dask` must not load any of them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from inspect import signature
from typing import Any, NamedTuple

_LOG = logging.getLogger(__name__)


def count_processors() -> int:
    """Return the number of processors that Dask's own schedulers assume.

    `dask.system` is undocumented. It is used because it respects the limits of containers, which
    `os.cpu_count` does not, and because Dask's threads default to it.
    """
    from dask.system import CPU_COUNT

    processors: int = CPU_COUNT
    return processors


class WorkerState(NamedTuple):
    """The state of a worker, as its scheduler knows it.

    Attributes:
        threads: The number of its threads.
        memory_limit: The memory that it may use, in bytes; None if there is no limit.
        is_paused: Whether it accepts no tasks because its memory is almost full.
        is_busy: Whether it is running a task.
    """

    threads: int
    memory_limit: int | None
    is_paused: bool
    is_busy: bool


async def read_workers(client: Any) -> dict[str, WorkerState]:
    """Return the state of each worker by its address. Run it on the client's event loop.

    The documented `Client.scheduler_info` may block forever, and from version 2025.4 to 2026.6 it
    describes only five workers unless asked for all. It calls `identity`, as this function does.
    The fields that describe a worker are undocumented.
    """
    from distributed import Scheduler

    # Before 2025.4, schedulers describe all workers and accept no `n_workers`. The scheduler has
    # the same version as the client.
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
    """Return fsspec's hint on which package a URL scheme needs.

    fsspec's exception gives the same hint, but a store's exception may contain credentials. The
    table of implementations contains none. Its key "err" is undocumented.
    """
    from fsspec.registry import known_implementations

    hint: str = known_implementations.get(scheme, {}).get("err", "a package of fsspec is missing")
    return hint


def is_short_answer(error: Exception) -> bool:
    """Return whether an error means that a store sent another range than `obstore` requested.

    `obstore` uses one generic class for all errors without a class of their own, so only the text
    identifies this one. `obstore` does not retry it, although it may be temporary.
    """
    return type(error).__name__ == "GenericError" and "UnexpectedRange" in str(error)


def read_machine_memory() -> int:
    """Return how much memory this process may use, in bytes, within the limits of containers.

    `distributed.system` is undocumented; workers take their limits from it.
    """
    from distributed.system import MEMORY_LIMIT

    limit: int = MEMORY_LIMIT
    return limit


# Workers send each other the pieces of an exchange as Dask's own `distributed.shuffle` does: by a
# handler of the worker's server, called through the worker's pool of connections, which use the
# cluster's TLS. Both are undocumented, but nothing else sends data between workers that are not
# the result of a task.


def add_worker_operation(worker: Any, name: str, operation: Callable[..., Any]) -> None:
    """Let other workers call a coroutine function by this name."""
    worker.handlers[name] = operation


async def call_worker(worker: Any, address: str, name: str, what: dict[str, Any]) -> Any:
    """Call an operation of the worker at `address`, from the event loop of `worker`."""
    return await getattr(worker.rpc(address), name)(**what)


def serialize_apart(content: bytes) -> Any:
    """Wrap large bytes in the answer of an operation, so that they are sent without a copy.

    `to_serialize` is undocumented.
    """
    from distributed.protocol import to_serialize

    return to_serialize(content)


def run_on_worker_loop(worker: Any, coroutine: Any, seconds: float) -> Any:
    """Run a coroutine on a worker's event loop and wait for its result, from a task's thread.

    Args:
        worker: The worker.
        coroutine: The coroutine, which is cancelled when the time is up.
        seconds: How long to wait.

    Raises:
        TimeoutError: The coroutine did not end in time. In Python 3.10 this is the class of
            concurrent.futures.
    """
    import asyncio

    running = asyncio.run_coroutine_threadsafe(coroutine, worker.loop.asyncio_loop)
    try:
        return running.result(seconds)
    finally:
        running.cancel()


def spawn_on_worker_loop(worker: Any, operation: Callable[[], Awaitable[None]]) -> None:
    """Run an operation in the background of a worker, until it ends or the worker closes.

    An event loop keeps only weak references to its tasks. A worker's group of background tasks
    refers to each task until it ends, and cancels all of them when the worker closes.
    """

    async def run() -> None:
        try:
            await operation()
        except Exception as error:  # its message may quote data
            _LOG.warning("a background task of a worker failed (%s)", type(error).__name__)

    def start() -> None:
        group = worker._ongoing_background_tasks
        if not group.closed:
            group.call_soon(run)

    worker.loop.add_callback(start)


def is_running(worker: Any) -> bool:
    """Return whether a worker has not begun to close. Its status is undocumented."""
    return worker.status.name in ("init", "running", "paused", "undefined")


async def knows_key(worker: Any, key: str) -> bool:
    """Return whether the scheduler has a task's result. Run it on the worker's event loop."""
    holders = await worker.scheduler.who_has(keys=[key])
    return bool(holders.get(key))


async def knows_worker(worker: Any, address: str) -> bool:
    """Return whether the scheduler knows another worker. Run it on `worker`'s event loop."""
    return address in await worker.scheduler.ncores()
