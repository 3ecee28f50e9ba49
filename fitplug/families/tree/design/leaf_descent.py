"""The best member of a tree's family for persons whose records are all in one leaf.

The dual has a weight for each leaf, and one for each of some differences over the dense cells. The
costliest differences of the best member join the others, until they cost no more than those do, as
where blocks are matrices (`fitplug.families.blocks.design.persons`).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fitplug.families.tree.design.child_covariances import (
    ChildCovariances,
    IdenticalCovariances,
    KroneckerCovariances,
)
from fitplug.families.tree.design.descent import MERIT_ERROR, Start, TreeMember
from fitplug.families.tree.design.family import Sweep, TreeFamily
from fitplug.families.tree.design.person_descent import PersonDescent
from fitplug.families.tree.shape.persons import PersonTreeStructure
from fitplug.neighbours import (
    RecordProducts,
    RecordSets,
    build_record_products,
    find_costly_differences,
    list_single_records,
)
from fitplug.numeric import FloatArray
from fitplug.solve import MIXING, Options, find_fixed_point
from fitplug.workload import CellClasses

_RIDGE = 1e-10
"""The least eigenvalue of a moment, relative to the largest: nothing is measured for free."""


class LeafFamily(TreeFamily):
    """The family of a block.

    Args:
        structure: The structure, whose periods are dense cells.
        block: The block.
    """

    def __init__(self, structure: PersonTreeStructure, block: int) -> None:
        super().__init__(structure, block)
        self._factors: list[FloatArray] = []

    def sweep_moment(
        self,
        start: tuple[ChildCovariances, ...],
        masses: FloatArray,
        moments: tuple[FloatArray, FloatArray],
        rows: FloatArray,
    ) -> Sweep:
        """Find the covariances of every node's children.

        Args:
            start: What the sweep before this one found.
            masses: The weights p of the leaves below each node, shape (N,).
            moments: M at the root, and below it, shape (D, D).
            rows: The weights q of the structure's rows, over their targets, shape (rows,).
        """
        self._factors = [
            _factor(merge_moments(own, moments[min(depth, 1)]))
            for depth, own in enumerate(self.classes)
        ]
        return self.sweep(start, masses[:, None], rows)

    def measure_costs(self, sweep: Sweep, moments: tuple[FloatArray, FloatArray]) -> FloatArray:
        """Compute tr(M_v Sigma^-1) of differences v at each leaf.

        Args:
            sweep: What a sweep found.
            moments: M_v at the root, and below it, shape (v, D, D).

        Returns:
            Shape (leaves, v).
        """
        merged = [
            merge_moments(own, moments[min(depth, 1)]) for depth, own in enumerate(self.classes)
        ]
        found = np.zeros((self._tree.size, len(moments[0])))
        found[0] = np.tensordot(merged[0], sweep.root[1], 2)
        for i, step in enumerate(self._tree.steps):
            found[step.children] = found[step.parents, None]
            if i < len(self.steps):
                multiples, precisions = _divide(sweep.steps[i])
                own = np.tensordot(precisions, merged[step.depth], ((1, 2), (1, 2)))
                found[step.children] += multiples[:, :, None] * own[:, None]
        return found[self._tree.leaves]

    def average_precisions(self, sweep: Sweep, masses: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Average Sigma^-1 over the leaves, by the weights below nodes (N,).

        Returns:
            What the root adds, and what the nodes below it add, shape (D, D).
        """
        total = np.zeros((len(self.classes[0].of_cell),) * 2)
        for step, own in zip(self.steps, sweep.steps, strict=True):
            multiples, precisions = _divide(own)
            weights = (masses[step.children] * multiples).sum(axis=1) / masses[0]
            total = total + _expand(self.classes[step.depth], np.tensordot(weights, precisions, 1))
        return _expand(self.classes[0], sweep.root[1]), total

    def _weigh_profile(self, depth: int, cells: FloatArray) -> FloatArray:
        return np.repeat(cells, self._factors[depth].shape[1], axis=1)

    def _get_factor(self, depth: int) -> FloatArray | None:
        return self._factors[depth]


def merge_moments(classes: CellClasses, moments: FloatArray) -> FloatArray:
    """Sum moments (..., D, D) by class, (..., r, r)."""
    half = classes.merge_counts(moments).swapaxes(-1, -2)
    return np.asarray(classes.merge_counts(half))


def _divide(own: ChildCovariances) -> tuple[FloatArray, FloatArray]:
    """Divide X (x) Y of nodes into the diagonals of X, (b, k), and Y, (b, r, r)."""
    if isinstance(own, IdenticalCovariances):
        return (1 - 1 / own.counts)[:, None], own.precisions
    assert isinstance(own, KroneckerCovariances)
    return own.siblings.found.profiles, own.precisions


