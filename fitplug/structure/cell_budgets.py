"""Cell budgets: the largest privacy cost squared that each cell of the domain may have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fitplug.domain import Domain
from fitplug.errors import BudgetError
from fitplug.numeric import FloatArray, read_array
from fitplug.structure.structure import Structure

MAX_AXES = 64
"""Of a NumPy array."""

LEAST_BUDGET, LARGEST_BUDGET = 1e-30, 2e12


@dataclass(frozen=True, eq=False)
class CellBudgets:
    """Budgets as they were given; each axis has size 1 or that of its attribute in `names`."""

    domain: Domain
    names: tuple[str, ...]
    array: FloatArray

    @property
    def varying(self) -> tuple[str, ...]:
        """The attributes along which they differ."""
        first = [self.array.take([0], axis) for axis in range(self.array.ndim)]
        return tuple(
            name for name, one in zip(self.names, first, strict=True) if (self.array != one).any()
        )

    def over(self, structure: Structure) -> FloatArray:
        """The budget (D,) of each dense cell: the least of the cells that it stands for; 1 for
        cells that no query counts. Raises BudgetError, naming a cell with a budget of zero, or out
        of range, that some query counts.
        """
        dense, domain = structure.dense, self.domain
        other = tuple(i for i, name in enumerate(self.names) if name not in dense)
        least = np.broadcast_to(self.array.min(axis=other), domain.shape_of(dense)).ravel()
        asked = np.zeros(structure.cells, dtype=bool)
        for group, matrix in zip(structure.workload.groups, structure.matrices, strict=True):
            counted = matrix.any(axis=0)
            asked |= counted
            wrong = counted & ~((least >= LEAST_BUDGET) & (least <= LARGEST_BUDGET))
            if wrong.any():
                cell = int(np.argmax(wrong))
                at = np.unravel_index(cell, domain.shape_of(dense))
                place = f" at {cell_name(domain, dense, at)}" if dense else ""
                if least[cell] == 0:
                    raise BudgetError(
                        f"cell_budgets{place} is 0, but the query group {group.name!r} counts that "
                        "cell; ask queries that leave it out, or give it a budget"
                    )
                raise BudgetError(
                    f"cell_budgets{place} is {least[cell]:g}; where queries count it must lie "
                    f"between {LEAST_BUDGET:g} and {LARGEST_BUDGET:g}"
                )
        return np.where(asked, least, 1.0)


def read_cell_budgets(domain: Domain, given: Any) -> CellBudgets:
    """Budgets that broadcast to the domain's shape, as those of `Plan.slack` do.

    Raises BudgetError, naming the cell, for one that is negative or not finite.
    """
    if len(domain.names) > MAX_AXES:
        raise BudgetError(
            f"cell_budgets need a domain of at most {MAX_AXES} attributes, and this one has "
            f"{len(domain.names)}; take the attributes that queries use into a domain of their own"
        )
    array = _array(given, domain.shape)
    names = domain.names[len(domain.names) - array.ndim :]
    for wrong, what in ((~np.isfinite(array), "finite"), (array < 0, "at least 0")):
        if wrong.any():
            at = np.unravel_index(int(np.argmax(wrong)), array.shape)
            raise BudgetError(
                f"cell_budgets at {cell_name(domain, names, at)} is {array[at]:g}; "
                f"it must be {what}"
            )
    return CellBudgets(domain, names, array)


def _array(given: Any, shape: tuple[int, ...]) -> FloatArray:
    """`given` as numbers, each axis of size 1 or that of its attribute, the last ones first."""
    array = read_array(given)
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


def cell_name(domain: Domain, names: tuple[str, ...], at: tuple[Any, ...]) -> str:
    """A cell by its attributes' labels; at: one index for each of `names`."""
    return ", ".join(
        f"{name}={domain[name].labels[int(i)]!r}" for name, i in zip(names, at, strict=True)
    )
