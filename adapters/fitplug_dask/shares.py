"""Shares: row groups cut into a few equal portions of work, and the memory they will need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fitplug.errors import TablesError
from fitplug_dask.snapshot import File

_PER_WORKER = 3
_MOST_ROWS = 2**24  # about half a second of work: progress shows, and a lost worker loses little
_ROWS_PER_CELL = 4  # below this, allocating and adding up a task's cells costs more than counting

MEMORY_LIMIT = 2**34
"""Bytes of counters that may be held at once, 16 GiB."""


@dataclass(frozen=True)
class Piece:
    """Units of one file: row groups, record batches or the whole."""

    file: File
    row_groups: tuple[int, ...]

    @property
    def rows(self) -> int:
        return sum(self.file.rows[group] for group in self.row_groups)


@dataclass(frozen=True)
class Share:
    """The pieces that one task counts."""

    pieces: tuple[Piece, ...]

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)


def cut(files: Sequence[File], cells: int, workers: int) -> list[Share]:
    """Shares of about equally many rows, each of neighbouring row groups.

    cells: in all joint tables; workers: threads that will count at the same time.
    """
    total = sum(map(sum, (file.rows for file in files)))
    finest = max(_PER_WORKER * workers, total // _MOST_ROWS)
    shares = max(1, workers, min(finest, total // (_ROWS_PER_CELL * cells)))
    cuts: dict[int, list[Piece]] = {}
    before = 0
    for file in files:
        held: dict[int, list[int]] = {}
        for group, rows in enumerate(file.rows):
            if rows:
                # The share in which the middle row of this group falls.
                share = (2 * before + rows) * shares // (2 * total)
                held.setdefault(share, []).append(group)
            before += rows
        for share, row_groups in held.items():
            cuts.setdefault(share, []).append(Piece(file, tuple(row_groups)))
    return [Share(tuple(pieces)) for pieces in cuts.values()]


def fan_in(cells: int) -> int:
    """How many results are added at a time: few when each is large, for they are held at once."""
    return 8 if cells <= 2**20 else 2


def needed_memory(cells: int, workers: int) -> int:
    """Bytes of counters that `workers` tasks of one process hold at once."""
    return 8 * cells * (workers + fan_in(cells) + 1)


def check_memory(cells: int, workers: int) -> None:
    """Raises TablesError if the counters of `workers` tasks at once exceed MEMORY_LIMIT."""
    need = needed_memory(cells, workers)
    if need > MEMORY_LIMIT:
        raise TablesError(
            f"the tables to count hold {cells:,} cells, and counting them would take about "
            f"{need / 2**30:,.0f} GiB where {MEMORY_LIMIT / 2**30:.0f} GiB are allowed; "
            "use fewer attributes per table or coarser ones, or fewer workers"
        )
