"""Checks that counts hold no more records of a person than the plan protects.

Counts that do not say how many records of a person they hold are taken as they are: nothing checks
them.
"""

from __future__ import annotations

from collections.abc import Iterable

from fitplug.counts import Tables
from fitplug.errors import TablesError
from fitplug.plan import Plan
from fitplug.release import Limited
from fitplug.workload import AddRemove, ReplaceOne, Unit


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
    unit = plan.unit
    if isinstance(unit, ReplaceOne) and tables.rows is not None:
        raise TablesError(
            f"in the tables, {tables.rows}; the plan's unit of privacy ({unit}) protects neither "
            "whether a row passes a filter nor its weight: count all rows as one record each, or "
            "design the plan for fp.AddRemove(records=2), which covers a replacement"
        )
    if unit.is_of_records:
        unit = AddRemove(contributions)
    check_enforced(unit, tables, {name for names in plan.tables for name in names})


def check_enforced(unit: Unit, tables: Tables, used: Iterable[str]) -> None:
    """Check that what a count enforced is a unit of privacy, or less.

    Args:
        unit: The unit of privacy that a release is charged for.
        tables: Exact counts.
        used: The attributes that the plan counts, over which its cells are distinct.

    Raises:
        TablesError: The counts may hold more of a person.
    """
    most = tables.contributions
    if most is not None and isinstance(unit, ReplaceOne) and unit.within:
        raise TablesError(
            f"the tables were limited by person, and which row of a person was kept may depend on "
            f"more than the unit of privacy of the plan ({unit}) makes public; count again without "
            "person"
        )
    if most is None or most == 1:
        return
    held = AddRemove(most, tables.distinct, tables.once_per)
    if isinstance(unit, AddRemove) and unit.is_of_records:
        if most > unit.records:
            raise TablesError(
                f"the tables hold up to {most} records of a person, but the release is charged "
                f"for {unit.records}; count again with contributions={unit.records}, or release "
                f"with contributions={most}"
            )
        return
    if unit.count_changes(held) != 1:
        raise TablesError(
            f"the tables were counted for another unit of privacy ({held}) than that of the plan "
            f"({unit}); count again with the plan"
        )
    if held.distinct and (more := sorted(_list_attributes(tables) - set(used))):
        raise TablesError(
            "the tables hold records of a person in other cells, but these may differ by "
            f"{' and '.join(more)} alone, which the plan does not count; count again with the plan"
        )


def _list_attributes(tables: Tables) -> set[str]:
    return {name for names in tables for name in names}


def check_is_enforced(limited: Limited | None, is_enforced: bool) -> None:
    """Raise TablesError if the charge counts on a limit that the count did not enforce."""
    if is_enforced and limited != "enforced":
        raise TablesError(
            "the release is to be of records that a count limited by person, and these counts "
            "do not say so; count again with person"
        )
