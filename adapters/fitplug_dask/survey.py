"""Survey: what a count would read and take, told before any row is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fitplug_dask.counting import (
    Wanted,
    check_client,
    check_extras,
    check_person,
    prepare,
    wanted_tables,
)
from fitplug_dask.places import Options
from fitplug_dask.sources import Source, find

if TYPE_CHECKING:
    from distributed import Client

_READING = 2**27  # bytes a thread takes for the rows it reads, measured on 20 columns


@dataclass(frozen=True, repr=False)
class Survey:
    """What a count would read and take.

    files: how many, of which format; rows: in all, exact and so CONFIDENTIAL, None where the files
    do not say (CSV, Arrow streams); tasks: shares of work, for so many threads; cells: of all
    tables counted jointly; memory: bytes that one process will hold at most, about.
    """

    files: int
    format: str
    rows: int | None
    tasks: int
    threads: int
    cells: int
    memory: int

    def __repr__(self) -> str:
        return f"Survey({self.files} {self.format} files, {self.cells} cells; rows confidential)"


def survey(
    source: Source,
    wanted: Wanted,
    *,
    client: Client | None = None,
    storage_options: Options | None = None,
    person: str | None = None,
) -> Survey:
    """What `count` with the same arguments would read and take.

    It finds the files and checks their footers and schemas as `count` does, with the same errors,
    but reads no row and writes nothing.
    """
    check_client(client)
    domain, names = wanted_tables(wanted)
    check_extras()
    from fitplug_dask.shares import cut, memory
    from fitplug_dask.snapshot import take_snapshot

    prepared = prepare(domain, names, client)
    prepared.check_memory()
    job, in_all, on_one = prepared.job, prepared.threads, prepared.on_one
    check_person(person, job.attributes)
    files = take_snapshot(find(source, storage_options), job.attributes, person)
    records = [file.records for file in files]
    return Survey(
        files=len(files),
        format=files[0].format.value,
        rows=None if None in records else sum(n for n in records if n is not None),
        tasks=len(cut(files, job.total_cells, in_all)),
        threads=in_all,
        cells=job.total_cells,
        memory=memory(job.total_cells, prepared.in_tables, on_one) + on_one * _READING,
    )
