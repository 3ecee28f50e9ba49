"""The covariance of an attribute whose factors have nested row spaces, a grade for each step.

With N_k (n, d_k), orthonormal contrasts of grade k, there are R_k (d_k, n) and E_k (n, d_k) with

    w = w u 1' + sum_k w E_k R_k for all rows w of factors,    w E_k = 0 for rows of grades below k

    C_k = E_k G_k E_k'    Y_k = R_k' G_k^-1 R_k    gamma_k = (w E_k) G_k (w E_k)'    mu = w u

So a grade knows nothing of what those above it add. R_0 = 1', E_0 = u and G_0 = 1 are the total's.
For k > l >= 0 any matrix D gives R_k - D R_l and E_l + E_k D of the same form: this is how the
descent moves. See docs/theory/product-family.md, "Grades".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cholesky, eigh, qr, solve_triangular

from fitplug.errors import DesignError
from fitplug.families.base.attribute_matrices import DenseMatrix
from fitplug.families.product.design.attribute_covariance import AttributeOptimum, AttributeQueries
from fitplug.families.product.design.contrast_covariance import ContrastCovariance
from fitplug.families.product.shape.batches import DistinctFactor
from fitplug.numeric import FloatArray, IntArray

_ROTATIONS = 64
"""The most rotations of an attribute's matrices that are rounded."""

_ROTATION_WORK = 1e8
"""The cube of an attribute's cells times the rotations is at most this."""

_UNASKED = 2.0**-10
"""The size of contrasts that no query asks for, as a part of the largest column norm."""


