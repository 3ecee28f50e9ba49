"""The insides of Dask, Distributed and fsspec that `fitplug_dask._compat` uses: a release of these
libraries that changes one fails here, and not first in a count.
"""

from __future__ import annotations

import ast
import asyncio
import concurrent.futures
import gc
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster, Scheduler, SpecCluster, Worker

import fitplug_dask
from fitplug_dask import _compat
from fitplug_dask.exchange import measure_memory, run
from fitplug_dask.workers import open_runner
from fitplug_dask.workers.limits import list_workers

PACKAGE = Path(fitplug_dask.__file__).parent
UNDOCUMENTED = (
    "dask.system",
    "dask.callbacks",
    "dask.local",
    "distributed.protocol",
    "distributed.system",
    "fsspec.registry",
)
LIBRARIES = ("dask", "distributed", "fsspec", "pyarrow")


def test_processors_are_the_default_number_of_threads_of_dask() -> None:
    processors = _compat.count_processors()
    assert isinstance(processors, int)
    assert processors >= 1
    names = set()
    barrier = threading.Barrier(processors)

    def work() -> None:
        barrier.wait(20)  # all threads at once, or none ends
        names.add(threading.current_thread().name)

    dask.compute(*[dask.delayed(work)() for _ in range(processors)], scheduler="threads")
    assert len(names) == processors


def start_seven(*memory_limits: int) -> SpecCluster:
    """Seven workers, which are more than some versions of Dask tell of unless they are asked to."""
    limits = [memory_limits[i % len(memory_limits)] for i in range(7)]
    specs = {i: {"cls": Worker, "options": {"memory_limit": n}} for i, n in enumerate(limits)}
    scheduler = {"cls": Scheduler, "options": {"dashboard_address": ":0"}}
    return SpecCluster(workers=specs, scheduler=scheduler)


def test_the_scheduler_tells_the_state_of_each_worker() -> None:
    # A worker is paused where this process, in which all of them run, takes most of its limit.
    least = 4 * 10**9
    limits = [2 * least] * 6 + [least]
    with start_seven(*limits) as cluster, Client(cluster) as client:
        states = list_workers(client).values()
        assert sorted(state.memory_limit for state in states) == sorted(limits)
        assert not any(state.is_paused or state.is_busy for state in states)
        runner = open_runner(client)
        assert runner.memory == least
        assert runner.threads == 7 * runner.process_threads
        assert measure_memory(runner) == run.MEMORY_SHARE * least
    with start_seven(0, 0, 10**8, 10**9) as cluster, Client(cluster) as client:
        assert open_runner(client).memory == 10**8  # of those that have a limit
    with start_seven(0) as cluster, Client(cluster) as client:
        assert [state.memory_limit for state in list_workers(client).values()] == [None] * 7
        assert open_runner(client).memory == open_runner(None).memory


@contextmanager
def one_worker() -> Iterator[tuple[Client, Any]]:
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client, cluster.workers[0]


def test_a_coroutine_on_a_worker_that_never_ends_is_cancelled() -> None:
    ended = threading.Event()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def answer() -> int:
        return 7

    with one_worker() as (_, worker):
        assert _compat.run_on_worker_loop(worker, answer(), 60) == 7
        with pytest.raises(concurrent.futures.TimeoutError):
            _compat.run_on_worker_loop(worker, hang(), 0.1)
        assert ended.wait(60)


def test_what_runs_in_the_background_of_a_worker_is_held_and_ends_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun, ended = threading.Event(), threading.Event()
    held: list[weakref.ref[Any]] = []

    async def stay() -> None:
        future = asyncio.get_running_loop().create_future()  # which nothing else holds
        held.append(weakref.ref(future))
        begun.set()
        try:
            await future
        finally:
            ended.set()

    async def fail() -> None:
        raise ValueError("a secret")

    with one_worker() as (_, worker):
        _compat.spawn_on_worker_loop(worker, fail)
        _compat.spawn_on_worker_loop(worker, stay)
        assert begun.wait(60)
        gc.collect()
        assert held[0]() is not None
        assert not ended.is_set()
    assert ended.is_set()
    _compat.spawn_on_worker_loop(worker, stay)  # which does nothing, as the worker is closed
    assert "background task of a worker failed (ValueError)" in caplog.text
    assert "a secret" not in caplog.text
    assert "never" not in caplog.text  # awaited, or retrieved


def test_fsspec_says_which_package_a_scheme_needs() -> None:
    assert "ossfs" in _compat.find_install_hint("oss").lower()
    assert _compat.find_install_hint("unheard-of") == "a package of fsspec is missing"


def imported_modules(tree: ast.AST) -> set[str]:
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            modules |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
        elif isinstance(node, ast.Import):
            modules |= {name.name for name in node.names}
    return {module for module in modules if module.split(".")[0] in LIBRARIES}


def test_no_other_module_uses_an_inside() -> None:
    """Neither undocumented modules nor names with an underscore that are not its own."""
    for path in PACKAGE.rglob("*.py"):
        if path.name == "_compat.py":
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for module in imported_modules(tree):
            assert not module.startswith(UNDOCUMENTED), (path, module)
            assert not any(name.startswith("_") for name in module.split(".")), (path, module)
        functions = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Attribute) or not node.attr.startswith("_"):
                continue
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            own = own or node.attr in functions
            documented = node.attr == "_replace" or node.attr.startswith("__")
            assert own or documented, (path, node.attr)
