"""Metrics of units: for which units of privacy OpenDP's distances say what a plan costs.

OpenDP's distances count records. A plan for k records of a person, anywhere, costs (d / k)^2 rho
for d records that are added or removed in any way: |A v| is at most d times the longest column. A
plan for one record replaced costs d^2 rho where d records are replaced, `change_one_distance()`.
The number of records is then the same in both data sets, and a release holds it.

This is not so where a unit says more. Records that are each in another cell, of the domain or of
an attribute, are at OpenDP's distance k from data in which they all lie in one cell. Also Bounds
per group do not suffice: they hold as well where some records are added and others are removed,
and such a difference v is not one of the unit. And a record that is replaced may leave its region.
"""

from __future__ import annotations

from typing import Any

from fitplug.errors import BudgetError
from fitplug.workload import ReplaceOne, Unit
from fitplug_opendp._compat import import_opendp


def check_unit_is_measurable(unit: Unit) -> None:
    """Raise BudgetError unless OpenDP's distances say what a plan costs in its unit of privacy."""
    if isinstance(unit, ReplaceOne):
        if unit.within:
            raise BudgetError(
                f"a plan for the unit of privacy ({unit}) is no measurement of OpenDP, where a "
                "record that is replaced may change all its values; design the plan for "
                "fp.ReplaceOne()"
            )
    elif not unit.is_of_records:
        raise BudgetError(
            f"a plan for the unit of privacy ({unit}) is no measurement of OpenDP, whose distances "
            "count records wherever they are: under symmetric_distance() design the plan for "
            f"fp.AddRemove(records={unit.records})"
        )


def is_replacement(metric: Any) -> bool:
    """Return whether a metric counts records that are replaced."""
    return bool(metric == import_opendp().change_one_distance())


def check_metric_of_tables(unit: Unit, metric: Any) -> None:
    """Raise ValueError unless a metric of Tables counts what a unit of privacy changes."""
    if isinstance(unit, ReplaceOne):
        if not is_replacement(metric):
            raise ValueError(
                "Tables need change_one_distance() as their metric for a plan of the unit of "
                f"privacy ({unit}), not {metric}: there d_in is the number of records replaced"
            )
    elif metric != import_opendp().symmetric_distance():
        raise ValueError(
            f"Tables need symmetric_distance() as their metric, not {metric}: "
            "there d_in is the number of records added or removed"
        )
