"""Families: for each structure, its strategies and how its lower bound is proven.

`fitplug.families` registers them all in one table when it is imported. The functions that find
optima are in `fitplug.families.designs`, because proofs may not import a solver.

A certifier trusts no solver. For ANY non-negative p on the differences V between neighbours and q
(m,) on the queries, by weak duality,

    Delta* >= || diag(q / c)^1/2 W V diag(p)^1/2 ||_*  / sqrt(sum p * sum q)

with the nuclear norm; no mechanism that answers W with Gaussian noise of variance at most c, and
no post-processing of one, costs less. The rounding of the evaluation is subtracted
(docs/theory/dual.md). Each structure evaluates the norm in its own way.

The `design` package of a family finds a `Design` for a structure and an objective. A plan claims
slightly less than its design proved, because another machine that verifies it may round the proven
bounds differently.
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
from fitplug.errors import BAD_PROOF, DesignError, PlanError
from fitplug.families.base.attribute_matrices import AttributeMatrix
from fitplug.families.base.mechanism import FEWEST_RECORDS, SATURATION
from fitplug.families.base.objective import Objective
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.base.structure import Structure
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray, gamma

S = TypeVar("S", bound=Structure)


class Frame(NamedTuple):
    """How the norm in a product bound is pinched; see `product.certificate.product_bound`.

    Attributes:
        columns: The maximum number of columns of an attribute's frame.
        rests: The maximum number of rests of an attribute, of each kind.
        tilt: The weight of the first column relative to the others.
    """

    columns: int
    rests: int
    tilt: float


NO_FRAME = Frame(0, 0, 0.0)
"""For structures without pinching: the norm is computed from the blocks."""


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
        takes_objectives: Whether it can bound objectives with cell budgets or a total squared
            error, not only the plain privacy cost.
        has_frame: Whether its dual weights have a frame.
        is_refined: Whether cells may be in several tiers, each with its own level.
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
        """Compute each group's share of the sum of q, shape (groups,): its price."""
        sums = np.add.reduceat(duals.q, structure.row_starts[:-1])
        return np.asarray(sums / sums.sum())

    def check_form(self, structure: S, objective: Objective, frame: Frame) -> None:
        """Check that a structure's plans may have an objective and a frame.

        Raises:
            PlanError: If they cannot.
        """
        if not (objective.plain or self.takes_objectives):
            raise PlanError(
                "a plan for these queries cannot have cell_budgets or total_error_weight"
            )
        if (frame != NO_FRAME) != self.has_frame:
            raise PlanError(BAD_PROOF)

    def certify_tiers(self, claims: TierClaims, lower_bound_at: LowerBoundAt) -> Iterator[Tier]:
        """Certify the level of each tier; see `fitplug.certify.tiers.certify_tiers`."""
        if self.is_refined:
            yield from certify_tiers(claims, lower_bound_at)
            return
        cells = int((claims.tiers.of_cell >= 0).sum())
        bound = claims.lower_bound**2 * (1 - 4 * UNIT_ROUNDOFF)
        yield Tier(cells, float(claims.profile.max()), bound)


class Family(NamedTuple):
    """The strategy class and the certifier of one structure.

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
    """Build a strategy from its integers, with its proven sensitivity and variances.

    Args:
        structure: The structure.
        attribute_matrices: A_a of each of the structure's `block_attributes`.
        blocks: The block sets, or the tree blocks if blocks are trees.

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
    # Differences k times as large have a nuclear norm k times as large.
    return bound if structure.changes == 1 else bound * structure.changes * (1 - UNIT_ROUNDOFF)


CLAIM_MARGIN = 1e-12
"""The relative margin of claimed variances above, and claimed bounds below, the proven ones."""

PRODUCT_BOUND_MARGIN = 1e-9
"""The relative margin of a claimed product bound below the proven one. It is larger because each
evaluation recomputes the frames, which differ between machines."""

TREE_BOUND_MARGIN = 1e-10
"""The relative margin of a claimed tree bound below the proven one. It is larger because machines
may round the exponential function differently."""

LEAST_RECORDS = 2 * FEWEST_RECORDS
"""The number of records for which rounding must leave room; claim margins may use half."""


def choose_bits(bits: tuple[int, ...], shares: int) -> tuple[int, ...]:
    """Choose the precisions at which a strategy may be rounded.

    Args:
        bits: Candidate binary logarithms of the largest column norm, ascending.
        shares: The number of shares of a record, see `Structure.shares`.

    Returns:
        Those with room for `LEAST_RECORDS` records of so many shares, as no entry of a column
        exceeds its norm, and the largest precision with this room as the last.
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
            f"with {FEWEST_RECORDS:,} rows, answers would exceed 64-bit integers. Give the queries "
            "coefficients of similar size, or the measures larger units."
        )
    return replace(
        strategy,
        column_squares=strategy.column_squares * (1 + 3 * gamma(strategy.column_height + 4)),
        unit_variances=strategy.unit_variances * (1 + margin),
    )


@dataclass(frozen=True, eq=False)
class Design:
    """A strategy with the dual weights that prove how good it is.

    Attributes:
        strategy: The integer strategy. Its structure may name pairs of cells that the design chose.
        duals: The weights of the first tier, for the strategy's structure. p and q have the sizes
            that `count_duals` gives: usually |V|, the number of differences between neighbours, for
            p, and the number of rows for q.
        bound_margin: The relative margin of a plan's claim below the proven lower bound, which
            another machine may round differently.
        tiers: The tier of each cell, shape (profile_size,), and the weights of the t - 1 further
            tiers, shapes (t - 1, len(p)) and (t - 1, len(q)).
        iterations: The total number of iterations of all solves.
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
    """Evaluate the objective at the noise with which a strategy just meets its targets."""
    noise_std = math.sqrt(1 / float((strategy.unit_variances / strategy.structure.targets).max()))
    return objective.evaluate(
        strategy.sensitivity / noise_std,
        strategy.upper_profile(noise_std),
        strategy.upper_total_variance(noise_std),
    )
