"""Child matrices: how a strategy measures the children of tree nodes apart from their sum.

A node's k children are measured with A (r, k), where E A x + u 1'x = x for all x and 1'u = 1: the
children are u times the node, plus E times the answers. Children that are separate nodes have any
integer A (k - 1, k) with [A; 1'] invertible, and [E, u] is the inverse. Identical leaves have a
multiple m H of their contrasts, with E = H^+ / m and u = 1 / k.

One object holds the matrices of b nodes with k children each. Arrays over children have the shape
(b, k, ...), and those over answers (b, r, ...).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from fitplug.families.base.contrasts import ContrastMatrix, build_contrasts
from fitplug.families.tree.shape.node_tree import TreeStep
from fitplug.numeric import (
    AnyArray,
    FloatArray,
    IntArray,
    frozen_property,
    gamma,
    invert_each_with_residual,
    make_room,
    multiply_exactly,
    multiply_numbers,
    upper_norm,
)


class InverseNorms(NamedTuple):
    """Upper bounds on the 2-norms of u and E of each node, and of their errors, shape (b,) each.

    Attributes:
        reference: |u|.
        reference_error: The norm of the error of the computed u.
        contrasts: |E|.
        contrasts_error: The norm of the error of the computed E.
    """

    reference: FloatArray
    reference_error: FloatArray
    contrasts: FloatArray
    contrasts_error: FloatArray


class ChildMatrices(Protocol):
    """The matrices A of b nodes with k children each."""

    @property
    def rows(self) -> int:
        """r, the number of rows of each A."""

    @property
    def reference(self) -> FloatArray:
        """u, shape (b, k)."""

    @property
    def norms(self) -> InverseNorms:
        """Bounds on the norms of u and E, and on their errors."""

    def apply(self, counts: AnyArray) -> AnyArray:
        """Multiply integer counts (b, k, c) by A, exactly: (b, r, c)."""

    def invert(self, answers: FloatArray) -> FloatArray:
        """Multiply answers (b, r, c) by E: (b, k, c)."""

    def adjoint(self, weights: FloatArray) -> FloatArray:
        """Multiply weights (b, k, c) of children by E', up to an isometry: (b, r, c)."""

    def write_out(self) -> IntArray:
        """Write out A, shape (b, r, k)."""


@dataclass(frozen=True, eq=False)
class SiblingMatrices:
    """Any integer matrices A (k - 1, k) with [A; 1'] invertible.

    Attributes:
        matrices: A, shape (b, k - 1, k).
    """

    matrices: IntArray

    @property
    def rows(self) -> int:
        return int(self.matrices.shape[1])

    @property
    def reference(self) -> FloatArray:
        return self._inverse[0][:, :, -1]

    @frozen_property
    def norms(self) -> InverseNorms:
        # [E diag(s), u] = X (I - F)^-1 with |F| <= residual: see `DenseMatrix.upper_row_parts`.
        X, residuals = self._inverse
        whole = upper_norm(X.reshape(len(X), -1), axis=1)
        off = whole * residuals / (1 - residuals) * (1 + gamma(8))
        contrasts_off = off / self._scales.min(axis=1)
        contrasts = upper_norm(self._contrasts.reshape(len(X), -1), axis=1) + contrasts_off
        return InverseNorms(
            (whole + off) * (1 + gamma(8)), off, contrasts * (1 + gamma(8)), contrasts_off
        )

    def upper_variance_parts(self) -> tuple[FloatArray, FloatArray]:
        """Bound u_j^2 and |E_j|^2 of each child from above, each of shape (b, k)."""
        X, residuals = self._inverse
        off = upper_norm(X, axis=2) * (residuals / (1 - residuals))[:, None] * (1 + gamma(8))
        u = np.abs(X[:, :, -1]) + off
        E = upper_norm(self._contrasts, axis=2) + off / self._scales.min(axis=1)[:, None]
        return u * u * (1 + gamma(8)), E * E * (1 + gamma(8))

    def apply(self, counts: AnyArray) -> AnyArray:
        return multiply_exactly(self.matrices, counts)

    def invert(self, answers: FloatArray) -> FloatArray:
        return np.asarray(self._contrasts @ answers)

    def adjoint(self, weights: FloatArray) -> FloatArray:
        return np.asarray(self._contrasts.swapaxes(1, 2) @ weights)

    def write_out(self) -> IntArray:
        return self.matrices

    def take(self, positions: IntArray) -> SiblingMatrices:
        """Take the matrices of some of the nodes, with their share of the inverses."""
        if np.array_equal(positions, np.arange(len(self.matrices))):
            return self
        return _SomeSiblings(self.matrices[positions], self, positions)

    @property
    def _contrasts(self) -> FloatArray:
        """E, shape (b, k, k - 1)."""
        return np.asarray(self._inverse[0][:, :, :-1] / self._scales[:, None])

    @frozen_property
    def _inverse(self) -> tuple[FloatArray, FloatArray]:
        """X near [E diag(s), u], the inverse of K = [A / s; 1'], and bounds on |I - K X|_2."""
        b, r, k = self.matrices.shape
        K = np.ones((b, k, k))
        K[:, :r] = self.matrices / self._scales[:, :, None]
        return invert_each_with_residual(K)

    @property
    def _scales(self) -> FloatArray:
        """s, a power of two near the largest entry of each row of A, which balances [A; 1'], (b,
        r)."""
        largest = np.abs(self.matrices).max(axis=2)
        return np.asarray(2.0 ** np.frexp(np.maximum(largest, 1).astype(np.float64))[1])


