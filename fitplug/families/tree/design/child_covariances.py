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
from fitplug.families.tree.design.profile_prices import ProfilePrices, get_diagonals
from fitplug.families.tree.design.sibling_covariance import SiblingCovariances
from fitplug.numeric import FloatArray


class ChildCovariances(ABC):
    """What a sweep finds of the b nodes of one step, and the next sweep starts from.

    Identical leaves count as one child, k = 1, with the weights of all of them together.
    """

    @abstractmethod
    def solve(self, P: ProfilePrices, K: Charges, T: FloatArray) -> ChildCovariances:
        """Find the covariances that cost least, nearly.

        Args:
            P: The prices of each child's precisions.
            K: What each child's covariance is charged.
            T: The variances of their children's rows at the b nodes, shape (b, M).

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

    @abstractmethod
    def list_precisions(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """List X_jj (b, k), Y (b, r, r) and X z (b, k) of the nodes, where pairs share something.

        Of identical leaves, or where no pairs do, X z is 0.
        """


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

    def solve(self, P: ProfilePrices, K: Charges, T: FloatArray) -> IdenticalCovariances:
        ones = np.ones((len(self.counts), 1))
        charge = K.add(ones).build_matrices()
        return IdenticalCovariances(self.counts, *P.find_mean(None, charge))

    def collect(self, K: Charges) -> Charges:
        return K.add(self.counts[:, None] ** -2.0)

    def spread(self, T: FloatArray, rows: DepthRows) -> FloatArray:
        k = self.counts[:, None]
        added = (1 - 1 / k) * rows.compute_variances(self.covariances)
        return np.asarray((T / k**2 + added)[:, None])

    def add_profile(self) -> FloatArray:
        profiles = (1 - 1 / self.counts)[:, None] * get_diagonals(self.precisions)
        return np.asarray(profiles[:, None])

    def list_precisions(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        X = (1 - 1 / self.counts)[:, None]
        return X, self.precisions, np.zeros_like(X)


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

    def solve(self, P: ProfilePrices, K: Charges, T: FloatArray) -> KroneckerCovariances:
        kappa = K.add_traces(self.covariances)
        siblings = P.solve_siblings(
            self.precisions,
            kappa,
            (K.weights.sum(axis=1) * T).sum(axis=1) / kappa.sum(axis=1),
            self.siblings,
        )
        if self.covariances.shape[1] == 1:  # X has the scale of Y
            return KroneckerCovariances(siblings, self.covariances, self.precisions)
        charge = K.add(siblings.variances).build_matrices()
        return KroneckerCovariances(siblings, *P.find_mean(siblings, charge))

    def collect(self, K: Charges) -> Charges:
        return K.add(self.siblings.references**2)

    def spread(self, T: FloatArray, rows: DepthRows) -> FloatArray:
        X, added = self.siblings, rows.compute_variances(self.covariances)
        u, variances = X.references[:, :, None], X.variances[:, :, None]
        return np.asarray(u * u * T[:, None] + variances * added[:, None])

    def add_profile(self) -> FloatArray:
        diagonals = get_diagonals(self.precisions)[:, None]
        return np.asarray(self.siblings.profiles[:, :, None] * diagonals)

    def list_precisions(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        X, images = self.siblings.profiles, self.siblings.images
        return X, self.precisions, np.zeros_like(X) if images is None else images
