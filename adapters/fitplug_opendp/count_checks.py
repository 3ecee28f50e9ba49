"""Checks of exact counts that callers give, and which rows they were made of.

The errors name only types and attributes, because a given value may be people's rows. Counts that
do not state a limit on the records per person are accepted without a check. They are refused if the
unit refers to a cell of all other values, because then nobody can know that a limit holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fitplug.counts import Tables
from fitplug.domain import OUTSIDE, get_codec, list_names_without_other
from fitplug.errors import TablesError
from fitplug.plan import Plan
from fitplug.releases import Limited
from fitplug.workload import AddRemove, BoundUnit, ReplaceOne


@dataclass(frozen=True)
class CountedRows:
    """The rows that a release was counted from, in public words.

    Attributes:
        rows: How rows were weighted and filtered (`Tables.rows`); None if each counts once.
        limited: Whether the count enforced the limit on the records per person, or the publisher
            declared it.
    """

    rows: str | None
    limited: Limited | None

    @classmethod
    def from_tables(cls, tables: Tables) -> CountedRows:
        """Return the rows behind these counts."""
        return cls(tables.rows, find_limit(tables))

    def __str__(self) -> str:
        limited = ", limited per person" if self.limited == "enforced" else ""
        return f"{self.rows or 'each row counts once'}{limited}"


ALL_ROWS = CountedRows(None, "declared")
"""All rows, each of which counts once."""


def find_limit(tables: Tables) -> Limited:
    """Return "enforced" if the count limited the rows per person, else "declared"."""
    return "declared" if tables.unit is None else "enforced"


def find_seal(tables: Tables) -> str | None:
    """Return the seal of counts that another count of the same people might not reproduce.

    These are counts that chose a person's records by a secret hash, and counts of weighted or
    filtered rows: in another count a person may be in other cells. Counts of all rows need no seal,
    and the result is None.
    """
    return None if tables.unit is None and tables.rows is None else tables.seal


def list_outside_attributes(plan: Plan, tables: Tables) -> tuple[str, ...]:
    """List the attributes that the plan does not use but by which the count left records out."""
    used = {name for names in plan.tables for name in names}
    unused = {name for names in tables for name in names} - used
    return list_names_without_other(tables.domain, unused)


def check_space(domain: object, metric: object) -> None:
    """Raise ValueError unless these are a domain and a metric of OpenDP."""
    from opendp.mod import Domain, Metric

    if not isinstance(domain, Domain):
        raise ValueError(
            f"the input domain must be an OpenDP domain, not {describe_type(domain)}. Use "
            "fitplug_opendp.tables_domain(plan)."
        )
    if not isinstance(metric, Metric):
        raise ValueError(f"the input metric must be an OpenDP metric, not {describe_type(metric)}")


def check_are_tables(tables: object) -> None:
    """Raise TablesError unless the value is Tables; the error for frames explains how to count."""
    if not isinstance(tables, Tables):
        raise TablesError(
            "the tables must be exact counts in a fitplug.Tables, not "
            f"{describe_type(tables)}. " + advise_counting(tables)
        )


def check_tables(plan: Plan, tables: Tables) -> None:
    """Raise TablesError unless the tables have all counts that the plan needs, in its own cells.

    The check ignores the number of records, because a refusal would reveal something about that
    exact number. Answers beyond the range of the plan's integers are clamped, and the noisy answers
    show it.
    """
    check_attributes(plan, tables, [name for names in plan.tables for name in names])
    for names in plan.tables:
        tables.marginal(names)
    if plan.coverage is not None:
        _check_outside_counts(plan.coverage.names, tables)


def check_attributes(plan: Plan, tables: Tables, names: Iterable[str]) -> None:
    """Raise TablesError unless these attributes have the same cells in the plan and the tables."""
    for name in names:
        if (
            name not in tables.domain
            or name not in plan.domain
            or tables.domain[name] != plan.domain[name]
        ):
            raise TablesError(
                f"the tables do not match the plan in the attribute {name!r}. Count again with "
                "this plan."
            )


def _check_outside_counts(names: tuple[str, ...], tables: Tables) -> None:
    """Raise TablesError unless tables have the numbers of rows outside these attributes."""
    if tables.unit is not None:
        raise TablesError("person= and coverage cannot be combined. Remove one of them.")
    if tables.outside is None or tables.outside.names != names:
        raise TablesError(
            f"coverage needs the rows outside the domain of {', '.join(names)}, which these counts "
            "lack. Count again with this plan."
        )


def describe_type(value: Any) -> str:
    """Describe the type of a value with its article and library, such as "a polars LazyFrame"."""
    kind = type(value)
    library = kind.__module__.partition(".")[0]
    return f"a {kind.__name__}" if library == "builtins" else f"a {library} {kind.__name__}"


def advise_counting(value: Any) -> str:
    """Make the sentence that explains how to count a value given in place of exact counts."""
    if hasattr(value, "collect") and hasattr(value, "collect_schema"):
        return (
            "Count with fitplug.Tables.from_records(plan.domain, frame.collect(), "
            "plan.tables), or use OpenDP's lazyframe_domain."
        )
    if hasattr(value, "columns") or hasattr(value, "column_names") or hasattr(value, "keys"):
        return "Count with fitplug.Tables.from_records(plan.domain, records, plan.tables)."
    if isinstance(value, str) or hasattr(value, "__fspath__"):
        return "Count with fitplug.count(path, plan)."
    return "Count with fitplug.Tables.from_records(plan.domain, records, plan.tables)."


def check_limit(plan: Plan, tables: Tables) -> None:
    """Check that a count enforced the limit that a release is charged for, or a stricter one.

    Args:
        plan: The plan.
        tables: Exact counts.

    Raises:
        TablesError: The counts may have more rows of a person, or are of weighted or filtered rows
            although neighbours replace a record.
    """
    check_replaced_rows(plan, tables.rows)
    if isinstance(plan.unit, ReplaceOne):
        # Whether a row is counted is not protected, so it must not depend on other attributes.
        check_attributes(plan, tables, list_outside_attributes(plan, tables))
    check_declared(plan, is_enforced=tables.unit is not None)
    check_enforced(plan.bound_unit, tables)


def check_declared(plan: Plan, *, is_enforced: bool) -> None:
    """Check that the publisher can know a limit per cell that no count enforced.

    A cell for all other values has records with different values. So a publisher who knows that a
    person's values differ does not know that the cells do.

    Args:
        plan: The plan.
        is_enforced: Whether the count limits the records per person.

    Raises:
        TablesError: The records of a person would have to be in different cells of an attribute
            with such a cell.
    """
    unit = plan.bound_unit
    if is_enforced or not isinstance(unit.unit, AddRemove):
        return
    for name, _ in unit.cells or ():
        if get_codec(plan.domain[name]).null_code != OUTSIDE:
            raise TablesError(
                f"the attribute {name!r} has the option `other`. To limit the rows per person to "
                f"{unit.unit}, pass `person` when you count."
            )


def check_enforced(unit: BoundUnit, tables: Tables) -> None:
    """Check that a count enforced the limit of a unit of privacy, or a stricter one.

    Args:
        unit: The unit of privacy that a release is charged for.
        tables: Exact counts.

    Raises:
        TablesError: The counts may have more rows of a person.
    """
    enforced, plain = tables.unit, unit.unit
    if enforced is not None and isinstance(plain, ReplaceOne) and plain.within:
        raise TablesError(
            f"counts with person= do not fit the unit of privacy {plain}. Count again without "
            "person=."
        )
    if enforced is None or enforced.records == 1:
        return
    counted = {name for names in tables for name in names}
    bound = BoundUnit.bind(enforced, tables.domain, counted)
    if unit.count_changes(bound) != 1:
        raise TablesError(
            f"the tables were counted for the unit of privacy {bound}, but the plan has {unit}. "
            "Count again with the plan."
        )


def check_replaced_rows(plan: Plan, rows: str | None) -> None:
    """Check that replacing a record cannot bring it into the counts or remove it from them.

    Args:
        plan: The plan.
        rows: How rows are weighted and filtered, in words; None if each counts once.

    Raises:
        TablesError: Rows are weighted or filtered, and neighbours replace a record.
    """
    if isinstance(plan.unit, ReplaceOne) and rows is not None:
        raise TablesError(
            f"counts with weights or a filter ({rows}) do not fit the unit of privacy {plan.unit}. "
            "Design the plan for fp.AddRemove(records=2)."
        )


def check_is_enforced(limited: Limited | None, is_enforced: bool) -> None:
    """Raise TablesError if the charge relies on a limit that the count did not enforce."""
    if is_enforced and limited != "enforced":
        raise TablesError(
            "the release needs counts with a limit on the rows per person. Count again with "
            "person=."
        )
