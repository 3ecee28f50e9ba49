"""Request: what to count and on how many threads, checked before any file is opened."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fitplug.counts import (
    WEIGHT,
    AttributeSet,
    Source,
    choose_joint_tables,
    list_person_columns,
    make_filters,
)
from fitplug.domain import OUTSIDE, Attribute, Domain, Encoder, get_codec, get_shape
from fitplug.errors import DataError, DomainError, TablesError, suggest_nearest
from fitplug.plan import Plan
from fitplug.workload import Workload
from fitplug_dask.sources import Format, SourceFile

if TYPE_CHECKING:
    from fitplug_dask.files import CheckedFile, CheckOne, ColumnRules
    from fitplug_dask.kernel import Job
    from fitplug_dask.workers import Runner

_TABLES_SHARE = 0.6
"""The fraction of a process's memory that tables and their counters may take."""

_TABLE_BYTES = 24
"""The bytes of a cell in this process: in a shard, in the table, and in a copy."""

_FILES_PER_TASK = 2**7
_LEAST_FILES = 2**6
"""The least number of files that workers check; fewer files are checked by the client."""

Wanted: TypeAlias = Plan | Workload | tuple[Domain, Sequence[Sequence[str]]]
"""The tables to count: those of a plan or a workload, or attribute sets over a domain."""


@dataclass(frozen=True)
class Request:
    """A counting request, before any file is opened.

    Attributes:
        job: What to count.
        runner: Runs the tasks.
        table_cells: The number of cells of all wanted tables.
    """

    job: Job
    runner: Runner
    table_cells: int

    def choose_sharding(self, *, whole: bool) -> bool:
        """Return whether to count in shards, because the tables may not fit into a process.

        Args:
            whole: Whether the tables must be counted as a whole.

        Raises:
            TablesError: The tables must be counted as a whole and are too large for a process, or
                even the results are too large for this process.
            FitplugError: The cluster does not answer.
        """
        from fitplug_dask.workers import open_runner

        allowed = int(_TABLES_SHARE * self.runner.memory)
        need = self.estimate_memory()
        if need <= allowed:
            return False
        here = int(_TABLES_SHARE * open_runner(None).memory)
        cells = self.table_cells
        if not whole and _TABLE_BYTES * cells <= here:
            return True
        if not whole:
            need, allowed, cells = _TABLE_BYTES * cells, here, cells
        where = "a worker" if whole and self.runner.client is not None else "this process"
        raise TablesError(
            f"counting {cells:,} cells needs about {need / 2**30:,.1f} GiB, but {where} may use "
            f"only {allowed / 2**30:,.1f} GiB. Use coarser attributes, or release into a folder: "
            "fitplug.release(plan, data, folder)."
        )

    def estimate_memory(self, *, sharded: bool = False) -> int:
        """Return the most bytes of counters and tables in one process.

        Args:
            sharded: Whether the tables are counted in shards.
        """
        from fitplug_dask.kernel import estimate_memory

        if sharded:
            return _TABLE_BYTES * self.table_cells
        wide = self.job.weight is not None or bool(self.job.measures)
        cells = self.job.total_cells
        return estimate_memory(cells, self.table_cells, self.runner.process_threads, wide=wide)


def prepare_request(
    domain: Domain, names: Sequence[AttributeSet], client: Any, source: Source
) -> Request:
    """Inspect the workers of the client, and prepare the count of these tables.

    Args:
        domain: The domain.
        names: The attribute sets of the wanted tables, in the domain's order.
        client: A client of dask.distributed, None for threads of this process, or a runner.
        source: The source; only its weight and filters are used.

    Raises:
        DomainError: The domain does not have an attribute.
        FitplugError: The cluster does not answer, or a worker's code differs from this process's.
    """
    from fitplug_dask.kernel import Job
    from fitplug_dask.workers import open_runner

    runner = open_runner(client)
    _ = runner.threads  # the workers are inspected
    used = domain.ordered(tuple({name for table in names for name in table}))
    attributes = {name: domain[name] for name in used}
    job = Job(
        attributes, choose_joint_tables(domain, names), source.weight, make_filters(source.where)
    )
    table_cells = sum(math.prod(get_shape(domain, table)) for table in names)
    return Request(job, runner, table_cells)


