"""Handshake: every worker has the code of this process, or it is refused by name."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from fitplug.errors import FitplugError
from fitplug_dask.workers.code import (
    COUNTING_PACKAGES,
    Code,
    describe_code,
    describe_refusal,
    join_names,
    list_differences,
)
from fitplug_dask.workers.patience import ask, await_workers, demand_worker, read_threads
from fitplug_dask.workers.settings import read_timeout

_RETRY_SECONDS = 0.2
_ROUNDS = 5

_Answer: TypeAlias = Code | str | None
"""The code of a worker, or words that say why it is unknown, or None if the worker does not answer.
"""

Visitor: TypeAlias = Callable[[], Code]


def check_workers(client: Any, packages: tuple[str, ...] = COUNTING_PACKAGES) -> Code:
    """Check that all workers have the code of this process.

    Args:
        client: A client of dask.distributed.
        packages: The packages whose code takes part.

    Returns:
        What workers that come later must have, too.

    Raises:
        FitplugError: A worker differs, none comes, or the cluster does not answer. The message
            names each worker that differs, and what differs.
    """
    expected = describe_code(packages)
    found = _ask_all(client, packages)
    differences = {
        worker: [answer] if isinstance(answer, str) else list_differences(expected, answer)
        for worker, answer in found.items()
        if answer is not None
    }
    differences = {worker: said for worker, said in differences.items() if said}
    if differences:
        raise FitplugError(describe_refusal(differences))
    silent = sorted(worker for worker, answer in found.items() if answer is None)
    if silent:
        raise FitplugError(
            f"the cluster has workers that do not answer within {read_timeout():g} s "
            f"({join_names(silent)}); end them, or allow more time by the setting fitplug.timeout "
            "of Dask"
        )
    return expected


def _ask_all(client: Any, packages: tuple[str, ...]) -> dict[str, _Answer]:
    """Ask each worker for its code, also those that come meanwhile."""
    visitor = partial(describe_code, packages)
    limit = read_timeout()
    end = time.monotonic() + _ROUNDS * limit
    read_threads(client)  # or a client that is closed would raise an error of Dask
    demand = demand_worker(client)
    try:
        while (left := end - time.monotonic()) > 0:
            await_workers(client)
            # Each request has its own limit. This one is for the whole, where workers come often.
            answers = ask(client, partial(_visit_all, client, visitor, limit), left)
            if answers:
                return answers
    finally:
        demand.release()
    raise FitplugError(
        f"for {_ROUNDS * limit:g} s, all workers left before fitplug could inspect them; let the "
        "cluster keep a worker, for example by cluster.adapt(minimum=1)"
    )


async def _visit_all(client: Any, visitor: Visitor, seconds: float) -> dict[str, _Answer]:
    """Run the visitor on all workers at once, and leave out those that are lost meanwhile."""
    visits: dict[str, asyncio.Task[_Answer]] = {}
    try:
        while True:
            present = await asyncio.wait_for(client.nthreads(), seconds)
            for worker in present:
                if worker not in visits:
                    visits[worker] = asyncio.ensure_future(_visit(client, visitor, worker, seconds))
            waiting = [visits[worker] for worker in present if not visits[worker].done()]
            if not waiting:
                return {worker: visits[worker].result() for worker in present}
            await asyncio.wait(waiting, timeout=_RETRY_SECONDS)
    finally:
        for visit in visits.values():
            visit.cancel()


async def _visit(client: Any, visitor: Visitor, worker: str, seconds: float) -> _Answer:
    """Run the visitor on one worker, again if the connection fails."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answer: Any = None
        try:
            asked = client.run(visitor, workers=[worker], on_error="return")
            answer = (await asyncio.wait_for(asked, end - time.monotonic())).get(worker)
        except Exception:
            answer = None
        if isinstance(answer, dict):
            return answer
        if isinstance(answer, Exception) and not isinstance(answer, OSError):
            return "it cannot import fitplug_dask of this version"
        await asyncio.sleep(_RETRY_SECONDS)
    return None
