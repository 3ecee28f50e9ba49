"""Prices: what the targets of each query group cost.

The least rho is a function of the targets c whose logarithm is convex in log c, and the dual
weights q of the optimum are its slopes: d log rho / d log c_j = -q_j. So if the variances of a
group of price pi are multiplied by f >= 1, no mechanism with Gaussian noise costs less than
rho f^-pi. For the weights of a plan that is not the optimum a weaker statement holds: no such
mechanism costs less than the plan's lower bound on rho over 1 + pi (f - 1). See
docs/theory/prices.md, (P3) and (P2).
"""

from __future__ import annotations

from collections.abc import Mapping

from fitplug.errors import DesignError
from fitplug.families import find_family
from fitplug.plan.plan_record import PlanRecord

NEGLIGIBLE_GAP = 2e-4
"""A gap up to which the prices of a plan are taken for those of the optimum: it changes a saving by
about 4e-4 of rho, which no figure of three digits shows.
"""


def price_groups(plan: PlanRecord) -> Mapping[str, float]:
    """Compute the price of each group's targets.

    If all variances of a group are multiplied by a factor f near 1, the least rho is divided by
    f^price. For larger f it is divided by at most that. This holds for the optimum, and for a plan
    as nearly as its cost is near its lower bound; `estimate_saving` turns a price into a saving.

    Args:
        plan: A plan without a weight on the total error.

    Returns:
        A price for each group, in per cent of rho per per cent of variance. The prices add up to 1.

    Raises:
        DesignError: The plan has a weight on the total error, so its cost does not depend on the
            targets alone.
    """
    if plan.objective.weight:
        raise DesignError("a plan with a weight on the total error has no prices")
    shares = find_family(plan.structure).certifier.share_weight(plan.structure, plan.duals)
    return dict(zip(plan.workload.names, shares.tolist(), strict=True))


def estimate_saving(plan: PlanRecord, price: float, factor: float) -> float:
    """Estimate the largest saving that is possible if all variances of one group are relaxed.

    For a plan whose gap is at most 2e-4 this is the largest saving at the optimum, 1 - f^-price. It
    is right to about 4e-4 of rho, because the plan is that close to the optimum. For any other plan
    it is an upper bound, which includes what a better plan for the targets as they are might save.

    Args:
        plan: The plan for the targets as they are.
        price: The price of the group, from `price_groups`.
        factor: The factor f >= 1 on the variances of the group.

    Returns:
        The saving as a share of the plan's rho.
    """
    if plan.gap <= NEGLIGIBLE_GAP:
        return 1 - factor**-price
    return 1 - (plan.lower_bound / plan.cost) ** 2 / (1 + price * (factor - 1))
