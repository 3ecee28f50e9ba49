"""Least squares over histograms: nonnegative, with given totals, and rounded to integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import qr
from scipy.optimize import Bounds, LinearConstraint, linprog, milp, nnls

from fitplug.errors import FitplugError
from fitplug.families import build_dense_strategy
from fitplug.numeric import AnyArray, FloatArray, IntArray
from fitplug.releases.invariants import Known, Limits, list_rows
from fitplug.releases.noisy_answers import NoisyAnswers
from fitplug.releases.resolutions import Resolutions

_TOTAL_WEIGHT = 1e3
"""The weight of a total relative to an answer. Any weight leads to exact totals; with a smaller one
more steps are needed.
"""

_MOST_STEPS = 50

_TOLERANCE = 1e-9
"""How far a total may be off, relative to itself or to one, and a number from an integer."""

_TRIED_CELLS = 64
"""The number of cells, those with the best single changes, that are paired with every other cell.
"""

_CHANGES_PER_CELL = 4
"""The largest number of changes divided by the number of cells."""


class NoSolutionError(Exception):
    """No histogram has these totals."""


def solve_counts(
    release: NoisyAnswers,
    resolutions: Resolutions,
    limits: Sequence[Limits],
    known: Sequence[Known],
) -> LeastSquares:
    """Find the histogram that is nearest to all answers of a release, over all cells.

    Args:
        release: The release.
        resolutions: The resolutions of its workload.
        limits: The limits of blocks: empty blocks, and public totals.
        known: The totals that the user gave.

    Raises:
        NoSolutionError: No histogram has the totals.
        FitplugError: The solver does not end.
    """
    workload, finest = release.plan.workload, resolutions.finest
    rows = [(row.ravel(), value) for one in known for row, value in list_rows(workload, one)]
    is_open = np.ones(workload.cell_count, dtype=bool)
    for one in limits:
        is_open &= resolutions.spread(one.upper, one.resolution, finest).ravel() > 0
        if release.public_totals is not None and (one.lower == one.upper).all():
            rows += _list_blocks(resolutions, one)
    E = np.array([row for row, _ in rows]).reshape(len(rows), workload.cell_count)[:, is_open]
    totals = np.array([value for _, value in rows])
    is_needed = E.any(axis=1) | (totals != 0)
    E, totals = E[is_needed], totals[is_needed]
    A = build_dense_strategy(release.plan.strategy)[:, is_open] / release.plan.noise_std
    y = np.asarray(release.answers[: len(A)]) / release.plan.noise_std
    try:
        x = solve_nonnegative(A, y, E, totals)
    except RuntimeError:  # SciPy's solvers, out of iterations
        raise FitplugError(
            "nonnegative least squares did not converge. Use a release with fewer answers."
        ) from None
    return LeastSquares(A, x, E, totals, is_open.reshape(workload.shape))


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """The nearest histogram to the answers of a release.

    Attributes:
        A: The answers' coefficients over the cells that may have rows, in standard deviations.
        x: The counts of these cells.
        E: The coefficients of the totals.
        totals: The totals.
        is_open: Which cells may have rows, of the workload's shape.
    """

    A: FloatArray
    x: FloatArray
    E: FloatArray
    totals: FloatArray
    is_open: npt.NDArray[np.bool_]

    def to_histogram(self, *, integers: bool) -> AnyArray:
        """Return the histogram, of the workload's shape; rounded if `integers`.

        Raises:
            NoSolutionError: No rounding has the totals.
        """
        x = round_to_integers(self.A, self.x, self.E, self.totals) if integers else self.x
        histogram = np.zeros(self.is_open.shape, dtype=x.dtype)
        histogram[self.is_open] = x
        return histogram


def _list_blocks(resolutions: Resolutions, limits: Limits) -> list[tuple[FloatArray, float]]:
    """List the cells of each block, and its known count."""
    rows = []
    for index in np.ndindex(limits.lower.shape):
        one = np.zeros(limits.lower.shape)
        one[index] = 1.0
        cells = resolutions.spread(one, limits.resolution, resolutions.finest)
        rows.append((cells.ravel(), float(limits.lower[index])))
    return rows


def solve_nonnegative(
    A: FloatArray, y: FloatArray, E: FloatArray, totals: FloatArray
) -> FloatArray:
    """Find x (d,) >= 0 with E x = totals that minimises |A x - y|_2.

    Args:
        A: The matrix (n, d).
        y: The answers (n,).
        E: The coefficients (k, d) of the totals.
        totals: The totals (k,).

    Raises:
        NoSolutionError: No x >= 0 has the totals.
        RuntimeError: The solver does not end.
    """
    d = A.shape[1]
    if not d and totals.any():
        raise NoSolutionError
    if not d:
        return np.zeros(0)
    if len(A) > d:
        Q, A = qr(A, mode="economic")
        y = Q.T @ y
    # This is more than SciPy's default of three times d, as the solver may revisit cells.
    most_iterations = 20 * d
    if not len(E):
        return np.asarray(nnls(A, y, maxiter=most_iterations)[0])
    feasible = linprog(np.zeros(d), A_eq=E, b_eq=totals, bounds=(0, None), method="highs")
    if feasible.status == 2:
        raise NoSolutionError
    weight = _TOTAL_WEIGHT * max(float(np.abs(A).max()), 1e-300) / (float(np.abs(E).max()) or 1.0)
    stacked = np.vstack([weight * E, A])
    # The method of multipliers: the error of a total is added to its right-hand side.
    target, scale = totals.astype(np.float64), np.maximum(np.abs(totals), 1.0)
    for _ in range(_MOST_STEPS):
        right = np.concatenate([weight * target, y])
        x = np.asarray(nnls(stacked, right, maxiter=most_iterations)[0])
        off = totals - E @ x
        if (np.abs(off) <= _TOLERANCE * 1e-2 * scale).all():
            return x
        target = target + off
    raise RuntimeError("the adjusted counts did not reach the given totals")


def round_to_integers(A: FloatArray, x: FloatArray, E: FloatArray, totals: FloatArray) -> IntArray:
    """Round each x (d,) >= 0 up or down so that E times the result z is the integer totals.

    |A (z - x)|_2 is small: no change of one entry or of two, tried in turn, makes it less.

    Raises:
        NoSolutionError: No rounding has the totals.
    """
    low = np.floor(x + _TOLERANCE)
    fractional = np.flatnonzero(x > low + _TOLERANCE)
    share, columns = (x - low)[fractional], E[:, fractional]
    start = _round_running_sums(share, columns, totals - E @ low)
    low[fractional] += _improve(A[:, fractional], share, start, columns)
    return np.asarray(low, dtype=np.int64)


def _round_running_sums(share: FloatArray, E: FloatArray, left: FloatArray) -> FloatArray:
    """Choose which of the cells (f,) are rounded up, as 0 or 1, so that E @ up is `left`.

    The running sums of the cells are rounded, so the sum of all is off by less than one. If a total
    is then missed, as few cells as possible are changed.
    """
    up = np.diff(np.floor(np.cumsum(share) + 0.5), prepend=0.0)
    if np.allclose(E @ up, left, rtol=0, atol=_TOLERANCE):
        return np.asarray(up)
    if not len(share):
        raise NoSolutionError
    solution = milp(
        1 - 2 * up,
        constraints=LinearConstraint(E, left, left),
        bounds=Bounds(0, 1),
        integrality=np.ones(len(share)),
    )
    if solution.x is None:
        raise NoSolutionError
    return np.asarray(np.rint(solution.x))


def _improve(A: FloatArray, share: FloatArray, up: FloatArray, E: FloatArray) -> FloatArray:
    """Bring `up` (f,) of 0 and 1 nearer to `share` (f,) in A's norm, with E @ up unchanged."""
    if not len(up):
        return up
    gram, up, totals = A.T @ A, up.copy(), E.T
    slope = gram @ (up - share)
    for _ in range(_CHANGES_PER_CELL * len(up)):
        step = 1 - 2 * up
        single = 2 * step * slope + np.diag(gram)
        first = np.argsort(single, kind="stable")[:_TRIED_CELLS]
        pairs = single[first, None] + single + 2 * np.outer(step[first], step) * gram[first]
        # Only changes of one cell or of two that keep the totals are allowed.
        moved = step[:, None] * totals
        off = np.abs(moved[first, None, :] + moved[None, :, :]).sum(axis=2) > _TOLERANCE
        pairs[off | (first[:, None] == np.arange(len(up)))] = np.inf
        single[np.abs(moved).sum(axis=1) > _TOLERANCE] = np.inf
        i, j = np.unravel_index(int(pairs.argmin()), pairs.shape)
        best_pair, best_single = float(pairs[i, j]), float(single.min())
        if not min(best_pair, best_single) < -_TOLERANCE:
            break
        two = [int(first[i]), int(j)]
        changed = two if best_pair < best_single else [int(single.argmin())]
        slope += gram[:, changed] @ step[changed]
        up[changed] += step[changed]
    return up
