"""Trees: hierarchies of any number of leaves, whose integer matrix is never formed.

Let S be the sums of the P top nodes, R_v the sums of the k_v > 1 children of a branching node v,
and H_v their contrasts (`fitplug.families.base.contrasts`). Then

    A = [A_T S; m_v H_v R_v for every v]        [A_T; 1'] (P, P) invertible

    x = E A x + u 1'x        1'u = 1,  A u = 0,  1'E = 0

where u spreads evenly below the top. With precision_v the factor in H_v'H_v, E computes for each

    child of v:  parent's / k_v + H_v^+ y_v / m_v        H_v^+ = H_v' / precision_v

The estimates of a node do not depend on the contrasts of other nodes: A E is block diagonal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fitplug.families.base.attribute_matrices import AttributeMatrix, DenseMatrix
from fitplug.families.base.contrasts import ContrastMatrix, build_contrasts
from fitplug.families.base.mechanism import MAX_ENTRY
from fitplug.families.base.tree_shape import Siblings, TreeShape
from fitplug.families.product.strategy.weighted_contrasts import WeightedContrasts
from fitplug.numeric import (
    AnyArray,
    FloatArray,
    IntArray,
    find_largest_entry,
    frozen_property,
    gamma,
    multiply_exactly,
)
from fitplug.workload import Factor

_END_OF_INT64 = 2**63


@dataclass(frozen=True, eq=False)
class TreeMatrix(AttributeMatrix):
    """The integer matrix A of a tree; see the module's docstring.

    The rows of A are those of A_T S, and then each parent's in the order of `shape.siblings`.

    Attributes:
        shape: The tree.
        top: A_T, shape (P - 1, P).
        multipliers: m of the nodes that branch, shape (V,), int64.
    """

    shape: TreeShape
    top: DenseMatrix
    multipliers: IntArray

    @classmethod
    def from_arrays(cls, shape: TreeShape, arrays: Mapping[str, AnyArray]) -> TreeMatrix:
        """Read the matrix from the arrays of a plan file.

        Raises:
            KeyError: If one is missing.
        """
        return cls(shape, DenseMatrix.from_arrays(arrays), arrays["multipliers"])

    @property
    def arrays_in_file(self) -> Mapping[str, IntArray]:
        return {**self.top.arrays_in_file, "multipliers": self.multipliers}

    def has_form(self, n: int) -> bool:
        m = self.multipliers
        fits = self.n == n and self.top.has_form(self.shape.top)
        fits = fits and m.dtype == np.int64 and m.shape == (self.shape.branching,)
        return fits and (not m.size or 1 <= int(m.min()) <= int(m.max()) < MAX_ENTRY)

    @property
    def n(self) -> int:
        return self.shape.n

    @cached_property
    def rows(self) -> int:
        """The number of rows of A."""
        contrast_rows = sum(
            len(group.parents) * self._find_contrasts(group).rows for group in self.shape.siblings
        )
        return self.shape.top - 1 + contrast_rows

    @cached_property
    def largest_entry(self) -> int:
        entries = [
            self._find_multiplier(group) * self._find_contrasts(group).largest_entry
            for group in self.shape.siblings
        ]
        return max([self.top.largest_entry, *entries])

    @cached_property
    def growth(self) -> int:
        leaves = self.shape.leaves
        A = np.abs(self.top.matrix)
        sums = multiply_exactly(A, leaves[0][:, None]) if A.size else [0]
        answers = [
            self._find_multiplier(group)
            * self._find_contrasts(group).largest_entry
            * int(leaves[group.depth][group.parents].max())
            for group in self.shape.siblings
        ]
        return max([int(np.max(sums)), *answers])

    def _find_contrasts(self, group: Siblings) -> ContrastMatrix | WeightedContrasts:
        """Find the contrasts of the children of a group of nodes."""
        return build_contrasts(group.k)

    def _find_multiplier(self, group: Siblings) -> int:
        """Find the largest multiplier in a group of siblings."""
        return int(self.multipliers[group.positions].max())

    @frozen_property
    def _squares(self) -> AnyArray:
        """The contribution of each branching node to |A e_i|^2, shape (V,).

        It is int64 or, if that might overflow, Python integers.
        """
        columns = np.ones(self.shape.branching, dtype=np.int64)
        for group in self.shape.siblings:
            columns[group.positions] = build_contrasts(group.k).column_square
        bound = max(
            (
                self._find_multiplier(g) ** 2 * build_contrasts(g.k).column_square
                for g in self.shape.siblings
            ),
            default=0,
        )
        fits = self.shape.top * self.top.largest_entry**2 + self.shape.steps * bound < _END_OF_INT64
        kind = np.int64 if fits else object
        return np.asarray(self.multipliers.astype(kind) ** 2 * columns.astype(kind))

    def compute_column_squares(self) -> AnyArray:
        """Compute |A e_i|^2 of each leaf exactly, shape (n,), int64 or Python integers."""
        total = (self.top.matrix.astype(self._squares.dtype) ** 2).sum(axis=0)
        steps = self.shape.arrange_by_step(self._squares, 0)
        for squares, parents in zip(steps, self.shape.parents, strict=True):
            total = (total + squares)[parents]
        return np.asarray(total)

    @cached_property
    def column_square(self) -> int:
        return int(self.compute_column_squares().max())

    def compute_products(self, i: IntArray, j: IntArray) -> AnyArray:
        """Compute a_i'a_j of the columns of pairs of leaves exactly, shape (pairs, 1)."""
        tops = [self.shape.find_nodes(leaves, 0) for leaves in (i, j)]
        kind, A = self._squares.dtype, self.top.matrix
        gram = multiply_exactly(A.T, A) if A.size else np.zeros((self.shape.top,) * 2)
        total = gram[tuple(tops)].astype(kind)
        for pairs, _, values in self.list_products(i, j):
            total[pairs] += values
        return total[:, None]

    def list_products(
        self, i: IntArray, j: IntArray
    ) -> Iterator[tuple[IntArray, IntArray, AnyArray]]:
        """List the products of the columns of pairs of leaves below the top, step by step.

        Yields:
            The indices of the pairs that have leaves below one node, its index among the nodes that
            branch, and the product of the columns in its contrasts.
        """
        nodes = self.shape.arrange_by_step(np.arange(self.shape.branching), -1)
        for step, of_parents in enumerate(nodes):
            parents, others = (self.shape.find_nodes(leaves, step) for leaves in (i, j))
            pairs = np.flatnonzero((parents == others) & (of_parents[parents] >= 0))
            children, others = (self.shape.find_nodes(leaves[pairs], step + 1) for leaves in (i, j))
            at = of_parents[parents[pairs]]
            yield pairs, at, self._multiply_columns(at, children, others)

    def _multiply_columns(self, nodes: IntArray, i: IntArray, j: IntArray) -> AnyArray:
        """Multiply the columns of pairs of children of branching nodes; all shapes (pairs,)."""
        squares = self._squares[nodes]
        # H'H is a multiple of I - J/k.
        return np.where(i == j, squares, -(squares // (self.shape.branching_children[nodes] - 1)))

    def apply(self, values: AnyArray, axis: int) -> AnyArray:
        """Multiply int64 or Python integers by A along an axis of leaves, exactly.

        The product is int64 if no answer can overflow, else Python integers.
        """
        # Intermediate sums may wrap around in int64, but wrap back, as the answers fit.
        fits = not values.size or self.growth * find_largest_entry(values) < _END_OF_INT64
        kind: Any = np.int64 if fits and values.dtype != object else object
        moved = np.moveaxis(values, axis, -1).astype(kind)
        parts = [self.top.apply(self.shape.sum_leaves(moved, 0), -1).astype(kind)]
        sums, depth = moved, 0
        for group in self.shape.siblings:
            if depth != group.depth + 1:
                depth = group.depth + 1
                sums = self.shape.sum_leaves(moved, depth)
            y = self._find_contrasts(group).apply(sums[..., group.children], -1)
            y = y * self.multipliers[group.positions, None].astype(kind)
            parts.append(y.reshape(*y.shape[:-2], y.shape[-2] * y.shape[-1]))
        return np.moveaxis(np.concatenate(parts, axis=-1), -1, axis)

    def invert(self, values: AnyArray, axis: int) -> FloatArray:
        """Multiply by E along an axis of A's rows."""
        moved = np.moveaxis(values, axis, -1).astype(np.float64)
        at = self.shape.top - 1
        counts = self.top.invert(moved[..., :at], -1)
        deviations: list[FloatArray] = [
            np.zeros((*moved.shape[:-1], len(parents))) for parents in self.shape.parents
        ]
        for group in self.shape.siblings:
            H, b = self._find_contrasts(group), len(group.parents)
            y = moved[..., at : at + b * H.rows].reshape(*moved.shape[:-1], b, H.rows)
            at += b * H.rows
            y = H.invert(y / self.multipliers[group.positions, None], -1)
            deviations[group.depth][..., group.children] = y
        for part, k, parents in zip(
            deviations, self.shape.children, self.shape.parents, strict=True
        ):
            counts = (counts / k)[..., parents] + part
        return np.moveaxis(counts, -1, axis)

    def compute_reference(self) -> FloatArray:
        reference = self.top.compute_reference()
        for k, parents in zip(self.shape.children, self.shape.parents, strict=True):
            reference = (reference / k)[parents]
        return np.asarray(reference)

    def adjoint(self, values: FloatArray, axis: int) -> FloatArray:
        """Multiply by E' along an axis of leaves, up to an isometry.

        Each node that branches has an entry for each of its k children.
        """
        moved = np.moveaxis(values, axis, -1)
        pulled = [moved]  # per depth, the leaves' weights pulled up to its nodes
        for k, eldest in zip(
            self.shape.children[::-1], self.shape.first_children[::-1], strict=True
        ):
            pulled.insert(0, np.add.reduceat(pulled[0], eldest, axis=-1) / k)
        parts = [self.top.adjoint(pulled[0], -1)]
        for group in self.shape.siblings:
            y = self._find_contrasts(group).adjoint(
                pulled[group.depth + 1][..., group.children], -1
            )
            y = y / self.multipliers[group.positions, None]
            parts.append(y.reshape(*y.shape[:-2], y.shape[-2] * y.shape[-1]))
        return np.moveaxis(np.concatenate(parts, axis=-1), -1, axis)

    def upper_variance_parts(self, factor: Factor) -> FloatArray:
        """Bound mu^2 and gamma of a level's nodes, or of "total", from above, (nodes, 2)."""
        level = factor.kind
        if level in self.shape.above:
            return self.top.upper_row_parts(self.shape.build_top_rows(level))
        depth = self.shape.depths[level]
        variances = self.top.upper_row_parts(np.eye(self.shape.top))
        for added, k, parents in zip(
            self._variances[:depth], self.shape.children, self.shape.parents, strict=False
        ):
            variances = variances / (k[:, None].astype(np.float64) ** 2)
            variances[:, 1] += added
            variances = variances[parents]
        # At most eight operations a step, on numbers that are not negative.
        return np.asarray(variances * (1 + gamma(8 * depth)))

    @frozen_property
    def _variances(self) -> list[FloatArray]:
        """Per step, each parent's addition to its children's gamma: (1 - 1/k) / (m^2 precision)."""
        variances = np.zeros(self.shape.branching)
        for group in self.shape.siblings:
            m = self.multipliers[group.positions].astype(np.float64)
            variances[group.positions] = (group.k - 1) / (
                m * m * group.k * build_contrasts(group.k).precision
            )
        return self.shape.arrange_by_step(variances, 0.0)
