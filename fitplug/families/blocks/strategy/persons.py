"""Strategies for a person with several records: what their integers cost, exactly or bounded."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from fitplug.families.base.strategy import Integers, IntegerStrategy
from fitplug.families.base.strategy_form import StrategyCost, upper_excess
from fitplug.families.blocks.shape.matrices import MatrixStructure
from fitplug.families.blocks.shape.persons import PersonStructure
from fitplug.families.blocks.strategy.matrices import MatrixForm
from fitplug.neighbours import (
    RecordProducts,
    build_record_products,
    find_costly_differences,
    upper_largest_cost,
)
from fitplug.numeric import (
    AnyArray,
    ceil_float,
    find_largest_entry,
    multiply_exactly,
)


class PersonForm(MatrixForm):
    """The strategies of `PersonStructure`."""

    def compute_cost(self, structure: MatrixStructure, integers: Integers) -> StrategyCost:
        """Compute the cost of a person's records, which is exact or a bound from above.

        The squares are the largest of persons who have a record in each cell.
        """
        return self._compute_cost(structure, integers, None)

    def confirm_cost(
        self, structure: MatrixStructure, integers: Integers, claimed: int
    ) -> StrategyCost:
        return self._compute_cost(structure, integers, claimed)

    def _compute_cost(
        self, structure: MatrixStructure, integers: Integers, claimed: int | None
    ) -> StrategyCost:
        """Compute the cost, which is the claimed one where it is a bound that can be proven."""
        assert isinstance(structure, PersonStructure)
        _, _, max_records = super().compute_cost(structure, integers)
        largest = upper_largest_cost(multiply_integers(structure, integers), claimed)
        squares = [int(square) for square in largest.of_cells]
        floats = np.array([ceil_float(Fraction(square)) for square in squares])
        return StrategyCost(max(squares), floats, max_records)

    def upper_overstatement(self, strategy: IntegerStrategy) -> float:
        assert isinstance(strategy.structure, PersonStructure)
        products = multiply_integers(strategy.structure, strategy.integers)
        largest = upper_largest_cost(products, strategy.sensitivity_squared)
        if largest.is_exact:
            return 0.0
        costly = strategy.structure.sets.append(find_costly_differences(products.to_floats(), 1))
        if largest.costly is not None:
            costly = costly.append(largest.costly)
        attained = products.compute_costs(costly).max()
        return upper_excess(strategy.sensitivity_squared, int(attained))


def multiply_integers(structure: PersonStructure, integers: Integers) -> RecordProducts:
    """Compute the products of all pairs of records of an integer strategy, exactly.

    Returns:
        The products, int64 if no sum of those of a person can leave its range, else Python
        integers.
    """
    squares = [matrix.column_square for matrix in integers.attribute_matrices]
    # H'H = f (I - J/n) has f (1 - 1/n) on its diagonal, and - f / n elsewhere.
    others = [-(f // max(n - 1, 1)) for f, n in zip(squares, structure.sizes, strict=True)]
    parts: list[tuple[Sequence[int], AnyArray]] = []
    largest = 0
    for block_set in integers.block_sets:
        matrix = structure.build_block_matrix(int(block_set.blocks[0]))
        A = multiply_exactly(block_set.M[0], block_set.basis.build_matrix(matrix))
        gram = multiply_exactly(A.T, A)
        (attributes,) = structure.subsets.list_attributes(block_set.blocks)
        (square,) = structure.subsets.multiply(squares, block_set.blocks)
        largest += int(square) * find_largest_entry(gram)
        parts.append((attributes, gram))
    # A product is at most L, what attributes take away 2 L, and an excess (2 + 2 m) L. The ways of
    # bounding the cost sum no more than (3 + 6 m) L over T^2 pairs.
    factor = 16 * (1 + len(structure.sizes)) * (structure.person.period_count + 1) ** 2
    dtype = np.int64 if factor * largest < 2**63 else object
    converted = [(attributes, gram.astype(dtype)) for attributes, gram in parts]
    return build_record_products(structure.person, converted, squares, others)
