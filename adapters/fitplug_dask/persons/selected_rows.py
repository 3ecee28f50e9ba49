"""Selected rows: what persons keep, on the way from buckets of persons to slabs of tables.

Which rows a person keeps is known where all rows of the person are, and a slab of a large table has
cells of many persons. So rows are brought together twice: by person, and those that are kept by
slab. In between they are in a durable store, as they may be more than all workers have memory for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from fitplug.display import Report
from fitplug.families import Slab
from fitplug_dask.exchange import Exchange, add_exchange
from fitplug_dask.kernel import LARGEST_SUM, Fault, Job, Partition, choose_overflow_fault
from fitplug_dask.persons.packing import Packing
from fitplug_dask.persons.selection import Selection
from fitplug_dask.persons.selection_check import check_selection_once
from fitplug_dask.persons.shuffle import PersonJob, choose_buckets, divide_rows, split_partition
from fitplug_dask.sharding import Consume, ShardJob, SparseCounts, add_up, count_shards
from fitplug_dask.workers import Runner

Buckets: TypeAlias = "tuple[int, ...]"

_BLOCK_ROWS = 2**16


@dataclass(frozen=True, repr=False)
class RowStore:
    """Where the kept rows of each bucket are durable. Its functions are pickled.

    Attributes:
        write: `write(bucket, content)` makes the rows of a bucket durable, and may return a Fault.
            If it ran before, on a worker that was lost, the rows that are there stay.
        read: `read(bucket)` returns the content, or a Fault.
    """

    write: Callable[[int, bytes], Fault | None]
    read: Callable[[int], bytes | Fault]

    def __repr__(self) -> str:
        return "RowStore()"


@dataclass(frozen=True, repr=False)
class KeepJob:
    """What to keep of each person, and where.

    Attributes:
        persons: Which rows are kept.
        store: Where they are stored.
    """

    persons: PersonJob
    store: RowStore

    def __repr__(self) -> str:
        return f"KeepJob({self.persons.buckets} buckets)"


def count_person_shards(
    job: Job,
    selection: Selection,
    partitions: Sequence[Partition],
    slabs: Sequence[Slab],
    consume: Consume,
    store: RowStore,
    *,
    client: Runner,
    shared: Any,
    report: Report,
    memory: int,
) -> list[Any]:
    """Count slabs of tables with at most k rows of each person; see `count_shards`.

    Args:
        job: What to count.
        selection: Which rows of each person are counted.
        partitions: The partitions of the rows.
        slabs: The slabs.
        consume: What the task of a slab does with its counts.
        store: Where the kept rows are stored meanwhile.
        client: What runs the tasks.
        shared: What `consume` takes first.
        report: Called in this thread with the finished and the total number of steps of both
            exchanges.
        memory: The most bytes of rows or counts that one process holds between tasks.

    Returns:
        The result of each slab.

    Raises:
        DataError: A file is at fault.
        FitplugError: The workers or the store fail.
    """
    sizes = [partition.rows for partition in partitions]
    buckets = choose_buckets(job, sum(sizes), memory, client.threads)
    keep = KeepJob(PersonJob(job, selection, buckets), store)
    stored: Buckets = ()
    if partitions:
        stored = add_exchange(
            Exchange(split_by_person, buckets, shared=keep, memory=memory),
            keep_buckets,
            join_buckets,
            partitions,
            client=client,
            sizes=sizes,
            report=_report_half(report, 0),
        )
    return count_shards(
        job,
        stored,
        slabs,
        consume,
        client=client,
        sizes=[1] * len(stored),
        split=partial(split_bucket, store.read),
        shared=shared,
        report=_report_half(report, 1),
        memory=memory,
    )


def split_by_person(job: KeepJob, partition: Partition) -> Mapping[int, memoryview] | Fault:
    """Return the records of the rows of one partition that may be kept, by bucket."""
    return split_partition(job.persons, partition)


def keep_buckets(
    job: KeepJob, buckets: Iterator[tuple[int, Mapping[int, memoryview]]]
) -> Buckets | Fault:
    """Store the rows that the persons of some buckets keep; return the buckets that have any.

    Raises:
        CheckError: The selection fails a check.
    """
    check_selection_once()
    packing = Packing(job.persons.job)
    stored = []
    for number, pieces in buckets:
        rows = packing.read_records(pieces.values())
        del pieces
        words = rows.words[job.persons.selection.select_rows(rows)]
        if len(words):
            if fault := job.store.write(number, _encode_words(words)):
                return fault
            stored.append(number)
    return tuple(stored)


def join_buckets(*results: Buckets) -> Buckets:
    """Join the numbers of buckets that tasks have returned."""
    return tuple(sorted(number for result in results for number in result))


def split_bucket(
    read: Callable[[int], bytes | Fault], what: ShardJob, bucket: int
) -> Mapping[int, SparseCounts] | Fault:
    """Return the counts of each slab over the kept rows of one bucket."""
    content = read(bucket)
    if isinstance(content, Fault):
        return content
    packing = Packing(what.job)
    words = _decode_words(content, len(packing.words))
    codes = packing.unpack(words)
    if len(words) > LARGEST_SUM // what.job.shares:
        return choose_overflow_fault(what.job.shares)
    counted = [
        add_up([SparseCounts(*part) for part in divide_rows(what.job, joint, codes, len(words))])
        for joint in what.job.joints
    ]
    return what.cut_counts(counted)


def _encode_words(words: np.ndarray[Any, np.dtype[np.uint64]]) -> bytes:
    """Write packed cells (n, w) as bytes, whose length tells n in blocks only."""
    width = 8 * words.shape[1]
    blocks = -(-len(words) // _BLOCK_ROWS)
    content = np.array(len(words), "<u8").tobytes() + words.astype("<u8").tobytes()
    return content.ljust(8 + blocks * _BLOCK_ROWS * width, b"\0")


def _decode_words(content: bytes, width: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Read packed cells (n, w), with w the width."""
    numbers = np.frombuffer(content, "<u8")
    n = int(numbers[0])
    # If nothing but the total is counted, w is 0, from which NumPy cannot tell n.
    return numbers[1 : 1 + n * width].reshape(n, width).astype(np.uint64)


def _report_half(report: Report, half: int) -> Report:
    """Report one of two steps as a half of all."""
    return lambda done, total: report(half * total + done, 2 * total)
