"""From rho of zCDP to (epsilon, delta), rounded up.

For every mechanism with that rho by equations (Z2) and (Z4) (Canonne, Kamath and Steinke 2020,
Proposition 12), and for continuous Gaussian noise by its exact curve (Z8), evaluated without
cancellation (the paper's Theorem 3; Balle and Wang 2018).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.optimize import minimize_scalar
from scipy.special import erfcx, log_ndtr, ndtr

SAFE = 1e-11
"""A relative step to the safe side, larger than the error of the special functions used here."""

_ROUNDING = 1e-14
"""A bound on the rounding error of a sum of the terms of (Z2) or (Z4), relative to the sum of
their absolute values. Each term is computed with a few roundings of 1.1e-16.
"""


def compute_zcdp_epsilon(rho: float, delta: float) -> float:
    """Compute the least epsilon of (Z4) over the orders alpha > 1, rounded up."""
    log_inverse_delta = -math.log(delta)

    def compute_terms(log_excess: float) -> list[float]:
        """Compute the terms of (Z4) at alpha = 1 + exp(log_excess)."""
        excess = math.exp(log_excess)
        divided = [term / excess for term in _compute_order_terms(log_excess)]
        return [(1 + excess) * rho, log_inverse_delta / excess, *divided]

    start = 0.5 * math.log(max(log_inverse_delta, 1e-3) / rho)
    terms = compute_terms(_search_order(lambda log_excess: sum(compute_terms(log_excess)), start))
    # The terms may nearly cancel, so that rounding is bounded by their absolute values.
    return max(0.0, sum(terms) + _ROUNDING * sum(map(abs, terms))) * (1 + SAFE)


def compute_zcdp_log_delta(rho: float, epsilon: float) -> float:
    """Compute the log of the least delta of (Z2) over the orders alpha > 1, rounded up."""

    def compute_terms(log_excess: float) -> list[float]:
        """Compute the terms of the logarithm of (Z2) at alpha = 1 + exp(log_excess)."""
        excess = math.exp(log_excess)
        return [excess * (1 + excess) * rho, -excess * epsilon, *_compute_order_terms(log_excess)]

    start = math.log(max(epsilon / (2 * rho) - 0.5, 0.0) + 1 / math.sqrt(2 * rho) + 1e-12)
    terms = compute_terms(_search_order(lambda log_excess: sum(compute_terms(log_excess)), start))
    return sum(terms) + _ROUNDING * sum(map(abs, terms))


def _compute_order_terms(log_excess: float) -> tuple[float, float]:
    """Compute two terms whose sum is alpha log(1 - 1 / alpha) - log(alpha - 1).

    Args:
        log_excess: A float close to log(alpha - 1), where alpha - 1 is the float exp(log_excess).
    """
    excess = math.exp(log_excess)
    alpha = 1 + excess
    # The terms of the first form nearly cancel for alpha close to 1, and those of the second for
    # large alpha.
    if log_excess >= 0:
        return -alpha * math.log1p(1 / excess), -log_excess
    return -alpha * math.log1p(excess), excess * log_excess


def _search_order(bound: Callable[[float], float], start: float) -> float:
    """Find the log(alpha - 1) near `start` at which a bound is about least.

    Every order alpha > 1 gives a valid bound, so an inexact minimum only makes it looser.
    """
    minimum = minimize_scalar(
        bound, bounds=(start - 12, start + 12), method="bounded", options={"xatol": 1e-10}
    )
    return float(minimum.x)


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
