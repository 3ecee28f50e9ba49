"""Survey: what a count would read and take, told before any row is read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fitplug.counts import Filters, Where, check_rows, filters_of, say_rows
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

    from fitplug_dask.sources import Found

_READING = 2**27  # bytes a thread takes for the rows it reads, measured on 20 columns

_COUNTED = re.compile(
    r"(n|num|number|(.*[^a-z])?"
    r"(counts?|cnt|pop|population|people|persons|records|weights?|wg?t|freq|frequency|tot|total))"
    r"[^a-z]*"
)
"""Names that columns of counts usually have, in small letters."""

_VALUES = 3
"""Of a filter, named in the sentence about rows; the others are only numbered."""


@dataclass(frozen=True, repr=False)
class Survey:
    """What a count would read and take.

    files: how many to read, of which format, and left_out: how many more lie in folders whose rows
    the filters leave out; rows: in all files to read, exact and so CONFIDENTIAL, None where they do
    not say (CSV, Arrow streams); tasks: shares of work, for so many threads; cells: of all tables
    counted jointly; memory: bytes that one process will hold at most, about.
    rows_are: how rows are understood, a sentence. counts: if each is taken for one record, the
    columns that by their names and types may say of how many records it is an aggregate.
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

    def __repr__(self) -> str:
        return f"Survey({self.files} {self.format} files, {self.cells} cells; rows confidential)"


def survey(
    source: Source,
    wanted: Wanted,
    *,
    client: Client | None = None,
    storage_options: Options | None = None,
    person: str | None = None,
    weight: str | None = None,
    where: Where | None = None,
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

    prepared = prepare(domain, names, client, weight, filters_of(where))
    prepared.check_memory()
    job, in_all, on_one = prepared.job, prepared.threads, prepared.on_one
    check_rows(weight, job.filters, job.attributes, person)
    check_person(person, job.attributes)
    found = find(source, storage_options)
    files = take_snapshot(found, job.attributes, person, weight=weight, filters=job.filters)
    read = [file for file in files if not file.left_out]
    records = [file.records for file in read]
    known = (*domain.names, *job.filters)
    single = weight is None and person is None
    return Survey(
        files=len(read),
        format=files[0].format.value,
        rows=None if None in records else sum(n for n in records if n is not None),
        tasks=len(cut(files, job.total_cells, in_all)),
        threads=in_all,
        cells=job.total_cells,
        memory=memory(job.total_cells, prepared.in_tables, on_one, weighted=weight is not None)
        + on_one * _READING,
        left_out=len(files) - len(read),
        rows_are=_sentence(weight, job.filters),
        counts=_columns_of_counts(found[0], known) if single and files[0].columns else (),
    )


def _sentence(weight: str | None, filters: Filters) -> str:
    said = say_rows(weight, filters, _VALUES)
    if weight is not None and said is not None:
        return said
    return "; ".join(filter(None, ["each row is one record", said]))


def _columns_of_counts(file: Found, known: Sequence[str]) -> tuple[str, ...]:
    """The columns of integers, or of text in CSV, that are named as columns of counts are and are
    none of those known.
    """
    from fitplug_dask.codes import kind
    from fitplug_dask.formats import TEXTS
    from fitplug_dask.snapshot import header_of

    _, header = header_of(file)
    return tuple(
        name
        for name, held in zip(header.schema.names, header.schema.types, strict=True)
        if name not in known
        and (file.format in TEXTS or kind(held) == "integers")
        and _COUNTED.fullmatch(name.lower())
    )
