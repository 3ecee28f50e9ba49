"""A plan for the accountants of Google's dp_accounting."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from fitplug.errors import BudgetError
from fitplug.numeric import floor_float
from fitplug.plan import Plan
from fitplug.workload import AddRemove


def dp_event(plan: Plan) -> Any:
    """Make the dp_accounting.GaussianDpEvent of a plan.

    All answers together are one event, which the RDP and PLD accountants accept. For these
    accountants, neighbours differ by one person added or removed, in the plan's unit of privacy.
    The event's noise multiplier is sigma divided by the sensitivity, rounded down. The event
    describes continuous noise instead of the plan's discrete noise. The PLD accountant gives the
    curve of `Plan.epsilon`, which is proven for both kinds of noise.

    Args:
        plan: The plan, from `fitplug.design`.

    Returns:
        The event.

    Raises:
        BudgetError: The plan's unit of privacy is `fp.ReplaceOne`.
        ImportError: dp_accounting is not installed.
    """
    if not isinstance(plan.unit, AddRemove):
        raise BudgetError(f"dp_event needs a plan for fp.AddRemove, not {plan.unit}")
    try:
        import dp_accounting
    except ImportError:
        raise ImportError(
            'dp_accounting is not installed. Install it with: pip install "fitplug[accounting]"'
        ) from None
    ratio = Fraction(plan.noise_std) / Fraction(plan.strategy.sensitivity)
    return dp_accounting.GaussianDpEvent(floor_float(ratio))
