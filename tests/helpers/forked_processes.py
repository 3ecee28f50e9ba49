"""Schedulers, workers, clients and commands that start fast, from a process with all imports."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryDirectory
from typing import Any

import distributed  # noqa: F401 (it sets what is imported, too, so this must come before)

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "distributed",
        "matplotlib.figure",
        "numpy",
        "opendp.prelude",
        "pyarrow.parquet",
        "fitplug_cli.main",
        "fitplug_cli.render.page",
        "fitplug_dask.counting",
        "fitplug_dask.persons",
    ]
)


@contextmanager
def forked() -> Iterator[Callable[..., BaseProcess]]:
    """Start functions in processes that end with the block."""
    started: list[BaseProcess] = []

    def start(function: Callable[..., None], *arguments: Any) -> BaseProcess:
        process = CONTEXT.Process(target=function, args=arguments, daemon=True)
        process.start()
        started.append(process)
        return process

    try:
        yield start
    finally:
        for process in started:
            process.kill()
            process.join(30)


def start_scheduler(
    start: Callable[..., BaseProcess], settings: dict[str, Any] | None = None
) -> tuple[str, BaseProcess]:
    """Start a scheduler with these settings of Dask, and return its address."""
    here, there = CONTEXT.Pipe(duplex=False)
    process = start(_run_scheduler, there, settings or {})
    assert here.poll(60)
    return here.recv(), process


def run_worker(scheduler: str) -> None:
    asyncio.run(_run_worker(scheduler))


def _run_scheduler(address: Any, settings: dict[str, Any]) -> None:
    from dask import config

    with config.set(settings):
        asyncio.run(_serve(address))


async def _serve(address: Any) -> None:
    from distributed import Scheduler

    async with Scheduler(host="127.0.0.1", port=0, dashboard=False) as scheduler:
        address.send(scheduler.address)
        await scheduler.finished()


async def _run_worker(scheduler: str) -> None:
    from distributed import Worker

    async with Worker(scheduler, nthreads=1, dashboard=False) as worker:
        await worker.finished()


def run_command(*arguments: object, cwd: str | Path) -> CompletedProcess[str]:
    """Run the command `fitplug` in a process of its own."""
    with TemporaryDirectory() as folder:
        written = [Path(folder) / name for name in ("out", "err")]
        given = list(map(str, arguments)), str(cwd), *map(str, written)
        process = CONTEXT.Process(target=_run_command, args=given)
        process.start()
        process.join()
        out, err = (path.read_text(encoding="utf-8") for path in written)
    return CompletedProcess(["fitplug", *given[0]], process.exitcode or 0, out, err)


def _run_command(arguments: list[str], cwd: str, out: str, err: str) -> None:
    from fitplug_cli import main

    for number, path in ((1, out), (2, err)):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)
    # Buffered as in a process whose output goes to files.
    sys.stdout, sys.stderr = (os.fdopen(n, "w", encoding="utf-8") for n in (1, 2))
    sys.argv = ["fitplug", *arguments]
    os.chdir(cwd)
    main.main()
