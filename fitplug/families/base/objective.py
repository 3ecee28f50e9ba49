"""Objectives: what a design makes least beyond the plain privacy cost.

These are cell budgets and the total squared error. The square root of

    max_i (profile_i / budget_i) * (max_j (variance_j / target_j) + weight * sum_j variance_j)

with budgets 1 and weight 0 is the privacy cost Delta at the targets (the paper's Problem 1); the
weight is the lambda of its hybrid with total squared error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

from fitplug.errors import BudgetError
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray

LARGEST_WEIGHT = 1e60


@dataclass(frozen=True, eq=False)
class Objective:
    """What is made least.

    Attributes:
        budgets: The largest profile allowed for each dense cell, shape (D,), or None.
        weight: The weight of the total squared error, in units of 1 / variance.
    """

    budgets: FloatArray | None = None
    weight: float = 0.0

    @property
    def plain(self) -> bool:
        """Whether it is the plain privacy cost."""
        return self.budgets is None and not self.weight

    def __str__(self) -> str:
        over = "" if self.budgets is None else " over the cells' budgets"
        error = f" with weight {self.weight:.3g} on the total squared error" if self.weight else ""
        return f"privacy cost{over}{error}"

    def divide_budgets(self, divisor: float) -> Objective:
        """Return the objective with all budgets divided by a number."""
        return self if self.budgets is None else replace(self, budgets=self.budgets / divisor)

    def rescale(self, scale: float) -> Objective:
        """Return the objective in units of scale * targets."""
        return replace(self, weight=self.weight / scale)

    def evaluate(self, privacy_cost: float, profile: FloatArray, total: float) -> float:
        """Evaluate the objective, rounded up, of a mechanism that meets its targets.

        Args:
            privacy_cost: Delta, rounded up.
            profile: The privacy cost squared of each cell, rounded up, shape (D,).
            total: The sum of all variances, rounded up.

        Returns:
            An upper bound on the objective.
        """
        if self.plain:
            return privacy_cost
        if self.budgets is not None:
            privacy_cost = math.sqrt(float(self.divide_by_budgets(profile).max())) * (
                1 + 2 * UNIT_ROUNDOFF
            )
        if not self.weight:
            return privacy_cost
        return privacy_cost * math.sqrt(self.upper_excess(total)) * (1 + 8 * UNIT_ROUNDOFF)

    def upper_excess(self, total: float) -> float:
        """Bound 1 + weight * total from above, for a sum of all variances that is rounded up."""
        return (1 + self.weight * total) * (1 + 4 * UNIT_ROUNDOFF)

    def divide_by_budgets(self, profile: FloatArray) -> FloatArray:
        """Divide a profile (D,) by the budgets, rounded up."""
        return profile if self.budgets is None else profile / self.budgets * (1 + 2 * UNIT_ROUNDOFF)


def check_weight(weight: Any) -> float:
    """Check and return a weight of the total squared error.

    Raises:
        BudgetError: Unless 0 <= weight <= 1e60.
    """
    number = isinstance(weight, Real) and not isinstance(weight, bool)
    if not number or not 0 <= weight <= LARGEST_WEIGHT:
        raise BudgetError(
            f"total_error_weight = {weight!r} must be a number from 0 to {LARGEST_WEIGHT:g}"
        )
    return float(weight)
