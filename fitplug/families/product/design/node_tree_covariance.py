"""The covariance of a hierarchy whose nodes are grades.

The contrasts of the k children of node v, spread evenly over the leaves below, have the covariance
E_v C_v E_v' times the scales of the blocks, where C_v has a number z_i for each child:

    C_v = diag(z) - z z' / S         S = sum z
    Y_v = R diag(1 / z) R            R = I - J/k
    gamma_i = z_i (1 - z_i / S)      eta_i = (1 - 2/k) / z_i + sum(1 / z) / k^2

A number c_v at each node would only multiply the scales, and with equal z, C_v is a multiple of I -
J/k. Each variant of the tree has its own z. See docs/theory/product-family.md, "Nodes of unequal
size".
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fitplug.families.base.contrasts import ContrastMatrix
from fitplug.families.base.tree_shape import TreeShape
from fitplug.families.product.design.attribute_covariance import (
    AttributeOptimum,
    AttributeQueries,
    make_uniform_optimum,
)
from fitplug.families.product.shape.batches import DistinctFactor
from fitplug.families.product.strategy.node_trees import (
    NodeTreeMatrix,
    TreeVariants,
    count_weights,
)
from fitplug.numeric import FloatArray, IntArray, frozen_property

_MOST_WEIGHT = 2.0**10
"""The most weight of a child: more would leave fewer bits for the scales."""


@dataclass(frozen=True, eq=False)
class NodeTreeCovariance:
    """A hierarchy whose V branching nodes are grades, in each variant.

    Attributes:
        shape: The tree, with one root.
        variants: The variant of each block, shape (b,).
        roots: The square roots of z of each variant, shape (variants, `count_weights`). Children
            that are leaves have none, as their z are equal.
    """

    shape: TreeShape
    variants: IntArray
    roots: FloatArray

    @classmethod
    def fits(cls, queries: AttributeQueries) -> bool:
        """Tell whether the nodes are grades."""
        return queries.grades.tree is not None

    @classmethod
    def optimise(cls, queries: AttributeQueries) -> AttributeOptimum:
        """Return the covariance with equal z, and uniform weights."""
        shape, grades = queries.grades.tree, queries.grades
        assert shape is not None
        roots = np.ones((len(grades.starts) - 1, count_weights(shape)))
        return make_uniform_optimum(cls(shape, grades.variants, roots), queries)

    @property
    def key(self) -> Hashable:
        """Equal for identical covariances."""
        return type(self), self.shape, self.roots.tobytes(), self.variants.tobytes()

    @frozen_property
    def _matrix(self) -> TreeVariants:
        """Real matrices of the variants, whose rows are multiples of those of Y_v."""
        return TreeVariants.of_weights(self.shape, 1 / self.roots, self.variants)

    @frozen_property
    def _precisions(self) -> FloatArray:
        """The numbers that make H_v'H_v / precision equal to Y_v, shape (K,)."""
        precisions = np.ones((len(self.roots), self.shape.branching))
        for of_variant, matrix in zip(precisions, self._matrix.matrices, strict=True):
            for group, H in zip(self.shape.siblings, matrix.contrasts, strict=True):
                precision = H.precision if isinstance(H, ContrastMatrix) else group.k**2
                of_variant[group.positions] = precision
        return precisions.ravel()

    def compute_eta(self) -> FloatArray:
        """Return (Y_v)_ii of each leaf and grade, shape (n, K)."""
        columns = self._matrix.grades.column_squares / self._precisions
        return np.asarray(columns[self.shape.parents[-1]])

    def part(self) -> tuple[FloatArray, FloatArray]:
        """Return Y_ij of leaves below two children of a grade's node as a function of Y_ii.

        Returns:
            The slope and the value at 0 of each grade, shapes (K,), for leaves with Y_ii = Y_jj.
        """
        slopes, offsets = self._matrix.part()
        return slopes, offsets / self._precisions

    def compute_variance_parts(self, factor: DistinctFactor) -> FloatArray:
        """Return mu^2 and the gammas of the nodes of a level, or of "total", (nodes, 1 + K)."""
        parts = self._matrix.upper_variance_parts(factor.factor)
        parts[:, 1:] *= self._precisions
        return parts

    def descend(
        self,
        moments: Sequence[FloatArray],
        pulls: Sequence[tuple[DistinctFactor, FloatArray]],
    ) -> NodeTreeCovariance:
        """Step towards z with the least Lagrangian, in each variant of several.

        For the children of a node with the moments m, the pulls g and the sum M of m, the
        derivative with respect to z_i is zero where

            z_i^2 = (m_i (1 - 2/k) + M / k^2) / (g_i (1 - 2 z_i / S) + sum(g z^2) / S^2).

        The denominator is positive, and a step takes z from the old one.
        """
        if len(self.roots) == 1:
            return self
        shape, V = self.shape, self.shape.branching
        pooled = [np.zeros((len(first), len(moments))) for first in shape.first]
        for factor, pull in pulls:
            if factor.factor.kind not in shape.above:
                pooled[shape.depths[factor.factor.kind]] += pull[:, 1:]
        for step in reversed(range(shape.steps)):
            below = np.add.reduceat(pooled[step + 1], shape.first_children[step], axis=0)
            pooled[step] += below / shape.children[step][:, None] ** 2.0
        roots, start, by_grade = self.roots.copy(), 0, np.stack(moments)
        for group in shape.siblings:
            if group.depth == shape.steps - 1:
                continue
            k, stop = group.k, start + group.children.size
            mass = shape.sum_leaves(by_grade, group.depth + 1)
            for variant, old in enumerate(self.roots[:, start:stop]):
                grades = variant * V + group.positions[:, None]
                m = mass[grades, group.children]
                g = pooled[group.depth + 1][group.children, grades]
                z = old.reshape(m.shape) ** 2
                w = z / z.sum(axis=1, keepdims=True)
                up = m * (1 - 2 / k) + m.sum(axis=1, keepdims=True) / k**2
                down = g * (1 - 2 * w) + (g * w * w).sum(axis=1, keepdims=True)
                moves = ((up > 0) & (down > 0)).all(axis=1)
                ratios = np.divide(up, down, out=np.ones_like(up), where=moves[:, None])
                new = np.sqrt(np.where(moves[:, None], np.sqrt(ratios), z))
                new /= new.mean(axis=1, keepdims=True)
                roots[variant, start:stop] = new.ravel()
            start = stop
        return replace(self, roots=roots)

    def round_to_integers(
        self, factors: Sequence[DistinctFactor], bits: int
    ) -> NodeTreeMatrix | TreeVariants:
        """Return the integer contrasts of each node, weighted if the tree has variants."""
        if len(self.roots) == 1:
            return NodeTreeMatrix.of_weights(self.shape)
        weights = np.ones(self.roots.shape, dtype=np.int64)
        start = 0
        for group in self.shape.siblings:
            if group.depth == self.shape.steps - 1:
                continue
            stop = start + group.children.size
            real = 1 / self.roots[:, start:stop].reshape(-1, *group.children.shape)
            most = min(max(2.0**bits / group.k, 1.0), _MOST_WEIGHT)
            unit = most / real.max(axis=2, keepdims=True)
            rounded = np.maximum(np.rint(real * unit), 1.0).astype(np.int64)
            rounded //= np.gcd.reduce(rounded, axis=2, keepdims=True)
            weights[:, start:stop] = rounded.reshape(len(weights), -1)
            start = stop
        return TreeVariants.of_weights(self.shape, weights, self.variants)
