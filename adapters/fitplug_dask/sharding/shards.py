"""Shards: ranges of tables, each counted by one task from the sparse counts of all partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.families import Slab
from fitplug_dask.exchange import Exchange, run_exchange
from fitplug_dask.kernel import (
    LARGEST_SUM,
    Job,
    Partition,
    choose_overflow_fault,
    read_partition,
)
from fitplug_dask.progress import Report
from fitplug_dask.sharding.cell_collector import CellCollector, SparseCounts
from fitplug_dask.workers import Fault

Consume: TypeAlias = Callable[[Any, int, npt.NDArray[np.int64]], Any]
SplitRows: TypeAlias = "Callable[[ShardJob, Any], Mapping[int, SparseCounts] | Fault]"


@dataclass(frozen=True, repr=False)
class ShardJob:
    """What every task counts.

    Attributes:
        job: What to count. Its tables are those of the slabs, with the attribute that is cut
            first, so that a slab is a range of cells.
        slabs: The slabs.
        tables: The number of the table of each slab.
        consume: What is done with the counts of a slab.
        shared: What `consume` takes first.
    """

    job: Job
    slabs: tuple[Slab, ...]
    tables: tuple[int, ...]
    consume: Consume
    shared: Any

    def __repr__(self) -> str:
        return f"ShardJob({len(self.slabs)} slabs)"

    def find_range(self, number: int) -> tuple[int, int]:
        """Return the first cell of a slab in its table, and the cell after its last."""
        slab, joint = self.slabs[number], self.job.joints[self.tables[number]]
        if slab.attribute is None:
            return 0, self.job.count_cells(joint)
        cells = self.job.count_cells(joint[1:])
        return slab.start * cells, slab.stop * cells

    def cut_counts(self, counted: Sequence[SparseCounts]) -> dict[int, SparseCounts]:
        """Cut the counts of each table into those of each slab; slabs without any are left out."""
        pieces = {
            number: counted[table].take_range(*self.find_range(number))
            for number, table in enumerate(self.tables)
        }
        return {number: piece for number, piece in pieces.items() if len(piece.cells)}

    def shape_counts(self, number: int, counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the counts of a slab with an axis for each attribute, in the slab's order."""
        slab, joint = self.slabs[number], self.job.joints[self.tables[number]]
        sizes = [self.job.attributes[name].size for name in joint]
        if slab.attribute is not None:
            sizes[0] = slab.stop - slab.start
        axes = [joint.index(name) for name in slab.names]
        return np.ascontiguousarray(counts.reshape(sizes).transpose(axes))


def count_shards(
    job: Job,
    inputs: Sequence[Any],
    slabs: Sequence[Slab],
    consume: Consume,
    *,
    client: Any,
    sizes: Sequence[int] | None = None,
    split: SplitRows | None = None,
    shared: Any = None,
    report: Report | None = None,
    memory: int | None = None,
) -> list[Any]:
    """Count slabs of tables, none of which any process need hold as a whole.

    Each input is read once, and sends to each slab the cells that are not zero there. The task of a
    slab adds them up, and what it does with the counts stays with it: it may write them, draw noise
    for them, or return them.

    Args:
        job: What to count: its attributes, weight and filters. Its joint tables do not matter. A
            row counts if it is in the domain on all attributes of the job.
        inputs: The partitions of the rows, or what `split` takes.
        slabs: The slabs. They may be of several tables, and may overlap.
        consume: `consume(shared, number of the slab, counts)` is called by the task that has the
            counts of a slab, int64 with an axis for each of `names`. It returns a result, or a
            Fault. Where workers are lost it may be called again.
        client: A runner, a client of dask.distributed, or None for threads of this process.
        sizes: What each input adds to the progress; the rows of partitions if None.
        split: `split(shard job, input)` returns the counts of each slab over the rows of an input,
            or a Fault; `split_partition` if None.
        shared: What `consume` takes first; each worker gets it once.
        report: Called in this thread with the rows of the tasks that have ended and of all.
        memory: The most bytes of counts that one process holds for slabs that are not counted yet;
            a share of its memory if None.

    Returns:
        The result of each slab.

    Raises:
        DataError: A file is at fault.
        FitplugError: The workers or their disks fail.
    """
    if not slabs:
        return []
    joints: list[tuple[str, ...]] = []
    tables = []
    for slab in slabs:
        first = () if slab.attribute is None else (slab.attribute,)
        joint = (*first, *(name for name in slab.names if name not in first))
        if joint not in joints:
            joints.append(joint)
        tables.append(joints.index(joint))
    known = {name for joint in joints for name in joint}
    # Rows outside the domain on an attribute that no slab has are in no table, too.
    rest = tuple(name for name in job.attributes if name not in known)
    joints += [(name,) for name in rest]
    asked = Job(job.attributes, tuple(joints), job.weight, job.filters)
    what = ShardJob(asked, tuple(slabs), tuple(tables), consume, shared)
    return run_exchange(
        Exchange(split or split_partition, len(slabs), shared=what, memory=memory),
        gather_slab,
        inputs,
        client=client,
        sizes=[partition.rows for partition in inputs] if sizes is None else sizes,
        report=report,
    )


def split_partition(what: ShardJob, partition: Partition) -> Mapping[int, SparseCounts] | Fault:
    """Return the counts of each slab over the rows of one partition."""
    collector = CellCollector(what.job)
    if fault := read_partition(collector, partition):
        return fault
    if collector.is_full:
        return choose_overflow_fault(what.job.shares)
    return what.cut_counts(collector.collect())


def gather_slab(what: ShardJob, number: int, pieces: Mapping[int, SparseCounts]) -> Any:
    """Add up the counts of a slab, and do with them what is asked."""
    start, stop = what.find_range(number)
    counts = np.zeros(stop - start, dtype=np.int64)
    records = 0
    for piece in pieces.values():
        records += int(piece.counts.sum())
        if records > LARGEST_SUM:
            return choose_overflow_fault(what.job.count_shares(what.slabs[number].names))
        counts[piece.cells] += piece.counts  # the cells of a piece are distinct
    return what.consume(what.shared, number, what.shape_counts(number, counts))
