"""Row grades: the parts into which the rows of an attribute's integer matrix are divided.

Each row of A_a (r, n) has a grade 1 to K. The blocks of a graded attribute multiply the rows of
each grade by a number of their own, so that what A measures of one grade can be more accurate than
what it measures of another. See docs/theory/product-family.md, "Grades".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fitplug.numeric import AnyArray, IntArray

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, eq=False)
class RowGrades:
    """The grades of the rows of an integer matrix A (r, n), counted from 0.

    Attributes:
        rows: The grade of each row, shape (r,).
        adjoint: The grade of each entry of what the matrix's `adjoint` gives.
        column_squares: The different squares of columns, by grade, shape (classes, K), exact.
        largest_entries: The largest |A_ri| of each grade, shape (K,), at least 1.
    """

    rows: IntArray
    adjoint: IntArray
    column_squares: AnyArray
    largest_entries: IntArray

    @property
    def count(self) -> int:
        """K."""
        return len(self.largest_entries)


def spread_table(table: IntArray, grades: Sequence[IntArray]) -> IntArray:
    """Spread numbers of tuples of grades over the rows that have them.

    Args:
        table: A number for each tuple of grades, shape (K_1, ..., K_m).
        grades: The grade of each row of m attributes, shapes (r_i,).

    Returns:
        Shape (r_1, ..., r_m).
    """
    for axis, own in enumerate(grades):
        table = table.take(own, axis)
    return table
