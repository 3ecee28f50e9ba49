"""The strategies of chains where a person has at most one record in each period."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache, partial

import numpy as np

from fitplug.errors import BAD_INTEGERS, PlanError
from fitplug.families.base.attribute_matrices import AttributeMatrix
from fitplug.families.base.mechanism import SATURATION, StrategyCost
from fitplug.families.base.structure import Structure
from fitplug.families.chain.shape.chains import ChainPersonStructure, ChainStructure
from fitplug.families.chain.strategy.chains import (
    ChainStrategy,
    NestedChain,
    place_chain,
)
from fitplug.families.chain.strategy.largest_column import (
    find_largest_column,
    sum_square,
    sum_squares,
)
from fitplug.families.chain.strategy.period_chains import PeriodChain
from fitplug.numeric import AnyArray, FloatArray, ceil_float, frozen_property, gamma

_STEPS = 80
"""The steps of the search for the multiple of h."""


class ChainPersonStrategy(ChainStrategy):
    """The strategies of `ChainPersonStructure`."""

    structure: ChainPersonStructure

    @classmethod
    def read_attribute_matrices(
        cls, structure: Structure, arrays: Sequence[Mapping[str, AnyArray]]
    ) -> tuple[AttributeMatrix, ...]:
        assert isinstance(structure, ChainStructure)
        of_chain = arrays[structure.chain_position]
        if "totals" not in of_chain:
            return super().read_attribute_matrices(structure, arrays)
        return place_chain(structure, PeriodChain.from_arrays(of_chain))

    def compute_record_cost(self, claimed: int | None = None) -> StrategyCost:
        matrix = self._nested
        square = self._bound_person()[0]
        entry = max(e * matrix.of_block(b).largest_entry for b, _, e in self.multiply_others())
        return StrategyCost(square, np.array([ceil_float(Fraction(square))]), SATURATION // entry)

    def compute_attained_square(self) -> int | None:
        square = self._bound_person()[1]
        return None if square == self.record_square else square

    def check_form(self) -> None:
        super().check_form()
        matrix = self.chain_matrix
        if not isinstance(matrix, NestedChain):
            raise PlanError(BAD_INTEGERS)
        if isinstance(matrix, PeriodChain):
            partner = int(self.structure.periods.partners[0])
            others = np.delete(matrix.totals, [partner] if partner >= 0 else [], axis=0)
            if others.any() or not matrix.is_equal(0, partner):
                raise PlanError(BAD_INTEGERS)

    @property
    def _nested(self) -> NestedChain:
        assert isinstance(self.chain_matrix, NestedChain)
        return self.chain_matrix

    @frozen_property
    def _squares(self) -> list[int]:
        """What the square of a cell's column in each block is multiplied by."""
        return [square for _, square, _ in sorted(self.multiply_others())]

    @frozen_property
    def _bounds(self) -> tuple[list[int], list[int]]:
        """Bounds on the cost of a person in each block; see `Periods.bound_costs`."""
        matrix, periods = self._nested, self.structure.periods
        alike = [
            partner >= 0 and matrix.is_equal(block, partner)
            for block, partner in enumerate(periods.partners.tolist())
        ]
        return periods.bound_costs(self._squares, periods.partners.tolist(), alike)

    def _bound_person(self) -> tuple[int, int]:
        """Bound the largest cost of a person, and compute the cost of a person near it."""
        matrix, (above, equal) = self._nested, self._bounds
        if not isinstance(matrix, PeriodChain):
            return find_largest_column(matrix.views, above), find_largest_column(
                matrix.views, equal
            )
        return _PersonBound(self, matrix).find()


