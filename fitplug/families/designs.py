"""Drafts: from a structure and an objective to a strategy and dual weights.

Each structure has one function that does this, registered here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from fitplug.certify import make_one_tier
from fitplug.families.base.block_set import BlockSet
from fitplug.families.base.certificates import count_duals
from fitplug.families.base.certifier import Duals
from fitplug.families.base.claims import (
    PRODUCT_BOUND_MARGIN,
    TREE_BOUND_MARGIN,
    add_claim_margins,
)
from fitplug.families.base.design import Design
from fitplug.families.base.objective import Objective
from fitplug.families.base.strategies import build_strategy
from fitplug.families.base.structure import Structure
from fitplug.families.blocks.design.moves import design_moves
from fitplug.families.blocks.design.optimum import design_matrices, design_scalars
from fitplug.families.blocks.design.pairs import design_pairs, design_symmetric_pairs
from fitplug.families.blocks.design.persons import design_persons
from fitplug.families.blocks.shape.matrices import MatrixStructure
from fitplug.families.blocks.shape.moves import MoveStructure
from fitplug.families.blocks.shape.pairs import PairStructure
from fitplug.families.blocks.shape.persons import PersonStructure
from fitplug.families.blocks.shape.scalars import ScalarStructure
from fitplug.families.blocks.shape.symmetric_pairs import SymmetricPairStructure
from fitplug.families.chain.design.optimum import find_chain_optimum
from fitplug.families.chain.design.rounding import CHAIN_MARGIN
from fitplug.families.chain.shape import ChainStructure
from fitplug.families.product.certificate.residual import pack_duals
from fitplug.families.product.design.bound_ascent import ascend_product_bound
from fitplug.families.product.design.descent import descend_residual_family
from fitplug.families.product.design.rounding import round_member
from fitplug.families.product.shape.residual import ResidualStructure
from fitplug.families.product.shape.split_pairs import SplitPairStructure
from fitplug.families.tree.design.bound_ascent import ascend_tree_bound
from fitplug.families.tree.design.descent import descend_trees
from fitplug.families.tree.design.pair_descent import descend_tree_pairs
from fitplug.families.tree.design.persons import find_person_tree_optimum
from fitplug.families.tree.design.rounding import round_trees
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.families.tree.shape.persons import PersonTreeStructure
from fitplug.solve import Options
from fitplug.workload import ONE_RECORD


def find_design(
    structure: Structure, objective: Objective, options: Options, loss: float
) -> Design:
    """Find the best strategy of a structure, in integers.

    Args:
        structure: The structure.
        objective: What is made least.
        options: How to solve.
        loss: What rounding to integers may cost, relatively.

    Returns:
        The draft.

    Raises:
        WorkloadError: If the rank of the workload cannot be decided, or too many queries have
            targets of their own.
        DesignError: If an integer strategy cannot be made or bounded.
    """
    return _DRAFTERS[type(structure)](structure, objective, options, loss)


def _draft_residual(
    structure: ResidualStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Draft the best of the residual family, for the plain objective."""
    assert objective.plain
    found = descend_residual_family(
        structure,
        tolerance=options.tolerance,
        max_iterations=options.max_iterations,
        progress=options.progress,
    )
    strategy = round_member(structure, found, loss=loss)
    duals, _bound = ascend_product_bound(found.batched, found.weights)
    return Design(
        strategy=strategy,
        duals=pack_duals(duals),
        bound_margin=PRODUCT_BOUND_MARGIN,
        tiers=make_one_tier(np.ones(1), *reversed(count_duals(structure))),
        iterations=found.iterations,
        ended="stopped" if found.stopped else "apart",
    )


def _draft_tree(
    structure: TreeStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Draft the best of the family of trees."""
    found = descend_trees(
        structure,
        objective,
        tolerance=options.tolerance,
        max_iterations=options.max_iterations,
        progress=options.progress,
    )
    strategy = round_trees(
        structure, found.sweeps, objective=objective, upper=found.upper, loss=loss
    )
    proving = ascend_tree_bound(structure, objective, found.proving, found.upper, options.tolerance)
    return Design(
        strategy=strategy,
        duals=Duals(*proving),
        bound_margin=TREE_BOUND_MARGIN,
        tiers=make_one_tier(strategy.column_squares, structure.rows),
        iterations=found.iterations,
        ended="stopped" if found.stopped else "apart",
    )


def _draft_tree_pairs(
    structure: TreePairStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Draft the best of the family of trees for the mean cost of pairs of cells."""
    assert objective.plain
    found = descend_tree_pairs(
        structure,
        tolerance=options.tolerance,
        max_iterations=options.max_iterations,
        progress=options.progress,
    )
    strategy = round_trees(structure, found.sweeps, objective=objective, upper=0.0, loss=loss)
    return Design(
        strategy=strategy,
        duals=Duals(found.p, found.q),
        bound_margin=TREE_BOUND_MARGIN,
        tiers=make_one_tier(np.ones(1), *reversed(count_duals(structure))),
        iterations=found.iterations,
        ended="stopped" if found.stopped else "apart",
    )


def _draft_person_tree(
    structure: PersonTreeStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Draft the best known strategy of a tree for persons, for the plain objective."""
    assert objective.plain
    found = find_person_tree_optimum(structure, objective, options, loss)
    return Design(
        strategy=found.strategy,
        duals=Duals(found.p, found.q),
        bound_margin=TREE_BOUND_MARGIN,
        tiers=make_one_tier(
            found.strategy.column_squares, *reversed(count_duals(found.strategy.structure))
        ),
        iterations=found.iterations,
        ended="stopped" if found.stopped else "apart",
    )


def _draft_chain(
    structure: ChainStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Draft the strategy of a chain, for the plain objective."""
    assert objective.plain
    strategy, duals = find_chain_optimum(structure, options)
    return Design(
        strategy=strategy,
        duals=Duals(duals.p, duals.q),
        bound_margin=CHAIN_MARGIN,
        tiers=make_one_tier(np.ones(1), *reversed(count_duals(structure))),
        iterations=duals.steps,
        ended="apart",
    )


def _draft_split_pairs(
    structure: SplitPairStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Draft the best of the residual family for one record added or removed.

    Blocks that public totals answer are left out of it.
    """
    once = ResidualStructure(
        structure.workload,
        ONE_RECORD,
        structure.symmetric,
        structure.told_apart,
        structure.subsets,
        graded=False,
    )
    draft = _draft_residual(once, objective, options, loss)
    (found,) = draft.strategy.block_sets
    kept = np.isin(found.blocks, structure.noisy_blocks)
    noisy = BlockSet(found.blocks[kept], found.basis, found.M[kept])
    strategy = build_strategy(structure, (noisy,), draft.strategy.attribute_matrices)
    return replace(draft, strategy=add_claim_margins(strategy))


Drafter: TypeAlias = Callable[[Any, Objective, Options, float], Design]

_DRAFTERS: Mapping[type[Structure], Drafter] = {
    MatrixStructure: design_matrices,
    PersonStructure: design_persons,
    ScalarStructure: design_scalars,
    ResidualStructure: _draft_residual,
    TreeStructure: _draft_tree,
    PersonTreeStructure: _draft_person_tree,
    ChainStructure: _draft_chain,
    PairStructure: design_pairs,
    SymmetricPairStructure: design_symmetric_pairs,
    MoveStructure: design_moves,
    SplitPairStructure: _draft_split_pairs,
    TreePairStructure: _draft_tree_pairs,
}
"""How each structure is drafted. A new structure is registered here."""
