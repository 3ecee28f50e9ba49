"""Reading: one pass over the row groups of a partition, and the faults that may occur in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
from typing import Any, Protocol

import numpy as np

from fitplug.domain import OUTSIDE
from fitplug_dask.encoding import join_batches
from fitplug_dask.files import (
    CheckedFile,
    DamagedFileError,
    ReadAhead,
    describe_damage,
    open_file,
)
from fitplug_dask.kernel.counters import FolderCodes, JointCounters, take_codes
from fitplug_dask.kernel.outside_counter import OutsideCounter, TableAndOutsideCounters
from fitplug_dask.kernel.partitions import (
    FileSlice,
    Job,
    PartialCounts,
    Partition,
    choose_overflow_fault,
)
from fitplug_dask.sources import ChangedError, Format, StoreError, get_request_pool
from fitplug_dask.workers import OUT_OF_MEMORY, CheckError, Fault

_NO_DAMAGE = (MemoryError, CheckError, DamagedFileError, StoreError, FileNotFoundError, ImportError)
"""Errors of readers that do not mean damage, like operating system errors with a number."""

_BATCH_ROWS = 2**17
_SMALL_BATCH_ROWS = 2**13


class RowConsumer(Protocol):
    """A consumer of the rows that are read."""

    def take_batch(self, batch: Any, columns: Sequence[str], shared: FolderCodes) -> None:
        """Take the rows of an Arrow batch; `shared` are the codes from their folders."""

    def take_identical_rows(self, rows: int, shared: Mapping[str, int]) -> None:
        """Take `rows` rows that share the codes of all attributes."""


def count_partition(job: Job, partition: Partition) -> PartialCounts | Fault:
    """Count the joint tables of one partition, in one pass over its row groups."""
    try:
        counters = JointCounters(
            job.attributes, job.joints, partition.max_rows, job.weight, job.filters
        )
        outside = OutsideCounter(job) if job.outside else None
    except MemoryError:
        return OUT_OF_MEMORY
    consumer = counters if outside is None else TableAndOutsideCounters(counters, outside)
    if fault := read_partition(consumer, partition, takes_outside=outside is not None):
        return fault
    if counters.is_full:
        return choose_overflow_fault(job.shares)
    of_outside = () if outside is None else (outside.counts,)
    return PartialCounts((*counters.counters, *of_outside), job.shares)


class _BatchJoiner:
    """Joins small batches of the same columns, because every batch has a fixed cost."""

    def __init__(self, consumer: RowConsumer) -> None:
        self.consumer = consumer
        self._batches: list[Any] = []
        self._shared: list[Mapping[str, int]] = []
        self._rows = 0
        self._columns: Sequence[str] = ()

    def take_batch(self, batch: Any, columns: Sequence[str], shared: Mapping[str, int]) -> None:
        """Pass the rows of a batch to the consumer, now, with later batches, or at `flush`.

        `shared` are the codes of all other attributes, none of them OUTSIDE.
        """
        rows = batch.num_rows
        if self._batches and not (
            self._rows + rows <= _BATCH_ROWS
            and columns == self._columns
            and batch.schema.equals(self._batches[0].schema)
        ):
            self.flush()
        self._batches.append(batch)
        self._shared.append(shared)
        self._rows += rows
        self._columns = columns
        if rows > _SMALL_BATCH_ROWS:
            self.flush()

    def flush(self) -> None:
        """Pass the remaining rows to the consumer."""
        if not self._batches:
            return
        batches, codes = self._batches, self._shared
        self._batches, self._shared, self._rows = [], [], 0
        shared: FolderCodes = codes[0]
        if any(other != shared for other in codes):
            lengths = [batch.num_rows for batch in batches]
            shared = {n: np.repeat([one[n] for one in codes], lengths) for n in codes[0]}
        start = 0
        for batch in join_batches(batches):
            rows = slice(start, start := start + batch.num_rows)
            self.consumer.take_batch(batch, self._columns, take_codes(shared, rows))


def read_partition(
    consumer: RowConsumer, partition: Partition, *, takes_outside: bool = False
) -> Fault | None:
    """Pass all rows of a partition to a consumer, or return the fault.

    Args:
        consumer: The consumer.
        partition: The partition.
        takes_outside: Whether the consumer also takes the rows of files whose folders put all rows
            outside the domain.
    """
    slices = [part for part in partition.slices if takes_outside or not _is_outside(part.file)]
    asked = [part for part in slices if ReadAhead.reads(part.file)]
    joiner = _BatchJoiner(consumer)
    groups = ((part.file, group) for part in asked for group in part.row_groups)
    with closing(ReadAhead(groups)) as ahead:
        for file_slice in slices:
            if fault := _read_slice(joiner, file_slice, ahead):
                return fault
    if slices:
        try:
            joiner.flush()
        except Exception as error:
            return _explain_error(slices[-1].file, error)
    return _check_versions([part.file for part in slices if _is_in_store(part.file)])


def _is_outside(file: CheckedFile) -> bool:
    """Return whether the folders of a file put all its rows outside the domain."""
    return any(code == OUTSIDE for _, code in file.folder_codes)


def _is_in_store(file: CheckedFile) -> bool:
    return file.location.options is not None


def _check_versions(files: Sequence[CheckedFile]) -> Fault | None:
    """Check that files have not changed if their stores cannot serve the bytes of one version.

    Their state was read before the bytes, and is read again after them, for several files at once.
    """
    doubtful = [file for file in files if not file.location.proves_state(file.stamp)]
    if not doubtful:
        return None
    faults = get_request_pool().map(_check_version, doubtful)
    return next((fault for fault in faults if fault), None)


def _check_version(file: CheckedFile) -> Fault | None:
    try:
        return _check_unchanged(file)
    except Exception as error:
        return _explain_error(file, error)


def _read_slice(joiner: _BatchJoiner, file_slice: FileSlice, ahead: ReadAhead) -> Fault | None:
    """Read the row groups of one file, which must not have changed since the snapshot.

    Its state was read for the snapshot, and is read again after its bytes: here, if the file is
    local or seems damaged, since the bytes may come from another version.
    """
    file = file_slice.file
    try:
        fault = _read_row_groups(joiner, file_slice, ahead)
        if _is_in_store(file) and (fault is None or file.location.proves_state(file.stamp)):
            return fault
        return _check_unchanged(file) or fault
    except Exception as error:
        return _explain_error(file, error)


def _check_unchanged(file: CheckedFile) -> Fault | None:
    return None if file.is_unchanged() else _make_change_fault(file)


def _explain_error(file: CheckedFile, error: Exception) -> Fault:
    """Return a fault that explains why a file cannot be read, without quoting the error."""
    if isinstance(error, MemoryError):
        return OUT_OF_MEMORY
    if isinstance(error, CheckError):
        return Fault(str(error), of_data=False)
    if isinstance(error, ChangedError):
        return _make_change_fault(file)
    if isinstance(error, (DamagedFileError, StoreError)):
        return Fault(f"{file.display_path} {error}")
    if isinstance(error, FileNotFoundError):
        return Fault(
            f"{file.display_path} disappeared during the count, or a worker does not see it. "
            "All workers must see the files under the same path."
        )
    # Arrow raises OSError for damage, too, but without a number.
    if isinstance(error, OSError) and error.errno is not None:
        return Fault(f"{file.display_path} cannot be read any more. Check its disk or store.")
    if isinstance(error, ImportError):
        package = "a package" if error.name is None else f"the package {error.name}"
        return Fault(
            f"{file.display_path} cannot be read, because a worker lacks {package}. Install it "
            "on every worker."
        )
    return _make_damage_fault(file, None)


def _make_change_fault(file: CheckedFile) -> Fault:
    return Fault(
        f"{file.display_path} changed during the count. Count again when nothing writes to it."
    )


def _make_damage_fault(file: CheckedFile, row_group: int | None) -> Fault:
    """Return the fault for damage in a row group, or before the first one is read."""
    if row_group is not None:
        return Fault(describe_damage(file, row_group))
    return Fault(f"{file.display_path} cannot be opened, so the file is damaged. Write it again.")


def _read_row_groups(joiner: _BatchJoiner, file_slice: FileSlice, ahead: ReadAhead) -> Fault | None:
    """Read the row groups of one file, and check their numbers of rows against the footer.

    Raises:
        DamagedFileError: A column has a type that is not counted, or deleted rows changed.
        StoreError: The store does not send the bytes.
        OSError: The disk cannot be read.
    """
    file, shared = file_slice.file, dict(file_slice.file.folder_codes)
    if file.exact and not file.columns and file.adaptation is None:
        joiner.consumer.take_identical_rows(file_slice.rows, shared)
        return None
    adapt = file.load_adaptation()
    # In other formats, the indices of dictionaries may be too narrow for joined dictionaries.
    joins = file.format is Format.PARQUET and not _is_outside(file)
    take_batch = (joiner if joins else joiner.consumer).take_batch
    row_group: int | None = None
    try:
        opened: AbstractContextManager[Any] = (
            nullcontext(partial(ahead.read, file)) if ahead.reads(file) else open_file(file)
        )
        with opened as read_row_group:
            for row_group in file_slice.row_groups:
                before, rows = sum(file.rows[:row_group]), 0
                for batch in read_row_group(row_group, _BATCH_ROWS):
                    adapted = batch if adapt is None else adapt(batch, before + rows)
                    rows += batch.num_rows
                    if file.columns:
                        take_batch(adapted, file.columns, shared)
                    else:
                        joiner.consumer.take_identical_rows(adapted.num_rows, shared)
                if file.exact and rows != file.rows[row_group]:
                    what = "does not hold the number of rows that the footer gives"
                    return Fault(describe_damage(file, row_group, what))
    except Exception as error:
        if isinstance(error, _NO_DAMAGE) or getattr(error, "errno", None) is not None:
            raise
        return _make_damage_fault(file, row_group)
    return None
