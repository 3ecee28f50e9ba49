"""Schedulers, workers and clients that start fast, as copies of a process that has all imports."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["distributed", "numpy", "pyarrow.parquet", "fitplug_dask.counting", "fitplug_dask.persons"]
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


def start_scheduler(start: Callable[..., BaseProcess]) -> tuple[str, BaseProcess]:
    """Start a scheduler and return its address."""
    here, there = CONTEXT.Pipe(duplex=False)
    process = start(_run_scheduler, there)
    assert here.poll(60)
    return here.recv(), process


def run_worker(scheduler: str) -> None:
    asyncio.run(_run_worker(scheduler))


def _run_scheduler(address: Any) -> None:
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
