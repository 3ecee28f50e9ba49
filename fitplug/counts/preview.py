"""Previews: what a count would read and take, before any row is read."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, repr=False)
class Preview:
    """What a count would read and take.

    Attributes:
        files: The number of files to read.
        format: The format of the files.
        rows: The rows of all files to read. They are exact and so CONFIDENTIAL; None where the
            files do not say (CSV, Arrow streams).
        tasks: The number of partitions of the rows, each counted by one task.
        threads: The number of threads that the tasks are for.
        cells: The number of cells of all tables that are counted jointly.
        memory: The most bytes that one process will hold, about.
        left_out: How many more files lie in folders whose rows do not pass the filters.
        rows_are: A sentence that says how rows are understood.
        without_checksums: How many Parquet files, of up to 100 that were looked at, have pages
            without checksums, in which damage may not be noticed.
        counts: If each row is taken for one record, the columns that by their names and types may
            say of how many records the row is an aggregate.
    """

    files: int
    format: str
    rows: int | None
    tasks: int
    threads: int
    cells: int
    memory: int
    left_out: int = 0
    rows_are: str = "each row is one record"
    counts: tuple[str, ...] = ()
    without_checksums: int = field(default=0, compare=False)

    def __repr__(self) -> str:
        return f"Preview({self.files} {self.format} files, {self.cells} cells; rows confidential)"
