"""Weights of the bound of trees whose pairs have weights that depend on where paths part.

The weights of the design (`fitplug.families.tree.design.parting_descent`) are converted as closely
as the weights of the bound allow (docs/theory/units.md, (U19)): if the shares of a node's children
differ, these need pairs below the larger children. So more even shares are tried too. Finally, the
weights of rows are improved. Nothing here is proven.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fitplug.families.base.family import NO_FRAME, Duals
from fitplug.families.tree.certificate.pairs import part_pairs
from fitplug.families.tree.certificate.parted_pairs import (
    PartedDensities,
    build_covariances,
    find_lowest_totals,
)
from fitplug.families.tree.design.bound_ascent import choose_error
from fitplug.families.tree.design.bound_gradient import BlockGradient, PartedPriors
from fitplug.families.tree.design.descent import Weights
from fitplug.families.tree.design.parting_descent import PartingDescent
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.numeric import FloatArray
from fitplug.solve import MIXING, mix_with_uniform

_EVENNESS: tuple[float, ...] = (0.0, 0.5, 0.8, 1.0)
"""The factors, less than 1, by which differences of children's log shares are reduced."""

_USUAL_EVENNESS = 0.8
"""The evenness to use if there is no time to try all, as the best shows only after some steps."""

_MOST_WORK, _FEWEST_STEPS, _MOST_STEPS = 2e10, 4, 80
"""The most operations of all evaluations together, and the limits on their number."""

_USUAL_POLES, _OF_A_CALL, _OF_A_NODE = 16, 2.5e6, 1500.0
"""The poles of an evaluation, and the operations per block for each step and each node, in addition
to those with matrices."""


