"""Ascent of the lower bound of a tree that is crossed with dense cells.

The weights of the family prove a bound that is close to the optimum where the family is. Where the
family loses more, the bound T(p, q) = tr N^1/2 itself is ascended, by the fixed point of
docs/theory/dual.md. Each evaluation sweeps over matrices of all dense cells at every node, so this
is done as long as it takes seconds. Nothing here is proven: the certificate evaluates the bound
anew.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fitplug.numeric import FloatArray
from fitplug.optimizer.fixed_point import (
    MIXING,
    Iterate,
    find_fixed_point,
    mix_with_uniform,
    normalise_logarithms,
)
from fitplug.optimizer.inverse_square_root import POLES, place_poles
from fitplug.structure import IdenticalLeaves, Objective, TreeStructure

_MOST_WORK = 2e10
"""The most operations of all evaluations together, a few seconds."""

_MOST_STEPS = 60

_LEAST_EIGENVALUE = 1e-10
"""Relative to the largest: smaller eigenvalues of N add next to nothing to the trace."""


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
    work = 12.0 * POLES * structure.tree.size * len(structure.blocks) * structure.cells**3
    steps = min(_MOST_STEPS, int(_MOST_WORK / work))
    if steps < 2 or structure.cells == 1:
        return start
    d = len(start.p)

    def normalise(x: FloatArray) -> FloatArray:
        return np.concatenate([normalise_logarithms(x[:d]), normalise_logarithms(x[d:])])

    def evaluate(x: FloatArray) -> Iterate[None] | None:
        p, q = np.exp(x[:d]), np.exp(x[d:])
        try:
            value, g, h = _evaluate_bound(structure, objective, p, q)
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
    return BoundWeights(np.exp(best[:d]), np.exp(best[d:]))


def _evaluate_bound(
    structure: TreeStructure, objective: Objective, p: FloatArray, q: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    """Evaluate T and twice its gradient.

    Returns:
        T, g (|V|,) and h (rows,), with sum p g = sum q h = T.
    """
    tree, D = structure.tree, structure.cells
    counts = tree.multiplicities.astype(np.float64)
    weights = p if objective.budgets is None else p / objective.budgets
    cells = np.zeros((tree.size, D))
    cells[tree.leaves] = weights.reshape(-1, D) / counts[tree.leaves, None]
    rows = q / structure.targets + objective.weight * structure.repeats
    value, g, h = 0.0, np.zeros((len(tree.leaves), D)), np.zeros(structure.rows)
    for block, parts in enumerate(structure.parts):
        multiple = float(structure.subsets.profile_multiples[block])
        P = multiple * cells
        W = np.zeros((tree.size, D, D))
        for part in parts:
            own = part.multiple * rows[part.rows].reshape(len(part.level.nodes), -1)
            W[part.level.nodes] += part.matrix.T @ (own[:, :, None] * part.matrix)
        W /= counts[:, None, None]
        everything = tree.add_upwards(P * counts[:, None])
        largest = np.array([float((np.diagonal(W, axis1=1, axis2=2) * everything).sum())])
        poles = place_poles(_LEAST_EIGENVALUE * largest, largest)
        for tau, omega in zip(poles.tau[0].tolist(), poles.omega[0].tolist(), strict=True):
            y = _compute_posteriors(structure, P, W, tau)
            value += omega * float((counts * (W * y).sum(axis=(1, 2))).sum())
            own = P[tree.leaves]
            diagonal = np.diagonal(y[tree.leaves], axis1=1, axis2=2)
            rest = np.divide(1 - tau * diagonal / own, own, out=np.zeros_like(own), where=own > 0)
            g += multiple * omega * rest
            for part in parts:
                variances = ((part.matrix @ y[part.level.nodes]) * part.matrix).sum(axis=2)
                h[part.rows] += part.multiple * omega * variances.ravel()
    h = h / structure.targets + objective.weight * float(h @ structure.repeats)
    if objective.budgets is not None:
        g = g / objective.budgets.reshape(g.shape)
    return value, g.ravel(), h


def _compute_posteriors(
    structure: TreeStructure, P: FloatArray, W: FloatArray, tau: float
) -> FloatArray:
    """Compute y_v = 1_v' D^1/2 (N + tau)^-1 D^1/2 1_v of each node, shape (N, D, D).

    Args:
        structure: The structure.
        P: Weights of each leaf's dense cells, shape (N, D).
        W: Weights of each node's covariance, shape (N, D, D).
        tau: The pole.
    """
    tree, D = structure.tree, structure.cells
    at, unit = np.arange(D), np.eye(D)
    before, after = np.zeros_like(W), np.zeros_like(W)
    before[tree.leaves[:, None], at, at] = P[tree.leaves] / tau
    after[tree.leaves] = _observe(before[tree.leaves], W[tree.leaves], unit)
    for step in reversed(tree.steps):
        below = after[step.children]
        if isinstance(step, IdenticalLeaves):
            before[step.parents] = below * step.counts[:, None, None]
        else:
            before[step.parents] = below.sum(axis=1)
        after[step.parents] = _observe(before[step.parents], W[step.parents], unit)
    found = np.zeros_like(W)
    found[0] = after[0]
    for step in tree.steps:
        inverse = np.linalg.inv(before[step.parents])
        above = found[step.parents]
        if not isinstance(step, IdenticalLeaves):
            inverse, above = inverse[:, None], above[:, None]
        own = after[step.children]
        gain = own @ inverse
        turned = np.swapaxes(gain, -1, -2)
        found[step.children] = own - gain @ own + gain @ above @ turned
    return found


def _observe(prior: FloatArray, W: FloatArray, unit: FloatArray) -> FloatArray:
    """Compute (prior^-1 + W)^-1 of matrices (b, D, D)."""
    return np.asarray(np.linalg.solve(unit + prior @ W, prior), dtype=np.float64)