class _PersonBound:
    """The largest cost of a person where contrasts of h'x are measured too.

    For every integer M, r records in cells x cost at most e M^2 plus the sum of a_x + e (n h_x^2 -
    2 M h_x), as e (n sum h_x^2 - (sum h_x)^2) is what the further row costs.
    """

    def __init__(self, strategy: ChainPersonStrategy, matrix: PeriodChain) -> None:
        periods = strategy.structure.periods
        self.periods, self.matrix, self.squares = periods, matrix, strategy._squares
        self.block = int(periods.partners[0])
        self.h = matrix.totals[self.block]
        self.e = self.squares[self.block] // (periods.n - 1)
        self.above = [square // periods.most for square in strategy._bounds[0]]
        self.near, self.errors = sum_squares(matrix.views, self.above)
        self.square = cache(partial(sum_square, matrix.views, self.above))

    def find(self) -> tuple[int, int]:
        """Bound the largest cost, and compute that of a person near it."""
        records = range(1, self.periods.most + 1)
        choices = [(*self._choose_multiple(r), r) for r in records]
        bounds = [(self._bound(M, r), M, r) for _, M, r in choices]
        largest, M, r = max(bounds)
        return largest, self._find_person(M, r)

    def _sum_near(self, M: float) -> FloatArray:
        h = self.h.astype(np.float64)
        return self.near + float(self.e) * (self.periods.n * h - 2 * M) * h

    def _choose_multiple(self, r: int) -> tuple[float, int]:
        """Choose M for r records by a search; the bound is a convex function of M."""

        def bound(M: float) -> float:
            return r * float(self._sum_near(M).max()) + float(self.e) * M * M

        ends = np.append(self.h.astype(np.float64), 0.0) * self.periods.n
        low, high = float(ends.min()), float(ends.max())
        for _ in range(_STEPS):
            left, right = low + (high - low) / 3, high - (high - low) / 3
            low, high = (low, right) if bound(left) <= bound(right) else (left, high)
        return bound(low), round(low)

    def _bound(self, M: int, r: int) -> int:
        """Bound the cost of r records for the multiple M, exactly."""
        near, h = self._sum_near(M), np.abs(self.h.astype(np.float64))
        sizes = float(self.e) * (self.periods.n * h + 2 * abs(M)) * h
        errors = self.errors + gamma(16) * (sizes + self.near)
        candidates = np.flatnonzero(near + errors >= (near - errors).max()).tolist()
        return self.e * M * M + r * max(self._sum_exact(M, x) for x in candidates)

    def _sum_exact(self, M: int, x: int) -> int:
        h = int(self.h[x])
        return self.square(x) + self.e * (self.periods.n * h - 2 * M) * h

    def _find_person(self, M: int, r: int) -> int:
        """Find the costliest person with r records in the costliest cells of large and small h."""
        near, large = self._sum_near(M), self.h * self.periods.n >= M
        cells = [
            int(np.where(some, near, -np.inf).argmax()) for some in (large, ~large) if some.any()
        ]
        products = self._multiply(cells)
        counts = [(j, r - j)[: len(cells)] for j in range(r + 1)]
        return max(self._measure(one, cells, products) for one in counts if sum(one) == r)

    def _multiply(self, cells: Sequence[int]) -> list[list[list[int]]]:
        """Compute the products of the cells' columns in each block, exactly."""
        columns = [
            [chain.compute_column(x)[: self.matrix.n].astype(object) for x in cells]
            for chain in self.matrix.views
        ]
        return [[[int(a @ b) for b in block] for a in block] for block in columns]

    def _measure(
        self, counts: Sequence[int], cells: Sequence[int], products: list[list[list[int]]]
    ) -> int:
        """Compute the cost of a person with some number of records in each cell, exactly."""
        n, total = self.periods.n, 0
        for partner, square, product in zip(
            self.periods.partners.tolist(), self.squares, products, strict=True
        ):
            pairs = [
                a * b * product[i][j] for i, a in enumerate(counts) for j, b in enumerate(counts)
            ]
            apart = sum(a * product[i][i] for i, a in enumerate(counts))
            if partner != -2:
                total += square * sum(pairs)
            else:
                total += square // (n - 1) * (n * apart - sum(pairs))
        h = [int(self.h[x]) for x in cells]
        apart = sum(a * x * x for a, x in zip(counts, h, strict=True))
        return total + self.e * (
            n * apart - sum(a * x for a, x in zip(counts, h, strict=True)) ** 2
        )
