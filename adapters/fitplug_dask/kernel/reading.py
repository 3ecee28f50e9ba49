"""Reading: one pass over the row groups of a partition, and what goes wrong in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from fitplug.domain import OUTSIDE
from fitplug_dask.files import (
    CheckedFile,
    DamagedFileError,
    Fetched,
    Fetcher,
    Member,
    Portion,
    can_be_portioned,
    cut_portions,
    decode,
    describe_damage,
    holds_pages,
    open_file,
)
from fitplug_dask.kernel.counters import JointCounters
from fitplug_dask.kernel.job import Job
from fitplug_dask.kernel.partial_counts import PartialCounts, choose_overflow_fault
from fitplug_dask.kernel.partitions import FileSlice, Partition
from fitplug_dask.sources import ChangedError, StoreError, get_request_pool
from fitplug_dask.workers import OUT_OF_MEMORY, CheckError, Fault

T = TypeVar("T")

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
    if counters.is_full:
        return choose_overflow_fault(job.shares)
    return PartialCounts(tuple(counters.counters), job.shares)


def read_partition(consumer: RowConsumer, partition: Partition) -> Fault | None:
    """Give all rows of a partition to a consumer, or return why that failed."""
    steps = _plan_steps(partition)
    with Fetcher([step for step in steps if isinstance(step, Portion)]) as fetcher:
        for step in steps:
            if isinstance(step, Portion):
                fault = _read_portion(consumer, step, fetcher)
            else:
                fault = _read_slice(consumer, step)
            if fault:
                return fault
    return None


def _plan_steps(partition: Partition) -> list[Portion | FileSlice]:
    """Return the portions, and the slices of files that are read by themselves, in order."""
    steps: list[Portion | FileSlice] = []
    members: list[Member] = []
    for file_slice in partition.slices:
        file = file_slice.file
        if _is_outside(file):
            continue
        if all(can_be_portioned(file, group) for group in file_slice.row_groups):
            members += [Member(file, group) for group in file_slice.row_groups]
            continue
        steps += [*cut_portions(members), file_slice]
        members = []
    return [*steps, *cut_portions(members)]


def _is_outside(file: CheckedFile) -> bool:
    """Return whether the folders of a file put all its rows outside the domain."""
    return any(code == OUTSIDE for _, code in file.folder_codes)


def _read_portion(consumer: RowConsumer, portion: Portion, fetcher: Fetcher) -> Fault | None:
    """Read a portion, whose files must be those of the snapshot."""
    fetched: list[Fetched] = []
    for member, fetch in fetcher.fetch():
        held = _attempt_reading(member.file, fetch)
        if isinstance(held, Fault):
            return held
        fetched.append(held)
    # Bytes of another version may look damaged, so this comes first.
    if fault := _check_versions(portion):
        return fault
    for member, held in zip(portion.members, fetched, strict=True):
        try:
            whole = holds_pages(member, held)
        except Exception:
            whole = False
        if not whole:
            return Fault(describe_damage(member.file, member.row_group))
    return _decode_portion(consumer, portion, fetched)


def _check_versions(portion: Portion) -> Fault | None:
    """Check the files of stores that could not be asked for bytes of one version.

    Their state was read before the bytes, and is read again behind them, of several files at once.
    """
    if portion.file.location.options is None:
        return None
    files = {member.file.display_path: member.file for member in portion.members}
    doubtful = [file for file in files.values() if not file.location.proves_state(file.stamp)]
    faults = get_request_pool().map(
        lambda file: _attempt_reading(file, partial(_check_unchanged, file)), doubtful
    )
    return next((fault for fault in faults if fault), None)


def _decode_portion(
    consumer: RowConsumer, portion: Portion, fetched: Sequence[Fetched]
) -> Fault | None:
    """Give the rows of a portion to a consumer. Their number must be that of the footers."""
    file, shared = portion.file, dict(portion.file.folder_codes)
    rows = 0
    try:
        adapt = file.load_adaptation()
        for batch in decode(portion.members, fetched, _BATCH_ROWS):
            adapted = adapt(batch, rows)
            rows += batch.num_rows
            consumer.take_batch(adapted, file.columns, shared)
    except MemoryError:
        return OUT_OF_MEMORY
    except CheckError as error:
        return Fault(str(error), of_data=False)
    except ImportError as error:
        return _make_package_fault(file, error)
    except Exception:
        return _find_damage(portion, fetched)
    return None if rows == portion.rows else _find_damage(portion, fetched)


def _find_damage(portion: Portion, fetched: Sequence[Fetched]) -> Fault:
    """Return the fault of the first row group that cannot be decoded by itself."""
    damaged = portion.members[0]
    for member, held in zip(portion.members, fetched, strict=True):
        try:
            rows = sum(batch.num_rows for batch in decode([member], [held], _BATCH_ROWS))
        except MemoryError:
            return OUT_OF_MEMORY
        except Exception:
            rows = -1
        if rows != member.group.rows:
            damaged = member
            break
    return Fault(describe_damage(damaged.file, damaged.row_group))


def _read_slice(consumer: RowConsumer, file_slice: FileSlice) -> Fault | None:
    """Read the row groups of one file, which must be unchanged before and after."""
    file = file_slice.file

    def read() -> Fault | None:
        if not file.is_unchanged():
            return _make_change_fault(file)
        fault = _read_row_groups(consumer, file_slice)
        return fault if file.is_unchanged() else _make_change_fault(file)

    return _attempt_reading(file, read)


def _check_unchanged(file: CheckedFile) -> Fault | None:
    return None if file.is_unchanged() else _make_change_fault(file)


def _attempt_reading(file: CheckedFile, read: Callable[[], T]) -> T | Fault:
    """Return what `read` returns, or why the file cannot be read. Damage is no such reason."""
    try:
        return read()
    except MemoryError:
        return OUT_OF_MEMORY
    except CheckError as error:
        return Fault(str(error), of_data=False)
    except ChangedError:
        return _make_change_fault(file)
    except (DamagedFileError, StoreError) as error:
        return Fault(f"{file.display_path} {error}")
    except FileNotFoundError:
        return Fault(
            f"{file.display_path} is gone since counting began, or a worker does not see it; "
            "every worker must see the files under the same path"
        )
    except OSError as error:
        # Arrow has no number for damage, which it calls an error of input, too.
        if error.errno is None:
            return _make_damage_fault(file)
        return Fault(
            f"{file.display_path} cannot be read any more; check the disk or store it lies on"
        )
    except ImportError as error:
        return _make_package_fault(file, error)
    except Exception:
        return _make_damage_fault(file)


def _read_row_groups(consumer: RowConsumer, file_slice: FileSlice) -> Fault | None:
    """Read the row groups of one file, whose number of rows must be that of the footer.

    Raises:
        DamagedFileError: A column has a type that is not counted, or deleted rows changed.
        StoreError: The store does not send the bytes.
        OSError: The disk does not.
    """
    file, shared = file_slice.file, dict(file_slice.file.folder_codes)
    if file.exact and not file.columns and file.adaptation is None:
        consumer.take_identical_rows(file_slice.rows, shared)
        return None
    adapt = file.load_adaptation()
    with open_file(file) as read_row_group:
        for row_group in file_slice.row_groups:
            before, rows = sum(file.rows[:row_group]), 0
            try:
                for batch in read_row_group(row_group, _BATCH_ROWS):
                    adapted = adapt(batch, before + rows)
                    rows += batch.num_rows
                    if file.columns:
                        consumer.take_batch(adapted, file.columns, shared)
                    else:
                        consumer.take_identical_rows(adapted.num_rows, shared)
            except MemoryError:
                return OUT_OF_MEMORY
            except (CheckError, DamagedFileError, StoreError, FileNotFoundError, ImportError):
                raise
            except OSError as error:
                if error.errno is not None:
                    raise
                return Fault(describe_damage(file, row_group))
            except Exception:
                return Fault(describe_damage(file, row_group))
            if file.exact and rows != file.rows[row_group]:
                what = "does not hold as many rows as the footer says"
                return Fault(describe_damage(file, row_group, what))
    return None


def _make_damage_fault(file: CheckedFile) -> Fault:
    return Fault(f"{file.display_path} cannot be opened; the file is damaged, write it again")


def _make_package_fault(file: CheckedFile, error: ImportError) -> Fault:
    package = "a package" if error.name is None else f"the package {error.name}"
    return Fault(
        f"{file.display_path} cannot be read where {package} is missing; install it on every worker"
    )


def _make_change_fault(file: CheckedFile) -> Fault:
    return Fault(
        f"{file.display_path} changed while it was counted; count again when nothing writes to it"
    )
