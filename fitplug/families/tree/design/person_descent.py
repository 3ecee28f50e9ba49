"""The best member of a tree's family for kinds of persons with several records.

Persons of the kinds of `fitplug.families.tree.shape.persons` count nodes of each depth with other
weights than one record does. The terms p_j p_j' of their moments at the children of a node are left
out: a strategy that spreads a node over its children in proportion to p does not measure them. So
the sweeps of `fitplug.families.tree.design.family` find the best member, with p times a weight for
each depth and block. The fixed point has a weight for each kind beside p and q.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np

from fitplug.families.tree.design.descent import MERIT_ERROR, Start, SweepMap, TreeMember
from fitplug.families.tree.design.family import Sweep, TreeFamily, sum_variances
from fitplug.families.tree.shape.persons import PersonTreeStructure
from fitplug.numeric import FloatArray
from fitplug.solve import MIXING, Iterate, Options, find_fixed_point, normalise_logarithms

_MOST_ITERATIONS, _FEWEST_ITERATIONS, _MOST_NUMBERS = 400, 60, 4e9
"""The most and fewest iterations, and the most numbers of all iterations, about two minutes."""

_LEAST_WEIGHT = 1e-9
"""The least weight of a depth, relative to that of the last one: months that nobody's records tell
apart would be measured with infinite precision."""


def descend_person_trees(structure: PersonTreeStructure, options: Options) -> TreeMember:
    """Find the member of least cost at the targets, for the kinds of persons.

    Args:
        structure: The structure, with symmetric periods.
        options: How to solve. The tolerance is the relative gap to the optimum of the family that
            ends the iteration, and progress is called with that gap.

    Returns:
        The member. Its p has the weights of the cells, and then those of the kinds.

    Raises:
        DesignError: If the targets differ by too many orders of magnitude.
    """
    descent = KindDescent(structure, MIXING * options.tolerance)
    numbers = structure.tree.size * len(structure.blocks) * structure.cells**3 * 100.0
    worthwhile = max(_FEWEST_ITERATIONS, min(int(_MOST_NUMBERS / numbers), _MOST_ITERATIONS))
    found = find_fixed_point(
        descent.evaluate,
        descent.normalise,
        descent.first_weights,
        tolerance=options.tolerance,
        max_iterations=min(options.max_iterations, worthwhile),
        progress=options.progress,
        merit_error=MERIT_ERROR,
    )
    best = found.best_upper
    p, kinds, q = descent.split(best.x)
    return TreeMember(
        sweeps=descent.sweep(best.evaluation, p, kinds, q),
        p=np.concatenate([p, kinds]),
        q=q,
        upper=best.upper,
        iterations=found.iterations,
        stopped=found.stopped,
    )


class PersonDescent(SweepMap, ABC):
    """The fixed-point map for some kinds of persons, or differences.

    Args:
        structure: The structure.
        mixing: The part of all weight that is spread evenly in each iteration.
        start: What the first sweep starts from.
        cell_shares: The parts of the leaves, or of the leaves and dense cells, in this.
        kinds: The number of kinds of persons, or of differences.
    """

    def __init__(
        self,
        structure: PersonTreeStructure,
        mixing: float,
        start: Start,
        cell_shares: FloatArray,
        kinds: int,
    ) -> None:
        super().__init__(structure, mixing, start)
        self.structure, self.kind_mixing = structure, mixing
        self.cell_shares = cell_shares / cell_shares.sum()
        self.kind_shares: FloatArray = np.full(kinds, 1 / kinds)

    @abstractmethod
    def sweep(
        self, start: Start, p: FloatArray, kinds: FloatArray, q: FloatArray
    ) -> tuple[Sweep, ...]:
        """Sweep over the trees of all blocks at some weights."""

    @abstractmethod
    def measure_costs(
        self, sweeps: tuple[Sweep, ...], p: FloatArray, kinds: FloatArray
    ) -> tuple[FloatArray, FloatArray, float]:
        """Measure what persons cost on average.

        Returns:
            By cell, over the weights of the kinds, shape (cells,); by kind, over those of the
            cells, shape (kinds,); and the most of all cells and kinds.
        """

    @property
    def first_weights(self) -> FloatArray:
        """Logarithms of weights that are equal for all cells and kinds, and queries of a group."""
        return np.log(np.concatenate([self.cell_shares, self.kind_shares, self.row_shares]))

    def split(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Split logarithms of weights into p of the cells, those of the kinds, and q."""
        d = len(self.cell_shares)
        last = d + len(self.kind_shares)
        return np.exp(x[:d]), np.exp(x[d:last]), np.exp(x[last:])

    def normalise(self, x: FloatArray) -> FloatArray:
        """Scale each of the three so that it sums to 1, on logarithms."""
        d = len(self.cell_shares)
        last = d + len(self.kind_shares)
        return np.concatenate([normalise_logarithms(own) for own in (x[:d], x[d:last], x[last:])])

    def evaluate(self, x: FloatArray) -> Iterate[Start] | None:
        """Evaluate the fixed-point map at logarithms of weights."""
        p, kinds, q = self.split(x)
        with np.errstate(all="ignore"):
            try:
                sweeps = self.sweep(self._start, p, kinds, q)
            except np.linalg.LinAlgError:
                return None
            of_cells, of_kinds, most = self.measure_costs(sweeps, p, kinds)
            h = self.measure_variances(sweeps)
            cost, spread = float(p @ of_cells), float(q @ h)
            if not (0 < cost < math.inf and 0 < spread < math.inf):
                return None
            following = np.concatenate(
                [
                    (own * gained / float(own @ gained) + mixing * share) / (1 + mixing)
                    for own, gained, share, mixing in (
                        (p, of_cells, self.cell_shares, self.mixing),
                        (kinds, of_kinds, self.kind_shares, self.kind_mixing),
                        (q, h, self.row_shares, self.mixing),
                    )
                ]
            )
        upper = most * float(h.max())
        return self.conclude(x, following, sweeps, (cost * spread, upper))

    def measure_variances(self, sweeps: tuple[Sweep, ...]) -> FloatArray:
        """Measure the variances of the rows over their targets."""
        return sum_variances(self.structure, sweeps) / self.structure.targets


