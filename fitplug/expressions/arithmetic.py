"""Arithmetic of numbers, sums of counts and ratios, inside an expression."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from fitplug.errors import WorkloadError
from fitplug.expressions.coefficients import Box, Coefficients
from fitplug.expressions.tokens import Token

Terms: TypeAlias = Mapping[str, Coefficients]
"""The coefficients of a sum: by group, those that are not zero."""

UnaddedTerms: TypeAlias = dict[str, list[Box]]
"""The coefficients of a sum that is being read: by group, those that are still to be added."""


T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Quotient(Generic[T]):
    """A sum of counts over another.

    Attributes:
        numerator: The terms above.
        denominator: The terms below.
    """

    numerator: T
    denominator: T


Value: TypeAlias = float | UnaddedTerms | Quotient[UnaddedTerms]
"""A number, a sum of counts, or a ratio of two sums."""


def add(left: Value, right: Value, token: Token) -> Value:
    """Add two sums of counts, or two numbers; `left` may be changed.

    Raises:
        WorkloadError: The values cannot be added; the message names the column of the operator.
    """
    if isinstance(left, Quotient) or isinstance(right, Quotient):
        raise WorkloadError(
            f"a ratio cannot be added to anything at column {token.column}; ask for each apart"
        )
    if isinstance(left, float) and isinstance(right, float):
        return left + right
    if isinstance(left, float) or isinstance(right, float):
        raise WorkloadError(
            f"a number cannot be added to counts at column {token.column}; multiply by it"
        )
    for name, summands in right.items():
        left.setdefault(name, []).extend(summands)
    return left


def multiply(left: Value, right: Value, token: Token) -> Value:
    """Multiply two values, of which one is a number.

    Raises:
        WorkloadError: Neither is a number; the message names the column of the operator.
    """
    for factor, other in ((left, right), (right, left)):
        if isinstance(factor, float):
            return scale(other, factor)
    raise WorkloadError(f"counts cannot be multiplied by counts at column {token.column}")


def divide(left: Value, right: Value, token: Token) -> Value:
    """Divide a value by a number, or one sum of counts by another.

    Raises:
        WorkloadError: The values cannot be divided; the message names the column of the operator.
    """
    if isinstance(right, float):
        if right == 0.0:
            raise WorkloadError(f"a division by zero at column {token.column}")
        return scale(left, check_finite(1 / right, token))
    if isinstance(left, dict) and isinstance(right, dict):
        return Quotient(left, right)
    raise WorkloadError(f"only counts can be divided by counts, and once, at column {token.column}")


def scale(found: Value, factor: float) -> Value:
    """Multiply a number, a sum or a quotient by a factor."""
    if isinstance(found, float):
        return found * factor
    if isinstance(found, Quotient):
        return Quotient(_scale_counts(found.numerator, factor), found.denominator)
    return _scale_counts(found, factor)


def _scale_counts(counts: UnaddedTerms, factor: float) -> UnaddedTerms:
    """Multiply a sum of counts by a factor."""
    return {
        name: [Box(one.factors, factor * one.weight) for one in summands]
        for name, summands in counts.items()
    }


def check_finite(number: float, token: Token) -> float:
    """Check that a number is finite, and return it.

    Raises:
        WorkloadError: It is infinite; the message names its column.
    """
    if not math.isfinite(number):
        raise WorkloadError(f"the number at column {token.column} is too large")
    return number
