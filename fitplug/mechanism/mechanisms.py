"""Mechanisms: the parts that a plan runs, described for outside review and other accountants."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from fitplug.numeric import ceil_float, ceil_sqrt


@dataclass(frozen=True)
class Mechanism:
    """Integer answers of one kind with noise of one size.

    Attributes:
        name: The attributes whose interaction is measured, or "all answers".
        kind: The distribution of the noise.
        sensitivity: L2, to one record added or removed, rounded up.
        sigma: Of the discrete Gaussian N_Z(0, sigma^2) that each answer gets independently.
        dimension: The number of answers.
    """

    name: str
    kind: Literal["discrete Gaussian"]
    sensitivity: float
    sigma: float
    dimension: int

    @property
    def rho(self) -> float:
        """Its own rho of zCDP, rounded up."""
        return ceil_float((Fraction(self.sensitivity) / Fraction(self.sigma)) ** 2 / 2)


def make_mechanism(name: str, square: int, sigma: float, dimension: int) -> Mechanism:
    """Make a mechanism from its exact squared sensitivity."""
    return Mechanism(name, "discrete Gaussian", ceil_sqrt(Fraction(square)), sigma, dimension)
