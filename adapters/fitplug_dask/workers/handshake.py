"""Handshake: every worker has the code of this process, or it is refused by name.

The workers are asked once for each count, before any file is looked at. Each task repeats the
check, so a worker that comes later is refused, too.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from functools import lru_cache, partial
from typing import Any
from urllib.parse import urlsplit

from fitplug.errors import FitplugError
from fitplug_dask._compat import WorkerState, read_workers
from fitplug_dask.workers.code import (
    Code,
    describe_code,
    describe_refusal,
    join_names,
    list_differences,
)
from fitplug_dask.workers.limits import ask, list_workers, read_timeout

_POLL_SECONDS = 0.2
_ROUNDS = 5
_NO_IMPORT = "it cannot import fitplug_dask of this version"


def inspect_workers(client: Any, packages: tuple[str, ...]) -> dict[str, WorkerState]:
    """Check that all workers have the code of this process, also those that come meanwhile.

    Args:
        client: A client of dask.distributed. Something must demand a worker meanwhile, or a
            cluster that scales from zero would have none, or end it before it answers.
        packages: The packages whose code takes part.

    Returns:
        What the scheduler knows of each worker, by its address; at least one.

    Raises:
        FitplugError: A worker differs or does not answer, none comes, or the cluster does not
            answer. The message names each worker that differs, and what differs.
    """
    limit = read_timeout()
    end = time.monotonic() + _ROUNDS * limit
    while True:
        _await_worker(client, limit)
        left = end - time.monotonic()
        if left <= 0:
            raise FitplugError(
                f"for {_ROUNDS * limit:g} s, all workers left before fitplug could inspect them; "
                "let the cluster keep a worker, for example by cluster.adapt(minimum=1)"
            )
        # Each request has its own limit. This one is for the whole, where workers come often.
        workers, answers = ask(client, partial(_visit_all, client, packages, limit), left)
        if workers:
            break
    expected = describe_code(packages)
    differences = {
        worker: [answer] if isinstance(answer, str) else list_differences(expected, answer)
        for worker, answer in answers.items()
        if answer is not None
    }
    differences = {worker: said for worker, said in differences.items() if said}
    if differences:
        raise FitplugError(describe_refusal(differences))
    silent = sorted(worker for worker, answer in answers.items() if answer is None)
    if silent:
        raise FitplugError(
            f"the cluster has workers that do not answer within {limit:g} s "
            f"({join_names(silent)}); end them, or allow more time by the setting fitplug.timeout "
            "of Dask"
        )
    _warn_without_tls(frozenset(workers))
    return workers


def _await_worker(client: Any, limit: float) -> None:
    """Wait until the cluster has a worker. Raises FitplugError if none comes in time."""
    end = time.monotonic() + limit
    while not list_workers(client):
        if time.monotonic() > end:
            raise FitplugError(
                f"the cluster has no worker, and none came within {limit:g} s; start workers that "
                "connect to this scheduler, or allow more time by the setting fitplug.timeout of "
                "Dask"
            )
        time.sleep(_POLL_SECONDS)


async def _visit_all(
    client: Any, packages: tuple[str, ...], seconds: float
) -> tuple[dict[str, WorkerState], dict[str, Code | str | None]]:
    """Ask all workers at once for their code, and leave out those that are lost meanwhile.

    Returns:
        The workers, and of each its code, or words that say why it is unknown, or None if it does
        not answer.
    """
    visits: dict[str, asyncio.Task[Code | str | None]] = {}
    try:
        while True:
            workers = await asyncio.wait_for(read_workers(client), seconds)
            for worker in workers:
                if worker not in visits:
                    asked = _visit(client, packages, worker, seconds)
                    visits[worker] = asyncio.ensure_future(asked)
            waiting = [visits[worker] for worker in workers if not visits[worker].done()]
            if not waiting:
                return workers, {worker: visits[worker].result() for worker in workers}
            await asyncio.wait(waiting, timeout=_POLL_SECONDS)
    finally:
        for task in visits.values():
            task.cancel()


async def _visit(
    client: Any, packages: tuple[str, ...], worker: str, seconds: float
) -> Code | str | None:
    """Ask one worker for its code, again if the connection fails."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answer: Any = None
        try:
            asked = client.run(describe_code, packages, workers=[worker], on_error="return")
            answer = (await asyncio.wait_for(asked, end - time.monotonic())).get(worker)
        except Exception:
            answer = None
        if isinstance(answer, dict):
            return answer
        if isinstance(answer, Exception) and not isinstance(answer, OSError):
            return _NO_IMPORT
        await asyncio.sleep(_POLL_SECONDS)
    return None


@lru_cache(maxsize=1)
def _warn_once() -> None:
    warnings.warn(
        "the workers of this cluster are on several hosts and have no TLS: whoever reaches their "
        "ports can read counts and run code there; set up TLS as Dask's documentation describes, "
        "or keep the network private",
        UserWarning,
        stacklevel=2,
    )


def _warn_without_tls(addresses: frozenset[str]) -> None:
    """Warn, once in a process, of workers on several hosts that talk without TLS."""
    places = [urlsplit(address) for address in addresses]
    hosts = {place.hostname for place in places if place.scheme == "tcp"}
    if len(hosts) > 1:
        _warn_once()
