"""The designs of trees for one record: the best of the family, and a bound on all covariances."""

from __future__ import annotations

from fitplug.families.base.design import TREE_BOUND_MARGIN, Design
from fitplug.families.base.family import Duals
from fitplug.families.base.objective import Objective
from fitplug.families.tree.design.bound_ascent import ascend_tree_bound
from fitplug.families.tree.design.descent import descend_trees
from fitplug.families.tree.design.pair_descent import descend_tree_pairs
from fitplug.families.tree.design.rounding import round_trees
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.solve import Options


def design_trees(
    structure: TreeStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Find the best of the family of trees.

    The arguments are those of `fitplug.families.designs.find_design`.

    Raises:
        DesignError: If an integer strategy cannot be made or bounded.
    """
    best = descend_trees(structure, objective, options)
    strategy = round_trees(structure, best.sweeps, objective=objective, upper=best.upper, loss=loss)
    weights = ascend_tree_bound(structure, objective, best.proving, best.upper, options.tolerance)
    return Design.in_one_tier(
        strategy,
        Duals(*weights),
        bound_margin=TREE_BOUND_MARGIN,
        iterations=best.iterations,
        ended=best.ended,
    )


def design_tree_pairs(
    structure: TreePairStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Find the best of the family of trees for the mean cost of pairs of cells.

    The arguments are those of `fitplug.families.designs.find_design`.

    Raises:
        DesignError: If an integer strategy cannot be made or bounded.
    """
    best = descend_tree_pairs(structure, options)
    return Design.in_one_tier(
        # The least largest cost is not known, so bits are added until they gain nothing.
        round_trees(structure, best.sweeps, objective=objective, upper=0.0, loss=loss),
        Duals(best.p, best.q),
        bound_margin=TREE_BOUND_MARGIN,
        iterations=best.iterations,
        ended=best.ended,
    )