@dataclass(frozen=True, eq=False)
class NestedCovariance:
    """The reference u and the covariances C_k of an attribute with K grades.

    Attributes:
        precisions: 1' and R_k, shapes (1, n) and (d_k, n).
        estimates: u and E_k, shapes (n, 1) and (n, d_k).
        covariances: 1 and G_k, shapes (1, 1) and (d_k, d_k).
    """

    precisions: tuple[FloatArray, ...]
    estimates: tuple[FloatArray, ...]
    covariances: tuple[FloatArray, ...]

    @classmethod
    def fits(cls, queries: AttributeQueries) -> bool:
        """Tell whether the queries have nested row spaces."""
        return len(queries.grades.subspaces) > 1

    @classmethod
    def optimise(cls, queries: AttributeQueries) -> AttributeOptimum:
        """Divide the optimum of the rows of all factors into grades; all scales are 1 then."""
        whole = ContrastCovariance.optimise(queries)
        reference = whole.covariance
        assert isinstance(reference, ContrastCovariance)
        return AttributeOptimum(
            cls.divide(reference, queries.grades.subspaces), whole.cells, whole.rows
        )

    @classmethod
    def divide(
        cls, reference: ContrastCovariance, subspaces: Sequence[FloatArray]
    ) -> NestedCovariance:
        """Divide a covariance by the Gram-Schmidt process in its geometry (a block Cholesky)."""
        n = len(reference.contrasts)
        N = [np.full((n, 1), 1 / n), *subspaces]
        at = np.cumsum([0, *(own.shape[1] for own in N)])
        T = np.concatenate(subspaces, axis=1).T @ reference.contrasts
        v = np.append(1.0, T @ reference.reference)
        rest = np.outer(v, v)
        rest[1:, 1:] += T @ reference.covariance @ T.T
        precisions: list[FloatArray] = []
        estimates, covariances = [], []
        for k, (start, stop) in enumerate(itertools.pairwise(at.tolist())):
            G = rest[start:stop, start:stop]
            L = np.linalg.solve(G, rest[start:stop]).T
            rest = rest - L @ G @ L.T
            estimates.append(np.concatenate(N, axis=1)[:, start:] @ L[start:])
            covariances.append(G)
            R = np.ones((1, n)) if k == 0 else N[k].T
            for lower, own in zip(precisions, estimates, strict=False):
                R = R - (N[k].T @ own if k else 0.0) @ lower
            precisions.append(R)
        return cls(tuple(precisions), tuple(estimates), tuple(covariances))

    @property
    def key(self) -> Hashable:
        """Equal for covariances that are identical."""
        arrays = *self.precisions, *self.covariances
        return type(self), *(own.shape for own in arrays), *(own.tobytes() for own in arrays)

    def compute_eta(self) -> FloatArray:
        """Return (Y_k)_ii of each cell and grade, shape (n, K)."""
        return np.stack(
            [
                (R * np.linalg.solve(G, R)).sum(axis=0)
                for R, G in zip(self.precisions[1:], self.covariances[1:], strict=True)
            ],
            axis=1,
        )

    def compute_variance_parts(self, factor: DistinctFactor) -> FloatArray:
        """Return mu^2 and the gammas of the rows of a factor, shape (r, 1 + K)."""
        return self._compute_row_parts(factor.rows)

    def _compute_row_parts(self, rows: FloatArray) -> FloatArray:
        """Return mu^2 and the gammas of rows (r, n), shape (r, 1 + K)."""
        parts = []
        for E, G in zip(self.estimates, self.covariances, strict=True):
            b = rows @ E
            parts.append(((b @ G) * b).sum(axis=1))
        return np.stack(parts, axis=1)

    def descend(
        self,
        cells: FloatArray,
        prices: FloatArray,
        pulls: Sequence[tuple[DistinctFactor, FloatArray]],
    ) -> NestedCovariance:
        """Return a covariance with a lower Lagrangian: the least in all G_k, then in each move.

        G_k is the geometric mean of Theorem 3. A move by D costs

            price_k sum_i p_i |(R_k - D R_l) e_i|^2 in G_k^-1 + sum_j pull_jl |(E_l + E_k D)'w_j|^2
            in G_l
        """
        W = np.concatenate([factor.rows for factor, _ in pulls])
        pull = np.concatenate([own for _, own in pulls])
        R, E = list(self.precisions), list(self.estimates)
        G = [self.covariances[0]]
        for k, price in enumerate(prices.tolist(), 1):
            root = cholesky(price * (R[k] * cells) @ R[k].T, lower=True)
            b = W @ E[k]
            squares, U = eigh(root.T @ ((b.T * pull[:, k]) @ b) @ root)
            factor = root @ U / np.maximum(squares, np.finfo(float).tiny) ** 0.25
            G.append(factor @ factor.T)
        for k, price in enumerate(prices.tolist(), 1):
            for low in range(k):
                b, lower = W @ E[k], W @ E[low]
                weighted = b.T * pull[:, low]
                D = _solve_move(
                    price * (R[low] * cells) @ R[low].T,
                    weighted @ b,
                    G[k],
                    G[low],
                    price * (R[k] * cells) @ R[low].T - G[k] @ (weighted @ lower) @ G[low],
                )
                R[k] = R[k] - D @ R[low]
                E[low] = E[low] + E[k] @ D
        return NestedCovariance(tuple(R), tuple(E), tuple(G))

    def round_to_integers(self, factors: Sequence[DistinctFactor], bits: int) -> DenseMatrix:
        """Return the best of many roundings: of K_k with K_k'K_k = Y_k and of their rotations.

        Each grade has the same largest column norm, as the blocks choose how accurate it is.
        """
        W = np.concatenate([factor.rows for factor in factors])
        n = self.precisions[0].shape[1]
        real, sizes = [], []
        for R, G in zip(self.precisions[1:], self.covariances[1:], strict=True):
            K = solve_triangular(cholesky(G, lower=True), R, lower=True)
            sizes.append(math.sqrt(float((K**2).sum(axis=0).max())))
            real.append(K)
        asked = np.concatenate(self.precisions).T
        unasked = _UNASKED * qr(asked)[0][:, asked.shape[1] :].T
        grades: IntArray = np.repeat(np.arange(len(real)), [len(own) for own in real])
        grades = np.append(grades, np.full(len(unasked), len(real) - 1))
        rng = np.random.default_rng(n)  # A constant seed, so that designs are reproducible.
        best: tuple[float, DenseMatrix] | None = None
        for trial in range(min(_ROTATIONS, 1 + int(_ROTATION_WORK / n**3))):
            rotated = [
                (qr(rng.normal(size=(len(own), len(own))))[0] @ own if trial else own) / size
                for own, size in zip(real, sizes, strict=True)
            ]
            matrix = np.rint(np.vstack([*rotated, unasked]) * 2.0**bits).astype(np.int64)
            if np.linalg.matrix_rank(np.vstack([matrix, np.full(n, 2.0**bits)])) < n:
                continue
            candidate = DenseMatrix(matrix, grades)
            loss = self._estimate_loss(candidate, grades, W)
            if best is None or loss < best[0]:
                best = loss, candidate
        if best is None:
            raise DesignError("the integer strategy of an attribute lost a contrast")
        return best[1]

    def _estimate_loss(self, rounded: DenseMatrix, grades: IntArray, W: FloatArray) -> float:
        """Estimate the logarithm of what rounding costs for the rows W (r, n), over all grades.

        It is by how much the largest eta and the largest gamma of each grade grow.
        """
        eta, parts = self.compute_eta(), self._compute_row_parts(W)[:, 1:]
        E = np.linalg.inv(np.vstack([rounded.matrix, np.ones(rounded.n)]))[:, :-1]
        loss = 0.0
        for k, (own, gammas) in enumerate(zip(eta.T, parts.T, strict=True)):
            mine = grades == k
            squares = ((W @ E[:, mine]) ** 2).sum(axis=1) / np.maximum(gammas, 1e-3 * gammas.max())
            more = (rounded.matrix[mine].astype(np.float64) ** 2).sum(axis=0).max() / own.max()
            loss += math.log(float(squares.max())) + math.log(more)
        return loss


def _solve_move(
    S: FloatArray, B: FloatArray, upper: FloatArray, lower: FloatArray, right: FloatArray
) -> FloatArray:
    """Solve D S + G_k B D G_l = right for D, with positive definite S, G_k, G_l and B >= 0.

    With G_k = P P', G_l = Q Q', P'B P = Z diag(t) Z' and Q^-1 S Q^-T = V diag(s) V', the matrix
    F = Z'P^-1 D Q V has F_ij (s_j + t_i) = (Z'P^-1 right Q^-T V)_ij.
    """
    P, Q = cholesky(upper, lower=True), cholesky(lower, lower=True)
    t, Z = eigh(P.T @ B @ P)
    inner = solve_triangular(Q, solve_triangular(Q, S, lower=True).T, lower=True)
    s, V = eigh((inner + inner.T) / 2)
    scaled = solve_triangular(P, right, lower=True)
    scaled = solve_triangular(Q, scaled.T, lower=True).T
    F = (Z.T @ scaled @ V) / (s + np.maximum(t, 0.0)[:, None])
    return np.asarray(P @ Z @ solve_triangular(Q, V @ F.T, lower=True, trans="T").T)
