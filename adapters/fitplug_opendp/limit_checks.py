"""Checks that counts hold no more records of a person than the plan protects.

Counts that do not say how many records of a person they hold are taken as they are: nothing checks
them. They are refused where the unit is about a cell of other values, of which nobody can know it.
"""

from __future__ import annotations

from fitplug.counts import Tables
from fitplug.domain import OUTSIDE
from fitplug.errors import TablesError
from fitplug.plan import Plan
from fitplug.release import Limited
from fitplug.workload import AddRemove, BoundUnit, ReplaceOne
from fitplug_opendp.counted_rows import list_outside_attributes


def check_limit(plan: Plan, tables: Tables, contributions: int) -> None:
    """Check that what a count enforced is what a release is charged for, or less.

    Args:
        plan: The plan.
        tables: Exact counts.
        contributions: The number of records of one person that the release is charged for. It is
            that of the plan's unit of privacy if this is not the default.

    Raises:
        TablesError: The counts may hold more of a person, or are of weighted or filtered rows,
            which neighbours that replace a record are not defined for.
    """
    check_replaced_rows(plan, tables.rows)
    if isinstance(plan.unit, ReplaceOne):
        _check_outside_attributes(plan, tables)
    check_declared(plan, is_enforced=tables.contributions is not None)
    check_enforced(plan.bind_unit(contributions), tables)


def check_declared(plan: Plan, *, is_enforced: bool) -> None:
    """Check that the publisher can know what no count enforced: that records are in other cells.

    A cell of all values that are not listed holds records at different values, so nobody who knows
    that a person's values differ knows that the cells do.

    Args:
        plan: The plan.
        is_enforced: Whether the count limits the records of each person.

    Raises:
        TablesError: The records of a person would have to be in different cells of an attribute
            with such a cell.
    """
    unit = plan.bound_unit
    if is_enforced or not isinstance(unit.unit, AddRemove):
        return
    for name, _ in unit.cells or ():
        if plan.domain[name].null_code != OUTSIDE:
            raise TablesError(
                f"the plan is for {unit.unit}, and one cell of {name!r} takes all values that are "
                "not listed, in which a person may have several records: count with person=..., "
                f"which keeps no two of them in one cell, or leave out other of {name!r}"
            )


def check_enforced(unit: BoundUnit, tables: Tables) -> None:
    """Check that what a count enforced is a unit of privacy, or less.

    Args:
        unit: The unit of privacy that a release is charged for.
        tables: Exact counts.

    Raises:
        TablesError: The counts may hold more of a person.
    """
    most, plain = tables.contributions, unit.unit
    if most is not None and isinstance(plain, ReplaceOne) and plain.within:
        raise TablesError(
            "the tables were limited by person, and which row of a person was kept may depend on "
            f"more than the unit of privacy of the plan ({plain}) makes public; count again "
            "without person"
        )
    if most is None or most == 1:
        return
    if isinstance(plain, AddRemove) and plain.is_of_records:
        if most > plain.records:
            raise TablesError(
                f"the tables hold up to {most} records of a person, but the release is charged "
                f"for {plain.records}; count again with contributions={plain.records}, or release "
                f"with contributions={most}"
            )
        return
    counted = {name for names in tables for name in names}
    limit = AddRemove(most, tables.distinct, tables.once_per)
    held = BoundUnit.bind(limit, tables.domain, counted)
    if unit.count_changes(held) != 1:
        raise TablesError(
            f"the tables were counted for another unit of privacy ({held}) than that of the plan "
            f"({unit}); count again with the plan"
        )


def check_replaced_rows(plan: Plan, rows: str | None) -> None:
    """Check that a record that is replaced does not come into the counts, or leave them.

    Args:
        plan: The plan.
        rows: How rows are weighted and filtered, in words; None if each is one record.

    Raises:
        TablesError: Rows are weighted or filtered, and neighbours replace a record.
    """
    if isinstance(plan.unit, ReplaceOne) and rows is not None:
        raise TablesError(
            f"in the tables, {rows}; the plan's unit of privacy ({plan.unit}) protects "
            "neither whether a row passes a filter nor its weight: count all rows as one record "
            "each, or design the plan for fp.AddRemove(records=2), which covers a replacement"
        )


def _check_outside_attributes(plan: Plan, tables: Tables) -> None:
    """Raise TablesError if tables leave out records by values that the plan does not know."""
    for name in list_outside_attributes(plan, tables):
        if name not in plan.domain or plan.domain[name] != tables.domain[name]:
            raise TablesError(
                f"the tables leave out records by their values of {name!r}, which the plan's "
                f"domain does not have with these cells; the plan's unit of privacy ({plan.unit}) "
                "does not protect whether a record is counted: count again with the plan"
            )


def check_is_enforced(limited: Limited | None, is_enforced: bool) -> None:
    """Raise TablesError if the charge counts on a limit that the count did not enforce."""
    if is_enforced and limited != "enforced":
        raise TablesError(
            "the release is to be of records that a count limited by person, and these counts "
            "do not say so; count again with person"
        )
