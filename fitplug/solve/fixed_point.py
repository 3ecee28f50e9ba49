"""Fixed points of weights: Anderson acceleration of type II, safeguarded by a merit.

All optimizers of the dual iterate on the logarithms x of positive weights. The plain step
x <- x + f(x) never lowers a merit if p is on one simplex and q on another. But it converges slowly
if many weights tend to zero, so `find_fixed_point` extrapolates from the last steps. If the merit
falls, it drops the history and takes the plain step from the last accepted point.

The derivation is in docs/theory/dual.md, sections "The fixed point" and "Acceleration, and its
safeguard". No result relies on convergence: the best bounds of all iterations are returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

import numpy as np

from fitplug.errors import DesignError
from fitplug.numeric import FloatArray

GapProgress: TypeAlias = Callable[[int, float], object]
"""Called with (iterations so far, relative gap so far). If it returns True, the solver stops."""

Evaluation = TypeVar("Evaluation")

MIXING = 0.3
"""The mass of uniform weights that a step mixes in, as a multiple of the relative gap to reach."""

_LARGEST_STEP = 2.0  # An extrapolated step changes a weight by at most a factor of e^2.
_ROUNDING = 1e-13  # Rounding may lower a merit by this much.
_WINDOW = 12
_RIDGE = 1e-8


@dataclass(frozen=True, eq=False)
class Iterate(Generic[Evaluation]):
    """A point of the iteration.

    Attributes:
        x: Logarithms of the weights, shape (n,).
        following: The weights after the plain step from x, shape (n,), positive.
        lower: A lower bound on the optimum.
        upper: An upper bound on the optimum.
        merit: A number that the plain step does not lower, with p on one simplex and q on another.
        evaluation: The caller's results at this point.
    """

    x: FloatArray
    following: FloatArray
    lower: float
    upper: float
    merit: float
    evaluation: Evaluation

    @property
    def residual(self) -> FloatArray:
        """The plain step f(x), shape (n,)."""
        return np.asarray(np.log(self.following) - self.x)


@dataclass(frozen=True, eq=False)
class FixedPoint(Generic[Evaluation]):
    """The result of the iteration.

    Attributes:
        best_lower: The iterate with the best lower bound.
        best_upper: The iterate with the best upper bound.
        iterations: The number of evaluated points.
        stopped: Whether the progress callback asked to stop.
    """

    best_lower: Iterate[Evaluation]
    best_upper: Iterate[Evaluation]
    iterations: int
    stopped: bool


def find_fixed_point(
    evaluate: Callable[[FloatArray], Iterate[Evaluation] | None],
    normalise: Callable[[FloatArray], FloatArray],
    start: FloatArray,
    *,
    tolerance: float,
    max_iterations: int,
    progress: GapProgress | None = None,
    merit_error: float = _ROUNDING,
    relaxation: float = 1.0,
) -> FixedPoint[Evaluation]:
    """Iterate until upper / lower - 1 <= tolerance, or for max_iterations.

    The result is deterministic.

    Args:
        evaluate: The fixed-point map. It returns None where floating point cannot evaluate it.
        normalise: A function that scales weights, given by logarithms (n,), to their simplices.
        start: Logarithms of normalised weights, shape (n,).
        tolerance: The relative gap between the best bounds that ends the iteration.
        max_iterations: The largest number of evaluations.
        progress: See `GapProgress`.
        merit_error: The decrease of a merit that counts as rounding.
        relaxation: The factor on plain steps before they are extrapolated. Near the optimum, steps
            are stable below 2.

    Raises:
        DesignError: If a point cannot be evaluated after a plain step.
    """
    extrapolation = _Extrapolation()
    x = start
    best_lower: Iterate[Evaluation] | None = None
    best_upper: Iterate[Evaluation] | None = None
    last: Iterate[Evaluation] | None = None
    extrapolated = stopped = False
    iteration = 0
    while True:
        iteration += 1
        here = evaluate(x)
        if here is not None:
            if best_lower is None or here.lower > best_lower.lower:
                best_lower = here
            if best_upper is None or here.upper < best_upper.upper:
                best_upper = here
            gap = best_upper.upper / best_lower.lower - 1
            if progress is not None:
                stopped = progress(iteration, gap) is True
            if gap <= tolerance or iteration >= max_iterations or stopped:
                return FixedPoint(best_lower, best_upper, iteration, stopped)
        elif not extrapolated:
            raise DesignError(
                "the targets differ too much in size. Use targets of more similar size."
            )
        if extrapolated and last is not None and _is_worse(here, last, merit_error):
            # Another extrapolation might fail in the same way forever. The plain step from the last
            # accepted point loses no merit.
            extrapolation.forget()
            extrapolated = False
            x = normalise(last.x + last.residual)
        else:
            assert here is not None
            last, extrapolated = here, True
            residual = relaxation * here.residual
            step = extrapolation.extrapolate(here.x, residual, np.sqrt(here.following))
            x = normalise(here.x + np.clip(step, -_LARGEST_STEP, _LARGEST_STEP))


def _is_worse(
    here: Iterate[Evaluation] | None, last: Iterate[Evaluation], merit_error: float
) -> bool:
    return here is None or here.merit < last.merit - merit_error


class _Extrapolation:
    """Anderson's least-squares fit of a step from the last `_WINDOW` steps.

    There may be a million weights, so the arrays of the window are allocated once.
    """

    def __init__(self) -> None:
        self._last: tuple[FloatArray, FloatArray] | None = None
        self._count = 0
        self._changes, self._steps, self._weighted = np.empty((3, 0, 0))

    def forget(self) -> None:
        """Drop the history."""
        self._last, self._count = None, 0

    def extrapolate(self, x: FloatArray, residual: FloatArray, weight: FloatArray) -> FloatArray:
        """Return the step (D18) from x, given the plain step and weights of the fit, all (n,).

        The fit is weighted so that weights near zero, which matter only on a log scale, do not
        dominate it.
        """
        self._append(x, residual)
        if not self._count:
            return residual
        df = self._changes[: self._count]
        weighted = np.multiply(df, weight, out=self._weighted[: self._count])
        gram = weighted @ weighted.T
        gram[np.diag_indices_from(gram)] += _RIDGE * np.trace(gram) + np.finfo(float).tiny
        try:
            fit = np.linalg.solve(gram, weighted @ (residual * weight))
        except np.linalg.LinAlgError:
            self.forget()
            return residual
        return np.asarray(residual - self._steps[: self._count].T @ fit)

    def _append(self, x: FloatArray, residual: FloatArray) -> None:
        """Append the changes (n,) of the plain step and of the point after it."""
        if self._last is not None:
            if self._changes.shape[1] != len(x):
                self._changes, self._steps, self._weighted = np.empty((3, _WINDOW, len(x)))
            if self._count == _WINDOW:
                for rows in (self._changes, self._steps):
                    for i in range(1, _WINDOW):
                        rows[i - 1] = rows[i]
                self._count -= 1
            change, step = self._changes[self._count], self._steps[self._count]
            np.subtract(residual, self._last[1], out=change)
            np.subtract(x, self._last[0], out=step)
            step += change
            self._count += 1
        self._last = x, residual


def mix_with_uniform(weights: FloatArray, mixing: float, mass: float = 1.0) -> FloatArray:
    """Mix uniform weights into weights (n,) that sum to 1, and scale the sum to `mass`."""
    return np.asarray(mass * (weights + mixing / len(weights)) / (1 + mixing))


def normalise_logarithms(x: FloatArray) -> FloatArray:
    """Scale weights with the logarithms x (n,) so that they sum to 1, without overflow."""
    shifted = x - x.max()
    return np.asarray(shifted - math.log(np.exp(shifted).sum()))


def normalise_pair(x: FloatArray, d: int) -> FloatArray:
    """Scale p and q, whose logarithms are x[:d] and x[d:], so that each sums to 1."""
    return np.concatenate([normalise_logarithms(x[:d]), normalise_logarithms(x[d:])])
