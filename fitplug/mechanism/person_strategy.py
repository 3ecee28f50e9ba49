"""The exact cost of an integer strategy for a person with several records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fitplug.mechanism.costly_differences import find_costly_differences
from fitplug.mechanism.person_cost import bound_largest_cost
from fitplug.mechanism.record_products import RecordProducts, build_record_products
from fitplug.mechanism.strategy import Integers
from fitplug.numeric import AnyArray, multiply_exactly
from fitplug.structure import MatrixStructure, PersonRecords


class PersonCost(NamedTuple):
    """What a strategy's integers cost a person with several records.

    Attributes:
        of_cells: For each dense cell, a bound from above on |A v|^2 of all differences v that have
            a record in it: Python integers, of which the largest is the cost.
        attained: |A v|^2 of a difference, exact. The cost is above the truth by no more than its
            ratio to this.
    """

    of_cells: tuple[int, ...]
    attained: int

    @property
    def square(self) -> int:
        """The squared sensitivity: no difference has a larger |A v|^2."""
        return max(self.of_cells)


def compute_person_cost(
    structure: MatrixStructure, integers: Integers, person: PersonRecords
) -> PersonCost:
    """Compute what integers cost a person, exactly or with a bound from above.

    Args:
        structure: The structure.
        integers: The integers of a strategy of this structure.
        person: Which records a person may have.
    """
    products = multiply_integers(structure, integers, person)
    of_cells, _ = bound_largest_cost(products)
    costly = find_costly_differences(_scale_to_floats(products), 1)
    (attained,) = products.compute_costs(costly)
    return PersonCost(tuple(map(int, of_cells)), int(attained))


def multiply_integers(
    structure: MatrixStructure, integers: Integers, person: PersonRecords
) -> RecordProducts:
    """Compute the products of all pairs of records of an integer strategy, in Python integers."""
    matrices = integers.attribute_matrices
    equal = [matrix.column_square for matrix in matrices]
    # H'H = f (I - J/n) with |H e_i|^2 = f (1 - 1/n), so that two columns have the product - f / n.
    other = [
        0 if n == 1 else -(square // (n - 1))
        for square, n in zip(equal, structure.sizes, strict=True)
    ]
    parts: list[tuple[Sequence[int], AnyArray]] = []
    for block_set in integers.block_sets:
        matrix = structure.build_block_matrix(int(block_set.blocks[0]))
        A = multiply_exactly(block_set.M[0], block_set.basis.build_matrix(matrix))
        (attributes,) = structure.subsets.list_attributes(block_set.blocks)
        parts.append((attributes, multiply_exactly(A.T, A).astype(object)))
    return build_record_products(person, parts, equal, other)


def _scale_to_floats(products: RecordProducts) -> RecordProducts:
    """Convert products to floats, divided by the largest: integers may exceed the largest float."""
    largest = max(1, max(abs(product) for product in products.products.ravel()))
    shift = max(0, int(largest).bit_length() - 64)
    scaled = np.array([int(x) >> shift for x in products.products.ravel()], dtype=np.float64)
    return RecordProducts(products.person, scaled.reshape(products.products.shape))
