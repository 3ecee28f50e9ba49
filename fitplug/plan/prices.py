"""Prices: what each group's targets cost.

The least rho is a function of the targets c whose logarithm is convex in log c: of two mechanisms
with covariances S and T, the one with their matrix geometric mean has at most the geometric means
of their variances and of their profiles. Its slope is the dual optimum: d log rho / d log c_j is
-q_j. So with c_j multiplied by f, no mechanism costs less than rho f^(-q_j): a price in per cent of
rho per per cent of variance, and the prices of all queries add up to 1.

Of any other dual weights p and q, as of a plan that is not the optimum, this much holds: with q_j
multiplied as c_j is, q / c stays, and so does the nuclear norm of the lower bound (see
`certificate`), while the sum of q grows to 1 + q_j (f - 1). So no mechanism costs less than
the plan's lower bound on rho over that. By the inequality of the arithmetic and the geometric mean
it is weaker than the slope, and has the same first order.
"""

from __future__ import annotations

from collections.abc import Mapping

from fitplug.errors import DesignError
from fitplug.proof import PlanRecord, share_weight

NEAR = 2e-4
"""A gap as near to the least as this is none that a figure of three digits shows."""


def price_groups(plan: PlanRecord) -> Mapping[str, float]:
    """The price of each group's targets, adding up to 1: relaxing all variances of a group by a
    factor f makes the least rho at most f^price times smaller, as exactly as the plan's lower bound
    is near its cost; and by how much in any plan, `most_saved` says.

    Raises DesignError for a plan with a weight on the total error, whose cost is no function of the
    targets alone.
    """
    if plan.objective.weight:
        raise DesignError("a plan with a weight on the total error has no prices")
    shares = share_weight(plan.structure, plan.duals)
    return dict(zip(plan.workload.names, shares.tolist(), strict=True))


def most_saved(plan: PlanRecord, price: float, factor: float) -> float:
    """The share of the plan's rho that a mechanism for all variances of a group multiplied by a
    factor >= 1 can save, at most. For a plan that is not the optimum it counts what a better plan
    for the targets as they are might save too.
    """
    if plan.gap <= NEAR:
        return 1 - factor**-price
    return 1 - (plan.lower_bound / plan.cost) ** 2 / (1 + price * (factor - 1))
