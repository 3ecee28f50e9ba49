"""Counting, by the adapter that provides it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from fitplug.adapters.entry_points import call_adapter
from fitplug.counts import Preview, Source, Tables, is_in_database, read_source
from fitplug.display import Progress
from fitplug.domain import Domain
from fitplug.errors import InputError, check_type
from fitplug.plan import Plan
from fitplug.workload import Unit, Workload

Wanted: TypeAlias = Plan | Workload | tuple[Domain, Sequence[Sequence[str]]]
"""The tables to count: those of a plan or a workload, or attribute sets over a domain."""


def count(
    source: Source | Any,
    plan: Wanted,
    *,
    client: Any = None,
    person_key: bytes | None = None,
    unit: Unit | None = None,
    progress: Progress = None,
) -> Tables:
    """Count the exact tables that a plan needs, from files, data frames or databases.

        tables = fp.count("people/", plan)
        tables = fp.count(fp.Source("people/", person="id"), plan)

    All tables count the same rows. If a row has null or a value outside the domain in any counted
    attribute without a cell `other`, the row is left out of all tables.

    Tables with a measure count shares of rows: the measure has two cells, its lower and its upper
    bound, and each row is divided between these two cells according to the row's value. A column
    of a measure holds integers, floats or decimals; in CSV files, numbers as text. Null, NaN and
    other text are outside the domain.

    An Ibis table, or a `DatabaseTable`, is counted by its database in one statement. If the rows
    per person are limited, the database chooses each person's rows at random, so a second count may
    choose different rows.

    If workers are lost, their rows are counted again, and no row counts twice. If this happens
    frequently, raise Dask's `distributed.scheduler.allowed-failures`. No message reveals a value of
    a row.

    Args:
        source: The rows: a `Source`, or its path.
        plan: A Plan, a Workload, or a pair (domain, attribute sets). The empty attribute set ()
            stands for the total.
        client: A dask.distributed Client; None counts on threads of this process. Workers must see
            the files under the same paths as this process. They must also run the same code, which
            fitplug checks. Each CSV file is one task, however large; other files may be divided
            into a task for each row group or record batch.
        person_key: The secret key of the hash that chooses the rows of each person, at least 16
            bytes. By default it is drawn at random. With the same key the same rows are always
            counted, however they are divided among files and workers.
        unit: The unit of privacy to enforce, if the source has `person`. Leave `unit` out for a
            Plan, which has its own unit. With `fp.AddRemove`, at most `records` rows of each person
            are counted; with `distinct`, at most one of them in each cell over all counted
            attributes, and with `once_per`, at most one of them in each cell of this attribute.
            With `fp.ReplaceOne()`, which must be without `within`, one row of each person is
            counted. The returned tables record this limit as `unit`.
        progress: True shows a percentage on stderr; a callable receives (rows counted, all rows) in
            this process when tasks end. These numbers may be exact and confidential, so show only
            their ratio. If a file does not record its number of rows, the number is estimated from
            the file's size.

    Returns:
        Tables of int64 arrays, one for each attribute set, with axes in the domain's order.

    Raises:
        TypeError: `plan` has the wrong type.
        ImportError: Dask or another library is not installed; the message says how to install it.
        DataError: Files are missing, damaged, found twice (even through links), do not fit the
            domain, or change during the count.
        TablesError: The tables cannot be counted or need too much memory.
        DomainError: The domain does not have an attribute, or weights or filters are invalid.
        BudgetError: The unit of privacy is missing, differs from the plan's unit, or cannot be
            enforced by counting.
        FitplugError: The workers of `client` fail or run different code from this process.
    """
    check_type("plan", plan, (Plan, Workload, tuple), "fitplug.count(source, plan)")
    source = read_source(source)
    tables: Tables = call_adapter(
        "count_in_database" if is_in_database(source) else "count",
        source,
        plan,
        client=client,
        person_key=person_key,
        unit=unit,
        progress=progress,
    )
    return tables


def preview(source: Source | Any, plan: Wanted, *, client: Any = None) -> Preview:
    """Show what `count` would read and how much memory it would need, without reading a row.

        fp.preview("people/", plan).tasks

    This finds the files and checks their footers and schemas as `count` does. It writes nothing.

    Args:
        source: As for `count`.
        plan: As for `count`.
        client: As for `count`.

    Returns:
        The numbers of files, tasks and cells, and the memory in bytes that one process needs.

    Raises:
        ImportError: As for `count`.
        DataError: As for `count`.
        TablesError: As for `count`.
        DomainError: As for `count`.
        InputError: The rows are in a database.
    """
    check_type("plan", plan, (Plan, Workload, tuple), "fitplug.preview(source, plan)")
    source = read_source(source)
    if is_in_database(source):
        raise InputError(
            "fitplug.preview cannot read a database. Count the rows with fitplug.count."
        )
    said: Preview = call_adapter("preview", source, plan, client=client)
    return said
