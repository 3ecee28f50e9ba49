"""Ascent of the lower bound of a tree crossed with dense cells.

If the family is near the optimum, so is the bound of the family's weights. If the family loses
more, the bound T(p, q) = tr N^1/2 itself is raised, by the fixed point of docs/theory/dual.md. Each
evaluation sweeps over matrices of all dense cells at every node where they are distinguished, so
there may be time for only a few steps; the first ones gain most. Nothing here is proven: the
certificate evaluates the bound again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fitplug.families.base.family import Duals
from fitplug.families.base.objective import Objective
from fitplug.families.tree.certificate.block_weights import average_weights
from fitplug.families.tree.design.bound_gradient import BlockGradient, evaluate_tree_bound
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.numeric import FloatArray
from fitplug.solve import (
    MIXING,
    DualValue,
    Iterate,
    Problem,
    find_fixed_point,
    mix_with_uniform,
    normalise_pair,
    solve_dual,
)

_MOST_WORK = 5e10
"""The most operations of all evaluations together, about 15 seconds."""

_FEWEST_STEPS, _MOST_STEPS = 8, 60
"""The limits on steps. So few steps take no longer than the certificate."""

_PAIR_STEPS = 20
"""The most steps for pairs: more gain less than 0.01%, and better weights of pairs may follow."""

_RELAXATION = 1.7
"""The factor of plain steps before extrapolation, with which the ascent takes two thirds of the
time."""

_USUAL_POLES = 16

_LEAST_ERROR = 1e-4
"""The least relative error of the quadrature, otherwise a quarter of the tolerance."""

_SLOW_STEPS, _FEW_SLOW_STEPS = 5, 2
"""The ascent ends when this many steps raise the bound by less than a quarter of the tolerance; the
second number applies if there is no time to evaluate all nodes as matrices."""


def ascend_tree_bound(
    structure: TreeStructure,
    objective: Objective,
    starts: Sequence[Duals],
    upper: float,
    tolerance: float,
) -> Duals:
    """Raise the lower bound of given weights, within a limited amount of work.

    Args:
        structure: The structure.
        objective: The objective of the design.
        starts: Weights to start from, with sums 1; the best of them are used.
        upper: The cost of the strategy with which the bound is compared.
        tolerance: The relative gap between the two that ends the ascent.

    Returns:
        The weights with the best bound.
    """
    d = len(starts[0].p)
    steps, error = count_steps(structure), choose_error(tolerance)
    slow_steps = _SLOW_STEPS if _is_small(structure) else _FEW_SLOW_STEPS
    gaps: list[float] = []

    def normalise(x: FloatArray) -> FloatArray:
        return normalise_pair(x, d)

    def evaluate(x: FloatArray) -> Iterate[None] | None:
        p, q = average_where_large(structure, np.exp(x[:d]), objective.budgets), np.exp(x[d:])
        try:
            value, g, h = evaluate_tree_bound(structure, objective, p, q, error)
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
        return Iterate(x, following, value, max(upper, value), value, None)

    def is_slow(iteration: int, gap: float) -> bool:
        gaps.append(gap)
        return iteration > slow_steps and gaps[-1 - slow_steps] - gap < tolerance / 4

    points = (normalise(np.log(np.concatenate([start.p, start.q]))) for start in starts)
    possible = [iterate for iterate in map(evaluate, points) if iterate is not None]
    if not possible:
        p = average_where_large(structure, starts[0].p, objective.budgets)
        return Duals(p, starts[0].q)
    first = max(possible, key=lambda iterate: iterate.lower)
    solution = find_fixed_point(
        lambda x: first if x is first.x else evaluate(x),
        normalise,
        first.x,
        tolerance=tolerance,
        max_iterations=steps,
        progress=is_slow,
        relaxation=_RELAXATION,
    )
    best = solution.best_lower.x
    p = average_where_large(structure, np.exp(best[:d]), objective.budgets)
    return Duals(p, np.exp(best[d:]))


def count_steps(structure: TreeStructure) -> int:
    """Count the evaluations of the bound for which there is time."""
    work = _count_operations(structure, from_totals=not _is_small(structure))
    return max(_FEWEST_STEPS, min(_MOST_STEPS, int(_MOST_WORK / work)))


def choose_error(tolerance: float) -> float:
    """Choose the relative error of the quadrature for a desired relative gap."""
    return max(_LEAST_ERROR, tolerance / 4)


def average_where_large(
    structure: TreeStructure, p: FloatArray, budgets: FloatArray | None = None
) -> FloatArray:
    """Average weights of leaves and dense cells (|V|,) unless all nodes can have matrices.

    See `fitplug.families.tree.certificate.block_weights.average_weights`.
    """
    if structure.cells == 1 or _is_small(structure):
        return p
    if budgets is None:
        return average_weights(structure, p)
    return average_weights(structure, p / budgets) * budgets


def _is_small(structure: TreeStructure) -> bool:
    """Tell whether there is time to evaluate all nodes as matrices."""
    return _count_operations(structure, from_totals=False) * _MOST_STEPS <= _MOST_WORK / 10


def _count_operations(structure: TreeStructure, *, from_totals: bool) -> float:
    """Estimate the operations of an evaluation.

    Args:
        structure: The structure.
        from_totals: Whether nodes are evaluated as numbers where queries use only totals.
    """
    nodes = 0.0
    for classes in structure.classes:
        sizes = [at_depth.size for at_depth in classes]
        depth = sizes.index(1) if from_totals and 1 in sizes else len(sizes)
        nodes += float((structure.tree.depths < depth).sum()) * sizes[0] ** 3
    return _USUAL_POLES * nodes


def ascend_pair_rows(structure: TreePairStructure, duals: Duals, tolerance: float) -> Duals:
    """Raise the lower bound of dual weights by changing q, within a limited amount of work.

    Args:
        structure: The structure.
        duals: The dual weights to start from.
        tolerance: The relative gap that ends the ascent.

    Returns:
        Dual weights with a new q.
    """
    if structure.cells == 1:
        return duals
    error = choose_error(tolerance)
    p = duals.p[: structure.differences - structure.parts_below]
    cells = p[: -structure.kinds].reshape(-1, structure.cells)
    shares = cells / cells.sum(axis=0)
    kappas, thetas = structure.weigh_blocks(p[-structure.kinds :])
    multiples = structure.subsets.profile_multiples
    blocks = []
    for block in structure.noisy_blocks.tolist():
        classes = structure.classes[block][0]
        root = np.diag(classes.merge_counts(kappas[block]))
        if not structure.keeps_tree:
            root = root - classes.merge_matrices(structure.unfold_pairs(thetas[block]))
        factor = float(multiples[block])
        blocks.append((block, factor * kappas[block] * shares, factor * root))

    def evaluate(_: Problem, p: FloatArray, q: FloatArray) -> DualValue:
        rows = q / structure.targets
        h = sum(
            BlockGradient(structure, block, weights, rows, error, root).h
            for block, weights, root in blocks
        )
        h = np.maximum(np.asarray(h) / structure.targets, 0.0)
        value = float(q @ h)
        return DualValue(value, np.array([value]), h, ())

    # The weights p stay fixed, as if there were one cell.
    solution = solve_dual(
        Problem(1, structure.rows, ()),
        tolerance=tolerance,
        max_iterations=min(_PAIR_STEPS, count_steps(structure)),
        start=(np.ones(1), duals.q),
        evaluate=evaluate,
    )
    return duals._replace(q=solution.q)
