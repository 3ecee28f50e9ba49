"""The trace of a square root, by quadrature: where (N + t)^-1 is cheap, so is tr N^1/2.

For every x > 0 and step h, the trapezoid rule with the poles t = e^(k h), all integers k, gives

    x^-1/2 = (1/pi) int e^(u/2) / (x + e^u) du >= (h/pi) sum_k t^1/2 / (x + t) / (1 + e_h)

with e_h = 2 sum_(k >= 1) sech(2 pi^2 k / h), by Poisson's summation. All terms are positive, so
leaving out poles keeps a lower bound, and with x^1/2 = x x^-1/2

    tr N^1/2 >= (h/pi) / (1 + e_h) sum_k t^1/2 tr N (N + t)^-1

for every positive semidefinite N (docs/theory/chains.md).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fitplug.numeric import UNIT_ROUNDOFF, FloatArray


class Quadrature(NamedTuple):
    """Poles and weights with tr N^1/2 >= sum of weights * tr N (N + pole)^-1, rounding included.

    Attributes:
        poles: t, shape (k,).
        weights: Shape (k,).
    """

    poles: FloatArray
    weights: FloatArray


def place_poles(trace: float, rank: int, *, step: float = 1.6, tail: float = 1e-5) -> Quadrature:
    """Place poles for the square root of a matrix of some trace and rank.

    Args:
        trace: About the trace of N, above 0. It decides where poles are, and no proof needs it.
        rank: At least the rank of N.
        step: h.
        tail: The part of tr N^1/2 that each of the tails left out may have.

    Returns:
        The poles.
    """
    # tr N^1/2 is at least (tr N)^1/2. The poles below t add at most (2/pi) t^1/2 rank, and those
    # above it at most (2/pi) t^-1/2 tr N.
    least = 2 * math.log(tail * math.pi / 2 * math.sqrt(trace) / rank)
    most = -2 * math.log(tail * math.pi / 2 / math.sqrt(trace))
    k = np.arange(math.floor(least / step), math.ceil(most / step) + 1)
    poles = np.exp(k * step)
    # The exponent is rounded, and so is the exponential. A pole that is off by a factor 1 + d
    # changes its term by less than d. The poles lie between e^-700 and e^700.
    rounding = 4 * (700 + 16) * UNIT_ROUNDOFF
    weights = np.sqrt(poles) * (step / math.pi / (1 + bound_quadrature(step)) * (1 - rounding))
    return Quadrature(poles, weights)


def bound_quadrature(step: float) -> float:
    """Bound e_h, the relative error of the trapezoid rule of a step h <= 4, from above."""
    # sech(x) <= 2 e^-x, and the terms fall at least as a geometric series.
    ratio = math.exp(-2 * math.pi**2 / step)
    return 4 * ratio / (1 - ratio) * (1 + 1e-12)
