"""The integer strategy: what really runs, y = A x + z with A integer and z discrete Gaussian.

Block A of the structure measures (x)_{a in A} A_a (x)_{a not in A} 1' (x) M B, with A_a the integer
matrix of attribute a (`fitplug.families.base.attribute_matrices`), B an integer basis of the
block's queries over the dense cells and M = round(S G), where G'G = Sigma_A^-1 in the coordinates
of B. The privacy guarantee is a rational number, rho = max_v |A v|^2 / (2 sigma^2) over the
differences v between neighbours. Row j of a block has the estimate L_j M^-1 y, unbiased, whose
variance is at most sigma^2 |L_j M^-1|^2 / precision: a discrete Gaussian N_Z(0, sigma^2) has
variance at most sigma^2 (Canonne, Kamath, Steinke 2020). See docs/theory/integer-mechanism.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fitplug.families.base.attribute_matrices import AttributeMatrix, spread_table
from fitplug.families.base.basis import Basis
from fitplug.families.base.structure import Structure
from fitplug.numeric import (
    UNIT_ROUNDOFF,
    FloatArray,
    IntArray,
    ceil_float,
    ceil_sqrt,
    frozen_property,
    gamma,
)


@dataclass(frozen=True, eq=False)
class BlockSet:
    """Blocks that share a basis: all blocks that are numbers, or one that is a matrix.

    Attributes:
        blocks: The structure's blocks, shape (b,).
        basis: B, shape (n, D).
        M: Upper triangular matrices with positive diagonals, shape (b, n, n).
        multiples: What the answers of each tuple of grades of a block's attributes are multiplied
            by beside M, shape (K_1, ..., K_m) for m attributes; none if no attribute has grades.
    """

    blocks: IntArray
    basis: Basis
    M: IntArray
    multiples: tuple[IntArray, ...] = ()


@dataclass(frozen=True, eq=False)
class Representation:
    """What the rows of the blocks of a set are in their basis.

    Attributes:
        structure: The structure.
        block_set: The blocks; all of them have the matrix of the first.
    """

    structure: Structure
    block_set: BlockSet

    @frozen_property
    def rows(self) -> tuple[FloatArray, FloatArray]:
        """L, shape (r, n), and bounds on the 2-norm of its rows' errors, shape (r,)."""
        matrix = self.structure.build_block_matrix(int(self.block_set.blocks[0]))
        return self.block_set.basis.represent(matrix)


class Integers(NamedTuple):
    """The integers of a strategy, which decide what it measures.

    Attributes:
        block_sets: Each block of the structure is in one of them; none if blocks are trees.
        attribute_matrices: A_a of each of the structure's `block_attributes`.
        tree_blocks: The blocks in their order, if they are trees.
    """

    block_sets: tuple[BlockSet, ...]
    attribute_matrices: tuple[AttributeMatrix, ...]
    tree_blocks: tuple[Any, ...] = ()


