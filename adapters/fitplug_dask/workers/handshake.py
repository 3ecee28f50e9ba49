"""Handshake: refusing workers whose code differs from that of this process.

A process describes its code by digests of fitplug's sources and compiled loops, read when this
module is imported, and by the versions of the libraries. This reveals an old image, an incomplete
update, a local patch, or a worker that was not restarted after an update. It does not protect
against anyone who controls a worker.

The workers are asked once for each count, before any file is opened. Each task repeats the check,
so that workers that join later are refused as well.
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
"""Versions of libraries and digests of packages, by name."""

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
        packages: The packages whose code takes part.

    Returns:
        The versions of Python and of each library, and a digest of each installed package.
    """
    libraries = dict(_LIBRARIES)
    if "fitplug_opendp" in packages:
        libraries["OpenDP"] = "opendp"
    # The third number of a version counts corrections of Python that do not change the language.
    versions = {"Python": f"{sys.version_info[0]}.{sys.version_info[1]}"}
    for name, library in libraries.items():
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(library)
    return versions | {name: _DIGESTS[name] for name in (*packages, _LOOPS) if name in _DIGESTS}


def list_differences(here: Code, there: Code) -> list[str]:
    """Describe what another process lacks or has in another version."""
    said = []
    for name, wanted in here.items():
        present = there.get(name)
        if name == _LOOPS and present and present.split()[0] != wanted.split()[0]:
            continue  # on another platform, the compiled bytes differ
        if present is None:
            said.append(f"no {name}")
        elif present != wanted and name in _DIGESTS:
            said.append(f"different {name}")
        elif present != wanted:
            said.append(f"{name} {present}, not {wanted}")
    return said


def describe_refusal(differences: dict[str, list[str]]) -> str:
    """Return the message that refuses workers.

    Args:
        differences: What differs, by the address of the worker.
    """
    named = [f"{worker}: {'; '.join(said)}" for worker, said in sorted(differences.items())]
    count = "a worker" if len(named) == 1 else f"{len(named)} workers"
    return (
        f"fitplug or its libraries on {count} differ from this process. Install the same "
        f'"fitplug[dask]" there, and restart: {join_names(named, " | ")}'
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
"""The digests of the files at the time when this process imported this module."""


_POLL_SECONDS = 0.2
_ROUNDS = 5
_NO_IMPORT = "it cannot import this version of fitplug_dask"


def inspect_workers(client: Any, packages: tuple[str, ...]) -> dict[str, WorkerState]:
    """Check that all current workers have the code of this process.

    Args:
        client: A client of dask.distributed. A task must be waiting meanwhile, because a cluster
            that scales from zero would otherwise start no worker, or end it before it answers.
        packages: The packages whose code takes part.

    Returns:
        The state of each worker by its address; at least one.

    Raises:
        FitplugError: A worker's code differs, a worker or the cluster does not answer, or no worker
            joins. The message names the workers that differ, and what differs.
    """
    limit = read_timeout()
    end = time.monotonic() + _ROUNDS * limit
    none_since = time.monotonic()
    while True:
        # Each request has its own limit. This one limits them all, if new workers keep joining.
        left = max(1.0, end - time.monotonic())
        workers, answers = ask(client, partial(_visit_all, client, packages, limit), left)
        if answers:
            break
        now = time.monotonic()
        if workers:
            none_since = now
        if now - none_since > limit:
            raise FitplugError(
                f"no worker joined the cluster within {limit:g} s. Start workers, or raise Dask's "
                "setting fitplug.timeout."
            )
        if now > end:
            raise FitplugError(
                f"within {_ROUNDS * limit:g} s, every worker left the cluster. Keep at least "
                "one worker, for example with cluster.adapt(minimum=1)."
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
            f"some workers did not answer within {limit:g} s ({join_names(silent)}). Stop these "
            "workers, or raise Dask's setting fitplug.timeout."
        )
    return {worker: workers[worker] for worker in answers}


async def _visit_all(
    client: Any, packages: tuple[str, ...], seconds: float
) -> tuple[dict[str, WorkerState], dict[str, Code | str | None]]:
    """Ask all workers at once for their code. Tasks check workers that join later.

    Returns:
        The workers; and for each worker that has not left, its code, a text that explains why the
        code is unknown, or None if it does not answer.
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
        The answer of this worker, as in `_visit_all`; an empty dict if the worker is lost.
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
