"""The optimum of a tree's family, as a fixed point of the dual weights.

For any weights p of the cells, weights of kinds of differences between neighbours, and weights q of
the rows, the Lagrangian has a best member in the family (`fitplug.families.tree.design.family`).
The optimum of the family is the best member at the fixed point of p <- p g / sum(p g), where g is
each cell's cost in the member. The same holds for the weights of kinds and, with the variances over
targets, for q, as for the optimum over all covariances (docs/theory/dual.md).

Each unit of privacy has a `TreeDescent`, which prices the profile and computes the costs of
differences.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np

from fitplug.certify import Ended
from fitplug.families.base.family import Duals
from fitplug.families.base.objective import Objective
from fitplug.families.tree.design.child_covariances import ChildCovariances
from fitplug.families.tree.design.family import (
    Prices,
    Sweep,
    TreeFamily,
    sum_profiles,
    sum_variances,
)
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.neighbours import RecordSets
from fitplug.numeric import FloatArray
from fitplug.solve import (
    MIXING,
    FixedPoint,
    GapProgress,
    Iterate,
    Options,
    find_fixed_point,
    normalise_logarithms,
)

_MERIT_ERROR = 1e-6
"""The relative error that one sweep may leave in the best member's Lagrangian."""

_FEWEST_ITERATIONS, _MOST_ITERATIONS, _MOST_WORK = 60, 400, 1.5e11
"""Limits on the iterations, since more are not worth their time if the family gets no closer: the
fewest, the most, and the most operations of all, which take about a minute with many dense
cells."""

_SWEEPS, _FEW = 3, 2e6
"""The sweeps per iteration for one record, if a sweep takes at most this many operations. After a
single sweep, covariances of nodes of very different sizes can be so far from the best that the
iteration ends at a bound that does not hold, 3% above the optimum of the family."""

_FAMILY_LOSS = 1e-4
"""The approximate loss of the family itself if it is crossed with dense cells. Larger tolerances
are divided between this and the iteration."""

_LEAST_BOUND = 0.01
"""The least bound reported for a sweep, relative to the cost of its member."""

_EARLY = 10
"""The iteration whose weights may start a better bound. The weights at the family's optimum nearly
ignore differences that only covariances outside the family can exploit."""

Start: TypeAlias = tuple[tuple[ChildCovariances, ...], ...]
"""For each block, the covariances from which a sweep starts."""


class Weights(NamedTuple):
    """The weights of the dual.

    Attributes:
        p: The weights of leaves and dense cells, or of leaves alone, shape (cells,).
        kinds: The weights of kinds of differences between neighbours, shape (kinds,); empty for one
            record.
        q: The weights of the rows, shape (rows,).
    """

    p: FloatArray
    kinds: FloatArray
    q: FloatArray

    @property
    def duals(self) -> Duals:
        """The dual weights of the structure."""
        return Duals(np.concatenate([self.p, self.kinds]), self.q)


class Costs(NamedTuple):
    """The squared costs of the differences between neighbours in a member of the family.

    Attributes:
        of_cells: The factor for the weight of each cell, shape (cells,). Its mean weighted by p is
            the mean cost of all differences.
        of_kinds: The mean cost of each kind of differences, shape (kinds,).
        largest: The largest cost, at least approximately.
    """

    of_cells: FloatArray
    of_kinds: FloatArray
    largest: float


@dataclass(frozen=True, eq=False)
class TreeMember:
    """The best member of a family of trees.

    Attributes:
        sweeps: For each block, the result of the sweep at the weights of the best member.
        duals: The dual weights of the structure, or of `sets`.
        upper: The objective at the targets.
        iterations: The number of sweeps.
        stopped: Whether the progress callback asked to stop.
        early: The weights of an early iteration, which may prove a better bound.
        sets: The differences over the dense cells with weights, if they were searched for.
    """

    sweeps: tuple[Sweep, ...]
    duals: Duals
    upper: float
    iterations: int
    stopped: bool
    early: Duals | None = None
    sets: RecordSets | None = None

    @property
    def ended(self) -> Ended:
        """Why the design ended; its bound also covers covariances outside the family."""
        return "stopped" if self.stopped else "apart"

    @property
    def proving(self) -> list[Duals]:
        """Weights that may prove a good bound."""
        return [self.duals] if self.early is None else [self.duals, self.early]


