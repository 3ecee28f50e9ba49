"""Families: for each structure, what its strategies are and how its lower bound is proven.

`fitplug.families` registers them all in one table when it is imported. How the optimum of each is
found stands apart, in `fitplug.families.designs`, since what proves knows no solver.

A certifier trusts no solver. For ANY non-negative p on the differences V between neighbours and q
(m,) on the queries, by weak duality,

    Delta* >= || diag(q / c)^1/2 W V diag(p)^1/2 ||_*  / sqrt(sum p * sum q)

with the nuclear norm; no mechanism that answers W with Gaussian noise of variance at most c, and
no post-processing of one, costs less. The rounding of the evaluation is subtracted
(docs/theory/dual.md). Each structure evaluates the norm in its own way.

The `design` package of a family finds a `Design` for a structure and an objective. A plan claims a
little less than was proven when it was designed, since another machine that
verifies the plan may round the proven bounds a little differently.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from fitplug.certify import (
    Ended,
    LowerBoundAt,
    Tier,
    TierClaims,
    Tiers,
    certify_tiers,
    make_one_tier,
)
from fitplug.errors import DesignError, PlanError
from fitplug.families.base.attribute_matrices import AttributeMatrix
from fitplug.families.base.mechanism import FEWEST_RECORDS, SATURATION
from fitplug.families.base.objective import Objective
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.base.structure import Structure
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray, gamma

S = TypeVar("S", bound=Structure)


class Frame(NamedTuple):
    """How the norm of a product is pinched; see `product.certificate.product_bound`.

    Attributes:
        columns: The most columns of an attribute's frame.
        rests: The most rests of an attribute, of each kind.
        tilt: The weight of the first column against the others.
    """

    columns: int
    rests: int
    tilt: float


NO_FRAME = Frame(0, 0, 0.0)
"""Where nothing is pinched: the norm is computed from the blocks."""


class Duals(NamedTuple):
    """The dual weights that prove a lower bound.

    Attributes:
        p: The weights of the differences between neighbours, shape (|V|,). In the product family,
            a product: the weights of each attribute's cells, one attribute after another.
        q: The weights of the structure's rows, shape (rows,). In the product family, a product:
            the weights of the groups, then of the rows of each distinct factor.
        frame: How the norm is pinched in the product family; `NO_FRAME` for other structures.
    """

    p: FloatArray
    q: FloatArray
    frame: Frame = NO_FRAME


class Certifier(ABC, Generic[S]):
    """The certificate of one structure. It trusts neither a solver nor the weights it is given.

    Attributes:
        takes_objectives: Whether it bounds objectives with cell budgets or a total squared error,
            and not the plain privacy cost alone.
        has_frame: Whether its dual weights have a frame.
        is_refined: Whether cells may be in several tiers, each with a level of its own.
    """

    takes_objectives: ClassVar[bool] = False
    has_frame: ClassVar[bool] = False
    is_refined: ClassVar[bool] = True

    @abstractmethod
    def count_duals(self, structure: S) -> tuple[int, int]:
        """Count the numbers in p and in q.

        p has a number for each difference between neighbours, and q one for each of the structure's
        rows. In the product family both are products; see
        `fitplug.families.product.certificate.products`.
        """

    @abstractmethod
    def lower_cost(self, structure: S, objective: Objective, scale: float, duals: Duals) -> float:
        """Bound the objective at scale * targets from below, rounding included.

        Args:
            structure: The structure.
            objective: The objective, in units of scale * targets.
            scale: The factor on all targets.
            duals: Any dual weights of the sizes that `count_duals` gives.

        Returns:
            The lower bound.

        Raises:
            ValueError: If the dual weights are not of the structure's shapes, or are negative, not
                finite or all zero.
        """

    def share_weight(self, structure: S, duals: Duals) -> FloatArray:
        """Compute the share of each group in the sum of q, shape (groups,): the price."""
        sums = np.add.reduceat(duals.q, structure.row_starts[:-1])
        return np.asarray(sums / sums.sum())

    def check_form(self, structure: S, objective: Objective, frame: Frame) -> None:
        """Check that plans of a structure may have an objective and a frame.

        Raises:
            PlanError: If plans of this structure cannot have this objective or this frame.
        """
        if not (objective.plain or self.takes_objectives):
            raise PlanError(f"plans of this structure ({structure}) have the plain objective only")
        if (frame != NO_FRAME) != self.has_frame:
            raise PlanError("the frame of the dual weights is not one of the structure's")

    def certify_tiers(self, claims: TierClaims, lower_bound_at: LowerBoundAt) -> Iterator[Tier]:
        """Certify the level of each tier; see `fitplug.certify.tiers.certify_tiers`."""
        if self.is_refined:
            yield from certify_tiers(claims, lower_bound_at)
            return
        cells = int((claims.tiers.of_cell >= 0).sum())
        bound = claims.lower_bound**2 * (1 - 4 * UNIT_ROUNDOFF)
        yield Tier(cells, float(claims.profile.max()), bound)


class Family(NamedTuple):
    """What belongs to one structure.

    Attributes:
        strategy: The class of its strategies.
        certifier: How a lower bound on its cost is proven.
    """

    strategy: type[IntegerStrategy[Structure]]
    certifier: Certifier[Any]


FAMILIES: dict[type[Structure], Family] = {}
"""The families by structure, filled by `fitplug.families.registry`."""


def find_family(structure: Structure) -> Family:
    """Find the family of a structure."""
    return FAMILIES[type(structure)]


def build_strategy(
    structure: Structure,
    attribute_matrices: tuple[AttributeMatrix, ...],
    blocks: tuple[object, ...],
) -> IntegerStrategy[Structure]:
    """Build the strategy of some integers, with its proven sensitivity and variances.

    Args:
        structure: The structure.
        attribute_matrices: A_a of each of the structure's `block_attributes`.
        blocks: The block sets or, if blocks are trees, the tree blocks.

    Raises:
        DesignError: If a basis does not span its block, or variances cannot be bounded.
    """
    kind: Callable[..., IntegerStrategy[Structure]] = find_family(structure).strategy
    empty = np.zeros(0)
    return kind(structure, attribute_matrices, 0, empty, empty, 0, blocks).prove()


def certify_bound(structure: Structure, objective: Objective, scale: float, duals: Duals) -> float:
    """Certify a lower bound on the objective at scale * targets.

    Args:
        structure: The structure.
        objective: The objective, in units of scale * targets.
        scale: The factor on all targets.
        duals: Any dual weights of the sizes that `Certifier.count_duals` gives.

    Returns:
        The bound, rounding included.

    Raises:
        ValueError: If p or q is of another size, negative, not finite or sums to zero.
    """
    bound = find_family(structure).certifier.lower_cost(structure, objective, scale, duals)
    # Differences that are k times as large have k times the nuclear norm.
    return bound if structure.changes == 1 else bound * structure.changes * (1 - UNIT_ROUNDOFF)


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
            f"with {FEWEST_RECORDS:,} rows, answers would exceed 64-bit integers. Scale the "
            "queries to coefficients of similar size, or use tables of fewer cells or measures of "
            "larger units."
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
