"""Counting: from files and wanted tables to exact Tables."""

from __future__ import annotations

import logging
import math
from collections.abc import Container, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

from fitplug.counts import Filters, Names, Tables, Where, check_rows, filters_of, say_rows
from fitplug.domain import Domain
from fitplug.errors import DomainError, InputError, TablesError
from fitplug.plan import Plan
from fitplug.workload import Workload
from fitplug_dask.layout import joint_tables, marginals
from fitplug_dask.places import Options
from fitplug_dask.progress import Report, reporter
from fitplug_dask.sources import Source, find

if TYPE_CHECKING:
    from distributed import Client

    from fitplug_dask.checkpoint import Checkpoint
    from fitplug_dask.kernel import Job
    from fitplug_dask.selection import Selection


_LOG = logging.getLogger(__name__)

Wanted: TypeAlias = Plan | Workload | tuple[Domain, Sequence[Sequence[str]]]
"""What says which attribute sets to count, and over which domain."""


def count(
    source: Source,
    wanted: Wanted,
    *,
    client: Client | None = None,
    progress: bool | Report | None = None,
    person: str | None = None,
    contributions: int | None = None,
    key: bytes | None = None,
    checkpoint: str | PathLike[str] | None = None,
    storage_options: Options | None = None,
    weight: str | None = None,
    where: Where | None = None,
) -> Tables:
    """Exact counts, from Parquet, Arrow or CSV files, of the tables a plan needs.

    A record that is null or outside the domain on any attribute that any wanted table uses is left
    out of every table, as the tables must be marginals of one histogram.

    source: a file, a folder, a glob (`data/state=*/`), or a list of these; each a local path or a
    URL of fsspec (`s3://bucket/people/`). In a folder all files at any depth are read that end in
    .parquet, .parq, .arrow, .feather, .ipc, .arrows, .csv or .csv.gz, except below names that
    start with "_" or "."; all must be of one format. Folders named `key=value` make `key` an
    attribute, its values typed by the domain. So is the text of CSV files, whose first line must
    name the columns, with commas between them: text that spells no value of the attribute's type
    is a value outside the domain, and an empty value is null (a quoted one is the empty string).
    wanted: a Plan, a Workload, or (domain, attribute sets); the set () is the total.
    client: a dask.distributed Client whose workers see the files under the same paths; None
    counts on threads of this process. A CSV file is one task, however large; of other files every
    row group or record batch may be one.
    progress: True shows a percentage on stderr; a callable is told (rows counted, rows in all) in
    this process whenever a task ends. Those numbers are exact, so show their ratio only; of
    files that do not say how many rows they hold they are guesses by their bytes.
    storage_options: keywords of the file systems that URLs name, such as credentials; they go to
    the workers, and into no message or name of a task.

    person, contributions: a column that identifies persons, and the most rows k of each that are
    counted. More are left out by a keyed hash of the person's own rows, so that one person more or
    less changes the tables by at most k rows; see `fitplug_dask.selection`. Rows without a person
    are left out. The tables say so: `tables.contributions`.
    key: of that hash, at least 16 secret bytes; drawn anew if left out. The same key keeps the
    same rows, whatever the files, their order and the workers.

    weight: a column of integers that says how many records each row stands for, if rows are
    aggregates. Null is none, a number below 0 is 0, and one above 2^40 is 2^40, as what rows hold
    is refused by no error. One person more adds 1 to one row, so that rho is what it is of rows;
    that is not so of a survey's sampling weights. Not with person, whose rows are single.
    where: {column: value, or values}: only rows that hold one of the values in each of these
    columns are counted, and only they compete for a person's k. Values are strings, integers,
    booleans or dates, of one type a column, which say how its values are read, as attributes do;
    null is none of them. The columns may be attributes, folder keys (files in folders of other
    keys are not read) or neither.

    checkpoint: a folder that keeps finished counts, so that the same call goes on where one that
    was killed had come to, as long as the files, the domain, the tables, weight and where are the
    same. What it holds is exact and confidential; it is removed when the count has finished. Not
    with person.

    Returns Tables of int64 arrays, one per attribute set, axes in the domain's order. Whatever the
    number of rows, a process holds about 250 MB, and for each cell 4 bytes a thread (8 of weights)
    and 24 more, or 72 more if there are at most 2^20 cells.

    Workers may be lost: what they held is counted again, and no row counts twice. Where that is
    frequent, raise Dask's `distributed.scheduler.allowed-failures`.

    Raises DataError for files that are missing, damaged, met twice (also by links), of another
    schema than the domain, or that change meanwhile; TablesError for tables that cannot be counted
    or need too much memory; DomainError for an attribute that the domain does not have, and for
    weights and filters that are none; BudgetError for contributions that are no number of rows;
    FitplugError if the workers of `client` fail. No message tells anything that rows hold.
    """
    report = reporter(progress)
    check_client(client)
    domain, names = wanted_tables(wanted)
    check_extras()
    from fitplug_dask import shuffle
    from fitplug_dask.kernel import Partial
    from fitplug_dask.schedule import run
    from fitplug_dask.shares import cut
    from fitplug_dask.snapshot import take_snapshot

    prepared = prepare(domain, names, client, weight, filters_of(where))
    job, in_all = prepared.job, prepared.threads
    check_rows(weight, job.filters, job.attributes, person)
    selection = _selection(person, contributions, key, tuple(job.attributes))
    if selection is not None and checkpoint is not None:
        raise InputError(
            f"checkpoint {checkpoint} cannot be kept of a count by person, whose rows are never "
            "written to a file; leave out the checkpoint or the person"
        )
    prepared.check_memory()
    found = find(source, storage_options)
    files = take_snapshot(found, job.attributes, person, weight=weight, filters=job.filters)

    def counted_with(kept: Checkpoint | None) -> Partial:
        if kept is not None:
            shares = cut(files, job.total_cells, kept.workers(in_all))
            return run(job, shares, client, report, kept.count_share)
        shares = cut(files, job.total_cells, in_all)
        if selection is not None:
            return shuffle.run(job, selection, shares, client, report, in_all)
        return run(job, shares, client, report)

    if checkpoint is None:
        counted = counted_with(None)
    else:
        from fitplug_dask.checkpoint import opened

        with opened(checkpoint, job, files) as kept:
            counted = counted_with(kept)
    by_joint = dict(zip(job.joints, counted.counts, strict=True))
    tables = marginals(domain, by_joint, names)
    said = say_rows(weight, job.filters)
    # Nothing of how many rows there are: that is as confidential as the counts.
    _LOG.info("counted %d tables from %d files", len(tables), len(found))
    return Tables(domain, tables, contributions=contributions, person=person, rows=said, copy=False)


