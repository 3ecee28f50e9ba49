"""What a charge rests on, checked before it is made: the plan's proofs, and its sensitivity.

A plan may come from a file, and a file may be edited by somebody who computes its digest again. So
every claim of a plan is proven anew by code that trusts no solver. Then the answers of neighbouring
data sets are compared, by the path that will compute them, with what will be charged; that check
trusts no code of costs either.
"""

from __future__ import annotations

from fractions import Fraction
from weakref import WeakKeyDictionary

from fitplug.plan import Plan
from fitplug.sensitivity import AnswerPath, SensitivityCheck, check_sensitivity, make_plan_error

_checked: WeakKeyDictionary[Plan, SensitivityCheck] = WeakKeyDictionary()
"""What was found of the plans that this process has checked: no plan changes."""


def check_plan(plan: Plan, path: AnswerPath | None = None) -> SensitivityCheck:
    """Verify a plan and check the sensitivity of its answers, once in this process.

    Args:
        plan: The plan.
        path: How the answers will be computed, if not in memory. Then they are always compared.

    Returns:
        What the check of the sensitivity has compared.

    Raises:
        PlanError: A claim of the plan does not hold.
    """
    found = _checked.get(plan)
    if found is None:
        plan.verify()
    if found is None or path is not None:
        found = check_sensitivity(path or AnswerPath.in_memory(plan))
        _checked[plan] = found
    return found


def find_check(plan: Plan) -> SensitivityCheck | None:
    """Return what this process has found of a plan; None if it has not checked the plan."""
    return _checked.get(plan)


def check_charge(
    plan: Plan, charged: Fraction, changes: Fraction, path: AnswerPath | None = None
) -> None:
    """Check what a charge rests on.

    Args:
        plan: The plan.
        charged: The charge in rho of zCDP.
        changes: How many of the unit's differences the charge is for.
        path: As for `check_plan`.

    Raises:
        PlanError: A claim of the plan does not hold, or the answers of two neighbouring data sets
            cost more than the charge.
    """
    found = check_plan(plan, path)
    if found.largest_squared * changes**2 / (2 * Fraction(plan.noise_std) ** 2) > charged:
        raise make_plan_error(plan, "would be charged less than its answers cost")
