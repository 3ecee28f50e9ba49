"""Mechanisms: what a plan runs, taken apart for outside review and for other accountants."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from fitplug.mechanism.strategy import Strategy
from fitplug.numeric import ceil_float, ceil_sqrt


@dataclass(frozen=True)
class Mechanism:
    """Integer answers of one kind with noise of one size.

    name: the attributes whose interaction is measured, or "all answers".
    sensitivity: L2, to one record added or removed, rounded up.
    sigma: of the discrete Gaussian N_Z(0, sigma^2) that each answer gets independently.
    dimension: how many answers.
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


def list_mechanisms(strategy: Strategy, noise_std: float) -> tuple[Mechanism, ...]:
    """A plan's mechanisms, whose rho add up to the plan's but for rounding.

    One per block where all blocks have their largest sensitivity at the same cell. Elsewhere the
    sum over blocks would exceed what the answers cost together, so they are one mechanism.
    """
    structure = strategy.structure
    if not structure.scalar:
        square = strategy.sensitivity_squared
        return (_mechanism("all answers", square, noise_std, strategy.size),)
    found: dict[int, Mechanism] = {}
    for block_set in strategy.block_sets:
        squares = strategy.products(block_set.blocks, "column_square")
        rows = strategy.products(block_set.blocks, "rows")
        members = structure.members(block_set.blocks)
        for i, block in enumerate(block_set.blocks.tolist()):
            name = " x ".join(structure.split[a] for a in members[i]) or "total"
            square = int(squares[i]) * int(block_set.M[i, 0, 0]) ** 2
            found[block] = _mechanism(name, square, noise_std, int(rows[i]))
    return tuple(found[block] for block in sorted(found))


def _mechanism(name: str, square: int, sigma: float, dimension: int) -> Mechanism:
    return Mechanism(name, "discrete Gaussian", ceil_sqrt(Fraction(square)), sigma, dimension)
