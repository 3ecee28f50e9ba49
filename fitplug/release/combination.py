"""Combinations: sums, differences and ratios of released answers, with their covariance.

A linear combination has an exact standard deviation, that of the full covariance sigma^2 R R'. The
standard deviation and the intervals of a ratio are those of the delta method, its first-order
expansion at the estimates, and are marked as approximate. docs/theory/post-processing.md has both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fitplug.errors import WorkloadError
from fitplug.expressions import Expressions, Quotient, Terms
from fitplug.numeric import BoolArray, FloatArray
from fitplug.release.linear_combinations import (
    CombinationLike,
    compute_covariance,
    count_coefficients,
    estimate_stds,
    estimate_values,
    read_combination,
    subtract,
)
from fitplug.release.margins import compute_moe
from fitplug.release.noisy_answers import NoisyAnswers
from fitplug.workload import DEFAULT_CONFIDENCE

LEAST_STDS = 3.0
"""The least number of standard deviations between zero and the denominator of a ratio. If it is
nearer to zero, the expansion of the delta method says nothing.
"""

_MOST_TOGETHER = 4096
"""The largest number of combinations that are estimated together."""

_MOST_COEFFICIENTS = 2**22
"""The largest number of coefficients that these have together."""


class Combination(NamedTuple):
    """A linear combination of released answers.

    Attributes:
        value: The unbiased estimate.
        std: The exact standard deviation of its noise.
    """

    value: float
    std: float

    @property
    def approximate(self) -> bool:
        """False, as the standard deviation is exact."""
        return False

    def moe(self, confidence: float = DEFAULT_CONFIDENCE) -> float:
        """Compute the margin of error: half the width of `interval`.

        Raises:
            WorkloadError: The confidence is out of range.
        """
        return float(compute_moe(confidence, self.std))

    def interval(self, confidence: float = DEFAULT_CONFIDENCE) -> tuple[float, float]:
        """Compute an interval for the exact answer.

        The interval covers the exact answer, of the records that `Release.population` names, with
        this probability. It uses quantiles of the Gaussian distribution; see `Release.interval`.

        Returns:
            The lower and the upper end.

        Raises:
            WorkloadError: The confidence is out of range.
        """
        moe = self.moe(confidence)
        return self.value - moe, self.value + moe


@dataclass(frozen=True)
class Ratio:
    """A ratio of two linear combinations of released answers.

    The value and the standard deviation are nan if the denominator is too near to zero for them to
    mean anything.

    Attributes:
        value: The ratio of the two estimates.
        std: The standard deviation by the delta method, which is approximate.
        numerator: The combination above.
        denominator: The combination below.
        approximate: True, as the standard deviation is approximate.
    """

    value: float
    std: float
    numerator: Combination
    denominator: Combination
    approximate: ClassVar[bool] = True

    def moe(self, confidence: float = DEFAULT_CONFIDENCE) -> float:
        """Compute the approximate margin of error: half the width of `interval`.

        Raises:
            WorkloadError: The confidence is out of range.
        """
        return float(compute_moe(confidence, self.std))

    def interval(self, confidence: float = DEFAULT_CONFIDENCE) -> tuple[float, float]:
        """Compute an interval that covers the exact ratio with about this probability.

        Returns:
            The lower and the upper end.

        Raises:
            WorkloadError: The confidence is out of range.
        """
        moe = self.moe(confidence)
        return self.value - moe, self.value + moe


@dataclass(frozen=True, eq=False)
class Combinations:
    """Several combinations of released answers, with their joint covariance.

    Attributes:
        names: The names of the combinations, k of them.
        values: Their estimates (k,).
        covariance: The covariance (k, k), in products of the values' units. The rows and columns
            of ratios are those of the delta method.
        approximate: Which combinations are ratios (k,).
    """

    names: tuple[str, ...]
    values: FloatArray
    covariance: FloatArray
    approximate: BoolArray

    @cached_property
    def stds(self) -> FloatArray:
        """The standard deviations (k,)."""
        # Where noise cancels, as in a / a, rounding may leave a variance slightly below zero.
        return np.asarray(np.sqrt(np.maximum(np.diag(self.covariance), 0.0)))

    def moe(
        self, confidence: float = DEFAULT_CONFIDENCE, *, simultaneous: bool = False
    ) -> FloatArray:
        """Compute the margins of error (k,): half the widths of `interval`.

        Raises:
            WorkloadError: The confidence is out of range.
        """
        return compute_moe(confidence, self.stds, len(self.names) if simultaneous else 1)

    def interval(
        self, confidence: float = DEFAULT_CONFIDENCE, *, simultaneous: bool = False
    ) -> tuple[FloatArray, FloatArray]:
        """Compute intervals for the exact answers.

        Args:
            confidence: The probability that an interval covers the exact answer.
            simultaneous: Whether all intervals cover their exact answers at once with at least this
                probability, whatever the covariance. If not, each interval does so by itself.

        Returns:
            The lower and the upper ends (k,).

        Raises:
            WorkloadError: The confidence is out of range.
        """
        moe = self.moe(confidence, simultaneous=simultaneous)
        return self.values - moe, self.values + moe


def combine(release: NoisyAnswers, asked: CombinationLike) -> Combination | Ratio:
    """Estimate one combination: see `Release.combine`."""
    (found,) = combine_each(release, [asked])
    if isinstance(found, Ratio):
        _check_denominator(found.denominator)
    return found


def combine_each(
    release: NoisyAnswers, asked: Iterable[CombinationLike]
) -> Iterator[Combination | Ratio]:
    """Estimate combinations one after another: see `Release.combine_each`."""
    expressions = Expressions(release.plan.workload)
    return estimate_each(release, (read_combination(expressions, one) for one in asked))


def estimate_each(
    release: NoisyAnswers, combinations: Iterable[Terms | Quotient[Terms]]
) -> Iterator[Combination | Ratio]:
    """Estimate combinations that were read already, in their order: see `Release.combine_each`."""
    for chunk in _split_chunks(release, combinations):
        sums = iter(_estimate_sums(release, _list_sums(chunk)))
        pairs = [(next(sums), next(sums) if isinstance(one, Quotient) else None) for one in chunk]
        ratios: list[int] = []
        errors: list[Terms] = []
        for k, (one, (above, below)) in enumerate(zip(chunk, pairs, strict=True)):
            if isinstance(one, Quotient) and below is not None and not _is_near_zero(below):
                # The first-order error of a / b is (error of a - value * error of b) / b.
                ratio = above.value / below.value
                errors.append(subtract(one.numerator, ratio, one.denominator))
                ratios.append(k)
        stds = dict(zip(ratios, estimate_stds(release, errors).tolist(), strict=True))
        for k, (above, below) in enumerate(pairs):
            if below is None:
                yield above
            elif k in stds:
                value, std = above.value / below.value, stds[k] / abs(below.value)
                yield Ratio(value, std, above, below)
            else:
                yield Ratio(math.nan, math.nan, above, below)


def combine_all(
    release: NoisyAnswers, asked: Mapping[str, CombinationLike] | Sequence[str]
) -> Combinations:
    """Estimate several combinations with their covariance: see `Release.combine_all`."""
    if isinstance(asked, str) or not isinstance(asked, (Mapping, Sequence)) or not asked:
        raise WorkloadError("combine_all needs a mapping of names to combinations, or a list")
    named: Mapping[str, Any] = asked if isinstance(asked, Mapping) else _name_expressions(asked)
    expressions = Expressions(release.plan.workload)
    found = [_read_named(expressions, name, one) for name, one in named.items()]
    sums = _list_sums(found)
    covariance = compute_covariance(release, sums)
    estimates, stds = estimate_values(release, sums), np.sqrt(np.diag(covariance))
    gradient, values, k_sum = np.zeros((len(found), len(sums))), [], 0
    for k, (name, one) in enumerate(zip(named, found, strict=True)):
        if isinstance(one, Quotient):
            above = estimates[k_sum]
            below = Combination(float(estimates[k_sum + 1]), float(stds[k_sum + 1]))
            try:
                _check_denominator(below)
            except WorkloadError as error:
                raise WorkloadError(f"{name!r}: {error}") from None
            values.append(above / below.value)
            gradient[k, k_sum : k_sum + 2] = 1 / below.value, -values[-1] / below.value
            k_sum += 2
        else:
            values.append(estimates[k_sum])
            gradient[k, k_sum] = 1.0
            k_sum += 1
    return Combinations(
        names=tuple(named),
        values=np.array(values),
        covariance=gradient @ covariance @ gradient.T,
        approximate=np.array([isinstance(one, Quotient) for one in found]),
    )


def _split_chunks(
    release: NoisyAnswers, combinations: Iterable[Terms | Quotient[Terms]]
) -> Iterator[list[Terms | Quotient[Terms]]]:
    """Split combinations into chunks whose estimates fit into memory together."""
    chunk: list[Terms | Quotient[Terms]] = []
    size = 0
    for one in combinations:
        chunk.append(one)
        size += sum(count_coefficients(release, terms) for terms in _list_sums([one]))
        if len(chunk) >= _MOST_TOGETHER or size >= _MOST_COEFFICIENTS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _list_sums(combinations: Iterable[Terms | Quotient[Terms]]) -> list[Terms]:
    """List the sums that combinations are made of: two of a ratio, one of another combination."""
    sums: list[Terms] = []
    for one in combinations:
        sums += [one.numerator, one.denominator] if isinstance(one, Quotient) else [one]
    return sums


def _estimate_sums(release: NoisyAnswers, sums: Sequence[Terms]) -> list[Combination]:
    """Estimate sums of answers."""
    values, stds = estimate_values(release, sums), estimate_stds(release, sums)
    return list(map(Combination, values.tolist(), stds.tolist()))


def _name_expressions(expressions: Sequence[str]) -> dict[str, str]:
    """Name each expression by itself."""
    named: dict[str, str] = {}
    for one in expressions:
        if not isinstance(one, str):
            raise WorkloadError(f"{one!r} has no name; give a mapping, or a list of expressions")
        if one in named:
            raise WorkloadError(f"{one!r} is listed twice; give each expression once")
        named[one] = one
    return named


def _read_named(
    expressions: Expressions, name: str, asked: CombinationLike
) -> Terms | Quotient[Terms]:
    """Read a combination, with errors that name it."""
    try:
        return read_combination(expressions, asked)
    except WorkloadError as error:
        is_named = isinstance(asked, str) and name == asked  # the message has the expression
        raise WorkloadError(str(error) if is_named else f"{name!r}: {error}") from None


def _is_near_zero(below: Combination) -> bool:
    """Return whether a denominator is too near to zero for a ratio."""
    return below.value == 0 or abs(below.value) < LEAST_STDS * below.std


def _check_denominator(below: Combination) -> None:
    """Raise WorkloadError if a denominator is too near to zero for a ratio."""
    if _is_near_zero(below):
        raise WorkloadError(
            f"the denominator is estimated as {below.value:.4g} with std {below.std:.4g}, less "
            f"than {LEAST_STDS:g} stds from zero: its ratio has no meaningful std; ask for "
            "numerator and denominator apart"
        )
