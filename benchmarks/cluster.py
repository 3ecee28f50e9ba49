"""What a count of many tasks costs a cluster: messages, memory and processor time.

python benchmarks/cluster.py > benchmarks/cluster.md
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client
from markdown_table import heading, line

import fitplug as fp
import fitplug_dask as fpd
from fitplug_dask.workers import cluster

FILES = 48
TASK_ROWS = 2_000
WORKERS = 2

ABOUT = """# A cluster

A tree of {leaves:,} leaves is counted over {tasks:,} partitions of {rows:,} rows in {files} files,
by {workers} workers of one thread. Scheduler, workers and client are processes of one machine. The
domain, which the messages of tasks do not contain, takes {job:.1f} MB and is sent once. A task that
reads is a message of {message:,} bytes. Memory is the resident set of the process.

    python benchmarks/cluster.py > benchmarks/cluster.md
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leaves", type=int, default=400_000)
    parser.add_argument("--tasks", type=int, default=4_800)
    asked = parser.parse_args()
    leaves = [f"{i // 100:05}{i:07}" for i in range(asked.leaves)]
    tree = fp.Hierarchy({"county": 5, "block": 12}, leaves)
    domain = fp.Domain({"block": tree})
    sizes = watch_messages()
    with tempfile.TemporaryDirectory() as folder:
        write_rows(Path(folder), np.array(leaves), asked.tasks)
        port = find_port()
        started = [run("scheduler", "--host", "127.0.0.1", "--port", port)]
        try:
            address = f"tcp://127.0.0.1:{port}"
            started += [run("worker", address, "--nthreads", "1", "--no-nanny") for _ in "12"]
            with (
                Client(address) as client,
                dask.config.set({"fitplug.rows-per-task": TASK_ROWS}),
            ):
                client.wait_for_workers(WORKERS)
                names = ["scheduler", *(f"worker {i + 1}" for i in range(WORKERS)), "client"]
                pids = [*(process.pid for process in started), None]
                watched = {n: psutil.Process(p) for n, p in zip(names, pids, strict=True)}
                before, peak, seconds = watch_count(client, watched, folder, domain)
        finally:
            for process in started:
                process.kill()
                process.wait()
    job = max(sizes) / 2**20
    message = int(np.median(sizes))
    told = {"leaves": asked.leaves, "tasks": asked.tasks, "rows": TASK_ROWS, "files": FILES}
    print(ABOUT.format(**told, workers=WORKERS, job=job, message=message))
    print(heading(["process", "MB before", "MB at most", "processor seconds"]))
    for name in watched:
        figures = (before[name] / 2**20, peak[name] / 2**20, seconds[name])
        print(line([name, *(f"{figure:,.0f}" for figure in figures)]))


def watch_messages() -> list[int]:
    """Return a list that will hold the bytes of what tasks take."""
    sizes: list[int] = []

    def measure(seal: Callable[..., Any]) -> Callable[..., Any]:
        def seal_and_measure(*given: Any) -> Any:
            sealed = seal(*given)
            sizes.append(sealed.getbuffer().nbytes)
            return sealed

        return seal_and_measure

    cluster.seal_task = measure(cluster.seal_task)
    cluster.seal_shared = measure(cluster.seal_shared)
    return sizes


def write_rows(folder: Path, leaves: np.ndarray, tasks: int) -> None:
    rng = np.random.default_rng(1)
    for i in range(FILES):
        rows = rng.integers(0, len(leaves), tasks // FILES * TASK_ROWS)
        table = pa.table({"block": pa.array(leaves[rows])})
        pq.write_table(table, folder / f"{i}.parquet", row_group_size=TASK_ROWS)


def find_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def run(kind: str, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *options, "--no-dashboard"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def watch_count(
    client: Client, watched: dict[str, psutil.Process], folder: str, domain: fp.Domain
) -> tuple[dict[str, int], dict[str, int], dict[str, float]]:
    """Return the memory before and at most, and the processor seconds, of each process."""
    before = {name: process.memory_info().rss for name, process in watched.items()}
    began = {name: sum(process.cpu_times()[:2]) for name, process in watched.items()}
    peak, ended = dict(before), threading.Event()

    def look() -> None:
        while not ended.wait(0.05):
            for name, process in watched.items():
                peak[name] = max(peak[name], process.memory_info().rss)

    looking = threading.Thread(target=look)
    looking.start()
    start = time.perf_counter()
    fpd.count(folder, (domain, [("block",)]), client=client)
    print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr)
    ended.set()
    looking.join()
    seconds = {name: sum(p.cpu_times()[:2]) - began[name] for name, p in watched.items()}
    return before, peak, seconds


if __name__ == "__main__":
    main()
