"""What a design makes least, beyond the plain privacy cost: cell budgets and total squared error.

The root of

    max_i (profile_i / budget_i) * (max_j (variance_j / target_j) + weight * sum_j variance_j)

with budgets 1 and weight 0 is the privacy cost Delta at the targets (the paper's Problem 1); the
weight is the lambda of its hybrid with total squared error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.errors import BudgetError
from fitplug.rounding import UNIT, gamma
from fitplug.workload import Workload

Array: TypeAlias = npt.NDArray[np.float64]

LARGEST_WEIGHT = 1e60
MAX_AXES = 64
"""Of a NumPy array."""

LEAST_BUDGET, LARGEST_BUDGET = 1e-30, 2e12


@dataclass(frozen=True, eq=False)
class Objective:
    """budgets: largest profile allowed per cell (d,), or None. weight: of the total squared error,
    in units of one over a variance.
    """

    budgets: Array | None = None
    weight: float = 0.0

    @property
    def plain(self) -> bool:
        return self.budgets is None and not self.weight

    def __str__(self) -> str:
        over = "" if self.budgets is None else " over the cells' budgets"
        error = f" with weight {self.weight:.3g} on the total squared error" if self.weight else ""
        return f"privacy cost{over}{error}"

    def at(self, scale: float) -> Objective:
        """The objective in units of scale * targets."""
        return replace(self, weight=self.weight / scale)

    def value(self, privacy_cost: float, profile: Array, variances: Array) -> float:
        """The objective, rounded up, of a mechanism that meets its targets."""
        if self.plain:
            return privacy_cost
        if self.budgets is not None:
            privacy_cost = math.sqrt(float(self.relative(profile).max())) * (1 + 2 * UNIT)
        if not self.weight:
            return privacy_cost
        return privacy_cost * math.sqrt(self.excess(variances)) * (1 + 8 * UNIT)

    def excess(self, variances: Array) -> float:
        """1 + weight * the total squared error, rounded up."""
        return 1 + self.weight * float(variances.sum()) * (1 + gamma(len(variances)))

    def relative(self, profile: Array) -> Array:
        """profile / budgets (d,), rounded up."""
        return profile if self.budgets is None else profile / self.budgets * (1 + 2 * UNIT)


def check_weight(weight: Any) -> float:
    """The weight of the total squared error. Raises BudgetError unless 0 <= weight <= 1e60."""
    number = isinstance(weight, Real) and not isinstance(weight, bool)
    if not number or not 0 <= weight <= LARGEST_WEIGHT:
        raise BudgetError(
            f"total_error_weight = {weight!r} must be a number from 0 to {LARGEST_WEIGHT:g}"
        )
    return float(weight)


def budgets_per_cell(workload: Workload, W: Array, given: Any) -> Array:
    """The budget (d,) of each cell of the workload's attributes: the least of the domain's cells
    that it stands for. 1 for cells that no query asks for.

    given: broadcasts to the domain's shape, as `Plan.slack` does. Raises BudgetError, naming the
    cell, for a budget that is negative or not finite, or is zero where a query needs the cell.
    """
    domain = workload.domain
    if len(domain.names) > MAX_AXES:
        raise BudgetError(
            f"cell_budgets need a domain of at most {MAX_AXES} attributes, and this one has "
            f"{len(domain.names)}; take the attributes that queries use into a domain of their own"
        )
    budgets = _array(given, domain.shape)
    names = domain.names[len(domain.names) - budgets.ndim :]
    for wrong, what in ((~np.isfinite(budgets), "finite"), (budgets < 0, "at least 0")):
        if wrong.any():
            at = np.unravel_index(int(np.argmax(wrong)), budgets.shape)
            raise BudgetError(
                f"cell_budgets at {_cell(workload, names, at)} is {budgets[at]:g}; "
                f"it must be {what}"
            )
    unused = tuple(i for i, n in enumerate(names) if n not in workload.attributes)
    least = np.broadcast_to(budgets.min(axis=unused), workload.shape).ravel()
    asked = W.any(axis=0)
    empty = asked & (least == 0)
    if empty.any():
        cell = int(np.argmax(empty))
        row = int(np.argmax(W[:, cell] != 0))
        ends = np.cumsum([group.size for group in workload.groups])
        name = workload.names[int(np.searchsorted(ends, row, side="right"))]
        place = _cell(workload, workload.attributes, np.unravel_index(cell, workload.shape))
        raise BudgetError(
            f"cell_budgets at {place} is 0, but the query group {name!r} counts that cell; "
            "ask queries that leave it out, or give it a budget"
        )
    beyond = asked & ~((least >= LEAST_BUDGET) & (least <= LARGEST_BUDGET))
    if beyond.any():
        cell = int(np.argmax(beyond))
        place = _cell(workload, workload.attributes, np.unravel_index(cell, workload.shape))
        raise BudgetError(
            f"cell_budgets at {place} is {least[cell]:g}; where queries count it must lie between "
            f"{LEAST_BUDGET:g} and {LARGEST_BUDGET:g}"
        )
    return np.where(asked, least, 1.0)


def _array(given: Any, shape: tuple[int, ...]) -> Array:
    """`given` as numbers, each axis of size 1 or that of its attribute, the last ones first."""
    try:
        array = np.asarray(given)
    except ValueError:  # a ragged list
        array = np.asarray(None)
    if array.dtype.kind not in "iuf":
        raise BudgetError("cell_budgets must be an array of numbers, such as plan.slack()")
    sizes = shape[max(0, len(shape) - array.ndim) :]
    if array.ndim > len(shape) or any(
        n not in (1, size) for n, size in zip(array.shape, sizes, strict=True)
    ):
        raise BudgetError(
            f"cell_budgets has shape {np.shape(given)}, which does not broadcast to the domain's "
            f"shape {shape}"
        )
    return array.astype(np.float64)


def _cell(workload: Workload, names: tuple[str, ...], at: tuple[Any, ...]) -> str:
    domain = workload.domain
    return ", ".join(
        f"{name}={domain[name].labels[int(i)]!r}" for name, i in zip(names, at, strict=True)
    )