def prepare_rules(job: Job, source: Source) -> ColumnRules:
    """Check and return the caller's rules for reading columns.

    Args:
        job: What to count.
        source: The source; its time zone, missing and renamed columns and persons are used.

    Raises:
        DomainError: `missing` gives a value for a column that is not counted, or a value that the
            column cannot have.
    """
    from fitplug_dask.files import ColumnRules

    given = dict(source.missing or {})
    columns: dict[str, Attribute] = {**job.filters, **job.attributes}
    encoders: dict[str, Encoder] = {name: get_codec(one) for name, one in columns.items()}
    if job.weight is not None:
        encoders[job.weight] = WEIGHT
    for name, value in given.items():
        if name in list_person_columns(source):
            raise DomainError(
                f"'missing' cannot set {name!r}, which identifies persons. Remove {name!r} from "
                "'missing'."
            )
        if name not in encoders:
            raise DomainError(
                f"'missing' sets {name!r}, which is not counted. "
                f"{suggest_nearest(name, sorted(encoders))}"
            )
        if value is not None and not _is_value(value, encoders[name], job.attributes.get(name)):
            raise DomainError(
                f"'missing' sets {name!r} to {value!r}, which is not in its domain. Use a value of "
                "the domain, or None for null."
            )
    return ColumnRules(source.zone, given, source.columns or {})


def _is_value(value: Any, encoder: Encoder, attribute: Attribute | None) -> bool:
    """Return whether a value has the type that the column is read as, and is in the domain."""
    try:
        code = encoder.codes(np.array([value, None], dtype=object))[0]
    except DataError:
        return False
    return attribute is None or code != OUTSIDE


def check_client(client: Any) -> None:
    """Raise TypeError unless `client` is None, a runner, or a synchronous client."""
    if client is None:
        return
    from fitplug_dask.workers import Runner

    if isinstance(client, Runner):
        return
    if not (hasattr(client, "submit") and hasattr(client, "nthreads")):
        raise TypeError(f"client must be a dask.distributed Client, not {type(client).__name__}")
    if getattr(client, "asynchronous", False):
        raise TypeError("client must be a synchronous Client. Create it with asynchronous=False.")


def check_files(
    sources: Sequence[SourceFile],
    job: Job,
    person: Sequence[str],
    rules: ColumnRules,
    runner: Runner,
) -> tuple[CheckedFile, ...]:
    """Check all files that were found, on the workers of a cluster if there is one.

    A client far from a store, or with few processors, would be slow to read the footers of many
    files. The workers read them from the same place as the rows.

    Args:
        sources: The files.
        job: What to count.
        person: The columns that identify persons, if there are any.
        rules: The caller's rules for reading columns.
        runner: Runs the tasks.

    Returns:
        The files, in the order of `sources`.

    Raises:
        DataError: A file cannot be counted; the first one is named.
    """
    from fitplug_dask.files import take_snapshot

    if runner.client is not None:
        _check_is_shared(sources)
    return take_snapshot(
        sources,
        job.attributes,
        tuple(person),
        weight=job.weight,
        filters=job.filters,
        rules=rules,
        check_all=partial(check_on_runner, runner),
    )


def check_on_runner(
    runner: Runner, check: CheckOne, sources: Sequence[SourceFile]
) -> Sequence[CheckedFile]:
    """Check files on the workers of a cluster, if there is one and there are many files.

    Raises:
        DataError: The error of `check` for the first file that fails.
        FitplugError: The workers fail.
    """
    from fitplug_dask.files import check_on_threads

    if runner.client is None or len(sources) < _LEAST_FILES:
        return check_on_threads(check, sources)
    groups = [sources[i : i + _FILES_PER_TASK] for i in range(0, len(sources), _FILES_PER_TASK)]
    # The domain that files are checked against may be large, so it travels once.
    checked: list[CheckedFile] = []
    for files in runner.map("check-footers", _check_some, groups, shared=check):
        if isinstance(files, str):
            raise DataError(files)
        checked += files
    return checked


def _check_some(check: CheckOne, sources: Sequence[SourceFile]) -> Sequence[CheckedFile] | str:
    """Check some files in a task, which must not raise; return the first error's message."""
    from fitplug_dask.files import check_on_threads

    try:
        return check_on_threads(check, sources)
    except DataError as error:
        return str(error)


def _check_is_shared(sources: Sequence[SourceFile]) -> None:
    """Raise DataError if only this process can read a source."""
    for file in sources:
        if file.format is Format.STREAM:
            raise DataError(f"only this process can read {file.path}. Count without client=.")


def check_libraries() -> None:
    """Raise ImportError if a library or the compiled loops are missing."""
    fault = None
    try:
        import dask  # noqa: F401
        import pyarrow  # noqa: F401
    except ImportError:
        fault = (
            "dask or pyarrow is not installed, and counting needs both. Install them with: pip "
            'install "fitplug[dask]"'
        )
    try:
        from fitplug_dask import compiled_loops  # noqa: F401
    except ImportError:
        fault = fault or (
            "the compiled loops of fitplug_dask are missing. Install fitplug again, from a wheel "
            "or with a C compiler."
        )
    if fault is not None:
        raise ImportError(fault)
