"""The masses and precisions that dual weights give to a block of a tree.

The norm of block A is tr N_A^1/2 with N_A = D^1/2 Q_A D^1/2, D = diag(w_A p) and
Q_A = sum over the block's rows of multiple q / c times the row's outer square. A leaf or a node
that stands for m identical ones has the sum of their p and q, so each of them has p / m and q / m.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fitplug.families.tree.certificate.dense_trees import DenseStep, DenseTree, Measurements
from fitplug.families.tree.certificate.scalar_trees import (
    LEAST_MASS,
    LEAST_PRECISION,
    ScalarTree,
    build_scalar_tree,
    order_nodes,
)
from fitplug.families.tree.shape.blocks import GroupPart, TreeStructure
from fitplug.numeric import AnyArray, BoolArray, FloatArray, IntArray, gamma
from fitplug.workload import CellClasses

LEAST_SHARE = 1 - 1e-9
"""The least ratio of p to a product over leaves and cells where queries use only a total; see
`find_totals`."""


@dataclass(frozen=True, eq=False)
class Totals:
    """The depth from which a block's queries use only the total of some classes.

    Attributes:
        depth: The first such depth; one more than the block's last depth if there is none.
        share: A lower bound on the ratio of p to a product over leaves and classes.
    """

    depth: int
    share: float


class BlockWeights:
    """The weights of a block.

    Args:
        structure: The structure.
        block: The block.
        p: Weights of leaves and dense cells, shape (leaves, D).
        row_weights: q / c, shape (rows,).
    """

    def __init__(
        self,
        structure: TreeStructure,
        block: int,
        p: FloatArray,
        row_weights: FloatArray,
    ) -> None:
        self.structure = structure
        self.tree = structure.tree
        self.parts = structure.parts[block]
        self.row_weights = row_weights
        self.classes = structure.classes[block]
        sizes = [one.size for one in self.classes]
        self.last = max((d for d, size in enumerate(sizes) if size), default=-1)
        if self.last >= 0:
            self.masses = self.tree.sum_leaves(self.classes[0].merge_counts(p))

    @property
    def rounding(self) -> float:
        """A bound on the relative errors of the masses and of the precisions."""
        root = np.zeros(1, dtype=np.int64)
        longest = order_nodes(self.tree, root, 0, len(self.tree.steps)).roundings
        rows = sum(len(part.matrix) for part in self.parts)
        return gamma(self.structure.cells + longest + rows + 2 * len(self.parts) + 16)

    def build_scalar(self, scales: FloatArray | None = None) -> ScalarTree:
        """Build the tree of a block that has one class of cells; see `ScalarTree.scales`."""
        root = np.zeros(1, dtype=np.int64)
        order = order_nodes(self.tree, root, 0, self.last)
        precisions = self._sum_precisions(self.classes[0])[order.nodes]
        tree = build_scalar_tree(order, self.masses[order.nodes, 0], precisions)
        return replace(tree, scales=scales)

    def build_dense(self, totals: Totals) -> DenseTree:
        """Build the tree of a block that has several classes of cells."""
        depths, multiplicities = self.tree.depths, self.tree.multiplicities
        nodes = np.flatnonzero(depths < totals.depth)
        position = np.full(self.tree.size, -1)
        position[nodes] = np.arange(len(nodes))
        masses = self.masses[nodes] / multiplicities[nodes, None]
        kinds, places, measurements = self._gather_measurements(nodes)
        steps = tuple(
            DenseStep(
                position[step.parents],
                position[step.children],
                np.ones(len(step.parents))
                if step.counts is None
                else step.counts.astype(np.float64),
            )
            for step in self.tree.steps
            if step.depth < min(totals.depth, self.last + 1)
        )
        forest, tops = None, nodes[:0]
        members = np.zeros(self.masses.shape[1], dtype=bool)
        if totals.depth <= self.last:
            tops = self._find_tops(totals.depth)
            members = self._find_members(totals.depth)
            order = order_nodes(self.tree, tops, totals.depth, self.last)
            precisions = self._sum_precisions(self.classes[totals.depth])[order.nodes]
            precisions[: len(tops)] = 0
            below = self.masses[order.nodes][:, members].sum(axis=1)
            forest = build_scalar_tree(order, below, precisions)
        return DenseTree(
            masses=np.where(masses >= LEAST_MASS, masses, 0.0),
            multiplicities=multiplicities[nodes].astype(np.float64),
            kinds=kinds,
            places=places,
            measurements=measurements,
            steps=steps,
            totals=forest,
            tops=position[tops],
            members=members,
            rounding=self.rounding,
        )

    def find_totals(self) -> Totals:
        """Find the first depth from which queries use only a total and p is nearly a product.

        p_ik should be p_i s_k for the leaves i below each node above this depth, and the classes k
        of the total. If p is at least a share of such a product, the norm is at least the root of
        this share times the product's norm.
        """
        sizes = [one.size for one in self.classes]
        for depth in range(self.last + 1):
            if sizes[depth] == 1 and (share := self._compare_with_product(depth)) >= LEAST_SHARE:
                return Totals(depth, share)
        return Totals(self.last + 1, 1.0)

    def find_tops_above(self, depth: int) -> tuple[IntArray, IntArray]:
        """Find, for each node at a depth or below, its lowest ancestor above the depth.

        Returns:
            The ancestor of each node, -1 for nodes above the depth, shape (N,); and the lowest
            nodes that the block uses.
        """
        above = np.full(self.tree.size, -1)
        is_bottom = np.zeros(self.tree.size, dtype=bool)
        for step in self.tree.steps:
            if step.depth < depth:
                continue
            top = np.where(above[step.parents] < 0, step.parents, above[step.parents])
            above[step.children] = top[:, None]
            if step.depth <= self.last:
                is_bottom[step.parents] = False
                is_bottom[step.children] = True
        return above, np.flatnonzero(is_bottom)

    def measure_classes(self, part: GroupPart) -> FloatArray:
        """Return a part's rows over the variables at each node, shape (rows of each node, r)."""
        return self.classes[0].restrict(part.matrix)

    def _compare_with_product(self, depth: int) -> float:
        """Find the least p_ik / (p_i s_k) below the nodes above a depth."""
        masses = self.masses[:, self._find_members(depth)]
        above, bottom = self.find_tops_above(depth)
        sums, share = masses.sum(axis=1), 1.0
        for k in range(masses.shape[1]):
            product = sums[bottom] * masses[above[bottom], k]
            here = product > 0
            ratio = masses[bottom[here], k] * sums[above[bottom[here]]] / product[here]
            share = min(share, float(ratio.min(initial=1.0)))
        return share * (1 - 8 * self.rounding)

    def _find_tops(self, depth: int) -> IntArray:
        """Find the nodes above a depth that have children at it or below."""
        depths = self.tree.depths
        parents = [
            step.parents[depths[step.parents] < depth]
            for step in self.tree.steps
            if depth <= step.depth <= self.last
        ]
        return np.concatenate([np.zeros(0, dtype=np.int64), *parents])

    def _find_members(self, depth: int) -> BoolArray:
        """Tell which classes of the root belong to the single class of a depth, shape (r,)."""
        return np.asarray(self.classes[depth].of_cell[self.classes[0].first] == 0)

    def _sum_precisions(self, classes: CellClasses) -> FloatArray:
        """Sum the precisions with which rows measure each node's single class of cells, (N,)."""
        precisions = np.zeros(self.tree.size)
        for part in self.parts:
            squares = part.matrix[:, classes.first[0]] ** 2
            precisions[part.level.nodes] += part.multiple * (
                self._find_weights(part.rows, part.level.nodes) @ squares
            )
        return precisions / self.tree.multiplicities

    def _find_weights(self, rows: slice, nodes: IntArray) -> FloatArray:
        """Find q / c of a group's rows, shape (nodes, rows of each node)."""
        return self.row_weights[rows].reshape(len(nodes), -1)

    def _gather_measurements(
        self, nodes: IntArray
    ) -> tuple[IntArray, IntArray, tuple[Measurements, ...]]:
        """Gather the measurements of ascending nodes: kinds, places, and each kind's
        measurements."""
        indices = [_find_sorted(part.level.nodes, nodes) for part in self.parts]
        asked = np.stack(indices, axis=1) >= 0
        different, kinds = np.unique(asked, axis=0, return_inverse=True)
        kinds = kinds.ravel()
        places = np.zeros(len(nodes), dtype=np.int64)
        measurements = []
        for kind, is_asked in enumerate(different):
            at = np.flatnonzero(kinds == kind)
            places[at] = np.arange(len(at))
            matrices = [np.zeros((0, self.masses.shape[1]))]
            columns = [np.zeros((len(at), 0))]
            for i in np.flatnonzero(is_asked).tolist():
                part = self.parts[i]
                weights = self._find_weights(part.rows, part.level.nodes)[indices[i][at]]
                columns.append(part.multiple * weights)
                matrices.append(self.measure_classes(part))
            precisions = np.hstack(columns) / self.tree.multiplicities[nodes[at], None]
            counted = np.where(precisions >= LEAST_PRECISION, precisions, 0.0)
            measurements.append(Measurements(np.vstack(matrices), counted))
        return kinds, places, tuple(measurements)


