"""From rho of zCDP to (epsilon, delta), rounded up.

For every mechanism with that rho they follow from equations (Z2) and (Z4) (Canonne, Kamath and
Steinke 2020, Proposition 12), and for continuous Gaussian noise by its exact curve (Z8), evaluated
without cancellation (the paper's Theorem 3; Balle and Wang 2018).

Theorem 4 of docs/theory/privacy.md bounds the loss of this curve for discrete noise: answers with
discrete Gaussian noise of sigma on Z^k have almost the same distribution as post-processed answers
with continuous Gaussian noise of sigma_1 < sigma. So the curve holds for them with a rho that is
larger by the factor sigma^2 / sigma_1^2, and with ratios of probabilities that are practically 1.
Several releases, chosen adaptively, obey the curve of their total.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from scipy.optimize import minimize_scalar
from scipy.special import erfcx, log_ndtr, ndtr

from fitplug.errors import InputError
from fitplug.numeric import read_python_number

_LOG_RATIO = 1e-18
"""The log of the ratio of probabilities that one release may cost."""

_SAFE = 1e-12
"""A relative step to the safe side, larger than the error of a few floating-point operations."""


@dataclass(frozen=True)
class CurveLoss:
    """The loss of releases against continuous Gaussian noise of the same rho.

    Attributes:
        stretch: The rho of the continuous noise over that of the releases, rounded up, at least 1;
            infinite where the noise is too small for the theorem.
        log_ratio: log R of (Z9), rounded up, at least 0.
    """

    stretch: float = 1.0
    log_ratio: float = 0.0

    def join(self, other: CurveLoss) -> CurveLoss:
        """Return the loss of two releases, or sets of them, whose rho add up."""
        ratio = self.log_ratio + other.log_ratio
        if self.log_ratio and other.log_ratio:
            ratio = math.nextafter(ratio, math.inf)
        return CurveLoss(max(self.stretch, other.stretch), ratio)

    def exceeds(self, other: CurveLoss) -> bool:
        """Return whether this loss is not covered by another one."""
        return self.stretch > other.stretch or self.log_ratio > other.log_ratio

    def limit_rho(self, total: Fraction) -> Fraction:
        """Return the rho that releases with this loss may spend of a budget in epsilon and delta.

        The releases may be chosen one after the other: the rho of the continuous noise and the
        ratio R are then the same in every course of events, as Theorem 6 asks.

        Args:
            total: The rho of the budget on the curve, which leaves room for `USUAL`.

        Returns:
            The total, lowered so far that this stretch fits; 0 if the ratio does not.
        """
        if self.log_ratio > USUAL.log_ratio or self.stretch == math.inf:
            return Fraction(0)
        if self.stretch <= USUAL.stretch:
            return total
        return total * Fraction(USUAL.stretch) / Fraction(self.stretch)


CONTINUOUS = CurveLoss()
"""No loss: continuous Gaussian noise."""

USUAL = CurveLoss(1 + 1e-9, 1e-12)
"""The loss that budgets given as epsilon and delta leave room for, so that one plan and many
releases may spend them alike. It is that of up to a million releases with sigma above 70,000;
designs choose sigma of some millions.
"""


@dataclass(frozen=True)
class DiscreteNoise:
    """Independent discrete Gaussian noise on integer answers.

    Attributes:
        noise_std: sigma, the standard deviation of the noise on each integer answer. If the answers
            are multiples of 0.5, first divide answers and noise by 0.5: noise of std 0.5 then has
            sigma 1.
        answers: k, the number of integer answers, or an upper bound on it.

    Raises:
        InputError: sigma is not a finite number above 0, or k not an integer from 1 to 2^63 - 1.

    Example:
        >>> fp.DiscreteNoise(1000.0, 50).loss.stretch < 1 + 4e-6
        True
    """

    noise_std: float
    answers: int

    def __post_init__(self) -> None:
        std, answers = read_python_number(self.noise_std), read_python_number(self.answers)
        if std is None or not 0 < std <= sys.float_info.max:
            raise InputError(f"noise_std must be a finite number above 0, not {self.noise_std!r}")
        if type(answers) is not int or not 1 <= answers < 2**63:
            raise InputError(f"answers must be an integer from 1 to 2^63 - 1, not {self.answers!r}")
        # Ledgers hash both, and read them back as these types.
        object.__setattr__(self, "noise_std", float(std))
        object.__setattr__(self, "answers", answers)

    @cached_property
    def loss(self) -> CurveLoss:
        """A bound on how far the privacy curve exceeds the curve of continuous Gaussian noise.

        Its `stretch` is sigma^2 / (sigma^2 - s^2), where s is the least number for which R in
        Theorem 4 (docs/theory/privacy.md) is at most exp(1e-18). For one answer s is 1.5, and for
        10^15 answers 2.0.
        """
        # (1 + eta) / (1 - eta) is below exp(2.1 eta), and eta below 2.01 q: (Z10).
        log_q = math.log(_LOG_RATIO / 4.3) - math.log(self.answers)
        smoothing = -log_q / (2 * math.pi**2) * (1 + _SAFE)
        rest = self.noise_std * self.noise_std * (1 - _SAFE) - smoothing
        if rest <= 0:
            return CurveLoss(math.inf, _LOG_RATIO)
        return CurveLoss((1 + smoothing / rest) * (1 + _SAFE), _LOG_RATIO)


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
