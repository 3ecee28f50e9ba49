"""Inner products of what a strategy measures of two records of one person.

The cost of a difference v is the sum of these products over all pairs of its records. Two records
in given dense cells have one product for each set of symmetric attributes in which they differ.
Floats and Python integers go through the same code: the optimizer needs the one, the exact cost of
integers the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fitplug.neighbours.person_records import PersonRecords, RecordSets
from fitplug.numeric import AnyArray


@dataclass(frozen=True, eq=False)
class RecordProducts:
    """The inner products of all pairs of records.

    Attributes:
        person: Which records a person may have.
        products: Shape (2^m, D, D): the products of records in two dense cells that differ in a set
            of the m symmetric attributes, which is numbered as in `RecordSets.compare_records`.
    """

    person: PersonRecords
    products: AnyArray

    @property
    def same(self) -> AnyArray:
        """The products of records that differ in no symmetric attribute, shape (D, D)."""
        return np.asarray(self.products[0])

    @property
    def differing(self) -> AnyArray:
        """The products of records that differ in a symmetric attribute, by set, (sets, D, D)."""
        return np.asarray(self.products[self.person.differing_sets])

    @property
    def largest(self) -> AnyArray:
        """The largest products of two records, shape (D, D)."""
        return np.asarray(np.maximum.reduce([self.same, *self.differing]))

    def to_floats(self) -> RecordProducts:
        """Round to floats."""
        return replace(self, products=self.products.astype(np.float64))

    def compute_costs(self, sets: RecordSets) -> AnyArray:
        """Compute the cost |A v|^2 of differences, shape (v,)."""
        cells = sets.cells
        kept = (cells >= 0)[:, :, None] & (cells >= 0)[:, None]
        found = self.products[sets.compare_records(), cells[:, :, None], cells[:, None]]
        return np.asarray(np.where(kept, found, 0).sum(axis=(1, 2)))


def build_record_products(
    person: PersonRecords,
    parts: Iterable[tuple[Sequence[int], AnyArray]],
    equal: Sequence[int | float],
    other: Sequence[int | float],
) -> RecordProducts:
    """Build the products of all pairs of records from those of the blocks.

    Args:
        person: Which records a person may have.
        parts: The attributes A of each block, and the products of its columns, shape (D, D).
        equal: The product of two records that are equal in a symmetric attribute, as far as it
            measures that attribute: 1 - 1/n times a factor.
        other: The product of two records that differ in it, - 1/n times the same factor.
    """
    m, d = len(person.sizes), len(person.periods)
    total: AnyArray | None = None
    for attributes, gram in parts:
        if total is None:
            total = np.zeros((2**m, d, d), dtype=gram.dtype)
        for differing in range(2**m):
            factor: int | float = 1
            for a in attributes:
                factor = factor * (other[a] if differing >> a & 1 else equal[a])
            total[differing] += factor * gram
    assert total is not None
    return RecordProducts(person, total)
