"""The matrix geometric mean, which minimises tr(P S^-1) + tr(Q S) over S."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cholesky, eigh, solve_triangular
from scipy.linalg.blas import dtrmm

from fitplug.numeric import FloatArray
from fitplug.optimizer.problem import Block, Scalars

_BLURRED = 1e-11
"""Eigenvalues smaller than this, over the largest, are too inaccurate to take the roots of."""

_SHARP = 1e-8
"""Eigenvalues larger than this, over the largest, are accurate."""


@dataclass(frozen=True, eq=False)
class Mean:
    """S = P # Q^-1 of one block, as F F' with F = R U diag(1 / root).

    value: T = tr(P S^-1) = tr(Q S) = tr (P^1/2 Q P^1/2)^1/2.
    profile: b_i' S^-1 b_i, shape (d,). ratios: v_j S v_j' over the target, shape (r,).
    R: lower triangular (k, k), or (k,) if diagonal. U: orthogonal (k, k). root: (k,).
    """

    value: float
    profile: FloatArray
    ratios: FloatArray
    R: FloatArray
    U: FloatArray
    root: FloatArray

    def whitener(self) -> FloatArray:
        """F^-1 (k, k)."""
        return _whitener(self.R, self.U, self.root)

    def factor(self) -> FloatArray:
        """F (k, k)."""
        if self.R.ndim == 1:
            return self.R[:, None] * self.U / self.root
        return np.asarray(dtrmm(1.0, self.R, self.U, lower=1) / self.root)


def mean(block: Block, p: FloatArray, q: FloatArray) -> Mean:
    """The mean at weights p (d,) and q (m,), all positive.

    With R R' = P and X = Q^1/2 R of any kind, X = V diag(s) U' gives T = sum s and
    S = R U diag(1/s) U' R'. Where P or Q is diagonal (a basis of cells, or of all the queries, see
    `reduce`), X is the workload scaled, and no more than the SVD is left to do: two thirds of the
    time at rank 1024.
    Raises LinAlgError where floating point gives out or, for what overflows, ValueError.
    """
    B, L = block.basis, block.representation
    q = q[block.rows]
    if not min(p.min(), q.min()) > 0:
        raise np.linalg.LinAlgError("a weight is zero")
    rooted_L = L * np.sqrt(q)[:, None]
    if _diagonal(B):
        entries = B * B
        R = np.sqrt(entries @ p)
        s, U, squared = _spectrum(rooted_L * R)
        profile = ((U * U) @ s / R**2) @ entries
        return Mean(float(s.sum()), profile, squared @ (1 / s) / q, R, U, np.sqrt(s))
    rooted_B = B * np.sqrt(p)
    if _diagonal(L.T):
        entries = L * L
        R = 1 / np.sqrt(q @ entries)
        s, U, squared = _spectrum((rooted_B / R[:, None]).T)
        ratios = entries @ ((U * U) @ s * R**2)
        return Mean(float(s.sum()), squared @ (1 / s) / p, ratios, R, U, 1 / np.sqrt(s))
    # NumPy forms X X' as a symmetric product, at half the work of a general one.
    R = cholesky(rooted_B @ rooted_B.T, lower=True)
    s, U, squared = _spectrum(dtrmm(1.0, R, rooted_L, lower=1, side=1))
    profile = ((_whitener(R, U, np.sqrt(s)) @ B) ** 2).sum(axis=0)
    return Mean(float(s.sum()), profile, squared @ (1 / s) / q, R, U, np.sqrt(s))


@dataclass(frozen=True, eq=False)
class ScalarMeans:
    """The means of many blocks of one number each; as `Mean`, of all together.

    root: 1 over the roots of the covariances, shape (b,).
    """

    value: float
    profile: FloatArray
    ratios: FloatArray
    root: FloatArray

    def whitener(self) -> FloatArray:
        return self.root


def scalar_means(blocks: Scalars, p: FloatArray, q: FloatArray) -> ScalarMeans:
    """The means at weights p (1,) and q (m,): s = (weight p / Q)^1/2, with T = (weight p Q)^1/2."""
    Q = blocks.transposed @ q
    if not (Q > 0).all():
        raise np.linalg.LinAlgError("a weight is zero")
    s = np.sqrt(blocks.weight * p[0] / Q)
    profile = np.array([(blocks.weight / s).sum()])
    value = float(np.sqrt(blocks.weight * p[0] * Q).sum())
    return ScalarMeans(value, profile, blocks.incidence @ s, 1 / np.sqrt(s))


def _whitener(R: FloatArray, U: FloatArray, root: FloatArray) -> FloatArray:
    if R.ndim == 1:
        return np.asarray((U * root).T / R)
    return np.asarray(solve_triangular(R, U * root, lower=True, trans="T").T)


def _diagonal(B: FloatArray) -> bool:
    """Whether B diag(p) B' is diagonal for every p: no column has two entries that are not 0."""
    return np.count_nonzero(B) <= B.shape[1] and bool((np.count_nonzero(B, axis=0) <= 1).all())


def _spectrum(X: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """s (k,), U (k, k) and (X U)^2 entrywise (n, k), of X = V diag(s) U' with X U = V diag(s).

    From eigenvectors of X'X: three times as fast as LAPACK's SVD. The eigenvalues are squares, so
    small ones drown in rounding; but what is left of X along their vectors has no large ones, and
    is decomposed again. U is orthogonal whatever s is, so F and F^-1 never disagree.
    """
    squares, U = eigh(X.T @ X, driver="evd")
    Y = X @ U
    n = len(U)
    while n > 1 and squares[0] < _BLURRED * squares[-1]:
        n = int(np.searchsorted(squares, _SHARP * squares[-1]))
        squares, V = eigh(Y[:, :n].T @ Y[:, :n], driver="evd")
        Y[:, :n], U[:, :n] = Y[:, :n] @ V, U[:, :n] @ V
    Y *= Y
    return np.maximum(np.sqrt(Y.sum(axis=0)), np.finfo(float).tiny), U, Y
