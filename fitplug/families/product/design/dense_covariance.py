"""The dense covariance of an attribute, in the contrasts that its queries need.

Blocks with different factors have different variants of it. In a variant whose factors have nested
row spaces, each step is a grade k; otherwise all contrasts are one grade. There are K_k (d_k, n)
and E_k (n, d_k) with K_k u = 0 and, summed over the grades of one variant,

    w = w u 1' + sum_k w E_k K_k for all rows w of its factors,    w E_k = 0 for rows of grades < k

    C_k = E_k E_k'    Y_k = K_k'K_k    gamma_k = |w E_k|^2    mu = w u

So a grade does not depend on the grades above it. For k > l, replacing K_k by K_k - D K_l and E_l
by E_l + E_k D with any matrix D keeps this form, and so does replacing u by u + d and K_k by K_k -
K_k d 1' in all variants with any contrast d. These are the moves of the descent. See
docs/theory/product-family.md, "Grades" and "Descent in the splits", where E_k G_k^1/2 and G_k^-1/2
R_k stand for the E_k and K_k used here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.linalg import cholesky, eigh, qr, solve_triangular

from fitplug.errors import DesignError
from fitplug.families.base.attribute_matrices import DenseMatrix
from fitplug.families.product.design.attribute_covariance import (
    AttributeOptimum,
    AttributeQueries,
    make_uniform_optimum,
)
from fitplug.families.product.design.orthogonal_rounding import (
    OrthogonalRounding,
    round_reference,
)
from fitplug.families.product.shape.batches import DistinctFactor
from fitplug.families.product.shape.grades import AttributeGrades
from fitplug.families.product.strategy.variants import DenseVariants
from fitplug.numeric import FloatArray, IntArray
from fitplug.solve import Block, reduce_matrix, solve_dual

NO_ROUNDING = "the design could not be rounded to integers. Use a smaller tolerance."

NEGLIGIBLE = 1e-10
"""Numbers below this share of the largest one count as rounding."""

_TOLERANCE, _MAX_ITERATIONS = 1e-5, 1000
"""The dual solver's settings for one attribute alone."""

_ROTATIONS = 64
"""The most rotations of an attribute's matrices to try."""

_ROTATION_WORK = 1e8
"""The limit on an attribute's cells cubed times the rotations."""

_UNPULLED = 1e-16
"""The least pull on a direction, as a share of the largest. Weaker pulls are raised to it, so that
K_k keeps its rank; without it, u could move arbitrarily far."""

_STEADY = 1e-9
"""A small cost of any move, relative to the mean or largest of its own costs and pulls."""

_ANSWERED = 1e-6
"""A variant answers rows whose residual is below this share of the largest entry."""

_UNASKED = (2.0**-10, 2.0**-7, 2.0**-5, 2.0**-3)
"""The sizes of contrasts that no query needs, as shares of the largest column norm. The first one
that survives rounding is used."""


