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
"""Bytes of counters and tables that one process may hold at once, 16 GiB."""


@dataclass(frozen=True)
class Piece:
    """Units of one file: row groups, record batches or the whole."""

    file: File
    row_groups: tuple[int, ...]

    @property
    def rows(self) -> int:
        return sum(self.file.rows[group] for group in self.row_groups)


@dataclass(frozen=True, repr=False)
class Share:
    """The pieces that one task counts. Workers may log its repr: it tells no number of rows."""

    pieces: tuple[Piece, ...]

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)

    @property
    def most_rows(self) -> int:
        """What no counter of the share can exceed: its rows, if the files say how many they are."""
        return self.rows if all(piece.file.exact for piece in self.pieces) else 2**62

    def __repr__(self) -> str:
        return f"Share({len(self.pieces)} pieces)"


def cut(files: Sequence[File], cells: int, workers: int) -> list[Share]:
    """Shares of about equally many rows, each of neighbouring row groups.

    cells: in all joint tables; workers: threads that will count at the same time.
    """
    files = [file for file in files if not file.left_out]
    total = sum(map(sum, (file.rows for file in files)))
    finest = max(_PER_WORKER * workers, total // _MOST_ROWS)
    wanted = min(finest, total // (_ROWS_PER_CELL * cells))
    # A multiple, or some workers would idle while others count the last shares.
    shares = max(1, round(wanted / workers)) * workers
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


def check_memory(
    joint_cells: int, table_cells: int, threads: int, *, weighted: bool = False
) -> None:
    """Raises TablesError if counting may hold more than MEMORY_LIMIT bytes in one process.

    joint_cells, table_cells: in all joint and all wanted tables; threads: of the process.
    """
    need = memory(joint_cells, table_cells, threads, weighted=weighted)
    if need > MEMORY_LIMIT:
        raise TablesError(
            f"the tables to count hold {joint_cells:,} cells, and counting them would take about "
            f"{need / 2**30:,.0f} GiB where {MEMORY_LIMIT / 2**30:.0f} GiB are allowed; "
            "use fewer attributes per table or coarser ones, or fewer workers"
        )


def memory(joint_cells: int, table_cells: int, threads: int, *, weighted: bool = False) -> int:
    """Bytes held at most, beside the batches: by each thread its counters, 4 bytes a cell (a share
    of 2^32 rows or more would have more cells than are allowed), or 8 if rows are weighted; by a
    sum what it adds up, and itself, 8 bytes a cell, twice while sums are added; and then the
    tables, with their copies.
    """
    counting = joint_cells * ((8 if weighted else 4) * threads + 8 * fan_in(joint_cells) + 8)
    return max(counting, 8 * joint_cells + 3 * 8 * table_cells)
