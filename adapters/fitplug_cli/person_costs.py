"""The privacy cost of a plan for one person in its unit, as every command reports it."""

from __future__ import annotations

from fractions import Fraction

from fitplug.numeric import ceil_float
from fitplug.plan import Plan


def compute_rho(plan: Plan, records: int | None = None) -> float:
    """Compute the rho that is charged for one person.

    Args:
        plan: The plan.
        records: The number of records of a person, who may have them anywhere; None for a person
            in the plan's unit of privacy.

    Returns:
        The rho, rounded up.
    """
    from fitplug_opendp.noise_source import compute_charged_rho

    return compute_charged_rho(plan, records or plan.structure.changes)


def compute_privacy_cost(plan: Plan, records: int | None = None) -> float:
    """Compute Delta for one person.

    Args:
        plan: The plan.
        records: As for `compute_rho`.

    Returns:
        Delta, rounded up.
    """
    changes = plan.compare_records(records or plan.structure.changes)
    return ceil_float(Fraction(plan.privacy_cost) * changes)
