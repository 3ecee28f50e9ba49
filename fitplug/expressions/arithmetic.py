"""Arithmetic of an expression: numbers, sums of counts, ratios, and sums of several ratios."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeAlias, TypeVar

import numpy as np

from fitplug.errors import WorkloadError
from fitplug.expressions.coefficients import Box, Coefficients
from fitplug.expressions.tokens import Token
from fitplug.numeric import FloatArray

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Quotient(Generic[T]):
    """A sum of counts divided by another.

    Attributes:
        numerator: The terms of the numerator.
        denominator: The terms of the denominator.
    """

    numerator: T
    denominator: T


@dataclass(frozen=True)
class Summand:
    """A number times sums of counts, divided by sums of counts.

    Attributes:
        weight: The number.
        above: The positions, in the formula's `sums`, of the sums that multiply it.
        below: The positions of the sums that divide it.
    """

    weight: float
    above: tuple[int, ...] = ()
    below: tuple[int, ...] = ()

    def move(self, by: int) -> Summand:
        """Return the same summand for sums that are `by` positions later."""
        above, below = (tuple(k + by for k in positions) for positions in (self.above, self.below))
        return Summand(self.weight, above, below)

    def multiply(self, other: Summand) -> Summand:
        """Multiply by another summand of the same formula."""
        weight = self.weight * other.weight
        return Summand(weight, self.above + other.above, self.below + other.below)

    def invert(self) -> Summand:
        """Return its reciprocal."""
        return Summand(1 / self.weight, self.below, self.above)


@dataclass(frozen=True, eq=False)
class Formula(Generic[T]):
    """A sum of products and ratios of sums of counts, such as a difference of two ratios.

    Attributes:
        sums: The terms of each sum that it uses (k,).
        summands: The summands.
    """

    sums: tuple[T, ...]
    summands: tuple[Summand, ...]

    @property
    def denominators(self) -> list[int]:
        """The positions of the sums in denominators."""
        return sorted({k for summand in self.summands for k in summand.below})

    def evaluate(self, values: Sequence[float]) -> tuple[float, FloatArray]:
        """Compute the value and its first derivatives.

        Args:
            values: The values of the sums (k,); no denominator is zero.

        Returns:
            The value, and its derivative by each of the sums (k,).
        """
        value, gradient = 0.0, np.zeros(len(self.sums))
        for summand in self.summands:
            factors = [values[k] for k in summand.above] + [1 / values[k] for k in summand.below]
            value += summand.weight * math.prod(factors)
            for i, k in enumerate((*summand.above, *summand.below)):
                rest = summand.weight * math.prod(factors[:i] + factors[i + 1 :])
                gradient[k] += rest if i < len(summand.above) else -rest * factors[i] ** 2
        return value, gradient


Terms: TypeAlias = Mapping[str, Coefficients]
"""The nonzero coefficients of a sum, by group."""

UnaddedTerms: TypeAlias = dict[str, list[Box]]
"""The coefficients of a sum while it is parsed: boxes that are not added up yet, by group."""

Value: TypeAlias = float | UnaddedTerms | Quotient[UnaddedTerms] | Formula[UnaddedTerms]
"""A number, a sum of counts, a ratio of two sums, or a formula of several."""

_MOST_SUMMANDS = 1000
"""The largest number of summands of a formula; a product of formulas multiplies their numbers."""


def add(left: Value, right: Value, token: Token) -> Value:
    """Add two values of one kind; a number may be added to ratios.

    Raises:
        WorkloadError: The values cannot be added; the message names the column of the operator.
    """
    if isinstance(left, dict) and isinstance(right, dict):
        return _add_counts(left, right)
    if isinstance(left, float) and isinstance(right, float):
        return left + right
    for value, other in ((left, right), (right, left)):
        if isinstance(value, dict) and isinstance(other, float):
            raise WorkloadError(f"cannot add a number to counts at character {token.column}")
        if isinstance(value, dict) and isinstance(other, Quotient):
            raise WorkloadError(
                f"cannot add a ratio to counts at character {token.column}. Estimate the ratio "
                "and the counts separately."
            )
        if isinstance(value, Quotient) and isinstance(other, float):
            # a / b + c = (a + c b) / b, whose interval is exact too.
            above = _add_counts(value.numerator, _scale_counts(value.denominator, other))
            return Quotient(above, value.denominator)
    if isinstance(left, Quotient) and isinstance(right, Quotient):
        below = left.denominator
        if _count_the_same(below, right.denominator):
            return Quotient(_add_counts(left.numerator, right.numerator), below)
    a, b = _make_formula(left), _make_formula(right)
    moved = (summand.move(len(a.sums)) for summand in b.summands)
    return _check_size(Formula(a.sums + b.sums, (*a.summands, *moved)), token)


def multiply(left: Value, right: Value, token: Token) -> Value:
    """Multiply two values, of which at most one is a sum of counts.

    Raises:
        WorkloadError: Both are counts; the message names the column of the operator.
    """
    for factor, other in ((left, right), (right, left)):
        if isinstance(factor, float):
            return scale(other, factor)
    if isinstance(left, dict) and isinstance(right, dict):
        raise WorkloadError(
            f"cannot multiply counts by counts at character {token.column}. Estimate the two "
            "counts separately."
        )
    a, b = _make_formula(left), _make_formula(right)
    moved = [summand.move(len(a.sums)) for summand in b.summands]
    products = tuple(mine.multiply(theirs) for mine in a.summands for theirs in moved)
    return _check_size(Formula(a.sums + b.sums, products), token)


def divide(left: Value, right: Value, token: Token) -> Value:
    """Divide a value by a number, by counts or by a ratio.

    Raises:
        WorkloadError: The values cannot be divided; the message names the column of the operator.
    """
    if isinstance(right, float):
        if right == 0.0:
            raise WorkloadError(f"division by zero at character {token.column}")
        return scale(left, check_finite(1 / right, token))
    if isinstance(left, float) and isinstance(right, dict):
        raise WorkloadError(f"cannot divide a number by counts at character {token.column}")
    if isinstance(left, dict) and isinstance(right, dict):
        return Quotient(left, right)
    below = _make_formula(right)
    if len(below.summands) > 1:
        raise WorkloadError(
            f"cannot divide by a sum of ratios at character {token.column}. Estimate each ratio "
            "separately."
        )
    if below.summands[0].weight == 0.0:
        raise WorkloadError(f"division by zero at character {token.column}")
    return multiply(left, Formula(below.sums, (below.summands[0].invert(),)), token)


def scale(value: Value, factor: float) -> Value:
    """Multiply a value by a factor."""
    if isinstance(value, float):
        return value * factor
    if isinstance(value, Quotient):
        return Quotient(_scale_counts(value.numerator, factor), value.denominator)
    if isinstance(value, Formula):
        weight = Summand(factor)
        return Formula(value.sums, tuple(summand.multiply(weight) for summand in value.summands))
    return _scale_counts(value, factor)


def _make_formula(value: Value) -> Formula[UnaddedTerms]:
    """Write a value as a formula."""
    if isinstance(value, Formula):
        return value
    if isinstance(value, Quotient):
        return Formula((value.numerator, value.denominator), (Summand(1.0, (0,), (1,)),))
    if isinstance(value, float):
        return Formula((), (Summand(value),))
    return Formula((value,), (Summand(1.0, (0,)),))


def _check_size(formula: Formula[UnaddedTerms], token: Token) -> Formula[UnaddedTerms]:
    """Check that a formula is not too long, and return it.

    Raises:
        WorkloadError: It has too many summands; the message names the column.
    """
    if len(formula.summands) > _MOST_SUMMANDS:
        raise WorkloadError(
            f"more than {_MOST_SUMMANDS:,} products of ratios at character {token.column}. "
            "Estimate each product separately."
        )
    return formula


def _add_counts(left: UnaddedTerms, right: UnaddedTerms) -> UnaddedTerms:
    """Add two sums of counts; `left` is changed, so that long sums take linear time."""
    for name, summands in right.items():
        left.setdefault(name, []).extend(summands)
    return left


def _count_the_same(left: UnaddedTerms, right: UnaddedTerms) -> bool:
    """Return whether two sums of counts were written with the same selections."""
    first, second = (
        {name: [(box.weight, box.selection) for box in boxes] for name, boxes in counts.items()}
        for counts in (left, right)
    )
    return first == second


def _scale_counts(counts: UnaddedTerms, factor: float) -> UnaddedTerms:
    """Multiply a sum of counts by a factor."""
    return {
        name: [replace(box, weight=factor * box.weight) for box in summands]
        for name, summands in counts.items()
    }


def check_finite(number: float, token: Token) -> float:
    """Check that a number is finite, and return it.

    Raises:
        WorkloadError: It is infinite; the message names its column.
    """
    if not math.isfinite(number):
        raise WorkloadError(f"the number at character {token.column} is too large")
    return number
