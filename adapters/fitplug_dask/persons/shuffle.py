"""Shuffle: bringing the rows of each person together, while each row is read only once.

Partitions are the inputs of an exchange, and buckets of persons its outputs. Every partition sends
each row to a bucket, by the hash of its person. So a bucket gets all rows of its persons, keeps at
most k of each, and counts them. Rows that exceed the memory limit are written to disk encrypted,
under keys that exist only in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fitplug.display import Report
from fitplug_dask import compiled_loops as loops
from fitplug_dask.exchange import Exchange, add_exchange, measure_memory
from fitplug_dask.kernel import (
    LARGEST_SUM,
    Axis,
    Fault,
    Job,
    PartialCounts,
    Partition,
    add_partial_counts,
    choose_overflow_fault,
    divide_records,
    make_empty_counts,
    read_partition,
)
from fitplug_dask.persons.packing import Packing, Words
from fitplug_dask.persons.selection import RowCollector, Selection
from fitplug_dask.persons.selection_check import check_selection_once
from fitplug_dask.workers import Runner

Cells = npt.NDArray[np.int64]

_CROWDED = 4
_CROWDED_ROWS = 1000
"""A bucket is crowded if its rows exceed `_CROWDED` times the mean plus `_CROWDED_ROWS`."""


@dataclass(frozen=True, repr=False)
class RowStore:
    """A durable store of the kept rows of each bucket. Its functions must be picklable.

    Attributes:
        write: `write(bucket, content)` stores the rows of a bucket. If they are already stored, by
            a worker that was lost, it changes nothing.
        read: `read(bucket)` returns the content.
    """

    write: Callable[[int, bytes], None]
    read: Callable[[int], bytes]

    def __repr__(self) -> str:
        return "RowStore()"


@dataclass(frozen=True, repr=False)
class PersonJob:
    """What to count, and which rows of each person.

    Attributes:
        job: What to count.
        selection: Which rows are kept.
        buckets: The number of buckets, at most 2^16.
        store: Where the kept rows are stored, if they are.
    """

    job: Job
    selection: Selection
    buckets: int
    store: RowStore | None = None

    def __repr__(self) -> str:
        return f"PersonJob({self.buckets} buckets)"

    def assign_buckets(self, tags: Words) -> npt.NDArray[np.uint16]:
        """Return the bucket (n,) of each hash (n, 2)."""
        cut = ((tags[:, 0] >> np.uint64(32)) * np.uint64(self.buckets)) >> np.uint64(32)
        return cut.astype(np.uint16)


def split_partition(job: PersonJob, partition: Partition) -> Mapping[int, memoryview] | Fault:
    """Return the rows of one partition that may be kept, as records by bucket.

    Raises:
        CheckError: Hashing or selection fail a check.
    """
    check_selection_once()
    collector = RowCollector(job.job, job.selection)
    if fault := read_partition(collector, partition):
        return fault
    rows = collector.collect()
    del collector
    bucket = job.assign_buckets(rows.tags)
    sizes = np.bincount(bucket, minlength=job.buckets)
    most = _CROWDED * len(bucket) // job.buckets + _CROWDED_ROWS
    if sizes.max() > most:
        # Some person has very many rows. Those that cannot be kept would crowd its bucket.
        crowded = np.flatnonzero(sizes[bucket] > most)
        among = rows.take(crowded)
        selected = np.concatenate(
            [np.flatnonzero(sizes[bucket] <= most), crowded[job.selection.select_rows(among)]]
        )
        rows, bucket = rows.take(selected), bucket[selected]
        sizes = np.bincount(bucket, minlength=job.buckets)
    packing = Packing(job.job)
    width = packing.record.itemsize
    records = packing.make_records(rows).view(np.uint8).reshape(-1, width)
    del rows
    ordered = np.empty_like(records)
    starts = np.cumsum(sizes) - sizes
    loops.sort_records(records, bucket, starts.copy(), ordered)
    return {
        int(b): memoryview(ordered[starts[b] : starts[b] + sizes[b]]).cast("B")  # type: ignore[arg-type]
        for b in np.flatnonzero(sizes)
    }


def count_buckets(
    job: PersonJob, buckets: Iterator[tuple[int, Mapping[int, memoryview]]]
) -> PartialCounts | Fault:
    """Count the joint tables of the kept rows of some buckets.

    Args:
        job: What to count.
        buckets: The number of each bucket, and its records from all partitions.

    Raises:
        CheckError: The selection fails a check.
    """
    check_selection_once()
    counters = [np.zeros(job.job.count_cells(joint), dtype=np.int64) for joint in job.job.joints]
    packing = Packing(job.job)
    records, most_records = 0, LARGEST_SUM // job.job.shares
    for _, pieces in buckets:
        rows = packing.read_records(pieces.values())
        del pieces
        words = rows.words[job.selection.select_rows(rows)]
        records += len(words)
        if records > most_records:
            return choose_overflow_fault(job.job.shares)
        codes = packing.unpack(words)
        for joint, counter in zip(job.job.joints, counters, strict=True):
            for cells, shares in divide_rows(job.job, joint, codes, len(words)):
                if job.job.measures:
                    loops.add_weights(counter, cells, shares)
                else:
                    loops.increment(counter, cells)
    return PartialCounts(tuple(counters), job.job.shares)


def divide_rows(
    job: Job, joint: Sequence[str], codes: Mapping[str, Cells], rows: int
) -> Iterator[tuple[Cells, Cells]]:
    """Find the cells of rows in a joint table.

    Yields:
        For each combination of cells of the table's measures, the cells (rows,) of the rows and
        their shares (rows,) there. Without measures, the shares are 1.
    """
    strides = job.find_strides(joint)
    cells, axes = np.zeros(rows, dtype=np.int64), []
    for name in joint:
        if name in job.measures:
            axes.append(Axis(job.attributes[name], strides[name], codes[name]))
        else:
            cells += codes[name] * strides[name]
    return divide_records(cells, axes, np.ones(rows, dtype=np.int64))


_BUCKET_ROWS = 2**16
"""The most rows of a bucket that still fit into a core's cache, where grouping them is fastest."""

