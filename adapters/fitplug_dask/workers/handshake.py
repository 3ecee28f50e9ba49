"""Handshake: every worker has the code of this process, or it is refused by name.

A process describes itself by the digests of fitplug's sources and compiled loops, read when this
module is imported, and by the versions of the libraries. An old image, half an update, a local
patch or a worker that was not restarted after an update are found this way. It does not protect
against anyone who controls a worker.

The workers are asked once for each count, before any file is looked at. Each task repeats the
check, so a worker that comes later is refused, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import sys
import time
from collections.abc import Iterator
from functools import lru_cache, partial
from importlib import metadata, util
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any, TypeAlias

from fitplug.errors import FitplugError
from fitplug_dask._compat import WorkerState, read_workers
from fitplug_dask.workers.limits import ask, read_timeout

Code: TypeAlias = dict[str, str]
"""Versions and digests by the name of what they are of."""

COUNTING_PACKAGES = ("fitplug", "fitplug_dask")
"""The packages that take part in counting."""

_LOOPS = "compiled loops"
_SUFFIXES = {".py", ".pyx"}
_LIBRARIES = {"NumPy": "numpy", "PyArrow": "pyarrow", "Dask": "dask", "Distributed": "distributed"}
_NAMED = 3


@lru_cache(maxsize=4)
def describe_code(packages: tuple[str, ...] = COUNTING_PACKAGES) -> Code:
    """Describe the code of this process.

    Args:
        packages: The packages that take part.

    Returns:
        The version of Python and of each library, and a digest for each package that is installed.
    """
    libraries = dict(_LIBRARIES)
    if "fitplug_opendp" in packages:
        libraries["OpenDP"] = "opendp"
    # A third number stands for corrections of Python, which leave the meaning of code as it is.
    versions = {"Python": f"{sys.version_info[0]}.{sys.version_info[1]}"}
    for name, library in libraries.items():
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(library)
    return versions | {name: _DIGESTS[name] for name in (*packages, _LOOPS) if name in _DIGESTS}


def list_differences(here: Code, there: Code) -> list[str]:
    """List in words what another process lacks or has otherwise."""
    said = []
    for name, wanted in here.items():
        present = there.get(name)
        if name == _LOOPS and present and present.split()[0] != wanted.split()[0]:
            continue  # those of another platform have other bytes
        if present is None:
            said.append(f"no {name}")
        elif present != wanted and name in _DIGESTS:
            said.append(f"another {name}")
        elif present != wanted:
            said.append(f"{name} {present}, not {wanted}")
    return said


def describe_refusal(differences: dict[str, list[str]]) -> str:
    """Return the words that refuse workers, by what differs on each.

    Args:
        differences: What differs, by the addresses of the workers.
    """
    named = [f"{worker}: {'; '.join(said)}" for worker, said in sorted(differences.items())]
    count = "a worker" if len(named) == 1 else f"{len(named)} workers"
    return (
        f"{count} must not count, as not all of the code is that of this process; install the "
        f'same version of "fitplug[dask]" and its libraries there, and restart the worker: '
        f"{join_names(named, ' | ')}"
    )


def join_names(names: list[str], separator: str = ", ") -> str:
    """Join the first few names."""
    more = len(names) - _NAMED
    return separator.join(names[:_NAMED]) + (f"{separator}and {more} more" if more > 0 else "")


def _digest_code() -> Iterator[tuple[str, str]]:
    """Yield the SHA-256 of each package's sources, and of the compiled loops, by name."""
    for package in (*COUNTING_PACKAGES, "fitplug_opendp"):
        spec = util.find_spec(package)
        if spec is None or spec.origin is None:
            continue
        folder = Path(spec.origin).resolve().parent
        digest = hashlib.sha256()
        for path in sorted(folder.rglob("*.py*")):
            if path.suffix in _SUFFIXES:
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                digest.update(f"{path.relative_to(folder).as_posix()} {content}\n".encode())
        yield package, digest.hexdigest()
        loops = folder / f"compiled_loops{EXTENSION_SUFFIXES[0]}"
        if loops.is_file():
            digest = hashlib.sha256(loops.read_bytes())
            yield _LOOPS, f"{EXTENSION_SUFFIXES[0]} {digest.hexdigest()}"


_DIGESTS = dict(_digest_code())
"""Of the files as they were when this process imported this module."""


_POLL_SECONDS = 0.2
_ROUNDS = 5
_NO_IMPORT = "it cannot import fitplug_dask of this version"


def inspect_workers(client: Any, packages: tuple[str, ...]) -> dict[str, WorkerState]:
    """Check that all workers that are there have the code of this process.

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
    none_since = time.monotonic()
    while True:
        # Each request has its own limit. This one is for the whole, where workers come often.
        left = max(1.0, end - time.monotonic())
        workers, answers = ask(client, partial(_visit_all, client, packages, limit), left)
        if answers:
            break
        now = time.monotonic()
        if workers:
            none_since = now
        if now - none_since > limit:
            raise FitplugError(
                f"the cluster has no worker, and none came within {limit:g} s; start workers that "
                "connect to this scheduler, or allow more time by the setting fitplug.timeout of "
                "Dask"
            )
        if now > end:
            raise FitplugError(
                f"for {_ROUNDS * limit:g} s, all workers left before fitplug could inspect them; "
                "let the cluster keep a worker, for example by cluster.adapt(minimum=1)"
            )
        time.sleep(_POLL_SECONDS)
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
    return {worker: workers[worker] for worker in answers}


async def _visit_all(
    client: Any, packages: tuple[str, ...], seconds: float
) -> tuple[dict[str, WorkerState], dict[str, Code | str | None]]:
    """Ask all workers at once for their code. Those that come later are refused by their tasks.

    Returns:
        The workers, and of each that did not leave its code, or words that say why it is unknown,
        or None if it does not answer.
    """
    workers = await asyncio.wait_for(read_workers(client), seconds)
    answers: dict[str, Code | str | None] = {}
    visits = (_visit(client, packages, worker, seconds) for worker in workers)
    for answer in await asyncio.gather(*visits):
        answers |= answer
    return workers, answers


async def _visit(
    client: Any, packages: tuple[str, ...], worker: str, seconds: float
) -> dict[str, Code | str | None]:
    """Ask one worker for its code, again if the connection fails.

    Returns:
        What `_visit_all` returns of this worker; nothing if the worker is lost.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answer: Any = None
        with contextlib.suppress(Exception):
            asked = client.run(describe_code, packages, workers=[worker], on_error="return")
            answer = (await asyncio.wait_for(asked, end - time.monotonic())).get(worker)
        if isinstance(answer, dict):
            return {worker: answer}
        if isinstance(answer, Exception) and not isinstance(answer, OSError):
            return {worker: _NO_IMPORT}
        await asyncio.sleep(_POLL_SECONDS)
        if worker not in await read_workers(client):
            return {}
    return {worker: None}
