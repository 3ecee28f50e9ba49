"""Combinations: sums, differences and ratios of released answers, with their covariance.

A linear combination is exact: its std is that of the full covariance, sigma^2 R R'. The std and
the intervals of a ratio are those of the delta method, its first-order expansion at the estimates,
and are marked as approximate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.errors import WorkloadError, nearest
from fitplug.expressions import Linear, Quotient, parse
from fitplug.reconstruction import combined_covariance, combined_norm
from fitplug.targets import DEFAULT_CONFIDENCE, check_confidence, quantile
from fitplug.workload import Workload

if TYPE_CHECKING:
    from fitplug.release import Release

Array: TypeAlias = npt.NDArray[np.float64]
Asked: TypeAlias = str | Mapping[str, npt.ArrayLike]

LEAST_STDS = 3.0
"""How many of its stds the denominator of a ratio must be away from zero: nearer, the expansion of
the delta method says nothing.
"""


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
    """A ratio of two combinations; std by the delta method, so intervals are approximate."""

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
    values: Array
    covariance: Array
    approximate: npt.NDArray[np.bool_]

    @cached_property
    def stds(self) -> Array:
        """Standard deviations (k,)."""
        # Where noise cancels, as in a / a, rounding may leave a little less than none.
        return np.asarray(np.sqrt(np.maximum(np.diag(self.covariance), 0.0)))

    def moe(self, confidence: float = DEFAULT_CONFIDENCE, *, simultaneous: bool = False) -> Array:
        """Margins of error (k,); see `interval`. Raises WorkloadError."""
        check_confidence(confidence)
        return quantile(confidence, len(self.names) if simultaneous else 1) * self.stds

    def interval(
        self, confidence: float = DEFAULT_CONFIDENCE, *, simultaneous: bool = False
    ) -> tuple[Array, Array]:
        """Lower and upper ends (k,): each covers its exact answer with this probability, or with
        simultaneous=True all of them together with at least that, whatever their covariance.
        """
        moe = self.moe(confidence, simultaneous=simultaneous)
        return self.values - moe, self.values + moe


def combine(release: Release, asked: Asked) -> Combination | Ratio:
    """One combination: see `Release.combine`."""
    found = _read(release.plan.workload, asked)
    if not isinstance(found, Quotient):
        return _combination(release, found)
    above, below = (_combination(release, part) for part in (found.numerator, found.denominator))
    _check_denominator(below)
    value = above.value / below.value
    # The first-order error of a / b is (error of a - value * error of b) / b.
    std = _std(release, _minus(found.numerator, value, found.denominator)) / abs(below.value)
    return Ratio(value, std, above, below)


def combine_all(release: Release, asked: Mapping[str, Asked] | Sequence[str]) -> Combinations:
    """Several combinations: see `Release.combine_all`."""
    if isinstance(asked, str) or not isinstance(asked, (Mapping, Sequence)) or not asked:
        raise WorkloadError("combine_all needs a mapping of names to combinations, or a list")
    named: Mapping[str, Any] = asked if isinstance(asked, Mapping) else _listed(asked)
    found = [_named(release.plan.workload, name, one) for name, one in named.items()]
    linear: list[Linear] = []
    for one in found:
        linear += [one.numerator, one.denominator] if isinstance(one, Quotient) else [one]
    noise = release.plan.noise_std * release.noise_scale
    covariance = noise**2 * combined_covariance(release.plan.strategy, linear)
    sums, spread = [_value(release, part) for part in linear], np.sqrt(np.diag(covariance))
    gradient, values, at = np.zeros((len(found), len(linear))), [], 0
    for k, (name, one) in enumerate(zip(named, found, strict=True)):
        if isinstance(one, Quotient):
            above, below = sums[at], Combination(sums[at + 1], float(spread[at + 1]))
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


def _named(workload: Workload, name: str, asked: Asked) -> Linear | Quotient:
    try:
        return _read(workload, asked)
    except WorkloadError as error:
        told = isinstance(asked, str) and name == asked  # the error names the expression already
        raise WorkloadError(str(error) if told else f"{name!r}: {error}") from None


def _read(workload: Workload, asked: Asked) -> Linear | Quotient:
    if isinstance(asked, str):
        found = parse(workload, asked)
        parts = (found.numerator, found.denominator) if isinstance(found, Quotient) else (found,)
        for part in parts:
            _checked(workload, part)
        return found
    if not isinstance(asked, Mapping):
        raise WorkloadError(
            f"{asked!r} is no combination; give an expression or coefficients by group"
        )
    return _checked(workload, asked)


def _checked(workload: Workload, coefficients: Mapping[str, npt.ArrayLike]) -> Linear:
    """Coefficients of the groups' shapes. Raises WorkloadError."""
    given: dict[str, Array] = {}
    for name, asked in coefficients.items():
        if name not in workload.positions:
            raise WorkloadError(f"no query group {name!r}; {nearest(name, workload.names)}")
        shape = workload[name].shape
        array = np.asarray(asked, dtype=np.float64)
        try:
            given[name] = np.broadcast_to(array, shape)
        except ValueError:
            raise WorkloadError(
                f"coefficients of {name!r} have shape {array.shape}, the group's is {shape}"
            ) from None
        if not np.isfinite(array).all():
            raise WorkloadError(f"coefficients of {name!r} must be finite")
    return given


def _combination(release: Release, coefficients: Linear) -> Combination:
    return Combination(_value(release, coefficients), _std(release, coefficients))


def _value(release: Release, coefficients: Linear) -> float:
    return sum(float((c * release.estimates[name]).sum()) for name, c in coefficients.items())


def _std(release: Release, coefficients: Linear) -> float:
    noise = release.plan.noise_std * release.noise_scale
    return noise * combined_norm(release.plan.strategy, coefficients)


def _minus(left: Linear, factor: float, right: Linear) -> Linear:
    """left - factor * right."""
    names = dict.fromkeys([*left, *right])
    return {name: left.get(name, 0.0) - factor * right.get(name, np.zeros(())) for name in names}


def _check_denominator(below: Combination) -> None:
    if below.value == 0 or abs(below.value) < LEAST_STDS * below.std:
        raise WorkloadError(
            f"the denominator is estimated as {below.value:.4g} with std {below.std:.4g}, less "
            f"than {LEAST_STDS:g} stds from zero: its ratio has no meaningful std; ask for "
            "numerator and denominator apart"
        )


def _moe(std: float, confidence: float) -> float:
    check_confidence(confidence)
    return quantile(confidence) * std
