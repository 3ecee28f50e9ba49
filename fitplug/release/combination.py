"""Combinations: sums, differences and ratios of released answers, with their covariance.

A linear combination has an exact standard deviation, that of the full covariance sigma^2 R R'. The
standard deviation of a ratio, or of a formula of several, is that of the delta method: the std of
its first-order expansion at the estimates, which is a linear combination.
docs/theory/post-processing.md has both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fitplug.errors import WorkloadError
from fitplug.expressions import Expression, Expressions, Formula, Quotient, Terms, list_sums
from fitplug.numeric import FloatArray
from fitplug.release.combined_numbers import (
    Approximation,
    Combination,
    Combinations,
    CombinedNumber,
    Ratio,
)
from fitplug.release.linear_combinations import (
    CombinationLike,
    add_terms,
    compute_covariance,
    count_coefficients,
    estimate_stds,
    estimate_values,
    read_combination,
)
from fitplug.release.noisy_answers import NoisyAnswers

LEAST_STDS = 3.0
"""The least number of standard deviations between zero and the denominator of a ratio. If it is
nearer to zero, the expansion of the delta method says nothing.
"""

_MOST_TOGETHER = 4096
"""The largest number of combinations that are estimated together."""

_MOST_COEFFICIENTS = 2**22
"""The largest number of coefficients that these have together."""

_LEAST_SHARE = 1e-4
"""The covariance of a ratio follows from its std if the denominator has at least this part in it.
With less, it would have few digits."""


def combine(release: NoisyAnswers, asked: CombinationLike) -> CombinedNumber:
    """Estimate one combination: see `Release.combine`."""
    (found,) = combine_each(release, [asked])
    for below in _list_denominators(found):
        _check_denominator(below)
    return found


def combine_each(
    release: NoisyAnswers, asked: Iterable[CombinationLike]
) -> Iterator[CombinedNumber]:
    """Estimate combinations one after another: see `Release.combine_each`."""
    expressions = Expressions(release.plan.workload)
    return estimate_each(release, (read_combination(expressions, one) for one in asked))


def estimate_each(
    release: NoisyAnswers, combinations: Iterable[Expression]
) -> Iterator[CombinedNumber]:
    """Estimate combinations that were read already, in their order: see `Release.combine_each`."""
    for chunk in _split_chunks(release, combinations):
        sums = iter(_estimate_sums(release, [own for one in chunk for own in list_sums(one)]))
        parts = [[next(sums) for _ in list_sums(one)] for one in chunk]
        places: list[int] = []
        values: list[float] = []
        errors: list[Terms] = []
        for k, (one, own) in enumerate(zip(chunk, parts, strict=True)):
            denominators = [own[j] for j in _find_denominators(one)]
            if _is_formula(one) and not any(map(_is_near_zero, denominators)):
                value, gradient = _expand(one, [part.value for part in own])
                places.append(k)
                values.append(value)
                errors.append(add_terms(list_sums(one), gradient.tolist()))
        stds = estimate_stds(release, errors).tolist()
        found = dict(zip(places, zip(values, stds, strict=True), strict=True))
        none = math.nan, math.nan
        numbers = [found.get(k, none) for k in range(len(chunk))]
        covariances = _estimate_covariances(release, chunk, parts, numbers)
        for k, (one, own) in enumerate(zip(chunk, parts, strict=True)):
            if isinstance(one, Quotient):
                yield Ratio(*numbers[k], own[0], own[1], covariances[k])
            elif isinstance(one, Formula):
                yield Approximation(*numbers[k], tuple(own[j] for j in one.denominators))
            else:
                yield own[0]


def combine_all(
    release: NoisyAnswers, asked: Mapping[str, CombinationLike] | Sequence[str]
) -> Combinations:
    """Estimate several combinations with their covariance: see `Release.combine_all`."""
    if isinstance(asked, str) or not isinstance(asked, (Mapping, Sequence)) or not asked:
        raise WorkloadError("combine_all needs a mapping of names to combinations, or a list")
    named: Mapping[str, Any] = asked if isinstance(asked, Mapping) else _name_expressions(asked)
    expressions = Expressions(release.plan.workload)
    found = [_read_named(expressions, name, one) for name, one in named.items()]
    sums = [own for one in found for own in list_sums(one)]
    covariance = compute_covariance(release, sums)
    stds = np.sqrt(np.diag(covariance)).tolist()
    estimates = list(map(Combination, estimate_values(release, sums).tolist(), stds))
    gradient, values, first = np.zeros((len(found), len(sums))), [], 0
    for k, (name, one) in enumerate(zip(named, found, strict=True)):
        own = slice(first, first + len(list_sums(one)))
        try:
            for j in _find_denominators(one):
                _check_denominator(estimates[own][j])
        except WorkloadError as error:
            raise WorkloadError(f"{name!r}: {error}") from None
        value, gradient[k, own] = _expand(one, [part.value for part in estimates[own]])
        values.append(value)
        first = own.stop
    joint = gradient @ covariance @ gradient.T
    each: list[CombinedNumber] = []
    first = 0
    for one, value, variance in zip(found, values, np.diag(joint).tolist(), strict=True):
        # Where noise cancels, as in a / a, rounding may leave a variance slightly below zero.
        std, parts = math.sqrt(max(variance, 0.0)), estimates[first : first + len(list_sums(one))]
        if isinstance(one, Quotient):
            between = float(covariance[first, first + 1])
            each.append(Ratio(value, std, parts[0], parts[1], between))
        elif isinstance(one, Formula):
            each.append(Approximation(value, std, tuple(parts[j] for j in one.denominators)))
        else:
            each.append(Combination(value, std))
        first += len(parts)
    return Combinations(
        names=tuple(named),
        values=np.array(values),
        covariance=joint,
        approximate=np.array([one.approximate for one in each]),
        each=tuple(each),
    )


def _is_formula(one: Expression) -> bool:
    """Return whether an expression is a ratio or a formula, and no sum."""
    return isinstance(one, (Quotient, Formula))


def _find_denominators(one: Expression) -> list[int]:
    """Find which sums of an expression something is divided by."""
    if isinstance(one, Quotient):
        return [1]
    return one.denominators if isinstance(one, Formula) else []


def _expand(one: Expression, values: Sequence[float]) -> tuple[float, FloatArray]:
    """Compute the value of an expression at those of its sums (k,), and its derivatives (k,)."""
    if isinstance(one, Quotient):
        # The first-order error of a / b is (error of a - value * error of b) / b.
        above, below = values
        ratio = above / below
        return ratio, np.array([1 / below, -ratio / below])
    if isinstance(one, Formula):
        return one.evaluate(values)
    return values[0], np.ones(1)


def _estimate_covariances(
    release: NoisyAnswers,
    chunk: Sequence[Expression],
    parts: Sequence[Sequence[Combination]],
    numbers: Sequence[tuple[float, float]],
) -> list[float]:
    """Compute the covariances of the numerators and denominators of ratios.

    Args:
        release: The release.
        chunk: Expressions (k,).
        parts: The sums of each.
        numbers: The value and the std of each, or nan.

    Returns:
        The covariance for each ratio, and 0 for others.
    """
    found = [0.0] * len(chunk)
    factors: dict[int, float] = {}
    for k, (one, own) in enumerate(zip(chunk, parts, strict=True)):
        if not isinstance(one, Quotient) or 0.0 in (own[0].std, own[1].std):
            continue
        above, below, (ratio, std) = own[0], own[1], numbers[k]
        if abs(ratio) * below.std >= _LEAST_SHARE * above.std:
            # The variance of a - r b is that of a, less 2 r times the covariance, plus r^2 times
            # that of b; and the std of the ratio is that of a - r b over b.
            square = (std * below.value) ** 2
            found[k] = (above.std**2 + (ratio * below.std) ** 2 - square) / (2 * ratio)
        else:
            factors[k] = above.std / below.std
    errors = [add_terms(list_sums(chunk[k]), [1.0, -factor]) for k, factor in factors.items()]
    stds = estimate_stds(release, errors).tolist()
    for (k, factor), std in zip(factors.items(), stds, strict=True):
        found[k] = (2 * parts[k][0].std ** 2 - std**2) / (2 * factor)
    # Whatever rounding did, no covariance is above the product of the stds.
    most = [own[0].std * own[-1].std for own in parts]
    return [min(max(one, -largest), largest) for one, largest in zip(found, most, strict=True)]


def _list_denominators(found: CombinedNumber) -> tuple[Combination, ...]:
    """List the sums that an estimate was divided by."""
    if isinstance(found, Ratio):
        return (found.denominator,)
    return found.denominators if isinstance(found, Approximation) else ()


def _split_chunks(
    release: NoisyAnswers, combinations: Iterable[Expression]
) -> Iterator[list[Expression]]:
    """Split combinations into chunks whose estimates fit into memory together."""
    chunk: list[Expression] = []
    size = 0
    for one in combinations:
        chunk.append(one)
        size += sum(count_coefficients(release, terms) for terms in list_sums(one))
        if len(chunk) >= _MOST_TOGETHER or size >= _MOST_COEFFICIENTS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


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


def _read_named(expressions: Expressions, name: str, asked: CombinationLike) -> Expression:
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