def _factor(moment: FloatArray) -> FloatArray:
    """Factor a moment, (r, r)."""
    values, vectors = np.linalg.eigh(moment)
    return np.asarray(vectors * np.sqrt(np.maximum(values, _RIDGE * values[-1:])))


def _expand(classes: CellClasses, values: FloatArray) -> FloatArray:
    """Spread values (r, r) of classes to the dense cells, (D, D); 0 where there is none."""
    padded = np.pad(values, (0, 1))
    return np.asarray(padded[np.ix_(classes.of_cell, classes.of_cell)])


_ROUNDS = 12
"""The most times that differences are added."""

_STEPS = 40
"""The most iterations of a round."""

_FEWEST_ITERATIONS, _MOST_WORK = 60, 4e10
"""The fewest iterations, and the most work of all, about half a minute."""

_MANY_CELLS = 64
"""With more dense cells, fewer windows of periods have weights from the start."""

_NEW_SHARE = 0.1
"""The part of all weight that new differences begin with."""

_LEAST_MIXING = 1e-3
"""The part of all weight of differences that is spread evenly: what no difference that has a weight
costs anything for would be measured with infinite precision."""

_VIOLATED = 0.25
"""The part of the tolerance by which differences that are added cost more than the others."""


def descend_leaf_persons(structure: PersonTreeStructure, options: Options) -> TreeMember:
    """Find the member of least cost at the targets, for persons with all records in one leaf.

    Args:
        structure: The structure, whose periods are dense cells.
        options: How to solve. The tolerance is the relative gap to the optimum of the family that
            ends the iteration, and progress is called with that gap.

    Returns:
        The member. Its p has the weights of the leaves, and then those of its `sets`.

    Raises:
        DesignError: If the targets differ by too many orders of magnitude.
    """
    windows = _list_windows(structure)
    sets = list_single_records(structure.person).append(windows).append(scatter(windows))
    sets = sets.leave_out()
    x: FloatArray | None = None
    worthwhile = max(_FEWEST_ITERATIONS, int(_MOST_WORK / _estimate_work(structure)))
    max_iterations, tolerance = min(options.max_iterations, worthwhile), options.tolerance
    sweeps: tuple[Sweep, ...] = ()
    upper, lower, iterations, stopped = math.inf, 0.0, 0, False
    for _ in range(_ROUNDS):
        descent = LeafDescent(structure, MIXING * tolerance, sets)
        found = find_fixed_point(
            descent.evaluate,
            descent.normalise,
            descent.first_weights if x is None else x,
            tolerance=tolerance,
            max_iterations=min(_STEPS, max_iterations - iterations),
            progress=options.progress,
            merit_error=MERIT_ERROR,
        )
        iterations, stopped = iterations + found.iterations, stopped or found.stopped
        if found.best_lower.lower > lower:
            lower, proving = found.best_lower.lower, (sets, found.best_lower.x)
        x = found.best_upper.x
        p, of_sets, q = descent.split(x)
        here = descent.sweep(found.best_upper.evaluation, p, of_sets, q)
        products = descent.multiply_records(here, p)
        costly = find_varied_differences(products, max(8, 2 * structure.period_count))
        costs = products.compute_costs(costly) * float(descent.measure_variances(here).max())
        reached = max(found.best_upper.upper, math.sqrt(float(costs.max())))
        least = found.best_upper.merit**2 * (1 + _VIOLATED * tolerance)
        costly = costly.take(costs > least)
        new = costly.append(scatter(costly)).leave_out(sets)
        if reached < upper:
            upper, sweeps = reached, here
        if stopped or not len(new) or iterations >= max_iterations:
            break
        of_new = np.full(len(new), _NEW_SHARE / len(new))
        of_sets = np.concatenate([of_sets * (1 - _NEW_SHARE), of_new])
        x = np.log(np.concatenate([p, of_sets, q]))
        sets = sets.append(new)
    d = len(structure.tree.leaves)
    sets, x = proving
    return TreeMember(
        sweeps=sweeps,
        p=np.exp(x[: d + len(sets)]),
        q=np.exp(x[d + len(sets) :]),
        upper=upper,
        iterations=iterations,
        stopped=stopped,
        sets=sets,
    )


def find_varied_differences(products: RecordProducts, most: int) -> RecordSets:
    """Find costly differences that differ from each other.

    They are costly ones of all, and with and without each period. The costliest of all are almost
    equal to each other, and a design that heeds them alone makes others costly.

    Args:
        products: The products of records, as floats.
        most: How many of all are wanted, about.
    """
    found = find_costly_differences(products, most)
    # More than what all records of a person can gain or cost together.
    size = 2 * products.person.most * float(np.abs(products.products).max())
    for period in range(products.person.period_count):
        at = np.flatnonzero(products.person.periods == period)
        for more in (size, -size):
            changed = products.products.copy()
            changed[:, at, at] += more
            costly = find_costly_differences(replace(products, products=changed), 1)
            found = found.append(costly.leave_out(found))
    return found


