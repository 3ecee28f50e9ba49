"""The dense covariance of an attribute, in the contrasts that its queries ask for.

Where its factors have nested row spaces, each step is a grade k; else all contrasts are one grade.
With N_k (n, d_k), orthonormal contrasts of grade k, there are R_k (d_k, n) and E_k (n, d_k) with

    w = w u 1' + sum_k w E_k R_k for all rows w of factors,    w E_k = 0 for rows of grades below k

    C_k = E_k G_k E_k'    Y_k = R_k' G_k^-1 R_k    gamma_k = (w E_k) G_k (w E_k)'    mu = w u

So a grade knows nothing of what those above it add. R_0 = 1', E_0 = u and G_0 = 1 are the total's.
For k > l >= 0 any matrix D gives R_k - D R_l and E_l + E_k D of the same form: this is how the
descent moves. With one grade, u = 1/n + N v, R_1 = N' - v 1', E_1 = N and G_1 = N'C N: (F3). See
docs/theory/product-family.md, "Grades" and "Descent in the splits".
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
from fitplug.families.product.design.attribute_covariance import (
    AttributeOptimum,
    AttributeQueries,
    make_uniform_optimum,
)
from fitplug.families.product.shape.batches import DistinctFactor
from fitplug.numeric import FloatArray, IntArray
from fitplug.solve import Block, reduce_matrix, solve_dual

NEGLIGIBLE = 1e-10
"""Numbers below this part of the largest one count as rounding."""

_TOLERANCE, _MAX_ITERATIONS = 1e-5, 1000
"""Of the dual solver for one attribute alone."""

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
        """Tell whether the queries are given as rows."""
        return queries.tree is None

    @classmethod
    def optimise(cls, queries: AttributeQueries) -> AttributeOptimum:
        """Find the optimum of the rows of all factors, and of the sum if a group asks for it.

        It is divided into the grades; all scales are 1 then.
        """
        n, summed = queries.size, int(queries.summed)
        rows = [factor.rows for factor in queries.factors]
        W, place = np.unique(
            np.concatenate([*rows, np.ones((summed, n))]), axis=0, return_inverse=True
        )
        place = place.ravel()
        c = np.full(len(W), np.inf)
        np.minimum.at(c, place, np.concatenate([*queries.targets, np.ones(summed)]))
        centred = W - W.mean(axis=1, keepdims=True)
        _, sizes, directions = np.linalg.svd(centred, full_matrices=False)
        N = directions[: int((sizes > NEGLIGIBLE * np.abs(W).max()).sum())].T
        if not N.shape[1]:
            return make_uniform_optimum(cls.of_contrasts(N, np.zeros(0), np.zeros((0, 0))), queries)
        asked = W.any(axis=1)
        covariance, p, q_asked = _optimise_rows(W[asked], c[asked], N)
        if queries.grades.subspaces:
            covariance = covariance.divide(queries.grades.subspaces)
        q = np.zeros(len(W))
        q[asked] = q_asked
        q = q[place] + NEGLIGIBLE
        ends = np.cumsum([len(own) for own in rows])
        shares = [own / own.sum() for own in np.split(q, ends)[: len(rows)]]
        return AttributeOptimum(covariance, p, tuple(shares))

    @classmethod
    def of_contrasts(cls, N: FloatArray, v: FloatArray, G: FloatArray) -> NestedCovariance:
        """Make that of one grade from N (n, k), v = N'u (k,) and G = N'C N (k, k)."""
        n = len(N)
        u = (1 / n + N @ v)[:, None]
        return cls((np.ones((1, n)), (N - v).T), (u, N), (np.eye(1), G))

    def divide(self, subspaces: Sequence[FloatArray]) -> NestedCovariance:
        """Divide a covariance by the Gram-Schmidt process in its geometry (a block Cholesky).

        Args:
            subspaces: Orthonormal contrasts N_k of each grade, shapes (n, d_k).
        """
        n = len(self.estimates[0])
        N = [np.full((n, 1), 1 / n), *subspaces]
        at = np.cumsum([0, *(own.shape[1] for own in N)])
        functionals = np.concatenate([np.ones((n, 1)), *subspaces], axis=1).T
        parts = [
            (functionals @ E, G) for E, G in zip(self.estimates, self.covariances, strict=True)
        ]
        rest = sum((b @ G @ b.T for b, G in parts), np.zeros((at[-1], at[-1])))
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
        return NestedCovariance(tuple(precisions), tuple(estimates), tuple(covariances))

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
        return self.compute_row_parts(factor.rows)

    def compute_row_parts(self, rows: FloatArray) -> FloatArray:
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
        """Return a covariance with a lower Lagrangian: the least in all G_k, then in each move."""
        return self.descend_rows(cells, prices, [(factor.rows, pull) for factor, pull in pulls])

    def descend_rows(
        self,
        cells: FloatArray,
        prices: FloatArray,
        pulls: Sequence[tuple[FloatArray, FloatArray]],
    ) -> NestedCovariance:
        """Descend with pulls (r, 1 + K) on rows W (r, n); see `AttributeCovariance.descend`.

        G_k is the geometric mean of Theorem 3. A move by D costs

            price_k sum_i p_i |(R_k - D R_l) e_i|^2 in G_k^-1 + sum_j pull_jl |(E_l + E_k D)'w_j|^2
            in G_l
        """
        W = np.concatenate([rows for rows, _ in pulls])
        pull = np.concatenate([own for _, own in pulls])
        R, E = list(self.precisions), list(self.estimates)
        G = [self.covariances[0]]
        for k, price in enumerate(prices.tolist(), 1):
            root = cholesky(price * _weigh(R[k], cells, R[k]), lower=True)
            b = W @ E[k]
            squares, U = eigh(root.T @ ((b.T * pull[:, k]) @ b) @ root)
            factor = root @ U / np.maximum(squares, np.finfo(float).tiny) ** 0.25
            G.append(factor @ factor.T)
        for k, price in enumerate(prices.tolist(), 1):
            for low in range(k):
                b, lower = W @ E[k], W @ E[low]
                weighted = b.T * pull[:, low]
                D = _solve_move(
                    price * _weigh(R[low], cells, R[low]),
                    weighted @ b,
                    G[k],
                    G[low],
                    price * _weigh(R[k], cells, R[low]) - G[k] @ (weighted @ lower) @ G[low],
                )
                R[k] = R[k] - D @ R[low]
                E[low] = E[low] + E[k] @ D
        return NestedCovariance(tuple(R), tuple(E), tuple(G))

    def factor_precisions(self) -> list[FloatArray]:
        """Return K_k (d_k, n) with K_k'K_k = Y_k of each grade."""
        return [
            solve_triangular(cholesky(G, lower=True), R, lower=True)
            for R, G in zip(self.precisions[1:], self.covariances[1:], strict=True)
        ]

    def round_to_integers(self, factors: Sequence[DistinctFactor], bits: int) -> DenseMatrix:
        """Return the best of many roundings: of K_k with K_k'K_k = Y_k and of their rotations.

        All rotations are the same mechanism, but they do not round equally well. Each grade has the
        same largest column norm, as the blocks choose how accurate it is.
        """
        W = np.concatenate([factor.rows for factor in factors])
        n, real = len(self.estimates[0]), self.factor_precisions()
        sizes = [math.sqrt(float((K**2).sum(axis=0).max(initial=0.0))) or 1.0 for K in real]
        asked = np.concatenate(self.precisions).T
        unasked = _UNASKED * qr(asked)[0][:, asked.shape[1] :].T
        grades: IntArray = np.repeat(np.arange(len(real)), [len(own) for own in real])
        grades = np.append(grades, np.full(len(unasked), len(real) - 1))
        rng = np.random.default_rng(n)  # A constant seed, so that designs are reproducible.
        best: tuple[float, DenseMatrix] | None = None
        trials = min(_ROTATIONS, 1 + int(_ROTATION_WORK / n**3))
        for trial in range(trials if max(map(len, real)) > 1 else 1):
            rotated = [
                (qr(rng.normal(size=(len(own), len(own))))[0] @ own if trial else own) / size
                for own, size in zip(real, sizes, strict=True)
            ]
            matrix = np.rint(np.vstack([*rotated, unasked]) * 2.0**bits).astype(np.int64)
            if np.linalg.matrix_rank(np.vstack([matrix, np.full(n, 2.0**bits)])) < n:
                continue
            candidate = DenseMatrix(matrix, grades if len(real) > 1 else None)
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
        eta, parts = self.compute_eta(), self.compute_row_parts(W)[:, 1:]
        E = np.linalg.inv(np.vstack([rounded.matrix, np.ones(rounded.n)]))[:, :-1]
        loss = 0.0
        for k, (own, gammas) in enumerate(zip(eta.T, parts.T, strict=True)):
            if not own.max() > 0:
                continue
            mine = grades == k
            squares = ((W @ E[:, mine]) ** 2).sum(axis=1) / np.maximum(gammas, 1e-3 * gammas.max())
            more = (rounded.matrix[mine].astype(np.float64) ** 2).sum(axis=0).max() / own.max()
            loss += math.log(float(squares.max())) + math.log(more)
        return loss


