"""The optimum of a tree's family where neighbours replace a record.

It is that of `fitplug.families.tree.design.descent` with the prices of `pair_family`, and with
weights phi of the kinds of pairs (`fitplug.families.tree.shape.pairs`). A step multiplies each phi
by the mean cost of the pairs of cells of its kind. What is made least is half of the mean cost of a
pair at the weights of pairs that p and phi stand for.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from fitplug.families.base.certificates import certify_bound
from fitplug.families.base.certifier import NO_FRAME, Duals
from fitplug.families.base.objective import Objective
from fitplug.families.tree.design.bound_ascent import average_where_large
from fitplug.families.tree.design.descent import Start, TreeDescent, TreeOptimum
from fitplug.families.tree.design.family import Sweep, TreeFamily
from fitplug.families.tree.design.pair_family import TreePairFamily
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.numeric import FloatArray
from fitplug.solve import (
    MIXING,
    GapProgress,
    Iterate,
    mix_with_uniform,
    normalise_logarithms,
    normalise_pair,
)

_MERIT_ERROR = 1e-6
"""How much one sweep may miss the best member's Lagrangian by, relatively."""

_LEAST_BOUND = 0.01
"""The least bound that a sweep is said to give, relative to the cost of the member it finds."""


def descend_tree_pairs(
    structure: TreePairStructure,
    *,
    tolerance: float,
    max_iterations: int,
    progress: GapProgress | None = None,
) -> TreeOptimum:
    """Find the member of least mean cost of pairs of cells at the targets.

    Args:
        structure: The structure.
        tolerance: The relative gap to the optimum of the family that ends the iteration.
        max_iterations: The largest number of iterations.
        progress: Called with the iterations and that gap.

    Returns:
        The member, with the weights of leaves and dense cells and then those of kinds of pairs as
        p.

    Raises:
        DesignError: If the targets differ by too many orders of magnitude.
    """
    descent = _PairDescent(structure, MIXING * tolerance)
    most = min(max_iterations, descent.count_worthwhile())
    found = descent.run(descent.first_weights, tolerance, most, progress)
    best, iterations = found.best_upper, found.iterations
    sweeps = descent.sweep_at(best.found, *descent.split_all(best.x))
    proving = [descent.split_all(best.x)]
    if descent.split_totals(sweeps):
        # The weights of a larger family prove a better bound.
        more = descent.run(best.x, tolerance, most, progress)
        proving.append(descent.split_all(more.best_upper.x))
        iterations += more.iterations
    duals = [
        Duals(np.concatenate([average_where_large(structure, p), phi]), q, NO_FRAME)
        for p, q, phi in proving
    ]
    p, q, _ = max(duals, key=partial(certify_bound, structure, Objective(), 1.0))
    return TreeOptimum(
        sweeps=sweeps,
        p=p,
        q=q,
        upper=best.upper,
        iterations=iterations,
        stopped=found.stopped,
    )


