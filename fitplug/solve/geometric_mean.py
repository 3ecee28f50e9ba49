"""The matrix geometric mean, which minimises tr(P S^-1) + tr(Q S) over S.

See docs/theory/dual.md, sections "The geometric mean, and strong duality" and "One evaluation".

If P and Q have structure, rational approximations of x^-1/2 replace eigenvectors: sums of
omega / (x + tau) with positive omega and tau. They are the quadratures of Hale, Higham and
Trefethen (2008, method 3) of the integral of 1 / (x + t^2), with enough poles for a given relative
error. Only the optimizer uses them: no claim of a plan depends on their error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.linalg import cholesky, eigh, solve_triangular
from scipy.linalg.blas import dtrmm
from scipy.special import ellipj, ellipk

from fitplug.errors import BAD_PROOF
from fitplug.numeric import FloatArray, freeze
from fitplug.solve.problem import Block

_ERROR = 1e-9
"""The default relative error."""

_BINS_PER_DECADE, _DECADES = 2, 16


class Poles(NamedTuple):
    """The terms for several intervals.

    Attributes:
        tau: Shape (b, poles).
        omega: Shape (b, poles).
    """

    tau: FloatArray
    omega: FloatArray


def place_poles(least: FloatArray, largest: FloatArray, error: float = _ERROR) -> Poles:
    """Place the poles for intervals of positive numbers.

    Args:
        least: The lower ends of the intervals, shape (b,).
        largest: The upper ends, shape (b,).
        error: The relative error to reach. It is nearly reached for ratios of at most 10^15.
    """
    decades = np.log10(np.maximum(largest / least, 1.0))
    index = np.ceil(decades * _BINS_PER_DECADE).astype(np.int64) - 1
    index = np.clip(index, 0, _BINS_PER_DECADE * _DECADES - 1)
    tau, omega = _tabulate(_count_poles(int(index.max()), error))
    return Poles(tau[index] * least[:, None], omega[index] * np.sqrt(least)[:, None])


def _count_poles(index: int, error: float) -> int:
    """Count the poles that the interval [1, 10^((index + 1) / 2)] needs.

    The error of n poles is about 4 exp(-pi^2 n / K), K the period of the elliptic functions.
    """
    period = ellipk(1 - 10.0 ** (-(index + 1) / _BINS_PER_DECADE))
    return max(math.ceil(period * math.log(4 / error) / math.pi**2), 1)


@lru_cache(maxsize=64)
def _tabulate(count: int) -> Poles:
    """Tabulate that many poles for the intervals [1, 10^(i/2)], i = 1, 2, ..."""
    exponents = np.arange(1, _BINS_PER_DECADE * _DECADES + 1) / _BINS_PER_DECADE
    complement = 1 - 10.0**-exponents
    period = ellipk(complement)[:, None]
    at = (np.arange(count) + 0.5) * period / count
    sn, cn, dn, _ = ellipj(at, complement[:, None])
    return freeze(Poles((sn / cn) ** 2, 2 * period / (np.pi * count) * dn / cn**2))


_BLURRED = 1e-11
"""The square root of an eigenvalue below this share of the largest one is too inaccurate."""

_SHARP = 1e-8
"""Eigenvalues above this share of the largest one are accurate."""


@dataclass(frozen=True, eq=False)
class GeometricMean:
    """S = P # Q^-1 of one block (D12), as F F' with F = R U diag(1 / divisors) (D14).

    Attributes:
        value: T = tr(P S^-1) = tr(Q S) = tr (P^1/2 Q P^1/2)^1/2.
        profile: b_i' S^-1 b_i of each column of the basis, shape (d,).
        ratios: v_j S v_j' of each row of the representation, a variance over its target, (r,).
        R: Lower triangular matrix (k, k), or the diagonal (k,) of a diagonal one.
        U: Orthogonal matrix (k, k).
        divisors: Shape (k,).
    """

    value: float
    profile: FloatArray
    ratios: FloatArray
    R: FloatArray
    U: FloatArray
    divisors: FloatArray

    def compute_whitener(self) -> FloatArray:
        """Return F^-1 (k, k)."""
        return _compute_whitener(self.R, self.U, self.divisors)


def compute_mean(block: Block, p: FloatArray, q: FloatArray) -> GeometricMean:
    """Compute the geometric mean of a block at positive weights p (d,) and q (m,).

    With any R R' = P, the singular value decomposition X = V diag(s) U' of X = diag(q)^1/2 L R
    gives T = sum s and S = R U diag(1/s) U' R'. If the basis consists of cells or of all queries
    (see `reduce_block`), P or Q is diagonal and X is the scaled workload, so the decomposition is
    the only work left. At rank 1024 that takes a third of the time.

    Raises:
        LinAlgError: If floating point cannot compute it.
        ValueError: If a number overflows.
    """
    B, L = block.basis, block.representation
    q = q[block.rows]
    if not min(p.min(), q.min()) > 0:
        raise np.linalg.LinAlgError(BAD_PROOF)
    scaled_L = L * np.sqrt(q)[:, None]
    if _has_diagonal_product(B):
        entries = B * B
        R = np.sqrt(entries @ p)
        s, U, squared = _decompose(scaled_L * R)
        profile = ((U * U) @ s / R**2) @ entries
        return GeometricMean(float(s.sum()), profile, squared @ (1 / s) / q, R, U, np.sqrt(s))
    scaled_B = B * np.sqrt(p)
    if _has_diagonal_product(L.T):
        entries = L * L
        R = 1 / np.sqrt(q @ entries)
        s, U, squared = _decompose((scaled_B / R[:, None]).T)
        ratios = entries @ ((U * U) @ s * R**2)
        return GeometricMean(float(s.sum()), squared @ (1 / s) / p, ratios, R, U, 1 / np.sqrt(s))
    # NumPy forms X X' as a symmetric product, with half the work of a general one.
    mean = compute_mean_of_product(scaled_B @ scaled_B.T, L, q)
    return replace(mean, profile=((mean.compute_whitener() @ B) ** 2).sum(axis=0))


def compute_mean_of_product(P: FloatArray, L: FloatArray, q: FloatArray) -> GeometricMean:
    """Compute the geometric mean for a P (k, k), L (m, k) and positive weights q (m,).

    Returns:
        The mean, with an empty profile.

    Raises:
        LinAlgError: If floating point cannot compute it.
        ValueError: If a number overflows.
    """
    R = cholesky(P, lower=True)
    s, U, squared = _decompose(dtrmm(1.0, R, L * np.sqrt(q)[:, None], lower=1, side=1))
    return GeometricMean(float(s.sum()), np.zeros(0), squared @ (1 / s) / q, R, U, np.sqrt(s))


def _compute_whitener(R: FloatArray, U: FloatArray, divisors: FloatArray) -> FloatArray:
    """Return diag(divisors) U' R^-1."""
    if R.ndim == 1:
        return np.asarray((U * divisors).T / R)
    return np.asarray(solve_triangular(R, U * divisors, lower=True, trans="T").T)


def _has_diagonal_product(B: FloatArray) -> bool:
    """Tell whether B diag(p) B' is diagonal for every p: no column has two nonzero entries."""
    return np.count_nonzero(B) <= B.shape[1] and bool((np.count_nonzero(B, axis=0) <= 1).all())


def _decompose(X: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return s (k,), U (k, k) and the squared entries of X U (n, k), where X = V diag(s) U'.

    The eigenvectors of X'X take a third of the time of LAPACK's singular value decomposition. The
    eigenvalues are squares, so rounding hides the small ones. But the part of X along their vectors
    has no large singular values, and it is decomposed again. U is orthogonal even where s is
    inaccurate, so F and F^-1 never disagree.
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
