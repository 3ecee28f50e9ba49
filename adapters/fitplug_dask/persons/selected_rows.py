"""Selected rows: counting the kept rows of persons in slabs of large tables.

The kept rows of a person are known only where all rows of the person are together, and a slab of a
large table has cells of many persons. So rows are brought together twice: by person, and then the
kept rows by slab. In between they are in a durable store, because they may exceed the memory of all
workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from fitplug.display import Report
from fitplug_dask.exchange import Exchange, add_exchange
from fitplug_dask.kernel import LARGEST_SUM, Fault, Job, Partition, choose_overflow_fault
from fitplug_dask.persons.packing import Packing
from fitplug_dask.persons.selection import Selection
from fitplug_dask.persons.selection_check import check_selection_once
from fitplug_dask.persons.shuffle import (
    PersonJob,
    RowStore,
    choose_buckets,
    divide_rows,
    split_partition,
)
from fitplug_dask.sharding import ShardJob, Shards, SparseCounts, add_up, count_shards
from fitplug_dask.workers import Runner

Buckets: TypeAlias = "tuple[int, ...]"

_BLOCK_ROWS = 2**16


def count_person_shards(
    job: Job,
    selection: Selection,
    partitions: Sequence[Partition],
    shards: Shards,
    store: RowStore,
    *,
    client: Runner,
    report: Report,
) -> list[Any]:
    """Count slabs of tables with at most k rows of each person; see `count_shards`.

    Args:
        job: What to count.
        selection: Which rows of each person are counted.
        partitions: The partitions of the rows.
        shards: The slabs. Rows of persons take as much memory between tasks as counts.
        store: Where the kept rows are stored in the meantime.
        client: Runs the tasks.
        report: Called in this thread with the finished and the total number of steps of both
            exchanges.

    Returns:
        The result of each slab.

    Raises:
        DataError: A file is at fault.
        FitplugError: The workers or the store fail.
    """
    sizes = [partition.rows for partition in partitions]
    buckets = choose_buckets(job, sum(sizes), shards.memory, client.threads)
    keep = PersonJob(job, selection, buckets, store)
    stored: Buckets = ()
    if partitions:
        stored = add_exchange(
            Exchange(split_partition, buckets, shared=keep, memory=shards.memory),
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
        shards,
        client=client,
        sizes=[1] * len(stored),
        split=partial(split_bucket, store.read),
        report=_report_half(report, 1),
    )


def keep_buckets(
    job: PersonJob, buckets: Iterator[tuple[int, Mapping[int, memoryview]]]
) -> Buckets:
    """Store the kept rows of some buckets of persons; return the buckets that have any.

    Raises:
        CheckError: The selection fails a check.
    """
    check_selection_once()
    assert job.store is not None
    packing = Packing(job.job)
    stored = []
    for number, pieces in buckets:
        rows = packing.read_records(pieces.values())
        del pieces
        words = rows.words[job.selection.select_rows(rows)]
        if len(words):
            job.store.write(number, _encode_words(words))
            stored.append(number)
    return tuple(stored)


def join_buckets(*results: Buckets) -> Buckets:
    """Join the numbers of buckets that tasks have returned."""
    return tuple(sorted(number for result in results for number in result))


def split_bucket(
    read: Callable[[int], bytes], what: ShardJob, bucket: int
) -> Mapping[int, SparseCounts] | Fault:
    """Return the counts of the kept rows of one bucket in each slab."""
    packing = Packing(what.job)
    words = _decode_words(read(bucket), len(packing.words))
    codes = packing.unpack(words)
    if len(words) > LARGEST_SUM // what.job.shares:
        return choose_overflow_fault(what.job.shares)
    counted = [
        add_up([SparseCounts(*part) for part in divide_rows(what.job, joint, codes, len(words))])
        for joint in what.job.joints
    ]
    return what.cut_counts(counted)


def _encode_words(words: np.ndarray[Any, np.dtype[np.uint64]]) -> bytes:
    """Write packed words (n, w) as bytes, padded so that their length reveals only blocks of n."""
    width = 8 * words.shape[1]
    blocks = -(-len(words) // _BLOCK_ROWS)
    content = np.array(len(words), "<u8").tobytes() + words.astype("<u8").tobytes()
    return content.ljust(8 + blocks * _BLOCK_ROWS * width, b"\0")


def _decode_words(content: bytes, width: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Read packed words (n, w), where w is `width`."""
    numbers = np.frombuffer(content, "<u8")
    n = int(numbers[0])
    # If nothing but the total is counted, w is 0, from which NumPy cannot tell n.
    return numbers[1 : 1 + n * width].reshape(n, width).astype(np.uint64)


def _report_half(report: Report, half: int) -> Report:
    """Report one of two exchanges as half of all steps."""
    return lambda done, total: report(half * total + done, 2 * total)
