"""Tiers: cells of equal profile in the refined optimum, each certified from dual weights alone.

By weak duality sum_i p_i profile_i >= T(p, q)^2 / sum q wherever every target is met. What earlier
tiers may have of the sum is known, so the rest bounds the largest profile of all other cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from fitplug.numeric import BoolArray, FloatArray, IntArray, gamma


@dataclass(frozen=True, eq=False)
class Tiers:
    """Which tier each cell is in, and the dual weights that certify the levels.

    of_cell: shape (d,): 0 for the first tier, -1 for cells that cost nothing; t, one more than the
        last tier certified, for cells that were not refined.
    p, q: shapes (t - 1, d) and (t - 1, m), a row for each tier after the first.
    """

    of_cell: IntArray
    p: FloatArray
    q: FloatArray

    def arrays(self) -> tuple[IntArray, FloatArray, FloatArray]:
        return self.of_cell, self.p, self.q

    def covering(self, costly: BoolArray) -> Tiers:
        """The same, with the cells that cost something, shape (d,), in the last tier if they are in
        none: their cost in the real optimum was too small for a float, in integers it is not.
        """
        lost = costly & (self.of_cell < 0)
        last = max(int(self.of_cell.max()), 0)
        return Tiers(np.where(lost, last, self.of_cell), self.p, self.q)


@dataclass(frozen=True)
class Tier:
    """A tier of a plan.

    cells: how many, of those that symmetry tells apart. level: their largest profile (over the cell
        budget, if there are any).
    lower_bound: certified; no mechanism meeting the targets (with no larger total squared error,
        if the plan gives that a weight), and costing no cell of an earlier tier more than this plan
        does, has the largest profile of the cells of this and later tiers below. None for cells
        that were not refined.
    """

    cells: int
    level: float
    lower_bound: float | None


def one_tier(profile: FloatArray, queries: int, cells: int | None = None) -> Tiers:
    """All cells of `profile` (d,) that cost anything in the first tier."""
    of_cell = np.where(profile > 0, 0, -1)
    return Tiers(of_cell, np.zeros((0, cells or len(profile))), np.zeros((0, queries)))


def certified(
    bound_at: Callable[[FloatArray, FloatArray], float],
    profile: FloatArray,
    excess: float,
    duals: Tiers,
) -> Iterator[Tier]:
    """The tiers with their lower bounds.

    bound_at: the certified bound at weights p (d,) and q (m,). profile: the plan's, over its
    budgets, rounded up, shape (d,). excess: 1, or more with a weight on the total squared error.
    duals: p and q with a row for the first tier too.
    """
    of_cell = duals.of_cell
    for tier in range(int(of_cell.max()) + 1):
        cells = of_cell == tier
        level = float(profile[cells].max(initial=0.0))
        bound = None
        if tier < len(duals.p):
            p, q = duals.p[tier], duals.q[tier]
            least = bound_at(p, q)
            earlier = (of_cell >= 0) & (of_cell < tier)
            error = 2 * gamma(len(p))
            spent = float((p * profile)[earlier].sum()) * (1 + error)
            left = least**2 / excess * float(p.sum()) * (1 - error) - spent
            others = float(p[~earlier].sum())
            bound = max(0.0, left / others * (1 - error)) if others > 0 else 0.0
        yield Tier(int(cells.sum()), level, bound)
