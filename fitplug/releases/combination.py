"""Combinations: sums, differences and ratios of released answers, with their covariance.

A linear combination has an exact standard deviation, from the full covariance sigma^2 R R'. The
standard deviation of a ratio, or of a formula of several, comes from the delta method: the std of
its first-order expansion at the estimates, which is a linear combination.
docs/theory/post-processing.md has both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from fitplug.errors import WorkloadError
from fitplug.expressions import Expression, Expressions, Formula, Quotient, Terms, list_sums
from fitplug.numeric import FloatArray
from fitplug.releases.combined_numbers import (
    Approximation,
    Estimate,
    EstimatedNumber,
    Estimates,
    Ratio,
)
from fitplug.releases.linear_combinations import (
    CombinationLike,
    add_terms,
    compute_covariance,
    count_coefficients,
    estimate_stds,
    estimate_values,
    read_combination,
)
from fitplug.releases.noisy_answers import NoisyAnswers

LEAST_STDS = 3.0
"""The least number of standard deviations between zero and the denominator of a ratio. With a
denominator nearer to zero, the expansion of the delta method is meaningless.
"""

_MOST_TOGETHER = 4096
"""The largest number of combinations that are estimated together."""

_MOST_COEFFICIENTS = 2**22
"""The largest number of coefficients of all combinations that are estimated together."""

_LEAST_SHARE = 1e-4
"""The covariance of a ratio's two sums is computed from its std if the denominator contributes at
least this share to that std. With less, the covariance would have few correct digits."""


def estimate(release: NoisyAnswers, asked: CombinationLike) -> EstimatedNumber:
    """Estimate one combination: see `Release.estimate`."""
    (number,) = estimate_each(release, [asked])
    for denominator in _list_denominators(number):
        _check_denominator(denominator)
    return number


def estimate_each(
    release: NoisyAnswers, asked: Iterable[CombinationLike]
) -> Iterator[EstimatedNumber]:
    """Estimate combinations one after another: see `Release.estimate_each`."""
    reader = Expressions(release.plan.workload)
    return estimate_read(release, (read_combination(reader, text) for text in asked))


def estimate_read(
    release: NoisyAnswers, combinations: Iterable[Expression]
) -> Iterator[EstimatedNumber]:
    """Estimate combinations that are already parsed, in order: see `Release.estimate_each`."""
    for chunk in _split_chunks(release, combinations):
        estimates = iter(
            _estimate_sums(release, [terms for each in chunk for terms in list_sums(each)])
        )
        sums = [[next(estimates) for _ in list_sums(each)] for each in chunk]
        values: dict[int, float] = {}
        errors: list[Terms] = []
        for k, expression in enumerate(chunk):
            denominators = [sums[k][j] for j in _find_denominators(expression)]
            if _is_formula(expression) and not any(map(_is_near_zero, denominators)):
                values[k], gradient = _expand(expression, [number.value for number in sums[k]])
                errors.append(add_terms(list_sums(expression), gradient.tolist()))
        stds = dict(zip(values, estimate_stds(release, errors).tolist(), strict=True))
        numbers = [(values.get(k, math.nan), stds.get(k, math.nan)) for k in range(len(chunk))]
        covariances = _estimate_covariances(release, chunk, sums, numbers)
        for k, expression in enumerate(chunk):
            yield _make_number(expression, *numbers[k], sums[k], covariances[k])


def estimate_all(
    release: NoisyAnswers, asked: Mapping[str, CombinationLike] | Sequence[str]
) -> Estimates:
    """Estimate several combinations with their covariance: see `Release.estimate_all`."""
    if isinstance(asked, str) or not isinstance(asked, (Mapping, Sequence)) or not asked:
        raise WorkloadError("estimate_all needs a mapping or a list of expressions")
    named: Mapping[str, Any] = asked if isinstance(asked, Mapping) else _name_expressions(asked)
    reader = Expressions(release.plan.workload)
    expressions = [_read_named(reader, name, text) for name, text in named.items()]
    terms = [terms for each in expressions for terms in list_sums(each)]
    covariance = compute_covariance(release, terms)
    stds = np.sqrt(np.diag(covariance)).tolist()
    estimates = list(map(Estimate, estimate_values(release, terms).tolist(), stds))
    ends = np.cumsum([len(list_sums(each)) for each in expressions]).tolist()
    places = [slice(*pair) for pair in pairwise([0, *ends])]
    gradient, values = np.zeros((len(expressions), len(terms))), np.zeros(len(expressions))
    for k, (name, expression) in enumerate(zip(named, expressions, strict=True)):
        sums = estimates[places[k]]
        try:
            for j in _find_denominators(expression):
                _check_denominator(sums[j])
        except WorkloadError as error:
            raise WorkloadError(f"{name!r}: {error}") from None
        values[k], gradient[k, places[k]] = _expand(expression, [s.value for s in sums])
    joint = gradient @ covariance @ gradient.T
    # Where noise cancels, as in a / a, rounding may leave a variance slightly below zero.
    stds = np.sqrt(np.maximum(np.diag(joint), 0.0)).tolist()
    each_number = []
    for k, expression in enumerate(expressions):
        first = places[k].start
        between = float(covariance[first, min(first + 1, len(terms) - 1)])
        numbers = float(values[k]), stds[k]
        each_number.append(_make_number(expression, *numbers, estimates[places[k]], between))
    return Estimates(
        names=tuple(named),
        values=values,
        covariance=joint,
        approximate=np.array([number.approximate for number in each_number]),
        each=tuple(each_number),
    )


def _make_number(
    expression: Expression,
    value: float,
    std: float,
    sums: Sequence[Estimate],
    covariance: float,
) -> EstimatedNumber:
    """Make the estimate of an expression.

    Args:
        expression: The expression.
        value: Its value, or nan.
        std: Its std, or nan.
        sums: The estimates of its sums.
        covariance: The covariance of numerator and denominator, if it is a ratio.
    """
    if isinstance(expression, Quotient):
        return Ratio(value, std, sums[0], sums[1], covariance)
    if isinstance(expression, Formula):
        return Approximation(value, std, tuple(sums[j] for j in expression.denominators))
    return sums[0]


def _is_formula(expression: Expression) -> bool:
    """Return whether an expression is a ratio or a formula rather than a sum."""
    return isinstance(expression, (Quotient, Formula))


def _find_denominators(expression: Expression) -> list[int]:
    """Find the indices of those sums of an expression that are denominators."""
    if isinstance(expression, Quotient):
        return [1]
    return expression.denominators if isinstance(expression, Formula) else []


def _expand(expression: Expression, values: Sequence[float]) -> tuple[float, FloatArray]:
    """Compute an expression's value and derivatives (k,) at the values of its sums (k,)."""
    if isinstance(expression, Quotient):
        # The first-order error of a / b is (error of a - value * error of b) / b.
        above, below = values
        ratio = above / below
        return ratio, np.array([1 / below, -ratio / below])
    if isinstance(expression, Formula):
        return expression.evaluate(values)
    return values[0], np.ones(1)


