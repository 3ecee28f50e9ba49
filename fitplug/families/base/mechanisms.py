"""Mechanisms: the parts of a plan's mechanism, as reviewers and other accountants need them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from fitplug.numeric import ceil_float, ceil_sqrt


@dataclass(frozen=True)
class Mechanism:
    """One part of a plan's mechanism: integer answers that get noise of one size.

    Attributes:
        name: The attributes whose interaction is measured, or "all answers".
        kind: The distribution of the noise.
        sensitivity: The L2 sensitivity in the plan's unit of privacy, rounded up.
        sigma: The parameter of the noise: each answer gets an independent draw of the discrete
            Gaussian N_Z(0, sigma^2).
        dimension: The number of answers.
    """

    name: str
    kind: Literal["discrete Gaussian"]
    sensitivity: float
    sigma: float
    dimension: int

    @property
    def rho(self) -> float:
        """The rho of zCDP of this part, rounded up."""
        return ceil_float((Fraction(self.sensitivity) / Fraction(self.sigma)) ** 2 / 2)

    def multiply_sensitivity(self, times: int) -> Mechanism:
        """Return the mechanism of answers that are so many times as large, beside equal noise."""
        return replace(self, sensitivity=ceil_float(Fraction(self.sensitivity) * times))


def make_mechanism(name: str, square: int, sigma: float, dimension: int) -> Mechanism:
    """Make a mechanism from its exact squared sensitivity."""
    return Mechanism(name, "discrete Gaussian", ceil_sqrt(Fraction(square)), sigma, dimension)
