"""Designs: what the `design` package of a family finds for a structure and an objective.

A plan claims a little less than was proven when it was designed, since another machine that
verifies the plan may round the proven bounds a little differently.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from fitplug.certify import Ended, Tiers, make_one_tier
from fitplug.errors import DesignError
from fitplug.families.base.family import Duals
from fitplug.families.base.integers import FEWEST_RECORDS, SATURATION
from fitplug.families.base.objective import Objective
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.base.structure import Structure
from fitplug.numeric import gamma

CLAIM_MARGIN = 1e-12
"""The relative margin of claimed variances above the proven ones, and of bounds below them."""

PRODUCT_BOUND_MARGIN = 1e-9
"""The relative margin of a claimed product bound below the proven one. It is larger because the
frames are computed anew at each evaluation, and differ with the machine."""

TREE_BOUND_MARGIN = 1e-10
"""The relative margin of a claimed bound of a tree below the proven one. It is larger because the
exponential functions in it may be rounded otherwise on another machine."""

LEAST_RECORDS = 2 * FEWEST_RECORDS
"""The number of records for which rounding must leave room; claims may take half of it."""


def choose_bits(bits: tuple[int, ...], shares: int) -> tuple[int, ...]:
    """Choose the precisions at which to round a strategy.

    Args:
        bits: Binary logarithms of the largest column norm, ascending.
        shares: The number of shares of a record, see `Structure.shares`.

    Returns:
        Those with which the integers of records of so many shares have room for `LEAST_RECORDS`
        records, as no entry of a column is larger than its norm. The last one is the largest.
    """
    if shares == 1:
        return bits
    most = math.floor(math.log2(SATURATION / LEAST_RECORDS / shares))
    return (*(precision for precision in bits if precision < most), most)


def add_claim_margins(
    strategy: IntegerStrategy[Structure], margin: float = CLAIM_MARGIN
) -> IntegerStrategy[Structure]:
    """Return a strategy whose cost and variances are claimed with a margin.

    Args:
        strategy: The strategy, as proven.
        margin: The relative margin of the variances.

    Raises:
        DesignError: If its 64-bit answers hold too few records.
    """
    if strategy.max_records < FEWEST_RECORDS:
        raise DesignError(
            "the workload's coefficients and the sizes of its tables leave 64-bit integers no room "
            f"for {FEWEST_RECORDS:,} records; scale the queries to similar size, ask tables of "
            "fewer cells, or give measures larger units"
        )
    return replace(
        strategy,
        column_squares=strategy.column_squares * (1 + 3 * gamma(strategy.column_height + 4)),
        unit_variances=strategy.unit_variances * (1 + margin),
    )


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

    strategy: IntegerStrategy[Structure]
    duals: Duals
    bound_margin: float
    tiers: Tiers
    iterations: int
    ended: Ended

    @classmethod
    def in_one_tier(
        cls,
        strategy: IntegerStrategy[Structure],
        duals: Duals,
        *,
        bound_margin: float,
        iterations: int,
        ended: Ended,
    ) -> Design:
        """Make a design that is not refined: all cells that cost anything are in one tier."""
        tiers = make_one_tier(strategy.column_squares, len(duals.q), len(duals.p))
        return cls(strategy, duals, bound_margin, tiers, iterations, ended)


def evaluate_at_targets(strategy: IntegerStrategy[Structure], objective: Objective) -> float:
    """Evaluate the objective with the noise with which a strategy meets its targets."""
    noise_std = math.sqrt(1 / float((strategy.unit_variances / strategy.structure.targets).max()))
    return objective.evaluate(
        strategy.sensitivity / noise_std,
        strategy.upper_profile(noise_std),
        strategy.upper_total_variance(noise_std),
    )
