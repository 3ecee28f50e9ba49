"""Partial counts: the joint tables over some of the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fitplug_dask.kernel.job import Job
from fitplug_dask.workers import OUT_OF_MEMORY, Fault

LARGEST_SUM = 2**58
"""The most records, or shares of records, that are added up. Eight such sums and one more block of
rows fit in int64. Tables refuse to hold as many records, or more shares.
"""

_DENSE_FROM = 4  # with more than a quarter of the cells in use, positions cost what they save


@dataclass(frozen=True, repr=False)
class PartialCounts:
    """The joint tables over some of the rows. They are confidential, and so is their repr.

    Attributes:
        counts: The counts (cells,) of each joint table.
        shares: The most shares that one of them counts of each record.
    """

    counts: tuple[npt.NDArray[Any], ...]
    shares: int = 1

    def __repr__(self) -> str:
        return "PartialCounts(counts confidential)"

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel between processes without most zeros and leading zeros."""
        return _unpack_counts, (self.shares, *map(_pack_counts, self.counts))


def _pack_counts(counts: npt.NDArray[Any]) -> tuple[Any, ...]:
    """Pack the counts (cells,) of a table in the narrowest type that holds them.

    Returns:
        The counts alone; or, where few are not zero, their positions, these counts, and the number
        of cells.
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
    """Return the joint tables of no rows."""
    return PartialCounts(
        tuple(np.zeros(job.count_cells(joint), np.int64) for joint in job.joints), job.shares
    )


_TOO_MANY_RECORDS = Fault("the rows stand for more than 2**53 records; integers would overflow")

_TOO_MANY_SHARES = Fault(
    "the rows stand for more than 2**58 shares of records; integers would overflow, so give the "
    "measures larger units, or ask for fewer of them together"
)


def choose_overflow_fault(shares: int) -> Fault:
    """Return the fault of counts of too many records.

    Args:
        shares: The most shares that a table counts of each record; 1 without measures.
    """
    return _TOO_MANY_RECORDS if shares == 1 else _TOO_MANY_SHARES


def add_partial_counts(*terms: PartialCounts | Fault) -> PartialCounts | Fault:
    """Return the sum of some partial counts, or the first fault. The terms are not changed."""
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
    # Each table counts the same records, and some count shares of them.
    if sums and max(counts.sum() for counts in sums) > LARGEST_SUM:
        return choose_overflow_fault(shares)
    return PartialCounts(sums or (), shares)