class TreeDescent(ABC):
    """The fixed-point map. It keeps the results of the last sweeps, from which the next start.

    Args:
        structure: The structure.
        mixing: The share of all weight to spread evenly in each iteration.
        cell_shares: The cells' shares of it, shape (cells,); they are scaled to sum to 1.
        kinds: The number of kinds of differences with weights.
    """

    takes_means: ClassVar[bool] = False
    """Whether costs are means over differences at the current weights. Then the largest cost does
    not bound other iterates, and the gap of an iterate is that between its own bounds."""

    def __init__(
        self, structure: TreeStructure, mixing: float, cell_shares: FloatArray, kinds: int = 0
    ) -> None:
        self.structure: TreeStructure = structure
        self.mixing = self.kind_mixing = mixing
        self.blocks: list[int] = structure.noisy_blocks.tolist()
        self.families = [TreeFamily(structure, block) for block in self.blocks]
        # The factor of each block's profile.
        self.multiples: FloatArray = structure.subsets.profile_multiples[self.blocks]
        # Every group has the same share of the first weights, however many queries it has.
        repeats = structure.repeats
        sums = np.add.reduceat(repeats, structure.row_starts[:-1])
        shares = repeats / np.repeat(sums, np.diff(structure.row_starts))
        self.shares = Weights(
            cell_shares / cell_shares.sum(),
            np.full(kinds, 1 / max(kinds, 1)),
            shares / shares.sum(),
        )
        self._start: Start = tuple(family.start() for family in self.families)
        self._merit = self._least = math.inf
        self.sweep_count = 1

    @abstractmethod
    def price(self, weights: Weights) -> Sequence[Prices]:
        """Find the prices of each block's profile."""

    @abstractmethod
    def measure_costs(self, sweeps: Sequence[Sweep], weights: Weights) -> Costs:
        """Compute the costs of differences between neighbours."""

    def measure_variances(self, sweeps: Sequence[Sweep]) -> FloatArray:
        """Compute the variances of the rows over their targets, shape (rows,)."""
        return sum_variances(self.structure, sweeps) / self.structure.targets

    def weigh_rows(self, q: FloatArray) -> FloatArray:
        """Compute the prices of the rows' variances, (rows,), from the rows' weights."""
        return q / self.structure.targets

    def estimate_work(self) -> float:
        """Estimate the operations of one iteration."""
        return sum(family.estimate_work() for family in self.families)

    def count_worthwhile(self) -> int:
        """Count the iterations that are worth their time."""
        worthwhile = int(_MOST_WORK / self.estimate_work())
        return max(_FEWEST_ITERATIONS, min(worthwhile, _MOST_ITERATIONS))

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
            merit_error=_MERIT_ERROR,
        )

    def find_best(self, tolerance: float, options: Options) -> TreeMember:
        """Find the best member, starting from the first weights."""
        most = min(options.max_iterations, self.count_worthwhile())
        return self.make_member(self.run(self.first_weights, tolerance, most, options.progress))

    def make_member(
        self, fixed_point: FixedPoint[Start], best: Iterate[Start] | None = None
    ) -> TreeMember:
        """Make the member of an iterate, by default the one of least cost."""
        best = best or fixed_point.best_upper
        weights = self.split(best.x)
        return TreeMember(
            sweeps=self.sweep(best.evaluation, weights),
            duals=weights.duals,
            upper=best.upper,
            iterations=fixed_point.iterations,
            stopped=fixed_point.stopped,
        )

    @property
    def first_weights(self) -> FloatArray:
        """Logarithms of initial weights: equal for all cells, kinds, and queries of a group."""
        return self.normalise(np.log(np.concatenate(self.shares)))

    def split(self, x: FloatArray) -> Weights:
        """Split logarithms of weights."""
        d = len(self.shares.p)
        last = d + len(self.shares.kinds)
        return Weights(np.exp(x[:d]), np.exp(x[d:last]), np.exp(x[last:]))

    def normalise(self, x: FloatArray) -> FloatArray:
        """Scale p, the weights of the kinds and q so that each sums to 1, on logarithms."""
        d = len(self.shares.p)
        last = d + len(self.shares.kinds)
        p, *others = x[:d], x[d:last], x[last:]
        scaled = (normalise_logarithms(part) for part in others if part.size)
        return np.concatenate([self.normalise_cells(p), *scaled])

    def normalise_cells(self, p: FloatArray) -> FloatArray:
        """Scale p so that it sums to 1, on logarithms."""
        return normalise_logarithms(p)

    def sweep(self, start: Start, weights: Weights) -> tuple[Sweep, ...]:
        """Make the sweeps of one iteration over the trees of all blocks."""
        rows, prices = self.weigh_rows(weights.q), self.price(weights)
        sweeps: tuple[Sweep, ...] = ()
        for _ in range(self.sweep_count):
            sweeps = tuple(
                family.sweep(before, price, rows)
                for family, before, price in zip(self.families, start, prices, strict=True)
            )
            start = tuple(sweep.steps for sweep in sweeps)
        return sweeps

    def evaluate(self, x: FloatArray) -> Iterate[Start] | None:
        """Evaluate the fixed-point map at logarithms of weights."""
        weights = self.split(x)
        with np.errstate(all="ignore"):
            try:
                sweeps = self.sweep(self._start, weights)
            except np.linalg.LinAlgError:
                return None
            costs, h = self.measure_costs(sweeps, weights), self.measure_variances(sweeps)
            cost, spread = float(weights.p @ costs.of_cells), float(weights.q @ h)
            if not (0 < cost < math.inf and 0 < spread < math.inf):
                return None
            following = np.concatenate(
                [
                    (weight * gained / float(weight @ gained) + mixing * share) / (1 + mixing)
                    for weight, gained, share, mixing in zip(
                        weights,
                        (costs.of_cells, costs.of_kinds, h),
                        self.shares,
                        (self.mixing, self.kind_mixing, self.mixing),
                        strict=True,
                    )
                    if weight.size
                ]
            )
        start, self._start = self._start, tuple(sweep.steps for sweep in sweeps)
        merit, upper = math.sqrt(cost * spread), math.sqrt(costs.largest * float(h.max()))
        # A sweep that has not reached the best member overstates the bound.
        lower = merit - 2 * abs(merit - self._merit) if merit <= upper else 0.0
        self._merit = merit
        if self.takes_means:
            self._least = min(self._least, upper)
            lower *= self._least / upper
        return Iterate(x, following, max(lower, _LEAST_BOUND * upper), upper, merit, start)


