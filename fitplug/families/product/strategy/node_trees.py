"""Trees whose nodes are grades: a block decides how accurately each node's children are measured.

The matrix of a tree (`fitplug.families.product.strategy.trees`) then has one root and the
multiplier 1 at every node, and the rows of H_v are a grade:

    eta_v(leaf) = |H_v e|^2 for v above the leaf       gamma_v(w) = that of v's child above w

where e is v's child above the leaf. A tree may have variants, which measure the children of a node
with different weights (`WeightedContrasts`). All variants spread the total evenly over the children
of each node, so x = E_v A_v x + u 1'x holds with the same u. The leaves below one parent have equal
weights, so their columns are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array, hstack

from fitplug.families.base.attribute_matrices import DenseMatrix, RowGrades
from fitplug.families.base.contrasts import ContrastMatrix, build_contrasts
from fitplug.families.base.tree_shape import Siblings, TreeShape
from fitplug.families.product.strategy.trees import TreeMatrix
from fitplug.families.product.strategy.variants import VariantMatrix
from fitplug.families.product.strategy.weighted_contrasts import WeightedContrasts
from fitplug.numeric import AnyArray, FloatArray, IntArray, frozen_property, gamma
from fitplug.workload import Factor

_MOST_ENTRY = 2**30
"""The limit on an entry of weighted contrasts: the squares of their columns fit into int64."""


def count_weights(shape: TreeShape) -> int:
    """Count the children of the nodes that branch above the parents of leaves."""
    return sum(group.children.size for group in shape.siblings if group.depth < shape.steps - 1)


@dataclass(frozen=True, eq=False)
class NodeTreeMatrix(TreeMatrix):
    """The integer matrix of a tree whose nodes are grades.

    Attributes:
        weights: The weights a of the children of each node that branches above the parents of
            leaves, in the order of `shape.siblings`, shape (`count_weights`,); None if all nodes
            have the contrasts of symmetric attributes.
    """

    weights: AnyArray | None = None

    @classmethod
    def of_weights(cls, shape: TreeShape, weights: AnyArray | None = None) -> NodeTreeMatrix:
        """Make the matrix of a tree with one root; without weights, the shape determines it."""
        top = DenseMatrix(np.zeros((0, 1), dtype=np.int64))
        return cls(shape, top, np.ones(shape.branching, dtype=np.int64), weights)

    @property
    def arrays_in_file(self) -> Mapping[str, IntArray]:
        return {}

    @frozen_property
    def contrasts(self) -> tuple[ContrastMatrix | WeightedContrasts, ...]:
        """The contrasts of each of `shape.siblings`."""
        contrasts: list[ContrastMatrix | WeightedContrasts] = []
        start = 0
        for group in self.shape.siblings:
            stop = start + (group.children.size if group.depth < self.shape.steps - 1 else 0)
            # Equal weights have as many rows as others: all variants must have the same number.
            contrasts.append(
                build_contrasts(group.k)
                if self.weights is None or start == stop
                else WeightedContrasts(self.weights[start:stop].reshape(group.children.shape))
            )
            start = stop
        return tuple(contrasts)

    def _find_contrasts(self, group: Siblings) -> ContrastMatrix | WeightedContrasts:
        return self.contrasts[self.shape.siblings.index(group)]

    @cached_property
    def column_square(self) -> int:
        return int(self.grades.column_squares.sum(axis=1).max())

    def _multiply_columns(self, nodes: IntArray, i: IntArray, j: IntArray) -> AnyArray:
        values = super()._multiply_columns(nodes, i, j)
        for group, H in zip(self.shape.siblings, self.contrasts, strict=True):
            if isinstance(H, WeightedContrasts):
                place = np.full(self.shape.branching, -1)
                place[group.positions] = np.arange(len(group.positions))
                (pairs,) = np.nonzero(place[nodes] >= 0)
                at = place[nodes[pairs]]
                first = group.children[at, 0]
                values[pairs] = H.multiply_columns(at, i[pairs] - first, j[pairs] - first)
        return values

    def part(self) -> tuple[FloatArray, FloatArray]:
        """Return a_i'a_j in each node's grade, of leaves with |a_i| = |a_j| below two children.

        Returns:
            Its slope as a function of |a_i|^2, and its value at 0, shapes (V,).
        """
        slopes, offsets = np.zeros((2, self.shape.branching))
        for group, H in zip(self.shape.siblings, self.contrasts, strict=True):
            k, at = group.k, group.positions
            if isinstance(H, WeightedContrasts) and k > 2:
                slopes[at] = -2 / (k - 2)
                offsets[at] = k * (H.weights**2.0).sum(axis=1) / (k - 2)
            else:
                slopes[at] = -1 / (k - 1)
        return slopes, offsets

    @frozen_property
    def grades(self) -> RowGrades:
        shape = self.shape
        rows, adjoint = [], []
        kind = np.int64 if self.weights is None else np.result_type(np.int64, self.weights)
        entries = np.zeros(shape.branching, dtype=np.int64)
        # Per depth, |H e|^2 of each node in the contrasts of its parent.
        squares = [np.zeros(len(first), dtype=kind) for first in shape.first]
        for group, H in zip(shape.siblings, self.contrasts, strict=True):
            rows.append(np.repeat(group.positions, H.rows))
            adjoint.append(np.repeat(group.positions, group.k))
            if isinstance(H, WeightedContrasts):
                squares[group.depth + 1][group.children] = H.column_squares
                entries[group.positions] = H.largest_entries
            else:
                squares[group.depth + 1][group.children] = H.column_square
                entries[group.positions] = H.largest_entry
        # The leaves of one parent have equal columns.
        columns = np.zeros((1, shape.branching), dtype=kind)
        steps = shape.arrange_by_step(np.arange(shape.branching), -1)
        for step, nodes in enumerate(steps):
            is_last = step == shape.steps - 1
            parents = np.arange(len(nodes)) if is_last else shape.parents[step]
            children = shape.first_children[step] if is_last else np.arange(len(parents))
            columns, grades = columns[parents], nodes[parents]
            (branching,) = np.nonzero(grades >= 0)
            columns[branching, grades[branching]] = squares[step + 1][children[branching]]
        return RowGrades(np.concatenate(rows), np.concatenate(adjoint), columns, entries)

    def compute_products(self, i: IntArray, j: IntArray) -> csr_array:
        """Compute a_i'a_j of the columns of pairs of leaves by node exactly, shape (pairs, V)."""
        pairs, nodes, values = map(np.concatenate, zip(*self.list_products(i, j), strict=True))
        return csr_array((values, (pairs, nodes)), shape=(len(i), self.shape.branching))

    def upper_variance_parts(self, factor: Factor) -> FloatArray:
        """Bound mu^2 and the gammas of a level's nodes, or of "total", (nodes, 1 + V)."""
        level, shape = factor.kind, self.shape
        variances = np.zeros((1, 1 + shape.branching))
        variances[0, 0] = 1.0
        if level in shape.above:
            return variances
        # Per depth, the addition to each node's gamma, and the most operations it takes.
        added = [np.zeros(len(first)) for first in shape.first]
        operations = 8
        for group, H in zip(shape.siblings, self.contrasts, strict=True):
            if isinstance(H, WeightedContrasts):
                added[group.depth + 1][group.children] = H.variances
                operations = max(operations, 8 + 4 * group.k)
            else:
                added[group.depth + 1][group.children] = (group.k - 1) / (group.k * H.precision)
        depth = shape.depths[level]
        nodes = shape.arrange_by_step(np.arange(shape.branching), -1)
        for step in range(depth):
            k, parents = shape.children[step], shape.parents[step]
            variances = (variances / (k[:, None].astype(np.float64) ** 2))[parents]
            grades = nodes[step][parents]
            (branching,) = np.nonzero(grades >= 0)
            variances[branching, 1 + grades[branching]] += added[step + 1][branching]
        # So many operations a step, on numbers that are not negative.
        return np.asarray(variances * (1 + gamma(operations * depth)))