def _weigh(left: FloatArray, cells: FloatArray, right: FloatArray) -> FloatArray:
    """Compute left diag(p) right' for weights p (n,), or left P right' for moments P (n, n)."""
    return (left * cells if cells.ndim == 1 else left @ cells) @ right.T


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


def _optimise_rows(
    W: FloatArray, c: FloatArray, N: FloatArray
) -> tuple[NestedCovariance, FloatArray, FloatArray]:
    """Find the optimum of rows W (m, n) with targets c (m,) in the contrasts N (n, k).

    Also returns the dual weights p (n,) and q (m,).
    """
    problem, _ = reduce_matrix(W, c)
    block = problem.blocks[0]
    assert isinstance(block, Block)
    found = solve_dual(problem, tolerance=_TOLERANCE, max_iterations=_MAX_ITERATIONS)
    real = found.whiteners[0] @ block.basis  # real' real = Sigma^-1
    if len(real) > N.shape[1]:
        functionals = np.vstack([np.ones(len(N)), N.T])
        T = np.linalg.lstsq(real.T, functionals.T, rcond=None)[0].T
        v = T[1:] @ T[0] / (T[0] @ T[0])
        G = T[1:] @ T[1:].T - np.outer(v, v) * (T[0] @ T[0])
    else:
        # The sum is no combination of the rows. Then u can be chosen with w'u = 0 for all rows.
        f = W @ N
        v = np.linalg.lstsq(f, -W.mean(axis=1), rcond=None)[0]
        T = np.linalg.lstsq(f, np.linalg.lstsq(real.T, W.T, rcond=None)[0].T, rcond=None)[0]
        G = T @ T.T
    return NestedCovariance.of_contrasts(N, v, G), found.p, found.q
