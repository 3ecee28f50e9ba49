"""Objectives: what a design minimises other than the plain privacy cost.

An objective may have cell budgets, the largest squared privacy cost that each cell of the domain
may have, and a weight on the total squared error. It is the square root of

    max_i (profile_i / budget_i) * (max_j (variance_j / target_j) + weight * sum_j variance_j)

With budgets 1 and weight 0 it is the privacy cost Delta at the targets (the paper's Problem 1). The
weight is the lambda of the paper's hybrid with total squared error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np

from fitplug.domain import Domain, get_shape
from fitplug.errors import BudgetError
from fitplug.families.base.structure import Structure
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray, read_array

LARGEST_WEIGHT = 1e60


@dataclass(frozen=True, eq=False)
class Objective:
    """What a design minimises.

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
        return f"rho{over}{error}"

    def divide_budgets(self, divisor: float) -> Objective:
        """Return the objective with all budgets divided by a number."""
        return self if self.budgets is None else replace(self, budgets=self.budgets / divisor)

    def rescale(self, scale: float) -> Objective:
        """Return the objective in units of scale * targets."""
        return replace(self, weight=self.weight / scale)

    def evaluate(self, privacy_cost: float, profile: FloatArray, total: float) -> float:
        """Evaluate the objective of a mechanism that meets its targets, rounded up.

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
        """Bound 1 + weight * total from above, where `total` is the sum of variances, rounded
        up."""
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
            f"total_error_weight must be a number from 0 to {LARGEST_WEIGHT:g}, not {weight!r}"
        )
    return float(weight)


MAX_AXES = 64
"""The most axes of a NumPy array."""

LEAST_BUDGET, LARGEST_BUDGET = 1e-30, 2e12
"""The range of budgets of cells that queries count."""


@dataclass(frozen=True, eq=False)
class CellBudgets:
    """Cell budgets as the user gave them.

    Attributes:
        domain: The domain.
        names: The attributes of the array's axes.
        array: The budgets; each axis has size 1 or its attribute's size.
    """

    domain: Domain
    names: tuple[str, ...]
    array: FloatArray

    @property
    def varying(self) -> tuple[str, ...]:
        """The attributes along which the budgets differ."""
        first = [self.array.take([0], axis) for axis in range(self.array.ndim)]
        return tuple(
            name for name, one in zip(self.names, first, strict=True) if (self.array != one).any()
        )

    def reduce_to_differences(self, structure: Structure) -> FloatArray:
        """Reduce the budgets to a structure's differences between neighbours.

        Returns:
            For each difference, the least budget of the cells that it stands for, shape (|V|,); 1
            for cells that no query counts.

        Raises:
            BudgetError: If some query counts a cell whose budget is zero or out of range; the
                message names the cell.
        """
        names, domain = structure.profile_attributes, self.domain
        other = tuple(i for i, name in enumerate(self.names) if name not in names)
        least = np.broadcast_to(self.array.min(axis=other), get_shape(domain, names))
        # Whether queries count a cell depends on its dense attributes alone.
        sizes = [domain[name].size if name in structure.dense else 1 for name in names]
        is_counted = np.zeros(sizes, dtype=bool)
        is_wrong = ~((least >= LEAST_BUDGET) & (least <= LARGEST_BUDGET))
        for g, group in enumerate(structure.workload.groups):
            counted = structure.build_group_matrix(g).any(axis=0).reshape(sizes)
            is_counted |= counted
            wrong = counted & is_wrong
            if wrong.any():
                at = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
                place = f" at {name_cell(domain, names, at)}" if names else ""
                raise BudgetError(
                    f"cell_budgets{place} must be between {LEAST_BUDGET:g} and {LARGEST_BUDGET:g}, "
                    f"not {least[at]:g}, because {group.name!r} counts this cell"
                )
        return structure.take_least(np.where(is_counted, least, 1.0))


def read_cell_budgets(domain: Domain, given: Any) -> CellBudgets:
    """Read budgets that broadcast to the domain's shape, such as `Plan.unused_budget`'s.

    Raises:
        BudgetError: If they do not, or one is negative or not finite; the message names the cell.
    """
    if len(domain.names) > MAX_AXES:
        raise BudgetError(
            f"cell_budgets need a domain of at most {MAX_AXES} attributes, not "
            f"{len(domain.names)}. Remove unused attributes from the domain."
        )
    array = _read_budgets(given, domain.shape)
    names = domain.names[len(domain.names) - array.ndim :]
    for wrong, what in ((~np.isfinite(array), "finite"), (array < 0, "at least 0")):
        if wrong.any():
            at = np.unravel_index(int(np.argmax(wrong)), array.shape)
            raise BudgetError(
                f"cell_budgets at {name_cell(domain, names, at)} must be {what}, not {array[at]:g}"
            )
    return CellBudgets(domain, names, array)


def _read_budgets(given: Any, shape: tuple[int, ...]) -> FloatArray:
    """Read numbers whose axes, counted from the last, have size 1 or that of their attribute."""
    array = read_array(given)
    if array.dtype.kind not in "iuf":
        raise BudgetError("cell_budgets must be an array of numbers, such as plan.unused_budget()")
    sizes = shape[max(0, len(shape) - array.ndim) :]
    if array.ndim > len(shape) or any(
        n not in (1, size) for n, size in zip(array.shape, sizes, strict=True)
    ):
        raise BudgetError(
            f"cell_budgets has shape {np.shape(given)}, which does not broadcast to the domain's "
            f"shape {shape}"
        )
    return array.astype(np.float64)


def name_cell(domain: Domain, names: tuple[str, ...], at: tuple[Any, ...]) -> str:
    """Name a cell by its labels, from its index along each attribute in `names`."""
    return ", ".join(
        f"{name}={domain[name].labels[int(i)]!r}" for name, i in zip(names, at, strict=True)
    )
