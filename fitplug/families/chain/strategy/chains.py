"""Strategies of chains: integer matrices of the chain, and a number for each block.

With nested triangles each block has its own integer matrix A, near the optimum. A is lower
triangular and invertible: within leaves of few cells it is any triangle, and farther back a row
depends on the cells only through weighted sums, the first of which is the count itself. So the
errors of earlier leaves do not add up in the estimate of a prefix. The answers are running sums of
integers, and cost and variances are those of the integers (docs/theory/chains.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from fitplug.errors import BAD_INTEGERS, PlanError
from fitplug.families.base.attribute_matrices import AttributeMatrix
from fitplug.families.base.block_sets import BlockSet
from fitplug.families.base.contrasts import build_contrasts
from fitplug.families.base.mechanism import SATURATION, StrategyCost
from fitplug.families.base.structure import Structure
from fitplug.families.blocks.strategy.matrices import BlockSetStrategy
from fitplug.families.chain.shape.chains import ChainStructure
from fitplug.families.chain.strategy.convolutions import ChainMatrix
from fitplug.families.chain.strategy.largest_column import find_largest_column
from fitplug.families.chain.strategy.nested_triangles import (
    NestedInverse,
    NestedTriangles,
    halve,
    invert_nested,
    keep_cells,
    multiply_nested,
    multiply_nested_transposed,
    square_columns,
    upper_entry,
    upper_product_errors,
)
from fitplug.numeric import (
    UNIT_ROUNDOFF,
    AnyArray,
    FloatArray,
    IntArray,
    ceil_float,
    find_largest_entry,
    frozen_property,
    gamma,
    make_room,
)
from fitplug.workload import Factor

_MOST = 2**40
"""The bound on all integers: larger ones would leave no room for records."""

_MOST_LEVELS = 24


@dataclass(frozen=True, eq=False)
class NestedChain(AttributeMatrix):
    """The integer matrices of a chain in all blocks; the methods use those of `block`.

    Attributes:
        cells: n, shape (1,), int64.
        triangles: The triangles of the leaves in each block, shape (blocks, N, b, b), int64.
        sums: V in each block, shape (blocks, D, N b / 2, K), int64.
        weights: U in each block, likewise.
        grounded: Whether the total is public in each block, which then measures all cells but the
            last, shape (blocks,), 0 or 1.
        block: The block that the methods use.
    """

    cells: IntArray
    triangles: IntArray
    sums: IntArray
    weights: IntArray
    grounded: IntArray
    block: int = 0

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray]) -> NestedChain:
        """Read the matrices from the arrays of a plan file.

        Raises:
            KeyError: If one is missing.
        """
        return cls(
            arrays["cells"],
            arrays["triangles"],
            arrays["sums"],
            arrays["weights"],
            arrays["grounded"],
        )

    @property
    def arrays_in_file(self) -> Mapping[str, IntArray]:
        return {
            "cells": self.cells,
            "triangles": self.triangles,
            "sums": self.sums,
            "weights": self.weights,
            "grounded": self.grounded,
        }

    @cached_property
    def views(self) -> tuple[NestedChain, ...]:
        """This object for each block."""
        return tuple(replace(self, block=block) for block in range(len(self.triangles)))

    def of_block(self, block: int) -> NestedChain:
        return self.views[block]

    @property
    def n(self) -> int:
        return int(self.cells[0])

    @property
    def rows(self) -> int:
        return self.n

    @property
    def measured(self) -> int:
        """The number of cells that the block measures; other answers are noise alone."""
        return self.n - int(self.grounded[self.block])

    @property
    def parts(self) -> NestedTriangles:
        """The block's matrix as nested triangles."""
        at = self.block
        return NestedTriangles(self.triangles[at], self.sums[at], self.weights[at])

    def is_equal(self, block: int, other: int) -> bool:
        """Tell whether two blocks have the same matrix."""
        arrays = self.triangles, self.sums, self.weights
        return all(np.array_equal(array[block], array[other]) for array in arrays)

    def has_form(self, n: int) -> bool:
        arrays = [self.cells, self.triangles, self.sums, self.weights, self.grounded]
        if any(a.dtype != np.int64 for a in arrays) or self.cells.shape != (1,) or self.n != n:
            return False
        if self.triangles.ndim != 4 or self.sums.ndim != 4 or not self.triangles.size:
            return False
        blocks, leaves, b, _ = self.triangles.shape
        levels, K = leaves.bit_length() - 1, self.sums.shape[-1]
        shapes = [(blocks, leaves, b, b), *[(blocks, levels, leaves * b // 2, K)] * 2, (blocks,)]
        if leaves != 1 << levels or [a.shape for a in arrays[1:]] != shapes or K < 1:
            return False
        if not np.isin(self.grounded, (0, 1)).all():
            return False
        fits = levels <= _MOST_LEVELS and leaves * (b - 1) < n <= leaves * b
        return fits and all(self.of_block(block)._has_form for block in range(blocks))

    @property
    def _has_form(self) -> bool:
        """Whether the block's integers are in range, and trivial for cells that do not exist."""
        A, n = self.parts, self.measured
        b = A.triangles.shape[1]
        if max(map(find_largest_entry, (part for part in A if part.size))) >= _MOST:
            return False
        exists = np.arange(A.cells) < n
        if np.triu(A.triangles, 1).any() or (np.einsum("nii->ni", A.triangles) < 1).any():
            return False
        missing = ~exists.reshape(-1, b)
        if (
            A.triangles[missing]
            != np.broadcast_to(np.eye(b, dtype=np.int64), A.triangles.shape)[missing]
        ).any():
            return False
        for level in range(len(A.sums)):
            halves = halve(exists[:, None], b, level)
            used = np.broadcast_to(halves[:, 1].any(axis=1, keepdims=True), halves[:, 0].shape)
            if A.weights[level][~halves[:, 1].ravel()].any():
                return False
            V = A.sums[level]
            if V[~used.ravel()].any() or (V[used.ravel(), 0] != 1).any():
                return False
        return True

    @cached_property
    def column_square(self) -> int:
        return find_largest_column([self], [1])

    @frozen_property
    def column_squares(self) -> tuple[FloatArray, FloatArray]:
        """The squared norms of all columns, and bounds on their errors, shape (n,) each."""
        squares, errors = square_columns(self.existing.astype(np.float64))
        return squares[: self.n], errors[: self.n]

    @property
    def existing(self) -> NestedTriangles:
        """The matrix, with zero rows for cells that do not exist."""
        return keep_cells(self.parts, self.measured)

    def compute_column(self, i: int) -> AnyArray:
        """Compute a cell's column, exactly, shape (n,)."""
        x = np.zeros(self.n, dtype=np.int64)
        x[i] = 1
        return self.apply(make_room(x, self.growth), 0)

    def square_column(self, i: int) -> int:
        """Compute the exact squared norm of a cell's column."""
        A, b = self.existing, self.triangles.shape[2]
        leaf, at = divmod(i, b)
        entries = [A.triangles[leaf, :, at]]
        for level in range(len(A.sums)):
            half = b << level
            node, place = divmod(i, 2 * half)
            if place < half:
                mine = slice(node * half, (node + 1) * half)
                V = A.sums[level][node * half + place].astype(object)
                entries.append(A.weights[level][mine].astype(object) @ V)
        return sum(int(x) ** 2 for column in entries for x in column.tolist())

    @cached_property
    def largest_entry(self) -> int:
        """An upper bound on the largest entry."""
        return int(upper_entry(self.parts.astype(object)))

    @cached_property
    def growth(self) -> int:
        ones = np.ones((self.parts.cells, 1), dtype=object)
        return int(multiply_nested(self.parts.take_absolute().astype(object), ones).max())

    def apply(self, values: AnyArray, axis: int) -> AnyArray:
        A = self.parts if values.dtype == np.int64 else self.parts.astype(object)
        return self._multiply(values, axis, lambda x: multiply_nested(A, x))

    def invert(self, values: AnyArray, axis: int) -> FloatArray:
        E = self.inverse.inverse
        x = self._multiply(values.astype(np.float64), axis, lambda x: multiply_nested(E, x))
        if self.measured < self.n:
            np.moveaxis(x, axis, 0)[-1] = -x.sum(axis=axis)
        return x

    def adjoint(self, values: FloatArray, axis: int) -> FloatArray:
        E = self.inverse.inverse
        return self._multiply(
            self._ground(values, axis), axis, lambda x: multiply_nested_transposed(E, x)
        )

    def upper_adjoint_error(self, values: FloatArray, axis: int) -> float:
        A, E, levels = self.floats, self.inverse, len(self.sums[0])

        def upper_error(w: FloatArray) -> FloatArray:
            y = multiply_nested_transposed(E.inverse, w)
            rest = np.abs(w - multiply_nested_transposed(A, y)) + UNIT_ROUNDOFF * np.abs(w)
            rest += upper_product_errors(A.take_absolute(), y, levels, transposed=True)
            error = (rest * E.cell_stds[:, None]).sum(axis=0) * (1 + gamma(A.cells + 8))
            return np.broadcast_to(error, w.shape)

        grounded = self._ground(values, axis)
        return float(np.max(self._multiply(grounded, axis, upper_error), initial=0.0))

    def compute_reference(self) -> FloatArray:
        """The last cell is a public total minus the other cells, if totals are public."""
        reference = np.zeros(self.n)
        reference[-1] = self.grounded.any()
        return reference

    def upper_variance_parts(self, factor: Factor) -> FloatArray:
        """Bound mu^2 and gamma of prefixes and single cells from above, (rows, 2).

        mu^2, the part of the total, is given as 0: the total is measured too, or public.
        """
        first, last = factor.intervals().T
        is_prefix, stds = first == 0, self.inverse
        found = np.where(is_prefix, stds.prefix_stds[last], stds.cell_stds[last])
        if self.measured < self.n:
            others = stds.prefix_stds[self.n - 2]
            found = np.where(last == self.n - 1, np.where(is_prefix, 0.0, others), found)
        return np.stack([np.zeros(len(found)), found * found * (1 + gamma(4))], axis=1)

    def _ground(self, values: FloatArray, axis: int) -> FloatArray:
        """Subtract the last coefficient of queries from all, if the total is public."""
        if self.measured == self.n:
            return values
        return values - np.take(values, [-1], axis)

    def _multiply(
        self, values: AnyArray, axis: int, multiply: Callable[[AnyArray], AnyArray]
    ) -> AnyArray:
        """Multiply along an axis of n cells, padded with zeros for cells that do not exist."""
        moved, n = np.moveaxis(values, axis, 0), self.measured
        x = np.zeros((self.parts.cells, moved[:1].size), dtype=values.dtype)
        x[:n] = moved[:n].reshape(n, -1)
        return np.moveaxis(multiply(x)[: self.n].reshape(moved.shape), 0, axis)

    @property
    def floats(self) -> NestedTriangles:
        return self.parts.astype(np.float64)

    @frozen_property
    def inverse(self) -> NestedInverse:
        return invert_nested(self.floats)


class ChainStrategy(BlockSetStrategy[ChainStructure]):
    """The strategies of `ChainStructure`."""

    @property
    def chain_matrix(self) -> AttributeMatrix:
        """The matrix of the chain."""
        return self.attribute_matrices[self.structure.chain_position]

    @property
    def peaks_at_one_cell(self) -> bool:
        return super().peaks_at_one_cell and isinstance(self.chain_matrix, ChainMatrix)

    def upper_record_variances(self) -> FloatArray:
        structure, subsets, matrix = self.structure, self.structure.subsets, self.chain_matrix
        scales = compute_block_scales(structure, self.block_sets)
        groups, blocks = subsets.pairs
        multiples = subsets.variance_multiples * scales[blocks]
        variances, starts = np.zeros(structure.rows), structure.row_starts
        for g, block, multiple in zip(groups, blocks, multiples, strict=True):
            if int(block) not in structure.noisy_set:
                continue
            factor = structure.find_factors(g)[structure.chain_position]
            assert factor is not None
            gammas = matrix.of_block(int(block)).upper_variance_parts(factor)[:, 1]
            variances[starts[g] : starts[g + 1]] += multiple * gammas
        return np.asarray(variances * (1 + gamma(len(structure.blocks) + 64)))

    @classmethod
    def read_attribute_matrices(
        cls, structure: Structure, arrays: Sequence[Mapping[str, AnyArray]]
    ) -> tuple[AttributeMatrix, ...]:
        assert isinstance(structure, ChainStructure)
        of_chain = arrays[structure.chain_position]
        kind = NestedChain if "triangles" in of_chain else ChainMatrix
        return place_chain(structure, kind.from_arrays(of_chain))

    def check_form(self) -> None:
        super().check_form()
        matrix = self.chain_matrix
        if not isinstance(matrix, NestedChain):
            return
        if matrix.grounded.tolist() != self.structure.grounded.tolist():
            raise PlanError(BAD_INTEGERS)

    def compute_record_cost(self, claimed: int | None = None) -> StrategyCost:
        matrix = self.chain_matrix
        if isinstance(matrix, ChainMatrix):
            return super().compute_record_cost(claimed)
        multiples, entry = [], 1
        chains: list[Any] = []
        for block, of_squares, of_entries in self.multiply_others():
            chains.append(matrix.of_block(block))
            multiples.append(of_squares)
            entry = max(entry, of_entries * chains[-1].largest_entry)
        square = find_largest_column(chains, multiples)
        column_squares = np.array([ceil_float(Fraction(square))])
        return StrategyCost(square, column_squares, SATURATION // entry)

    def multiply_others(self) -> Iterator[tuple[int, int, int]]:
        """Multiply, per block, the largest squares and entries of its other attributes."""
        at, subsets = self.structure.chain_position, self.structure.subsets
        every = list(enumerate(self.attribute_matrices))
        squares = [1 if a == at else A.column_square for a, A in every]
        entries = [1 if a == at else A.largest_entry for a, A in every]
        for block_set in self.block_sets:
            of_squares = subsets.multiply(squares, block_set.blocks).tolist()
            of_entries = subsets.multiply(entries, block_set.blocks).tolist()
            for i, block in enumerate(block_set.blocks.tolist()):
                m = int(block_set.M[i, 0, 0])
                yield block, of_squares[i] * m * m, of_entries[i] * m


def place_chain(structure: ChainStructure, matrix: AttributeMatrix) -> tuple[AttributeMatrix, ...]:
    """Combine the chain's matrix with the contrasts of the symmetric attributes."""
    matrices: list[AttributeMatrix] = [
        matrix if name == structure.chain else build_contrasts(n)
        for name, n in zip(structure.block_attributes, structure.sizes, strict=True)
    ]
    return tuple(matrices)


def compute_block_scales(structure: ChainStructure, block_sets: tuple[BlockSet, ...]) -> FloatArray:
    """Compute each block's z_A divided by the precision of its contrasts, shape (b,)."""
    precisions = [build_contrasts(n).precision for n in structure.sizes]
    precisions[structure.chain_position] = 1
    scales = np.zeros(len(structure.blocks))
    for block_set in block_sets:
        contrast_precisions = structure.subsets.multiply(precisions, block_set.blocks).astype(
            np.float64
        )
        M = block_set.M[:, 0, 0].astype(np.float64)
        scales[block_set.blocks] = 1 / (contrast_precisions * M * M)
    return scales