@dataclass(frozen=True, eq=False)
class _SomeSiblings(SiblingMatrices):
    """The matrices of some nodes, whose inverses come from those of all nodes."""

    every: SiblingMatrices
    positions: IntArray

    @frozen_property
    def _inverse(self) -> tuple[FloatArray, FloatArray]:
        X, residuals = self.every._inverse
        return X[self.positions], residuals[self.positions]


@dataclass(frozen=True, eq=False)
class LeafMatrices:
    """Multiples m H of the contrasts of k identical leaves.

    Attributes:
        multipliers: m, shape (b,).
        k: The number of leaves of each node.
    """

    multipliers: IntArray
    k: int

    @property
    def contrasts(self) -> ContrastMatrix:
        """H."""
        return build_contrasts(self.k)

    @property
    def rows(self) -> int:
        return self.contrasts.rows

    @property
    def reference(self) -> FloatArray:
        return np.full((len(self.multipliers), self.k), 1 / self.k)

    @frozen_property
    def norms(self) -> InverseNorms:
        m = self.multipliers.astype(np.float64)
        reference = np.full(len(m), self.k**-0.5 * (1 + gamma(2)))
        contrasts = (1 + gamma(4)) / (np.sqrt(self.contrasts.precision) * m)
        error = gamma(self.k + 8)
        return InverseNorms(reference, reference * error, contrasts, contrasts * error)

    def apply(self, counts: AnyArray) -> AnyArray:
        H = self.contrasts
        counts = make_room(counts, H.growth)
        answers = H.apply(counts, 1)
        return multiply_numbers(answers, self.multipliers[:, None, None])

    def invert(self, answers: FloatArray) -> FloatArray:
        return self.contrasts.invert(answers / self.multipliers[:, None, None], 1)

    def adjoint(self, weights: FloatArray) -> FloatArray:
        return self.contrasts.adjoint(weights, 1) / self.multipliers[:, None, None]

    def write_out(self) -> IntArray:
        H = self.contrasts.apply(np.eye(self.k, dtype=np.int64), 0)
        return np.asarray(self.multipliers[:, None, None] * H)


_MOST_NUMBERS = 2**22
"""The most numbers of an array, unless one node needs more."""

_FEW = 16
"""Fewer than one in this many nodes of a step are inverted separately from the others."""


@dataclass(frozen=True, eq=False)
class StepMatrices:
    """The matrices of the nodes of one step of the tree: b nodes with k children each.

    Attributes:
        children: A_v of each node, shape (b, k - 1, k); or, if the children are identical leaves,
            the multipliers m of their contrasts, shape (b,).
        dense: M_v of each node, shape (b, r, r).
    """

    children: IntArray
    dense: IntArray

    def take(self, positions: IntArray, k: int) -> ChildMatrices:
        """Take A_v of some nodes of this step, (b,), that have k children each.

        A few nodes are inverted separately; more nodes use the inverses of all nodes.
        """
        if self.children.ndim == 1:
            return LeafMatrices(self.children[positions], k)
        if len(positions) * _FEW < len(self.children):
            return SiblingMatrices(self.children[positions])
        return self._siblings.take(positions)

    def invert_dense(self, positions: IntArray) -> FloatArray:
        """Compute X near M_v^-1 of some nodes of this step, (b, r, r).

        A few nodes of a large step are inverted separately, so that the others need no memory.
        """
        if len(positions) * _FEW < len(self.dense) and self.dense.size > _MOST_NUMBERS:
            return invert_each_with_residual(self.dense[positions].astype(np.float64))[0]
        return self.dense_inverses[0][positions]

    def count_rows(self, k: int) -> int:
        """Count the rows of A_v of a node with k children."""
        return build_contrasts(k).rows if self.children.ndim == 1 else k - 1

    def count_answers(self, step: TreeStep) -> int:
        """Count the answers about the nodes' children."""
        if step.counts is not None:
            rows = int(_list_by_leaf(step.counts, lambda contrasts: contrasts.rows).sum())
        else:
            rows = math.prod(self.children.shape[:2])
        return rows * self.dense.shape[1]

    def estimate_child_squares(self, step: TreeStep) -> FloatArray:
        """Compute |A_v e_j|^2 of each child, shape (b, k), with relative error gamma(k + 4).

        Identical leaves are one child.
        """
        squares = self.children.astype(np.float64) ** 2
        if step.counts is not None:
            factors = _list_by_leaf(step.counts, lambda contrasts: contrasts.column_square)
            return np.asarray((squares * factors)[:, None])
        return np.asarray(squares.sum(axis=1))

    def square_children(self, step: TreeStep, positions: IntArray, children: IntArray) -> AnyArray:
        """Compute |A_v e_j|^2 for some nodes and children, exactly.

        Args:
            step: The step.
            positions: The nodes' indices in the step, shape (n,).
            children: The index of one child of each node, shape (n,).

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
        """The matrices A_v of children that are separate nodes."""
        return SiblingMatrices(self.children)


def square_columns(matrices: IntArray, positions: IntArray, columns: IntArray) -> AnyArray:
    """Compute squared norms of columns of some of the matrices (b, m, n), exactly.

    Args:
        matrices: Shape (b, m, n).
        positions: The index of each column's matrix, shape (c,).
        columns: The index of each column in its matrix, shape (c,).

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
