"""The block of a workload whose neighbours replace a record: the differences are pairs of cells.

All attributes are dense, so there is one block, a matrix over all cells. See
`fitplug.structure.cell_pairs` for what public totals answer, and docs/theory/units.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fitplug.errors import WorkloadError
from fitplug.numeric import FloatArray, IntArray, frozen_property
from fitplug.structure.cell_pairs import MOST_PAIRS, CellPairs, find_pairs
from fitplug.structure.coefficients import check_coefficients
from fitplug.structure.structure import TWO_CHANGES, Structure

MOST_PAIR_CELLS = 20_000
"""The most cells of the attributes that queries use together."""


@dataclass(frozen=True, eq=False)
class PairStructure(Structure):
    """One block, a matrix over all cells, whose differences are pairs of cells."""

    def __str__(self) -> str:
        return f"{self.pairs.nodes:,} cells told apart, {self.differences:,} pairs of them"

    @property
    def block_attributes(self) -> tuple[str, ...]:
        return ()

    @property
    def dense(self) -> tuple[str, ...]:
        return self.told_apart

    @property
    def differences(self) -> int:
        return self.pairs.count

    @property
    def profile_size(self) -> int:
        return self.cells

    @property
    def fits(self) -> bool:
        """Whether there are few enough cells and pairs of them to consider all."""
        return self.cells <= MOST_PAIR_CELLS and self.pairs.count <= MOST_PAIRS

    def check_size(self) -> None:
        if self.cells > MOST_PAIR_CELLS:
            raise WorkloadError(
                f"the attributes {', '.join(self.dense)} have {self.cells:,} cells together; for "
                f"the unit of privacy ReplaceOne up to {MOST_PAIR_CELLS:,} can be designed for: "
                f"use fewer attributes or cells, or {TWO_CHANGES}"
            )
        if (pairs := self.pairs.count) > MOST_PAIRS:
            raise WorkloadError(
                f"the queries tell {self.pairs.nodes:,} cells apart, which makes {pairs:,} pairs "
                f"between which a record may move; up to {MOST_PAIRS:,} can be designed for: ask "
                f"for less detail, or {TWO_CHANGES}"
            )
        if not self.pairs.grounded.any():
            raise self.make_public_error()

    @frozen_property
    def queries(self) -> FloatArray:
        """W, shape (rows, d).

        Raises:
            WorkloadError: If all coefficients are zero, or some are out of range.
        """
        found = tuple(self.build_rows(g, self.dense) for g in range(len(self.workload.groups)))
        check_coefficients(found)
        return np.concatenate(found)

    @frozen_property
    def regions(self) -> IntArray:
        """The region of each cell, by the attributes whose totals are public, shape (d,)."""
        domain = self.workload.domain
        shape = domain.shape_of(self.dense)
        public = self.public_attributes or ()
        kept = tuple(slice(None) if name in public else None for name in self.dense)
        numbers = np.arange(self.public_size, dtype=np.int64).reshape(domain.shape_of(public))
        return np.broadcast_to(numbers[kept], shape).ravel()

    @frozen_property
    def pairs(self) -> CellPairs:
        """The pairs of cells of one region that the queries tell apart."""
        return find_pairs(self.queries, self.regions)

    def build_block_matrix(self, block: int) -> FloatArray:
        """Build W', what the queries ask beyond the public totals, shape (rows, d)."""
        return self.pairs.grounded

    def build_group_matrix(self, group: int) -> FloatArray:
        return self.queries[self.find_rows(0, group)]

    def find_rows(self, block: int, group: int) -> slice:
        return slice(int(self.row_starts[group]), int(self.row_starts[group + 1]))
