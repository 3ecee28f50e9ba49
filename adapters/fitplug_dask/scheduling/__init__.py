"""Scheduling: tasks on threads or on a cluster, and the tree in which their results are added."""

from fitplug_dask.scheduling.counts import count_partitions, make_empty_counts, raise_fault
from fitplug_dask.scheduling.footers import check_where
from fitplug_dask.scheduling.graph import CountGraph, run_graph
from fitplug_dask.scheduling.reduction import reduce_tree
from fitplug_dask.scheduling.threads import count_threads, run_on_threads

__all__ = [
    "CountGraph",
    "check_where",
    "count_partitions",
    "count_threads",
    "make_empty_counts",
    "raise_fault",
    "reduce_tree",
    "run_graph",
    "run_on_threads",
]
