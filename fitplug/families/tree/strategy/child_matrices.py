"""Child matrices: what a strategy measures of the children of tree nodes, apart from their sum.

Of its k children, a node measures A (r, k), with E A x + u 1'x = x for all x and 1'u = 1: the
children are u times the node, and E times what A measures. Children of which each is a node of its
own have any integer A (k - 1, k) with [A; 1'] invertible, so that [E, u] is the inverse. Identical
leaves have a multiple m H of their contrasts, and E = H^+ / m, u = 1 / k.

One object holds the matrices of b nodes with k children each. Arrays over children have the shape
(b, k, ...), and those over answers (b, r, ...).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from fitplug.families.base.contrasts import ContrastMatrix, build_contrasts
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
    """Upper bounds on the 2-norms of u and E of each node, and of their errors, each (b,).

    Attributes:
        reference: |u|.
        reference_error: The norm of what is computed for u, less u.
        contrasts: |E|.
        contrasts_error: The norm of what is computed for E, less E.
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
        """Take the matrices of some of the nodes, with their part of the inverses."""
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
        """s, a power of two near the entries of each row of A, which balances [A; 1'], (b, r)."""
        largest = np.abs(self.matrices).max(axis=2)
        return np.asarray(2.0 ** np.frexp(np.maximum(largest, 1).astype(np.float64))[1])


@dataclass(frozen=True, eq=False)
class _SomeSiblings(SiblingMatrices):
    """The matrices of some nodes, whose inverses are computed with those of all."""

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
        k: The number of the leaves of each node.
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
