"""Weighted contrasts: some children of a node are measured more accurately than others.

The k children of a node have positive integers a (k,). H = diag(a) (k I - J) has H 1 = 0. With the
sum S of z_i = 1 / (k a_i)^2,

    (H'H)_ij = sum a^2 - k (a_i^2 + a_j^2), plus k^2 a_i^2 if i = j
    H^+ y = d - z sum(d) / S        d_i = y_i / (k a_i)
    covariance of H^+ y:  diag(z) - z z' / S

for noise of variance 1. Equal weights give multiples of I - J/k. See docs/theory/product-family.md,
"Nodes of unequal size".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fitplug.numeric import AnyArray, FloatArray, IntArray, frozen_property


@dataclass(frozen=True, eq=False)
class WeightedContrasts:
    """H of b nodes of k children each.

    Attributes:
        weights: a, positive, shape (b, k): int64, or real numbers in a design.
    """

    weights: AnyArray

    @property
    def k(self) -> int:
        """The number of children."""
        return int(self.weights.shape[1])

    @property
    def rows(self) -> int:
        """The number of rows of H, one more than its rank."""
        return self.k

    @property
    def largest_entry(self) -> int:
        """The largest |H_ri| of all nodes."""
        return int(self.largest_entries.max())

    @property
    def largest_entries(self) -> IntArray:
        """The largest |H_ri| of each node, shape (b,)."""
        return np.asarray(self.weights.max(axis=1) * (self.k - 1)).astype(np.int64)

    @frozen_property
    def column_squares(self) -> AnyArray:
        """|H e_i|^2 of each child, shape (b, k)."""
        squares = self.weights * self.weights
        return np.asarray(squares.sum(axis=1)[:, None] + self.k * (self.k - 2) * squares)

    def multiply_columns(self, nodes: IntArray, i: IntArray, j: IntArray) -> AnyArray:
        """Return (H'H)_ij of pairs of children of nodes; all shapes (pairs,)."""
        squares = self.weights * self.weights
        of_i, of_j = squares[nodes, i], squares[nodes, j]
        both = squares.sum(axis=1)[nodes] - self.k * (of_i + of_j)
        return np.asarray(both + np.where(i == j, self.k**2 * of_i, 0))

    @frozen_property
    def variances(self) -> FloatArray:
        """The diagonal of diag(z) - z z' / S, shape (b, k), right to 4 k roundings."""
        z = self._z
        # The other children's sum without cancellation.
        zeros = np.zeros((len(z), 1))
        before = np.cumsum(np.hstack([zeros, z[:, :-1]]), axis=1)
        after = np.cumsum(np.hstack([zeros, z[:, :0:-1]]), axis=1)[:, ::-1]
        others = before + after
        return np.asarray(z * (others / (others + z)))

    @property
    def _z(self) -> FloatArray:
        """z, shape (b, k)."""
        return np.asarray((self.k * self.weights.astype(np.float64)) ** -2.0)

    def apply(self, values: AnyArray, axis: int) -> AnyArray:
        """Multiply by H along the last axis of (..., b, k)."""
        centred = self.k * values - values.sum(axis=axis, keepdims=True)
        return np.asarray(centred * self.weights.astype(values.dtype))

    def invert(self, values: FloatArray, axis: int) -> FloatArray:
        """Multiply by H^+ along the last axis of (..., b, k)."""
        d, z = values / (self.k * self.weights), self._z
        return np.asarray(d - z * (d.sum(axis=axis, keepdims=True) / z.sum(axis=1)[:, None]))

    def adjoint(self, values: FloatArray, axis: int) -> FloatArray:
        """Multiply by (H^+)' along the last axis of (..., b, k), up to an isometry."""
        z = self._z
        root = np.sqrt(z)
        share = root / np.sqrt(z.sum(axis=1)[:, None])
        scaled = root * values
        return np.asarray(scaled - share * (share * scaled).sum(axis=axis, keepdims=True))
