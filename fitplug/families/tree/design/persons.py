"""The best known strategy of a tree for a person with several records.

Two members of the family are tried, and the one that costs less in integers is taken: the best one
for persons with several records (`fitplug.families.tree.design.person_descent`, or
`fitplug.families.tree.design.leaf_descent` where periods are dense cells), and the best one for one
record. The weights of the first prove the lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from fitplug.families.base.contrasts import make_contrasts
from fitplug.families.base.design import (
    TREE_BOUND_MARGIN,
    Design,
    add_claim_margins,
    evaluate_at_targets,
)
from fitplug.families.base.family import Duals
from fitplug.families.base.objective import Objective
from fitplug.families.base.strategies import build_strategy
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.tree.design.descent import descend_trees
from fitplug.families.tree.design.family import Sweep, sum_profiles, sum_variances
from fitplug.families.tree.design.leaf_descent import descend_leaf_persons
from fitplug.families.tree.design.person_descent import descend_person_trees
from fitplug.families.tree.design.rounding import round_trees
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.persons import PersonTreeStructure
from fitplug.solve import Options
from fitplug.workload import ONE_RECORD


def design_person_trees(
    structure: PersonTreeStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Find the best strategy that is known, for the plain objective.

    The arguments are those of `fitplug.families.designs.find_design`.

    Raises:
        DesignError: If an integer strategy cannot be made or bounded.
    """
    once = TreeStructure(
        structure.workload,
        ONE_RECORD,
        structure.symmetric,
        structure.told_apart,
        structure.subsets,
        structure.tree_attribute,
        structure.merges_leaves,
    )
    single = descend_trees(once, objective, options)
    descend = descend_person_trees if structure.sets is None else descend_leaf_persons
    several = descend(structure, options)
    if several.sets is not None:
        structure = replace(structure, named=several.sets)
    strategies = [
        _round_member(structure, once, own.sweeps, objective, loss) for own in (single, several)
    ]
    return Design.in_one_tier(
        min(strategies, key=lambda own: evaluate_at_targets(own, objective)),
        Duals(several.p, several.q),
        bound_margin=TREE_BOUND_MARGIN,
        iterations=single.iterations + several.iterations,
        ended=single.ended if single.stopped else several.ended,
    )


def _round_member(
    structure: PersonTreeStructure,
    once: TreeStructure,
    sweeps: Sequence[Sweep],
    objective: Objective,
    loss: float,
) -> IntegerStrategy:
    """Round a member of the family to integers, as closely as one record needs it."""
    ratios = sum_variances(once, sweeps) / once.targets
    upper = math.sqrt(float(sum_profiles(once, sweeps).max()) * float(ratios.max()))
    rounded = round_trees(once, sweeps, objective=objective, upper=upper, loss=loss)
    strategy = build_strategy(structure, (), make_contrasts(structure), rounded.tree_blocks)
    return add_claim_margins(strategy)