def _estimate_work(structure: PersonTreeStructure) -> float:
    """Estimate the operations of an iteration, where about 200 differences have weights."""
    tree, parents = structure.tree, sum(len(step.parents) for step in structure.tree.steps)
    return len(structure.blocks) * (50.0 * parents * structure.cells**3 + 200.0 * tree.size)


def _list_windows(structure: PersonTreeStructure) -> RecordSets:
    """List persons with records in one leaf in successive periods, the first after the last."""
    k, T, periods = structure.most_records, structure.period_count, structure.periods
    # The dense cells of each period are in the same order of everything else.
    by_period = np.argsort(periods, kind="stable").reshape(T, -1)
    lengths = sorted({min(2, k), -(-k // 2), max(k - 1, 1), k})
    found = []
    for length in lengths if structure.cells <= _MANY_CELLS else [k]:
        chosen = (np.arange(T)[:, None] + np.arange(length)) % T
        cells = by_period[chosen].transpose(0, 2, 1).reshape(-1, length)
        found.append(np.pad(cells, ((0, 0), (0, k - length)), constant_values=-1))
    cells = np.concatenate(found)
    labels = np.zeros((*cells.shape, len(structure.person.sizes)), dtype=np.int64)
    return RecordSets(cells, labels)


def scatter(sets: RecordSets) -> RecordSets:
    """Give each record of differences a leaf that is drawn apart."""
    labels = sets.labels.copy()
    labels[:, :, -1] = np.where(sets.cells >= 0, np.arange(sets.cells.shape[1]), 0)
    return RecordSets(sets.cells, labels)


class LeafDescent(PersonDescent):
    """The fixed-point map for some differences over the dense cells.

    Args:
        structure: The structure, whose periods are dense cells.
        mixing: The part of all weight that is spread evenly in each iteration.
        sets: The differences.
    """

    def __init__(self, structure: PersonTreeStructure, mixing: float, sets: RecordSets) -> None:
        self.families = [LeafFamily(structure, block) for block in range(len(structure.blocks))]
        self.moments = [
            write_moments(structure, sets, attributes) for attributes in structure.block_sets
        ]
        leaves = structure.tree.multiplicities[structure.tree.leaves].astype(np.float64)
        start = tuple(family.start() for family in self.families)
        super().__init__(structure, mixing, start, leaves, len(sets))
        self.kind_mixing = max(mixing, _LEAST_MIXING)

    def sweep(
        self, start: Start, p: FloatArray, kinds: FloatArray, q: FloatArray
    ) -> tuple[Sweep, ...]:
        masses, rows = self.structure.tree.sum_leaves(p), q / self.structure.targets
        return tuple(
            family.sweep_moment(
                own, masses, (np.tensordot(kinds, root, 1), np.tensordot(kinds, below, 1)), rows
            )
            for family, own, (root, below) in zip(self.families, start, self.moments, strict=True)
        )

    def measure_costs(
        self, sweeps: tuple[Sweep, ...], p: FloatArray, kinds: FloatArray
    ) -> tuple[FloatArray, FloatArray, float]:
        every = sum(
            family.measure_costs(sweep, moments)
            for family, sweep, moments in zip(self.families, sweeps, self.moments, strict=True)
        )
        assert not isinstance(every, int)
        return every @ kinds, p @ every, float(every.max())

    def multiply_records(self, sweeps: tuple[Sweep, ...], p: FloatArray) -> RecordProducts:
        """Compute the products of records, on average over the leaves."""
        structure, masses = self.structure, self.structure.tree.sum_leaves(p)
        person = structure.person
        parts, leaf = [], len(person.sizes) - 1
        for attributes, family, sweep in zip(
            structure.block_sets, self.families, sweeps, strict=True
        ):
            root, below = family.average_precisions(sweep, masses)
            parts += [(attributes, root), ((*attributes, leaf), below)]
        equal, other = ([x - 1 / n for n in person.sizes[:-1]] for x in (1, 0))
        return build_record_products(person, parts, [*equal, 1.0], [*other, 0.0])


def write_moments(
    structure: PersonTreeStructure, sets: RecordSets, attributes: tuple[int, ...]
) -> tuple[FloatArray, FloatArray]:
    """Write out M_A of differences over the dense cells at the root, and below it, (v, D, D)."""
    sizes = (*structure.person.sizes[:-1], math.inf)
    every, found = np.arange(len(sets))[:, None, None], []
    for own in (attributes, (*attributes, len(sizes) - 1)):
        moments = np.zeros((len(sets), structure.cells + 1, structure.cells + 1))
        products = sets.multiply_labels(own, sizes)
        moments[every, sets.cells[:, :, None], sets.cells[:, None]] = products
        found.append(moments[:, :-1, :-1])  # padding has the cell -1
    return found[0], found[1]