@dataclass(frozen=True, eq=False)
class IntegerStrategy:
    """An integer strategy for a structure.

    Attributes:
        structure: The structure.
        block_sets: Each block of the structure is in one of them; none if blocks are trees.
        attribute_matrices: A_a of each of the structure's `block_attributes`.
        sensitivity_squared: max_v |A v|^2 over the differences v between neighbours, or an upper
            bound on it.
        column_squares: Upper bounds on the largest |A v|^2 of each cell, shape (profile_size,).
        unit_variances: Upper bounds on the variances of the structure's rows at noise variance 1.
        max_records: With no more records than this, no answer is clamped and nothing overflows.
        tree_blocks: The blocks in their order, if they are trees.
    """

    structure: Structure
    block_sets: tuple[BlockSet, ...]
    attribute_matrices: tuple[AttributeMatrix, ...]
    sensitivity_squared: int
    column_squares: FloatArray
    unit_variances: FloatArray
    max_records: int
    tree_blocks: tuple[Any, ...] = ()

    @property
    def integers(self) -> Integers:
        """What decides all other attributes."""
        return Integers(self.block_sets, self.attribute_matrices, self.tree_blocks)

    @property
    def sensitivity(self) -> float:
        """The L2 sensitivity in the structure's unit of privacy, rounded up to a float."""
        return ceil_sqrt(Fraction(self.sensitivity_squared))

    @property
    def released_size(self) -> int:
        """The number of integers of a release: the answers, and public totals after them."""
        return self.size + self.structure.public_size

    @cached_property
    def size(self) -> int:
        """The number of answers that it measures, to which noise is added."""
        rows = [matrix.rows for matrix in self.attribute_matrices]
        widths = [(own.blocks, own.basis.size) for own in self.block_sets]
        widths += [
            (np.array([own.block], dtype=np.int64), own.count_answers(self.structure))
            for own in self.tree_blocks
        ]
        multiply = self.structure.subsets.multiply
        return sum(width * int(multiply(rows, blocks).sum()) for blocks, width in widths)

    @cached_property
    def positions(self) -> Mapping[int, tuple[int, int]]:
        """The index of each block's set, and the block's index within that set."""
        return {
            block: (number, i)
            for number, block_set in enumerate(self.block_sets)
            for i, block in enumerate(block_set.blocks.tolist())
        }

    @cached_property
    def representations(self) -> tuple[Representation, ...]:
        """What the rows of each block set are in its basis, each computed when it is read."""
        return tuple(Representation(self.structure, own) for own in self.block_sets)

    def represent(self, block: int, group: int) -> tuple[FloatArray, FloatArray]:
        """Represent a group's rows in a block's basis.

        Returns:
            L, shape (r, n), and bounds on the 2-norm of its rows' errors, shape (r,).
        """
        rows_of_group = self.structure.find_rows(block, group)
        if block not in self.positions:
            # Public totals answer the block, which is one number.
            count = rows_of_group.stop - rows_of_group.start
            return np.ones((count, 1)), np.zeros(count)
        L, errors = self.representations[self.positions[block][0]].rows
        return L[rows_of_group], errors[rows_of_group]

    def find_matrix(self, attribute: int, block: int) -> AttributeMatrix:
        """Find the integer matrix that a block measures of one of its attributes."""
        return self.attribute_matrices[attribute].of_block(block)

    def build_block_matrix(self, block: int) -> FloatArray:
        """Build M of a block as floats, shape (n, n)."""
        number, i = self.positions[block]
        return np.asarray(self.block_sets[number].M[i].astype(np.float64))

    def find_multiples(self, block: int) -> IntArray | None:
        """Find what a block multiplies the answers of each tuple of grades by, beside M.

        Returns:
            An axis for each attribute of the block, or None if its answers are not multiplied.
        """
        number, i = self.positions.get(block, (-1, 0))
        if number < 0 or not self.block_sets[number].multiples:
            return None
        return self.block_sets[number].multiples[i]

    def spread_multiples(self, block: int, *, adjoint: bool = False) -> IntArray | None:
        """Spread what a block multiplies its answers by, beside M, over the rows of its matrices.

        Args:
            block: A block.
            adjoint: Whether to spread over the entries of the matrices' adjoints.

        Returns:
            An axis for each attribute of the block, or None if its answers are not multiplied.
        """
        if (multiples := self.find_multiples(block)) is None:
            return None
        (own,) = self.structure.subsets.list_attributes([block])
        labels = []
        for matrix in (self.find_matrix(a, block) for a in own):
            if (grades := matrix.grades) is None:
                entries = matrix.adjoint(np.zeros(matrix.n), 0).size if adjoint else matrix.rows
                labels.append(np.zeros(entries, dtype=np.int64))
            else:
                labels.append(grades.adjoint if adjoint else grades.rows)
        return spread_table(multiples, labels)

    def compute_rho(self, noise_std: float) -> Fraction:
        """Compute rho in the structure's unit of privacy, at noise N_Z(0, noise_std^2)."""
        return Fraction(self.sensitivity_squared) / (2 * Fraction(noise_std) ** 2)

    def upper_rho(self, noise_std: float) -> float:
        """Bound rho from above through the rounded sensitivity, as OpenDP's own map does."""
        return ceil_float((Fraction(self.sensitivity) / Fraction(noise_std)) ** 2 / 2)

    def upper_profile(self, noise_std: float) -> FloatArray:
        """Bound the privacy cost squared of each cell from above, shape (profile_size,).

        No bound is above twice the exact rho, rounded up.
        """
        cost = self.column_squares / (noise_std * noise_std) * (1 + 4 * UNIT_ROUNDOFF)
        return np.minimum(cost, ceil_float(2 * self.compute_rho(noise_std)))

    def upper_variances(self, noise_std: float) -> FloatArray:
        """Bound the variances of the structure's rows from above, shape (rows,)."""
        return noise_std * noise_std * self.unit_variances * (1 + 4 * UNIT_ROUNDOFF)

    def upper_total_variance(self, noise_std: float) -> float:
        """Bound the sum of the variances of all queries from above."""
        total = float((self.structure.repeats * self.upper_variances(noise_std)).sum())
        return total * (1 + gamma(self.structure.rows + 1))


def meets_targets(variances: FloatArray, scale: float, targets: FloatArray) -> bool:
    """Tell whether variances <= scale * targets holds exactly, and for the rounded product too."""
    allowed = targets if scale == 1.0 else np.nextafter(scale * targets, 0.0)
    return bool((variances <= allowed).all())
