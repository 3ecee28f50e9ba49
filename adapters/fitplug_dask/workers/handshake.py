"""Handshake: every worker has the code of this process, or it is refused by name."""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from fitplug.errors import FitplugError
from fitplug_dask.workers import inspection
from fitplug_dask.workers.inspection import (
    LIBRARIES,
    describe_code,
    describe_refusal,
    join_names,
    list_differences,
    reduce_to_text,
)
from fitplug_dask.workers.patience import ask, await_workers, demand_worker, read_threads
from fitplug_dask.workers.settings import read_timeout

_LOG = logging.getLogger(__name__)

COUNTING_PACKAGES = ("fitplug", "fitplug_dask")
"""The packages that take part in counting."""

_RETRY_SECONDS = 0.2
_ROUNDS = 5

_Answer: TypeAlias = dict[str, Any] | str | None
"""What `describe_code` returned on a worker, or words that say why it did not, or None if the
worker does not answer.
"""


class SentText:
    """What a worker makes by calling a function of `inspection`, whose text it is sent."""

    def __init__(self, name: str, *arguments: Any) -> None:
        """Keep the name of the function and its arguments after the text."""
        self._name, self._arguments = name, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as text, never as a reference to a module that the worker has."""
        text = Path(inspection.__file__).read_text(encoding="utf-8")
        return eval, reduce_to_text(self._name, text, *self._arguments)

    def __call__(self) -> Any:
        """Do nothing: only what a worker makes of this is called."""
        raise NotImplementedError


def make_guard(expected: dict[str, Any]) -> SentText:
    """Return what becomes, on a worker, the `Guard` that inspects it and runs tasks."""
    return SentText("Guard", expected, *_list_inspected(expected))


def check_workers(
    client: Any, packages: tuple[str, ...] = COUNTING_PACKAGES, *, warn: bool = False
) -> dict[str, Any]:
    """Check that all workers have the code of this process.

    Args:
        client: A client of dask.distributed.
        packages: The packages whose code takes part.
        warn: Whether to log a warning of workers without the compiled modules of this process. A
            count inspects workers more than once, and should warn once.

    Returns:
        What workers that come later must have, too.

    Raises:
        FitplugError: A worker differs, none comes, or the cluster does not answer. The message
            names each worker that differs, and what differs.
    """
    libraries = dict(LIBRARIES)
    if "fitplug_opendp" in packages:
        libraries["OpenDP"] = "opendp"
    here = describe_code(packages, libraries)
    expected = {**here, "compiled": dict(here["compiled"])}
    stale = list_differences(expected, here)
    if stale:
        raise FitplugError(
            f"this process cannot tell which code workers must have: {'; '.join(stale)}"
        )
    found = _ask_all(client, expected)
    for warning in _agree_on_compiled(expected, here, found):
        if warn:
            _LOG.warning(warning)
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


def _list_inspected(expected: dict[str, Any]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the packages and the libraries that are inspected."""
    names = {**LIBRARIES, "OpenDP": "opendp"}
    libraries = {name: names[name] for name in expected["versions"] if name in names}
    return tuple(expected["files"]), libraries


def _ask_all(client: Any, expected: dict[str, Any]) -> dict[str, _Answer]:
    """Ask each worker for its code, also those that come meanwhile."""
    visitor = SentText("make_visitor", *_list_inspected(expected))
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


async def _visit_all(client: Any, visitor: SentText, seconds: float) -> dict[str, _Answer]:
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


async def _visit(client: Any, visitor: SentText, worker: str, seconds: float) -> _Answer:
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
            return f"it cannot tell which code it has ({type(answer).__name__})"
        await asyncio.sleep(_RETRY_SECONDS)
    return None


def _agree_on_compiled(
    expected: dict[str, Any], here: dict[str, Any], found: dict[str, _Answer]
) -> list[str]:
    """Add compiled modules that this process does not have to what is expected.

    Those of another platform cannot be compared with those of this process. They must then be the
    same on all workers of that platform. Workers without compiled modules use NumPy and Python,
    with the same results.

    Returns:
        Warnings about workers whose compiled modules are not those of this process.
    """
    warnings = []
    for worker, answer in sorted(found.items()):
        if not isinstance(answer, dict) or answer["files"]["fitplug_dask"] is None:
            continue
        if len(answer["compiled"]) < len(here["compiled"]):
            warnings.append(f"{worker} lacks compiled modules: it counts with Python, slowly")
        for name, digest in answer["compiled"].items():
            if name not in expected["compiled"]:
                warnings.append(f"the compiled {name} can only be compared with that of {worker}")
                expected["compiled"][name] = digest
    return warnings