@dataclass(frozen=True, eq=False)
class TreeVariants(VariantMatrix):
    """The variants of a tree whose nodes are grades."""

    matrices: tuple[NodeTreeMatrix, ...]

    @classmethod
    def of_weights(cls, shape: TreeShape, weights: AnyArray, variants: IntArray) -> TreeVariants:
        """Make the matrices from the weights of each variant and the variant of each block."""
        return cls(tuple(NodeTreeMatrix.of_weights(shape, one) for one in weights), variants)

    @property
    def shape(self) -> TreeShape:
        """The tree."""
        return self.matrices[0].shape

    def compute_products(self, i: IntArray, j: IntArray) -> csr_array:
        """Compute a_i'a_j of the columns of pairs of leaves by grade exactly, shape (pairs, K)."""
        return csr_array(hstack([matrix.compute_products(i, j) for matrix in self.matrices]))

    def part(self) -> tuple[FloatArray, FloatArray]:
        """Return the result of `NodeTreeMatrix.part` for the grades of all variants."""
        slopes, offsets = zip(*(matrix.part() for matrix in self.matrices), strict=True)
        return np.concatenate(slopes), np.concatenate(offsets)

    @property
    def arrays_in_file(self) -> Mapping[str, IntArray]:
        return {
            "weights": np.stack([one.weights for one in self.matrices if one.weights is not None])
        }

    def has_form(self, n: int) -> bool:
        shape = self.shape
        count, most = count_weights(shape), _MOST_ENTRY // int(shape.branching_children.max())
        return self.n == n and all(
            matrix.weights is not None
            and matrix.weights.dtype == np.int64
            and matrix.weights.shape == (count,)
            and (not count or 1 <= int(matrix.weights.min()) <= int(matrix.weights.max()) < most)
            for matrix in self.matrices
        )
