"""Strategies of block sets: each block has an integer basis, and an integer matrix over it.

A block that is a matrix has its own basis. Blocks that are numbers share one: the single dense
cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, TypeVar

import numpy as np
from scipy.linalg import solve_triangular

from fitplug.errors import BAD_INTEGERS, LARGE_INTEGERS, PlanError
from fitplug.families.base.block_sets import BlockSet, BlockSetIntegers
from fitplug.families.base.contrasts import compute_precisions
from fitplug.families.base.estimates import find_block_rows, find_boxed_rows, weigh_rows
from fitplug.families.base.mechanism import (
    MAX_ENTRY,
    SATURATION,
    BlockCovariance,
    BlockWeights,
    MeasuredBlock,
    Mechanism,
    Products,
    StrategyCost,
)
from fitplug.families.base.parted_strategy import PartedStrategy
from fitplug.families.base.pieces import PART
from fitplug.families.base.strategy import S
from fitplug.families.blocks.shape.matrices import MatrixStructure
from fitplug.families.blocks.strategy.parts import PartedBlocks
from fitplug.numeric import (
    UNIT_ROUNDOFF,
    AnyArray,
    FloatArray,
    IntArray,
    find_largest_entry,
    gamma,
    multiply_exactly,
    upper_norm,
    upper_solution_norms,
)

M = TypeVar("M", bound=MatrixStructure, covariant=True)


class BlockSetStrategy(BlockSetIntegers[S]):
    """The common part of strategies of block sets, complete for blocks that are numbers.

    Attributes:
        has_grades: Whether blocks may have factors for grades.
    """

    has_grades: ClassVar[bool] = False

    @property
    def peaks_at_one_cell(self) -> bool:
        """Whether all blocks attain their largest sensitivity at the same cell."""
        return self.structure.public_attributes is None

    def compute_record_cost(self, claimed: int | None = None) -> StrategyCost:
        # Every block adds to one column: although the cells of an attribute may differ, some cell
        # has the largest square of every attribute at once.
        column: list[tuple[int, AnyArray]] = []
        entry = 1
        for block_set in self.block_sets:
            squares = self.structure.subsets.multiply(
                [matrix.column_square for matrix in self.attribute_matrices], block_set.blocks
            )
            entries = self.structure.subsets.multiply(
                [matrix.largest_entry for matrix in self.attribute_matrices], block_set.blocks
            )
            m = block_set.M[:, 0, 0].astype(object)
            column.append((int((squares * m * m).sum()), np.ones((1, 1), dtype=np.int64)))
            entry = max(entry, int((entries * m).max()))
        return StrategyCost(*sum_column_squares(column), SATURATION // entry)

    def list_mechanisms(self, noise_std: float) -> tuple[Mechanism, ...]:
        if not self.peaks_at_one_cell:
            return super().list_mechanisms(noise_std)
        structure, matrices = self.structure, self.attribute_matrices
        subsets, names = structure.subsets, structure.block_attributes
        mechanisms: dict[int, Mechanism] = {}
        for block_set in self.block_sets:
            squares = subsets.multiply([each.column_square for each in matrices], block_set.blocks)
            rows = subsets.multiply([each.rows for each in matrices], block_set.blocks)
            attributes = subsets.list_attributes(block_set.blocks)
            for i, block in enumerate(block_set.blocks.tolist()):
                name = " x ".join(names[a] for a in attributes[i]) or "total"
                square = int(squares[i]) * int(block_set.M[i, 0, 0]) ** 2 * structure.changes**2
                mechanisms[block] = self.make_mechanism(name, square, noise_std, int(rows[i]))
        return tuple(mechanisms[block] for block in sorted(mechanisms))

    def check_block_set(self, block_set: BlockSet) -> None:
        """Check that blocks of the structure may share a set and its basis.

        Raises:
            PlanError: If they may not share a set, or the basis is not theirs.
        """
        if block_set.basis.kind != "cells":
            # The sensitivity is computed for the cells themselves: a scaled row would cost more.
            raise PlanError(BAD_INTEGERS)

    def check_blocks(self) -> None:
        for block_set in self.block_sets:
            self._check_integers(block_set)
        measured = [block for block_set in self.block_sets for block in block_set.blocks.tolist()]
        if sorted(measured) != self.structure.noisy_blocks.tolist():
            raise PlanError(BAD_INTEGERS)

    def list_block_tables(self) -> list[tuple[str, ...]]:
        return [
            names
            for block_set in self.block_sets
            for names in block_set.basis.list_tables(self.structure, block_set.blocks)
        ]

    def cut(self, most: int = PART) -> PartedStrategy:
        return PartedBlocks(self, self.list_tables(), most)

    def weigh_arrays(
        self, combinations: Sequence[Mapping[str, FloatArray]]
    ) -> Iterator[BlockWeights]:
        return weigh_rows(self, [find_block_rows(self, one) for one in combinations])

    def weigh_products(self, combinations: Sequence[Products]) -> Iterator[BlockWeights]:
        return weigh_rows(self, find_boxed_rows(self, combinations))

    def list_measured(self) -> Iterator[MeasuredBlock]:
        for block_set, i, block, basis in self._list_bases():
            yield block, block_set.M[i].astype(np.float64) @ basis

    def list_covariances(self, noise_std: float) -> Iterator[BlockCovariance]:
        for block_set, i, block, basis in self._list_bases():
            inverse = solve_triangular(block_set.M[i].astype(np.float64), np.eye(len(basis)))
            yield block, basis, noise_std**2 * (inverse @ inverse.T)

    def _list_bases(self) -> Iterator[tuple[BlockSet, int, int, IntArray]]:
        """List each block's set, its index in the set, its number, and its basis matrix (n, D)."""
        for block_set in self.block_sets:
            for i, block in enumerate(block_set.blocks.tolist()):
                matrix = self.structure.build_block_matrix(block)
                yield block_set, i, block, block_set.basis.build_matrix(matrix)

    def _check_integers(self, block_set: BlockSet) -> None:
        """Check one block set; see `check_blocks`."""
        structure, blocks, M = self.structure, block_set.blocks, block_set.M
        fits = blocks.dtype == np.int64 and blocks.ndim == 1 and len(blocks) > 0
        fits = fits and 0 <= int(blocks.min()) <= int(blocks.max()) < len(structure.blocks)
        if not fits:
            raise PlanError(BAD_INTEGERS)
        self.check_block_set(block_set)
        block_set.basis.check_form(structure.build_block_matrix(int(blocks[0])))
        n = block_set.basis.size
        fits = self.has_grades or not block_set.multiples
        fits = fits and M.dtype == np.int64 and M.shape == (len(blocks), n, n)
        at = np.arange(n)
        if not fits or np.tril(M, -1).any() or (M[:, at, at] <= 0).any():
            raise PlanError(BAD_INTEGERS)
        if find_largest_entry(M) >= MAX_ENTRY:
            raise PlanError(LARGE_INTEGERS)


