"""A Lagrangian's prices for the precisions of the children of nodes.

Child j of a node with the matrix X (x) Y has the price tr(P_j Y) for each of X_jj, with a matrix
P_j over its classes of dense cells.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from fitplug.families.tree.design.sibling_covariance import (
    SharedPrice,
    SiblingCovariances,
    solve_siblings,
)
from fitplug.numeric import FloatArray

_RIDGE = 1e-12
"""The weight of directions that no query needs, relative to the others."""

_LEAST = 1e-6
"""The least price of a child, relative to the largest of its siblings."""


class ProfilePrices(ABC):
    """The prices P_j of the k children of each of b nodes."""

    @abstractmethod
    def solve_siblings(
        self, Y: FloatArray, K: FloatArray, s: FloatArray, start: SiblingCovariances
    ) -> SiblingCovariances:
        """Find the covariances of the children for the nodes' matrices Y.

        Args:
            Y: Shape (b, r, r).
            K: Weights of the children's variances, positive, shape (b, k).
            s: The variances of the nodes, shape (b,).
            start: The covariances at nearby weights, or even ones.
        """

    @abstractmethod
    def find_mean(
        self, siblings: SiblingCovariances | None, K: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Find P # K^-1 and its inverse, (b, r, r) each, for the price P of the nodes' matrices.

        Args:
            siblings: The covariances of the children; None for identical children, where K is
                already divided by 1 - 1/k.
            K: Shape (b, r, r), positive definite.
        """


@dataclass(frozen=True, eq=False)
class DiagonalPrices(ProfilePrices):
    """P_j = F diag(weights) F'.

    Attributes:
        weights: The weights of the children's classes, shape (b, k, r).
        factor: F, shape (r, r); None for 1.
    """

    weights: FloatArray
    factor: FloatArray | None = None

    def solve_siblings(
        self, Y: FloatArray, K: FloatArray, s: FloatArray, start: SiblingCovariances
    ) -> SiblingCovariances:
        F = self.factor
        within = Y if F is None else F.T @ Y @ F
        P = (self.weights @ get_diagonals(within)[:, :, None])[:, :, 0]
        return solve_siblings(P, K, s, start)

    def find_mean(
        self, siblings: SiblingCovariances | None, K: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        if siblings is None:
            return find_mean(self.weights[:, 0], K, self.factor)
        return find_mean((siblings.profiles[:, None] @ self.weights)[:, 0], K, self.factor)


@dataclass(frozen=True, eq=False)
class MixedPrices(ProfilePrices):
    """P_j is a sum of matrices times coefficients of child j, minus a share of pairs of children.

    Attributes:
        numbers: The coefficients of the matrices for each child, shape (b, k, h).
        between: The coefficients that are subtracted, times z'X z, shape (b, h).
        shares: z, shape (b, k).
        matrices: The matrices, shape (h, r, r).
    """

    numbers: FloatArray
    between: FloatArray
    shares: FloatArray
    matrices: FloatArray

    def solve_siblings(
        self, Y: FloatArray, K: FloatArray, s: FloatArray, start: SiblingCovariances
    ) -> SiblingCovariances:
        sizes = self._measure(Y)
        P = (self.numbers @ sizes[:, :, None])[:, :, 0]
        # P may be negative for a child with most of its node's share, although the price is not.
        P = np.maximum(P, _LEAST * P.max(axis=1, keepdims=True))
        shared = SharedPrice((self.between * sizes).sum(axis=1), self.shares)
        return solve_siblings(P, K, s, start, shared)

    def find_mean(
        self, siblings: SiblingCovariances | None, K: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        numbers = self.numbers[:, 0]
        if siblings is not None:
            assert siblings.images is not None
            numbers = (siblings.profiles[:, None] @ self.numbers)[:, 0]
            square = np.maximum((siblings.images * self.shares).sum(axis=1), 0)
            numbers = numbers - square[:, None] * self.between
        P = np.tensordot(numbers, self.matrices, axes=1)
        at = np.arange(P.shape[1])
        P[:, at, at] *= 1 + _RIDGE
        L = np.linalg.cholesky(P)
        half, vectors = decompose(L.swapaxes(1, 2) @ K @ L)
        left = L @ vectors
        mean = (left / half[:, None, :]) @ left.swapaxes(1, 2)
        return mean, np.asarray(np.linalg.inv(mean), dtype=np.float64)

    def _measure(self, Y: FloatArray) -> FloatArray:
        """Compute tr(M Y) for each matrix M, shape (b, h)."""
        return np.tensordot(Y, self.matrices, axes=((1, 2), (1, 2)))


def find_mean(
    P: FloatArray, K: FloatArray, factor: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Compute F diag(P) F' # K^-1 and its inverse, for P (b, r) > 0, K (b, r, r), F (r, r) or 1."""
    if factor is not None:
        inverse = np.linalg.inv(factor)
        mean, precision = find_mean(P, factor.T @ K @ factor)
        return factor @ mean @ factor.T, inverse.T @ precision @ inverse
    if P.shape[1] == 1:
        mean = np.sqrt(P / K[:, :, 0])[:, :, None]
        return mean, 1 / mean
    root = np.sqrt(P)
    half, vectors = decompose(root[:, :, None] * K * root[:, None, :])
    left, right = root[:, :, None] * vectors, vectors / root[:, :, None]
    mean = (left / half[:, None, :]) @ left.transpose(0, 2, 1)
    return mean, (right * half[:, None, :]) @ right.transpose(0, 2, 1)


def decompose(N: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Compute the square roots of the eigenvalues of matrices (b, r, r), and the eigenvectors."""
    at = np.arange(N.shape[1])
    N[:, at, at] += _RIDGE * N[:, at, at].mean(axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(N)
    return np.sqrt(np.maximum(values, _RIDGE * values[:, -1:])), vectors


def get_diagonals(matrices: FloatArray) -> FloatArray:
    """Return the diagonals of matrices (b, r, r), shape (b, r)."""
    return np.diagonal(matrices, axis1=1, axis2=2)