_MOST_BUCKETS = 2**16
_BUCKETS_PER_THREAD = 3
_FEWEST_ROWS = 2**14
"""With fewer rows, a bucket costs more than its rows."""

_COPIES = 4
"""The copies of a row in memory while its bucket is counted: sent, joined, unpacked and sorted."""


def count_by_person(
    job: Job,
    selection: Selection,
    partitions: Sequence[Partition],
    runner: Runner,
    report: Report,
) -> PartialCounts:
    """Count the joint tables over all partitions, with at most k rows of each person.

    Args:
        job: What to count.
        selection: Which rows of each person are counted.
        partitions: The partitions of the rows.
        runner: Runs the tasks.
        report: Called in this thread with the rows of the finished tasks and of all tasks. Each row
            counts twice: when it is read, and when it is counted.

    Raises:
        DataError: A file is at fault; the first fault found is named.
        FitplugError: The workers fail.
    """
    if not partitions:
        report(0, 0)
        return make_empty_counts(job)
    memory = measure_memory(runner)
    sizes = [partition.rows for partition in partitions]
    shared = PersonJob(job, selection, choose_buckets(job, sum(sizes), memory, runner.threads))
    exchange = Exchange(split_partition, shared.buckets, shared=shared, memory=memory)
    counted: PartialCounts = add_exchange(
        exchange,
        count_buckets,
        add_partial_counts,
        partitions,
        client=runner,
        sizes=sizes,
        report=report,
    )
    return counted


def choose_buckets(job: Job, rows: int, memory: int, threads: int) -> int:
    """Return the number of buckets.

    Args:
        job: What to count.
        rows: The number of rows.
        memory: The bytes that the buckets of one process may take together.
        threads: The number of threads that count at once in total.
    """
    row_bytes = _COPIES * (Packing(job).row_bytes + Packing(job).record.itemsize)
    most_rows = max(1, min(_BUCKET_ROWS, memory // (row_bytes * threads)))
    wanted = max(
        math.ceil(rows / most_rows), min(_BUCKETS_PER_THREAD * threads, rows // _FEWEST_ROWS)
    )
    return max(1, min(wanted, _MOST_BUCKETS))