def average_weights(structure: TreeStructure, p: FloatArray) -> FloatArray:
    """Average weights where queries use only totals over dense cells, for fast evaluation.

    Below each node of the last depth at which cells are distinguished, the weights of the total are
    divided among its cells in the same proportions on all leaves, the average ones. Their sums stay
    the same. The best bound of averaged weights is nearly the best of all: the largest loss seen
    was 0.1%.

    Args:
        structure: The structure.
        p: Weights of leaves and dense cells, divided by any cell budgets, shape (|V|,).

    Returns:
        The averaged weights, shape (|V|,).
    """
    # The first block belongs to the empty set, to which all groups contribute.
    rows = np.ones(structure.rows)
    weights = BlockWeights(structure, 0, p.reshape(-1, structure.cells), rows)
    sizes = [one.size for one in weights.classes]
    if 1 not in sizes or sizes[0] == 1:
        return p
    depth, tree = sizes.index(1), structure.tree
    cells = np.flatnonzero(weights.classes[depth].of_cell == 0)
    above, _ = weights.find_tops_above(depth)
    values = p.reshape(-1, structure.cells)
    inside, top = values[:, cells], above[tree.leaves]
    is_below = top >= 0
    sums = np.zeros((tree.size, len(cells)))
    np.add.at(sums, top[is_below], inside[is_below])
    shares = sums[top[is_below]]
    totals = shares.sum(axis=1, keepdims=True)
    shares = np.divide(shares, totals, out=np.zeros_like(shares), where=totals > 0)
    averages = values.copy()
    averages[np.ix_(is_below, cells)] = inside[is_below].sum(axis=1, keepdims=True) * shares
    return averages.ravel()


def _find_sorted(values: AnyArray, wanted: AnyArray) -> IntArray:
    """Find the indices of wanted values among ascending values; -1 for values not among them."""
    at = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
    return np.where(values[at] == wanted, at, -1)
