"""Memory: how many bytes of rows a process may hold while they are exchanged."""

from __future__ import annotations

from typing import Any

from fitplug_dask._compat import read_machine_memory
from fitplug_dask.workers import Fault, attempt, list_workers

MEMORY_SHARE = 0.2
"""The fraction of the memory of a process that pieces may take, and tasks together may take.

Both together stay well below where a worker pauses (80 %).
"""


def read_memory(client: Any) -> int | Fault:
    """Return the bytes that a process may use: the smallest worker, or this process.

    Args:
        client: A client of dask.distributed, or None for this process.
    """
    if client is None:
        return read_machine_memory()
    workers = attempt(lambda: list_workers(client))
    if isinstance(workers, Fault):
        return workers
    limits = [worker.memory_limit for worker in workers if worker.memory_limit is not None]
    return min(limits, default=read_machine_memory())


def measure_memory(client: Any) -> int | Fault:
    """Return the bytes that pieces may take in one process.

    Args:
        client: A client of dask.distributed, or None for this process.
    """
    memory = read_memory(client)
    return memory if isinstance(memory, Fault) else int(MEMORY_SHARE * memory)