@dataclass(frozen=True)
class Prepared:
    """What is known before any file is looked at. threads: that count at once in all, and
    on_one: at most in one process; in_tables: cells of all wanted tables.
    """

    job: Job
    threads: int
    on_one: int
    in_tables: int

    def check_memory(self) -> None:
        """Raise TablesError if counting may need more memory than is allowed."""
        from fitplug_dask.shares import check_memory

        weighted = self.job.weight is not None
        check_memory(self.job.total_cells, self.in_tables, self.on_one, weighted=weighted)


def prepare(
    domain: Domain, names: Sequence[Names], client: Any, weight: str | None, filters: Filters
) -> Prepared:
    """The work of counting these tables with this client. Raises DomainError."""
    from fitplug_dask.kernel import Job
    from fitplug_dask.schedule import workers

    used = domain.ordered(tuple({name for table in names for name in table}))
    attributes = {name: domain[name] for name in used}
    job = Job(attributes, joint_tables(domain, names), weight, filters)
    in_tables = sum(math.prod(domain.shape_of(table)) for table in names)
    return Prepared(job, *workers(client), in_tables)


def _selection(
    person: str | None, contributions: int | None, key: bytes | None, used: Names
) -> Selection | None:
    from fitplug_dask.selection import Selection

    if person is None and contributions is None and key is None:
        return None
    selection = Selection.of(person, contributions, key)
    check_person(person, used)
    return selection


def check_person(person: str | None, used: Container[str]) -> None:
    """Raise DomainError if the column of persons is among the attributes counted."""
    if person is not None and person in used:
        raise DomainError(
            f"{person!r} identifies persons, so it cannot be counted too; "
            "leave it out of the queries or name another column of persons"
        )


def wanted_tables(wanted: Wanted) -> tuple[Domain, list[Names]]:
    """The domain, and the attribute sets wanted, each once. Raises TablesError, DomainError."""
    domain, tables = wanted if isinstance(wanted, tuple) else (wanted.domain, wanted.tables)
    names: list[Names] = []
    for table in tables:
        given = (table,) if isinstance(table, str) else tuple(table)
        if len(set(given)) != len(given):
            raise TablesError(f"table {given} names an attribute twice; name it once")
        ordered = domain.ordered(given)
        if ordered not in names:
            names.append(ordered)
    if not names:
        raise TablesError("no table is wanted; name at least one attribute set")
    return domain, names


def check_client(client: Any) -> None:
    """Raise TypeError for what is no client that can be waited for."""
    if client is None:
        return
    if not (hasattr(client, "submit") and hasattr(client, "nthreads")):
        raise TypeError(f"client must be a dask.distributed Client, not {type(client).__name__}")
    if getattr(client, "asynchronous", False):
        raise TypeError("client must be a synchronous Client, made with asynchronous=False")


def check_extras() -> None:
    """Raise ImportError if a library is missing."""
    try:
        import dask  # noqa: F401
        import pyarrow  # noqa: F401
    except ImportError:
        missing = True
    else:
        missing = False
    if missing:
        raise ImportError(
            'counting needs dask and pyarrow; install them with: pip install "fitplug[dask]"'
        )
