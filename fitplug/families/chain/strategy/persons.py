"""The strategies of chains where a person has at most one record in each period."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from fitplug.errors import PlanError
from fitplug.families.base.mechanism import SATURATION, StrategyCost
from fitplug.families.chain.shape.chains import ChainPersonStructure
from fitplug.families.chain.strategy.chains import ChainStrategy, NestedChain
from fitplug.families.chain.strategy.largest_column import find_largest_column
from fitplug.numeric import ceil_float


class ChainPersonStrategy(ChainStrategy):
    """The strategies of `ChainPersonStructure`."""

    structure: ChainPersonStructure

    def compute_record_cost(self, claimed: int | None = None) -> StrategyCost:
        matrix = self._nested
        above, _ = self._bound_costs(matrix)
        square = find_largest_column(matrix.views, above)
        entry = max(e * matrix.of_block(b).largest_entry for b, _, e in self.multiply_others())
        return StrategyCost(square, np.array([ceil_float(Fraction(square))]), SATURATION // entry)

    def compute_attained_square(self) -> int | None:
        _, equal = self._bound_costs(self._nested)
        square = find_largest_column(self._nested.views, equal)
        return None if square == self.record_square else square

    def check_form(self) -> None:
        super().check_form()
        if not isinstance(self.chain_matrix, NestedChain):
            raise PlanError("chains of several periods have nested triangles")

    @property
    def _nested(self) -> NestedChain:
        assert isinstance(self.chain_matrix, NestedChain)
        return self.chain_matrix

    def _bound_costs(self, matrix: NestedChain) -> tuple[list[int], list[int]]:
        """Bound the cost of a person; see `Periods.bound_costs`."""
        periods = self.structure.periods
        alike = [
            partner >= 0 and matrix.is_equal(block, partner)
            for block, partner in enumerate(periods.partners.tolist())
        ]
        squares = [square for _, square, _ in sorted(self.multiply_others())]
        return periods.bound_costs(squares, periods.partners.tolist(), alike)