class _PairDescent(TreeDescent):
    """The fixed-point map, of logarithms of p, q and phi one after another."""

    def __init__(self, structure: TreePairStructure, mixing: float) -> None:
        super().__init__(structure, Objective(), mixing)
        self.pairs = structure
        self.ratios = structure.move_ratios[self.blocks]
        even = np.ones(1)
        for a in structure.free.tolist():
            n = structure.sizes[a]
            even = np.concatenate([even / n, even * (n - 1) / n])
        own = even[1:] if structure.keeps_tree else np.concatenate([even, even[1:]])
        self.even_kinds: FloatArray = own / own.sum()
        self.block_multiples = self.multiples

    def build_family(self, block: int) -> TreeFamily:
        assert isinstance(self.structure, TreePairStructure)
        return TreePairFamily(self.structure, block)

    @property
    def first_weights(self) -> FloatArray:
        shares = [self.cell_shares, self.row_shares, self.even_kinds]
        return self.normalise(np.log(np.concatenate(shares)))

    def normalise(self, x: FloatArray) -> FloatArray:
        at = len(x) - self.pairs.kinds
        return np.concatenate(
            [normalise_pair(x[:at], len(self.cell_shares)), normalise_logarithms(x[at:])]
        )

    def split_all(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Split logarithms of weights into p, q and phi."""
        at = len(x) - self.pairs.kinds
        return *self.split(x[:at]), np.exp(x[at:])

    def sweep_at(
        self, start: Start, p: FloatArray, q: FloatArray, phi: FloatArray
    ) -> tuple[Sweep, ...]:
        """Sweep over the trees of all blocks at weights p (leaves * D,), q (rows,) and phi."""
        kappas, thetas = (own[self.blocks] for own in self.pairs.weigh_blocks(phi))
        masses = np.zeros(int(self.pairs.regions.max()) + 1)
        np.add.at(masses, self.pairs.regions, p.reshape(-1, self.pairs.cells).sum(axis=0))
        self.multiples = self.block_multiples * kappas
        for family, part, multiple in zip(
            self._list_families(), thetas / kappas, self.multiples, strict=True
        ):
            family.theta, family.masses = float(part), multiple * masses
        return self.sweep(start, p, q)

    def evaluate(self, x: FloatArray) -> Iterate[Start] | None:
        p, q, phi = self.split_all(x)
        start = self._start
        with np.errstate(all="ignore"):
            try:
                sweeps = self.sweep_at(start, p, q, phi)
            except np.linalg.LinAlgError:
                return None
            g, h, _ = self._measure(sweeps)
            of_kinds, largest = self._measure_kinds(sweeps, p, phi)
            cost, spread = float(phi @ of_kinds), float(q @ h)
            if not (0 < cost < math.inf and 0 < spread < math.inf):
                return None
            mixing = self.mixing
            following = np.concatenate(
                [
                    (p * np.maximum(g, 0) / cost + mixing * self.cell_shares) / (1 + mixing),
                    (q * h / spread + mixing * self.row_shares) / (1 + mixing),
                    mix_with_uniform(phi * np.maximum(of_kinds, 0) / cost, mixing),
                ]
            )
        self._start = tuple(sweep.steps for sweep in sweeps)
        merit = math.sqrt(cost * spread)
        upper = math.sqrt(largest * float(h.max()))
        # A sweep that has not reached the best member says too much of the bound.
        lower = merit - 2 * abs(merit - self._merit) if merit <= upper else 0.0
        self._merit = merit
        return Iterate(x, following, max(lower, _LEAST_BOUND * upper), upper, merit, start)

    def _measure_kinds(
        self, sweeps: tuple[Sweep, ...], p: FloatArray, phi: FloatArray
    ) -> tuple[FloatArray, float]:
        """Measure half of the mean cost of pairs of each kind, (kinds,), and about the largest.

        Args:
            sweeps: What the sweeps found.
            p: The weights of leaves and dense cells.
            phi: The weights of kinds of pairs.
        """
        structure = self.pairs
        kappas, thetas = (own[self.blocks] for own in structure.weigh_blocks(phi))
        families = self._list_families()
        # `shared` has the factor by which the family's weights were multiplied.
        shared = np.array([family.shared for family in families]) / self.multiples
        left_out = thetas / kappas * shared
        profiles = np.stack([sweep.profile.ravel() for sweep in sweeps]) + left_out[:, None]
        own = profiles @ p
        alike = (1 - self.ratios[:, 1:]) * self.block_multiples[:, None]
        of_kinds = alike.T @ own
        largest = max((float((one @ profiles).max()) for one in alike.T), default=0.0)
        if structure.keeps_tree:
            return of_kinds, largest
        common = self.ratios.T @ (self.block_multiples * shared)
        everywhere = self.block_multiples @ profiles
        largest = max(largest, float(everywhere.max() - common.min()))
        anywhere = float(self.block_multiples @ own) - common
        return np.concatenate([anywhere, of_kinds]), largest

    def _list_families(self) -> list[TreePairFamily]:
        """List the families of the blocks."""
        return [family for family in self.families if isinstance(family, TreePairFamily)]
