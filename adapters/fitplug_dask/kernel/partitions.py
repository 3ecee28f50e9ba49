"""Partitions: the counting job, the row groups that one task counts, and its partial counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fitplug.counts import Filters, is_measure
from fitplug.domain import Attribute, get_codec
from fitplug_dask.files import CheckedFile
from fitplug_dask.workers import OUT_OF_MEMORY, Fault, read_rows_per_task

_PER_WORKER = 6
"""Partitions of each thread: with fewer, one thread counts while the others have finished."""

# At most about half a second of work, so that progress is visible and a lost worker loses little.
_MOST_ROWS = 2**24
_MOST_VALUES = 2**25  # rows times columns; all columns take about equally long to decode
_SMALL_ROWS = 2**20
_ROWS_PER_CELL = 4  # with fewer, allocating and adding a task's cells costs more than counting


@dataclass(frozen=True)
class Job:
    """What to count.

    Attributes:
        attributes: The attributes that are counted, by name.
        joints: The attribute sets of the joint tables, as `choose_joint_tables` orders them.
        weight: The column with the number of records of each row; None if it is always one.
        filters: The values that rows must have to be counted.
        outside: The attributes for which records outside the domain are counted; empty if none.
    """

    attributes: dict[str, Attribute]
    joints: tuple[tuple[str, ...], ...]
    weight: str | None = None
    filters: Filters = field(default_factory=dict)
    outside: tuple[str, ...] = ()

    def count_cells(self, joint: Sequence[str]) -> int:
        """Return the number of cells of a joint table."""
        return math.prod(self.attributes[name].size for name in joint)

    def count_shares(self, joint: Sequence[str]) -> int:
        """Return the number of shares that a joint table counts of each record."""
        return math.prod(get_codec(self.attributes[name]).shares for name in joint)

    def find_strides(self, joint: Sequence[str]) -> dict[str, int]:
        """Return the difference in cell numbers between neighbouring cells of each attribute."""
        sizes = [self.attributes[name].size for name in joint]
        return {name: math.prod(sizes[i + 1 :]) for i, name in enumerate(joint)}

    @property
    def measures(self) -> tuple[str, ...]:
        """The attributes that are measures, whose codes are not cells."""
        return tuple(name for name, one in self.attributes.items() if is_measure(one))

    @property
    def shares(self) -> int:
        """The most shares that a joint table counts of each record: 1 without measures."""
        return max(map(self.count_shares, self.joints), default=1)

    @property
    def total_cells(self) -> int:
        """The number of cells of all joint tables."""
        return sum(map(self.count_cells, self.joints))


@dataclass(frozen=True)
class FileSlice:
    """Some row groups of one file.

    Attributes:
        file: The file.
        row_groups: The numbers of the row groups.
    """

    file: CheckedFile
    row_groups: tuple[int, ...]

    @property
    def rows(self) -> int:
        """The number of rows; a guess unless `file.exact`."""
        return sum(self.file.rows[group] for group in self.row_groups)


@dataclass(frozen=True, repr=False)
class Partition:
    """The rows that one task counts.

    Workers may log its repr, so the repr contains no number of rows.

    Attributes:
        slices: The row groups, file by file.
    """

    slices: tuple[FileSlice, ...]

    @property
    def rows(self) -> int:
        """The number of rows; a guess unless it is exact for all files."""
        return sum(file_slice.rows for file_slice in self.slices)

    @property
    def max_rows(self) -> int:
        """An upper bound on every counter: the number of rows, if it is exact for all files."""
        return self.rows if all(file_slice.file.exact for file_slice in self.slices) else 2**62

    def __repr__(self) -> str:
        return f"Partition({len(self.slices)} slices)"


def cut_partitions(files: Sequence[CheckedFile], cells: int, workers: int) -> list[Partition]:
    """Cut files into partitions of about equally many rows, each of neighbouring row groups.

    Args:
        files: The files.
        cells: The number of cells of all joint tables.
        workers: The number of threads that will count at once.

    Raises:
        InputError: The operator's setting for the rows per task is not a number.
    """
    files = [file for file in files if not file.left_out]
    total = sum(map(sum, (file.rows for file in files)))
    columns = max((len(file.columns) for file in files), default=1)
    most_rows = min(_MOST_ROWS, max(1, _MOST_VALUES // max(1, columns)))
    finest = max(_PER_WORKER * workers, total // most_rows)
    wanted = min(finest, total // (_ROWS_PER_CELL * cells))
    chosen = read_rows_per_task()
    if chosen is not None:
        wanted = total // chosen
    # With a multiple of the workers, none idles while others count the last partitions.
    partitions = max(1, round(wanted / workers)) * workers
    cuts: dict[int, list[FileSlice]] = {}
    before = 0
    for file in files:
        row_groups_of: dict[int, list[int]] = {}
        for group, rows in enumerate(file.rows):
            if rows:
                # The partition of the group's middle row.
                number = (2 * before + rows) * partitions // (2 * total)
                row_groups_of.setdefault(number, []).append(group)
            before += rows
        for number, row_groups in row_groups_of.items():
            cuts.setdefault(number, []).append(FileSlice(file, tuple(row_groups)))
    return [Partition(tuple(slices)) for slices in cuts.values()]


def cut_small_partitions(files: Sequence[CheckedFile], threads: int) -> list[Partition]:
    """Cut files into partitions of at most about a million rows, for `threads` threads.

    The size of the tables does not matter: a task keeps the rows of its partition, or the cells
    that occur in them.
    """
    rows = sum(sum(file.rows) for file in files if not file.left_out)
    return cut_partitions(files, 1, max(threads, rows // (_PER_WORKER * _SMALL_ROWS)))


def choose_fan_in(cells: int) -> int:
    """Return how many partial counts are added at once: few if they take much memory."""
    return 8 if cells <= 2**20 else 2


def estimate_memory(joint_cells: int, table_cells: int, threads: int, *, wide: bool = False) -> int:
    """Return the most bytes that one process needs, without the batches of rows.

    The counters of each thread take 4 bytes per cell (a partition of 2^32 rows or more would have
    more cells than are allowed), or 8 if rows are weighted or divided into shares. An addition
    needs 8 bytes per cell for each term and for the sum. Later, the joint tables, the wanted tables
    and their copies take 8 bytes per cell each.

    Args:
        joint_cells: The number of cells of all joint tables.
        table_cells: The number of cells of all wanted tables.
        threads: The number of threads of the process that count.
        wide: Whether rows are weighted, or divided into shares by measures.
    """
    fan_in = choose_fan_in(joint_cells)
    counting = joint_cells * ((8 if wide else 4) * threads + 8 * fan_in + 8)
    return max(counting, 8 * joint_cells + 3 * 8 * table_cells)


LARGEST_SUM = 2**58
"""The most records, or shares of records, that are added up. Eight such sums and another block of
rows still fit into int64. `Tables` refuses so many records, or more shares.
"""

_DENSE_FROM = 4  # if more than a quarter of the cells are in use, storing positions saves nothing


@dataclass(frozen=True, repr=False)
class PartialCounts:
    """The joint tables of some of the rows. They are confidential, and the repr hides them.

    Attributes:
        counts: The counts (cells,) of each joint table; then, if requested, the counts of records
            outside the domain as `OutsideCounter.counts` gives them.
        shares: The most shares that a joint table counts of each record.
    """

    counts: tuple[npt.NDArray[Any], ...]
    shares: int = 1

    def __repr__(self) -> str:
        return "PartialCounts(counts confidential)"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the counts without most of their zeros, in narrow types."""
        return _unpack_counts, (self.shares, *map(_pack_counts, self.counts))


