"""Relaxations: how targets are relaxed until a budget is enough; see `fitplug.plan.prices`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from scipy.optimize import linprog

from fitplug.numeric import FloatArray, IntArray, ceil_float, guard_linear_algebra
from fitplug.plan.designer import design
from fitplug.plan.plan import Plan
from fitplug.plan.prices import price_groups
from fitplug.privacy import check_rho
from fitplug.workload import Workload

_MOST_DESIGNS = 60
_ROOM = 1e-3
"""Of rho, below the budget: what the relaxation may give away."""

LARGEST_FACTOR = 10.0
"""On a std or margin of error: beyond, more groups are relaxed instead."""


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


def _few(search: _Search, groups: int) -> FloatArray | None:
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
        self._slopes: list[FloatArray] = []
        self._levels: list[float] = []
        self._made = 0

    def design(self, x: FloatArray) -> Plan:
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

    def keep(self, plan: Plan, x: FloatArray) -> None:
        """Keep the tangent at x, from the plan there."""
        slope = np.array(list(price_groups(plan).values()))
        self._slopes.append(slope)
        over = math.log(plan.rho / self._rho)
        self._levels.append(over + float(slope @ x) + _ROOM / 2)

    def cheapest(self, groups: IntArray, most: float) -> FloatArray | None:
        """The x >= 0 of least sum that meets the budget, none above `most` and zero beyond these
        groups; None if there is none, or too many designs would be needed.
        """
        bounds = np.zeros((len(self._workload.groups), 2))
        bounds[groups, 1] = most
        for _ in range(_MOST_DESIGNS):
            planes = {"A_ub": -np.array(self._slopes), "b_ub": -np.array(self._levels)}
            with guard_linear_algebra():
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
