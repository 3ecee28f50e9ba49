"""The discrete Gaussian N_Z(0, s^2): its exact probabilities, and proven bounds on its tails.

The probability of x is exp(-x^2 / 2 s^2) / Z(s), where Z(s) sums over all integers. By Poisson's
summation formula, Z(s) = sqrt(2 pi) s (1 + 2 sum_k exp(-2 pi^2 s^2 k^2)), so for s >= 1 it is
sqrt(2 pi) s within a factor of 1 + 6e-9. The bounds of Chernoff below use that
E exp(l x^2) = Z(s') / Z(s) with 1 / s'^2 = 1 / s^2 - 2 l, and that x is sub-Gaussian:
E exp(l x) <= exp(l^2 s^2 / 2) for every l (Canonne, Kamath and Steinke 2020: by Poisson's formula
the sum of exp(-(x - c)^2 / 2 s^2) over all integers is largest at c = 0).

Each bound is a p-value: for n independent draws from this distribution, the probability that a
p-value is at most a is at most a. The p-values are for s >= 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import bdtr, bdtrc, gammaln, ndtr

from fitplug.numeric import FloatArray, IntArray

_MOST_SUMMED = 2.0**12
"""The largest standard deviation at which probabilities are computed as sums of all terms."""
_REACH = 12
"""The standard deviations at which sums end; the rest has a probability below 1e-30."""
_ROUNDOFF = 1e-11
"""A bound on the relative errors of sums of exponentials, and of SciPy's functions."""


@dataclass(frozen=True)
class DiscreteGaussian:
    """The discrete Gaussian distribution of one standard deviation.

    Attributes:
        std: The parameter s >= 1, which plans call the standard deviation of the noise.
    """

    std: float

    @property
    def margin(self) -> float:
        """The largest error of the probabilities that the methods return."""
        # Midpoint rule: a unit cell errs by at most 1/8 of the integral of |f''|, which over all
        # cells is 4 exp(-1/2) / s, and Z(s) >= sqrt(2 pi) s.
        return _ROUNDOFF if self.std <= _MOST_SUMMED else _ROUNDOFF + 0.125 / self.std**2

    def compute_cumulative(self, thresholds: IntArray) -> FloatArray:
        """Compute P(x <= t) for integer thresholds t, within `margin`."""
        if self.std > _MOST_SUMMED:
            return np.asarray(ndtr((thresholds + 0.5) / self.std))
        values, masses = self._masses
        cumulative = np.concatenate([[0.0], np.cumsum(masses)])
        return cumulative[np.searchsorted(values, thresholds, side="right")]

    def compute_residues(self, modulus: int) -> FloatArray:
        """Compute P(x = r mod m) for r = 0 to m - 1, within `margin`."""
        if self.std > _MOST_SUMMED:
            # By Poisson's formula residues differ from uniform by 2 exp(-2 pi^2 s^2 / m^2).
            assert 2 * modulus <= self.std
            return np.full(modulus, 1 / modulus)
        values, masses = self._masses
        return np.bincount(values % modulus, weights=masses, minlength=modulus).astype(np.float64)

    @cached_property
    def _masses(self) -> tuple[IntArray, FloatArray]:
        reach = math.ceil(_REACH * self.std) + 1
        values = np.arange(-reach, reach + 1, dtype=np.int64)
        masses = np.exp(-((values / self.std) ** 2) / 2)
        return values, masses / masses.sum()


def upper_binomial_p_value(count: int, draws: int, probability: float, margin: float) -> float:
    """Return a p-value for the number of draws in an event, from exact binomial tails.

    Args:
        count: The number of draws in the event.
        draws: The number of all draws.
        probability: The probability of the event.
        margin: The largest distance of the exact probability from `probability`.
    """
    most, least = min(1.0, probability + margin), max(0.0, probability - margin)
    above = 1.0 if count == 0 else float(bdtrc(count - 1, draws, most))
    below = 1.0 if count == draws else float(bdtr(count, draws, least))
    # SciPy's tails are exact to many digits more than this factor.
    return min(1.0, 2 * (1 + 1e-6) * min(above, below))


def upper_mean_p_value(mean: float, draws: int) -> float:
    """Return a p-value for the mean of draws, in standard deviations of one draw."""
    return min(1.0, 2 * math.exp(-draws * mean**2 / 2))


def upper_variance_p_value(ratio: float, draws: int, std: float) -> float:
    """Return a p-value for the mean square of draws divided by s^2.

    With r the ratio and l such that s'^2 = r s^2, Chernoff's bound is
    (Z(s') / Z(s))^n exp(-n (r - 1) / 2) for either tail. Close to 0 it is not monotonic in r, which
    does no harm: in each tail, ratios with a bound of at most a are beyond the one closest to 1.
    """
    if ratio <= 0:
        # All draws are 0, which has the probability Z(s)^-n. The factor 2 is for the other tail.
        return min(1.0, 2 * (math.sqrt(2 * math.pi) * std) ** -draws)
    log_excess = math.log1p(_upper_excess(math.sqrt(ratio) * std))
    exponent = (math.log(ratio) + 1 - ratio) / 2 + log_excess
    return min(1.0, 2 * math.exp(min(0.0, draws * exponent)))


def upper_product_p_value(mean: float, pairs: int) -> float:
    """Return a p-value for the mean of products of independent draws, divided by s^2.

    Args:
        mean: The mean of x y / s^2 over disjoint pairs of draws.
        pairs: The number of the pairs.
    """
    # E exp(u x y / s^2) <= E exp(u^2 y^2 / 2 s^2) <= (1 - u^2)^(-1/2) (1 + excess), because x is
    # sub-Gaussian. This u minimises the bound.
    size = abs(mean)
    if size == 0:
        return 1.0
    u = (math.hypot(1, 2 * size) - 1) / (2 * size)
    exponent = -u * size - math.log1p(-u * u) / 2 + _upper_excess(1.0)
    return min(1.0, 2 * math.exp(min(0.0, pairs * exponent)))


def upper_multiplicity_p_value(most: int, draws: int, std: float) -> float:
    """Return a p-value for the number of times that the most frequent value was drawn.

    The probability that k given draws are equal is at most (max_x P(x))^(k - 1), and there are
    "draws choose k" ways to choose them.
    """
    log_ways = gammaln(draws + 1) - gammaln(most + 1) - gammaln(draws - most + 1)
    log_largest = -math.log(math.sqrt(2 * math.pi) * std)
    return min(1.0, math.exp(min(0.0, float(log_ways) + (most - 1) * log_largest)) * (1 + 1e-6))


def _upper_excess(std: float) -> float:
    """Bound Z(s) / (sqrt(2 pi) s) - 1 for any s > 0."""
    # In either series the terms of k^2 >= k are below those of a geometric sum.
    first = math.exp(-2 * (math.pi * std) ** 2)
    by_poisson = 2 * first / (1 - first)
    if std > 0.5:
        return by_poisson
    first = math.exp(-1 / (2 * std**2))
    return min(by_poisson, (1 + 2 * first / (1 - first)) / (math.sqrt(2 * math.pi) * std) - 1)
