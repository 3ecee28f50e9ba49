"""Covariances of the children of nodes, as a sweep finds and keeps them.

Given the covariance T of a node over its children's classes of dense cells, every form says what
the children's covariances and profiles are, and what they cost (docs/theory/trees.md):

    IdenticalCovariances   k identical leaves: X = I - J/k, and any Y
    KroneckerCovariances   X (x) Y with any X of rank k - 1, X u = 0
    SplitCovariances       as before for what is left of the classes besides their total, and
                           another X for the total, (T15)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np

from fitplug.families.tree.design.charges import Charges, DepthRows
from fitplug.families.tree.design.sibling_covariance import SiblingCovariances, solve_siblings
from fitplug.numeric import FloatArray

_RIDGE = 1e-12
"""The weight of directions that no query asks for, relative to the others."""


@dataclass(frozen=True, eq=False)
class NodeCovariances:
    """What is known of the covariances S of some nodes.

    Attributes:
        variances: Of their children's rows, the diagonals of L S L', shape (..., M).
        towards: S e with the total over the classes that are split off, over their children's
            classes, shape (..., r); None where none is.
    """

    variances: FloatArray
    towards: FloatArray | None = None


class ChildCovariances(ABC):
    """What a sweep finds of the b nodes of one step, and the next sweep starts from.

    Identical leaves count as one child, k = 1, with the weights of all of them together.
    """

    @abstractmethod
    def solve(
        self, P: FloatArray, K: Charges, T: NodeCovariances, factor: FloatArray | None = None
    ) -> ChildCovariances:
        """Find the covariances that cost least, nearly.

        Args:
            P: Weights in the profile of each child's classes of dense cells, shape (b, k, r).
            K: What each child's covariance is charged.
            T: What is known of the b nodes.
            factor: F where the weights in the profile are F diag(P) F', shape (r, r); None for 1.

        Returns:
            The covariances.
        """

    @abstractmethod
    def collect(self, K: Charges) -> Charges:
        """Collect what the covariances of the nodes are charged through their children, (b,)."""

    @abstractmethod
    def spread(self, T: NodeCovariances, rows: DepthRows) -> NodeCovariances:
        """Spread the covariances of the nodes to their children, of shape (b, k)."""

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
        self, P: FloatArray, K: Charges, T: NodeCovariances, factor: FloatArray | None = None
    ) -> IdenticalCovariances:
        charge = K.add(np.ones((len(P), 1))).build_matrices()
        return IdenticalCovariances(self.counts, *find_mean(P[:, 0], charge, factor))

    def collect(self, K: Charges) -> Charges:
        return K.add(self.counts[:, None] ** -2.0)

    def spread(self, T: NodeCovariances, rows: DepthRows) -> NodeCovariances:
        k = self.counts[:, None]
        added = (1 - 1 / k) * rows.compute_variances(self.covariances)
        return NodeCovariances((T.variances / k**2 + added)[:, None])

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
        self, P: FloatArray, K: Charges, T: NodeCovariances, factor: FloatArray | None = None
    ) -> KroneckerCovariances:
        precisions = self.precisions
        if factor is not None:
            precisions = factor.T @ precisions @ factor
        kappa = K.add_traces(self.covariances)
        siblings = solve_siblings(
            (P @ get_diagonals(precisions)[:, :, None])[:, :, 0],
            kappa,
            (K.weights.sum(axis=1) * T.variances).sum(axis=1) / kappa.sum(axis=1),
            self.siblings,
        )
        if P.shape[2] == 1:  # X has the scale of Y
            return KroneckerCovariances(siblings, self.covariances, self.precisions)
        charge = K.add(siblings.variances).build_matrices()
        mean = find_mean((siblings.profiles[:, None] @ P)[:, 0], charge, factor)
        return KroneckerCovariances(siblings, *mean)

    def collect(self, K: Charges) -> Charges:
        return K.add(self.siblings.references**2)

    def spread(self, T: NodeCovariances, rows: DepthRows) -> NodeCovariances:
        X, added = self.siblings, rows.compute_variances(self.covariances)
        u, variances = X.references[:, :, None], X.variances[:, :, None]
        return NodeCovariances(u * u * T.variances[:, None] + variances * added[:, None])

    def add_profile(self) -> FloatArray:
        diagonals = get_diagonals(self.precisions)[:, None]
        return np.asarray(self.siblings.profiles[:, :, None] * diagonals)


@dataclass(frozen=True, eq=False)
class SplitCovariances(ChildCovariances):
    """Distinct children whose total over some classes is split off.

    With e the indicator of the classes in the total, and a direction f with e'f = 1, what is left
    of x is x - f e'x. X_1 (x) Y is for that, with Y f = 0, and X_2 (x) ee' for the totals. So a
    child is known as U_j = u_j (I - f e') + w_j f e' times its node.

    Attributes:
        total: e, shape (r,).
        siblings: X_1, with references u.
        totals: X_2, with references w.
        directions: f, shape (b, r).
        covariances: Y^+ with e'Y^+ = 0, shape (b, r, r).
        precisions: Y, shape (b, r, r).
        multipliers: Of e'Omega e where Omega gives f and Y, shape (b,).
    """

    total: FloatArray
    siblings: SiblingCovariances
    totals: SiblingCovariances
    directions: FloatArray
    covariances: FloatArray
    precisions: FloatArray
    multipliers: FloatArray

    @classmethod
    def split(cls, given: KroneckerCovariances, total: FloatArray) -> SplitCovariances:
        """Write covariances X (x) Y in this form, which leaves the references as they are."""
        image = given.covariances @ total
        size = image @ total
        return cls(
            total=total,
            siblings=given.siblings,
            totals=replace(given.siblings, weights=None),
            directions=image / size[:, None],
            covariances=given.covariances - _multiply_outer(image, image) / size[:, None, None],
            precisions=given.precisions - np.outer(total, total) / size[:, None, None],
            multipliers=np.zeros(len(size)),
        )

    def solve(
        self, P: FloatArray, K: Charges, T: NodeCovariances, factor: FloatArray | None = None
    ) -> SplitCovariances:
        assert factor is None
        assert T.towards is not None
        e, f = self.total, self.directions
        L, along = self._find_along(K)
        s_total = T.towards @ e
        totals = solve_siblings(P @ e, along, s_total, self.totals)
        # The variances of what is left of the rows, l - (l f) e'.
        left = T.variances - 2 * L * (T.towards @ K.rows.L.T) + L**2 * s_total[:, None]
        kappa = K.add_traces(self.covariances)
        siblings = solve_siblings(
            (P @ get_diagonals(self.precisions)[:, :, None])[:, :, 0],
            kappa,
            (K.weights.sum(axis=1) * left).sum(axis=1) / kappa.sum(axis=1),
            self.siblings,
        )
        difference = totals.references - siblings.references
        K1 = K.add(siblings.variances).build_matrices()
        M = totals.variances + difference**2 * s_total[:, None]
        omega = (M * along).sum(axis=1) / np.einsum("bij,bi,bj->b", K1, f, f)
        P1 = (siblings.profiles[:, None] @ P)[:, 0]
        mean, inverse, multipliers = _find_constrained_mean(P1, K1, e, omega, self.multipliers)
        image = mean @ e
        size = image @ e
        return SplitCovariances(
            total=e,
            siblings=siblings,
            totals=totals,
            directions=image / size[:, None],
            covariances=mean - _multiply_outer(image, image) / size[:, None, None],
            precisions=inverse - np.outer(e, e) / size[:, None, None],
            multipliers=multipliers,
        )

    def collect(self, K: Charges) -> Charges:
        # The sum of U_j'K_j U_j, where K_j f = L'diag(w)L f + m + (m'f) e.
        (L, along), e = self._find_along(K), self.total
        u, w = self.siblings.references, self.totals.references
        same, cross = K.add(u * u), K.add(u * (w - u))
        mixed = (cross.weights * L) @ K.rows.L
        mixed += ((w - u) ** 2 * along).sum(axis=1, keepdims=True) / 2 * e
        if same.mixed is not None and cross.mixed is not None:
            mixed += same.mixed + cross.mixed
            mixed += (cross.mixed * self.directions).sum(axis=1, keepdims=True) * e
        return Charges(K.rows, same.weights, mixed, e)

    def spread(self, T: NodeCovariances, rows: DepthRows) -> NodeCovariances:
        assert T.towards is not None
        u, w = self.siblings.references, self.totals.references
        size = (T.towards @ self.total)[:, None]
        along, towards = self.directions @ rows.L.T, T.towards @ rows.L.T
        level = size * (w - u) ** 2 + self.totals.variances
        added = rows.compute_variances(self.covariances)
        variances = (u * u)[:, :, None] * T.variances[:, None]
        variances += (2 * u * (w - u))[:, :, None] * (along * towards)[:, None]
        variances += level[:, :, None] * (along**2)[:, None]
        variances += self.siblings.variances[:, :, None] * added[:, None]
        level = size * w * (w - u) + self.totals.variances
        of_children = (u * w)[:, :, None] * T.towards[:, None]
        of_children += level[:, :, None] * self.directions[:, None]
        return NodeCovariances(variances, of_children)

    def _find_along(self, K: Charges) -> tuple[FloatArray, FloatArray]:
        """Find L f of each node, (b, M), and f'K f of each child, (b, k)."""
        L = self.directions @ K.rows.L.T
        along = (K.weights @ (L**2)[:, :, None])[:, :, 0]
        if K.mixed is not None:
            along = along + 2 * (K.mixed @ self.directions[:, :, None])[:, :, 0]
        return L, along

    def add_profile(self) -> FloatArray:
        diagonals = get_diagonals(self.precisions)[:, None]
        residual = self.siblings.profiles[:, :, None] * diagonals
        return np.asarray(residual + self.totals.profiles[:, :, None] * self.total)


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


def _find_constrained_mean(
    P: FloatArray, K: FloatArray, e: FloatArray, omega: FloatArray, multipliers: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Find Omega = diag(P) # (K + lambda ee')^-1 and its inverse, with e'Omega e near omega (b,).

    Returns:
        Omega, its inverse, and lambda after one more Newton step.
    """
    root = np.sqrt(P)
    towards = root * e
    N = root[:, :, None] * K * root[:, None, :]
    N += multipliers[:, None, None] * towards[:, :, None] * towards[:, None, :]
    half, vectors = _decompose(N)
    left, right = root[:, :, None] * vectors, vectors / root[:, :, None]
    mean = (left / half[:, None, :]) @ left.transpose(0, 2, 1)
    inverse = (right * half[:, None, :]) @ right.transpose(0, 2, 1)
    square = np.einsum("bij,bi->bj", vectors, towards) ** 2
    total = (square / half).sum(axis=1)
    pairs = half[:, :, None] * half[:, None, :] * (half[:, :, None] + half[:, None, :])
    slope = np.einsum("bi,bj,bij->b", square, square, 1 / pairs)
    step = (omega**-2.0 - total**-2.0) * total**3 / (2 * slope)
    # Below this, K + lambda ee' need not be positive.
    least = -0.5 / np.einsum("bi,bi->b", square, half**-2.0) + multipliers
    return mean, inverse, np.maximum(multipliers + step, least)


def _decompose(N: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Compute the square roots of the eigenvalues of matrices (b, r, r), and the vectors."""
    at = np.arange(N.shape[1])
    N[:, at, at] += _RIDGE * N[:, at, at].mean(axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(N)
    return np.sqrt(np.maximum(values, _RIDGE * values[:, -1:])), vectors


def _multiply_outer(left: FloatArray, right: FloatArray) -> FloatArray:
    """Compute the outer products of vectors (b, r), shape (b, r, r)."""
    return np.asarray(left[:, :, None] * right[:, None, :])


def get_diagonals(matrices: FloatArray) -> FloatArray:
    """Return the diagonals of matrices (b, r, r), shape (b, r)."""
    return np.diagonal(matrices, axis1=1, axis2=2)
