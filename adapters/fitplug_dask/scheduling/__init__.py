"""Scheduling: tasks on threads or on a cluster, and the tree in which their results are added."""

from fitplug_dask.scheduling.cluster import (
    RETRIES,
    allow_large_job,
    attempt,
    await_result,
    get_fault,
    hold_job,
)
from fitplug_dask.scheduling.counts import count_partitions, make_empty_counts, raise_fault
from fitplug_dask.scheduling.footers import check_where
from fitplug_dask.scheduling.reduction import reduce_tree
from fitplug_dask.scheduling.threads import count_threads, run_on_threads

__all__ = [
    "RETRIES",
    "allow_large_job",
    "attempt",
    "await_result",
    "check_where",
    "count_partitions",
    "count_threads",
    "get_fault",
    "hold_job",
    "make_empty_counts",
    "raise_fault",
    "reduce_tree",
    "run_on_threads",
]
