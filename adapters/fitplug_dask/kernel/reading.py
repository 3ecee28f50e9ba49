"""Reading: one pass over the row groups of a partition, and what goes wrong in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from fitplug.domain import OUTSIDE
from fitplug_dask.files import CheckedFile, describe_damage, open_file
from fitplug_dask.kernel.counters import JointCounters
from fitplug_dask.kernel.job import Job
from fitplug_dask.kernel.partial_counts import (
    LARGEST_SUM,
    TOO_MANY_RECORDS,
    PartialCounts,
)
from fitplug_dask.kernel.partitions import FileSlice, Partition
from fitplug_dask.workers import OUT_OF_MEMORY, Fault

_BATCH_ROWS = 2**16


class RowConsumer(Protocol):
    """What takes the rows that are read."""

    def take_batch(self, batch: Any, columns: Sequence[str], shared: Mapping[str, int]) -> None:
        """Take the rows of an Arrow batch; `shared` are codes that all of them share."""

    def take_identical_rows(self, rows: int, shared: Mapping[str, int]) -> None:
        """Take `rows` rows that no column distinguishes."""


def count_partition(job: Job, partition: Partition) -> PartialCounts | Fault:
    """Count the joint tables of one partition, in one pass over its row groups."""
    try:
        counters = JointCounters(
            job.attributes, job.joints, partition.max_rows, job.weight, job.filters
        )
    except MemoryError:
        return OUT_OF_MEMORY
    if fault := read_partition(counters, partition):
        return fault
    if counters.records > LARGEST_SUM:
        return TOO_MANY_RECORDS
    return PartialCounts(tuple(counters.counters))


def read_partition(consumer: RowConsumer, partition: Partition) -> Fault | None:
    """Give all rows of a partition to a consumer, or return why that failed."""
    for file_slice in partition.slices:
        if fault := _read_slice(consumer, file_slice):
            return fault
    return None


def _read_slice(consumer: RowConsumer, file_slice: FileSlice) -> Fault | None:
    """Read the row groups of one file, which must be unchanged before and after."""
    file = file_slice.file
    try:
        if not file.is_unchanged():
            return _make_change_fault(file)
        fault = _read_row_groups(consumer, file_slice)
        return fault if file.is_unchanged() else _make_change_fault(file)
    except MemoryError:
        return OUT_OF_MEMORY
    except FileNotFoundError:
        return Fault(
            f"{file.display_path} is gone since counting began, or a worker does not see it; "
            "every worker must see the files under the same path"
        )
    except Exception:
        return Fault(
            f"{file.display_path} cannot be read any more; check the disk or store it lies on"
        )


def _read_row_groups(consumer: RowConsumer, file_slice: FileSlice) -> Fault | None:
    """Read the row groups of one file, whose number of rows must be that of the footer."""
    file, shared = file_slice.file, dict(file_slice.file.folder_codes)
    if OUTSIDE in shared.values():
        return None
    if file.exact and not file.columns:
        consumer.take_identical_rows(file_slice.rows, shared)
        return None
    with open_file(file) as read_row_group:
        for row_group in file_slice.row_groups:
            rows = 0
            try:
                for batch in read_row_group(row_group, _BATCH_ROWS):
                    rows += batch.num_rows
                    if file.columns:
                        consumer.take_batch(batch, file.columns, shared)
                    else:
                        consumer.take_identical_rows(batch.num_rows, shared)
            except MemoryError:
                return OUT_OF_MEMORY
            except Exception:
                return Fault(describe_damage(file, row_group))
            if file.exact and rows != file.rows[row_group]:
                what = "does not hold as many rows as the footer says"
                return Fault(describe_damage(file, row_group, what))
    return None


def _make_change_fault(file: CheckedFile) -> Fault:
    return Fault(
        f"{file.display_path} changed while it was counted; count again when nothing writes to it"
    )
