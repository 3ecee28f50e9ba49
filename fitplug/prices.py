"""Prices: what each group's targets cost, and how to relax them until a budget is enough.

The least rho is a function of the targets c whose logarithm is convex in log c: of two mechanisms
with covariances S and T, the one with their matrix geometric mean has at most the geometric means
of their variances and of their profiles. Its slope is the dual optimum: d log rho / d log c_j is
-q_j. So with c_j multiplied by f, no mechanism costs less than rho f^(-q_j): a price in per cent of
rho per per cent of variance, and the prices of all queries add up to 1.

Of any other dual weights p and q, as of a plan that is not the optimum, this much holds: with q_j
multiplied as c_j is, q / c stays, and so does the nuclear norm of the lower bound (see
`fitplug.certificate`), while the sum of q grows to 1 + q_j (f - 1). So no mechanism costs less than
the plan's lower bound on rho over that. By the inequality of the arithmetic and the geometric mean
it is weaker than the slope, and has the same first order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog

from fitplug.certificate import group_shares
from fitplug.design import design
from fitplug.errors import DesignError
from fitplug.linearalgebra import linear_algebra
from fitplug.plan import Plan
from fitplug.privacy import check_rho
from fitplug.rounding import ceil_float
from fitplug.workload import Workload

Array: TypeAlias = npt.NDArray[np.float64]
Indices: TypeAlias = npt.NDArray[np.int64]

_MOST_DESIGNS = 60
_ROOM = 1e-3
"""Of rho, below the budget: what the relaxation may give away."""

_NEAR = 2e-4
"""A gap as near to the least as this is none that a figure of three digits shows."""

LARGEST_FACTOR = 10.0
"""On a std or margin of error: beyond, more groups are relaxed instead."""


def prices(plan: Plan) -> Mapping[str, float]:
    """The price of each group's targets, adding up to 1: relaxing all variances of a group by a
    factor f makes the least rho at most f^price times smaller, as exactly as the plan's lower bound
    is near its cost; and by how much in any plan, `most_saved` says.

    Raises DesignError for a plan with a weight on the total error, whose cost is no function of the
    targets alone.
    """
    if plan.objective.weight:
        raise DesignError("a plan with a weight on the total error has no prices")
    shares = group_shares(plan.structure, plan.p, plan.q, plan.frame)
    return dict(zip(plan.workload.names, shares.tolist(), strict=True))


def most_saved(plan: Plan, price: float, factor: float) -> float:
    """The share of the plan's rho that a mechanism for all variances of a group multiplied by a
    factor >= 1 can save, at most. For a plan that is not the optimum it counts what a better plan
    for the targets as they are might save too.
    """
    if plan.gap <= _NEAR:
        return 1 - factor**-price
    return 1 - (plan.lower_bound / plan.cost) ** 2 / (1 + price * (factor - 1))


@dataclass(frozen=True)
class Relaxation:
    """How to relax targets until they fit a budget.

    rho: of the targets as they are. proportional: the factor on every std and margin of error.
    groups: instead, factors on those of a few groups alone; empty for a plan that is not the
    optimum, whose prices are no tangents. plan: of the targets relaxed by `groups`, its rho within
    the budget; None if they are empty.
    """

    rho: float
    proportional: float
    groups: Mapping[str, float]
    plan: Plan | None


def relax(
    workload: Workload,
    rho: float,
    *,
    plan: Plan | None = None,
    tolerance: float = 1e-4,
    progress: Callable[[int, float], object] | None = None,
) -> Relaxation | None:
    """How targets must be relaxed to cost at most rho; None if they cost no more already.

    plan: of this workload, where there is one: the search begins from it. Without one, or with one
    that made something else least than the privacy cost, a plan is designed first.

    The groups are the fewest, those first on which the cheapest relaxation of all groups leans the
    most, that suffice with factors of at most LARGEST_FACTOR on their std; the product of their
    factors is the least, to within 0.1 % of rho.
    progress: called with the number of designs made and the rho of the last over the budget.
    Raises BudgetError, DesignError.
    """
    check_rho(rho)
    groups = len(workload.groups)
    search = _Search(workload, rho, tolerance, progress or (lambda made, over: None))
    if plan is None or plan.workload is not workload or not plan.objective.plain:
        plan = search.design(np.zeros(groups))
    # With its noise divided by scale^1/2 a plan meets the targets as they are.
    asked = ceil_float(Fraction(plan.rho) * Fraction(plan.scale))
    if asked <= rho:
        return None
    proportional = _upwards(math.sqrt(asked / rho) * (1 + tolerance))
    if plan.structure.ordered:
        return Relaxation(asked, proportional, {}, None)
    search.keep(plan, np.full(groups, math.log(plan.scale)))
    x = _few(search, groups)
    if x is None:
        return Relaxation(asked, proportional, {}, None)
    factors = {
        name: _upwards(math.exp(half))
        for name, half in zip(workload.names, (x / 2).tolist(), strict=True)
        if half > _ROOM / 20
    }
    squares = [2 * math.log(factors.get(name, 1.0)) for name in workload.names]
    return Relaxation(asked, proportional, factors, search.design(np.array(squares)))


def _few(search: _Search, groups: int) -> Array | None:
    """The cheapest relaxation of the fewest groups, or None if it was not found."""
    of_all = search.cheapest(np.arange(groups), math.inf)
    if of_all is None:
        return None
    ranked = np.argsort(-of_all, kind="stable")
    for count in range(1, groups + 1):
        found = search.cheapest(ranked[:count], 2 * math.log(LARGEST_FACTOR))
        if found is not None:
            return found
    return of_all


class _Search:
    """The least rho as a function of x, the logarithms of factors on variances, by cutting planes:
    it lies above its tangents, and those at points found so far serve every further search.
    """

    def __init__(
        self,
        workload: Workload,
        rho: float,
        tolerance: float,
        tell: Callable[[int, float], object],
    ) -> None:
        self._workload, self._rho, self._tolerance, self._tell = workload, rho, tolerance, tell
        self._slopes: list[Array] = []
        self._levels: list[float] = []
        self._made = 0

    def design(self, x: Array) -> Plan:
        """The plan at x."""
        groups = [
            replace(group, variances=group.variances * factor)
            for group, factor in zip(self._workload.groups, np.exp(x), strict=True)
        ]
        relaxed = Workload.of_groups(self._workload.domain, groups)
        plan = design(relaxed, tolerance=self._tolerance, refine=False)
        self._made += 1
        self._tell(self._made, plan.rho / self._rho)
        return plan

    def keep(self, plan: Plan, x: Array) -> None:
        """Keep the tangent at x, from the plan there."""
        slope = np.array(list(prices(plan).values()))
        self._slopes.append(slope)
        over = math.log(plan.rho / self._rho)
        self._levels.append(over + float(slope @ x) + _ROOM / 2)

    def cheapest(self, groups: Indices, most: float) -> Array | None:
        """The x >= 0 of least sum that meets the budget, none above `most` and zero beyond these
        groups; None if there is none, or too many designs would be needed.
        """
        bounds = np.zeros((len(self._workload.groups), 2))
        bounds[groups, 1] = most
        for _ in range(_MOST_DESIGNS):
            planes = {"A_ub": -np.array(self._slopes), "b_ub": -np.array(self._levels)}
            with linear_algebra():
                x = linprog(np.ones(len(bounds)), **planes, bounds=bounds).x
            if x is None:
                return None
            plan = self.design(x)
            if plan.rho <= self._rho:
                return np.asarray(x)
            self.keep(plan, x)
        return None


def _upwards(factor: float) -> float:
    """The factor to four digits, rounded up."""
    digits = 10.0 ** (3 - math.floor(math.log10(factor)))
    return math.ceil(factor * digits) / digits
