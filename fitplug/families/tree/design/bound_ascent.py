"""Ascent of the lower bound of a tree that is crossed with dense cells.

The weights of the family prove a bound that is close to the optimum where the family is. Where the
family loses more, the bound T(p, q) = tr N^1/2 itself is ascended, by the fixed point of
docs/theory/dual.md. Each evaluation sweeps over matrices of all dense cells at every node where
they are told apart, so there may be time for a few steps only; the first ones gain most. Nothing
here is proven: the certificate evaluates the bound anew.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fitplug.families.base.objective import Objective
from fitplug.families.tree.certificate.block_determinants import average_weights
from fitplug.families.tree.design.bound_gradient import evaluate_tree_bound
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.numeric import FloatArray
from fitplug.solve import MIXING, POLES, Iterate, find_fixed_point, mix_with_uniform, normalise_pair

_MOST_WORK = 4e11
"""The most operations of all evaluations together, about 15 seconds."""

_MOST_STEPS = 60


class BoundWeights(NamedTuple):
    """Weights that prove a lower bound.

    Attributes:
        p: Of the leaves and dense cells, shape (|V|,).
        q: Of the rows, shape (rows,).
    """

    p: FloatArray
    q: FloatArray


def ascend_tree_bound(
    structure: TreeStructure, objective: Objective, start: BoundWeights, tolerance: float
) -> BoundWeights:
    """Raise the lower bound that weights prove, as far as little work allows.

    Args:
        structure: The structure.
        objective: The objective of the design.
        start: Weights to start from, which sum to 1 each.
        tolerance: The relative gap that ends the ascent.

    Returns:
        The weights of the best bound.
    """
    if structure.cells == 1:
        return start
    d, budgets = len(start.p), objective.budgets
    is_small = _is_small(structure)

    def average(p: FloatArray) -> FloatArray:
        # Only so are the nodes below which totals are asked evaluated as numbers.
        if is_small:
            return p
        if budgets is None:
            return average_weights(structure, p)
        return average_weights(structure, p / budgets) * budgets

    steps = count_steps(structure)
    if steps < 2:
        return BoundWeights(average(start.p), start.q)

    def normalise(x: FloatArray) -> FloatArray:
        return normalise_pair(x, d)

    def evaluate(x: FloatArray) -> Iterate[None] | None:
        p, q = average(np.exp(x[:d])), np.exp(x[d:])
        try:
            value, g, h = evaluate_tree_bound(structure, objective, p, q)
        except np.linalg.LinAlgError:
            return None
        gained, spread = p * np.maximum(g, 0), q * np.maximum(h, 0)
        if not (value > 0 and math.isfinite(float(gained.sum() + spread.sum()))):
            return None
        following = np.concatenate(
            [
                mix_with_uniform(gained / gained.sum(), MIXING * tolerance),
                mix_with_uniform(spread / spread.sum(), MIXING * tolerance),
            ]
        )
        upper = math.sqrt(float(g.max()) * float(h.max()))
        return Iterate(x, following, value, max(upper, value), value, None)

    found = find_fixed_point(
        evaluate,
        normalise,
        normalise(np.log(np.concatenate(start))),
        tolerance=tolerance / 10,
        max_iterations=steps,
    )
    best = found.best_lower.x
    return BoundWeights(average(np.exp(best[:d])), np.exp(best[d:]))


def count_steps(structure: TreeStructure) -> int:
    """Count the evaluations of the bound that there is time for."""
    work = _count_operations(structure, from_totals=not _is_small(structure))
    return min(_MOST_STEPS, int(_MOST_WORK / max(work, 1.0)))


def average_where_large(structure: TreeStructure, p: FloatArray) -> FloatArray:
    """Average weights of leaves and dense cells where their bound takes long otherwise.

    See `fitplug.families.average_weights`; p has the shape (leaves * D,).
    """
    if structure.cells == 1 or _is_small(structure):
        return p
    return average_weights(structure, p)


def _is_small(structure: TreeStructure) -> bool:
    """Tell whether there is time to evaluate all nodes as matrices."""
    return _count_operations(structure, from_totals=False) * _MOST_STEPS <= _MOST_WORK / 10


def _count_operations(structure: TreeStructure, *, from_totals: bool) -> float:
    """Count about how many operations an evaluation takes.

    Args:
        structure: The structure.
        from_totals: Whether nodes below which totals are asked are evaluated as numbers.
    """
    nodes = 0.0
    for classes in structure.classes:
        sizes = [own.size for own in classes]
        depth = sizes.index(1) if from_totals and 1 in sizes else len(sizes)
        nodes += float((structure.tree.depths < depth).sum()) * sizes[0] ** 3
    return 12.0 * POLES * nodes
