"""Workers: processes that count once they have proven to run the code of this one."""

from fitplug_dask.workers.code import COUNTING_PACKAGES
from fitplug_dask.workers.execution import attempt, await_result, run_on_cluster
from fitplug_dask.workers.faults import OUT_OF_MEMORY, CheckError, Fault
from fitplug_dask.workers.graphs import Graph, Key, draw_run, hold, is_key, name_tasks
from fitplug_dask.workers.handshake import check_workers
from fitplug_dask.workers.patience import ask, demand_worker, list_workers, read_threads
from fitplug_dask.workers.settings import read_rows_per_task, read_timeout
from fitplug_dask.workers.single_tasks import SingleTasks

__all__ = [
    "COUNTING_PACKAGES",
    "OUT_OF_MEMORY",
    "CheckError",
    "Fault",
    "Graph",
    "Key",
    "SingleTasks",
    "ask",
    "attempt",
    "await_result",
    "check_workers",
    "demand_worker",
    "draw_run",
    "hold",
    "is_key",
    "list_workers",
    "name_tasks",
    "read_rows_per_task",
    "read_threads",
    "read_timeout",
    "run_on_cluster",
]
