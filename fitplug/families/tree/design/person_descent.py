"""The optimum of a tree's family for a person with several records, at most one in each period.

**Symmetric periods.** For the kinds of persons of `fitplug.families.tree.shape.persons`, nodes of
each depth have other weights than for one record. The terms p_j p_j' of their moments at the
children of a node are omitted: a strategy that spreads a node over its children in proportion to p
does not measure them. So the best member is that for one record, with p times a weight for each
depth and block.

**Periods as dense cells.** The dual has a weight for each leaf, and one for each of some
differences over the dense cells. The costliest differences of the best member are added until none
costs more than the named ones, as for blocks that are matrices
(`fitplug.families.blocks.design.columns`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fitplug.families.tree.design.descent import (
    Costs,
    TreeDescent,
    TreeMember,
    Weights,
    share_among_cells,
)
from fitplug.families.tree.design.family import Prices, Sweep, TreeFamily
from fitplug.families.tree.shape.persons import PersonTreeStructure
from fitplug.neighbours import (
    RecordProducts,
    RecordSets,
    build_record_products,
    find_costly_differences,
    list_single_records,
)
from fitplug.numeric import FloatArray
from fitplug.solve import MIXING, Options
from fitplug.workload import CellClasses

_LEAST_WEIGHT = 1e-9
"""The least weight of a depth, relative to the last depth's. With weight 0, a depth at which no
person costs anything would be measured with infinite precision."""

_RIDGE = 1e-10
"""The least eigenvalue of a moment, relative to the largest, so that no measurement is free."""

_ROUNDS, _STEPS = 12, 40
"""The most rounds in which differences are added, and the most iterations of each."""

_MANY_CELLS = 64
"""With more dense cells, fewer windows of periods have initial weights."""

_NEW_SHARE = 0.1
"""The share of all weight with which new differences start."""

_LEAST_MIXING = 1e-3
"""The share of all weight of differences to spread evenly. Without it, directions in which no
weighted difference has a cost would be measured with infinite precision."""

_VIOLATED = 0.25
"""The share of the tolerance by which added differences must cost more than the others."""


def descend_person_trees(structure: PersonTreeStructure, options: Options) -> TreeMember:
    """Find the member of least cost at the targets.

    Args:
        structure: The structure.
        options: How to solve. The tolerance is the relative gap to the family's optimum at which
            the iteration ends, and progress is called with this gap.

    Returns:
        The member. p of its dual weights has the weights of the cells and then of the kinds or, if
        periods are dense cells, the weights of the leaves and then of its `sets`.

    Raises:
        DesignError: If the targets differ by too many orders of magnitude.
    """
    if structure.sets is not None:
        return _descend_sets(structure, options)
    descent = KindDescent(structure, MIXING * options.tolerance)
    return descent.find_best(options.tolerance, options)


class KindDescent(TreeDescent):
    """The fixed-point map for kinds of persons, with symmetric periods."""

    structure: PersonTreeStructure

    def __init__(self, structure: PersonTreeStructure, mixing: float) -> None:
        super().__init__(structure, mixing, share_among_cells(structure), len(structure.kinds))
        self._scales = [structure.weigh_kinds(block) for block in self.blocks]

    def estimate_work(self) -> float:
        structure = self.structure
        return structure.tree.size * len(structure.blocks) * structure.cells**3 * 3750.0

    def price(self, weights: Weights) -> Sequence[Prices]:
        tree = self.structure.tree
        cells = tree.sum_leaves(weights.p.reshape(-1, self.structure.cells))
        prices = []
        for family, multiple, scales in zip(
            self.families, self.multiples, self._scales, strict=True
        ):
            by_depth = weights.kinds @ scales
            by_depth = np.maximum(by_depth, _LEAST_WEIGHT * by_depth[-1])
            by_node = multiple * by_depth[tree.depths]
            prices.append(Prices(family.price_cells(by_node[:, None] * cells)))
        return prices

    def measure_costs(self, sweeps: Sequence[Sweep], weights: Weights) -> Costs:
        (p, kinds, _), depths = weights, self._scales[0].shape[1]
        of_cells, of_kinds = np.zeros(len(p)), np.zeros(len(kinds))
        every = np.zeros((len(p), len(kinds)))
        for family, sweep, scales, multiple in zip(
            self.families, sweeps, self._scales, self.multiples, strict=True
        ):
            by_depth = multiple * family.divide_profile(sweep, depths)
            of_cells += by_depth @ (kinds @ scales)
            of_kinds += scales @ (p @ by_depth)
            every += by_depth @ scales.T
        return Costs(of_cells, of_kinds, float(every.max()))


def _descend_sets(structure: PersonTreeStructure, options: Options) -> TreeMember:
    """Find the member of least cost with periods as dense cells."""
    windows = _list_windows(structure)
    sets = list_single_records(structure.person).append(windows).append(scatter(windows))
    sets = sets.leave_out()
    x: FloatArray | None = None
    tolerance, iterations, lower = options.tolerance, 0, 0.0
    best: TreeMember | None = None
    for _ in range(_ROUNDS):
        descent = SetDescent(structure, MIXING * tolerance, sets)
        most = min(options.max_iterations, descent.count_worthwhile())
        start = descent.first_weights if x is None else x
        solution = descent.run(start, tolerance, min(_STEPS, most - iterations), options.progress)
        iterations += solution.iterations
        if solution.best_lower.lower > lower:
            lower, proving = solution.best_lower.lower, (sets, descent.split(solution.best_lower.x))
        member, weights = descent.make_member(solution), descent.split(solution.best_upper.x)
        products = descent.multiply_records(member.sweeps, weights.p)
        costly = find_varied_differences(products, max(8, 2 * structure.period_count))
        spread = float(descent.measure_variances(member.sweeps).max())
        costs = products.compute_costs(costly) * spread
        reached = max(member.upper, math.sqrt(float(costs.max())))
        if best is None or reached < best.upper:
            best = replace(member, upper=reached)
        least = solution.best_upper.merit**2 * (1 + _VIOLATED * tolerance)
        costly = costly.take(costs > least)
        new = costly.append(scatter(costly)).leave_out(sets)
        if solution.stopped or not len(new) or iterations >= most:
            break
        of_new = np.full(len(new), _NEW_SHARE / len(new))
        kinds = np.concatenate([weights.kinds * (1 - _NEW_SHARE), of_new])
        x = np.log(np.concatenate([weights.p, kinds, weights.q]))
        sets = sets.append(new)
    assert best is not None
    sets, weights = proving
    return replace(
        best, duals=weights.duals, iterations=iterations, stopped=solution.stopped, sets=sets
    )


class SetDescent(TreeDescent):
    """The fixed-point map for some differences over the dense cells.

    Args:
        structure: The structure, whose periods are dense cells.
        mixing: The share of all weight to spread evenly in each iteration.
        sets: The differences.
    """

    structure: PersonTreeStructure

    def __init__(self, structure: PersonTreeStructure, mixing: float, sets: RecordSets) -> None:
        tree = structure.tree
        leaves = tree.multiplicities[tree.leaves].astype(np.float64)
        super().__init__(structure, mixing, leaves, len(sets))
        self.kind_mixing = max(mixing, _LEAST_MIXING)
        self._moments = [
            _write_moments(structure, sets, attributes) for attributes in structure.block_sets
        ]

    def estimate_work(self) -> float:
        # Some 200 differences have weights.
        structure, tree = self.structure, self.structure.tree
        parents = sum(len(step.parents) for step in tree.steps)
        work = 50.0 * parents * structure.cells**3 + 200.0 * tree.size
        return len(structure.blocks) * work * 3.75

    def price(self, weights: Weights) -> Sequence[Prices]:
        masses, prices = self.structure.tree.sum_leaves(weights.p), []
        for family, moments in zip(self.families, self._moments, strict=True):
            means = [np.tensordot(weights.kinds, moment, 1) for moment in moments]
            by_depth, factors = [], []
            for depth, (classes, nodes) in enumerate(
                zip(family.classes, family.nodes, strict=True)
            ):
                factors.append(_factor(classes.merge_matrices(means[min(depth, 1)])))
                by_depth.append(np.repeat(masses[nodes, None], len(factors[-1]), axis=1))
            prices.append(Prices(by_depth, factors))
        return prices

    def measure_costs(self, sweeps: Sequence[Sweep], weights: Weights) -> Costs:
        # tr(M_v Sigma^-1) of each difference v at each leaf.
        tree = self.structure.tree
        every = np.zeros((len(tree.leaves), len(weights.kinds)))
        for family, sweep, moments in zip(self.families, sweeps, self._moments, strict=True):
            merged = [
                classes.merge_matrices(moments[min(depth, 1)])
                for depth, classes in enumerate(family.classes)
            ]
            costs = np.zeros((tree.size, len(weights.kinds)))
            costs[0] = np.tensordot(merged[0], sweep.root[1], 2)
            for i, step in enumerate(tree.steps):
                costs[step.children] = costs[step.parents, None]
                if i < len(family.steps):
                    multiples, precisions, _ = sweep.steps[i].list_precisions()
                    added = np.tensordot(precisions, merged[step.depth], ((1, 2), (1, 2)))
                    costs[step.children] += multiples[:, :, None] * added[:, None]
            every += costs[tree.leaves]
        return Costs(every @ weights.kinds, weights.p @ every, float(every.max()))

    def multiply_records(self, sweeps: Sequence[Sweep], p: FloatArray) -> RecordProducts:
        """Compute the products of records, averaged over the leaves."""
        structure, masses = self.structure, self.structure.tree.sum_leaves(p)
        person = structure.person
        parts, leaf = [], len(person.sizes) - 1
        for attributes, family, sweep in zip(
            structure.block_sets, self.families, sweeps, strict=True
        ):
            root, below = _average_precisions(family, sweep, masses)
            parts += [(attributes, root), ((*attributes, leaf), below)]
        equal, other = ([x - 1 / n for n in person.sizes[:-1]] for x in (1, 0))
        return build_record_products(person, parts, [*equal, 1.0], [*other, 0.0])


def _write_moments(
    structure: PersonTreeStructure, sets: RecordSets, attributes: tuple[int, ...]
) -> tuple[FloatArray, FloatArray]:
    """Form M_A of differences over the dense cells, at the root and below it, (v, D, D) each."""
    sizes = (*structure.person.sizes[:-1], math.inf)
    every, both = np.arange(len(sets))[:, None, None], []
    for shared in (attributes, (*attributes, len(sizes) - 1)):
        moments = np.zeros((len(sets), structure.cells + 1, structure.cells + 1))
        products = sets.multiply_labels(shared, sizes)
        moments[every, sets.cells[:, :, None], sets.cells[:, None]] = products
        both.append(moments[:, :-1, :-1])  # padding has the cell -1
    return both[0], both[1]


def _average_precisions(
    family: TreeFamily, sweep: Sweep, masses: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Average Sigma^-1 over the leaves, with the weights below nodes (N,).

    Returns:
        The contributions of the root and of the nodes below it, shape (D, D) each.
    """
    total = np.zeros((len(family.classes[0].of_cell),) * 2)
    for step, covariances in zip(family.steps, sweep.steps, strict=True):
        multiples, precisions, _ = covariances.list_precisions()
        weights = (masses[step.children] * multiples).sum(axis=1) / masses[0]
        total = total + _expand(family.classes[step.depth], np.tensordot(weights, precisions, 1))
    return _expand(family.classes[0], sweep.root[1]), total


