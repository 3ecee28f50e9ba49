"""The privacy cost of a plan for all records of one person, as every command reports it."""

from __future__ import annotations

from fractions import Fraction

from fitplug.numeric import ceil_float
from fitplug.plan import Plan


def compute_rho(plan: Plan, contributions: int) -> float:
    """Compute the rho that is charged for all records of one person.

    Args:
        plan: The plan.
        contributions: The largest number k of records of one person.

    Returns:
        k^2 times the plan's rho for one record, rounded up.
    """
    from fitplug_opendp.noise_source import compute_charged_rho

    return compute_charged_rho(plan, contributions)


def compute_privacy_cost(plan: Plan, contributions: int) -> float:
    """Compute Delta for all records of one person.

    Args:
        plan: The plan.
        contributions: The largest number k of records of one person.

    Returns:
        k times the plan's Delta for one record, rounded up.
    """
    return ceil_float(Fraction(plan.privacy_cost) * contributions)
