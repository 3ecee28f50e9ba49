"""The integer strategy: what really runs, y = A x + z with A integer and z discrete Gaussian.

A = M B with B an integer basis and M = round(S G), G'G = Sigma^-1 in the coordinates of B. The
privacy guarantee is a rational number, rho = max_i |A e_i|^2 / (2 sigma^2); W = (L M^-1) A, so the
estimates L M^-1 y are unbiased with variance at most sigma^2 |L_j M^-1|^2 (a discrete Gaussian
N_Z(0, sigma^2) has variance at most sigma^2: Canonne, Kamath, Steinke 2020).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.linalg import qr, solve_triangular

from fitplug.basis import Basis, right_solve
from fitplug.errors import DesignError
from fitplug.objective import Objective
from fitplug.rounding import (
    UNIT,
    ceil_float,
    ceil_sqrt,
    exact_product,
    gamma,
    inverse_norms_above,
    largest,
)

Array: TypeAlias = npt.NDArray[np.float64]
IntMatrix: TypeAlias = npt.NDArray[np.int64]

_BITS = (20, 24, 28, 32)
"""log2 of the largest column norm of A, tried in turn until rounding costs little enough; the last,
which holds 10^9 records, is for tolerances near 1e-8."""

_IDLE_PRECISION = 2.0**-10
_BLIND = 1e-12
"""Precision, over that of cells, of directions that no query needs: costs 1e-6 of alpha."""

MAX_ENTRY = 2**52
"""Bound on the entries of M, which floats then hold exactly."""

CLAIM_MARGIN = 1e-12
"""What claimed variances are above, and claimed lower bounds below, the proven ones, relatively."""

LEAST_NOISE, LARGEST_NOISE = 1.0, 2.0**55
"""Least and most noise (std) of a plan. Below, answers are next to exact; above, they might not
stay within 64 bits, 128 standard deviations away."""

_SATURATION = 2**62
"""Strategy answers are clamped here, which no count of people reaches: see `max_records`."""


@dataclass(frozen=True, eq=False)
class Strategy:
    """An integer strategy A = M B.

    basis: B (n, d). M: upper triangular (n, n), positive diagonal.
    sensitivity_squared: max_i |A e_i|^2, exact. column_squares: upper bounds (d,) on |A e_i|^2.
    unit_variances: upper bounds (m,) on the queries' variances at noise variance 1.
    max_records: with no more records than this, no answer is clamped and nothing overflows.
    """

    basis: Basis
    M: IntMatrix
    sensitivity_squared: int
    column_squares: Array
    unit_variances: Array
    max_records: int

    @property
    def sensitivity(self) -> float:
        """The L2 sensitivity to one record, rounded up to a float."""
        return ceil_sqrt(Fraction(self.sensitivity_squared))

    def rho_exact(self, noise_std: float) -> Fraction:
        """rho for one record added or removed, at noise N_Z(0, noise_std^2)."""
        return Fraction(self.sensitivity_squared) / (2 * Fraction(noise_std) ** 2)

    def rho(self, noise_std: float) -> float:
        """`rho_exact` rounded up through the rounded sensitivity, as OpenDP's own map does."""
        return ceil_float((Fraction(self.sensitivity) / Fraction(noise_std)) ** 2 / 2)

    def profile(self, noise_std: float) -> Array:
        """Upper bounds (d,) on the privacy cost squared of each cell, none above twice
        `rho_exact`, rounded up.
        """
        cost = self.column_squares / (noise_std * noise_std) * (1 + 4 * UNIT)
        return np.minimum(cost, ceil_float(2 * self.rho_exact(noise_std)))

    def variances(self, noise_std: float) -> Array:
        """Upper bounds (m,) on the queries' variances."""
        return noise_std * noise_std * self.unit_variances * (1 + 4 * UNIT)

    def answer(self, counts: npt.NDArray[Any]) -> IntMatrix:
        """M @ counts for counts = B x (n,), exact for every integer input, clamped at +-2^62.

        The clamp is 1-Lipschitz in each answer, so it never adds to the sensitivity.
        """
        exact = exact_product(self.M, counts[:, None])[:, 0]
        return np.asarray(np.clip(exact, -_SATURATION, _SATURATION), dtype=np.int64)

    def solve(self, answers: npt.NDArray[Any]) -> Array:
        """M^-1 answers: estimates of B x (n,)."""
        return np.asarray(solve_triangular(self.M.astype(np.float64), answers.astype(np.float64)))


