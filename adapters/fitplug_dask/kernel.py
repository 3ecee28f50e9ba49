"""Kernel: the joint tables of one share, counted in one pass over its row groups.

What goes wrong is returned as a Fault, never raised: an exception of a reader may quote values,
and a scheduler would log it together with the arguments of the task.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fitplug.counts import Filters
from fitplug.domain import OUTSIDE, Attribute
from fitplug_dask.readers import damage, opened
from fitplug_dask.shares import Piece, Share
from fitplug_dask.snapshot import File
from fitplug_dask.tally import LARGEST_SUM, Tally

_BATCH_ROWS = 2**16
_DENSE_FROM = 4  # with more than a quarter of the cells in use, positions cost what they save


@dataclass(frozen=True)
class Job:
    """attributes: those counted, by name; joints: the attribute sets counted jointly; weight: the
    column that says how many records a row stands for; filters: which rows are counted.
    """

    attributes: dict[str, Attribute]
    joints: tuple[tuple[str, ...], ...]
    weight: str | None = None
    filters: Filters = field(default_factory=dict)

    def cells(self, joint: Sequence[str]) -> int:
        return math.prod(self.attributes[name].size for name in joint)

    @property
    def total_cells(self) -> int:
        return sum(map(self.cells, self.joints))


@dataclass(frozen=True, repr=False)
class Partial:
    """Counts (cells,) of each joint table over some of the rows. Confidential, also as a repr."""

    counts: tuple[npt.NDArray[Any], ...]

    def __repr__(self) -> str:
        return "Partial(counts confidential)"

    def __reduce__(self) -> tuple[Any, ...]:
        """Travels, between processes, without most zeros and leading zeros."""
        return _unpacked, tuple(map(_packed, self.counts))


def _packed(counts: npt.NDArray[Any]) -> tuple[Any, ...]:
    """(counts,), or where few are not zero, (where they are, they, how many counts there are): in
    the narrowest type that holds them.
    """
    most = counts.max(initial=0)
    # Never uint64, which NumPy does not add to int64.
    narrow = np.min_scalar_type(most) if most < 2**32 else np.dtype(np.int64)
    if np.count_nonzero(counts) * _DENSE_FROM >= len(counts):
        return (counts.astype(narrow, copy=False),)
    at = np.flatnonzero(counts)
    return at.astype(np.min_scalar_type(len(counts))), counts[at].astype(narrow), len(counts)


def _unpacked(*packed: tuple[Any, ...]) -> Partial:
    return Partial(
        tuple(counts if not rest else _spread(counts, *rest) for counts, *rest in packed)
    )


def _spread(at: npt.NDArray[Any], counts: npt.NDArray[Any], cells: int) -> npt.NDArray[Any]:
    dense = np.zeros(cells, dtype=counts.dtype)
    dense[at] = counts
    return dense


@dataclass(frozen=True)
class Fault:
    """Why counting failed; says nothing that rows hold. of_data: the files are at fault."""

    message: str
    of_data: bool = True


NO_MEMORY = Fault(
    "counting ran out of memory; use fewer workers, or fewer or coarser attributes", of_data=False
)

TOO_MANY = Fault("the rows stand for more than 2**53 records; integers would overflow")


def count_share(job: Job, share: Share) -> Partial | Fault:
    """The joint tables of one share of the rows."""
    try:
        tally = Tally(job.attributes, job.joints, share.most_rows, job.weight, job.filters)
    except MemoryError:
        return NO_MEMORY
    if fault := read_share(tally, share):
        return fault
    return Partial(tuple(tally.counters)) if tally.records <= LARGEST_SUM else TOO_MANY


class Sink(Protocol):
    """What takes the rows that are read."""

    def batch(self, batch: Any, columns: Sequence[str], keys: Mapping[str, int]) -> None:
        """The rows of an Arrow batch; `keys` are codes that all of them share."""

    def same(self, rows: int, keys: Mapping[str, int]) -> None:
        """`rows` rows that are told apart by no column."""


def read_share(sink: Sink, share: Share) -> Fault | None:
    """Give all rows of a share to `sink`, or say why not."""
    for piece in share.pieces:
        if fault := _count_piece(sink, piece):
            return fault
    return None


def add(*parts: Partial | Fault) -> Partial | Fault:
    """The sum of some partial counts, or the first fault. The parts are left as they are."""
    for part in parts:
        if isinstance(part, Fault):
            return part
    try:
        sums = None
        for part in parts:
            assert isinstance(part, Partial)
            if sums is None:
                sums = tuple(counts.astype(np.int64) for counts in part.counts)
            else:
                for total, counts in zip(sums, part.counts, strict=True):
                    total += counts
    except MemoryError:
        return NO_MEMORY
    # Each table counts the same records.
    if sums and sums[0].sum() > LARGEST_SUM:
        return TOO_MANY
    return Partial(sums or ())


def _count_piece(tally: Sink, piece: Piece) -> Fault | None:
    file = piece.file
    try:
        if not file.unchanged():
            return _changed(file)
        fault = _count_groups(tally, piece)
        return fault if file.unchanged() else _changed(file)
    except MemoryError:
        return NO_MEMORY
    except FileNotFoundError:
        return Fault(
            f"{file.shown} is gone since counting began, or a worker does not see it; "
            "every worker must see the files under the same path"
        )
    except Exception:
        return Fault(f"{file.shown} cannot be read any more; check the disk or store it lies on")


def _count_groups(tally: Sink, piece: Piece) -> Fault | None:
    file, keys = piece.file, dict(piece.file.keys)
    if OUTSIDE in keys.values():
        return None
    if file.exact and not file.columns:
        tally.same(piece.rows, keys)
        return None
    with opened(file) as batches:
        for unit in piece.row_groups:
            rows = 0
            try:
                for batch in batches(unit, _BATCH_ROWS):
                    rows += batch.num_rows
                    if file.columns:
                        tally.batch(batch, file.columns, keys)
                    else:
                        tally.same(batch.num_rows, keys)
            except MemoryError:
                return NO_MEMORY
            except Exception:
                return Fault(damage(file, unit))
            if file.exact and rows != file.rows[unit]:
                return Fault(damage(file, unit, "does not hold as many rows as the footer says"))
    return None


def _changed(file: File) -> Fault:
    return Fault(
        f"{file.shown} changed while it was counted; count again when nothing writes to it"
    )
