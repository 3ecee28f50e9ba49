"""Y_k of each attribute at the pairs of its values, where neighbours replace a record.

Values i and j of attribute a have the numbers (Y_k)_ii, (Y_k)_jj and (Y_k)_ij in each grade k. A
symmetric attribute has two values that stand for all. In a hierarchy, leaves are alike: j costs as
much as i in the grades whose nodes part them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np

from fitplug.families.base.attribute_matrices import AttributeMatrix, DenseMatrix
from fitplug.families.base.contrasts import build_contrasts
from fitplug.families.base.tree_shape import TreeShape
from fitplug.families.product.design.attribute_covariance import AttributeCovariance
from fitplug.families.product.design.dense_covariance import DenseCovariance
from fitplug.families.product.design.node_tree_covariance import NodeTreeCovariance
from fitplug.families.product.design.scales import find_distinct
from fitplug.families.product.design.tree_covariance import TreeCovariance
from fitplug.families.product.shape.grades import add_total
from fitplug.families.product.strategy.node_trees import NodeTreeMatrix, TreeVariants
from fitplug.families.product.strategy.variants import DenseVariants
from fitplug.numeric import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class TreeProducts:
    """Y_k of a hierarchy's grades, at pairs of leaves that are alike.

    A pair has a leaf i and a way to move: 0 if it stays, or 1 plus the depth of the node whose
    children part it. In the grades of this depth, j is below another child with the same Y_jj.

    Attributes:
        eta: (Y_k)_ii of leaves, shape (n, K).
        slopes: The slope of (Y_k)_ij as a function of (Y_k)_ii, if i and j are below different
            children of the grade's node, shape (K,).
        offsets: The function's value at 0, shape (K,).
        depths: The depth of each grade's node, shape (K,).
    """

    eta: FloatArray
    slopes: FloatArray
    offsets: FloatArray
    depths: IntArray

    @cached_property
    def leaves(self) -> FloatArray:
        """eta of the distinct leaves, shape (c, K); the largest if there is one grade."""
        if self.eta.shape[1] == 1:
            return self.eta.max(axis=0, keepdims=True)
        return find_distinct(self.eta)[0]

    @cached_property
    def same(self) -> FloatArray:
        """1 in the grades whose node's children do not part i and j, by way, shape (ways, K)."""
        ways = np.arange(int(self.depths.max()) + 2)[:, None]
        return ((ways == 0) | (self.depths + 1 < ways)).astype(np.float64)

    @cached_property
    def parts(self) -> FloatArray:
        """1 in the grades of the nodes that may part i and j, by way, shape (ways, K)."""
        return (np.arange(len(self.same))[:, None] == self.depths + 1).astype(np.float64)

    def part(self, eta: FloatArray) -> FloatArray:
        """Return (Y_k)_ij of leaves that are below different children of the grade's node."""
        return np.where(eta > 0, self.slopes * eta + self.offsets, 0.0)

    def compute_slopes(self, ways: IntArray) -> FloatArray:
        """Return the derivative of (Y_k)_ij by (Y_k)_ii for ways to move (t,), shape (t, K)."""
        return self.same[ways] + self.parts[ways] * self.slopes

    def join(self, eta: FloatArray, ways: IntArray) -> FloatArray:
        """Return (Y_k)_ij of leaves and ways to move, shape (k, K)."""
        return self.same[ways] * eta + self.parts[ways] * self.part(eta)

    def measure(self, cells: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """List Y_k at (i, i), (j, j) and (i, j) of leaves and ways to move (k, 2), (k, K)."""
        eta = self.leaves[cells[:, 0]]
        return eta, eta, self.join(eta, cells[:, 1])

    def average(self, p: FloatArray, ways: IntArray) -> FloatArray:
        """Average (Y_k)_ij by weights of leaves (t, n) for ways to move (t,), shape (t, K)."""
        return self.same[ways] * (p @ self.eta) + self.parts[ways] * (p @ self.part(self.eta))

    def multiply(
        self, leaves: FloatArray, ends: FloatArray, both: FloatArray, ways: IntArray
    ) -> FloatArray:
        """Return the sum over grades of ends Y_ii - both Y_ij.

        Args:
            leaves: eta of leaves, shape (c, K).
            ends: The factors of Y_ii, shape (t, K).
            both: Those of Y_ij, likewise.
            ways: The ways to move, shape (t,).

        Returns:
            Shape (t, c).
        """
        of_eta = (ends - both * self.same[ways]) @ leaves.T
        return of_eta - (both * self.parts[ways]) @ self.part(leaves).T

    def choose(self, u: FloatArray, v: FloatArray, w: FloatArray, is_free: bool) -> IntArray:
        """Choose the costliest leaves and ways to move, given factors of their Y_k, (k, 2)."""
        costs = np.stack(
            [
                self.multiply(self.leaves, u + v, 2 * w, np.full(len(u), way))
                for way in range(len(self.same) if is_free else 1)
            ],
            axis=1,
        )
        flat = costs.reshape(len(u), -1).argmax(axis=1)
        return np.stack(np.divmod(flat, len(self.leaves))[::-1], axis=1)


Products: TypeAlias = "FloatArray | TreeProducts"
"""Y_k of an attribute, shape (K, n, n) or of a hierarchy."""


def list_pair_products(
    covariances: Sequence[AttributeCovariance], sizes: Sequence[int]
) -> tuple[Products, ...]:
    """List Y_k of each attribute's covariance; for a symmetric one, at two of its cells."""
    products: list[Products] = []
    for covariance, n in zip(covariances, sizes, strict=True):
        if isinstance(covariance, DenseCovariance):
            products.append(np.stack([K.T @ K for K in covariance.precisions]))
        elif isinstance(covariance, NodeTreeCovariance):
            products.append(
                _pair_nodes(covariance.shape, covariance.compute_eta(), *covariance.part())
            )
        elif isinstance(covariance, TreeCovariance):
            # Leaves that part at the top stand for all.
            shape = covariance.shape
            top = shape.top if shape.top > 1 else int(shape.branching_children[0])
            slopes = np.array([-1 / (top - 1)])
            products.append(
                TreeProducts(covariance.compute_eta(), slopes, np.zeros(1), np.zeros(1, np.int64))
            )
        else:
            products.append(_pair_symmetric(1 - 1 / n, -1 / n, n))
    return tuple(products)


def list_matrix_products(
    matrices: Sequence[AttributeMatrix], near: Sequence[Products]
) -> tuple[Products, ...]:
    """List Y_k of integer matrices of the attributes, whose real ones are `near`."""
    products: list[Products] = []
    for matrix, Y in zip(matrices, near, strict=True):
        if isinstance(Y, TreeProducts):
            products.append(_pair_tree_matrix(matrix, Y))
        elif isinstance(matrix, (DenseMatrix, DenseVariants)):
            parts = [rows.astype(np.float64) for rows in matrix.split_rows()]
            products.append(np.stack([part.T @ part for part in parts]))
        else:
            contrasts = build_contrasts(matrix.n)
            between = -contrasts.precision / contrasts.n
            products.append(_pair_symmetric(float(contrasts.column_square), between, matrix.n))
    return tuple(products)


def _pair_nodes(
    shape: TreeShape, eta: FloatArray, slopes: FloatArray, offsets: FloatArray
) -> TreeProducts:
    """Return the products of a tree whose nodes are grades, in each of its variants."""
    variants = len(slopes) // shape.branching
    return TreeProducts(eta, slopes, offsets, np.tile(shape.branching_depths, variants))


def _pair_tree_matrix(matrix: AttributeMatrix, near: TreeProducts) -> TreeProducts:
    """Return the products of the integer matrix of a hierarchy."""
    if isinstance(matrix, (NodeTreeMatrix, TreeVariants)):
        assert matrix.grades is not None
        eta = matrix.grades.column_squares.astype(np.float64)
        return _pair_nodes(matrix.shape, eta, *matrix.part())
    return replace(near, eta=np.array([[float(matrix.column_square)]]))


def _pair_symmetric(same: float, between: float, n: int) -> FloatArray:
    """Return Y_k of a symmetric attribute at two cells, shape (1, 2, 2), or at its only one."""
    return np.array([[[same, between], [between, same]]])[:, : min(n, 2), : min(n, 2)]


def measure_pairs(
    products: Sequence[Products], cells: IntArray, with_trees: bool = True
) -> list[list[FloatArray]]:
    """List 1 and Y_k at (i, i), (j, j) and (i, j) of pairs (k, 2, attributes), (k, 1 + K).

    Without trees, all numbers of hierarchies are 1.
    """
    measured: list[list[FloatArray]] = [[], [], []]
    for a, Y in enumerate(products):
        i, j = cells[:, :, a].T
        triples: Sequence[FloatArray]
        if not isinstance(Y, TreeProducts):
            triples = Y[:, i, i].T, Y[:, j, j].T, Y[:, i, j].T
        elif with_trees:
            triples = Y.measure(cells[:, :, a])
        else:
            triples = (np.ones((len(cells), len(Y.slopes))),) * 3
        for entries, numbers in zip(measured, triples, strict=True):
            entries.append(add_total(numbers))
    return measured
