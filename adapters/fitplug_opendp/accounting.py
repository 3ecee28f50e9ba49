"""A plan for the accountants of Google's dp_accounting."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from fitplug.errors import BudgetError
from fitplug.numeric import floor_float
from fitplug.plan import Plan


def dp_event(plan: Plan, *, contributions: int = 1) -> Any:
    """The plan as a dp_accounting.GaussianDpEvent, for its RDP and PLD accountants under the
    add-or-remove-one relation. All answers together are one event, of noise multiplier sigma over
    sensitivity, rounded down. Like the "gaussian" curve of `Plan.epsilon`, which the PLD
    accountant gives back, it takes the discrete noise for the continuous.

    :param plan: from `fitplug.design`.
    :param contributions: most records one person may have.
    :raises BudgetError: unless that is a whole number from 1.
    :raises ImportError: if dp_accounting is not installed.
    """
    if type(contributions) is not int or contributions < 1:
        raise BudgetError(f"contributions = {contributions!r} must be a whole number from 1")
    try:
        import dp_accounting
    except ImportError:
        raise ImportError(
            'dp_event needs dp_accounting; install it with: pip install "fitplug[accounting]"'
        ) from None
    sensitivity = contributions * Fraction(plan.strategy.sensitivity)
    return dp_accounting.GaussianDpEvent(floor_float(Fraction(plan.noise_std) / sensitivity))
