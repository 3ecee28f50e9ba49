"""Ratios of sums of counts, and formulas: sums of products and ratios of several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from fitplug.numeric import FloatArray

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


@dataclass(frozen=True)
class Summand:
    """A number times sums of counts, over sums of counts.

    Attributes:
        weight: The number.
        above: The positions of the sums that multiply it, among those of its formula.
        below: The positions of the sums that divide it.
    """

    weight: float
    above: tuple[int, ...] = ()
    below: tuple[int, ...] = ()

    def move(self, by: int) -> Summand:
        """Return the same of sums that stand so many positions later."""
        above, below = (tuple(k + by for k in own) for own in (self.above, self.below))
        return Summand(self.weight, above, below)

    def multiply(self, other: Summand) -> Summand:
        """Multiply by another of the same formula."""
        weight = self.weight * other.weight
        return Summand(weight, self.above + other.above, self.below + other.below)

    def invert(self) -> Summand:
        """Divide one by it."""
        return Summand(1 / self.weight, self.below, self.above)


@dataclass(frozen=True, eq=False)
class Formula(Generic[T]):
    """A sum of products and ratios of sums of counts, such as a difference of two ratios.

    Attributes:
        sums: The terms of each sum that it uses (k,).
        summands: What is added.
    """

    sums: tuple[T, ...]
    summands: tuple[Summand, ...]

    @property
    def denominators(self) -> list[int]:
        """The positions of the sums that something is divided by."""
        return sorted({k for one in self.summands for k in one.below})

    def evaluate(self, values: Sequence[float]) -> tuple[float, FloatArray]:
        """Compute the value and its first derivatives.

        Args:
            values: The values of the sums (k,), of which no denominator is zero.

        Returns:
            The value, and its derivative by each of the sums (k,).
        """
        value, gradient = 0.0, np.zeros(len(self.sums))
        for one in self.summands:
            factors = [values[k] for k in one.above] + [1 / values[k] for k in one.below]
            value += one.weight * math.prod(factors)
            for i, k in enumerate((*one.above, *one.below)):
                rest = one.weight * math.prod(factors[:i] + factors[i + 1 :])
                gradient[k] += rest if i < len(one.above) else -rest * factors[i] ** 2
        return value, gradient
