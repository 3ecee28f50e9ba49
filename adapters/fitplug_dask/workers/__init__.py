"""Workers: running tasks on threads of this process, or on a cluster with the same code."""

from fitplug_dask.workers.cluster import open_runner
from fitplug_dask.workers.handshake import COUNTING_PACKAGES
from fitplug_dask.workers.limits import read_rows_per_task, read_timeout
from fitplug_dask.workers.runner import OUT_OF_MEMORY, CheckError, Fault, Runner, raise_fault

__all__ = [
    "COUNTING_PACKAGES",
    "OUT_OF_MEMORY",
    "CheckError",
    "Fault",
    "Runner",
    "open_runner",
    "raise_fault",
    "read_rows_per_task",
    "read_timeout",
]
