"""The cost of pairs of cells on a tree: a bound on the costliest, by one sweep downwards.

Two cells have leaves l and l', dense cells i and i', and differ along the symmetric attributes D.
With the products h_A of |H_a e|^2 and h_A(D) of (H_a e)'(H_a e') over all attributes of A,
and the children j and j' of a node v on both paths cost (U15)

    sum_A [h_A (|a_x|^2 + |a_y|^2) - 2 h_A(D) sum_v (A_v e_j)'(A_v e_j') (M_v e_i)'(M_v e_i')]

Below the lowest common node the two cells share nothing, so each takes its costliest leaf there.
Sums down to a node are stored for pairs of classes of dense cells; where classes merge further
down, the largest is taken. All of this is computed in floats, and a proven bound on the errors is
added. The bound is compared with the exact cost of a pair: all pairs of dense cells are tried on
the costliest leaves below the two nodes that the sweep found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fitplug.families.tree.shape.node_tree import TreeStep
from fitplug.families.tree.shape.pairs import JointClasses, TreePairStructure
from fitplug.families.tree.strategy.blocks import TreeIntegers
from fitplug.families.tree.strategy.cost import (
    PathProducts,
    TreeProducts,
    count_operations,
    estimate_column_squares,
)
from fitplug.numeric import FloatArray, IntArray, gamma

_MOST_NUMBERS = 2**21
"""The most numbers of an array, unless one node needs more."""

_MOST_WORK = 4e9
"""The most numbers for all pairs of children; beyond, nodes are bounded without pairs."""


class CostlyPair(NamedTuple):
    """The place of the costliest pair found in floats.

    Attributes:
        move: The number of the set D of attributes; see `TreeProducts.pairs`.
        nodes: A node above or at the leaf of each of the two cells.
        classes: The class of each cell at the depth of these nodes, among those of `JointClasses`.
        are_apart: Whether the cells have different leaves.
    """

    move: int
    nodes: tuple[int, int]
    classes: tuple[int, int]
    are_apart: bool


_NO_PAIR = CostlyPair(0, (0, 0), (0, 0), False)


def upper_pair_cost(strategy: TreeIntegers[TreePairStructure]) -> tuple[int, int, CostlyPair]:
    """Bound the largest cost of a pair of cells from above.

    Returns:
        The proven bound; a bound above any that machines with different rounding prove; and the
        place of the costliest pair found.
    """
    sweep = _Sweep(strategy)
    sweep.run()
    # Each term's factor is rounded once, and twice as many terms are added as for a square.
    roundings = 2 * count_operations(strategy.structure, strategy.tree_blocks) + 64
    # The absolute values of all terms, of a cost or of the bound for a node's children, sum to at
    # most eight times the largest square of a column.
    error = gamma(roundings) * 8.2 * sweep.largest_square
    above = [math.ceil(Fraction(sweep.largest) + times * Fraction(error)) for times in (1, 3)]
    return above[0], above[1], sweep.costly


class _StepBlock(NamedTuple):
    """A block's products for the children of some nodes.

    Attributes:
        square: h_A.
        between: h_A(D) of each set D of the attributes along which records may move, (moves,).
        products: (A_v e_j)'(A_v e_j') of all children; see `TreeProducts.multiply_children`.
        dense: (M_v e_i)'(M_v e_i') of the classes, shape (n, m, m).
    """

    square: float
    between: FloatArray
    products: FloatArray
    dense: FloatArray

    @property
    def squares(self) -> FloatArray:
        """|A_v e_j|^2, shape (n, k)."""
        n, k = self.products.shape[:2]
        at = np.arange(k)
        return self.products[:, at, at].reshape(n, k)


class _Sweep:
    """The sweep, and the largest cost so far."""

    def __init__(self, strategy: TreeIntegers[TreePairStructure]) -> None:
        structure = self.structure = strategy.structure
        self.products = TreeProducts(strategy, structure.free.tolist())
        self.factors = self.products.factors
        self.tree, self.joint = structure.tree, structure.joint_classes
        self.moves = structure.moves
        self.largest, self.work = 0.0, 0.0
        self.costly = _NO_PAIR
        self.places = np.zeros(self.tree.size, dtype=np.int64)
        depths = self.tree.depths
        self.below = []  # by depth, what the costliest leaf below a node adds, (nodes, m)
        for depth, joint in enumerate(self.joint):
            nodes = np.flatnonzero(depths == depth)
            self.places[nodes] = np.arange(len(nodes))
            self.below.append(np.zeros((len(nodes), len(joint.first))))
        self.step_of = np.full(self.tree.size, -1)
        self.position = np.zeros(self.tree.size, dtype=np.int64)
        for i, step in enumerate(self.tree.steps):
            self.step_of[step.parents] = i
            self.position[step.parents] = np.arange(len(step.parents))

    @property
    def largest_square(self) -> float:
        """The largest square of a column, up to rounding."""
        squares = sum(one.square * np.diagonal(one.dense[0]) for one in self._take_root())
        return float((squares + self.below[0][0]).max())

    def run(self) -> None:
        """Find the largest cost."""
        for i in reversed(range(len(self.tree.steps))):
            step = self.tree.steps[i]
            size = max(1, _MOST_NUMBERS // self._measure_node(step))
            for start in range(0, len(step.parents), size):
                self._sum_below(i, np.arange(start, min(start + size, len(step.parents))))
        m = len(self.joint[0].first)
        above = np.zeros((1, self.moves, m, m))
        for one in self._take_root():
            above += _weigh(one)
        above[:, :, ~self.structure.can_move] = -np.inf
        self._record(above.max(initial=0.0), lambda: self._locate(above, np.zeros(1, np.int64)))
        # Depth first, so that little is in memory at once.
        waiting = [(np.zeros(1, dtype=np.int64), above)] if self.tree.steps else []
        while waiting:
            nodes, above = waiting.pop()
            waiting.extend(self._visit(nodes, above))

    def _measure_node(self, step: TreeStep) -> int:
        """Bound the numbers of an array for one node of a step."""
        k = step.children.shape[1]
        m = len(self.joint[min(step.parent_depth, len(self.joint) - 1)].first)
        return k * (self.moves * m * m + k)

    def _take_root(self) -> Iterator[_StepBlock]:
        """Yield each block's products at the root, over the joint classes."""
        for b, tree_block in enumerate(self.products.blocks):
            dense = self.products.multiply_root(tree_block, self.joint[0].first)
            square = float(self.products.single[b])
            yield _StepBlock(square, self.factors[:, b], np.ones((1, 1, 1)), dense[None])

    def _take(self, i: int, positions: IntArray) -> Iterator[_StepBlock]:
        """Yield each block's products for the children of some nodes of step i."""
        cells = self.joint[self.tree.steps[i].depth].first
        for b, tree_block in enumerate(self.products.blocks):
            if i < len(tree_block.steps):
                yield _StepBlock(
                    float(self.products.single[b]),
                    self.factors[:, b],
                    self.products.multiply_children(tree_block, i, positions),
                    self.products.multiply_dense(tree_block, i, positions, cells),
                )

    def _sum_children(self, i: int, positions: IntArray, parts: Sequence[_StepBlock]) -> FloatArray:
        """Sum the contributions of children and below to the square of a column, (n, k, m)."""
        step = self.tree.steps[i]
        children = step.children[positions]
        if step.depth >= len(self.joint):
            return np.zeros((*children.shape, len(self.joint[-1].first)))
        sums = self.below[step.depth][self.places[children]]
        for part in parts:
            squares = np.diagonal(part.dense, axis1=1, axis2=2) * part.square
            sums = sums + part.squares[:, :, None] * squares[:, None]
        return sums

    def _sum_below(self, i: int, positions: IntArray) -> None:
        """Find the costliest leaf's contribution below some nodes to the square of a column."""
        step = self.tree.steps[i]
        if step.depth >= len(self.joint):
            return
        below = self._sum_children(i, positions, list(self._take(i, positions))).max(axis=1)
        places = self.places[step.parents[positions]]
        above = self.joint[step.parent_depth].first
        self.below[step.parent_depth][places] = below[:, self.joint[step.depth].of_cell[above]]

    def _visit(self, nodes: IntArray, above: FloatArray) -> Iterator[tuple[IntArray, FloatArray]]:
        """Visit nodes of one step.

        Args:
            nodes: The nodes, shape (n,).
            above: The costs of pairs of classes down to each node, shape (n, moves, m, m).

        Yields:
            Children with children, and the costs of pairs down to them.
        """
        i = int(self.step_of[nodes[0]])
        step = self.tree.steps[i]
        if step.depth >= len(self.joint):
            return
        positions = self.position[nodes]
        above = _merge_pairs(above, self.joint[step.parent_depth], self.joint[step.depth])
        parts = list(self._take(i, positions))
        if not self.structure.keeps_tree:
            self._compare_children(i, positions, above, parts)
        children = step.children[positions]
        n, k = children.shape
        down = np.repeat(above[:, None], k, axis=1)
        for part in parts:
            down += part.squares[:, :, None, None, None] * _weigh(part)[:, None]
        flat, down = children.ravel(), down.reshape(n * k, *down.shape[2:])
        self._record(down.max(), lambda: self._locate(down, flat))
        kinds = self.step_of[flat]
        for kind in np.unique(kinds[kinds >= 0]).tolist():
            chosen = np.flatnonzero(kinds == kind)
            size = max(1, _MOST_NUMBERS // self._measure_node(self.tree.steps[kind]))
            for start in range(0, len(chosen), size):
                some = chosen[start : start + size]
                yield flat[some], down[some]

    def _compare_children(
        self, i: int, positions: IntArray, above: FloatArray, parts: Sequence[_StepBlock]
    ) -> None:
        """Compare the costs of pairs of cells below different children of some nodes of a step."""
        step = self.tree.steps[i]
        below = self._sum_children(i, positions, parts)
        most = below.max(axis=1)
        bound = above + (most[:, None, :, None] + most[:, None, None, :])
        for part in parts:
            off = _find_largest_product(part.products)
            between = np.abs(part.between)
            size = 2 * off[:, None, None] * np.abs(part.dense)
            bound += between[:, None, None] * size[:, None]
        most_of_nodes = bound.reshape(len(bound), -1).max(axis=1)
        k, m = below.shape[1:]
        for at in np.argsort(-most_of_nodes).tolist():
            if most_of_nodes[at] <= self.largest:
                break
            self.work += float(k * k * m * m * self.moves * (1 + len(parts)))
            if self.work > _MOST_WORK:
                self.largest = float(most_of_nodes[at])
                if self.costly == _NO_PAIR:
                    last = min(1, k - 1)
                    self.costly = self._find_pair(step, positions[at], 0, 0, last, (0, 0))
                break
            self._compare_at(step, positions[at], below[at], above[at], parts, at)

    def _compare_at(
        self,
        step: TreeStep,
        position: int,
        below: FloatArray,
        above: FloatArray,
        parts: Sequence[_StepBlock],
        at: int,
    ) -> None:
        """Compare the costs of pairs of cells below different children of one node."""
        k, m = below.shape
        is_identical = step.counts is not None
        together = max(1, _MOST_NUMBERS // (k * m * m))
        for start in range(0, k, together):
            rows = slice(start, min(start + together, k))
            for move in range(self.moves):
                costs = below[rows, None, :, None] + below[None, :, None, :] + above[move]
                for part in parts:
                    between = 2 * part.between[move]
                    # For identical leaves, the second number is the product of two of them.
                    X = part.products[at, :, 1:] if is_identical else part.products[at, rows]
                    costs -= X[:, :, None, None] * (between * part.dense[at])
                if not is_identical:
                    costs[np.arange(rows.stop - start), np.arange(start, rows.stop)] = -np.inf
                best = int(np.argmax(costs))
                if (value := float(costs.ravel()[best])) > self.largest:
                    j, other, c, d = (int(x) for x in np.unravel_index(best, costs.shape))
                    self.largest = value
                    self.costly = self._find_pair(step, position, move, start + j, other, (c, d))

    def _find_pair(
        self,
        step: TreeStep,
        position: int,
        move: int,
        j: int,
        other: int,
        classes: tuple[int, int],
    ) -> CostlyPair:
        """Name a pair of cells below two children of a node."""
        children = step.children[position].ravel()
        return CostlyPair(move, (int(children[j]), int(children[other])), classes, True)

    def _record(self, value: float, locate: Callable[[], CostlyPair]) -> None:
        """Record a cost if it is the largest so far."""
        if value > self.largest:
            self.largest, self.costly = float(value), locate()

    def _locate(self, costs: FloatArray, nodes: IntArray) -> CostlyPair:
        """Find the pair at one node (n, moves, m, m) that costs most."""
        at, move, c, d = (int(x) for x in np.unravel_index(int(np.argmax(costs)), costs.shape))
        return CostlyPair(move, (int(nodes[at]),) * 2, (c, d), False)


def _weigh(part: _StepBlock) -> FloatArray:
    """Compute h (y_cc + y_dd) - 2 h(D) y_cd from products y (n, m, m), shape (n, moves, m, m)."""
    squares = np.diagonal(part.dense, axis1=1, axis2=2) * part.square
    between = 2 * part.between
    costs = squares[:, None, :, None] + squares[:, None, None, :]
    return np.asarray(costs - between[:, None, None] * part.dense[:, None])


def _find_largest_product(products: FloatArray) -> FloatArray:
    """Find the largest |(A e_j)'(A e_j')| of two distinct children, (n,)."""
    if products.shape[1:] == (1, 2):
        return np.abs(products[:, 0, 1])
    off = np.abs(products)
    at = np.arange(off.shape[1])
    off[:, at, at] = 0
    return np.asarray(off.max(axis=(1, 2)))


def _merge_pairs(values: FloatArray, above: JointClasses, below: JointClasses) -> FloatArray:
    """Take the largest of values (n, moves, m, m) of pairs whose classes are merged below."""
    merged = below.of_cell[above.first]
    if np.array_equal(merged, np.arange(len(merged))):
        return values
    order = np.argsort(merged, kind="stable")
    starts = np.searchsorted(merged[order], np.arange(len(below.first)))
    values = np.maximum.reduceat(values[..., order, :], starts, axis=2)
    return np.asarray(np.maximum.reduceat(values[..., order], starts, axis=3))


def attain_pair_cost(strategy: TreeIntegers[TreePairStructure], costly: CostlyPair) -> int:
    """Compute the largest cost of a pair of cells on the leaves of a costly pair.

    The leaves are the costliest below its two nodes.
    """
    structure, tree = strategy.structure, strategy.structure.tree
    joint = structure.joint_classes
    factors = TreeProducts(strategy, structure.free.tolist())
    squares = estimate_column_squares(structure, strategy.tree_blocks, factors.single)
    leaves = []
    for node, joint_class in zip(costly.nodes, costly.classes, strict=True):
        is_below = (np.arange(tree.size) == node).astype(np.float64)
        below = np.flatnonzero(tree.repeat_downwards(is_below, int(tree.depths[node]))[tree.leaves])
        cell = joint[int(tree.depths[node])].first[joint_class]
        leaves.append(int(tree.leaves[below[np.argmax(squares[below, cell])]]))
    x, y = leaves if costly.are_apart else (leaves[0], leaves[0])
    paths = PathProducts(strategy, joint[0].first)
    first, second = (paths.multiply(leaf, leaf, False) for leaf in (x, y))
    total = sum(
        single * (np.diagonal(a)[:, None] + np.diagonal(b)) - 2 * pair * between
        for single, pair, a, b, between in zip(
            factors.single,
            factors.pairs[costly.move],
            first,
            second,
            paths.multiply(x, y, costly.are_apart),
            strict=True,
        )
    )
    return int(np.asarray(total)[structure.can_move].max())
