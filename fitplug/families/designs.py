"""Drafts: from a structure and an objective to a strategy and dual weights.

Each structure has one function that does this, registered here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from fitplug.certify import Ended, Tiers, make_one_tier
from fitplug.families.base.block_set import BlockSet
from fitplug.families.base.certificates import count_duals
from fitplug.families.base.certifier import NO_FRAME, Duals
from fitplug.families.base.claims import (
    CLAIM_MARGIN,
    PRODUCT_BOUND_MARGIN,
    TREE_BOUND_MARGIN,
    add_claim_margins,
)
from fitplug.families.base.objective import Objective
from fitplug.families.base.strategies import build_strategy
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.base.structure import Structure
from fitplug.families.blocks.design.moves import find_move_optimum
from fitplug.families.blocks.design.optimum import Optimum, find_matrix_optimum, find_scalar_optimum
from fitplug.families.blocks.design.pairs import find_pair_optimum, find_symmetric_pair_optimum
from fitplug.families.blocks.design.persons import find_person_optimum
from fitplug.families.blocks.design.rounding import (
    RealBlocks,
    choose_bases,
    round_blocks,
    share_basis,
)
from fitplug.families.blocks.shape.matrices import MatrixStructure
from fitplug.families.blocks.shape.moves import MoveStructure
from fitplug.families.blocks.shape.pairs import PairStructure
from fitplug.families.blocks.shape.persons import PersonStructure
from fitplug.families.blocks.shape.scalars import ScalarStructure
from fitplug.families.blocks.shape.symmetric_pairs import SymmetricPairStructure
from fitplug.families.chain.design.optimum import find_chain_optimum
from fitplug.families.chain.design.rounding import CHAIN_MARGIN
from fitplug.families.chain.shape import ChainStructure
from fitplug.families.product.certificate.products import pack_duals
from fitplug.families.product.design.bound_ascent import ascend_product_bound
from fitplug.families.product.design.descent import descend_product_family
from fitplug.families.product.design.rounding import round_member
from fitplug.families.product.shape.pairs import ProductPairStructure
from fitplug.families.product.shape.products import ProductStructure
from fitplug.families.tree.design.bound_ascent import ascend_tree_bound
from fitplug.families.tree.design.descent import descend_trees
from fitplug.families.tree.design.pair_descent import descend_tree_pairs
from fitplug.families.tree.design.persons import find_person_tree_optimum
from fitplug.families.tree.design.rounding import round_trees
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.families.tree.shape.persons import PersonTreeStructure
from fitplug.solve import Options, explain_end
from fitplug.workload import ONE_RECORD


@dataclass(frozen=True, eq=False)
class Draft:
    """A strategy with the dual weights that say how good it is.

    Attributes:
        strategy: The strategy.
        duals: The weights of its first tier.
        bound_margin: What a plan claims its lower bound below the proven one by, relatively, since
            another machine may round that otherwise.
        tiers: The further tiers.
        iterations: The number of iterations made.
        ended: Why they ended.
    """

    strategy: IntegerStrategy
    duals: Duals
    bound_margin: float
    tiers: Tiers
    iterations: int
    ended: Ended


def draft_plan(structure: Structure, objective: Objective, options: Options, loss: float) -> Draft:
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


def _draft_matrices(
    structure: MatrixStructure, objective: Objective, options: Options, loss: float
) -> Draft:
    """Draft the optimum of blocks that are matrices."""
    found = find_matrix_optimum(structure, objective, options)
    real_blocks = choose_bases(structure, found.reals, found.independent, options.periods)
    return _round_optimum(structure, objective, found, real_blocks, loss)


def _draft_persons(
    structure: PersonStructure, objective: Objective, options: Options, loss: float
) -> Draft:
    """Draft the optimum for a person with several records, for the plain objective."""
    assert objective.plain
    found = find_person_optimum(structure, options)
    structure = replace(structure, named=found.differences)
    real_blocks = choose_bases(structure, found.reals, found.independent, options.periods)
    strategy = round_blocks(
        structure, real_blocks, objective=objective, upper=found.upper, loss=loss
    )
    return Draft(
        strategy=strategy,
        duals=Duals(found.p, found.q, NO_FRAME),
        bound_margin=CLAIM_MARGIN,
        tiers=make_one_tier(strategy.column_squares, structure.rows, len(found.p)),
        iterations=found.iterations,
        ended=found.ended,
    )


def _draft_scalars(
    structure: ScalarStructure, objective: Objective, options: Options, loss: float
) -> Draft:
    """Draft the optimum of blocks that are numbers."""
    found = find_scalar_optimum(structure, objective, options)
    (real,) = found.reals
    return _round_optimum(structure, objective, found, [share_basis(structure, real)], loss)


def _round_optimum(
    structure: Structure,
    objective: Objective,
    found: Optimum,
    real_blocks: Sequence[RealBlocks],
    loss: float,
) -> Draft:
    """Round an optimum to integers."""
    strategy = round_blocks(
        structure, real_blocks, objective=objective, upper=found.upper, loss=loss
    )
    return Draft(
        strategy=strategy,
        duals=Duals(found.p, found.q, NO_FRAME),
        bound_margin=CLAIM_MARGIN,
        tiers=found.tiers.include_costly(strategy.column_squares > 0),
        iterations=found.iterations,
        ended=found.ended,
    )


def _draft_product(
    structure: ProductStructure, objective: Objective, options: Options, loss: float
) -> Draft:
    """Draft the best of the product family, for the plain objective."""
    assert objective.plain
    found = descend_product_family(
        structure,
        tolerance=options.tolerance,
        max_iterations=options.max_iterations,
        progress=options.progress,
    )
    strategy = round_member(structure, found, loss=loss)
    duals, _bound = ascend_product_bound(found.batched, found.weights)
    return Draft(
        strategy=strategy,
        duals=pack_duals(duals),
        bound_margin=PRODUCT_BOUND_MARGIN,
        tiers=make_one_tier(np.ones(1), *reversed(count_duals(structure))),
        iterations=found.iterations,
        ended="stopped" if found.stopped else "apart",
    )


def _draft_tree(
    structure: TreeStructure, objective: Objective, options: Options, loss: float
) -> Draft:
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
    return Draft(
        strategy=strategy,
        duals=Duals(*proving, NO_FRAME),
        bound_margin=TREE_BOUND_MARGIN,
        tiers=make_one_tier(strategy.column_squares, structure.rows),
        iterations=found.iterations,
        ended="stopped" if found.stopped else "apart",
    )


def _draft_tree_pairs(
    structure: TreePairStructure, objective: Objective, options: Options, loss: float
) -> Draft:
    """Draft the best of the family of trees for the mean cost of pairs of cells."""
    assert objective.plain
    found = descend_tree_pairs(
        structure,
        tolerance=options.tolerance,
        max_iterations=options.max_iterations,
        progress=options.progress,
    )
    strategy = round_trees(structure, found.sweeps, objective=objective, upper=0.0, loss=loss)
    return Draft(
        strategy=strategy,
        duals=Duals(found.p, found.q, NO_FRAME),
        bound_margin=TREE_BOUND_MARGIN,
        tiers=make_one_tier(np.ones(1), *reversed(count_duals(structure))),
        iterations=found.iterations,
        ended="stopped" if found.stopped else "apart",
    )


def _draft_person_tree(
    structure: PersonTreeStructure, objective: Objective, options: Options, loss: float
) -> Draft:
    """Draft the best known strategy of a tree for persons, for the plain objective."""
    assert objective.plain
    found = find_person_tree_optimum(structure, objective, options, loss)
    return Draft(
        strategy=found.strategy,
        duals=Duals(found.p, found.q, NO_FRAME),
        bound_margin=TREE_BOUND_MARGIN,
        tiers=make_one_tier(
            found.strategy.column_squares, *reversed(count_duals(found.strategy.structure))
        ),
        iterations=found.iterations,
        ended="stopped" if found.stopped else "apart",
    )


def _draft_chain(
    structure: ChainStructure, objective: Objective, options: Options, loss: float
) -> Draft:
    """Draft the strategy of a chain, for the plain objective."""
    assert objective.plain
    strategy, duals = find_chain_optimum(structure, options)
    return Draft(
        strategy=strategy,
        duals=Duals(duals.p, duals.q, NO_FRAME),
        bound_margin=CHAIN_MARGIN,
        tiers=make_one_tier(np.ones(1), *reversed(count_duals(structure))),
        iterations=duals.steps,
        ended="apart",
    )


def _draft_pairs(
    structure: PairStructure | SymmetricPairStructure,
    objective: Objective,
    options: Options,
    loss: float,
) -> Draft:
    """Draft the optimum where neighbours replace a record, for the plain objective."""
    assert objective.plain
    if isinstance(structure, SymmetricPairStructure):
        found = find_symmetric_pair_optimum(structure, options)
    else:
        found = find_pair_optimum(structure, options)
    solution = found.solution
    strategy = round_blocks(
        structure, found.real_blocks, objective=objective, upper=solution.upper, loss=loss
    )
    return Draft(
        strategy=strategy,
        duals=Duals(solution.p, solution.q, NO_FRAME),
        bound_margin=PRODUCT_BOUND_MARGIN,
        tiers=make_one_tier(strategy.column_squares, structure.rows, structure.differences),
        iterations=solution.iterations,
        ended=explain_end([solution], solution.lower, options),
    )


def _draft_moves(
    structure: MoveStructure, objective: Objective, options: Options, loss: float
) -> Draft:
    """Draft the optimum where a record moves along many attributes, for the plain objective."""
    assert objective.plain
    found = find_move_optimum(structure, options)
    structure = replace(structure, named=found.moves)
    strategy = round_blocks(
        structure, [found.real_blocks], objective=objective, upper=found.upper, loss=loss
    )
    return Draft(
        strategy=strategy,
        duals=Duals(found.p, found.q, NO_FRAME),
        bound_margin=PRODUCT_BOUND_MARGIN,
        tiers=make_one_tier(strategy.column_squares, structure.rows, structure.differences),
        iterations=found.iterations,
        ended=found.ended,
    )


def _draft_product_pairs(
    structure: ProductPairStructure, objective: Objective, options: Options, loss: float
) -> Draft:
    """Draft the best of the product family for one record added or removed.

    Blocks that public totals answer are left out of it.
    """
    once = ProductStructure(
        structure.workload,
        ONE_RECORD,
        structure.symmetric,
        structure.told_apart,
        structure.subsets,
        graded=False,
    )
    draft = _draft_product(once, objective, options, loss)
    (found,) = draft.strategy.block_sets
    kept = np.isin(found.blocks, structure.noisy_blocks)
    noisy = BlockSet(found.blocks[kept], found.basis, found.M[kept])
    strategy = build_strategy(structure, (noisy,), draft.strategy.attribute_matrices)
    return replace(draft, strategy=add_claim_margins(strategy))


Drafter: TypeAlias = Callable[[Any, Objective, Options, float], Draft]

_DRAFTERS: Mapping[type[Structure], Drafter] = {
    MatrixStructure: _draft_matrices,
    PersonStructure: _draft_persons,
    ScalarStructure: _draft_scalars,
    ProductStructure: _draft_product,
    TreeStructure: _draft_tree,
    PersonTreeStructure: _draft_person_tree,
    ChainStructure: _draft_chain,
    PairStructure: _draft_pairs,
    SymmetricPairStructure: _draft_pairs,
    MoveStructure: _draft_moves,
    ProductPairStructure: _draft_product_pairs,
    TreePairStructure: _draft_tree_pairs,
}
"""How each structure is drafted. A new structure is registered here."""
