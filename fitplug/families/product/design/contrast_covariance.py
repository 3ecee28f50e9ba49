"""The dense covariance of an attribute, in the contrasts that its queries ask for.

With N (n, k), whose orthonormal columns span these contrasts and have N'1 = 0,

    u = 1/n + N v      C = N G N'      Y = X G^-1 X'  with  X = N - 1 v'
    eta_i = X_i G^-1 X_i'      mu = mean of w + f'v      gamma = f'G f  with  f = N'w

where X_i is a row of X, and w a row of a factor. These are (F3) and (F6) of
docs/theory/product-family.md, whose section "Descent in the splits" derives the least Lagrangian.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, cholesky, eigh, qr, solve_triangular

from fitplug.errors import DesignError
from fitplug.families.base.attribute_matrices import DenseMatrix
from fitplug.families.product.design.attribute_covariance import (
    AttributeOptimum,
    AttributeQueries,
    make_uniform_optimum,
)
from fitplug.families.product.shape.batches import DistinctFactor
from fitplug.numeric import FloatArray
from fitplug.solve import Block, reduce_matrix, solve_dual

NEGLIGIBLE = 1e-10
"""Numbers below this part of the largest one count as rounding."""

_TOLERANCE, _MAX_ITERATIONS = 1e-5, 1000
"""Of the dual solver for one attribute alone."""

_ROTATIONS = 64
"""The most rotations of an attribute's matrix that are rounded."""

_ROTATION_WORK = 1e8
"""The cube of an attribute's cells times the rotations is at most this."""

_UNASKED = 2.0**-10
"""The size of contrasts that no query asks for, as a part of the largest column norm."""


