"""Tables: those that fit this process, counted in shards as no worker holds them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fitplug.counts import AttributeSet, Counts
from fitplug.domain import Domain
from fitplug_dask.exchange import measure_memory
from fitplug_dask.files import CheckedFile
from fitplug_dask.kernel import Job, PartialCounts, Partition, cut_partitions
from fitplug_dask.progress import Report
from fitplug_dask.sharding.limits import choose_slab_cells, cut_slabs
from fitplug_dask.sharding.shards import count_shards
from fitplug_dask.workers import Runner

_PARTITION_ROWS = 2**20


def count_tables(
    domain: Domain,
    tables: Sequence[AttributeSet],
    job: Job,
    files: Sequence[CheckedFile],
    runner: Runner,
    report: Report,
) -> dict[AttributeSet, Counts]:
    """Count tables in shards and put them together in this process.

    Args:
        domain: The domain.
        tables: The attribute sets of the tables.
        job: What to count.
        files: The snapshot of the files.
        runner: What runs the tasks.
        report: Called in this thread with the rows of the tasks that have ended and of all.

    Raises:
        DataError: A file is at fault.
        TablesError: One slice of a table is too large for a task.
        FitplugError: The workers or their disks fail.
    """
    most_cells = choose_slab_cells(measure_memory(runner), runner.process_threads)
    slabs = cut_slabs(domain, tables, most_cells)
    partitions = cut_shard_partitions(files, runner.threads)
    counted = count_shards(job, partitions, slabs, return_counts, client=runner, report=report)
    whole = {names: np.zeros(domain.shape_of(names), dtype=np.int64) for names in tables}
    for number, slab in enumerate(slabs):
        table = whole[slab.names]
        table[slab.index] = counted[number].counts[0].reshape(table[slab.index].shape)
        counted[number] = None
    return dict(whole)


def cut_shard_partitions(files: Sequence[CheckedFile], threads: int) -> list[Partition]:
    """Cut files into partitions for so many threads, of about a million rows at most."""
    rows = sum(sum(file.rows) for file in files if not file.left_out)
    # Not by the cells: a partition holds those that occur. `cut_partitions` makes three a thread.
    return cut_partitions(files, 1, max(threads, rows // (3 * _PARTITION_ROWS)))


def return_counts(shared: None, number: int, counts: npt.NDArray[np.int64]) -> PartialCounts:
    """Return the counts of a slab, which travel without most zeros."""
    return PartialCounts((counts.reshape(-1),))
