"""The designs of the product family: its best known member, and a bound on all covariances."""

from __future__ import annotations

from fitplug.families.base.design import PRODUCT_BOUND_MARGIN, Design
from fitplug.families.base.objective import Objective
from fitplug.families.product.certificate.pairs import pack_pair_duals
from fitplug.families.product.certificate.products import pack_duals
from fitplug.families.product.design.bound_ascent import ascend_product_bound
from fitplug.families.product.design.descent import descend_product_family
from fitplug.families.product.design.pair_descent import descend_pairs
from fitplug.families.product.design.rounding import round_member
from fitplug.families.product.shape.pairs import ProductPairStructure
from fitplug.families.product.shape.products import ProductStructure
from fitplug.solve import Options


def design_products(
    structure: ProductStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Find the best known member of the product family, for the plain objective.

    The arguments are those of `fitplug.families.designs.find_design`.

    Raises:
        WorkloadError: If too many queries have targets of their own.
        DesignError: If an integer strategy cannot be made.
    """
    member = descend_product_family(
        structure,
        tolerance=options.tolerance,
        max_iterations=options.max_iterations,
        progress=options.progress,
    )
    duals, _bound = ascend_product_bound(member.batched, member.weights)
    return Design.in_one_tier(
        round_member(structure, member, loss=loss),
        pack_duals(duals),
        bound_margin=PRODUCT_BOUND_MARGIN,
        iterations=member.iterations,
        ended="stopped" if member.stopped else "apart",
    )


def design_product_pairs(
    structure: ProductPairStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Find the best known member of the product family, for the costliest pair of cells.

    The arguments are those of
    `fitplug.families.designs.find_design`.

    Raises:
        WorkloadError: If too many queries have targets of their own.
        DesignError: If an integer strategy cannot be made.
    """
    member, profiles, weights, pairs = descend_pairs(
        structure,
        tolerance=options.tolerance,
        max_iterations=options.max_iterations,
        progress=options.progress,
    )
    duals, _bound = ascend_product_bound(member.batched, weights, pairs)
    return Design.in_one_tier(
        round_member(structure, member, loss=loss, pairs=profiles),
        pack_pair_duals(duals),
        bound_margin=PRODUCT_BOUND_MARGIN,
        iterations=member.iterations,
        ended="stopped" if member.stopped else "apart",
    )
