"""The designs of the product family: its best known member, and a bound on all covariances."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fitplug.families.base.design import PRODUCT_BOUND_MARGIN, Design, add_claim_margins
from fitplug.families.base.objective import Objective
from fitplug.families.base.strategies import build_strategy
from fitplug.families.base.strategy import BlockSet
from fitplug.families.product.certificate.products import pack_duals
from fitplug.families.product.design.bound_ascent import ascend_product_bound
from fitplug.families.product.design.descent import descend_product_family
from fitplug.families.product.design.rounding import round_member
from fitplug.families.product.shape.pairs import ProductPairStructure
from fitplug.families.product.shape.products import ProductStructure
from fitplug.solve import Options
from fitplug.workload import ONE_RECORD


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
    """Find the best known member of the product family for one record added or removed.

    Blocks that public totals answer are left out of it. The arguments are those of
    `fitplug.families.designs.find_design`.

    Raises:
        WorkloadError: If too many queries have targets of their own.
        DesignError: If an integer strategy cannot be made.
    """
    once = ProductStructure(
        structure.workload,
        ONE_RECORD,
        structure.symmetric,
        structure.told_apart,
        structure.subsets,
        graded=False,
    )
    design = design_products(once, objective, options, loss)
    (block_set,) = design.strategy.block_sets
    is_noisy = np.isin(block_set.blocks, structure.noisy_blocks)
    noisy = BlockSet(block_set.blocks[is_noisy], block_set.basis, block_set.M[is_noisy])
    strategy = build_strategy(structure, (noisy,), design.strategy.attribute_matrices)
    return replace(design, strategy=add_claim_margins(strategy))
