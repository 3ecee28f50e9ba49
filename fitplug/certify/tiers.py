"""Tiers: cells of equal profile in the refined optimum, each certified from dual weights alone.

By weak duality sum_i p_i profile_i >= T(p, q)^2 / sum q if every target is met. The share of
earlier tiers in this sum is known, so the rest of the sum bounds the largest profile of all other
cells (docs/theory/refinement.md, (R7)).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from fitplug.numeric import BoolArray, FloatArray, IntArray, gamma

LowerBoundAt: TypeAlias = Callable[[FloatArray, FloatArray], float]
"""A function that computes the certified lower bound at dual weights p and q."""

Ended: TypeAlias = Literal["reached", "exhausted", "stopped", "apart"]
"""Why a design ended: the tolerance was reached, iterations ran out, a caller stopped it, or a gap
remains between the strategy and the best bound of its structure."""


@dataclass(frozen=True, eq=False)
class Tiers:
    """Which tier each cell is in, and the dual weights that certify the levels.

    Attributes:
        of_cell: 0 for cells of the first tier, -1 for cells that cost nothing; t, one more than the
            last tier certified, for cells that were not refined; shape (d,).
        p: A row for each tier after the first, shape (t - 1, d).
        q: Likewise, shape (t - 1, m).
    """

    of_cell: IntArray
    p: FloatArray
    q: FloatArray

    def include_costly(self, costly: BoolArray) -> Tiers:
        """Put cells that have a cost but no tier into the last tier.

        Their cost in the real optimum was too small for a float, but not in integers.

        Args:
            costly: Whether each cell has a cost, shape (d,).

        Returns:
            The tiers with these cells.
        """
        lost = costly & (self.of_cell < 0)
        last = max(int(self.of_cell.max()), 0)
        return Tiers(np.where(lost, last, self.of_cell), self.p, self.q)


@dataclass(frozen=True)
class Tier:
    """A tier of a plan.

    Attributes:
        cells: The number of its cells that symmetry distinguishes.
        level: Their largest profile, divided by the cell budgets if there are any.
        lower_bound: Certified: if a mechanism meets the targets (with no larger total squared
            error, if the plan gives that a weight) and costs no cell of an earlier tier more than
            this plan does, then its largest profile over the cells of this and later tiers is at
            least this bound. None for cells that were not refined.
    """

    cells: int
    level: float
    lower_bound: float | None


def make_one_tier(profile: FloatArray, queries: int, cells: int | None = None) -> Tiers:
    """Make one tier of all cells with a cost.

    Args:
        profile: Shape (d,).
        queries: The size of q.
        cells: The size of p; None if it is d.

    Returns:
        The tier.
    """
    of_cell = (profile > 0).astype(np.int64) - 1
    return Tiers(of_cell, np.zeros((0, cells or len(profile))), np.zeros((0, queries)))


@dataclass(frozen=True, eq=False)
class TierClaims:
    """A plan's claims about its tiers.

    Attributes:
        profile: The plan's profile divided by its budgets, rounded up, shape (d,).
        excess: 1, or more with a weight on the total squared error.
        lower_bound: The plan's lower bound.
        tiers: The tiers, with a row of p and q for the first tier too.
    """

    profile: FloatArray
    excess: float
    lower_bound: float
    tiers: Tiers


def certify_tiers(claims: TierClaims, lower_bound_at: LowerBoundAt) -> Iterator[Tier]:
    """Certify the level of each tier, the costliest first.

    Args:
        claims: The plan's claims.
        lower_bound_at: A function that computes the certified bound at weights p (d,) and q (m,).

    Yields:
        The tiers with their lower bounds.
    """
    profile, tiers = claims.profile, claims.tiers
    of_cell = tiers.of_cell
    for tier in range(int(of_cell.max()) + 1):
        cells = of_cell == tier
        level = float(profile[cells].max(initial=0.0))
        bound = None
        if tier < len(tiers.p):
            p, q = tiers.p[tier], tiers.q[tier]
            least = lower_bound_at(p, q)
            earlier = (of_cell >= 0) & (of_cell < tier)
            error = 2 * gamma(len(p))
            spent = float((p * profile)[earlier].sum()) * (1 + error)
            left = least**2 / claims.excess * float(p.sum()) * (1 - error) - spent
            others = float(p[~earlier].sum())
            bound = max(0.0, left / others * (1 - error)) if others > 0 else 0.0
        yield Tier(int(cells.sum()), level, bound)
