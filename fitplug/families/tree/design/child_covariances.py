"""Covariances of the children of nodes, as a sweep finds and keeps them.

Given the covariance T of a node over its children's classes of dense cells, every form says what
the children's covariances and profiles are, and what they cost (docs/theory/trees.md):

    IdenticalCovariances   k identical leaves: X = I - J/k, and any Y
    KroneckerCovariances   X (x) Y with any X of rank k - 1, X u = 0
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from fitplug.families.tree.design.charges import Charges, DepthRows
from fitplug.families.tree.design.sibling_covariance import SiblingCovariances, solve_siblings
from fitplug.numeric import FloatArray

_RIDGE = 1e-12
"""The weight of directions that no query asks for, relative to the others."""


class ChildCovariances(ABC):
    """What a sweep finds of the b nodes of one step, and the next sweep starts from.

    Identical leaves count as one child, k = 1, with the weights of all of them together.
    """

    @abstractmethod
    def solve(
        self, P: FloatArray, K: Charges, T: FloatArray, factor: FloatArray | None = None
    ) -> ChildCovariances:
        """Find the covariances that cost least, nearly.

        Args:
            P: Weights in the profile of each child's classes of dense cells, shape (b, k, r).
            K: What each child's covariance is charged.
            T: The variances of their children's rows at the b nodes, shape (b, M).
            factor: F where the weights in the profile are F diag(P) F', shape (r, r); None for 1.

        Returns:
            The covariances.
        """

    @abstractmethod
    def collect(self, K: Charges) -> Charges:
        """Collect what the covariances of the nodes are charged through their children, (b,)."""

    @abstractmethod
    def spread(self, T: FloatArray, rows: DepthRows) -> FloatArray:
        """Spread the variances of rows (b, M) at the nodes to their children, shape (b, k, M)."""

    @abstractmethod
    def add_profile(self) -> FloatArray:
        """Compute what each child's classes add to their node's profile, (b, k, r)."""


@dataclass(frozen=True, eq=False)
class IdenticalCovariances(ChildCovariances):
    """Identical leaves.

    Attributes:
        counts: k of each node, shape (b,).
        covariances: Y^-1, shape (b, r, r).
        precisions: Y, shape (b, r, r).
    """

    counts: FloatArray
    covariances: FloatArray
    precisions: FloatArray

    def solve(
        self, P: FloatArray, K: Charges, T: FloatArray, factor: FloatArray | None = None
    ) -> IdenticalCovariances:
        charge = K.add(np.ones((len(P), 1))).build_matrices()
        return IdenticalCovariances(self.counts, *find_mean(P[:, 0], charge, factor))

    def collect(self, K: Charges) -> Charges:
        return K.add(self.counts[:, None] ** -2.0)

    def spread(self, T: FloatArray, rows: DepthRows) -> FloatArray:
        k = self.counts[:, None]
        added = (1 - 1 / k) * rows.compute_variances(self.covariances)
        return np.asarray((T / k**2 + added)[:, None])

    def add_profile(self) -> FloatArray:
        profiles = (1 - 1 / self.counts)[:, None] * get_diagonals(self.precisions)
        return np.asarray(profiles[:, None])


@dataclass(frozen=True, eq=False)
class KroneckerCovariances(ChildCovariances):
    """Distinct children with X (x) Y.

    Attributes:
        siblings: X.
        covariances: Y^-1, shape (b, r, r).
        precisions: Y, shape (b, r, r).
    """

    siblings: SiblingCovariances
    covariances: FloatArray
    precisions: FloatArray

    def solve(
        self, P: FloatArray, K: Charges, T: FloatArray, factor: FloatArray | None = None
    ) -> KroneckerCovariances:
        precisions = self.precisions
        if factor is not None:
            precisions = factor.T @ precisions @ factor
        kappa = K.add_traces(self.covariances)
        siblings = solve_siblings(
            (P @ get_diagonals(precisions)[:, :, None])[:, :, 0],
            kappa,
            (K.weights.sum(axis=1) * T).sum(axis=1) / kappa.sum(axis=1),
            self.siblings,
        )
        if P.shape[2] == 1:  # X has the scale of Y
            return KroneckerCovariances(siblings, self.covariances, self.precisions)
        charge = K.add(siblings.variances).build_matrices()
        mean = find_mean((siblings.profiles[:, None] @ P)[:, 0], charge, factor)
        return KroneckerCovariances(siblings, *mean)

    def collect(self, K: Charges) -> Charges:
        return K.add(self.siblings.references**2)

    def spread(self, T: FloatArray, rows: DepthRows) -> FloatArray:
        X, added = self.siblings, rows.compute_variances(self.covariances)
        u, variances = X.references[:, :, None], X.variances[:, :, None]
        return np.asarray(u * u * T[:, None] + variances * added[:, None])

    def add_profile(self) -> FloatArray:
        diagonals = get_diagonals(self.precisions)[:, None]
        return np.asarray(self.siblings.profiles[:, :, None] * diagonals)


def find_mean(
    P: FloatArray, K: FloatArray, factor: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Find F diag(P) F' # K^-1 and its inverse, for P (b, r) > 0, K (b, r, r) and F (r, r) or 1."""
    if factor is not None:
        inverse = np.linalg.inv(factor)
        mean, precision = find_mean(P, factor.T @ K @ factor)
        return factor @ mean @ factor.T, inverse.T @ precision @ inverse
    if P.shape[1] == 1:
        mean = np.sqrt(P / K[:, :, 0])[:, :, None]
        return mean, 1 / mean
    root = np.sqrt(P)
    half, vectors = _decompose(root[:, :, None] * K * root[:, None, :])
    left, right = root[:, :, None] * vectors, vectors / root[:, :, None]
    mean = (left / half[:, None, :]) @ left.transpose(0, 2, 1)
    return mean, (right * half[:, None, :]) @ right.transpose(0, 2, 1)


def _decompose(N: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Compute the square roots of the eigenvalues of matrices (b, r, r), and the vectors."""
    at = np.arange(N.shape[1])
    N[:, at, at] += _RIDGE * N[:, at, at].mean(axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(N)
    return np.sqrt(np.maximum(values, _RIDGE * values[:, -1:])), vectors


def get_diagonals(matrices: FloatArray) -> FloatArray:
    """Return the diagonals of matrices (b, r, r), shape (b, r)."""
    return np.diagonal(matrices, axis1=1, axis2=2)
