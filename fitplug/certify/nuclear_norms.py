"""Nuclear norms of matrices, rounded down, and factors with proven bounds on their errors.

LAPACK finds the factors and is not trusted: whatever it returns, the products below are formed
from it and compared with the identity, rounding included. Each entry of a product of a (m, r) and
b (r, n) is wrong by at most gamma(r) times that entry of |a||b|, and the Frobenius norm of |a||b|
is at most the sum over k of the norm of a's column k times the norm of b's row k. If a
factorisation or its comparison fails, the departure is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fitplug.errors import BAD_PROOF
from fitplug.numeric import UNIT_ROUNDOFF, BoolArray, FloatArray, gamma


def scale_weights(weights: FloatArray, size: int) -> FloatArray:
    """Divide dual weights by the largest. The bound is homogeneous, and then no sum can overflow.

    Raises:
        ValueError: If they are not `size` numbers >= 0, finite and not all zero.
    """
    check_weights(weights, size)
    return weights / weights.max()


def check_weights(weights: FloatArray, size: int) -> None:
    """Check dual weights.

    Raises:
        ValueError: If they are not `size` numbers >= 0, finite and not all zero.
    """
    fits = isinstance(weights, np.ndarray) and weights.dtype == np.float64
    fits = fits and weights.shape == (size,)
    fits = fits and bool(np.isfinite(weights).all()) and not (weights < 0).any()
    if not fits or not weights.any():
        raise ValueError(BAD_PROOF)


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
    p, q = scale_weights(p, W.shape[1]), scale_weights(q, W.shape[0])
    return divide_by_mass(sum_nuclear_norms([(W, q / targets, p)]), p, q)


_LARGEST_DEPARTURE = 0.25
"""A larger departure counts as infinite."""

_REFINED_FROM = 1e-8
"""Factors of sums with a larger departure are computed again, from the product that they gave."""

_SMALL = 24
"""Triangular matrices up to this size are inverted at once, larger ones by halves."""


@dataclass(frozen=True, eq=False)
class ProvenProduct:
    """The distance of Y'Y from the identity, for a stack of approximately known products Y.

    Attributes:
        departure: No less than |Y'Y - I|_F, shape (b,), at most `_LARGEST_DEPARTURE` or infinite.
        trace: No more than tr(Y'Y - I), shape (b,).
    """

    departure: FloatArray
    trace: FloatArray


def factor_sum(S: FloatArray, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Find Z with Z'(count S S')Z near the identity.

    Args:
        S: Shape (b, r, n). Where a row is zero, the product gets a 1 on its diagonal instead.
        counts: Shape (b,).

    Returns:
        Z', lower triangular, shape (b, r, r), and no less than |Z'(count S S')Z - I|, shape (b,).
    """
    empty: BoolArray = (S == 0).all(axis=2)
    product = counts[:, None, None] * (S @ S.swapaxes(1, 2))
    product[empty] += np.eye(S.shape[1])[np.nonzero(empty)[1]]
    Zt = invert_lower(_factor(product))
    departure, G = _prove_sum(Zt, S, counts, empty)
    again = np.flatnonzero((departure > _REFINED_FROM) & np.isfinite(G).all(axis=(1, 2)))
    if again.size:
        refined = np.tril(invert_lower(_factor(G[again])) @ Zt[again])
        better, _ = _prove_sum(refined, S[again], counts[again], empty[again])
        improved = better < departure[again]
        Zt[again[improved]], departure[again[improved]] = refined[improved], better[improved]
    return Zt, departure


def factor_precision(
    Zt: FloatArray, F: FloatArray, rows: int
) -> tuple[FloatArray, ProvenProduct, FloatArray]:
    """Find P with P'(Z Z' + F'F)P near the identity.

    Args:
        Zt: Z', shape (b, r, r), or the diagonal of a diagonal one, shape (b, r).
        F: Shape (b, m, r).
        rows: The number of first rows of F that the last result bounds.

    Returns:
        P, upper triangular with a positive diagonal, shape (b, r, r); the proven bounds on the
        product; and a lower bound on the squared Frobenius norm of these rows times P.
    """
    b, m, r = F.shape
    product = F.swapaxes(1, 2) @ F
    if Zt.ndim == 2:
        product[:, np.arange(r), np.arange(r)] += Zt**2
    else:
        product += Zt.swapaxes(1, 2) @ Zt
    P = np.ascontiguousarray(invert_lower(_factor(product)).swapaxes(1, 2))
    Y = np.empty((b, r + m, r))
    Y[:, :r] = Zt[:, :, None] * P if Zt.ndim == 2 else Zt @ P
    np.matmul(F, P, out=Y[:, r:])
    norms = np.abs(Zt) if Zt.ndim == 2 else _upper_norms(Zt, 1)
    reach = ((norms + _upper_norms(F, 1)) * _upper_norms(P, 2)).sum(axis=1)
    error = gamma(r + 4) * 1.01 * reach
    asked = Y[:, r : r + rows]
    norms = np.sqrt((asked * asked).sum(axis=(1, 2))) * (1 - gamma(rows * r + 8))
    proven, _ = _compare(Y.swapaxes(1, 2), np.ones(b), error)
    return P, proven, np.maximum(norms - error, 0.0) ** 2 * (1 - 4 * UNIT_ROUNDOFF)


@dataclass(frozen=True, eq=False)
class ProvenChange:
    """The distance of P'(Z Z' + F'F - H'H)P from the identity, for stacks of matrices.

    Attributes:
        departure: No less than the norm of the difference, shape (b,), or infinite.
        growth: No less than the norm of P'Z Z'P, shape (b,).
        changed: No less than the sum of the norms of P'F'F P and P'H'H P, shape (b,).
    """

    departure: FloatArray
    growth: FloatArray
    changed: FloatArray


def factor_change(Zt: FloatArray, F: FloatArray, H: FloatArray) -> tuple[FloatArray, ProvenChange]:
    """Find P with P'(Z Z' + F'F - H'H)P near the identity.

    Args:
        Zt: Z', shape (b, r, r). Its entries, and those of F and H, may differ by 12 units in the
            last place from the exact ones, to which the proof applies.
        F: Shape (b, m, r).
        H: Shape (b, n, r).

    Returns:
        P, upper triangular with a positive diagonal, shape (b, r, r), and the proven bounds.
    """
    r = Zt.shape[1]
    added = np.concatenate([Zt, F], axis=1)
    product = added.swapaxes(1, 2) @ added - H.swapaxes(1, 2) @ H
    P = np.ascontiguousarray(invert_lower(_factor(product)).swapaxes(1, 2))
    squares, errors, grams = [], [], []
    for matrix in (Zt, F, H):
        Y = matrix @ P
        reach = (_upper_norms(matrix, 1) * _upper_norms(P, 2)).sum(axis=1)
        errors.append(gamma(r + 32) * 1.01 * reach)
        squares.append((Y * Y).sum(axis=(1, 2)) * 1.01)
        grams.append(Y.swapaxes(1, 2) @ Y)
    off = grams[0] + grams[1] - grams[2] - np.eye(r)
    roundings = [
        gamma(matrix.shape[1] + 2 * r + 8) * square
        + 2.02 * np.sqrt(square) * error
        + 1.01 * error**2
        for matrix, square, error in zip((Zt, F, H), squares, errors, strict=True)
    ]
    departure = 1.01 * np.sqrt((off * off).sum(axis=(1, 2))) + sum(roundings) + gamma(8) * r
    growth = 1.01 * np.abs(grams[0]).sum(axis=2).max(axis=1) + roundings[0]
    changed = squares[1] + squares[2] + roundings[1] + roundings[2]
    fits = departure < _LARGEST_DEPARTURE
    return P, ProvenChange(np.where(fits, departure, np.inf), growth, changed)


def invert_lower(stack: FloatArray) -> FloatArray:
    """Invert lower triangular matrices (b, r, r), approximately; the results are triangular."""
    r = stack.shape[1]
    if r <= _SMALL:
        try:
            return np.tril(np.linalg.inv(stack))
        except np.linalg.LinAlgError:
            return np.full_like(stack, np.nan)
    h = r // 2
    inverse = np.zeros_like(stack)
    inverse[:, :h, :h] = first = invert_lower(stack[:, :h, :h])
    inverse[:, h:, h:] = last = invert_lower(stack[:, h:, h:])
    inverse[:, h:, :h] = -(last @ (stack[:, h:, :h] @ first))
    return inverse


def sum_logarithms(diagonals: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Sum the logarithms of numbers > 0 (b, r), and bound the errors of the sums, both (b,)."""
    logs = np.log(diagonals)
    # Logarithms of C libraries are wrong by a few units in the last place; 256 are allowed for.
    error = gamma(diagonals.shape[1] + 256) * np.abs(logs).sum(axis=1)
    return logs.sum(axis=1), error


def _prove_sum(
    Zt: FloatArray, S: FloatArray, counts: FloatArray, empty: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Bound |Z'(count S S')Z - I|; the second result is the product."""
    Y = Zt @ S
    reach = (_upper_norms(Zt, 1) * _upper_norms(S, 2)).sum(axis=1)
    proven, G = _compare(
        Y, counts, gamma(S.shape[1]) * 1.01 * reach, Zt * empty[:, None, :] if empty.any() else None
    )
    return proven.departure, G


def _compare(
    Y: FloatArray, counts: FloatArray, error: FloatArray, more: FloatArray | None = None
) -> tuple[ProvenProduct, FloatArray]:
    """Compare count Y Y' + more more' with the identity, where Y is known up to `error`.

    Args:
        Y: Shape (b, r, n).
        counts: Shape (b,).
        error: No less than the Frobenius norm of the error of Y, shape (b,).
        more: Shape (b, r, r).

    Returns:
        The proven bounds, and the computed product.
    """
    r, n = Y.shape[1:]
    G = counts[:, None, None] * (Y @ Y.swapaxes(1, 2))
    if more is not None:
        G = G + more @ more.swapaxes(1, 2)
    at = np.arange(r)
    # The norm of Y, with `more`, is the square root of the trace of G, up to rounding.
    squares = G[:, at, at].sum(axis=1) * 1.01
    off = G.copy()
    off[:, at, at] -= 1
    rounding = gamma(n + 2 * r + 8) * squares + 2.02 * np.sqrt(squares * counts) * error
    rounding += 1.01 * counts * error**2
    departure = 1.01 * np.sqrt((off * off).sum(axis=(1, 2))) + rounding
    trace = off[:, at, at].sum(axis=1) - rounding - gamma(r + 4) * (squares + r)
    fits = departure < _LARGEST_DEPARTURE
    return ProvenProduct(np.where(fits, departure, np.inf), trace), G


def _factor(stack: FloatArray) -> FloatArray:
    """Find Cholesky factors (b, r, r), approximately; NaN where there is none."""
    try:
        return np.asarray(np.linalg.cholesky(stack), dtype=np.float64)
    except np.linalg.LinAlgError:
        if len(stack) == 1:
            return np.full_like(stack, np.nan)
        half = len(stack) // 2
        return np.concatenate([_factor(stack[:half]), _factor(stack[half:])])


def _upper_norms(stack: FloatArray, axis: int) -> FloatArray:
    """Bound the Euclidean norms along an axis from above."""
    norms = np.sqrt((stack * stack).sum(axis=axis))
    return np.asarray(norms * (1 + (stack.shape[axis] + 8) * UNIT_ROUNDOFF))
