"""Strategies of trees for a person with several records: their cost is a bound from above."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from fitplug.families.base.strategy import Integers, IntegerStrategy
from fitplug.families.base.strategy_form import StrategyCost, upper_excess
from fitplug.families.tree.integers.person_cost import RecordBounds, TreeProducts, upper_person_cost
from fitplug.families.tree.integers.person_search import find_costly_person
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.persons import PersonTreeStructure
from fitplug.families.tree.strategy.trees import TreeForm

_MARGIN = 2.0**-30
"""A cost is stated by this share above the bound, relatively, since another machine may round the
bound otherwise."""


class PersonTreeForm(TreeForm):
    """The strategies of `PersonTreeStructure`."""

    def compute_cost(self, structure: TreeStructure, integers: Integers) -> StrategyCost:
        """Compute what no person costs more than.

        The squares are those of persons who have a record in each cell.
        """
        bounds, max_records = self._upper_records(structure, integers)
        most = _round_up(bounds.total * (1 + _MARGIN))
        squares = bounds.upper_cells().ravel() * (1 + _MARGIN)
        return StrategyCost(most, squares, max_records)

    def confirm_cost(
        self, structure: TreeStructure, integers: Integers, claimed: int
    ) -> StrategyCost:
        bounds, max_records = self._upper_records(structure, integers, claimed)
        most = _round_up(bounds.total)
        # A claim that is proven, and no higher than designs state, is confirmed.
        if most <= claimed <= _round_up(bounds.total * (1 + 2 * _MARGIN)):
            most = claimed
        return StrategyCost(most, bounds.upper_cells().ravel(), max_records)

    def upper_overstatement(self, strategy: IntegerStrategy) -> float:
        structure = strategy.structure
        assert isinstance(structure, PersonTreeStructure)
        integers = strategy.integers
        bounds, _ = self._upper_records(structure, integers)
        products = TreeProducts(structure, integers.tree_blocks, integers.attribute_matrices)
        attained = find_costly_person(products, bounds)
        return upper_excess(strategy.sensitivity_squared, attained)

    def _upper_records(
        self, structure: TreeStructure, integers: Integers, claimed: int | None = None
    ) -> tuple[RecordBounds, int]:
        """Bound what records add to the cost, and count the records that integers have room for."""
        assert isinstance(structure, PersonTreeStructure)
        _, _, max_records = super().compute_cost(structure, integers)
        bounds = upper_person_cost(
            structure, integers.tree_blocks, integers.attribute_matrices, claimed
        )
        return bounds, max_records


def _round_up(value: float) -> int:
    """Round a float up to an integer."""
    return -int(-Fraction(np.float64(value)) // 1)
