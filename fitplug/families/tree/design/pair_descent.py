"""The optimum of a tree's family where neighbours replace a record.

The leaves have weights p separately for each dense cell, and kinds of pairs have weights as well
(`fitplug.families.tree.shape.pairs`). A step multiplies each of these by the mean cost of the
kind's pairs of cells. The Lagrangian has half of the mean cost of a pair at these weights. The two
cells of a pair share the root's measurements, so its classes have the price diag(P) - theta.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np

from fitplug.errors import DesignError
from fitplug.families.base.family import Duals, certify_bound
from fitplug.families.base.objective import Objective
from fitplug.families.tree.design.bound_ascent import ascend_pair_rows, average_where_large
from fitplug.families.tree.design.descent import (
    Costs,
    TreeDescent,
    TreeMember,
    Weights,
    share_among_cells,
)
from fitplug.families.tree.design.family import Prices, Sweep
from fitplug.families.tree.design.pair_root import find_pair_root
from fitplug.families.tree.design.parted_bound import find_parted_duals
from fitplug.families.tree.design.parting_descent import PartingDescent
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.numeric import FloatArray
from fitplug.solve import MIXING, Options


def descend_tree_pairs(structure: TreePairStructure, options: Options) -> list[TreeMember]:
    """Find members of least mean cost of pairs of cells at the targets.

    Args:
        structure: The structure.
        options: How to solve. The tolerance is the relative gap to the optimum of the family that
            ends the iteration, and progress is called with that gap.

    Returns:
        Members, with the weights of leaves and dense cells and then those of kinds of pairs as p of
        their dual weights. For the first, the weights of pairs do not depend on where their paths
        part; for the others they do. Which of them has the lower largest cost varies.

    Raises:
        DesignError: If the targets differ by too many orders of magnitude.
    """
    tolerance = options.tolerance
    descent = PairDescent(structure, MIXING * tolerance)
    most = min(options.max_iterations, descent.count_worthwhile())
    solution = descent.run(descent.first_weights, tolerance, most, options.progress)
    member = descent.make_member(solution)
    best = ascend_pair_rows(structure, descent.make_duals(solution.best_lower.x), tolerance)
    members, iterations = [member], solution.iterations
    if structure.tree.steps and not structure.keeps_tree and not solution.stopped:
        parting = PartingDescent(structure, MIXING * tolerance)
        start = parting.find_start(descent.split(solution.best_upper.x))
        # If floating point cannot follow these weights, the first member remains.
        with suppress(DesignError):
            parted = parting.run(start, tolerance, most, options.progress)
            ends = dict.fromkeys((parted.best_upper, parted.best_lower))
            members += [parting.make_member(parted, end) for end in ends]
            iterations += parted.iterations
            weights = parting.split(parted.best_lower.x)
            found = find_parted_duals(parting, weights, best.q, tolerance)
            if found is not None:
                best = max(best, found, key=partial(certify_bound, structure, Objective(), 1.0))
    return [replace(one, duals=best, iterations=iterations) for one in members]


class PairDescent(TreeDescent):
    """The fixed-point map for pairs of cells.

    The weights p of the leaves sum to 1 / D for each of the D dense cells.
    """

    takes_means = True
    structure: TreePairStructure

    def __init__(self, structure: TreePairStructure, mixing: float) -> None:
        super().__init__(structure, mixing, share_among_cells(structure), structure.kinds)
        self._ratios = structure.move_ratios[self.blocks]

    @property
    def first_weights(self) -> FloatArray:
        # Weigh moves and pairs of dense cells as if two cells were drawn at random.
        structure, even = self.structure, np.ones(1)
        for a in structure.free.tolist():
            n = structure.sizes[a]
            even = np.concatenate([even / n, even * (n - 1) / n])
        first, second = structure.cell_pairs
        anywhere = np.outer(even, np.where(first < second, 2.0, 1.0)).ravel()
        alike = np.repeat(even[1:], structure.cells)
        kinds = [x / x.sum() * even[k:].sum() for k, x in enumerate((anywhere, alike)) if x.size]
        return self.normalise(np.log(np.concatenate([self.shares.p, *kinds, self.shares.q])))

    def normalise_cells(self, p: FloatArray) -> FloatArray:
        cells = self.structure.cells
        p = p.reshape(-1, cells)
        p = p - p.max(axis=0)
        return np.asarray(p - np.log(np.exp(p).sum(axis=0) * cells)).ravel()

    def make_duals(self, x: FloatArray) -> Duals:
        """Make dual weights from logarithms of weights."""
        structure, (p, kinds, q) = self.structure, self.split(x)
        kappas, _ = structure.weigh_blocks(kinds)
        cells = (p.reshape(-1, structure.cells) * kappas.max(axis=0)).ravel()
        even = average_where_large(structure, cells)
        return Duals(np.concatenate([even, kinds, np.zeros(structure.parts_below)]), q)

    def price(self, weights: Weights) -> Sequence[Prices]:
        structure, D = self.structure, self.structure.cells
        kappas, thetas = (charges[self.blocks] for charges in structure.weigh_blocks(weights.kinds))
        cells = structure.tree.sum_leaves(weights.p.reshape(-1, D) * D)
        prices = []
        for i, (block, family) in enumerate(zip(self.blocks, self.families, strict=True)):
            theta = family.classes[0].merge_matrices(structure.unfold_pairs(thetas[i]))
            theta = self.multiples[i] * theta
            by_depth = family.price_cells(self.multiples[i] * kappas[i] * cells)
            find_root = partial(find_pair_root, theta, structure.find_totals(block))
            prices.append(Prices(by_depth, find_root=find_root))
        return prices

    def measure_costs(self, sweeps: Sequence[Sweep], weights: Weights) -> Costs:
        # Half of the mean cost of pairs of each kind.
        structure = self.structure
        first, second = structure.cell_pairs
        kappas, _ = structure.weigh_blocks(weights.kinds)
        shape = (len(sweeps), -1, structure.cells)
        profiles = np.stack([sweep.profile for sweep in sweeps]).reshape(shape)
        profiles = self.multiples[:, None, None] * profiles
        leaves = weights.p.reshape(1, -1, structure.cells) * structure.cells
        means, most = (profiles * leaves).sum(axis=1), profiles.sum(axis=0).max(axis=0)
        # Pairs that differ only along a move.
        moved = 1 - self._ratios[:, 1:].T
        alike = moved @ means
        flat = profiles.reshape(len(sweeps), -1)
        largest = max((float((one @ flat).max()) for one in moved), default=0.0)
        shared = np.zeros((len(sweeps), len(first)))
        for i, (family, sweep) in enumerate(zip(self.families, sweeps, strict=True)):
            of_cell = family.classes[0].of_cell
            root = np.pad(sweep.root[1], ((0, 1), (0, 1)))
            shared[i] = self.multiples[i] * root[of_cell[first], of_cell[second]]
        shared = self._ratios.T @ shared
        total = means.sum(axis=0)
        anywhere = (total[first] + total[second]) / 2 - shared
        if shared.size:
            largest = max(largest, float(((most[first] + most[second]) / 2 - shared).max()))
        of_kinds = np.maximum(np.concatenate([anywhere.ravel(), alike.ravel()]), 0)
        g = np.einsum("bc,blc->lc", kappas[self.blocks], profiles)
        sums = (g * leaves[0]).sum(axis=0)
        # Cells that no query counts cost nothing, and their weights stay unchanged.
        g = np.divide(g, sums, out=np.ones_like(g), where=sums > 0)
        return Costs(g.ravel() * float(weights.kinds @ of_kinds), of_kinds, largest)
