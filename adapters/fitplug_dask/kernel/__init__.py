"""Kernel: the joint tables, the partitions of the rows, and how one task counts its partition."""

from fitplug_dask.kernel.counters import (
    BLOCK_ROWS,
    Atom,
    Axis,
    FolderCodes,
    MeasureReader,
    cut_blocks,
    divide_records,
    take_codes,
)
from fitplug_dask.kernel.partitions import (
    LARGEST_SUM,
    Job,
    PartialCounts,
    Partition,
    add_partial_counts,
    choose_fan_in,
    choose_overflow_fault,
    cut_partitions,
    cut_small_partitions,
    estimate_memory,
    make_empty_counts,
)
from fitplug_dask.kernel.reading import count_partition, read_partition
from fitplug_dask.workers import OUT_OF_MEMORY, Fault

__all__ = [
    "BLOCK_ROWS",
    "LARGEST_SUM",
    "OUT_OF_MEMORY",
    "Atom",
    "Axis",
    "Fault",
    "FolderCodes",
    "Job",
    "MeasureReader",
    "PartialCounts",
    "Partition",
    "add_partial_counts",
    "choose_fan_in",
    "choose_overflow_fault",
    "count_partition",
    "cut_blocks",
    "cut_partitions",
    "cut_small_partitions",
    "divide_records",
    "estimate_memory",
    "make_empty_counts",
    "read_partition",
    "take_codes",
]
