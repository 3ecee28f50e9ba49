"""A plan for the accountants of Google's dp_accounting."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from fitplug.errors import BudgetError
from fitplug.numeric import floor_float
from fitplug.plan import Plan
from fitplug.workload import AddRemove
from fitplug_opendp.gaussian import choose_contributions


def dp_event(plan: Plan, *, contributions: int = 1) -> Any:
    """Make the dp_accounting.GaussianDpEvent of a plan.

    All answers together are one event, for the RDP and PLD accountants under the relation of adding
    or removing one person in the plan's unit of privacy. Its noise multiplier is sigma over the
    sensitivity, rounded down. The event takes the discrete noise for continuous noise; the PLD
    accountant gives the curve that `Plan.epsilon` proves for both.

    Args:
        plan: The plan, from `fitplug.design`.
        contributions: The largest number of records that one person may have.

    Returns:
        The event.

    Raises:
        BudgetError: The number of contributions is out of range, or neighbours replace a record.
        ImportError: dp_accounting is not installed.
    """
    if not isinstance(plan.unit, AddRemove):
        raise BudgetError(
            f"the plan's unit of privacy ({plan.unit}) is not one of records added or removed, "
            "which the event is for; release the plan with fitplug.release"
        )
    contributions = choose_contributions(plan, contributions)
    try:
        import dp_accounting
    except ImportError:
        raise ImportError(
            'dp_event needs dp_accounting; install it with: pip install "fitplug[accounting]"'
        ) from None
    sensitivity = plan.compare_records(contributions) * Fraction(plan.strategy.sensitivity)
    return dp_accounting.GaussianDpEvent(floor_float(Fraction(plan.noise_std) / sensitivity))
