"""Covariances of the children of nodes, as a sweep updates them.

Given the covariance T of a node over its children's classes of dense cells, each form determines
the children's covariances and profiles, and their cost (docs/theory/trees.md):

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
    """The covariances of the children of the b nodes of one step, from which a sweep starts.

    Identical leaves count as one child, k = 1, with the sum of their weights.
    """

    @abstractmethod
    def solve(self, P: ProfilePrices, K: Charges, T: FloatArray) -> ChildCovariances:
        """Find covariances of nearly the least cost.

        Args:
            P: The prices of each child's precisions.
            K: The charges of each child's covariance.
            T: The variances at the b nodes of the rows of their children's depth, shape (b, M).

        Returns:
            The covariances.
        """

    @abstractmethod
    def collect(self, K: Charges) -> Charges:
        """Collect the charges of the nodes' covariances through their children, shape (b,)."""

    @abstractmethod
    def spread(self, T: FloatArray, rows: DepthRows) -> FloatArray:
        """Compute the children's variances of rows (b, k, M) from those at the nodes (b, M)."""

    @abstractmethod
    def add_profile(self) -> FloatArray:
        """Compute each child's addition to the profile of its node, by class, shape (b, k, r)."""

    @abstractmethod
    def list_precisions(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """List X_jj (b, k), Y (b, r, r) and X z (b, k) of the nodes.

        X z is 0 for identical leaves, and if pairs share nothing.
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
