"""Sharding: counting tables that exceed the memory of a process, in ranges of their cells.

A slab is a range of a table that fits into the memory of a task. A `CellCollector` makes the sparse
counts of each partition, and one task adds them up for each slab.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.counts import WEIGHT, AttributeSet, Counts
from fitplug.display import Report
from fitplug.domain import Domain, get_shape
from fitplug.errors import TablesError
from fitplug.families import Slab
from fitplug_dask.encoding import CodeReader
from fitplug_dask.exchange import Exchange, measure_memory, run_exchange
from fitplug_dask.files import CheckedFile
from fitplug_dask.kernel import (
    BLOCK_ROWS,
    LARGEST_SUM,
    Atom,
    Axis,
    FolderCodes,
    Job,
    MeasureReader,
    PartialCounts,
    Partition,
    choose_overflow_fault,
    cut_blocks,
    cut_small_partitions,
    divide_records,
    read_partition,
)
from fitplug_dask.workers import Fault, Runner

_COMPACTED_ROWS = 2**21

Cells = npt.NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class SparseCounts:
    """The nonzero cells of a table. They are confidential, and the repr hides them.

    Attributes:
        cells: The cells (n,), ascending.
        counts: The counts (n,).
    """

    cells: Cells
    counts: Cells

    def __repr__(self) -> str:
        return "SparseCounts(counts confidential)"

    def take_range(self, start: int, stop: int) -> SparseCounts:
        """Return the cells from `start` to before `stop`, numbered from `start` on."""
        first, last = np.searchsorted(self.cells, [start, stop])
        return SparseCounts(self.cells[first:last] - start, self.counts[first:last])


class CellCollector:
    """Takes the batches of a partition, and adds up the counts of the cells that occur.

    Attributes:
        is_full: Whether the rows stand for more records than can be counted. Then no more rows are
            counted, and the counts are invalid.
    """

    def __init__(self, job: Job) -> None:
        """Start without rows.

        Args:
            job: What to count. The cells of each joint table are numbered in the order of its
                attributes, the last one fastest.
        """
        # Each table has an atom of its own, since few rows share a cell.
        self._atoms = [
            Atom({name: job.attributes[name] for name in joint}, job.filters)
            for joint in job.joints
        ]
        self._job = job
        self._weights = CodeReader(WEIGHT, BLOCK_ROWS)
        self._measures = MeasureReader({n: job.attributes[n] for n in job.measures}, BLOCK_ROWS)
        self._groups: list[list[SparseCounts]] = [[] for _ in self._atoms]
        self._collected = self._compacted = 0
        self._records, self._most_records = 0, LARGEST_SUM // job.shares

    @property
    def is_full(self) -> bool:
        return self._records > self._most_records

    def take_batch(self, batch: Any, columns: Sequence[str], shared: FolderCodes) -> None:
        """Take the rows of an Arrow batch; `shared` are the codes from their folders."""
        for block in cut_blocks(batch, columns, shared):
            self._take_block(*block)

    def take_identical_rows(self, rows: int, shared: Mapping[str, int]) -> None:
        """Take `rows` rows that share the codes of all attributes."""
        self._records += rows
        if self.is_full:
            return
        codes = self._measures.read(1, {}, shared)
        for i, atom in enumerate(self._atoms):
            self._add(i, np.array([atom.sum_shared_terms(shared)]), codes, np.array([rows]))

    def collect(self) -> list[SparseCounts]:
        """Return the counts of each table."""
        self._compact()
        return [groups[0] for groups in self._groups]

    def _take_block(self, rows: int, columns: Mapping[str, Any], shared: FolderCodes) -> None:
        if self.is_full:
            return
        inside = np.ones(rows, dtype=bool)
        for atom in self._atoms:
            atom.find_cells(rows, columns, shared)
            inside &= atom.cells >= 0
        codes = self._measures.read(rows, columns, shared)
        for column in codes.values():
            inside &= column >= 0
        codes = {name: column[inside] for name, column in codes.items()}
        weights = np.ones(rows, dtype=np.int64)
        if self._job.weight is not None:
            weights = self._weights.read(columns[self._job.weight])
        weights = weights[inside]
        self._records += int(weights.sum())
        if self.is_full:
            return
        for i, atom in enumerate(self._atoms):
            self._add(i, atom.cells[inside], codes, weights)
        self._collected += max((len(groups[-1].cells) for groups in self._groups), default=0)
        if self._collected > max(_COMPACTED_ROWS, 2 * self._compacted):
            self._compact()

    def _add(self, table: int, cells: Cells, codes: Mapping[str, Cells], weights: Cells) -> None:
        """Add the counts of rows inside the domain to those of a table."""
        joint = self._job.joints[table]
        strides = self._job.find_strides(joint)
        axes = [
            Axis(self._job.attributes[name], strides[name], codes[name])
            for name in joint
            if name in codes
        ]
        parts = [SparseCounts(*part) for part in divide_records(cells, axes, weights)]
        self._groups[table].append(add_up(parts))

    def _compact(self) -> None:
        """Add up the counts of each cell."""
        self._groups = [[add_up(groups)] for groups in self._groups]
        self._collected = self._compacted = max((len(g[0].cells) for g in self._groups), default=0)


def add_up(groups: Sequence[SparseCounts]) -> SparseCounts:
    """Return the sum of sparse counts, whose cells may be in any order."""
    none = np.zeros(0, dtype=np.int64)
    cells = np.concatenate([none, *(group.cells for group in groups)])
    counts = np.concatenate([none, *(group.counts for group in groups)])
    order = np.argsort(cells, kind="stable")
    cells, counts = cells[order], counts[order]
    if not len(cells):
        return SparseCounts(none, none)
    starts = np.append(0, np.flatnonzero(np.diff(cells)) + 1)
    return SparseCounts(cells[starts], np.add.reduceat(counts, starts))


_CELL_BYTES = 24
"""The bytes of a cell while its slab is counted: a count, a copy in another order, and a piece."""


def choose_slab_cells(memory: int, threads: int) -> int:
    """Return the most cells of a slab.

    Args:
        memory: The bytes that the tasks of one process may take together.
        threads: The number of threads of that process.
    """
    return max(1, memory // (_CELL_BYTES * threads))


def cut_slabs(domain: Domain, tables: Sequence[AttributeSet], most_cells: int) -> list[Slab]:
    """Cut tables into slabs, each along the attribute with the most cells.

    Args:
        domain: The domain.
        tables: The attribute sets of the tables.
        most_cells: The most cells of a slab.

    Raises:
        TablesError: One value of that attribute already has more than `most_cells` cells.
    """
    slabs = []
    for names in tables:
        cells = math.prod(domain[name].size for name in names)
        if cells <= most_cells:
            slabs.append(Slab(tuple(names), None, 0, 0))
            continue
        cut = max(names, key=lambda name: domain[name].size)
        size = domain[cut].size
        width = most_cells // (cells // size)
        if not width:
            raise TablesError(
                f"table {tuple(names)} has {cells // size:,} cells for each value of {cut!r}, but "
                f"a task can hold only {most_cells:,}. Use coarser attributes, or workers with "
                "more memory."
            )
        slabs += [
            Slab(tuple(names), cut, start, min(start + width, size))
            for start in range(0, size, width)
        ]
    return slabs


Consume: TypeAlias = Callable[[Any, int, npt.NDArray[np.int64]], Any]
SplitRows: TypeAlias = "Callable[[ShardJob, Any], Mapping[int, SparseCounts] | Fault]"


@dataclass(frozen=True, repr=False)
class Shards:
    """Slabs of tables, and how to consume their counts. No process needs a whole table.

    Attributes:
        slabs: The slabs. They may belong to several tables, and may overlap.
        consume: `consume(shared, number, counts)` is called by the task that has counted slab
            `number`; the counts are int64 with an axis for each of the slab's `names`. It returns a
            result or a Fault. It may be called again if workers are lost.
        shared: The first argument of `consume`, which each worker receives once.
        memory: The most bytes of counts that one process keeps in memory for slabs not counted yet,
            but at most a share of its memory.
    """

    slabs: Sequence[Slab]
    consume: Consume
    shared: Any = None
    memory: int = sys.maxsize


@dataclass(frozen=True, repr=False)
class ShardJob:
    """The job of every task.

    Attributes:
        job: What to count. Its tables are those of the slabs, but with the cut attribute first, so
            that a slab is a range of cells.
        shards: The slabs.
        tables: The number of the table of each slab.
    """

    job: Job
    shards: Shards
    tables: tuple[int, ...]

    def __repr__(self) -> str:
        return f"ShardJob({len(self.tables)} slabs)"

    def find_range(self, number: int) -> tuple[int, int]:
        """Return a slab's first cell in its table, and the cell after the last one."""
        slab, joint = self.shards.slabs[number], self.job.joints[self.tables[number]]
        if slab.attribute is None:
            return 0, self.job.count_cells(joint)
        cells = self.job.count_cells(joint[1:])
        return slab.start * cells, slab.stop * cells

    def cut_counts(self, counted: Sequence[SparseCounts]) -> dict[int, SparseCounts]:
        """Cut the counts of the tables into slabs; empty slabs are left out."""
        pieces = {
            number: counted[table].take_range(*self.find_range(number))
            for number, table in enumerate(self.tables)
        }
        return {number: piece for number, piece in pieces.items() if len(piece.cells)}

    def shape_counts(self, number: int, counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the counts of a slab with an axis for each attribute, in the slab's order."""
        slab, joint = self.shards.slabs[number], self.job.joints[self.tables[number]]
        sizes = [self.job.attributes[name].size for name in joint]
        if slab.attribute is not None:
            sizes[0] = slab.stop - slab.start
        axes = [joint.index(name) for name in slab.names]
        return np.ascontiguousarray(counts.reshape(sizes).transpose(axes))


def count_shards(
    job: Job,
    inputs: Sequence[Any],
    shards: Shards,
    *,
    client: Any,
    sizes: Sequence[int] | None = None,
    split: SplitRows | None = None,
    report: Report | None = None,
) -> list[Any]:
    """Count slabs.

    Each input is read once, and its nonzero cells are sent to their slabs. The task of a slab adds
    them up and consumes the counts: it may write them, draw noise for them, or return them.

    Args:
        job: The attributes, weight and filters to count. Its joint tables do not matter. A row
            counts if it is in the domain on all attributes of the job.
        inputs: The partitions of the rows, or the inputs of `split`.
        shards: The slabs.
        client: A runner, a client of dask.distributed, or None for threads of this process.
        sizes: How much each input adds to the progress; the rows of partitions if None.
        split: `split(shard job, input)` returns the counts of an input by slab, or a Fault;
            `split_partition` if None.
        report: Called in this thread with the rows of the finished tasks and of all tasks.

    Returns:
        The result of each slab.

    Raises:
        DataError: A file is at fault.
        FitplugError: The workers or their disks fail.
    """
    if not shards.slabs:
        return []
    joints: list[tuple[str, ...]] = []
    tables = []
    for slab in shards.slabs:
        first = () if slab.attribute is None else (slab.attribute,)
        joint = (*first, *(name for name in slab.names if name not in first))
        if joint not in joints:
            joints.append(joint)
        tables.append(joints.index(joint))
    known = {name for joint in joints for name in joint}
    # Rows that are outside the domain on an attribute of no slab must not count either.
    rest = tuple(name for name in job.attributes if name not in known)
    joints += [(name,) for name in rest]
    asked = Job(job.attributes, tuple(joints), job.weight, job.filters)
    what = ShardJob(asked, shards, tuple(tables))
    slabs, memory = len(shards.slabs), shards.memory
    return run_exchange(
        Exchange(split or split_partition, slabs, shared=what, memory=memory),
        gather_slab,
        inputs,
        client=client,
        sizes=[partition.rows for partition in inputs] if sizes is None else sizes,
        report=report,
    )


def split_partition(what: ShardJob, partition: Partition) -> Mapping[int, SparseCounts] | Fault:
    """Return the counts of one partition by slab."""
    collector = CellCollector(what.job)
    if fault := read_partition(collector, partition):
        return fault
    if collector.is_full:
        return choose_overflow_fault(what.job.shares)
    return what.cut_counts(collector.collect())


def gather_slab(what: ShardJob, number: int, pieces: Mapping[int, SparseCounts]) -> Any:
    """Add up the counts of a slab, and consume them."""
    start, stop = what.find_range(number)
    counts = np.zeros(stop - start, dtype=np.int64)
    records = 0
    for piece in pieces.values():
        records += int(piece.counts.sum())
        if records > LARGEST_SUM:
            return choose_overflow_fault(what.job.count_shares(what.shards.slabs[number].names))
        counts[piece.cells] += piece.counts  # the cells of a piece are distinct
    return what.shards.consume(what.shards.shared, number, what.shape_counts(number, counts))


def count_tables(
    domain: Domain,
    tables: Sequence[AttributeSet],
    job: Job,
    files: Sequence[CheckedFile],
    runner: Runner,
    report: Report,
) -> dict[AttributeSet, Counts]:
    """Count tables in shards, and assemble them in this process.

    Args:
        domain: The domain.
        tables: The attribute sets of the tables.
        job: What to count.
        files: The snapshot of the files.
        runner: Runs the tasks.
        report: Called in this thread with the rows of the finished tasks and of all tasks.

    Raises:
        DataError: A file is at fault.
        TablesError: One slice of a table is too large for a task.
        FitplugError: The workers or their disks fail.
    """
    most_cells = choose_slab_cells(measure_memory(runner), runner.process_threads)
    slabs = cut_slabs(domain, tables, most_cells)
    partitions = cut_small_partitions(files, runner.threads)
    counted = count_shards(
        job, partitions, Shards(slabs, return_counts), client=runner, report=report
    )
    whole = {names: np.zeros(get_shape(domain, names), dtype=np.int64) for names in tables}
    for number, slab in enumerate(slabs):
        table = whole[slab.names]
        table[slab.index] = counted[number].counts[0].reshape(table[slab.index].shape)
        counted[number] = None
    return dict(whole)


def return_counts(shared: None, number: int, counts: npt.NDArray[np.int64]) -> PartialCounts:
    """Return the counts of a slab, which are pickled without most of their zeros."""
    return PartialCounts((counts.reshape(-1),))
