"""Prices: what each group's targets cost, and how to relax them until a budget is enough.

The least rho is a function of the targets c whose logarithm is convex in log c: of two mechanisms
with covariances S and T, the one with their matrix geometric mean has at most the geometric means
of their variances and of their profiles. Its slope is the dual optimum: d log rho / d log c_j is
-q_j. So with c_j multiplied by f, no mechanism costs less than rho f^(-q_j): a price in per cent of
rho per per cent of variance, and the prices of all queries add up to 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog

from fitplug.design import design
from fitplug.errors import DesignError
from fitplug.linearalgebra import linear_algebra
from fitplug.plan import Plan
from fitplug.privacy import check_rho
from fitplug.workload import Workload

Array: TypeAlias = npt.NDArray[np.float64]
Indices: TypeAlias = npt.NDArray[np.int64]

_MOST_DESIGNS = 60
_ROOM = 1e-3
"""Of rho, below the budget: what the relaxation may give away."""

LARGEST_FACTOR = 10.0
"""On a std or margin of error: beyond, more groups are relaxed instead."""


def prices(plan: Plan) -> Mapping[str, float]:
    """The price of each group's targets, adding up to 1: relaxing all variances of a group by a
    factor f makes the least rho at most f^price times smaller.

    As exact as the plan's lower bound is near its cost. Raises DesignError for a plan with a weight
    on the total error, whose cost is no function of the targets alone, and for one whose attributes
    are split apart, which is not the optimum.
    """
    structure = plan.structure
    if plan.objective.weight or structure.ordered:
        raise DesignError(
            "a plan with a weight on the total error, or of the residual family, has no prices"
        )
    weights = np.add.reduceat(plan.q, structure.starts[:-1])
    return dict(zip(plan.workload.names, (weights / weights.sum()).tolist(), strict=True))


@dataclass(frozen=True)
class Relaxation:
    """How to relax targets until they fit a budget.

    rho: of the targets as they are. proportional: the factor on every std and margin of error.
    groups: instead, factors on those of a few groups alone; empty if the plan has no prices. plan:
    of the targets relaxed by `groups`, or else all alike; its rho is within the budget.
    """

    rho: float
    proportional: float
    groups: Mapping[str, float]
    plan: Plan


def relax(
    workload: Workload,
    rho: float,
    *,
    tolerance: float = 1e-4,
    progress: Callable[[int, float], object] | None = None,
) -> Relaxation | None:
    """How targets must be relaxed to cost at most rho; None if they cost no more already.

    The groups are the fewest, those first on which the cheapest relaxation of all groups leans the
    most, that suffice with factors of at most LARGEST_FACTOR on their std; the product of their
    factors is the least, to within 0.1 % of rho.
    progress: called with the number of designs made and the rho of the last over the budget.
    Raises BudgetError, DesignError.
    """
    check_rho(rho)
    search = _Search(workload, rho, tolerance, progress or (lambda made, over: None))
    first = search.design(np.zeros(len(workload.groups)))
    if first.rho <= rho:
        return None
    proportional = _upwards(math.sqrt(first.rho / rho) * (1 + tolerance))
    x = None if search.blind else _few(search, len(workload.groups))
    alike = 2 * math.log(proportional)
    if x is None:
        return Relaxation(
            first.rho, proportional, {}, search.design(np.full(len(workload.groups), alike))
        )
    factors = {
        name: _upwards(math.exp(half))
        for name, half in zip(workload.names, (x / 2).tolist(), strict=True)
        if half > _ROOM / 20
    }
    squares = [2 * math.log(factors.get(name, 1.0)) for name in workload.names]
    return Relaxation(first.rho, proportional, factors, search.design(np.array(squares)))


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
        self.blind = False
        """Whether plans have no prices, and so no tangents."""

    def design(self, x: Array) -> Plan:
        """The plan at x; its tangent is kept if it is over the budget."""
        groups = [
            replace(group, variances=group.variances * factor)
            for group, factor in zip(self._workload.groups, np.exp(x), strict=True)
        ]
        relaxed = Workload.of_groups(self._workload.domain, groups)
        plan = design(relaxed, tolerance=self._tolerance, refine=False)
        self._made += 1
        self._tell(self._made, plan.rho / self._rho)
        if plan.rho > self._rho:
            try:
                slope = np.array(list(prices(plan).values()))
            except DesignError:
                self.blind = True
                return plan
            self._slopes.append(slope)
            over = math.log(plan.rho / self._rho)
            self._levels.append(over + float(slope @ x) + _ROOM / 2)
        return plan

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
            if self.design(x).rho <= self._rho:
                return np.asarray(x)
        return None


def _upwards(factor: float) -> float:
    """The factor to four digits, rounded up."""
    digits = 10.0 ** (3 - math.floor(math.log10(factor)))
    return math.ceil(factor * digits) / digits
