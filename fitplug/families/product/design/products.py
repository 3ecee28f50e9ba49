"""The designs of the product family: its best known member, and a bound on all covariances."""

from __future__ import annotations

from fitplug.families.base.family import PRODUCT_BOUND_MARGIN, Design
from fitplug.families.base.objective import Objective
from fitplug.families.product.certificate.pairs import pack_pair_duals
from fitplug.families.product.certificate.products import pack_duals
from fitplug.families.product.design.bound_ascent import ascend_product_bound
from fitplug.families.product.design.cell_weights import CellWeights
from fitplug.families.product.design.descent import DifferenceWeights, descend_product_family
from fitplug.families.product.design.members import FamilyMember, optimise_attributes
from fitplug.families.product.design.pair_weights import PairShares
from fitplug.families.product.design.rounding import round_member
from fitplug.families.product.shape.pairs import ProductPairStructure
from fitplug.families.product.shape.products import ProductStructure
from fitplug.solve import GapProgress, Options

_MOST_ROWS = 20_000
"""The most rows of a group that have weights of their own in the descent for pairs of cells."""


def design_products(
    structure: ProductStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Find the best known member of the product family, for the plain objective.

    The arguments are those of `fitplug.families.designs.find_design`.

    Raises:
        WorkloadError: If too many queries have targets of their own.
        DesignError: If an integer strategy cannot be made.
    """
    member = find_member(
        structure,
        tolerance=options.tolerance,
        max_iterations=options.max_iterations,
        progress=options.progress,
    )
    duals, _bound = ascend_product_bound(member.batched, member.weights)
    return Design.in_one_tier(
        round_member(structure, member, loss=loss),
        pack_pair_duals(duals) if duals.pairs is not None else pack_duals(duals),
        bound_margin=PRODUCT_BOUND_MARGIN,
        iterations=member.iterations,
        ended="stopped" if member.stopped else "apart",
    )


def find_member(
    structure: ProductStructure,
    *,
    tolerance: float = 1e-4,
    max_iterations: int = 600,
    progress: GapProgress | None = None,
) -> FamilyMember:
    """Find the best known member of the product family, with dual weights.

    The keywords are those of `descend_product_family`.

    Raises:
        WorkloadError: If too many queries have targets of their own.
        DesignError: As the dual solver does.
    """
    batched = spread = structure.batched
    differences: DifferenceWeights
    if isinstance(structure, ProductPairStructure):
        spread = batched.spread_targets(_MOST_ROWS)
        covariances, weights = optimise_attributes(spread)
        differences = PairShares.spread(structure)
    else:
        covariances, weights = optimise_attributes(batched)
        differences = CellWeights(batched, weights.cells)
    return descend_product_family(
        batched,
        spread,
        (covariances, weights, differences),
        tolerance=tolerance,
        max_iterations=max_iterations,
        progress=progress,
    )
