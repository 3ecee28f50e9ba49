"""The optimum of a tree's family: weights at which the best member has a level profile.

At any weights p of the cells and q of the rows, the Lagrangian has a best member in the family
(`fitplug.families.tree.design.family`). The optimum of the family is the best member at the weights
that are the fixed point of p <- p g / sum(p g) and q <- q h / sum(q h), where g is the member's
profile and h are its variances over their targets, as for the optimum over all covariances
(docs/theory/dual.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from fitplug.certify import Ended
from fitplug.families.base.objective import Objective
from fitplug.families.tree.design.child_covariances import ChildCovariances, SplitCovariances
from fitplug.families.tree.design.family import Sweep, TreeFamily, sum_profiles, sum_variances
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.neighbours import RecordSets
from fitplug.numeric import FloatArray, to_positions
from fitplug.solve import (
    MIXING,
    FixedPoint,
    GapProgress,
    Iterate,
    Options,
    find_fixed_point,
    normalise_pair,
)

MERIT_ERROR = 1e-6
"""How much one sweep may miss the best member's Lagrangian by, relatively."""

RELAXATION = 1.7
"""What plain steps of trees are multiplied by before they are extrapolated."""

_FEWEST_ITERATIONS, _MOST_ITERATIONS, _MOST_WORK = 60, 400, 1.5e11
"""Where the family does not get closer, more iterations are not worth their time. The work is that
of all iterations, in operations, and takes about a minute where there are many dense cells."""

_FAMILY_LOSS = 1e-4
"""About what the family itself loses where it is crossed with dense cells. Larger tolerances are
divided between this and the iteration."""

_LEAST_BOUND = 0.01
"""The least bound that a sweep is said to give, relative to the cost of the member it finds."""

_EARLY = 10
"""The iteration whose weights the ascent of the bound may begin with. The weights of the family's
optimum hardly count what no covariance of the family can use, which other covariances do."""

Start: TypeAlias = tuple[tuple[ChildCovariances, ...], ...]
"""Of each block, what a sweep starts from."""


class BoundWeights(NamedTuple):
    """Weights that prove a lower bound.

    Attributes:
        p: Of the leaves and dense cells, shape (|V|,).
        q: Of the rows, shape (rows,).
    """

    p: FloatArray
    q: FloatArray


@dataclass(frozen=True, eq=False)
class TreeMember:
    """The best member of a family of trees.

    Attributes:
        sweeps: Of each block, what the sweep found at the weights of the best member.
        p: The dual weights of the structure's differences, shape (|V|,): of the leaves and dense
            cells, and then of kinds of pairs or persons; or of the leaves, and then of `sets`.
        q: The dual weights of the rows, shape (rows,).
        upper: The objective at the targets.
        iterations: The number of sweeps.
        stopped: Whether the progress callback asked to stop.
        early: The weights of an early iteration, which may prove a better bound.
        sets: The differences over the dense cells that have weights, if they were searched for.
    """

    sweeps: tuple[Sweep, ...]
    p: FloatArray
    q: FloatArray
    upper: float
    iterations: int
    stopped: bool
    early: BoundWeights | None = None
    sets: RecordSets | None = None

    @property
    def ended(self) -> Ended:
        """Why the design ended: its bound holds for covariances outside the family too."""
        return "stopped" if self.stopped else "apart"

    @property
    def proving(self) -> list[BoundWeights]:
        """Weights that may prove a good bound."""
        last = BoundWeights(self.p, self.q)
        return [last] if self.early is None else [last, self.early]


def descend_trees(structure: TreeStructure, objective: Objective, options: Options) -> TreeMember:
    """Find the member of least objective at the targets.

    Args:
        structure: The structure.
        objective: What is made least.
        options: How to solve. The tolerance is the relative gap to the optimum of the family that
            ends the iteration, and progress is called with that gap.

    Raises:
        DesignError: If the targets differ by too many orders of magnitude.
    """
    tolerance = options.tolerance
    if structure.cells > 1:
        tolerance = max(tolerance / 2, min(tolerance, _FAMILY_LOSS))
    descent = TreeDescent(structure, objective, MIXING * tolerance)
    most = min(options.max_iterations, descent.count_worthwhile())
    found = descent.run(descent.first_weights, tolerance, most, options.progress)
    best = found.best_upper
    p, q = descent.split(best.x)
    return TreeMember(
        sweeps=descent.sweep(best.evaluation, p, q),
        p=p,
        q=q,
        upper=best.upper,
        iterations=found.iterations,
        stopped=found.stopped,
        early=descent.early,
    )


class SweepMap:
    """A fixed-point map. It keeps what the last sweeps found, from which the next ones start.

    Args:
        structure: The structure.
        mixing: The part of all weight that is spread evenly in each iteration.
        start: What the first sweep starts from.
    """

    def __init__(self, structure: TreeStructure, mixing: float, start: Start) -> None:
        self.mixing = mixing
        # Every group has the same part of the first weights, however many queries it has.
        repeats = structure.repeats
        sums = np.add.reduceat(repeats, structure.row_starts[:-1])
        shares = repeats / np.repeat(sums, np.diff(structure.row_starts))
        self.row_shares: FloatArray = shares / shares.sum()
        self._start = start
        self._merit = math.inf

    def conclude(
        self,
        x: FloatArray,
        following: FloatArray,
        sweeps: Sequence[Sweep],
        squares: tuple[float, float],
    ) -> Iterate[Start]:
        """Conclude an evaluation.

        Args:
            x: Where the map was evaluated.
            following: The weights that follow.
            sweeps: What the sweeps found.
            squares: The squares of the Lagrangian's merit and of the cost of the member.
        """
        start, self._start = self._start, tuple(sweep.steps for sweep in sweeps)
        merit, upper = map(math.sqrt, squares)
        # A sweep that has not reached the best member says too much of the bound.
        lower = merit - 2 * abs(merit - self._merit) if merit <= upper else 0.0
        self._merit = merit
        return Iterate(x, following, max(lower, _LEAST_BOUND * upper), upper, merit, start)


