"""Combined numbers: sums, ratios and formulas of released answers, with their intervals.

The std of a sum is exact. The std of a ratio or a formula comes from the delta method, the
first-order expansion at the estimates. The interval of a ratio is Fieller's, which has its nominal
coverage however near to zero the denominator is. docs/theory/post-processing.md proves it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from fitplug.display import MOST_GROUPS, MOST_ROWS, make_table
from fitplug.numeric import BoolArray, FloatArray
from fitplug.workload import DEFAULT_CONFIDENCE, find_quantile

_HEADINGS = "estimate of", "value", "std", "95% interval"


class EstimatedNumber:
    """The estimate of an expression: a sum of answers, a ratio of two sums, or a formula.

    Attributes:
        value: The estimate.
        std: The standard deviation of its noise.
        approximate: Whether the standard deviation is approximate, by the delta method.
    """

    value: float
    std: float
    approximate: ClassVar[bool] = False

    def moe(self, confidence: float = DEFAULT_CONFIDENCE) -> float:
        """Compute the margin of error: the distance to the farther end of `interval`.

        Raises:
            WorkloadError: The confidence is out of range.
        """
        return find_moe(self, find_quantile(confidence))

    def interval(self, confidence: float = DEFAULT_CONFIDENCE) -> tuple[float, float]:
        """Compute an interval for the exact answer.

        With probability `confidence`, the interval covers the exact answer over the rows that
        `Release.population` describes. It uses quantiles of the Gaussian distribution; see
        `Release.interval`.

        Returns:
            The lower and the upper end.

        Raises:
            WorkloadError: The confidence is out of range.
        """
        return find_ends(self, find_quantile(confidence))

    def __repr__(self) -> str:
        value, std, interval = _format_number(self)
        return f"{type(self).__name__}({value}, std {std}, 95% interval {interval})"

    def _repr_html_(self) -> str:
        return make_table("", _HEADINGS[1:], [_format_number(self)], 1)


class _Estimate(NamedTuple):
    value: float
    std: float


class Estimate(_Estimate, EstimatedNumber):
    """An estimate of a sum of released answers, each multiplied by a number.

    Attributes:
        value: The unbiased estimate.
        std: The exact standard deviation of the estimate's noise.

    Example:
        >>> total = release.estimate("total")
        >>> low, high = total.interval(0.9)
        >>> low < total.value < high
        True
    """

    __repr__ = EstimatedNumber.__repr__


@dataclass(frozen=True, repr=False)
class Ratio(EstimatedNumber):
    """An estimate of the ratio of two sums of released answers.

    The value and the standard deviation are nan if the denominator is too close to zero. The
    interval is Fieller's: it is valid for every denominator, and not symmetric around the value.
    Its ends are -inf and inf if zero lies within the margin of error of the denominator.

    Attributes:
        value: The ratio of the two estimates.
        std: The standard deviation by the delta method, which is approximate.
        numerator: The estimate of the numerator.
        denominator: The estimate of the denominator.
        covariance: The covariance of the numerator's and the denominator's estimates.

    Example:
        >>> share = release.estimate("'sex x age'[sex = 1] / total")
        >>> share.approximate
        True
    """

    value: float
    std: float
    numerator: Estimate
    denominator: Estimate
    covariance: float
    approximate: ClassVar[bool] = True


@dataclass(frozen=True, repr=False)
class Approximation(EstimatedNumber):
    """An estimate of a formula, such as a difference of ratios.

    The value and the standard deviation are nan if a denominator is too close to zero. The
    interval covers the exact value with approximately its confidence.

    Attributes:
        value: The value of the formula at the estimates.
        std: The standard deviation by the delta method.
        denominators: The estimates of the formula's denominators.

    Example:
        >>> text = "'sex x age'[sex = 1] / total - 'sex x age'[sex = 2] / 'sex x age'[sex = 1]"
        >>> type(release.estimate(text)).__name__
        'Approximation'
    """

    value: float
    std: float
    denominators: tuple[Estimate, ...]
    approximate: ClassVar[bool] = True


@dataclass(frozen=True, eq=False, repr=False)
class Estimates:
    """Estimates of several expressions, with their joint covariance.

    Attributes:
        names: The names of the k combinations.
        values: The estimates (k,) of the combinations.
        covariance: The covariance (k, k) of the estimates. Each entry has the units of its two
            estimates, multiplied. For ratios and formulas it comes from the delta method.
        approximate: For each combination (k,), whether it is a ratio or a formula.
        each: The estimate of each combination (k,).

    Example:
        >>> both = release.estimate_all(["total", "'sex x age'[sex = 1]"])
        >>> both.values.shape, both.covariance.shape
        ((2,), (2, 2))
    """

    names: tuple[str, ...]
    values: FloatArray
    covariance: FloatArray
    approximate: BoolArray
    each: tuple[EstimatedNumber, ...]

    def __repr__(self) -> str:
        shown = zip(self.names[:MOST_ROWS], self.each, strict=False)
        more = [f"and {rest:,} more"] if (rest := len(self.names) - MOST_ROWS) > 0 else []
        return f"Estimates({', '.join([f'{name}: {one!r}' for name, one in shown] + more)})"

    def _repr_html_(self) -> str:
        shown = zip(self.names[:MOST_GROUPS], self.each, strict=False)
        rows = [(name, *_format_number(number)) for name, number in shown]
        return make_table("", _HEADINGS, rows, MOST_GROUPS, len(self.names), "estimates")

    @cached_property
    def stds(self) -> FloatArray:
        """The standard deviations (k,)."""
        # Where noise cancels, as in a / a, rounding may leave a variance slightly below zero.
        return np.asarray(np.sqrt(np.maximum(np.diag(self.covariance), 0.0)))

    def moe(
        self, confidence: float = DEFAULT_CONFIDENCE, *, simultaneous: bool = False
    ) -> FloatArray:
        """Compute the margins of error (k,): the distances to the farther ends of `interval`.

        Raises:
            WorkloadError: The confidence is out of range.
        """
        quantile = find_quantile(confidence, len(self.names) if simultaneous else 1)
        return np.array([find_moe(number, quantile) for number in self.each])

    def interval(
        self, confidence: float = DEFAULT_CONFIDENCE, *, simultaneous: bool = False
    ) -> tuple[FloatArray, FloatArray]:
        """Compute intervals for the exact answers.

        Args:
            confidence: The probability that an interval covers the exact answer.
            simultaneous: Whether all intervals cover their exact answers simultaneously with at
                least this probability, whatever the covariance. If False, each interval covers its
                own answer with this probability. The intervals of sums and ratios are exact; the
                intervals of formulas are approximate.

        Returns:
            Two arrays (k,): the lower ends and the upper ends. For ratios see `Ratio.interval`.

        Raises:
            WorkloadError: The confidence is out of range.
        """
        quantile = find_quantile(confidence, len(self.names) if simultaneous else 1)
        low, high = np.array([find_ends(number, quantile) for number in self.each]).T
        return low, high


def _format_number(number: EstimatedNumber) -> tuple[str, str, str]:
    """Format the value, the std and the interval of a number, with the digits that noise leaves."""
    low, high = number.interval(DEFAULT_CONFIDENCE)
    has_noise = 0 < number.std < math.inf
    places = 2 - math.ceil(math.log10(number.std)) if has_noise else 0

    def show(value: float) -> str:
        if not has_noise or not math.isfinite(value):
            return f"{value:,.6g}"
        return f"{round(value, places):,.{max(places, 0)}f}"

    return show(number.value), show(number.std), f"{show(low)} to {show(high)}"


def find_moe(number: EstimatedNumber, quantile: float) -> float:
    """Compute the margin of error for a Gaussian quantile, such as 1.96 for 95%."""
    if not isinstance(number, Ratio):
        return quantile * number.std
    low, high = find_ends(number, quantile)
    return max(number.value - low, high - number.value)


def find_ends(number: EstimatedNumber, quantile: float) -> tuple[float, float]:
    """Compute the interval's ends for a Gaussian quantile, such as 1.96 for 95%."""
    if isinstance(number, Ratio):
        return find_ratio_interval(
            number.numerator, number.denominator, number.covariance, quantile
        )
    return number.value - quantile * number.std, number.value + quantile * number.std


def find_ratio_interval(
    above: Estimate, below: Estimate, covariance: float, quantile: float
) -> tuple[float, float]:
    """Compute Fieller's interval of a ratio; -inf and inf if it is unbounded.

    Its ratios r are those with (a - r b)^2 <= z^2 Var(e_a - r e_b) for the estimates a and b, their
    noise e and the quantile z. With r = a / b + t this is (E5): a quadratic inequality in t.

    Args:
        above: The numerator.
        below: The denominator.
        covariance: Their covariance.
        quantile: The quantile z.
    """
    b, z = below.value, quantile
    room = b * b - (z * below.std) ** 2
    if not room > 0:
        return -math.inf, math.inf
    ratio = above.value / b
    # The variance of e_a - r e_b at r = a / b, and its covariance with -e_b.
    variance = above.std**2 - 2 * ratio * covariance + (ratio * below.std) ** 2
    slope = ratio * below.std**2 - covariance
    variance = max(variance, (slope / below.std) ** 2 if below.std > 0 else 0.0)
    middle = z * z * slope / room
    half = z * math.sqrt((z * slope) ** 2 + variance * room) / room
    return ratio + middle - half, ratio + middle + half