def integer_strategy(
    W: Array,
    targets: Array,
    basis: Basis,
    real: Array,
    *,
    objective: Objective,
    upper: float,
    loss: float,
) -> Strategy:
    """Round a real strategy (k, d), real' real = B' Sigma^-1 B, to integers.

    upper: the objective of the real strategy at its targets. Precision is raised until that of the
    integer one is at most upper * (1 + loss), or no more bits can be had.
    Raises DesignError if variances cannot be bounded.
    """
    G = _triangular(basis, W, real)
    L, L_error = basis.representation(W)
    B = basis.matrix(W)
    unit = math.sqrt(float(((G @ B) ** 2).sum(axis=0).max()))
    strategy: Strategy | None = None
    for bits in _BITS:
        rounded = np.triu(np.rint(G * (2.0**bits / unit)))
        if not np.abs(rounded).max() < MAX_ENTRY:
            break
        M = rounded.astype(np.int64)
        # A direction too weak for this precision still has to stay in the row space.
        M[np.diag_indices_from(M)] = np.maximum(np.diag(M), 1)
        strategy = measured(basis, M, B, L, L_error)
        # At the noise variance 1 / worst every target is met.
        noise_std = math.sqrt(1 / float((strategy.unit_variances / targets).max()))
        reached = objective.value(
            strategy.sensitivity / noise_std,
            strategy.profile(noise_std),
            strategy.variances(noise_std),
        )
        if reached <= upper * (1 + loss):
            break
    if strategy is None:
        raise DesignError(
            "the workload's coefficients differ by too many orders of magnitude for an integer "
            "strategy; scale the queries to similar size"
        )
    # Another machine may round the proven bounds a little higher; what is claimed stays above.
    claimed = replace(
        strategy,
        column_squares=strategy.column_squares * (1 + 3 * gamma(len(strategy.M))),
        unit_variances=strategy.unit_variances * (1 + CLAIM_MARGIN),
    )
    for array in (claimed.M, claimed.column_squares, claimed.unit_variances):
        array.setflags(write=False)
    return claimed


def measured(basis: Basis, M: IntMatrix, B: IntMatrix, L: Array, L_error: Array) -> Strategy:
    """The strategy M B with its exact sensitivity and proven variances.

    L (m, n), L_error (m,): the representation of W in the basis, with its error bounds.
    """
    A = exact_product(M, B)
    unit = inverse_norms_above(L, M.astype(np.float64), L_error=L_error)
    squares = unit * unit * (1 + 2 * UNIT)
    return Strategy(
        basis, M, max_norm_squared(A), column_squares_above(A), squares, records_held(A)
    )


def records_held(A: npt.NDArray[Any]) -> int:
    """The most records of which no answer of A leaves the range that is released as it is."""
    return _SATURATION // largest(A)


def within(variances: Array, scale: float, targets: Array) -> bool:
    """Whether variances <= scale * targets holds exactly, and for the rounded product too."""
    allowed = targets if scale == 1.0 else np.nextafter(scale * targets, 0.0)
    return bool((variances <= allowed).all())


def column_squares_above(A: npt.NDArray[Any]) -> Array:
    """Upper bounds (d,) on |A e_i|^2."""
    return (A.astype(np.float64) ** 2).sum(axis=0) * (1 + gamma(len(A)))


def max_norm_squared(A: npt.NDArray[Any]) -> int:
    """max_i |A e_i|^2, exact: floats pick the columns that may attain it, integers decide."""
    near = (A.astype(np.float64) ** 2).sum(axis=0)
    candidates = np.flatnonzero(near >= near.max() * (1 - 4 * gamma(len(A))))
    columns = {tuple(column) for column in A[:, candidates].T.tolist()}
    return max(sum(entry * entry for entry in column) for column in columns)


def _triangular(basis: Basis, W: Array, real: Array) -> Array:
    """G (n, n), upper triangular with positive diagonal, of the real strategy G B."""
    if basis.kind == "rows":
        G = right_solve(real, basis.matrix(W).astype(np.float64))
    else:
        _, first = np.unique(basis.index, return_index=True)
        G = real[:, first[-basis.size :]]
    k, n = G.shape
    if k < n:
        complement = qr(G.T)[0][:, k:].T
        # Next to none even beside the cells of least precision that it touches.
        precision = np.sqrt((G * G).sum(axis=0))
        touched = np.abs(complement) > _BLIND * np.abs(complement).max(axis=1, keepdims=True)
        weakest = np.where(touched, precision, np.inf).min(axis=1, keepdims=True)
        G = np.vstack([G, _IDLE_PRECISION * weakest * complement])
    R = qr(G, mode="r")[0][:n]
    return np.asarray(R * np.where(np.diag(R) < 0, -1.0, 1.0)[:, None])
