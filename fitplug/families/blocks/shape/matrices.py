"""Blocks that are matrices: each Sigma_A is over all cells of the dense attributes.

Without symmetric attributes there is one block, the dense problem. Without dense attributes there
is one dense cell, and nothing tells the rows of a block apart: each block is a number, and there
may be a million.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from fitplug.domain import suggest_fewer_cells
from fitplug.errors import WorkloadError
from fitplug.families.base.structure import Structure, list_names
from fitplug.numeric import FloatArray, IntArray, frozen_property
from fitplug.workload import check_coefficients

MAX_ENTRIES = 150_000_000
"""Most coefficients of all blocks together, 1.2 GB; the design takes a few times that."""


@dataclass(frozen=True, eq=False)
class BlockQueries:
    """What a block answers a part of: row j takes variance_multiple_j N_j Sigma_A N_j'.

    Attributes:
        rows: The structure's rows, shape (r,).
        variance_multiples: w_A prod_{a in A_t - A} n_a^-2 of each row's group t, shape (r,).
        matrix: N over the dense cells, shape (r, D).
        profile_multiple: w_A, which the block's profile counts with.
    """

    rows: IntArray
    variance_multiples: FloatArray
    matrix: FloatArray
    profile_multiple: float


@dataclass(frozen=True, eq=False)
class MatrixStructure(Structure):
    """Blocks over the symmetric attributes' subsets, each a matrix over the dense cells."""

    def __str__(self) -> str:
        if self.dense and not self.symmetric:
            return f"{self.cells:,} cells told apart, one block"
        blocks = f"{len(self.symmetric)} symmetric attributes ({list_names(self.symmetric)}): "
        blocks += f"{len(self.blocks):,} blocks"
        if not self.dense:
            return f"{blocks} of one number"
        return f"{blocks} over the {self.cells:,} cells of {', '.join(self.dense)}"

    @property
    def block_attributes(self) -> tuple[str, ...]:
        return self.symmetric

    @property
    def dense(self) -> tuple[str, ...]:
        return self.asymmetric

    @property
    def entries(self) -> int:
        """The coefficients of all blocks together, as a Python integer of any size."""
        used, rows = self.subsets.group_attributes.counts, self.row_counts
        return int(self.cells * sum((2 ** used.astype(object) * rows).tolist()))

    def check_size(self) -> None:
        if (entries := self.entries) > MAX_ENTRIES:
            raise WorkloadError(
                f"the attributes {', '.join(self.dense)} are asked for in ways, or with targets, "
                f"that tell their cells apart, which takes {entries} coefficients together; up to "
                f"{MAX_ENTRIES} can be held: use fewer of them together, or "
                + suggest_fewer_cells(self.workload.domain, self.dense)
            )

    @frozen_property
    def group_matrices(self) -> tuple[FloatArray, ...]:
        """N_t of each group, shape (r, D).

        Raises:
            WorkloadError: If all coefficients are zero, or some are out of range.
        """
        groups = range(len(self.workload.groups))
        matrices = tuple(self.build_rows(g, self.dense) for g in groups)
        check_coefficients(matrices)
        return matrices

    def build_group_matrix(self, group: int) -> FloatArray:
        return self.group_matrices[group]

    def build_block_matrix(self, block: int) -> FloatArray:
        if not self.dense:
            return np.ones((1, 1))
        groups, _ = self.subsets.find_groups(block)
        return np.concatenate([self.group_matrices[g] for g in groups])

    def find_rows(self, block: int, group: int) -> slice:
        if not self.dense:
            return slice(0, 1)
        groups, _ = self.subsets.find_groups(block)
        lengths = np.diff(self.row_starts)[groups]
        at = int(np.flatnonzero(groups == group)[0])
        end = int(lengths[: at + 1].sum())
        return slice(end - int(lengths[at]), end)

    def gather_queries(self, block: int) -> BlockQueries:
        """Gather what a block answers a part of."""
        groups, multiples = self.subsets.find_groups(block)
        matrix = self.build_block_matrix(block)
        return BlockQueries(
            rows=self.find_block_rows(block),
            variance_multiples=np.repeat(multiples, np.diff(self.row_starts)[groups]),
            matrix=matrix,
            profile_multiple=float(self.subsets.profile_multiples[block]),
        )

    def gather_all_queries(self) -> Iterator[BlockQueries]:
        """Gather what each block answers, one block after another."""
        return map(self.gather_queries, range(len(self.blocks)))

    @frozen_property
    def incidence(self) -> csr_array:
        """The variance multiples of all rows and blocks that are numbers, (rows, b), sparse."""
        shape = (self.rows, len(self.blocks))
        groups, blocks = self.subsets.pairs
        return csr_array((self.subsets.variance_multiples, (groups, blocks)), shape=shape)
