"""Nuclear norms of matrices, rounded down, and the scale of dual weights."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from fitplug.numeric import UNIT_ROUNDOFF, FloatArray, gamma


def scale_weights(name: str, weights: FloatArray, size: int) -> FloatArray:
    """Divide dual weights by the largest: the bound is homogeneous, and no sum can overflow then.

    Raises:
        ValueError: If they are not `size` numbers >= 0, finite and not all zero.
    """
    fits = weights.shape == (size,) and weights.dtype == np.float64
    if not fits or not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError(f"dual weights {name} must be {size} finite numbers >= 0")
    if not weights.sum() > 0:
        raise ValueError(f"dual weights {name} are all zero")
    return weights / weights.max()


def divide_by_mass(norm: float, p: FloatArray, q: FloatArray) -> float:
    """Divide a nuclear norm by (sum p sum q)^1/2, rounded down."""
    mass = math.sqrt(float(p.sum()) * float(q.sum())) * (1 + 2 * gamma(len(p) + len(q)))
    return max(0.0, norm / mass)


def sum_nuclear_norms(parts: Iterable[tuple[FloatArray, FloatArray, FloatArray]]) -> float:
    """Sum || diag(rows)^1/2 N diag(columns)^1/2 ||_* over parts (N, rows, columns), rounded down.

    Args:
        parts: Matrices N (r, n), with weights of their rows (r,) and of their columns (n,).

    Returns:
        A lower bound on the sum.
    """
    total, count = 0.0, 0
    for matrix, row_weights, column_weights in parts:
        row, column = np.sqrt(row_weights), np.sqrt(column_weights)
        # Rows and columns without weight add nothing to the norm.
        X = matrix[np.ix_(row > 0, column > 0)] * row[row > 0, None] * column[column > 0]
        if not X.size:
            continue
        if X.shape[0] > X.shape[1]:
            X = X.T
        singular = np.linalg.svd(X, compute_uv=False)
        # Backward stability: computed singular values are those of X + E, |E|_2 <= c u |X|_F with
        # c a modest multiple of the dimensions (LAPACK Users' Guide, section 4.9); each entry of X
        # itself carries a few roundings. By Weyl each of the r values is off by at most |E|_2.
        r, n = X.shape
        error = r * (10 * (r + n) + 64) * UNIT_ROUNDOFF * math.sqrt(float((X * X).sum()))
        total += max(0.0, float(singular.sum()) * (1 - gamma(r)) - error)
        count += 1
    return total * (1 - gamma(count))


def certify_dense_bound(W: FloatArray, targets: FloatArray, p: FloatArray, q: FloatArray) -> float:
    """Certify a lower bound on the privacy cost of a dense workload, one record added or removed.

    Args:
        W: Shape (m, d).
        targets: Target variances c, shape (m,).
        p: Dual weights of the cells, shape (d,).
        q: Dual weights of the queries, shape (m,).

    Returns:
        The bound, rounding included.

    Raises:
        ValueError: If p or q is of another size, negative, not finite or sums to zero.
    """
    p, q = scale_weights("p", p, W.shape[1]), scale_weights("q", q, W.shape[0])
    return divide_by_mass(sum_nuclear_norms([(W, q / targets, p)]), p, q)
