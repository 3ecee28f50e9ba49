"""The least cost of a Gaussian mechanism, by an interior-point method that is not ours."""

from __future__ import annotations

import warnings

import cvxpy as cp
import numpy as np


def find_least_cost(W, targets, differences):
    """Delta squared of the best Gaussian mechanism.

    Args:
        W: Shape (m, d).
        targets: Variances, shape (m,).
        differences: Those between neighbours, shape (v, d).
    """
    # Coordinates of the span of W V: any orthonormal basis of its column space.
    answers = W @ differences.T
    U, s, _ = np.linalg.svd(answers)
    U = U[:, : int((s > 1e-9 * s[0]).sum())]
    Y = cp.Variable((U.shape[1],) * 2, PSD=True)
    alpha = cp.Variable()
    within = [
        cp.sum(cp.multiply(np.outer(v, v), Y)) <= alpha
        for v in np.unique((U.T @ answers).round(12), axis=1).T
    ]
    within += [
        cp.matrix_frac(row, Y) <= c
        for row, c in zip(U, targets, strict=True)
        if np.abs(row).max() > 1e-9
    ]
    problem = cp.Problem(cp.Minimize(alpha), within)
    with warnings.catch_warnings():
        # On some processors the last digits are not reached.
        warnings.filterwarnings("ignore", "Solution may be inaccurate")
        problem.solve(solver=cp.CLARABEL)
    assert problem.status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE)
    return float(alpha.value)