@dataclass(frozen=True, eq=False)
class ContrastCovariance:
    """The reference u and covariance C of any attribute.

    Attributes:
        contrasts: N, shape (n, k).
        reference: v = N'u, shape (k,).
        covariance: G = N'C N, shape (k, k).
    """

    contrasts: FloatArray
    reference: FloatArray
    covariance: FloatArray

    @classmethod
    def fits(cls, queries: AttributeQueries) -> bool:
        """Tell whether the queries are given as rows."""
        return queries.tree is None and not queries.grades.subspaces

    @classmethod
    def optimise(cls, queries: AttributeQueries) -> AttributeOptimum:
        """Find the optimum of the rows of all factors, and of the sum if a group asks for it."""
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
            return make_uniform_optimum(cls(N, np.zeros(0), np.zeros((0, 0))), queries)
        asked = W.any(axis=1)
        covariance, p, q_asked = _optimise_rows(W[asked], c[asked], N)
        q = np.zeros(len(W))
        q[asked] = q_asked
        q = q[place] + NEGLIGIBLE
        ends = np.cumsum([len(own) for own in rows])
        shares = [own / own.sum() for own in np.split(q, ends)[: len(rows)]]
        return AttributeOptimum(covariance, p, tuple(shares))

    @property
    def key(self) -> Hashable:
        """Equal for covariances that are identical."""
        arrays = self.contrasts, self.reference, self.covariance
        return type(self), self.contrasts.shape, *(array.tobytes() for array in arrays)

    def compute_eta(self) -> FloatArray:
        """Return Y_ii of each cell, shape (n, 1)."""
        X = (self.contrasts - self.reference).T
        return np.asarray((X * np.linalg.solve(self.covariance, X)).sum(axis=0)[:, None])

    def compute_variance_parts(self, factor: DistinctFactor) -> FloatArray:
        """Return mu^2 and gamma of the rows of a factor, shape (r, 2)."""
        return self.compute_row_parts(factor.rows)

    def compute_row_parts(self, rows: FloatArray) -> FloatArray:
        """Return mu^2 and gamma of rows (r, n), shape (r, 2)."""
        f = rows @ self.contrasts
        mu = rows.mean(axis=1) + f @ self.reference
        return np.stack([mu**2, ((f @ self.covariance) * f).sum(axis=1)], axis=1)

    def descend(
        self,
        cells: FloatArray,
        prices: FloatArray,
        pulls: Sequence[tuple[DistinctFactor, FloatArray]],
    ) -> ContrastCovariance:
        """Return the covariance that minimises the Lagrangian, first in C, then in u."""
        (price,) = prices.tolist()
        return self.descend_rows(cells, price, [(factor.rows, pull) for factor, pull in pulls])

    def descend_rows(
        self,
        cells: FloatArray,
        price: float,
        pulls: Sequence[tuple[FloatArray, FloatArray]],
    ) -> ContrastCovariance:
        """Descend with pulls (r, 2) on rows W (r, n); see `AttributeCovariance.descend`.

        With X_i the cells' and f_j the rows' contrasts, it first minimises the Lagrangian

            price sum_i p_i X_i G^-1 X_i' + sum_j pull_j1 f_j'G f_j + pull_j0 mu_j^2

        in G, which is the geometric mean of (F19), and then in v, which solves (F20).
        """
        N = self.contrasts
        W = np.concatenate([rows for rows, _ in pulls])
        pull = np.concatenate([own for _, own in pulls])
        f, mean = W @ N, W.mean(axis=1)
        X = N - self.reference
        R = cholesky(price * (X.T * cells) @ X, lower=True)
        squares, U = eigh(R.T @ ((f.T * pull[:, 1]) @ f) @ R)
        factor = R @ U / np.maximum(squares, np.finfo(float).tiny) ** 0.25
        G = factor @ factor.T
        inverse = price * cho_solve((cholesky(G, lower=True), True), np.eye(len(G)))
        normal = (f.T * pull[:, 0]) @ f + inverse
        v = np.linalg.solve(normal, inverse @ (cells @ N) - f.T @ (pull[:, 0] * mean))
        return ContrastCovariance(N, v, G)

    def round_to_integers(self, factors: Sequence[DistinctFactor], bits: int) -> DenseMatrix:
        """Return the best of many roundings: of K with K'K = Y and of its rotations.

        All rotations of K are the same mechanism, but they do not round equally well.
        """
        W = np.concatenate([factor.rows for factor in factors])
        N = self.contrasts
        n, k = N.shape
        L = cholesky(self.covariance, lower=True)
        real = solve_triangular(L, (N - self.reference).T, lower=True)
        unasked = qr(np.column_stack([np.ones(n), N]))[0][:, k + 1 :].T
        size = math.sqrt(float((real**2).sum(axis=0).max(initial=0.0))) or 1.0
        rng = np.random.default_rng(n)  # A constant seed, so that designs are reproducible.
        best: tuple[float, DenseMatrix] | None = None
        for trial in range(1 if k < 2 else min(_ROTATIONS, 1 + int(_ROTATION_WORK / n**3))):
            rotated = qr(rng.normal(size=(k, k)))[0] @ real if trial else real
            scaled = np.vstack([rotated / size, _UNASKED * unasked]) * 2.0**bits
            matrix = np.rint(scaled).astype(np.int64)
            if np.linalg.matrix_rank(np.vstack([matrix, np.full(n, 2.0**bits)])) < n:
                continue
            candidate = DenseMatrix(matrix)
            loss = self._estimate_loss(candidate, W)
            if best is None or loss < best[0]:
                best = loss, candidate
        if best is None:
            raise DesignError("the integer strategy of an attribute lost a contrast")
        return best[1]

    def _estimate_loss(self, rounded: DenseMatrix, W: FloatArray) -> float:
        """Estimate the logarithm of what rounding costs for the rows W (r, n).

        It is by how much the largest eta and the largest gamma grow.
        """
        eta, gamma = self.compute_eta(), self.compute_row_parts(W)[:, 1]
        if not eta.max() > 0:
            return 0.0
        E = np.linalg.inv(np.vstack([rounded.matrix, np.ones(rounded.n)]))[:, :-1]
        squares = ((W @ E) ** 2).sum(axis=1) / np.maximum(gamma, 1e-3 * gamma.max())
        more = (rounded.matrix.astype(np.float64) ** 2).sum(axis=0).max() / eta.max()
        return math.log(float(squares.max())) + math.log(more)


def _optimise_rows(
    W: FloatArray, c: FloatArray, N: FloatArray
) -> tuple[ContrastCovariance, FloatArray, FloatArray]:
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
    return ContrastCovariance(N, v, G), found.p, found.q