@dataclass(frozen=True, eq=False)
class DenseCovariance:
    """The reference u and the covariances C_k of an attribute with K grades.

    Attributes:
        contrasts: Orthonormal contrasts that span those of all rows, shape (n, d).
        reference: u, shape (n,).
        precisions: K_k, shapes (d_k, n).
        estimates: E_k, shapes (n, d_k).
        starts: The first grade of each variant, and K.
        variants: The variant of each block, shape (b,).
    """

    contrasts: FloatArray
    reference: FloatArray
    precisions: tuple[FloatArray, ...]
    estimates: tuple[FloatArray, ...]
    starts: tuple[int, ...] = (0, 1)
    variants: IntArray = field(default_factory=lambda: np.zeros(1, dtype=np.int64))

    @classmethod
    def fits(cls, queries: AttributeQueries) -> bool:
        """Tell whether the queries are given as rows."""
        return queries.tree is None

    @classmethod
    def optimise(cls, queries: AttributeQueries) -> AttributeOptimum:
        """Find the optimum for the rows of all factors, and for the sum if a group uses it.

        It is then divided into the grades, with all scales 1.
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
            covariance = covariance.divide(queries.grades)
        q = np.zeros(len(W))
        q[asked] = q_asked
        q = q[place] + NEGLIGIBLE
        ends = np.cumsum([len(matrix) for matrix in rows])
        shares = [weights / weights.sum() for weights in np.split(q, ends)[: len(rows)]]
        return AttributeOptimum(covariance, p, tuple(shares))

    @classmethod
    def of_contrasts(cls, N: FloatArray, v: FloatArray, G: FloatArray) -> DenseCovariance:
        """Make the covariance with one grade from N (n, k), v = N'u (k,) and G = N'C N (k, k)."""
        L = cholesky(G, lower=True) if len(G) else G
        precision = solve_triangular(L, (N - v).T, lower=True) if len(G) else (N - v).T
        return cls(N, 1 / len(N) + N @ v, (precision,), (N @ L,))

    def divide(self, grades: AttributeGrades) -> DenseCovariance:
        """Divide a covariance with one grade into grades, by a block Cholesky decomposition."""
        (estimate,), starts = self.estimates, grades.starts.tolist()
        precisions: list[FloatArray] = []
        estimates: list[FloatArray] = []
        for start, stop in itertools.pairwise(starts):
            subspaces = grades.subspaces[start:stop]
            N = np.concatenate(subspaces, axis=1)
            part = N.T @ estimate
            variant = self.of_contrasts(N, N.T @ self.reference, part @ part.T)
            at = np.cumsum([space.shape[1] for space in subspaces])[:-1]
            precisions += np.split(variant.precisions[0], at, axis=0)
            estimates += np.split(variant.estimates[0], at, axis=1)
        return replace(
            self,
            precisions=tuple(precisions),
            estimates=tuple(estimates),
            starts=tuple(starts),
            variants=grades.variants,
        )

    @property
    def key(self) -> Hashable:
        """Equal for identical covariances."""
        arrays = self.reference, *self.precisions
        return (
            type(self),
            *(array.shape for array in arrays),
            *(array.tobytes() for array in arrays),
        )

    def compute_eta(self) -> FloatArray:
        """Return (Y_k)_ii of each cell and grade, shape (n, K)."""
        return np.stack([(K * K).sum(axis=0) for K in self.precisions], axis=1)

    def compute_variance_parts(self, factor: DistinctFactor) -> FloatArray:
        """Return mu^2 and the gammas of the rows of a factor, shape (r, 1 + K)."""
        return self.compute_row_parts(factor.rows)

    def compute_row_parts(self, rows: FloatArray) -> FloatArray:
        """Return mu^2 and the gammas of rows (r, n), shape (r, 1 + K)."""
        parts = [(rows @ self.reference) ** 2]
        parts += [((rows @ E) ** 2).sum(axis=1) for E in self.estimates]
        return np.stack(parts, axis=1)

    def descend(
        self,
        moments: Sequence[FloatArray],
        pulls: Sequence[tuple[DistinctFactor, FloatArray]],
    ) -> DenseCovariance:
        """Return a covariance with a lower Lagrangian: minimal in all C_k, then in each move."""
        return self.descend_rows(moments, [(factor.rows, pull) for factor, pull in pulls])

    def descend_rows(
        self,
        moments: Sequence[FloatArray],
        pulls: Sequence[tuple[FloatArray, FloatArray]],
    ) -> DenseCovariance:
        """Descend with pulls (r, 1 + K) on rows W (r, n); see `AttributeCovariance.descend`.

        C_k is the geometric mean of Theorem 3. A move by D (F29) costs

            <P_k, (K_k - D K_l)'(K_k - D K_l)> + sum_j pull_jl |(E_l + E_k D)'w_j|^2

        and a move of u by d, shared by all variants, changes K_k to K_k (I - d 1') and costs

            sum_k <P_k, (I - 1 d') Y_k (I - d 1')> + sum_j pull_j0 (w_j'(u + d))^2

        Grades without cost stay unchanged.
        """
        W = np.concatenate([rows for rows, _ in pulls])
        pull = np.concatenate([weights_of_rows for _, weights_of_rows in pulls])
        K, E = list(self.precisions), list(self.estimates)
        costly = [bool(moment.any()) for moment in moments]
        for k, moment in enumerate(moments):
            asked = pull[:, 1 + k] > 0
            if not costly[k] or not asked.any():
                continue
            b = W[asked] @ E[k]
            root = cholesky(_weigh(K[k], moment, K[k]), lower=True)
            squares, U = eigh(root.T @ ((b.T * pull[asked, 1 + k]) @ b) @ root)
            most = float(squares.max(initial=0.0))
            if not most > 0:
                continue
            sizes = np.maximum(squares, _UNPULLED * most) ** 0.25
            E[k] = E[k] @ (root @ U / sizes)
            K[k] = (sizes[:, None] * U.T) @ solve_triangular(root, K[k], lower=True)
        for low, k in self._list_moves():
            if not costly[k]:
                continue
            b, weights = W @ E[k], pull[:, 1 + low, None]
            right = _weigh(K[k], moments[k], K[low]) - b.T @ (weights * (W @ E[low]))
            s, V = eigh(_weigh(K[low], moments[k], K[low]))
            t, Z = eigh(b.T @ (weights * b))
            slopes = s + np.maximum(t, 0.0)[:, None]
            # Directions with next to no slope do not move far.
            slopes = np.maximum(slopes, _STEADY * float(slopes.max()) or 1.0)
            D = Z @ ((Z.T @ right @ V) / slopes) @ V.T
            K[k] = K[k] - D @ K[low]
            E[low] = E[low] + E[k] @ D
        weighted, N = W.T * pull[:, 0], self.contrasts
        sums = [moment if moment.ndim == 1 else moment.sum(axis=1) for moment in moments]
        mass = np.array([max(float(moment_sum.sum()), 0.0) for moment_sum in sums])
        charged = np.concatenate(K) * np.sqrt(np.repeat(mass, list(map(len, K))))[:, None]
        system = N.T @ (charged.T @ charged + weighted @ W) @ N
        right = -N.T @ (weighted @ (W @ self.reference))
        for K_k, total in zip(K, sums, strict=True):
            right += N.T @ (K_k.T @ (K_k @ total))
        # In directions with next to no slope, u stays near the uniform reference.
        steady = _STEADY * float(np.trace(system)) / max(len(system), 1)
        system += steady * np.eye(len(system))
        right -= steady * (N.T @ self.reference)
        move = N @ np.linalg.solve(system, right)
        return replace(self, precisions=tuple(K), estimates=tuple(E)).move(move)

    def _list_moves(self) -> Iterator[tuple[int, int]]:
        """List the pairs of grades l < k of the same variant."""
        for start, stop in itertools.pairwise(self.starts):
            yield from ((low, k) for k in range(start, stop) for low in range(start, k))

    def round_to_integers(
        self, factors: Sequence[DistinctFactor], bits: int
    ) -> DenseMatrix | DenseVariants:
        """Return integer matrices near this covariance; see `AttributeCovariance`."""
        W = np.concatenate([factor.rows for factor in factors])
        slices = [slice(start, stop) for start, stop in itertools.pairwise(self.starts)]
        if len(slices) == 1:
            return self._round_variant(W, bits, slices[0], _round_entries)
        reference = round_reference(self.reference)
        move = reference / sum(reference.tolist()) - self.reference
        moved = self.move(move)
        rounding = OrthogonalRounding(reference)
        matrices = []
        for variant in slices:
            rounded = moved._round_variant(W, bits, variant, rounding.round)
            grades = np.zeros(rounded.rows, dtype=np.int64)
            matrices.append(rounded if rounded.grades else replace(rounded, row_grades=grades))
        return DenseVariants(tuple(matrices), self.variants, reference)

    def move(self, contrast: FloatArray) -> DenseCovariance:
        """Add a contrast (n,) to u."""
        precisions = tuple(K - (K @ contrast)[:, None] for K in self.precisions)
        return replace(self, reference=self.reference + contrast, precisions=precisions)

    def _round_variant(
        self,
        W: FloatArray,
        bits: int,
        variant: slice,
        round_rows: Callable[[FloatArray], IntArray],
    ) -> DenseMatrix:
        """Return the best of many roundings: of K_k with K_k'K_k = Y_k, and of rotations of K_k.

        All rotations give the same mechanism, but they do not round equally well. All grades get
        the same largest column norm, as the blocks choose their accuracy.

        Args:
            W: The rows of queries, shape (r, n). The rounding is chosen for those that the variant
                answers.
            bits: The binary logarithm of the largest column norm.
            variant: The grades of the variant.
            round_rows: Rounds rows (r, n).
        """
        n, estimates = len(self.reference), self.estimates[variant]
        # The descent rotates each K_k arbitrarily. Attributes with equal queries should round
        # alike.
        real = [_triangulate(rows_k, self.contrasts) for rows_k in self.precisions[variant]]
        left = W - (W @ self.reference)[:, None]
        for K, E in zip(self.precisions[variant], estimates, strict=True):
            left -= W @ E @ K
        W = W[np.abs(left).max(axis=1) <= _ANSWERED * np.abs(W).max()]
        sizes = [math.sqrt(float((K**2).sum(axis=0).max(initial=0.0))) or 1.0 for K in real]
        asked = np.concatenate([np.ones((1, n)), *real]).T
        unasked = qr(asked)[0][:, asked.shape[1] :].T
        unasked = unasked - (unasked @ self.reference)[:, None]
        grades: IntArray = np.repeat(np.arange(len(real)), [len(rows_k) for rows_k in real])
        grades = np.append(grades, np.full(len(unasked), len(real) - 1))
        rng = np.random.default_rng(n)  # A constant seed, so that designs are reproducible.
        best: tuple[float, DenseMatrix] | None = None
        trials = min(_ROTATIONS, 1 + int(_ROTATION_WORK / n**3))
        for part in _UNASKED if len(unasked) else (1.0,):
            for trial in range(trials if max(map(len, real)) > 1 else 1):
                rotated = [
                    (
                        qr(rng.normal(size=(len(rows_k), len(rows_k))))[0] @ rows_k
                        if trial
                        else rows_k
                    )
                    / size
                    for rows_k, size in zip(real, sizes, strict=True)
                ]
                matrix = round_rows(np.vstack([*rotated, part * unasked]) * 2.0**bits)
                if np.linalg.matrix_rank(np.vstack([matrix, np.full(n, 2.0**bits)])) < n:
                    continue
                candidate = DenseMatrix(matrix, grades if len(real) > 1 else None)
                loss = _estimate_loss(candidate, grades, W, (real, estimates))
                if best is None or loss < best[0]:
                    best = loss, candidate
            if best is not None:
                break
        if best is None:
            raise DesignError(NO_ROUNDING)
        return best[1]


def _triangulate(K: FloatArray, contrasts: FloatArray) -> FloatArray:
    """Rotate K (d, n) to T, T'T = K'K, that is lower trapezoidal in the contrasts (n, k)."""
    if not len(K):
        return K
    Q, R = qr((K @ contrasts)[:, ::-1])
    signs = np.where(np.diagonal(R) < 0, -1.0, 1.0)
    return np.asarray((signs[:, None] * (Q.T @ K))[::-1])


def _weigh(left: FloatArray, moment: FloatArray, right: FloatArray) -> FloatArray:
    """Compute left P right' for a moment P (n, n), or a diagonal one (n,)."""
    return (left * moment if moment.ndim == 1 else left @ moment) @ right.T


def _round_entries(rows: FloatArray) -> IntArray:
    """Round every entry of rows (r, n)."""
    return np.rint(rows).astype(np.int64)


def _estimate_loss(
    rounded: DenseMatrix,
    grades: IntArray,
    W: FloatArray,
    real: tuple[Sequence[FloatArray], Sequence[FloatArray]],
) -> float:
    """Estimate the logarithm of the cost of rounding for the rows W (r, n), summed over grades.

    It measures the growth of each grade's largest eta and largest relative gamma over those of the
    real precisions and estimates.
    """
    E = np.linalg.inv(np.vstack([rounded.matrix, np.ones(rounded.n)]))[:, :-1]
    loss = 0.0
    for k, (precision, estimate) in enumerate(zip(*real, strict=True)):
        eta, gammas = (precision**2).sum(axis=0), ((W @ estimate) ** 2).sum(axis=1)
        if not eta.max() > 0:
            continue
        mine = grades == k
        squares = ((W @ E[:, mine]) ** 2).sum(axis=1) / np.maximum(gammas, 1e-3 * gammas.max())
        more = (rounded.matrix[mine].astype(np.float64) ** 2).sum(axis=0).max() / eta.max()
        loss += math.log(float(squares.max())) + math.log(more)
    return loss


def _optimise_rows(
    W: FloatArray, c: FloatArray, N: FloatArray
) -> tuple[DenseCovariance, FloatArray, FloatArray]:
    """Find the optimum for rows W (m, n) with targets c (m,) in the contrasts N (n, k).

    Also returns the dual weights p (n,) and q (m,).
    """
    problem, _ = reduce_matrix(W, c)
    block = problem.blocks[0]
    assert isinstance(block, Block)
    solution = solve_dual(problem, tolerance=_TOLERANCE, max_iterations=_MAX_ITERATIONS)
    real = solution.whiteners[0] @ block.basis  # real' real = Sigma^-1
    if len(real) > N.shape[1]:
        functionals = np.vstack([np.ones(len(N)), N.T])
        T = np.linalg.lstsq(real.T, functionals.T, rcond=None)[0].T
        v = T[1:] @ T[0] / (T[0] @ T[0])
        G = T[1:] @ T[1:].T - np.outer(v, v) * (T[0] @ T[0])
    else:
        # The sum is not a combination of the rows, so u can be chosen with w'u = 0 for all rows.
        f = W @ N
        v = np.linalg.lstsq(f, -W.mean(axis=1), rcond=None)[0]
        T = np.linalg.lstsq(f, np.linalg.lstsq(real.T, W.T, rcond=None)[0].T, rcond=None)[0]
        G = T @ T.T
    return DenseCovariance.of_contrasts(N, v, G), solution.p, solution.q
