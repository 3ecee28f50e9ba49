"""Buckets: the rows of a partition by person, and the counts of the rows that persons keep.

Persons fall into rounds and, in each round, into buckets by their hashes, so that one bucket holds
all rows of its persons.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fitplug.domain import OUTSIDE
from fitplug_dask.encoding import ColumnEncoder
from fitplug_dask.kernel import (
    OUT_OF_MEMORY,
    Fault,
    Job,
    PartialCounts,
    Partition,
    read_partition,
)
from fitplug_dask.loops import locate
from fitplug_dask.persons.packing import Packing, Rows, concatenate_rows
from fitplug_dask.persons.person_hashes import PersonHasher
from fitplug_dask.persons.selection import Selection
from fitplug_dask.persons.siphash import Words
from fitplug_dask.workers import Parts

_COMPACTED_ROWS = 2**20


@dataclass(frozen=True)
class Round:
    """The persons of one round.

    Attributes:
        number: The number of the round, from 0.
        rounds: The number of rounds.
        buckets: The number of buckets of a round.
    """

    number: int
    rounds: int
    buckets: int

    def assign_buckets(self, tags: Words) -> npt.NDArray[np.int64]:
        """Return the bucket (n,) of each hash (n, 2).

        Persons of other rounds have numbers outside 0..buckets-1.
        """
        cuts = np.uint64(self.rounds * self.buckets)
        cut = ((tags[:, 0] >> np.uint64(32)) * cuts) >> np.uint64(32)
        return cut.astype(np.int64) - self.number * self.buckets


def split_partition(
    job: Job, selection: Selection, persons: Round, partition: Partition
) -> Parts[Rows] | Fault:
    """Split the rows of one partition that may be kept in this round into buckets."""
    try:
        collector = _RowCollector(job, selection, persons)
        if fault := read_partition(collector, partition):
            return fault
        rows = collector.collect()
        bucket = persons.assign_buckets(rows.tags)
        order = np.argsort(bucket, kind="stable")
        ends = np.searchsorted(bucket[order], np.arange(persons.buckets + 1))
        # Copies, so that a bucket that is sent on or done with holds no memory of the others.
        return Parts(rows.take(order[a:b]) for a, b in itertools.pairwise(ends))
    except MemoryError:
        return OUT_OF_MEMORY


def take_bucket(split: Parts[Rows] | Fault, bucket: int) -> Rows | Fault:
    """Return the rows of one bucket of a partition."""
    return split if isinstance(split, Fault) else split[bucket]


def count_bucket(job: Job, selection: Selection, *groups: Rows | Fault) -> PartialCounts | Fault:
    """Count the joint tables of the rows that a bucket's persons keep.

    Args:
        job: What to count.
        selection: Which rows are kept.
        groups: The rows of the bucket in each partition.
    """
    held = []
    for group in groups:
        if isinstance(group, Fault):
            return group
        held.append(group)
    try:
        rows = concatenate_rows(held)
        words = rows.words[selection.select_rows(rows)]
        codes = Packing(job).unpack(words)
        counters = []
        for joint in job.joints:
            counter = np.zeros(job.count_cells(joint), dtype=np.int64)
            cells = np.zeros(len(words), dtype=np.int64)
            for name in joint:
                cells *= job.attributes[name].size
                cells += codes[name]
            np.add.at(counter, cells, np.int64(1))
            counters.append(counter)
    except MemoryError:
        return OUT_OF_MEMORY
    return PartialCounts(tuple(counters))


def count_rounds(job: Job, rows: int, memory: int) -> int:
    """Return the number of rounds such that the rows of one take at most `memory` bytes.

    A row is held once in the rows of its partition, once in those of its bucket, and once while
    these are sorted.
    """
    return max(1, math.ceil(rows * (3 * Packing(job).row_bytes + 32) / memory))


class _RowCollector:
    """Takes the batches of a partition, and holds the rows that may be kept."""

    def __init__(self, job: Job, selection: Selection, persons: Round) -> None:
        self._job, self._selection, self._round = job, selection, persons
        self._packing = Packing(job)
        self._hasher = PersonHasher(selection.tag_key)
        self._encoders: dict[str, ColumnEncoder] = {}
        self._codes: dict[str, Any] = {}
        self._filters: dict[str, ColumnEncoder] = {}
        self._passing = np.empty(0, dtype=np.int64)
        self._room = 0
        self._groups: list[Rows] = []
        self._held = self._compacted = 0

    def take_batch(self, batch: Any, columns: Sequence[str], shared: Mapping[str, int]) -> None:
        """Take the rows of an Arrow batch; `shared` are codes that all of them share."""
        self._make_room(batch.num_rows)
        person = self._selection.person
        codes: dict[str, Any] = {}
        for name in columns:
            if name in self._encoders:
                codes[name] = self._codes[name][: batch.num_rows]
                locate([self._encoders[name].make_lookup(batch.column(name))], 0, codes[name])
        if OUTSIDE in shared.values():
            return
        passing = self._passing[: batch.num_rows]
        filters = [(name, encoder) for name, encoder in self._filters.items() if name in columns]
        locate([encoder.make_lookup(batch.column(name)) for name, encoder in filters], 0, passing)
        tags, wanted = self._hasher.hash_persons(batch.column(person))
        bucket = self._round.assign_buckets(tags)
        wanted = wanted & (bucket >= 0) & (bucket < self._round.buckets)
        for column in codes.values():
            wanted &= column != OUTSIDE
        wanted &= passing >= 0
        kept = np.flatnonzero(wanted)
        read = {name: column[kept] for name, column in codes.items()}
        self._groups.append(Rows(tags[kept], self._packing.pack({**read, **shared}, len(kept))))
        self._held += len(kept)
        # This is seldom enough to cost little, and often enough that persons of very many rows,
        # such as those behind a placeholder, take no more memory than others.
        if self._held > max(_COMPACTED_ROWS, 2 * self._compacted):
            rows = self.collect()
            self._groups = [rows.take(self._selection.select_rows(rows))]
            self._held = self._compacted = len(self._groups[0].tags)

    def take_identical_rows(self, rows: int, shared: Mapping[str, int]) -> None:
        """Refuse rows that no column distinguishes: the rows of persons have one."""
        raise AssertionError("rows of persons have a column that identifies persons")

    def collect(self) -> Rows:
        """Return all rows that were taken and may be kept."""
        if not self._groups:
            none = np.zeros((0, len(self._packing.words)), dtype=np.uint64)
            return Rows(np.zeros((0, 2), dtype=np.uint64), none)
        return concatenate_rows(self._groups)

    def _make_room(self, rows: int) -> None:
        """Allocate the memory of batches of up to `rows` rows."""
        if rows > self._room:
            self._room = rows
            attributes = self._job.attributes.items()
            self._encoders = {name: ColumnEncoder(a, 1, OUTSIDE) for name, a in attributes}
            self._codes = {name: np.empty(rows, dtype=np.int64) for name in self._job.attributes}
            wanted = self._job.filters.items()
            self._filters = {name: ColumnEncoder(a, 0, OUTSIDE) for name, a in wanted}
            self._passing = np.empty(rows, dtype=np.int64)
