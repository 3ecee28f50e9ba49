"""Metrics of units: for which units of privacy OpenDP's distances say what a plan costs.

OpenDP's distances count records. A plan for k records of a person, anywhere, costs (d / k)^2 rho
for d records that are added or removed in any way: |A v| is at most d times the longest column.

This is not so where a unit says more. Records that are each in another cell, or at another value of
an attribute, are at OpenDP's distance k from data in which they all lie in one cell. Also Bounds
per group do not suffice: they hold as well where some records are added and others are removed,
and such a difference v is not one of the unit. Where one record is replaced, the number of records
is public, and a release holds it beside the noisy answers.
"""

from __future__ import annotations

from fitplug.errors import BudgetError
from fitplug.workload import ReplaceOne, Unit


def check_unit_is_measurable(unit: Unit) -> None:
    """Raise BudgetError unless OpenDP's distances say what a plan costs in its unit of privacy."""
    if isinstance(unit, ReplaceOne):
        raise BudgetError(
            f"a plan for the unit of privacy ({unit}) is no measurement of OpenDP: its metric "
            "would be change_one_distance(), and a release needs the public numbers of records "
            "beside the noisy answers; design the plan for fp.AddRemove(records=2), which covers "
            "a replacement"
        )
    if not unit.is_of_records:
        raise BudgetError(
            f"a plan for the unit of privacy ({unit}) is no measurement of OpenDP, whose distances "
            "count records wherever they are: under symmetric_distance() design the plan for "
            f"fp.AddRemove(records={unit.records})"
        )
