"""Request: what to count and on how many threads, checked before any file is looked at."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from fitplug.counts import WEIGHT, AttributeSet, Filters
from fitplug.domain import OUTSIDE, Attribute, Domain, Encoder
from fitplug.errors import DataError, DomainError, TablesError, suggest_nearest
from fitplug.plan import Plan
from fitplug.workload import Workload
from fitplug_dask.sources import Format, FoundFile

if TYPE_CHECKING:
    from fitplug_dask.files import CheckedFile, ColumnRules
    from fitplug_dask.kernel import Job

_TABLES_SHARE = 0.6
"""The fraction of the memory of a process that tables and their counters may take."""

_TABLE_BYTES = 24
"""What a cell of a table takes in this process: a shard, its place in the table, and a copy."""

Wanted: TypeAlias = Plan | Workload | tuple[Domain, Sequence[Sequence[str]]]
"""What says which attribute sets to count, and over which domain."""


@dataclass(frozen=True)
class Request:
    """What is known before any file is looked at.

    Attributes:
        job: What to count.
        threads: The number of threads that count at once in all.
        process_threads: The most threads that count at once in one process.
        table_cells: The number of cells of all wanted tables.
        demand: What keeps a worker on a cluster that scales, as long as this request lives; None
            for threads of this process.
    """

    job: Job
    threads: int
    process_threads: int
    table_cells: int
    demand: Any = field(default=None, repr=False, compare=False)

    def choose_sharding(self, client: Any, *, whole: bool) -> bool:
        """Return whether the tables are counted in shards, as a process may not hold them.

        Args:
            client: A client of dask.distributed, or None for threads of this process.
            whole: Whether the tables must be counted as a whole.

        Raises:
            TablesError: They must be counted as a whole, and are too large for that; or this
                process cannot hold what is counted.
            FitplugError: The cluster does not answer.
        """
        from fitplug_dask.exchange import read_memory
        from fitplug_dask.scheduling import raise_fault

        allowed = int(_TABLES_SHARE * raise_fault(read_memory(client)))
        need = self.estimate_memory()
        if need <= allowed:
            return False
        here = int(_TABLES_SHARE * raise_fault(read_memory(None)))
        cells = self.table_cells
        if not whole and _TABLE_BYTES * cells <= here:
            return True
        if not whole:
            need, allowed, cells = _TABLE_BYTES * cells, here, cells
        advice = "without a person they are counted in shards; or " if whole else ""
        raise TablesError(
            f"the tables to count hold {cells:,} cells, and counting them would take about "
            f"{need / 2**30:,.1f} GiB where {allowed / 2**30:,.1f} GiB of the memory of "
            f"{'a worker' if whole and client is not None else 'this process'} are allowed; "
            f"{advice}use fewer attributes per table or coarser ones, fewer threads a worker, "
            "or a release in parts"
        )

    def estimate_memory(self, *, sharded: bool = False) -> int:
        """Return the most bytes of counters and tables that one process holds.

        Args:
            sharded: Whether the tables are counted in shards.
        """
        from fitplug_dask.kernel import estimate_memory

        if sharded:
            return _TABLE_BYTES * self.table_cells
        wide = self.job.weight is not None or bool(self.job.measures)
        cells = self.job.total_cells
        return estimate_memory(cells, self.table_cells, self.process_threads, wide=wide)


def prepare_request(
    domain: Domain, names: Sequence[AttributeSet], client: Any, weight: str | None, filters: Filters
) -> Request:
    """Prepare the count of these tables with this client, whose workers are inspected first.

    Args:
        domain: The domain.
        names: The attribute sets of the wanted tables, in the domain's order.
        client: A client of dask.distributed, or None for threads of this process.
        weight: The column that says how many records a row stands for, None if each is one.
        filters: What rows must hold to be counted.

    Raises:
        DomainError: The domain does not have an attribute.
        FitplugError: The cluster does not answer, or a worker has other code than this process.
    """
    from fitplug_dask.kernel import Job, choose_joint_tables
    from fitplug_dask.scheduling import count_threads
    from fitplug_dask.workers import check_workers, demand_worker

    demand = None
    if client is not None:
        check_workers(client)
        demand = demand_worker(client)
    used = domain.ordered(tuple({name for table in names for name in table}))
    attributes = {name: domain[name] for name in used}
    job = Job(attributes, choose_joint_tables(domain, names), weight, filters)
    table_cells = sum(math.prod(domain.shape_of(table)) for table in names)
    return Request(job, *count_threads(client), table_cells, demand)


def list_tables(wanted: Wanted) -> tuple[Domain, list[AttributeSet]]:
    """List the attribute sets that are wanted, each once and in the domain's order.

    Returns:
        The domain and the attribute sets.

    Raises:
        TablesError: No table is wanted, or a table names an attribute twice.
        DomainError: The domain does not have an attribute.
    """
    domain, tables = wanted if isinstance(wanted, tuple) else (wanted.domain, wanted.tables)
    names: list[AttributeSet] = []
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


def check_person(person: str | None, used: Container[str]) -> None:
    """Raise DomainError if the column of persons is among the attributes that are counted."""
    if person is not None and person in used:
        raise DomainError(
            f"{person!r} identifies persons, so it cannot be counted too; "
            "leave it out of the queries or name another column of persons"
        )


def prepare_rules(
    job: Job, zone: str | None, missing: Mapping[str, Any] | None, person: str | None
) -> ColumnRules:
    """Check and return how columns are read that no type alone says how to read.

    Args:
        job: What to count.
        zone: The name of a time zone, or None.
        missing: The values that stand for columns which files lack.
        person: The column that identifies persons, if there is one.

    Raises:
        DomainError: There is no such zone, or a value stands for no column or is none of it.
    """
    from fitplug_dask.files import ColumnRules

    if zone is not None and not is_zone(zone):
        raise DomainError(f'zone = {zone!r} is no time zone; name one such as "Europe/Berlin"')
    given = dict(missing or {})
    encoders: dict[str, Encoder] = {**job.filters, **job.attributes}
    if job.weight is not None:
        encoders[job.weight] = WEIGHT
    for name, value in given.items():
        if name == person:
            raise DomainError(
                f"missing cannot give a value for {name!r}, which identifies persons: the rows of "
                "a file without it would all be one person's"
            )
        if name not in encoders:
            raise DomainError(
                f"missing gives a value for {name!r}, which is not counted; "
                f"{suggest_nearest(name, sorted(encoders))}"
            )
        if value is not None and not _is_value(value, encoders[name], job.attributes.get(name)):
            raise DomainError(
                f"missing gives {name!r} the value {value!r}, which the domain does not have; "
                "give one of its values, or None for null"
            )
    return ColumnRules(zone, given)


def is_zone(name: object) -> bool:
    """Return whether there is a time zone of this name."""
    try:
        return isinstance(name, str) and bool(ZoneInfo(name))
    except (ValueError, OSError, ZoneInfoNotFoundError):
        return False


def _is_value(value: Any, encoder: Encoder, attribute: Attribute | None) -> bool:
    """Return whether a value is of the type that a column is read as, and in the domain."""
    try:
        code = encoder.codes(np.array([value, None], dtype=object))[0]
    except DataError:
        return False
    return attribute is None or code != OUTSIDE


def check_client(client: Any) -> None:
    """Raise TypeError if `client` is neither None nor a client that can be waited for."""
    if client is None:
        return
    if not (hasattr(client, "submit") and hasattr(client, "nthreads")):
        raise TypeError(f"client must be a dask.distributed Client, not {type(client).__name__}")
    if getattr(client, "asynchronous", False):
        raise TypeError("client must be a synchronous Client, made with asynchronous=False")


def check_files(
    found: Sequence[FoundFile], job: Job, person: str | None, rules: ColumnRules, client: Any
) -> tuple[CheckedFile, ...]:
    """Check all files that were found, on the workers of a client if there is one.

    Args:
        found: The files.
        job: What to count.
        person: The column that identifies persons, if there is one.
        rules: What `prepare_rules` returned.
        client: A client of dask.distributed, or None.

    Returns:
        The files, in the order of `found`.

    Raises:
        DataError: A file cannot be counted; the first one is named.
    """
    from fitplug_dask.files import take_snapshot
    from fitplug_dask.scheduling import check_where

    _check_source(found, client)
    return take_snapshot(
        found,
        job.attributes,
        person,
        weight=job.weight,
        filters=job.filters,
        rules=rules,
        check_all=check_where(client),
    )


def _check_source(found: Sequence[FoundFile], client: Any) -> None:
    """Raise DataError if workers of a cluster cannot read what is found."""
    for file in found:
        if client is not None and file.format is Format.STREAM:
            raise DataError(
                f"{file.path} can be read by this process only; leave out the client, or write "
                "the rows as Parquet files where the workers see them"
            )


def check_libraries() -> None:
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
