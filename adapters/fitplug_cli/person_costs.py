"""The privacy cost of a plan for all records of one person, as every command reports it."""

from __future__ import annotations

from fractions import Fraction

from fitplug.numeric import ceil_float
from fitplug.plan import Plan


def find_records(plan: Plan, contributions: int | None) -> int:
    """Find the largest number of records of one person that costs are reported for.

    Args:
        plan: The plan.
        contributions: What a spec or an option says; None if neither does.

    Returns:
        The records of the plan's unit of privacy, unless that is one record.

    Raises:
        BudgetError: The plan is designed for another number.
    """
    from fitplug_opendp.gaussian import choose_contributions

    return choose_contributions(plan, contributions or 1)


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
    return ceil_float(Fraction(plan.privacy_cost) * plan.compare_records(contributions))
