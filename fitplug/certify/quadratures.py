"""Quadratures that bound tr N^1/2 from below: by determinants of N + t I, and by resolvents.

By determinants (docs/theory/trees.md): for N >= 0 let L(t) = log det(I + N / t). Then

    tr N^1/2 = (1 / 2 pi) int e^(u/2) L(e^u) du    (T2)

and the trapezoidal rule of step h exceeds this by a factor of at most 1 + e(h), where e decreases
like exp(-2 pi^2 / h) (T3). The poles t are powers of the square root of 2, so that no exponential
function is trusted. The sum beyond the first and the last pole is bounded from below by the values
of L at the poles: t L(t) increases, and L is convex in u. So the rule has weights >= 0, and any
lower bounds on L at the poles give a lower bound on the trace (T5).

By resolvents, where (N + t)^-1 is cheap: for every x > 0 the trapezoid rule of step h on the
integral over u, whose poles are t = e^(k h) for all integers k, gives

    x^-1/2 = (1/pi) int e^(u/2) / (x + e^u) du >= (h/pi) sum_k t^1/2 / (x + t) / (1 + e_h)

with e_h = 2 sum_(k >= 1) sech(2 pi^2 k / h), by Poisson's summation. All terms are positive, so
leaving out poles keeps a lower bound, and with x^1/2 = x x^-1/2

    tr N^1/2 >= (h/pi) / (1 + e_h) sum_k t^1/2 tr N (N + t)^-1

for every positive semidefinite N (docs/theory/chains.md, (C3)). Steps are multiples of 2 log 2, so
that poles and their square roots are powers of two, without rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from fitplug.numeric import UNIT_ROUNDOFF, FloatArray, gamma

LogDeterminants: TypeAlias = Callable[[FloatArray], FloatArray]
"""A function that computes lower bounds on L(t) = log det(I + N / t) at poles t, shape (P,)."""

STEP = 3
"""The step of the rule in units of log(2) / 2: with it, e(h) is 1.9e-9."""

COARSE_STEP = 5
"""The step for expensive poles: with it, e(h) is 6.2e-6."""

_ROOTS_OF_TWO = np.array([1.0, math.sqrt(math.sqrt(2)), math.sqrt(2), math.sqrt(math.sqrt(8))])
"""2^(0/4) to 2^(3/4)."""

_MOST_BELOW, _MOST_ABOVE = 160, 80
"""The largest distance of poles from the largest eigenvalue, in powers of 2."""

_LIBRARY = 1e-12
"""An upper bound on the relative error of the functions of the C library that are used here."""


@dataclass(frozen=True, eq=False)
class DeterminantQuadrature:
    """A rule: sum_k weights_k L(poles_k) <= tr N^1/2 for every N >= 0.

    Attributes:
        step: The step h, in units of log(2) / 2.
        lowest: The exponent of the lowest pole: it is 2^(step * lowest / 2).
        highest: The exponent of the highest pole.
        poles: t, ascending, shape (P,).
        weights: Shape (P,).
    """

    step: int
    lowest: int
    highest: int
    poles: FloatArray
    weights: FloatArray


def build_quadrature(lowest: int, highest: int, step: int = STEP) -> DeterminantQuadrature:
    """Build the rule whose poles are 2^(step * k / 2), for k from `lowest` to `highest`.

    Eigenvalues between the poles lose almost nothing. An eigenvalue x loses about (t / x)^1.5 of
    its square root below a lowest pole t < x, and (x / t)^1.5 above a highest pole t > x.

    Args:
        lowest: The exponent of the lowest pole.
        highest: The exponent of the highest pole, at least lowest + 5.
        step: The step h, in units of log(2) / 2.

    Returns:
        The rule.
    """
    power = step * np.arange(lowest, highest + 1)
    # Square roots are rounded correctly, so a pole is wrong by at most half a unit in the last
    # place, and L changes by no larger factor than t does.
    poles = np.ldexp(_ROOTS_OF_TWO[2 * (power % 2)], power // 2)
    roots = np.ldexp(_ROOTS_OF_TWO[power % 4], power // 4)
    weights = lower_determinant_scale(step) * roots
    ratio = 2.0 ** (-step / 4)
    # Below the first pole, L is above the line through its values at the first pole and at another
    # pole, which is far enough away that its weight stays positive.
    other, slope = _find_second_pole(step), ratio / (1 - ratio) ** 2 * weights[0]
    weights[[0, -1]] /= 1 - ratio
    weights[0] += slope / other
    weights[other] = max(weights[other] - slope / other, 0.0)
    return DeterminantQuadrature(step, lowest, highest, poles, weights * (1 - 64 * UNIT_ROUNDOFF))


def lower_determinant_scale(step: int) -> float:
    """Bound h / (2 pi (1 + e(h))) from below (T3)."""
    h = step * math.log(2) / 2
    decay = math.exp(-2 * math.pi**2 / h)
    excess = 4 * decay / (1 - decay) / math.sqrt(1 + (4 * math.pi / h) ** 2)
    return h / (2 * math.pi) / (1 + excess * (1 + _LIBRARY)) * (1 - _LIBRARY)


def lower_trace(
    evaluate: LogDeterminants,
    *,
    rank: float,
    trace: float,
    largest: float,
    tolerance: float,
    step: int = STEP,
    batch: int = 8,
) -> tuple[float, DeterminantQuadrature]:
    """Bound tr N^1/2 from below, with as many poles as needed.

    Args:
        evaluate: A function that computes lower bounds on L.
        rank: An upper bound on the rank of N.
        trace: About tr N.
        largest: A close upper bound on the largest eigenvalue of N.
        tolerance: The largest relative loss from omitted poles. If rank, trace or largest is wrong,
            the bound loses more but still holds.
        step: The step h, in units of log(2) / 2.
        batch: The number of poles to evaluate at once.

    Returns:
        The bound, and the rule that gives it.
    """
    if not (rank > 0 and trace > 0 and largest > 0):
        return 0.0, build_quadrature(0, 4, step)
    batch = max(batch, _find_second_pole(step) + 1)
    top = math.ceil(2 * math.log2(largest) / step)
    deepest, farthest = top - 2 * _MOST_BELOW // step, top + 2 * _MOST_ABOVE // step
    rule = build_quadrature(top - batch + 1, top, step)
    values = evaluate(rule.poles)
    # L increases towards lower poles; where its bounds do not, rounding dominates them.
    while (
        rule.lowest > deepest
        and values[0] > values[1]
        and _upper_loss_below(rule, values, rank) > tolerance * float(rule.weights @ values)
    ):
        rule = build_quadrature(rule.lowest - batch, rule.highest, step)
        values = np.append(evaluate(rule.poles[:batch]), values)
    while rule.highest < farthest and (
        _upper_loss_above(rule, values, trace) > tolerance * float(rule.weights @ values)
    ):
        rule = build_quadrature(rule.lowest, rule.highest + batch // 2, step)
        values = np.append(values, evaluate(rule.poles[-(batch // 2) :]))
    return _choose_lowest(rule, values)


def _choose_lowest(
    rule: DeterminantQuadrature, values: FloatArray
) -> tuple[float, DeterminantQuadrature]:
    """Choose the lowest pole that gives the best bound; return the bound and the rule."""
    best, chosen = 0.0, rule
    for left_out in range(len(values) - _find_second_pole(rule.step) - 1):
        shorter = build_quadrature(rule.lowest + left_out, rule.highest, rule.step)
        bound = float(shorter.weights @ values[left_out:]) * (1 - gamma(len(values)))
        if bound > best:
            best, chosen = bound, shorter
    return best, chosen


def _find_second_pole(step: int) -> int:
    """Find the nearest pole to the first whose weight stays positive; see `build_quadrature`."""
    ratio = 2.0 ** (-step / 4)
    other = 1
    while ratio**-other < ratio / (1 - ratio) ** 2 / other:
        other += 1
    return other


def _upper_loss_below(rule: DeterminantQuadrature, values: FloatArray, rank: float) -> float:
    """Bound the contribution of poles below the first: there, L grows by at most `rank` per u."""
    other, ratio = _find_second_pole(rule.step), 2.0 ** (-rule.step / 4)
    more = max(rank * other * rule.step * math.log(2) / 2 - (values[0] - values[other]), 0.0)
    root = math.sqrt(rule.poles[0])
    return float(
        lower_determinant_scale(rule.step) * root * ratio / (1 - ratio) ** 2 * more / other
    )


def _upper_loss_above(rule: DeterminantQuadrature, values: FloatArray, trace: float) -> float:
    """Bound the contribution of poles above the last: there, t L is at most the trace."""
    ratio, t = 2.0 ** (-rule.step / 4), float(rule.poles[-1])
    more = max(trace / t - values[-1], 0.0)
    return float(lower_determinant_scale(rule.step) * math.sqrt(t) * ratio / (1 - ratio) * more)


_LEAST, _MOST = -500, 500
"""The least and the largest exponent of the square root of a pole."""


class ResolventQuadrature(NamedTuple):
    """Poles and weights with tr N^1/2 >= sum of weights * tr N (N + pole)^-1, rounding included.

    Attributes:
        poles: t, shape (k,).
        weights: Shape (k,).
    """

    poles: FloatArray
    weights: FloatArray


def place_poles(
    trace: float, rank: int, *, step: int = 1, tail: float = 1e-5
) -> ResolventQuadrature:
    """Place poles for the square root of a matrix of some trace and rank.

    Args:
        trace: About tr N, above 0. It only places the poles; no proof needs it.
        rank: About the rank of N, likewise.
        step: The step h, in units of 2 log 2.
        tail: The largest share of tr N^1/2 in each omitted tail.

    Returns:
        The poles, which are powers of 4^step.
    """
    # tr N^1/2 is at least (tr N)^1/2. The poles below t add at most (2/pi) t^1/2 rank, and those
    # above it at most (2/pi) t^-1/2 tr N.
    least = math.log2(tail * math.pi / 2 * math.sqrt(trace) / rank)
    most = -math.log2(tail * math.pi / 2 / math.sqrt(trace))
    lowest = max(math.floor(least / step), _LEAST // step)
    highest = min(math.ceil(most / step), _MOST // step)
    roots = np.ldexp(1.0, step * np.arange(lowest, max(lowest, highest) + 1))
    return ResolventQuadrature(roots * roots, roots * lower_resolvent_scale(step))


def lower_resolvent_scale(step: int) -> float:
    """Bound h / pi / (1 + e_h) from below, for h = 2 log 2 times the step, up to 2."""
    h = 2 * step * math.log(2)
    # sech(x) <= 2 e^-x, and the terms fall at least as fast as a geometric series.
    ratio = math.exp(-2 * math.pi**2 / h)
    return h / math.pi / (1 + 4 * ratio / (1 - ratio)) * (1 - 1e-13)
