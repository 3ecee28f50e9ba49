"""Blocks that are matrices, where neighbours replace a record: differences are pairs of cells.

The blocks are those of `fitplug.families.blocks.shape.matrices`. A record moves between two cells,
whose dense parts d and d' and whose set D of symmetric attributes with different values decide the
cost:

    sum over A of  w_A ( Y_A(d, d) + Y_A(d', d') - 2 kappa_A(D) Y_A(d, d') )
    kappa_A(D) = prod over a in A and D of -1 / (n_a - 1)

with Y_A = Sigma_A^-1 (docs/theory/units.md, (U19)). Where A has no attribute along which a record
may move, kappa_A = 1, and public totals answer a part of the block; see
`fitplug.neighbours.cell_pairs`. Without symmetric attributes there is one block, over all cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fitplug.errors import WorkloadError
from fitplug.families.base.structure import TWO_CHANGES
from fitplug.families.blocks.shape.matrices import MAX_ENTRIES, MatrixStructure
from fitplug.neighbours import (
    MOST_PAIRS,
    CellPairs,
    GroundedQueries,
    find_pairs,
    ground_queries,
    mix_sets,
)
from fitplug.numeric import AnyArray, FloatArray, IntArray, frozen_property

MOST_PAIR_CELLS = 20_000
"""The most dense cells."""


@dataclass(frozen=True, eq=False)
class PairStructure(MatrixStructure):
    """Blocks over the dense cells, whose differences are classes of pairs of cells."""

    def __str__(self) -> str:
        if not self.symmetric:
            return f"{self.pairs.nodes:,} cells told apart, {self.differences:,} pairs of them"
        return f"{super().__str__()}, {self.differences:,} kinds of pairs of cells"

    @property
    def differences(self) -> int:
        return self.pairs.count

    @property
    def profile_size(self) -> int:
        return self.cells

    @frozen_property
    def noisy_blocks(self) -> IntArray:
        noisy = [b for b in range(len(self.blocks)) if self.build_block_matrix(b).any()]
        return np.array(noisy, dtype=np.int64)

    @property
    def fits(self) -> bool:
        """Whether there are few enough cells and classes of pairs of them to consider all."""
        return (
            self.cells <= MOST_PAIR_CELLS
            and self.entries <= MAX_ENTRIES
            and self.pairs.count <= MOST_PAIRS
            and len(self.blocks) * self.pairs.nodes**2 <= 4 * MOST_PAIRS
        )

    def check_size(self) -> None:
        if self.cells > MOST_PAIR_CELLS:
            raise WorkloadError(
                f"the attributes {', '.join(self.dense)} have {self.cells:,} cells together; for "
                f"the unit of privacy ReplaceOne up to {MOST_PAIR_CELLS:,} can be designed for: "
                f"use fewer attributes or cells, or {TWO_CHANGES}"
            )
        super().check_size()
        if (pairs := self.pairs.count) > MOST_PAIRS:
            raise WorkloadError(
                f"the queries tell {self.pairs.nodes:,} cells apart, which makes {pairs:,} pairs "
                f"between which a record may move; up to {MOST_PAIRS:,} can be designed for: ask "
                f"for less detail, or {TWO_CHANGES}"
            )
        if not self.fits:
            raise WorkloadError(
                f"the workload has {len(self.blocks):,} blocks over {self.pairs.nodes:,} cells, "
                "too many for the unit of privacy ReplaceOne: ask fewer attributes together, or "
                f"{TWO_CHANGES}"
            )
        if not len(self.noisy_blocks):
            raise self.make_public_error()

    @frozen_property
    def regions(self) -> IntArray:
        """The region of each dense cell, by the dense attributes that the unit keeps, (D,)."""
        domain, public = self.workload.domain, self.public_attributes or ()
        region = np.zeros(domain.shape_of(self.dense), dtype=np.int64)
        for axis, (name, n) in enumerate(zip(self.dense, domain.shape_of(self.dense), strict=True)):
            if name in public:
                along = np.arange(n, dtype=np.int64)
                region = region * n + along.reshape(-1, *(1,) * (region.ndim - axis - 1))
        return region.ravel()

    @frozen_property
    def pairs(self) -> CellPairs:
        """The classes of pairs of cells between which a record may move."""
        return find_pairs(np.concatenate(self.group_matrices), self.regions, len(self.free))

    @frozen_property
    def grounded(self) -> Mapping[int, GroundedQueries]:
        """By block, those of which public totals answer a part, modulo these totals."""
        unmoved = np.flatnonzero(~np.isin(self.blocks, self.free).any(axis=1)).tolist()
        return {b: ground_queries(super(PairStructure, self).build_block_matrix(b), self.regions)
                for b in unmoved}  # fmt: skip

    def build_block_matrix(self, block: int) -> FloatArray:
        """Build N, shape (r, D), without what public totals answer of it."""
        if block in self.grounded:
            return self.grounded[block].grounded
        return super().build_block_matrix(block)

    def find_public(self, block: int, group: int) -> FloatArray | None:
        if block not in self.grounded:
            return None
        return self.grounded[block].public[self.find_rows(block, group)]

    def sum_products(
        self, matrices: Sequence[AnyArray], same: Sequence[Any], other: Sequence[Any]
    ) -> AnyArray:
        """Sum products of the columns of two cells over the noisy blocks, for each set D.

        Args:
            matrices: Of each noisy block the products over nodes, shape (N, N).
            same: |H_a e_i|^2 of each attribute, in the order of `symmetric`.
            other: (H_a e_i)' H_a e_j for two cells of each attribute.

        Returns:
            sum_A prod_{a in A} (other_a if a in D, else same_a) matrices_A, shape (2^m, N, N).
        """
        table = np.zeros((self.pairs.sets, *matrices[0].shape), dtype=matrices[0].dtype)
        for matrix, (place, others) in zip(matrices, self._places, strict=True):
            multiple: Any = 1
            for a in others:
                multiple = multiple * same[a]
            table[place] += multiple * matrix
        for bit, a in enumerate(self.free.tolist()):
            table = mix_sets(table, (1, same[a]), (1, other[a]), bit)
        return table

    def sum_moments(self, p: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Sum v v' of the differences, times their weights, for the noisy blocks.

        Args:
            p: The weights of the classes of pairs, shape (differences,).

        Returns:
            P_A / w_A of each noisy block over the nodes, shape (blocks, N, N), and the row sums of
            all weights, shape (N,): the diagonal that these are taken from.
        """
        table = self.pairs.sum_weights(p)
        degrees = table.sum(axis=(0, 2))
        for bit, a in enumerate(self.free.tolist()):
            table = mix_sets(table, (1, 1), (1, -1 / (self.sizes[a] - 1)), bit)
        moments = -table[[place for place, _ in self._places]]
        at = np.arange(len(degrees))
        moments[:, at, at] += degrees
        return moments, degrees

    @cached_property
    def _places(self) -> list[tuple[int, list[int]]]:
        """Of each noisy block the set of its movable attributes, and its other attributes."""
        bit = {int(a): 1 << i for i, a in enumerate(self.free)}
        return [
            (sum(bit.get(a, 0) for a in attributes), [a for a in attributes if a not in bit])
            for attributes in self.subsets.list_attributes(self.noisy_blocks)
        ]
