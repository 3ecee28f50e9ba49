"""Blocks that are numbers: every attribute is symmetric, and nothing tells cells apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from fitplug.families.base.structure import Structure, list_names
from fitplug.numeric import FloatArray, frozen_property


@dataclass(frozen=True, eq=False)
class ScalarStructure(Structure):
    """Blocks over the symmetric attributes' subsets, each one number; there may be a million."""

    def __str__(self) -> str:
        free = f"{len(self.symmetric)} symmetric attributes ({list_names(self.symmetric)})"
        return f"{free}: {len(self.blocks):,} blocks of one number"

    @property
    def block_attributes(self) -> tuple[str, ...]:
        return self.symmetric

    @property
    def dense(self) -> tuple[str, ...]:
        return ()

    def check_size(self) -> None:
        """Do nothing: `analyse_structure` bounds the number of blocks, the only size there is."""

    def build_block_matrix(self, block: int) -> FloatArray:
        return np.ones((1, 1))

    def find_rows(self, block: int, group: int) -> slice:
        return slice(0, 1)

    @frozen_property
    def incidence(self) -> csr_array:
        """The variance multiples of all rows and blocks, shape (rows, b), sparse."""
        shape = (self.rows, len(self.blocks))
        groups, blocks = self.subsets.pairs
        return csr_array((self.subsets.variance_multiples, (groups, blocks)), shape=shape)