class KindDescent(PersonDescent):
    """The fixed-point map for kinds of persons, where periods are symmetric."""

    def __init__(self, structure: PersonTreeStructure, mixing: float) -> None:
        blocks = range(len(structure.blocks))
        self.families = [TreeFamily(structure, block) for block in blocks]
        self.scales = [structure.weigh_kinds(block) for block in blocks]
        leaves = structure.tree.multiplicities[structure.tree.leaves].astype(np.float64)
        shares = np.repeat(leaves, structure.cells)
        start = tuple(family.start() for family in self.families)
        super().__init__(structure, mixing, start, shares, len(structure.kinds))

    def sweep(
        self, start: Start, p: FloatArray, kinds: FloatArray, q: FloatArray
    ) -> tuple[Sweep, ...]:
        structure = self.structure
        cells = structure.tree.sum_leaves(p.reshape(-1, structure.cells))
        rows = q / structure.targets
        multiples = structure.subsets.profile_multiples
        found = []
        for family, own, multiple, scales in zip(
            self.families, start, multiples, self.scales, strict=True
        ):
            weights = kinds @ scales
            weights = np.maximum(weights, _LEAST_WEIGHT * weights[-1])
            by_node = multiple * weights[structure.tree.depths]
            found.append(family.sweep(own, by_node[:, None] * cells, rows))
        return tuple(found)

    def measure_costs(
        self, sweeps: tuple[Sweep, ...], p: FloatArray, kinds: FloatArray
    ) -> tuple[FloatArray, FloatArray, float]:
        depths = self.scales[0].shape[1]
        by_depth = np.zeros((len(p), depths))
        of_cells, of_kinds = np.zeros(len(p)), np.zeros(len(kinds))
        every = np.zeros((len(p), len(kinds)))
        multiples = self.structure.subsets.profile_multiples.tolist()
        for family, sweep, scales, multiple in zip(
            self.families, sweeps, self.scales, multiples, strict=True
        ):
            by_depth = multiple * family.divide_profile(sweep, depths)
            of_cells += by_depth @ (kinds @ scales)
            of_kinds += scales @ (p @ by_depth)
            every += by_depth @ scales.T
        return of_cells, of_kinds, float(every.max())
