"""The trace of a square root, by quadrature: where (N + t)^-1 is cheap, so is tr N^1/2.

For every x > 0 the trapezoid rule of step h on the integral over u, whose poles are t = e^(k h) for
all integers k, gives

    x^-1/2 = (1/pi) int e^(u/2) / (x + e^u) du >= (h/pi) sum_k t^1/2 / (x + t) / (1 + e_h)

with e_h = 2 sum_(k >= 1) sech(2 pi^2 k / h), by Poisson's summation. All terms are positive, so
leaving out poles keeps a lower bound, and with x^1/2 = x x^-1/2

    tr N^1/2 >= (h/pi) / (1 + e_h) sum_k t^1/2 tr N (N + t)^-1

for every positive semidefinite N (docs/theory/chains.md, (C3)). Steps are multiples of 2 log 2, so
that poles and their square roots are powers of two, without rounding.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fitplug.numeric import FloatArray

_LEAST, _MOST = -500, 500
"""The exponents of the square roots of poles lie between these."""


class Quadrature(NamedTuple):
    """Poles and weights with tr N^1/2 >= sum of weights * tr N (N + pole)^-1, rounding included.

    Attributes:
        poles: t, shape (k,).
        weights: Shape (k,).
    """

    poles: FloatArray
    weights: FloatArray


def place_poles(trace: float, rank: int, *, step: int = 1, tail: float = 1e-5) -> Quadrature:
    """Place poles for the square root of a matrix of some trace and rank.

    Args:
        trace: About tr N, above 0. It decides where poles are, and no proof needs it.
        rank: About the rank of N, likewise.
        step: The step h, in units of 2 log 2.
        tail: The part of tr N^1/2 that each of the tails left out may have.

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
    return Quadrature(roots * roots, roots * lower_scale(step))


def lower_scale(step: int) -> float:
    """Bound h / pi / (1 + e_h) from below, for h = 2 log 2 times the step, up to 2."""
    h = 2 * step * math.log(2)
    # sech(x) <= 2 e^-x, and the terms fall at least as fast as a geometric series.
    ratio = math.exp(-2 * math.pi**2 / h)
    return h / math.pi / (1 + 4 * ratio / (1 - ratio)) * (1 - 1e-13)
