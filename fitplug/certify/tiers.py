"""Tiers: cells of equal profile in the refined optimum, each certified from dual weights alone.

By weak duality sum_i p_i profile_i >= T(p, q)^2 / sum q wherever every target is met. The part of
the sum that earlier tiers may have is known, so the rest of it bounds the largest profile of all
other cells (docs/theory/refinement.md, (R7)).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from fitplug.numeric import BoolArray, FloatArray, IntArray, gamma

LowerBoundAt: TypeAlias = Callable[[FloatArray, FloatArray], float]
"""Gives the certified lower bound at dual weights p and q."""

Ended: TypeAlias = Literal["reached", "exhausted", "stopped", "apart"]
"""Why a design ended: the tolerance was reached, iterations ran out, a caller stopped it, or the
strategy and the bound that its structure has remain apart."""


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
        """Put cells that cost something, and are in no tier, into the last one.

        Their cost in the real optimum was too small for a float; in integers it is not.

        Args:
            costly: Whether each cell costs something, shape (d,).

        Returns:
            The tiers that have these cells.
        """
        lost = costly & (self.of_cell < 0)
        last = max(int(self.of_cell.max()), 0)
        return Tiers(np.where(lost, last, self.of_cell), self.p, self.q)


@dataclass(frozen=True)
class Tier:
    """A tier of a plan.

    Attributes:
        cells: The number of its cells, of those that symmetry tells apart.
        level: Their largest profile (over the cell budget, if there are any).
        lower_bound: Certified: no mechanism that meets the targets (with no larger total squared
            error, if the plan gives that a weight), and costs no cell of an earlier tier more than
            this plan does, has the largest profile of the cells of this and later tiers below. None
            for cells that were not refined.
    """

    cells: int
    level: float
    lower_bound: float | None


def make_one_tier(profile: FloatArray, queries: int, cells: int | None = None) -> Tiers:
    """Make one tier of all cells that cost anything.

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
    """What a plan says of its tiers.

    Attributes:
        profile: The plan's, over its budgets, rounded up, shape (d,).
        excess: 1, or more with a weight on the total squared error.
        lower_bound: The plan's.
        tiers: With a row of p and q for the first tier too.
    """

    profile: FloatArray
    excess: float
    lower_bound: float
    tiers: Tiers


def certify_tiers(claims: TierClaims, lower_bound_at: LowerBoundAt) -> Iterator[Tier]:
    """Certify the level of each tier, the costliest first.

    Args:
        claims: What the plan says.
        lower_bound_at: Gives the certified bound at weights p (d,) and q (m,).

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
