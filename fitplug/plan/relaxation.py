"""Relaxations: how targets are relaxed until a budget is enough.

The search is the method of cutting planes of docs/theory/prices.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.optimize import linprog

from fitplug.numeric import (
    ExactNumber,
    FloatArray,
    IntArray,
    ceil_float,
    floor_float,
    guard_linear_algebra,
)
from fitplug.plan.designer import design
from fitplug.plan.plan import Plan
from fitplug.plan.summary import price_groups
from fitplug.privacy import read_rho
from fitplug.workload import ONE_RECORD, Unit, Workload, make_bound_workload

_MOST_DESIGNS = 60
"""The most designs of one search for the cheapest relaxation."""

_MARGIN = 1e-3
"""The share of the budget that a relaxation may leave unused."""

LARGEST_FACTOR = 10.0
"""The largest factor on a standard deviation or margin of error. If it is not enough, more groups
are relaxed instead.
"""


@dataclass(frozen=True)
class Relaxation:
    """How to relax targets until they cost no more than a budget.

    Attributes:
        rho: The rho of the targets as they are.
        proportional: One factor on all standard deviations and margins of error, with which the
            targets fit the budget.
        groups: An alternative: factors on the standard deviations and margins of error of only a
            few groups. It is empty if the search found none, and for plans of the product family.
        plan: The plan for the targets relaxed by `groups`, whose rho is within the budget, or None
            if `groups` is empty.
    """

    rho: float
    proportional: float
    groups: Mapping[str, float]
    plan: Plan | None


def relax(
    workload: Workload,
    rho: ExactNumber,
    *,
    plan: Plan | None = None,
    tolerance: float = 2e-4,
    progress: Callable[[int, float], object] | None = None,
) -> Relaxation | None:
    """Find how targets must be relaxed so that they cost at most rho.

    First the groups are ranked by their factors in the cheapest relaxation of all groups, which is
    the one whose factors have the least product. Then only the first groups of this ranking are
    relaxed, as few as suffice with factors of at most 10 on their standard deviations. The product
    of their factors is the least possible for these groups, to within 0.1% of rho.

    Args:
        workload: The query groups and their targets.
        rho: The budget in rho of zCDP, for one person in the unit of the plan.
        plan: A plan of this workload. The search starts from it and uses its unit of privacy;
            without a plan, the unit is `AddRemove()`. Without a plan, or with one that has cell
            budgets or a weight on the total error, a plan is designed first.
        tolerance: The tolerance of each design, a gap of rho.
        progress: A function that is called after each design with the number of designs, and the
            ratio of the last plan's rho to the budget.

    Returns:
        The relaxation, or None if the targets cost no more than rho as they are.

    Raises:
        BudgetError: rho is out of range.
        DesignError: A design cannot be certified.
    """
    most = floor_float(read_rho(rho))
    groups = len(workload.groups)
    search = _RelaxationSearch(
        workload,
        most,
        tolerance,
        progress or (lambda designs, ratio: None),
        ONE_RECORD if plan is None else plan.unit,
    )
    if plan is None or plan.workload is not workload or not plan.objective.plain:
        plan = search.design(np.zeros(groups))
    # With its noise divided by the square root of its scale, the plan meets the targets as they
    # are.
    needed = ceil_float(Fraction(plan.rho) * Fraction(plan.scale))
    if needed <= most:
        return None
    proportional = _round_up(math.sqrt(needed / most * (1 + tolerance)))
    if not plan.strategy.structure.holds_optimum:
        return Relaxation(needed, proportional, {}, None)
    search.add_tangent(plan, np.full(groups, math.log(plan.scale)))
    x = _relax_fewest_groups(search, groups)
    if x is None:
        return Relaxation(needed, proportional, {}, None)
    factors = {
        name: _round_up(math.exp(half))
        for name, half in zip(workload.names, (x / 2).tolist(), strict=True)
        if half > _MARGIN / 20
    }
    squares = [2 * math.log(factors.get(name, 1.0)) for name in workload.names]
    return Relaxation(needed, proportional, factors, search.design(np.array(squares)))


def _relax_fewest_groups(search: _RelaxationSearch, groups: int) -> FloatArray | None:
    """Find the cheapest relaxation (groups,) of the fewest groups, or None if the search fails."""
    of_all = search.find_cheapest(np.arange(groups), math.inf)
    if of_all is None:
        return None
    ranked = np.argsort(-of_all, kind="stable")
    for count in range(1, groups + 1):
        relaxation = search.find_cheapest(ranked[:count], 2 * math.log(LARGEST_FACTOR))
        if relaxation is not None:
            return relaxation
    return of_all


class _RelaxationSearch:
    """A search for the cheapest relaxation that meets a budget, by cutting planes.

    The logarithm of the least rho is a convex function of x (groups,), the logarithms of the
    factors on the variances. It lies above its tangents, so the tangents at all points so far serve
    every further search.
    """

    def __init__(
        self,
        workload: Workload,
        rho: float,
        tolerance: float,
        progress: Callable[[int, float], object],
        unit: Unit,
    ) -> None:
        self._workload, self._rho, self._tolerance = workload, rho, tolerance
        self._progress, self._unit = progress, unit
        self._slopes: list[FloatArray] = []
        self._levels: list[float] = []
        self._designs = 0

    def design(self, x: FloatArray) -> Plan:
        """Design the plan for the targets relaxed by x."""
        groups = self._workload.groups.rescale(np.exp(x))
        relaxed = make_bound_workload(self._workload.domain, groups)
        plan = design(relaxed, unit=self._unit, tolerance=self._tolerance, refine=False)
        self._designs += 1
        self._progress(self._designs, plan.rho / self._rho)
        return plan

    def add_tangent(self, plan: Plan, x: FloatArray) -> None:
        """Add the tangent at x, where the plan is the optimum."""
        slope = np.array(list(price_groups(plan).values()))
        self._slopes.append(slope)
        excess = math.log(plan.rho / self._rho)
        self._levels.append(excess + float(slope @ x) + _MARGIN / 2)

    def find_cheapest(self, groups: IntArray, most: float) -> FloatArray | None:
        """Find the x (groups,) of least sum that meets the budget.

        Args:
            groups: The indices of the groups that may be relaxed.
            most: The largest entry of x.

        Returns:
            x, or None if none meets the budget or too many designs would be needed.
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
            self.add_tangent(plan, x)
        return None


def _round_up(factor: float) -> float:
    """Round a factor up to four digits."""
    digits = 10.0 ** (3 - math.floor(math.log10(factor)))
    return math.ceil(factor * digits) / digits