def _estimate_covariances(
    release: NoisyAnswers,
    chunk: Sequence[Expression],
    sums: Sequence[Sequence[Estimate]],
    numbers: Sequence[tuple[float, float]],
) -> list[float]:
    """Compute the covariances of the numerators and denominators of ratios.

    Args:
        release: The release.
        chunk: Expressions (k,).
        sums: The estimates of the sums of each.
        numbers: The value and the std of each, or nan.

    Returns:
        The covariance for each ratio, and 0 for others.
    """
    covariances = [0.0] * len(chunk)
    factors: dict[int, float] = {}
    for k, expression in enumerate(chunk):
        if not isinstance(expression, Quotient) or 0.0 in (sums[k][0].std, sums[k][1].std):
            continue
        above, below, (ratio, std) = sums[k][0], sums[k][1], numbers[k]
        if abs(ratio) * below.std >= _LEAST_SHARE * above.std:
            # var(a - r b) = var(a) - 2 r cov(a, b) + r^2 var(b), and the ratio's std is
            # std(a - r b) / b.
            square = (std * below.value) ** 2
            covariances[k] = (above.std**2 + (ratio * below.std) ** 2 - square) / (2 * ratio)
        else:
            factors[k] = above.std / below.std
    errors = [add_terms(list_sums(chunk[k]), [1.0, -factor]) for k, factor in factors.items()]
    stds = estimate_stds(release, errors).tolist()
    for (k, factor), std in zip(factors.items(), stds, strict=True):
        covariances[k] = (2 * sums[k][0].std ** 2 - std**2) / (2 * factor)
    # Rounding must not lift a covariance above the product of the stds.
    largest = [numbers[0].std * numbers[-1].std for numbers in sums]
    return [min(max(c, -most), most) for c, most in zip(covariances, largest, strict=True)]


def _list_denominators(number: EstimatedNumber) -> tuple[Estimate, ...]:
    """List the sums that an estimate was divided by."""
    if isinstance(number, Ratio):
        return (number.denominator,)
    return number.denominators if isinstance(number, Approximation) else ()


def _split_chunks(
    release: NoisyAnswers, combinations: Iterable[Expression]
) -> Iterator[list[Expression]]:
    """Split combinations into chunks whose estimates fit into memory together."""
    chunk: list[Expression] = []
    size = 0
    for expression in combinations:
        chunk.append(expression)
        size += sum(count_coefficients(release, terms) for terms in list_sums(expression))
        if len(chunk) >= _MOST_TOGETHER or size >= _MOST_COEFFICIENTS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _estimate_sums(release: NoisyAnswers, sums: Sequence[Terms]) -> list[Estimate]:
    """Estimate sums of answers."""
    values, stds = estimate_values(release, sums), estimate_stds(release, sums)
    return list(map(Estimate, values.tolist(), stds.tolist()))


def _name_expressions(expressions: Sequence[str]) -> dict[str, str]:
    """Name each expression by its own text."""
    named: dict[str, str] = {}
    for text in expressions:
        if not isinstance(text, str):
            raise WorkloadError(f"expression {text!r} must be text")
        if text in named:
            raise WorkloadError(f"{text!r} is listed twice. Give each expression once.")
        named[text] = text
    return named


def _read_named(expressions: Expressions, name: str, asked: CombinationLike) -> Expression:
    """Read a combination, with errors that name it."""
    try:
        return read_combination(expressions, asked)
    except WorkloadError as error:
        is_named = isinstance(asked, str) and name == asked  # the message has the expression
        raise WorkloadError(str(error) if is_named else f"{name!r}: {error}") from None


def _is_near_zero(below: Estimate) -> bool:
    """Return whether a denominator is too near to zero for a ratio."""
    return below.value == 0 or abs(below.value) < LEAST_STDS * below.std


def _check_denominator(below: Estimate) -> None:
    """Raise WorkloadError if a denominator is too near to zero for a ratio."""
    if _is_near_zero(below):
        raise WorkloadError(
            f"the denominator is too close to zero: {below.value:.4g} with std {below.std:.4g}. "
            "Estimate the numerator and the denominator separately."
        )