def find_parted_duals(
    descent: PartingDescent, weights: Weights, q: FloatArray, tolerance: float
) -> Duals | None:
    """Find dual weights of the structure with weights of pairs by where their paths part.

    Args:
        descent: The descent of the design.
        weights: The weights of the descent.
        q: Weights of rows to start from, shape (rows,).
        tolerance: The relative gap that ends the ascent.

    Returns:
        The dual weights; None if the tree is too large for them, or floats cannot follow them.
    """
    structure = descent.structure
    if not structure.parts_below or descent.groups.is_between.any():
        return None
    steps, choices = _count_steps(structure), _EVENNESS
    if steps < _FEWEST_STEPS * len(_EVENNESS):
        choices = (_USUAL_EVENNESS,)
    tried = []
    for evenness in choices:
        shares = _even_out(structure, weights.p, evenness)
        ascent = RowAscent(structure, convert_weights(descent, weights, shares), tolerance)
        ascent.climb(q, steps // len(choices))
        tried.append(ascent)
    best = max(tried, key=lambda one: one.value)
    return Duals(best.p, best.q, NO_FRAME) if best.value > 0 else None


def _count_steps(structure: TreePairStructure) -> int:
    """Count the evaluations of the bound for which there is time."""
    depths, work = structure.tree.depths, 0.0
    for block in structure.noisy_blocks.tolist():
        nodes = float((depths < find_lowest_totals(structure, block)).sum())
        work += nodes * structure.classes[block][0].size ** 3
        work += len(structure.tree.steps) * _OF_A_CALL + structure.tree.size * _OF_A_NODE
    return max(_FEWEST_STEPS, min(_MOST_STEPS, int(_MOST_WORK / (_USUAL_POLES * work))))


def _even_out(structure: TreePairStructure, p: FloatArray, evenness: float) -> FloatArray:
    """Make the shares of children more even, and return those of the leaves, (leaves,)."""
    tree = structure.tree
    sums = tree.sum_leaves(p / p.sum())
    new = np.ones(tree.size)
    for step in tree.steps:
        parts = (sums[step.children] / sums[step.parents, None]) ** (1 - evenness)
        parts /= parts.sum(axis=1, keepdims=True)
        new[step.children] = parts * new[step.parents, None]
    return np.asarray(new[tree.leaves])


def convert_weights(descent: PartingDescent, weights: Weights, shares: FloatArray) -> FloatArray:
    """Convert the weights of the design to weights of the bound, at new shares of leaves.

    Returns:
        p of the structure.
    """
    structure, groups = descent.structure, descent.groups
    tree, kinds = structure.tree, descent.unfold_kinds(weights.kinds)
    sums = tree.sum_leaves(shares)
    each = sums / tree.multiplicities
    first, second = structure.cell_pairs
    same = np.flatnonzero(first == second)
    anywhere, alike = kinds.sum(axis=0), np.zeros((structure.moves - 1, structure.cells))
    alike[:, first[same]] = kinds[-1, 1:, same].T
    anywhere[1:, same] -= kinds[-1, 1:, same].T
    # The share of each group's pairs that part at each node, and at it or below.
    parting = np.zeros((tree.size, groups.count))
    group = [groups.group_of[step.children[:, 0]] for step in tree.steps]
    for step, of_step in zip(tree.steps, group, strict=True):
        parting[step.parents, of_step] = sums[step.parents]
    parting /= np.maximum(parting.sum(axis=0), 1e-300)
    within = parting.copy()
    within[tree.leaves, -1] = shares
    within = tree.add_upwards(within)
    parts, densities = [], {0: anywhere}
    for step in tree.steps:
        o = np.stack([densities.pop(v) for v in step.parents.tolist()])
        pi, below = sums[step.parents], each[step.children]
        squares = (tree.multiplicities[step.children] * below**2).sum(axis=1)[:, None, None]
        m, pi = below.min(axis=1)[:, None, None], pi[:, None, None]
        apart = np.tensordot(parting[step.parents], kinds, 1)
        inside = np.tensordot(within[step.parents], kinds, 1) - apart
        # The weight that the design's weights would leave at the leaves.
        change = (apart / (pi**2 - squares) * squares - inside) / pi
        b = np.clip(m * o - change * (1 - m / pi), 0, pi * o)
        most = (pi**2 * o).sum(axis=0)
        part = np.divide((pi * b).sum(axis=0), most, out=np.zeros_like(most), where=most > 0)
        parts.append(part)
        n, b = (1 - part) * o / (1 - m / pi), part * pi * o
        for j, at in enumerate(step.children.T):
            share = below[:, j, None, None]
            of_child = np.maximum(n * (1 - m / share), 0.0) + b / share
            densities.update(zip(at.tolist(), of_child, strict=True))
    by_cell = np.repeat(shares, structure.cells)
    # Positive parts mark these weights as dependent on where paths part.
    below_nodes = np.maximum(np.stack(parts).ravel(), 1e-12)
    kinds_of_pairs = np.concatenate([anywhere.ravel(), alike.ravel()])
    return np.concatenate([by_cell, np.maximum(kinds_of_pairs, 0), below_nodes])


class RowAscent:
    """The bound as a function of the weights of rows, at weights p of the structure."""

    def __init__(self, structure: TreePairStructure, p: FloatArray, tolerance: float) -> None:
        self.structure, self.p, self.tolerance = structure, p, tolerance
        self.value, self.q = 0.0, np.zeros(structure.rows)
        self.error = choose_error(tolerance)
        kinds, parts = np.split(
            p[len(p) - structure.kinds - structure.parts_below :], [structure.kinds]
        )
        cells = p[: len(p) - structure.kinds - structure.parts_below]
        kinds = kinds / kinds.sum()
        leaves = cells.reshape(-1, structure.cells).sum(axis=1)
        densities, self.mass = part_pairs(structure, leaves, kinds, parts)
        self.blocks = [] if densities is None else list(self._prepare(densities, kinds))

    def _prepare(
        self, densities: PartedDensities, kinds: FloatArray
    ) -> Iterator[tuple[int, FloatArray, FloatArray, PartedPriors]]:
        """Find each block's arguments of `BlockGradient` other than the weights of rows."""
        structure = self.structure
        kappas, thetas = structure.weigh_blocks(kinds)
        tree, multiples = structure.tree, structure.subsets.profile_multiples
        for block in structure.noisy_blocks.tolist():
            classes = structure.classes[block][0]
            r, factor = classes.size, float(multiples[block])
            degrees = np.diag(classes.merge_counts(kappas[block]))
            theta = classes.merge_matrices(structure.unfold_pairs(thetas[block]))
            covariances = build_covariances(structure, block, kappas[block], densities)
            depth = find_lowest_totals(structure, block)
            nodes = np.flatnonzero(tree.depths < depth)
            place = np.full(tree.size, -1)
            place[nodes] = np.arange(len(nodes))
            inverses = np.zeros((len(nodes), r, r))
            above, masses = np.full(len(nodes), -1), np.zeros(tree.size)
            for step, C in zip(tree.steps, covariances, strict=False):
                if step.depth < depth:
                    inverses[place[step.parents]] = np.linalg.inv(C)
                    above[place[step.children]] = place[step.parents][:, None]
                else:
                    members = structure.classes[block][depth].of_cell[classes.first] == 0
                    variances = C[:, members][:, :, members].sum(axis=(1, 2))
                    for at in (step.parents[:, None], step.children):
                        masses[at] = variances[:, None] * densities.shares[at]
            priors = np.where(above[:, None, None] >= 0, inverses[above], 0.0) - inverses
            priors[0] += np.linalg.inv(degrees)
            priors /= densities.shares[nodes][:, None, None]
            parted = PartedPriors(depth, priors / factor, masses * factor)
            weights = factor * kappas[block] * densities.leaves[:, None]
            yield block, weights, factor * (degrees - theta), parted

    def evaluate(self, q: FloatArray) -> tuple[float, FloatArray]:
        """Evaluate the bound, and the factors for the weights of rows."""
        rows = q / self.structure.targets
        h = np.zeros(self.structure.rows)
        for block, weights, root, parted in self.blocks:
            h += BlockGradient(self.structure, block, weights, rows, self.error, root, parted).h
        h = np.maximum(h / self.structure.targets, 0.0)
        return float(q @ h), h

    def climb(self, q: FloatArray, steps: int) -> None:
        """Raise the bound by changing the weights of rows, and keep the best ones."""
        for _ in range(steps):
            try:
                value, h = self.evaluate(q)
            except np.linalg.LinAlgError:
                return
            if not (value > 0 and math.isfinite(value)):
                return
            if value / math.sqrt(self.mass) > self.value:
                self.value, self.q = value / math.sqrt(self.mass), q
            q = mix_with_uniform(q * h / value, MIXING * self.tolerance)