def _factor(moment: FloatArray) -> FloatArray:
    """Compute F with F F' near a moment (r, r)."""
    values, vectors = np.linalg.eigh(moment)
    return np.asarray(vectors * np.sqrt(np.maximum(values, _RIDGE * values[-1:])))


def _expand(classes: CellClasses, values: FloatArray) -> FloatArray:
    """Spread values (r, r) of classes to the dense cells, (D, D); 0 where there is none."""
    padded = np.pad(values, (0, 1))
    return np.asarray(padded[np.ix_(classes.of_cell, classes.of_cell)])


def find_varied_differences(products: RecordProducts, most: int) -> RecordSets:
    """Find costly differences that are different from each other.

    They are costly ones among all differences, and among those with and without each period. The
    costliest ones are nearly equal, and a design with these alone makes others costly.

    Args:
        products: The products of records, as floats.
        most: About how many to find among all differences.
    """
    varied = find_costly_differences(products, most)
    # More than all records of a person can add to or subtract from a cost.
    size = 2 * products.person.most * float(np.abs(products.products).max())
    for period in range(products.person.period_count):
        at = np.flatnonzero(products.person.periods == period)
        for more in (size, -size):
            changed = products.products.copy()
            changed[:, at, at] += more
            costly = find_costly_differences(replace(products, products=changed), 1)
            varied = varied.append(costly.leave_out(varied))
    return varied


def _list_windows(structure: PersonTreeStructure) -> RecordSets:
    """List persons with records in one leaf in successive periods, which wrap around."""
    k, T, periods = structure.most_records, structure.period_count, structure.periods
    # Within each period, the dense cells are in the same order of all other attributes.
    by_period = np.argsort(periods, kind="stable").reshape(T, -1)
    lengths = sorted({min(2, k), -(-k // 2), max(k - 1, 1), k})
    windows = []
    for length in lengths if structure.cells <= _MANY_CELLS else [k]:
        chosen = (np.arange(T)[:, None] + np.arange(length)) % T
        cells = by_period[chosen].transpose(0, 2, 1).reshape(-1, length)
        windows.append(np.pad(cells, ((0, 0), (0, k - length)), constant_values=-1))
    cells = np.concatenate(windows)
    labels = np.zeros((*cells.shape, len(structure.person.sizes)), dtype=np.int64)
    return RecordSets(cells, labels)


def scatter(sets: RecordSets) -> RecordSets:
    """Give each record of differences an independently drawn leaf."""
    labels = sets.labels.copy()
    labels[:, :, -1] = np.where(sets.cells >= 0, np.arange(sets.cells.shape[1]), 0)
    return RecordSets(sets.cells, labels)