def share_among_cells(structure: TreeStructure) -> FloatArray:
    """Count the identical leaves for each leaf and dense cell, shape (leaves * D,)."""
    tree = structure.tree
    return np.repeat(tree.multiplicities[tree.leaves].astype(np.float64), structure.cells)


def descend_trees(structure: TreeStructure, objective: Objective, options: Options) -> TreeMember:
    """Find the member of least objective at the targets.

    Args:
        structure: The structure.
        objective: The objective to minimise.
        options: How to solve. The tolerance is the relative gap to the family's optimum at which
            the iteration ends, and progress is called with this gap.

    Raises:
        DesignError: If the targets differ by too many orders of magnitude.
    """
    tolerance = options.tolerance
    if structure.cells > 1:
        tolerance = max(tolerance / 2, min(tolerance, _FAMILY_LOSS))
    descent = RecordDescent(structure, objective, MIXING * tolerance)
    best = descent.find_best(tolerance, options)
    return replace(best, early=descent.early)


class RecordDescent(TreeDescent):
    """The fixed-point map for one record, whose cells have weights."""

    def __init__(self, structure: TreeStructure, objective: Objective, mixing: float) -> None:
        super().__init__(structure, mixing, share_among_cells(structure))
        self._budgets = objective.budgets
        self._total_weight = objective.weight * structure.repeats
        self.sweep_count = _SWEEPS if self.estimate_work() <= _FEW else 1
        self._evaluations = 0
        self.early: Duals | None = None

    def evaluate(self, x: FloatArray) -> Iterate[Start] | None:
        self._evaluations += 1
        if self._evaluations == _EARLY:
            self.early = self.split(x).duals
        return super().evaluate(x)

    def price(self, weights: Weights) -> Sequence[Prices]:
        p = weights.p if self._budgets is None else weights.p / self._budgets
        cells = self.structure.tree.sum_leaves(p.reshape(-1, self.structure.cells))
        return [
            Prices(family.price_cells(multiple * cells))
            for family, multiple in zip(self.families, self.multiples, strict=True)
        ]

    def weigh_rows(self, q: FloatArray) -> FloatArray:
        return super().weigh_rows(q) + self._total_weight

    def measure_costs(self, sweeps: Sequence[Sweep], weights: Weights) -> Costs:
        g = sum_profiles(self.structure, sweeps).ravel()
        if self._budgets is not None:
            g = g / self._budgets
        return Costs(g, weights.kinds, float(g.max()))

    def measure_variances(self, sweeps: Sequence[Sweep]) -> FloatArray:
        # The weighted total of all variances is added to each one.
        variances = sum_variances(self.structure, sweeps)
        return variances / self.structure.targets + float(self._total_weight @ variances)
