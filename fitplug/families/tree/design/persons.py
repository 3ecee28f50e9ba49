"""The best known strategy of a tree for a person with several records.

Two members of the family are tried, and the one that costs less in integers is taken: the best one
for the kinds of persons (`fitplug.families.tree.design.person_descent`), and the best one for one
record. The weights of the first prove the lower bound. Where periods are dense cells there are no
kinds, and the weights of one record prove it, or the kinds of a relaxed structure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fitplug.families.base.claims import add_claim_margins
from fitplug.families.base.contrasts import make_contrasts
from fitplug.families.base.objective import Objective
from fitplug.families.base.strategies import build_strategy
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.blocks.design.rounding import evaluate_at_targets
from fitplug.families.tree.design.bound_ascent import ascend_tree_bound
from fitplug.families.tree.design.descent import TreeOptimum, descend_trees
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
        p: The dual weights of the cells, and then those of the kinds of persons; and then the same
            of the relaxed structure, if there is one.
        q: Those of the rows, and of the rows of the relaxed structure.
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
    found = [
        descend_trees(
            once,
            objective,
            tolerance=options.tolerance,
            max_iterations=options.max_iterations,
            progress=options.progress,
        )
    ]
    if structure.kinds and not found[0].stopped:
        found.append(
            descend_person_trees(
                structure,
                tolerance=options.tolerance,
                max_iterations=options.max_iterations,
                progress=options.progress,
            )
        )
    strategies = [_round_member(structure, once, own, objective, loss) for own in found]
    best = min(strategies, key=lambda own: evaluate_at_targets(own, objective))
    p, q = found[-1].p, found[-1].q
    if len(p) < structure.differences:
        kinds = len(structure.kinds)
        p = np.concatenate([p, np.full(kinds, 1 / kinds)])
    elif not structure.kinds:
        p, q = ascend_tree_bound(
            once, objective, found[0].proving, found[0].upper, options.tolerance
        )
    if structure.relaxed is not None:
        proving = descend_person_trees(
            structure.relaxed, tolerance=options.tolerance, max_iterations=options.max_iterations
        )
        p, q = np.concatenate([p, proving.p]), np.concatenate([q, proving.q])
    return PersonTreeOptimum(
        strategy=best,
        p=p,
        q=q,
        iterations=sum(own.iterations for own in found),
        stopped=any(own.stopped for own in found),
    )


def _round_member(
    structure: PersonTreeStructure,
    once: TreeStructure,
    found: TreeOptimum,
    objective: Objective,
    loss: float,
) -> IntegerStrategy:
    """Round a member of the family to integers, as closely as one record needs it."""
    profile, variances = np.zeros(once.differences), np.zeros(once.rows)
    for block, sweep in enumerate(found.sweeps):
        profile += float(once.subsets.profile_multiples[block]) * sweep.profile.ravel()
        for part, own in zip(once.parts[block], sweep.variances, strict=True):
            variances[part.rows] += part.multiple * own
    upper = math.sqrt(float(profile.max()) * float((variances / once.targets).max()))
    rounded = round_trees(once, found.sweeps, objective=objective, upper=upper, loss=loss)
    strategy = build_strategy(structure, (), make_contrasts(structure), rounded.tree_blocks)
    return add_claim_margins(strategy)
