"""Dual weights of persons with at most one record in each of n equal periods.

The r records of a person are equal but for the period, in a cell drawn by product weights. With s =
1 / z of block A without the period attribute m, and e = eta_m / ((n - 1) z) of block A + m, they
cost

    r (k s + (n - k) e) prod_{a in A} eta_a          and r^2 s + r (n - r) e for the totals

at most, where s >= e in all blocks but those of the totals. A smaller s would save nothing, so the
scales are the best that obey it (docs/theory/persons.md, "Equal periods").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fitplug.families.base.attribute_matrices import AttributeMatrix
from fitplug.families.product.design.cell_weights import CellWeights
from fitplug.families.product.design.descent import QueryAscent
from fitplug.families.product.design.members import FamilyMember
from fitplug.families.product.design.scales import (
    ProfileMatrix,
    Profiles,
    Scales,
    VarianceMatrix,
    build_profiles,
    compute_scales,
    optimise_scales,
)
from fitplug.families.product.shape.products import ProductPersonStructure
from fitplug.numeric import FloatArray, IntArray, frozen_property
from fitplug.solve import mix_with_uniform

_FEWER = (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89)
"""How many records a kind of persons has less than the most."""


@dataclass(frozen=True, eq=False)
class PersonProfiles(Profiles):
    """The costs of persons whose records are in one combination of cells.

    Attributes:
        structure: The structure.
        cells: The costs of cells.
        multiples: The cost of each number of records over that of a cell at each scale, shape
            (t, count).
        unit: eta_m / (n - 1).
    """

    structure: ProductPersonStructure
    cells: ProfileMatrix
    multiples: FloatArray
    unit: float

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self.multiples) * self.cells.size

    def multiply(self, precisions: FloatArray) -> FloatArray:
        """Return the profile (size,) of precisions 1 / z (count,), with s raised to e."""
        sums, contrasts = _list_pairs(self.structure)
        precisions = precisions.copy()
        precisions[sums] = np.maximum(precisions[sums], self.unit * precisions[contrasts])
        return np.concatenate([self.cells.multiply(row * precisions) for row in self.multiples])

    def multiply_transposed(self, p: FloatArray) -> FloatArray:
        """Return the mean cost (count,) of each scale at 1, for weights p (size,)."""
        parts = p.reshape(len(self.multiples), -1)
        costs = [self.cells.multiply_transposed(part) for part in parts]
        return np.asarray((self.multiples * costs).sum(axis=0))

    def of_matrices(self, matrices: Sequence[AttributeMatrix]) -> PersonProfiles:
        """Compute the profiles where integer matrices measure the attributes."""
        periods = self.structure.periods
        m = self.structure.block_attributes.index(periods.name)
        unit = matrices[m].column_square / (periods.n - 1)
        return replace(self, cells=self.cells.of_matrices(matrices), unit=unit)

    def balance(self, costs: FloatArray, needed: FloatArray) -> FloatArray:
        """Return the best scales with s >= e."""
        return _balance(self.structure, self.unit, costs, needed)


@dataclass(frozen=True, eq=False, kw_only=True)
class PersonCells(CellWeights):
    """Dual weights of numbers of records, and of cells that are products.

    Attributes:
        structure: The structure.
        shares: The weights of the numbers of records, which sum to 1, shape (t,).
    """

    structure: ProductPersonStructure
    shares: FloatArray

    @classmethod
    def spread(
        cls, structure: ProductPersonStructure, cells: tuple[FloatArray, ...]
    ) -> PersonCells:
        """Give all numbers of records equal weights."""
        t = len(_list_records(structure))
        return cls(structure.batched, cells, structure=structure, shares=np.full(t, 1 / t))

    @frozen_property
    def multiples(self) -> FloatArray:
        """The cost of each number of records over that of a cell at each scale, (t, count)."""
        periods, partners = self.structure.periods, self.structure.partner_scales
        k, n, r = periods.most, periods.n, np.array(_list_records(self.structure))
        multiples = np.outer(r, np.where(partners == -2, (n - k) / (n - 1), k)).astype(np.float64)
        if partners[0] >= 0:
            multiples[:, 0] = r**2
            multiples[:, partners[0]] = r * (n - r) / (n - 1)
        return multiples

    def average(self) -> FloatArray:
        """Return the average cost of each scale at 1, shape (count,)."""
        return np.asarray(super().average() * (self.shares @ self.multiples))

    def ascend(self, ascent: QueryAscent, mixing: float, power: float) -> PersonCells:
        """Return weights raised where cells and numbers of records cost more than on average."""
        weights = super().ascend(ascent, mixing, power)
        spent = self.multiples @ (super().average() * ascent.precisions)
        grown = self.shares * (spent / ascent.total) ** power
        shares = mix_with_uniform(grown / grown.sum(), mixing)
        return replace(self, cells=weights.cells, shares=shares)

    def scale(
        self, rows: VarianceMatrix, tolerance: float, near: FamilyMember | None
    ) -> tuple[Scales, Profiles]:
        """Find the best scales for the covariances, and the costs of persons."""
        cells = build_profiles(self.batched.scales, self.eta)
        profiles = PersonProfiles(self.structure, cells, self.multiples, self._unit)
        known = None if near is None else near.scales
        return optimise_scales(rows, profiles, tolerance=tolerance / 4, near=known), profiles

    def balance(self, costs: FloatArray, needed: FloatArray) -> FloatArray:
        """Return the best scales with s >= e."""
        return _balance(self.structure, self._unit, costs, needed)

    @property
    def _unit(self) -> float:
        return 1 / self.structure.periods.n


def _list_records(structure: ProductPersonStructure) -> list[int]:
    """List numbers of records near k, descending."""
    return [structure.periods.most - fewer for fewer in _FEWER if fewer < structure.periods.most]


def _list_pairs(structure: ProductPersonStructure) -> tuple[IntArray, IntArray]:
    """List the scales of blocks A and A + m, except for the totals."""
    sums = 1 + np.flatnonzero(structure.partner_scales[1:] >= 0)
    return sums, structure.partner_scales[sums]


def _balance(
    structure: ProductPersonStructure, unit: float, costs: FloatArray, needed: FloatArray
) -> FloatArray:
    """Return the best scales where each block A has unit z_A <= z_(A + m)."""
    z = compute_scales(costs, needed)
    sums, contrasts = _list_pairs(structure)
    below = z[contrasts] < unit * z[sums]
    sums, contrasts = sums[below], contrasts[below]
    z[sums] = np.sqrt(
        (costs[sums] + costs[contrasts] / unit) / (needed[sums] + unit * needed[contrasts])
    )
    z[contrasts] = unit * z[sums]
    return z
