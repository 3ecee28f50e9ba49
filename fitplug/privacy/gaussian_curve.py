"""The (epsilon, delta) curve of continuous Gaussian noise, evaluated without cancellation: (Z8).

(The paper's Theorem 3; Balle and Wang 2018.)
"""

from __future__ import annotations

import math

from scipy.special import erfcx, log_ndtr, ndtr


def compute_gaussian_log_delta(cost: float, epsilon: float) -> float:
    """Compute log(delta) of the Gaussian curve (Z5) without cancellation, by (Z8)."""
    t = epsilon / cost - cost / 2
    log_phi = -t * t / 2 - math.log(2 * math.pi) / 2
    if t < 0:
        far = math.exp(log_phi) * _compute_mills_ratio(t + cost) if t > -38 else 0.0
        near = float(ndtr(-t))
        if far < 0.5 * near:
            return math.log(near - far)
    difference = _compute_mills_drop(t, cost)
    if difference <= 0:
        # Both terms agree to the last bit. The first one alone is an upper bound.
        return float(log_ndtr(-t))
    return log_phi + math.log(difference)


def _compute_mills_ratio(x: float) -> float:
    """Compute the Mills ratio (1 - Phi(x)) / phi(x)."""
    return math.sqrt(math.pi / 2) * float(erfcx(x / math.sqrt(2)))


_QUADRATURE = (
    (0.04691007703066800, 0.11846344252809454),
    (0.23076534494715845, 0.23931433524968324),
    (0.5, 0.28444444444444444),
    (0.76923465505284155, 0.23931433524968324),
    (0.95308992296933200, 0.11846344252809454),
)
"""The nodes and weights of Gauss-Legendre quadrature with 5 points on (0, 1)."""


def _compute_mills_drop(t: float, step: float) -> float:
    """Compute mills(t) - mills(t + step), for small steps as the integral of 1 - x mills(x)."""
    if step > 0.02:
        return _compute_mills_ratio(t) - _compute_mills_ratio(t + step)
    nodes = [(t + step * node, weight) for node, weight in _QUADRATURE]
    return step * sum(weight * (1 - x * _compute_mills_ratio(x)) for x, weight in nodes)
