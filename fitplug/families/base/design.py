"""Designs: what the `design` package of a family finds for a structure and an objective."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fitplug.certify import Ended, Tiers, make_one_tier
from fitplug.families.base.certifier import Duals
from fitplug.families.base.objective import Objective
from fitplug.families.base.strategy import IntegerStrategy


@dataclass(frozen=True, eq=False)
class Design:
    """A strategy with the dual weights that show how good it is.

    Attributes:
        strategy: The integer strategy. Its structure may name differences between neighbours that
            the design found.
        duals: The weights of the first tier, for the strategy's structure. p and q have the sizes
            that `count_duals` gives: p usually |V|, a number for each difference between
            neighbours, and q (rows,).
        bound_margin: How far below the proven lower bound a plan's claim is, relatively. Another
            machine may round the proven one otherwise.
        tiers: The tier of each cell, shape (profile_size,), and the weights of the t - 1 further
            tiers, shapes (t - 1, len(p)) and (t - 1, len(q)).
        iterations: The iterations of all solves together.
        ended: Why they ended.
    """

    strategy: IntegerStrategy
    duals: Duals
    bound_margin: float
    tiers: Tiers
    iterations: int
    ended: Ended

    @classmethod
    def in_one_tier(
        cls,
        strategy: IntegerStrategy,
        duals: Duals,
        *,
        bound_margin: float,
        iterations: int,
        ended: Ended,
    ) -> Design:
        """Make a design that is not refined: all cells that cost anything are in one tier."""
        tiers = make_one_tier(strategy.column_squares, len(duals.q), len(duals.p))
        return cls(strategy, duals, bound_margin, tiers, iterations, ended)


def evaluate_at_targets(strategy: IntegerStrategy, objective: Objective) -> float:
    """Evaluate the objective with the noise with which a strategy meets its targets."""
    noise_std = math.sqrt(1 / float((strategy.unit_variances / strategy.structure.targets).max()))
    return objective.evaluate(
        strategy.sensitivity / noise_std,
        strategy.upper_profile(noise_std),
        strategy.upper_total_variance(noise_std),
    )
