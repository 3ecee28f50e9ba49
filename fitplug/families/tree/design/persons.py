"""The best known strategy of a tree for a person with several records.

Two members of the family are tried, and the one that costs less in integers is taken: the best one
for persons with several records (`fitplug.families.tree.design.person_descent`, or
`fitplug.families.tree.design.leaf_descent` where periods are dense cells), and the best one for one
record. The weights of the first prove the lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fitplug.families.base.claims import add_claim_margins
from fitplug.families.base.contrasts import make_contrasts
from fitplug.families.base.objective import Objective
from fitplug.families.base.strategies import build_strategy
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.blocks.design.rounding import evaluate_at_targets
from fitplug.families.tree.design.descent import TreeOptimum, descend_trees
from fitplug.families.tree.design.family import Sweep
from fitplug.families.tree.design.leaf_descent import LeafOptimum, descend_leaf_persons
from fitplug.families.tree.design.person_descent import descend_person_trees
from fitplug.families.tree.design.rounding import round_trees
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.persons import PersonTreeStructure
from fitplug.numeric import FloatArray
from fitplug.solve import Options
from fitplug.workload import ONE_RECORD


@dataclass(frozen=True, eq=False)
class PersonTreeOptimum:
    """The best strategy that is known.

    Attributes:
        strategy: The strategy in integers.
        p: The dual weights of the cells, and then those of the kinds of persons; or of the leaves,
            and then of the differences over the dense cells.
        q: Those of the rows.
        iterations: The number of iterations.
        stopped: Whether the progress callback asked to stop.
    """

    strategy: IntegerStrategy
    p: FloatArray
    q: FloatArray
    iterations: int
    stopped: bool


def find_person_tree_optimum(
    structure: PersonTreeStructure, objective: Objective, options: Options, loss: float
) -> PersonTreeOptimum:
    """Find the best strategy that is known, in integers.

    Args:
        structure: The structure.
        objective: The plain objective.
        options: How to solve.
        loss: What rounding to integers may cost, relatively.

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
    single = descend_trees(
        once,
        objective,
        tolerance=options.tolerance,
        max_iterations=options.max_iterations,
        progress=options.progress,
    )
    several: LeafOptimum | TreeOptimum
    if structure.sets is None:
        several = descend_person_trees(
            structure,
            tolerance=options.tolerance,
            max_iterations=options.max_iterations,
            progress=options.progress,
        )
    else:
        several = descend_leaf_persons(
            structure,
            tolerance=options.tolerance,
            max_iterations=options.max_iterations,
            progress=options.progress,
        )
        structure = replace(structure, named=several.sets)
    strategies = [
        _round_member(structure, once, own.sweeps, objective, loss) for own in (single, several)
    ]
    return PersonTreeOptimum(
        strategy=min(strategies, key=lambda own: evaluate_at_targets(own, objective)),
        p=several.p,
        q=several.q,
        iterations=single.iterations + several.iterations,
        stopped=single.stopped or several.stopped,
    )


def _round_member(
    structure: PersonTreeStructure,
    once: TreeStructure,
    sweeps: Sequence[Sweep],
    objective: Objective,
    loss: float,
) -> IntegerStrategy:
    """Round a member of the family to integers, as closely as one record needs it."""
    profile, variances = np.zeros(once.differences), np.zeros(once.rows)
    for block, sweep in enumerate(sweeps):
        profile += float(once.subsets.profile_multiples[block]) * sweep.profile.ravel()
        for part, own in zip(once.parts[block], sweep.variances, strict=True):
            variances[part.rows] += part.multiple * own
    upper = math.sqrt(float(profile.max()) * float((variances / once.targets).max()))
    rounded = round_trees(once, sweeps, objective=objective, upper=upper, loss=loss)
    strategy = build_strategy(structure, (), make_contrasts(structure), rounded.tree_blocks)
    return add_claim_margins(strategy)
