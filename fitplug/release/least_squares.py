"""Least squares over histograms: without negative counts, with totals kept, and whole numbers."""

from __future__ import annotations

import numpy as np
from scipy.linalg import qr
from scipy.optimize import Bounds, LinearConstraint, linprog, milp, nnls

from fitplug.numeric import FloatArray, IntArray

_WEIGHT = 1e3
"""Of a total over an answer. The steps below make totals exact whatever it is, but more of them."""
_STEPS = 50
_EXACT = 1e-9
"""Of a total, or of one: how far it may be off, and what counts as a whole number."""

_TRIED, _CHANGES = 64, 4
"""Cells that are tried with every other in a change of two, the best by themselves; and how many
changes there are at most, in cells.
"""


class NoSolutionError(Exception):
    """No histogram has these totals."""


def nonnegative_least_squares(
    A: FloatArray, y: FloatArray, E: FloatArray, totals: FloatArray
) -> FloatArray:
    """x (d,) >= 0 with E x = totals that makes |A x - y|_2 least; A (n, d), E (k, d).

    Raises NoSolutionError if no x >= 0 has the totals, RuntimeError if the solver does not end.
    """
    d = A.shape[1]
    if len(A) > d:
        Q, A = qr(A, mode="economic")
        y = Q.T @ y
    # More than the default of three times d: it may go over cells again.
    most = 20 * d
    if not len(E):
        return np.asarray(nnls(A, y, maxiter=most)[0])
    feasible = linprog(np.zeros(d), A_eq=E, b_eq=totals, bounds=(0, None), method="highs")
    if feasible.status == 2:
        raise NoSolutionError
    weight = _WEIGHT * max(float(np.abs(A).max()), 1e-300) / (float(np.abs(E).max()) or 1.0)
    stacked = np.vstack([weight * E, A])
    # The method of multipliers: what a total is off by is added to what is asked of it.
    asked, scale = totals.astype(np.float64), np.maximum(np.abs(totals), 1.0)
    for _ in range(_STEPS):
        x = np.asarray(nnls(stacked, np.concatenate([weight * asked, y]), maxiter=most)[0])
        off = totals - E @ x
        if (np.abs(off) <= _EXACT * 1e-2 * scale).all():
            return x
        asked = asked + off
    raise RuntimeError("the totals are not reached")


def nearest_integers(A: FloatArray, x: FloatArray, E: FloatArray, totals: FloatArray) -> IntArray:
    """Whole numbers (d,), each x (d,) >= 0 rounded up or down, with E of them = totals, whole, and
    |A (whole - x)|_2 small: no change of one of them or two, tried in turn, makes it less.

    Raises NoSolutionError if no rounding has the totals.
    """
    low = np.floor(x + _EXACT)
    among = np.flatnonzero(x > low + _EXACT)
    share, rows = (x - low)[among], E[:, among]
    up = _improved(A[:, among], share, _begun(share, rows, totals - E @ low), rows)
    low[among] += up
    return np.asarray(low, dtype=np.int64)


def _begun(share: FloatArray, E: FloatArray, left: FloatArray) -> FloatArray:
    """Which of the cells (f,) go up, with E of them = left: sums from the first on are rounded, so
    that the sum of all is off by less than one; where totals need it, as few as possible change.
    """
    up = np.diff(np.floor(np.cumsum(share) + 0.5), prepend=0.0)
    if np.allclose(E @ up, left, rtol=0, atol=_EXACT):
        return np.asarray(up)
    if not len(share):
        raise NoSolutionError
    found = milp(
        1 - 2 * up,
        constraints=LinearConstraint(E, left, left),
        bounds=Bounds(0, 1),
        integrality=np.ones(len(share)),
    )
    if found.x is None:
        raise NoSolutionError
    return np.asarray(np.rint(found.x))


def _improved(A: FloatArray, share: FloatArray, up: FloatArray, E: FloatArray) -> FloatArray:
    """`up` (f,) of 0 and 1 nearer to `share` (f,) in A's norm, by changes that keep E of it."""
    if not len(up):
        return up
    gram, up, kept = A.T @ A, up.copy(), E.T
    slope = gram @ (up - share)
    for _ in range(_CHANGES * len(up)):
        step = 1 - 2 * up
        alone = 2 * step * slope + np.diag(gram)
        first = np.argsort(alone, kind="stable")[:_TRIED]
        pairs = alone[first, None] + alone + 2 * np.outer(step[first], step) * gram[first]
        # Of a change by itself or of two: the totals stay.
        moved = step[:, None] * kept
        off = np.abs(moved[first, None, :] + moved[None, :, :]).sum(axis=2) > _EXACT
        pairs[off | (first[:, None] == np.arange(len(up)))] = np.inf
        alone[np.abs(moved).sum(axis=1) > _EXACT] = np.inf
        i, j = np.unravel_index(int(pairs.argmin()), pairs.shape)
        both = float(pairs[i, j]) < float(alone.min())
        changed = [int(first[i]), int(j)] if both else [int(alone.argmin())]
        if not min(float(pairs[i, j]), float(alone.min())) < -_EXACT:
            break
        slope += gram[:, changed] @ step[changed]
        up[changed] += step[changed]
    return up
