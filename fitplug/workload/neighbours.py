"""Neighbours: what one person's presence changes in the histogram.

Two data sets are neighbours when their histograms differ by some v of a set V, the differences.
A mechanism that adds Gaussian noise to A x then has the privacy cost

    Delta^2 = max over V of |A v|^2

and the optimum, its dual and its certificate depend on the workload only through W V. This matrix
has a column for each difference, and not for each cell (docs/theory/dual.md). So the set V is given
as a linear map of rows. The privacy profile and the exact cost are computed from the columns of
A V, the nuclear norm and the reduced problem from the columns of W V.

Another unit of privacy is another class with these two methods, which `analyse_structure` gives to
the structure. It also says there which attributes stay symmetric: those whose permutations map V
onto itself. Where blocks are numbers, no column is written down: `OneCellForm.compute_exact_cost`
in `fitplug.mechanism.scalar_form` and `ScalarCertifier` in `fitplug.proof.block_certifiers` contain
the cost of one record. A unit that keeps attributes symmetric needs its own number there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fitplug.numeric import AnyArray


class Neighbours(Protocol):
    """The set V of the differences between neighbouring histograms, as a linear map of rows."""

    def count_differences(self, cells: int) -> int:
        """Return |V|, the number of differences over so many cells."""

    def take_differences(self, rows: AnyArray, attributes: tuple[str, ...]) -> AnyArray:
        """Multiply rows by V; where V is the identity, return the rows themselves.

        Args:
            rows: Shape (r, cells), over the cells of some attributes in C order. Integers stay
                integers, and are multiplied exactly.
            attributes: The names of these attributes, in order.

        Returns:
            The product, shape (r, |V|).
        """


@dataclass(frozen=True)
class OneRecord:
    """Neighbours that differ by one record, added or removed: V has a unit vector for each cell."""

    def count_differences(self, cells: int) -> int:
        return cells

    def take_differences(self, rows: AnyArray, attributes: tuple[str, ...]) -> AnyArray:
        return rows


ADD_REMOVE = OneRecord()
"""The default unit: one record, added or removed."""
