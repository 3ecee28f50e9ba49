"""The least cost of a Gaussian mechanism, by an interior-point method that is not ours."""

from __future__ import annotations

import warnings

import cvxpy as cp
import numpy as np


def find_least_cost(W, targets, differences, total_error_weight=0.0):
    """Delta squared of the best Gaussian mechanism, or the objective of a weight on its error.

    Args:
        W: Shape (m, d).
        targets: Variances, shape (m,).
        differences: Those between neighbours, shape (v, d).
        total_error_weight: The weight of the sum of the variances in
            Delta^2 * (max_j variance_j / target_j + weight * sum_j variance_j).
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
    counted = np.abs(U).max(axis=1) > 1e-9
    variances = [cp.matrix_frac(row, Y) for row in U[counted]]
    # The product of cost and error is least where the error is 1.
    most = 1 - total_error_weight * cp.sum(variances) if total_error_weight else 1
    within += [v <= c * most for v, c in zip(variances, targets[counted], strict=True)]
    problem = cp.Problem(cp.Minimize(alpha), within)
    with warnings.catch_warnings():
        # On some processors the last digits are not reached.
        warnings.filterwarnings("ignore", "Solution may be inaccurate")
        problem.solve(solver=cp.CLARABEL)
    assert problem.status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE)
    return float(alpha.value)
