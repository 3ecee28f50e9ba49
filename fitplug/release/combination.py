"""Combinations: sums, differences and ratios of released answers, with their covariance.

A linear combination is exact: its std is that of the full covariance, sigma^2 R R'. The std and
the intervals of a ratio are those of the delta method, its first-order expansion at the estimates,
and are marked as approximate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fitplug.errors import WorkloadError
from fitplug.expressions import Expressions, Quotient, Terms, expand_terms
from fitplug.mechanism import combined_covariance
from fitplug.numeric import BoolArray, FloatArray
from fitplug.release.linear_combinations import (
    Asked,
    count_coefficients,
    estimate_stds,
    estimate_values,
    read_combination,
    subtract,
)
from fitplug.release.noisy_answers import NoisyAnswers
from fitplug.workload import DEFAULT_CONFIDENCE, check_confidence, quantile

LEAST_STDS = 3.0
"""How many of its stds the denominator of a ratio must be away from zero: nearer, the expansion of
the delta method says nothing.
"""

_AT_ONCE = 4096
"""Combinations that are estimated together, at most."""

_MOST_TOGETHER = 2**22
"""Coefficients that these have, at most, of all answers."""


class Combination(NamedTuple):
    """A linear combination of released answers: its value and its standard deviation."""

    value: float
    std: float

    @property
    def approximate(self) -> bool:
        """False: the std is exact."""
        return False

    def moe(self, confidence: float = DEFAULT_CONFIDENCE) -> float:
        """Margin of error: half the width of `interval`. Raises WorkloadError."""
        return _moe(self.std, confidence)

    def interval(self, confidence: float = DEFAULT_CONFIDENCE) -> tuple[float, float]:
        """Lower and upper end: covers the exact answer, of the records that `Release.population`
        names, with this probability.
        """
        moe = self.moe(confidence)
        return self.value - moe, self.value + moe


@dataclass(frozen=True)
class Ratio:
    """A ratio of two combinations; std by the delta method, so intervals are approximate.

    Value and std are nan if the denominator is too near to zero for them to mean anything.
    """

    value: float
    std: float
    numerator: Combination
    denominator: Combination
    approximate: ClassVar[bool] = True

    def moe(self, confidence: float = DEFAULT_CONFIDENCE) -> float:
        """Margin of error: half the width of `interval`. Raises WorkloadError."""
        return _moe(self.std, confidence)

    def interval(self, confidence: float = DEFAULT_CONFIDENCE) -> tuple[float, float]:
        """Lower and upper end: covers the exact ratio with about this probability."""
        moe = self.moe(confidence)
        return self.value - moe, self.value + moe


@dataclass(frozen=True, eq=False)
class Combinations:
    """Several combinations and their joint covariance.

    names (k,). values (k,). covariance (k, k), in squares of the values' units. approximate (k,):
    which are ratios, whose rows and columns of the covariance are those of the delta method.
    """

    names: tuple[str, ...]
    values: FloatArray
    covariance: FloatArray
    approximate: BoolArray

    @cached_property
    def stds(self) -> FloatArray:
        """Standard deviations (k,)."""
        # Where noise cancels, as in a / a, rounding may leave a little less than none.
        return np.asarray(np.sqrt(np.maximum(np.diag(self.covariance), 0.0)))

    def moe(
        self, confidence: float = DEFAULT_CONFIDENCE, *, simultaneous: bool = False
    ) -> FloatArray:
        """Margins of error (k,); see `interval`. Raises WorkloadError."""
        check_confidence(confidence)
        return quantile(confidence, len(self.names) if simultaneous else 1) * self.stds

    def interval(
        self, confidence: float = DEFAULT_CONFIDENCE, *, simultaneous: bool = False
    ) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends (k,): each covers its exact answer with this probability, or with
        simultaneous=True all of them together with at least that, whatever their covariance.
        """
        moe = self.moe(confidence, simultaneous=simultaneous)
        return self.values - moe, self.values + moe


def combine(release: NoisyAnswers, asked: Asked) -> Combination | Ratio:
    """One combination: see `Release.combine`."""
    (found,) = combine_each(release, [asked])
    if isinstance(found, Ratio):
        _check_denominator(found.denominator)
    return found


def combine_each(release: NoisyAnswers, asked: Iterable[Asked]) -> Iterator[Combination | Ratio]:
    """See `Release.combine_each`."""
    expressions = Expressions(release.plan.workload)
    return estimate_each(release, (read_combination(expressions, one) for one in asked))