class MatrixStrategy(BlockSetStrategy[M]):
    """The strategies of `MatrixStructure`."""

    @property
    def peaks_at_one_cell(self) -> bool:
        return super().peaks_at_one_cell and self.structure.has_numbers

    def compute_record_cost(self, claimed: int | None = None) -> StrategyCost:
        if self.structure.has_numbers:
            return super().compute_record_cost(claimed)
        columns: list[tuple[int, AnyArray]] = []
        entry = 1
        for block_set in self.block_sets:
            (square,) = self.structure.subsets.multiply(
                [matrix.column_square for matrix in self.attribute_matrices], block_set.blocks
            )
            (largest_entry,) = self.structure.subsets.multiply(
                [matrix.largest_entry for matrix in self.attribute_matrices], block_set.blocks
            )
            A = multiply_basis(self.structure, block_set)
            columns.append((int(square), A))
            entry = max(entry, int(largest_entry) * find_largest_entry(A))
        return StrategyCost(*sum_column_squares(columns), SATURATION // entry)

    def upper_record_variances(self) -> FloatArray:
        structure = self.structure
        rounding = 1 + gamma(len(structure.blocks) + 64)
        if structure.has_numbers:
            of_blocks = np.zeros(len(structure.blocks))  # public blocks have no noise
            for block_set in self.block_sets:
                precision = compute_precisions(structure, block_set.blocks)
                m = block_set.M[:, 0, 0].astype(np.float64)
                of_blocks[block_set.blocks] += 1 / (precision * m * m)
            return structure.incidence @ of_blocks * rounding
        variances = np.zeros(structure.rows)
        for block_set in self.block_sets:
            (precision,) = compute_precisions(structure, block_set.blocks)
            queries = structure.gather_queries(int(block_set.blocks[0]))
            L, L_error = block_set.basis.represent(queries.matrix)
            if structure.public_attributes is not None:
                # Each entry may be the difference of two coefficients, rounded once.
                L_error = L_error + upper_norm(L, axis=1) * (2 * UNIT_ROUNDOFF)
            unit = upper_solution_norms(L, block_set.M[0].astype(np.float64), L_error=L_error)
            variances[queries.rows] += unit * unit * queries.variance_multiples / precision
        return variances * rounding

    def check_block_set(self, block_set: BlockSet) -> None:
        if self.structure.has_numbers:
            super().check_block_set(block_set)
        elif len(block_set.blocks) != 1:
            raise PlanError(BAD_INTEGERS)


def multiply_basis(structure: MatrixStructure, block_set: BlockSet) -> AnyArray:
    """Compute M B (n, D) of the one block of a set, exactly."""
    matrix = structure.build_block_matrix(int(block_set.blocks[0]))
    return multiply_exactly(block_set.M[0], block_set.basis.build_matrix(matrix))


def sum_column_squares(parts: list[tuple[int, AnyArray]]) -> tuple[int, FloatArray]:
    """Sum multiple |A e_i|^2 over the parts (multiple, A), for each column i.

    Floats pick the columns that may attain the largest sum, and integers decide.

    Returns:
        The largest sum, exact, and upper bounds on all sums, shape (columns,).
    """
    near = np.sum([float(f) * (A.astype(np.float64) ** 2).sum(axis=0) for f, A in parts], axis=0)
    error = gamma(sum(len(A) for _, A in parts) + 4)
    candidates = np.flatnonzero(near >= near.max() * (1 - 4 * error))
    stacked = [(f, A[:, candidates].T.tolist()) for f, A in parts]
    different = {tuple(map(tuple, column)) for column in zip(*(A for _, A in stacked), strict=True)}
    multiples = [f for f, _ in parts]
    exact = max(
        sum(f * sum(a * a for a in entries) for f, entries in zip(multiples, column, strict=True))
        for column in different
    )
    return exact, np.asarray(near * (1 + error))
