"""Tree blocks: the integer matrices of one block of a tree (see `tree.shape.blocks`).

With C_d the 0/1 matrix of the block's classes of dense cells at depth d, and x_v the counts below
node v over the dense cells, block A measures, with the contrasts of the attributes in A and sums
over the other symmetric attributes,

    root:                             M_0 C_0 x_0, of the classes that public sums do not tell
    node v with children of depth d:  (A_v (x) M_v) (C_d x_j) for the children j

M_0 and M_v are upper triangular with positive diagonals, and A_v measures children apart from their
sum (`fitplug.families.tree.strategy.child_matrices`): with z_v the estimate of C_d x_v, which sums
classes of the depth above, and y the noisy answers,

    z_0 = M_0^-1 y        z_j = u_vj z_v + sum_i (E_v)_ji M_v^-1 y_i        [E_v, u_v] A_v* = I

The answers of a block are the root's, and then, step by step, those of each node: a row of A_v
after another, with an answer for each row of M_v. The nodes of a step are in their order there, but
those with identical leaves in the order of the number of leaves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy.linalg import solve_triangular

from fitplug.errors import PlanError
from fitplug.families.base.contrasts import ContrastMatrix, build_contrasts
from fitplug.families.base.integers import MAX_ENTRY
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.tree.shape.blocks import GroupPart, TreeStructure
from fitplug.families.tree.shape.node_tree import (
    TreeStep,
)
from fitplug.families.tree.shape.unfolded_tree import Siblings, UnfoldedTree
from fitplug.families.tree.strategy.child_matrices import (
    ChildMatrices,
    LeafMatrices,
    SiblingMatrices,
)
from fitplug.numeric import (
    AnyArray,
    FloatArray,
    IntArray,
    find_largest_entry,
    frozen_property,
    gamma,
    invert_each_with_residual,
    upper_norm,
)
from fitplug.workload import CellClasses

_MOST_NUMBERS = 2**22
"""The most numbers of an array that is computed at once, where it need not be larger."""


_FEW = 16
"""A smaller share of the nodes of a step gets inverses of its own, and not those of all nodes."""


T = TypeVar("T", bound=TreeStructure, covariant=True)


@dataclass(frozen=True, eq=False)
class StepMatrices:
    """The matrices of the nodes of one step of the tree: b nodes with k children each.

    Attributes:
        children: A_v of each node, shape (b, k - 1, k). Where the children are identical leaves,
            the multipliers m of their contrasts, shape (b,).
        dense: M_v of each node, shape (b, r, r).
    """

    children: IntArray
    dense: IntArray

    def take(self, positions: IntArray, k: int) -> ChildMatrices:
        """Take A_v of some nodes of this step, (b,), that have k children each.

        Few nodes get inverses of their own; others share those of all nodes.
        """
        if self.children.ndim == 1:
            return LeafMatrices(self.children[positions], k)
        if len(positions) * _FEW < len(self.children):
            return SiblingMatrices(self.children[positions])
        return self._siblings.take(positions)

    def invert_dense(self, positions: IntArray) -> FloatArray:
        """Compute X near M_v^-1 of some nodes of this step, (b, r, r).

        Few nodes of a large step are inverted by themselves, so that the others need no memory.
        """
        if len(positions) * _FEW < len(self.dense) and self.dense.size > _MOST_NUMBERS:
            return invert_each_with_residual(self.dense[positions].astype(np.float64))[0]
        return self.dense_inverses[0][positions]

    def count_rows(self, k: int) -> int:
        """Count the rows of A_v of a node with k children."""
        return build_contrasts(k).rows if self.children.ndim == 1 else k - 1

    def count_answers(self, step: TreeStep) -> int:
        """Count what the nodes measure of their children."""
        if step.counts is not None:
            rows = int(_list_by_leaf(step.counts, lambda contrasts: contrasts.rows).sum())
        else:
            rows = math.prod(self.children.shape[:2])
        return rows * self.dense.shape[1]

    def estimate_child_squares(self, step: TreeStep) -> FloatArray:
        """Compute |A_v e_j|^2 of each child node, shape (b, k), up to gamma(k + 4) relatively.

        Identical leaves are one child.
        """
        squares = self.children.astype(np.float64) ** 2
        if step.counts is not None:
            factors = _list_by_leaf(step.counts, lambda contrasts: contrasts.column_square)
            return np.asarray((squares * factors)[:, None])
        return np.asarray(squares.sum(axis=1))

    def square_children(self, step: TreeStep, positions: IntArray, children: IntArray) -> AnyArray:
        """Compute |A_v e_j|^2 of some nodes and children of theirs, exactly.

        Args:
            step: The step.
            positions: The nodes' indices in the step, shape (n,).
            children: The index of a child of each, shape (n,).

        Returns:
            Python integers, shape (n,).
        """
        if step.counts is not None:
            factors = _list_by_leaf(step.counts, lambda contrasts: contrasts.column_square)[
                positions
            ]
            return np.asarray(self.children[positions].astype(object) ** 2 * factors.astype(object))
        return square_columns(self.children, positions, children)

    def upper_child_variances(self, step: TreeStep) -> tuple[FloatArray, FloatArray]:
        """Bound u_j^2 and |E_j|^2 of each child from above, each of shape (b, k).

        Identical leaves are one child.

        Raises:
            DesignError: If they cannot be bounded.
        """
        if step.counts is None:
            return self._siblings.upper_variance_parts()
        k, m = step.counts.astype(np.float64), self.children.astype(np.float64)
        precision = _list_by_leaf(step.counts, lambda contrasts: contrasts.precision).astype(
            np.float64
        )
        spread = 1 / (k * k)
        added = (k - 1) / (k * precision * m * m)
        return (spread * (1 + gamma(8)))[:, None], (added * (1 + gamma(8)))[:, None]

    def upper_row_norms(self, L: FloatArray) -> FloatArray:
        """Bound the norms of the rows of L M_v^-1 from above.

        Args:
            L: Shape (m, r).

        Returns:
            Shape (b, m).

        Raises:
            DesignError: If they cannot be bounded.
        """
        X, residuals = self.dense_inverses
        (m, r), b = L.shape, len(X)
        bounds = np.empty((b, m))
        together = max(1, _MOST_NUMBERS // max(m * r, 1))
        for start in range(0, b, together):
            some = slice(start, start + together)
            norms = upper_norm(L @ X[some], axis=2)
            norms += upper_norm(np.abs(L) @ np.abs(X[some]), axis=2) * gamma(r)
            bounds[some] = norms / (1 - residuals[some, None]) * (1 + gamma(16))
        return bounds

    def find_largest_entry(self, step: TreeStep) -> int:
        """Find the largest entry of A_v (x) M_v of all nodes."""
        if step.counts is not None:
            factors = _list_by_leaf(step.counts, lambda contrasts: contrasts.largest_entry)
            largest = self.children.astype(object) * factors.astype(object)
        else:
            largest = np.abs(self.children).max(axis=(1, 2)).astype(object)
        largest = largest * np.abs(self.dense).max(axis=(1, 2), initial=0).astype(object)
        return int(largest.max())

    @frozen_property
    def dense_inverses(self) -> tuple[FloatArray, FloatArray]:
        """X near each M_v^-1, shape (b, r, r), and bounds on |I - M_v X|_2, shape (b,).

        Raises:
            DesignError: If one is too ill-conditioned.
        """
        return invert_each_with_residual(self.dense.astype(np.float64))

    @frozen_property
    def _siblings(self) -> SiblingMatrices:
        """The matrices A_v of children that are nodes of their own."""
        return SiblingMatrices(self.children)


@dataclass(frozen=True, eq=False)
class TreeBlock:
    """The integer matrices of one block of a tree.

    Attributes:
        block: The structure's block.
        root: M_0, shape (n, n), for the n classes that are measured (`TreeStructure.find_totals`).
        steps: The matrices of the steps of the tree that are no deeper than the block is asked for.
    """

    block: int
    root: IntArray
    steps: tuple[StepMatrices, ...]

    @frozen_property
    def root_inverse(self) -> FloatArray:
        """M_0^-1, shape (n, n)."""
        M = self.root.astype(np.float64)
        return np.asarray(solve_triangular(M, np.eye(len(M)))) if len(M) else M

    def spread_root(self, structure: TreeStructure) -> IntArray:
        """Give the root's classes that are not measured columns of zeros, shape (n, r)."""
        columns = np.zeros((len(self.root), structure.classes[self.block][0].size), dtype=np.int64)
        columns[:, structure.find_totals(self.block).measured] = self.root
        return columns

    def list_steps(self, structure: TreeStructure) -> Iterator[tuple[TreeStep, StepMatrices]]:
        """List the steps of the tree that the block has matrices for, from the root downwards."""
        return zip(structure.tree.steps, self.steps, strict=False)

    def list_siblings(
        self, tree: UnfoldedTree, columns: int
    ) -> Iterator[tuple[Siblings, StepMatrices]]:
        """List the siblings of an unfolded tree that the block measures, with their matrices.

        Args:
            tree: The structure's tree, or some rows of it.
            columns: The numbers that are held for each child. Nodes are listed in parts whose
                children have some million numbers together.
        """
        for siblings in tree.siblings:
            if siblings.step < len(self.steps):
                b, k = siblings.children.shape
                together = max(1, _MOST_NUMBERS // (k * max(columns, 1)))
                for start in range(0, b, together):
                    part = siblings.take(slice(start, start + together))
                    yield part, self.steps[siblings.step]

    def count_answers(self, structure: TreeStructure, deepest: int | None = None) -> int:
        """Count the block's answers of each cell of contrasts, down to a depth or all of them."""
        return len(self.root) + sum(
            matrices.count_answers(step)
            for step, matrices in self.list_steps(structure)
            if deepest is None or step.depth <= deepest
        )

    def check_form(self, structure: TreeStructure) -> None:
        """Check that the matrices have the shapes, types and ranges that they must have.

        Raises:
            PlanError: If one has not.
        """
        classes = structure.classes[self.block]
        n = len(structure.find_totals(self.block).measured)
        _check_triangular(self.root[None], (1, n, n))
        expected = [step for step in structure.tree.steps if step.depth < len(classes)]
        if len(expected) != len(self.steps):
            raise PlanError("the strategy does not measure the nodes that its queries ask for")
        for step, matrices in zip(expected, self.steps, strict=True):
            (b, k), r = step.children.shape, classes[step.depth].size
            _check_triangular(matrices.dense, (b, r, r))
            children = matrices.children
            shape = (b, k - 1, k) if step.counts is None else (b,)
            if (
                children.dtype != np.int64
                or children.shape != shape
                or find_largest_entry(children) >= MAX_ENTRY
            ):
                raise PlanError("what it measures of a node's children is not an integer matrix")
            if step.counts is not None and int(children.min()) < 1:
                raise PlanError("what it measures of identical leaves is no multiple of contrasts")


@dataclass(frozen=True, eq=False)
class TreeIntegers(IntegerStrategy[T]):
    """The integers of a strategy of trees; `TreeStrategy` has what follows from them.

    Attributes:
        tree_blocks: The blocks that are measured, in their order.
    """

    tree_blocks: tuple[TreeBlock, ...]

    @property
    def widths(self) -> list[tuple[IntArray, int]]:
        return [
            (np.array([tree_block.block], dtype=np.int64), tree_block.count_answers(self.structure))
            for tree_block in self.tree_blocks
        ]

    @property
    def column_height(self) -> int:
        return sum(64 * len(tree_block.steps) for tree_block in self.tree_blocks)

    def list_blocks(self) -> Iterator[tuple[TreeBlock, tuple[int, ...], int]]:
        """List each block with the shape and the start of its answers."""
        start = 0
        for tree_block in self.tree_blocks:
            (attributes,) = self.structure.subsets.list_attributes([tree_block.block])
            rows = [self.attribute_matrices[a].rows for a in attributes]
            shape = (*rows, tree_block.count_answers(self.structure))
            yield tree_block, shape, start
            start += math.prod(shape)


def square_columns(matrices: IntArray, positions: IntArray, columns: IntArray) -> AnyArray:
    """Compute the squares of the norms of columns of some of the matrices (b, m, n), exactly.

    Args:
        matrices: Shape (b, m, n).
        positions: The index of a matrix, shape (c,).
        columns: The index of a column of each, shape (c,).

    Returns:
        Python integers, shape (c,).
    """
    n = matrices.shape[2]
    different, inverse = np.unique(positions * n + columns, return_inverse=True)
    chosen = matrices[different // n, :, different % n].astype(object)
    return np.asarray((chosen * chosen).sum(axis=1)[inverse.ravel()])


def _list_by_leaf(counts: IntArray, find: Callable[[ContrastMatrix], int]) -> AnyArray:
    """List a number of the contrasts of each node's identical leaves, shape (b,)."""
    different, inverse = np.unique(counts, return_inverse=True)
    numbers = [find(build_contrasts(k)) for k in different.tolist()]
    return np.array(numbers, dtype=np.int64)[inverse.ravel()]


def _check_triangular(matrices: IntArray, shape: tuple[int, int, int]) -> None:
    """Check that matrices (b, r, r) are upper triangular with a positive diagonal."""
    if matrices.dtype != np.int64 or matrices.shape != shape:
        raise PlanError("the strategy is not a square integer matrix of each node's classes")
    at = np.arange(shape[1])
    if np.tril(matrices, -1).any() or (matrices[:, at, at] <= 0).any():
        raise PlanError("the strategy is not an invertible upper triangular matrix")
    if matrices.size and find_largest_entry(matrices) >= MAX_ENTRY:
        raise PlanError("the strategy's integers are too large")


def list_block_tables(structure: TreeStructure) -> list[tuple[str, ...]]:
    """List the attributes whose exact counts give the answers of each block in turn."""
    domain = structure.workload.domain
    return [
        domain.ordered(structure.name_attributes(block) + list_needed(structure, block))
        for block in structure.noisy_blocks.tolist()
    ]


def find_classes_below(structure: TreeStructure, block: int, depth: int) -> CellClasses:
    """Find the classes of a depth among those of the depth above; of depth 0, among the cells."""
    classes = structure.classes[block]
    return classes[depth - 1].find_merged(classes[depth]) if depth else classes[0]


def list_needed(structure: TreeStructure, block: int) -> tuple[str, ...]:
    """List the attributes that are not symmetric whose counts a block needs, the tree first."""
    used = {
        name
        for part in structure.parts[block]
        for name in structure.workload.groups[part.group].attributes
    }
    is_asked = structure.find_block_depth(block) > 0
    tree = (structure.tree_attribute,) if is_asked else ()
    return tree + tuple(name for name in structure.dense if name in used)


def find_part(structure: TreeStructure, block: int, group: int) -> GroupPart:
    """Find what a block answers of a group."""
    return next(part for part in structure.parts[block] if part.group == group)
