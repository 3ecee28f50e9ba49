"""Sharding: tables larger than the memory of a process, counted in ranges of their cells."""

from fitplug_dask.sharding.cell_collector import SparseCounts, add_up
from fitplug_dask.sharding.shards import (
    Consume,
    ShardJob,
    choose_slab_cells,
    count_shards,
    count_tables,
    cut_shard_partitions,
    cut_slabs,
)

__all__ = [
    "Consume",
    "ShardJob",
    "SparseCounts",
    "add_up",
    "choose_slab_cells",
    "count_shards",
    "count_tables",
    "cut_shard_partitions",
    "cut_slabs",
]