class TreeDescent(SweepMap):
    """The fixed-point map for one record."""

    def __init__(self, structure: TreeStructure, objective: Objective, mixing: float) -> None:
        self.structure = structure
        self.blocks: list[int] = structure.noisy_blocks.tolist()
        self.families = [self.build_family(block) for block in self.blocks]
        self.budgets = objective.budgets
        self.total_weight = objective.weight * structure.repeats
        # What the profile of each block is multiplied by.
        self.multiples: FloatArray = structure.subsets.profile_multiples[self.blocks]
        leaves = structure.tree.multiplicities[structure.tree.leaves].astype(np.float64)
        shares = np.repeat(leaves, structure.cells)
        self.cell_shares: FloatArray = shares / shares.sum()
        super().__init__(structure, mixing, tuple(family.start() for family in self.families))
        self._evaluations = 0
        self.early: BoundWeights | None = None

    def build_family(self, block: int) -> TreeFamily:
        """Build the family of a block."""
        return TreeFamily(self.structure, block)

    @property
    def first_weights(self) -> FloatArray:
        """Logarithms of weights that are equal for all cells, and for all queries of a group."""
        return self.normalise(np.log(np.concatenate([self.cell_shares, self.row_shares])))

    def run(
        self,
        start: FloatArray,
        tolerance: float,
        max_iterations: int,
        progress: GapProgress | None,
    ) -> FixedPoint[Start]:
        """Find the fixed point, from logarithms of weights."""
        return find_fixed_point(
            self.evaluate,
            self.normalise,
            start,
            tolerance=tolerance,
            max_iterations=max_iterations,
            progress=progress,
            merit_error=MERIT_ERROR,
            relaxation=RELAXATION,
        )

    def count_worthwhile(self) -> int:
        """Count the iterations that are worth their time."""
        worthwhile = int(_MOST_WORK / self.estimate_work())
        return max(_FEWEST_ITERATIONS, min(worthwhile, _MOST_ITERATIONS))

    def estimate_work(self) -> float:
        """Estimate the operations of one iteration."""
        nodes = np.bincount(to_positions(self.structure.tree.depths))
        return sum(
            float(nodes[depth]) * own.size**2 * (own.size + 100.0)
            for classes in self.structure.classes
            for depth, own in enumerate(classes)
        )

    def split_totals(self, sweeps: Sequence[Sweep]) -> bool:
        """Make the family larger, as `TreeFamily.split_totals` does, and say if it is larger."""
        self._start = tuple(
            family.split_totals(sweep.steps)
            for family, sweep in zip(self.families, sweeps, strict=True)
        )
        return any(isinstance(own, SplitCovariances) for one in self._start for own in one)

    def split(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Split logarithms of weights into p and q."""
        d = len(self.cell_shares)
        return np.exp(x[:d]), np.exp(x[d:])

    def normalise(self, x: FloatArray) -> FloatArray:
        """Scale p and q so that each sums to 1, on logarithms."""
        return normalise_pair(x, len(self.cell_shares))

    def sweep(self, start: Start, p: FloatArray, q: FloatArray) -> tuple[Sweep, ...]:
        """Sweep over the trees of all blocks at weights p (|V|,) and q (rows,)."""
        structure = self.structure
        weights = p if self.budgets is None else p / self.budgets
        cells = structure.tree.sum_leaves(weights.reshape(-1, structure.cells))
        rows = q / structure.targets + self.total_weight
        multiples = self.multiples
        return tuple(
            family.sweep(own, multiple * cells, rows)
            for family, own, multiple in zip(self.families, start, multiples, strict=True)
        )

    def evaluate(self, x: FloatArray) -> Iterate[Start] | None:
        """Evaluate the fixed-point map at logarithms of weights."""
        p, q = self.split(x)
        self._evaluations += 1
        if self._evaluations == _EARLY:
            self.early = BoundWeights(p, q)
        with np.errstate(all="ignore"):
            try:
                sweeps = self.sweep(self._start, p, q)
            except np.linalg.LinAlgError:
                return None
            g, h, total = self._measure(sweeps)
            cost, spread = float(p @ g), float(q @ h) + total
            if not (0 < cost < math.inf and 0 < spread < math.inf):
                return None
            following = np.concatenate(
                [
                    (p * g / cost + self.mixing * self.cell_shares) / (1 + self.mixing),
                    (q * (h + total) / spread + self.mixing * self.row_shares) / (1 + self.mixing),
                ]
            )
        upper = float(g.max()) * (float(h.max()) + total)
        return self.conclude(x, following, sweeps, (cost * spread, upper))

    def _measure(self, sweeps: Sequence[Sweep]) -> tuple[FloatArray, FloatArray, float]:
        """Measure the profile over the budgets, variances over targets, and the weighted total."""
        structure = self.structure
        g, variances = sum_profiles(structure, sweeps).ravel(), sum_variances(structure, sweeps)
        if self.budgets is not None:
            g = g / self.budgets
        return g, variances / structure.targets, float(self.total_weight @ variances)