def estimate_each(
    release: NoisyAnswers, asked: Iterable[Terms | Quotient[Terms]]
) -> Iterator[Combination | Ratio]:
    """What terms come to, in their order; see `Release.combine_each`."""
    for chunk in _chunks(release, asked):
        sums = iter(_combinations(release, _flat(chunk)))
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


def _chunks(
    release: NoisyAnswers, asked: Iterable[Terms | Quotient[Terms]]
) -> Iterator[list[Terms | Quotient[Terms]]]:
    chunk: list[Terms | Quotient[Terms]] = []
    size = 0
    for one in asked:
        chunk.append(one)
        size += sum(count_coefficients(release, terms) for terms in _flat([one]))
        if len(chunk) >= _AT_ONCE or size >= _MOST_TOGETHER:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _flat(asked: Iterable[Terms | Quotient[Terms]]) -> list[Terms]:
    found: list[Terms] = []
    for one in asked:
        found += [one.numerator, one.denominator] if isinstance(one, Quotient) else [one]
    return found


def _combinations(release: NoisyAnswers, several: Sequence[Terms]) -> list[Combination]:
    values, stds = estimate_values(release, several), estimate_stds(release, several)
    return list(map(Combination, values.tolist(), stds.tolist()))


def combine_all(release: NoisyAnswers, asked: Mapping[str, Asked] | Sequence[str]) -> Combinations:
    """Several combinations: see `Release.combine_all`."""
    if isinstance(asked, str) or not isinstance(asked, (Mapping, Sequence)) or not asked:
        raise WorkloadError("combine_all needs a mapping of names to combinations, or a list")
    named: Mapping[str, Any] = asked if isinstance(asked, Mapping) else _listed(asked)
    expressions = Expressions(release.plan.workload)
    found = [_named(expressions, name, one) for name, one in named.items()]
    several = _flat(found)
    noise, workload = release.plan.noise_std * release.noise_scale, release.plan.workload
    weights = [expand_terms(workload, terms) for terms in several]
    covariance = noise**2 * combined_covariance(release.plan.strategy, weights)
    sums, spread = estimate_values(release, several), np.sqrt(np.diag(covariance))
    gradient, values, at = np.zeros((len(found), len(several))), [], 0
    for k, (name, one) in enumerate(zip(named, found, strict=True)):
        if isinstance(one, Quotient):
            above, below = sums[at], Combination(float(sums[at + 1]), float(spread[at + 1]))
            try:
                _check_denominator(below)
            except WorkloadError as error:
                raise WorkloadError(f"{name!r}: {error}") from None
            values.append(above / below.value)
            gradient[k, at : at + 2] = 1 / below.value, -values[-1] / below.value
            at += 2
        else:
            values.append(sums[at])
            gradient[k, at] = 1.0
            at += 1
    return Combinations(
        names=tuple(named),
        values=np.array(values),
        covariance=gradient @ covariance @ gradient.T,
        approximate=np.array([isinstance(one, Quotient) for one in found]),
    )


def _listed(expressions: Sequence[str]) -> dict[str, str]:
    """Expressions as their own names."""
    named: dict[str, str] = {}
    for one in expressions:
        if not isinstance(one, str):
            raise WorkloadError(f"{one!r} has no name; give a mapping, or a list of expressions")
        if one in named:
            raise WorkloadError(f"{one!r} is listed twice; give each expression once")
        named[one] = one
    return named


def _named(expressions: Expressions, name: str, asked: Asked) -> Terms | Quotient[Terms]:
    try:
        return read_combination(expressions, asked)
    except WorkloadError as error:
        told = isinstance(asked, str) and name == asked  # the error names the expression already
        raise WorkloadError(str(error) if told else f"{name!r}: {error}") from None


def _is_near_zero(below: Combination) -> bool:
    return below.value == 0 or abs(below.value) < LEAST_STDS * below.std


def _check_denominator(below: Combination) -> None:
    if _is_near_zero(below):
        raise WorkloadError(
            f"the denominator is estimated as {below.value:.4g} with std {below.std:.4g}, less "
            f"than {LEAST_STDS:g} stds from zero: its ratio has no meaningful std; ask for "
            "numerator and denominator apart"
        )


def _moe(std: float, confidence: float) -> float:
    check_confidence(confidence)
    return quantile(confidence) * std