def _pack_counts(counts: npt.NDArray[Any]) -> tuple[Any, ...]:
    """Pack the counts (cells,) of a table in the narrowest possible type.

    Returns:
        The counts alone; or, if most are 0, the positions of the others, their counts, and the
        number of cells.
    """
    largest = counts.max(initial=0)
    # Never uint64, which NumPy does not add to int64.
    dtype = np.min_scalar_type(largest) if largest < 2**32 else np.dtype(np.int64)
    if np.count_nonzero(counts) * _DENSE_FROM >= len(counts):
        return (counts.astype(dtype, copy=False),)
    positions = np.flatnonzero(counts)
    narrow = positions.astype(np.min_scalar_type(len(counts)))
    return narrow, counts[positions].astype(dtype), len(counts)


def _unpack_counts(shares: int, *packed: tuple[Any, ...]) -> PartialCounts:
    return PartialCounts(
        tuple(counts if not rest else _scatter(counts, *rest) for counts, *rest in packed), shares
    )


def _scatter(positions: npt.NDArray[Any], counts: npt.NDArray[Any], cells: int) -> npt.NDArray[Any]:
    dense = np.zeros(cells, dtype=counts.dtype)
    dense[positions] = counts
    return dense


def make_empty_counts(job: Job) -> PartialCounts:
    """Return joint tables without records."""
    sizes = [job.count_cells(joint) for joint in job.joints]
    if job.outside:
        sizes.append(2 * (len(job.outside) + 1))
    return PartialCounts(tuple(np.zeros(size, np.int64) for size in sizes), job.shares)


_TOO_MANY_RECORDS = Fault("the rows or their weights add up to more than 2**53. Count fewer rows.")

_TOO_MANY_SHARES = Fault(
    "the number of rows times the units between the bounds of the measures exceeds 2**58. Give "
    "the measures larger units."
)


def choose_overflow_fault(shares: int) -> Fault:
    """Return the fault for counting too many records.

    Args:
        shares: The most shares that a table counts of each record; 1 without measures.
    """
    return _TOO_MANY_RECORDS if shares == 1 else _TOO_MANY_SHARES


def add_partial_counts(*terms: PartialCounts | Fault) -> PartialCounts | Fault:
    """Return the sum of partial counts, or the first fault, without changing the terms."""
    for term in terms:
        if isinstance(term, Fault):
            return term
    try:
        sums, shares = None, 1
        for term in terms:
            assert isinstance(term, PartialCounts)
            shares = max(shares, term.shares)
            if sums is None:
                sums = tuple(counts.astype(np.int64) for counts in term.counts)
            else:
                for total, counts in zip(sums, term.counts, strict=True):
                    total += counts
    except MemoryError:
        return OUT_OF_MEMORY
    # Each table counts the same records, and some tables count shares of them.
    if sums and max(counts.sum() for counts in sums) > LARGEST_SUM:
        return choose_overflow_fault(shares)
    return PartialCounts(sums or (), shares)
