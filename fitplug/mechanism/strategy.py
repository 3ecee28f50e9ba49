"""The integer strategy: what really runs, y = A x + z with A integer and z discrete Gaussian.

Block A of the structure measures (x)_{a in A} H_a (x)_{a not in A} 1' (x) M B, with H_a integer
contrasts (of an ordered attribute, any of `attribute_matrices`), B an integer basis of the block's
queries over the dense cells and M = round(S G), where G'G = Sigma_A^-1 in the coordinates of B. The
privacy guarantee is a rational number, rho = max_i |A e_i|^2 / (2 sigma^2); row j of a block has
the estimate L_j M^-1 y, unbiased, with variance at most sigma^2 |L_j M^-1|^2 / precision (a
discrete Gaussian N_Z(0, sigma^2) has variance at most sigma^2: Canonne, Kamath, Steinke 2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fitplug.mechanism.attribute_matrices import AttributeMatrix
from fitplug.mechanism.basis import Basis
from fitplug.mechanism.contrasts import contrast
from fitplug.numeric import (
    UNIT_ROUNDOFF,
    AnyArray,
    FloatArray,
    IntArray,
    bound_solution_norms,
    ceil_float,
    ceil_sqrt,
    find_largest_entry,
    freeze,
    gamma,
    multiply_exactly,
)
from fitplug.structure import Structure, batch_groups

MAX_ENTRY = 2**52
"""Bound on the entries of M, which floats then hold exactly."""

LEAST_NOISE, LARGEST_NOISE = 1.0, 2.0**55
"""Least and most noise (std) of a plan. Below, answers are next to exact; above, they might not
stay within 64 bits, 128 standard deviations away."""

SATURATION = 2**62
"""Strategy answers are clamped here: see `max_records`. The clamp costs no privacy, and so nothing
that is done depends on whether the exact answers reach it."""

FEWEST_RECORDS = 10**9 // 2
"""A plan whose integers hold fewer records, wherever they lie, is none."""


@dataclass(frozen=True, eq=False)
class BlockSet:
    """Blocks that share a basis: all scalar ones, or a single other one.

    blocks: (b,), of the structure. basis: B (n, D). M: upper triangular with positive diagonals,
    shape (b, n, n).
    """

    blocks: IntArray
    basis: Basis
    M: IntArray


@dataclass(frozen=True, eq=False)
class Strategy:
    """An integer strategy for a structure.

    block_sets: each block of the structure is in one. attribute_matrices: of the structure's split attributes.
    sensitivity_squared: max_i |A e_i|^2, exact. column_squares: upper bounds (D,) on |A e_i|^2.
    unit_variances: upper bounds on the variances of the structure's rows at noise variance 1.
    max_records: with no more records than this, no answer is clamped and nothing overflows.
    """

    structure: Structure
    block_sets: tuple[BlockSet, ...]
    attribute_matrices: tuple[AttributeMatrix, ...]
    sensitivity_squared: int
    column_squares: FloatArray
    unit_variances: FloatArray
    max_records: int

    @property
    def sensitivity(self) -> float:
        """The L2 sensitivity to one record, rounded up to a float."""
        return ceil_sqrt(Fraction(self.sensitivity_squared))

    @cached_property
    def size(self) -> int:
        """How many answers it measures."""
        return sum(
            block_set.basis.size * int(self.products(block_set.blocks, "rows").sum())
            for block_set in self.block_sets
        )

    def representation(self, block: int) -> tuple[FloatArray, FloatArray]:
        """L (r, n) of the rows of a block's piece in its basis, and bounds (r,) on their errors."""
        if block not in self._representations:
            basis, matrix = self.places[block][0].basis, self.structure.piece(block).matrix
            self._representations[block] = freeze(basis.representation(matrix))
        return self._representations[block]

    def products(self, blocks: IntArray, what: str) -> npt.NDArray[np.object_]:
        """Of each block, the product of a number of its attributes' attribute_matrices; exact, shape (b,)."""
        return products(self.structure, self.attribute_matrices, blocks, what)

    @cached_property
    def places(self) -> dict[int, tuple[BlockSet, int]]:
        """The block_set of each block, and its place there."""
        return {b: (f, i) for f in self.block_sets for i, b in enumerate(f.blocks.tolist())}

    @cached_property
    def _representations(self) -> dict[int, tuple[FloatArray, FloatArray]]:
        return {}

    def rho_exact(self, noise_std: float) -> Fraction:
        """rho for one record added or removed, at noise N_Z(0, noise_std^2)."""
        return Fraction(self.sensitivity_squared) / (2 * Fraction(noise_std) ** 2)

    def rho(self, noise_std: float) -> float:
        """`rho_exact` rounded up through the rounded sensitivity, as OpenDP's own map does."""
        return ceil_float((Fraction(self.sensitivity) / Fraction(noise_std)) ** 2 / 2)

    def profile(self, noise_std: float) -> FloatArray:
        """Upper bounds (D,) on the privacy cost squared of each cell, none above twice
        `rho_exact`, rounded up.
        """
        cost = self.column_squares / (noise_std * noise_std) * (1 + 4 * UNIT_ROUNDOFF)
        return np.minimum(cost, ceil_float(2 * self.rho_exact(noise_std)))

    def variances(self, noise_std: float) -> FloatArray:
        """Upper bounds on the variances of the structure's rows."""
        return noise_std * noise_std * self.unit_variances * (1 + 4 * UNIT_ROUNDOFF)

    def total_variance(self, noise_std: float) -> float:
        """An upper bound on the sum of the variances of all queries."""
        total = float((self.structure.repeats * self.variances(noise_std)).sum())
        return total * (1 + gamma(self.structure.rows + 1))


def build_strategy(
    structure: Structure,
    block_sets: tuple[BlockSet, ...],
    attribute_matrices: tuple[AttributeMatrix, ...],
) -> Strategy:
    """The strategy of these block_sets with its exact sensitivity and proven variances.

    Raises DesignError if a basis does not span its block, or variances cannot be bounded.
    """
    exact, above, records = cost(structure, block_sets, attribute_matrices)
    variances = unit_variances(structure, block_sets, attribute_matrices)
    return Strategy(structure, block_sets, attribute_matrices, exact, above, variances, records)


def make_contrasts(structure: Structure) -> tuple[AttributeMatrix, ...]:
    """The attribute_matrices of symmetric attributes."""
    return tuple(contrast(n) for n in structure.sizes)


def cost(
    structure: Structure,
    block_sets: tuple[BlockSet, ...],
    attribute_matrices: tuple[AttributeMatrix, ...],
) -> tuple[int, FloatArray, int]:
    """max_i |A e_i|^2, exact; upper bounds (D,) on |A e_i|^2; and the most records of which no
    answer of A leaves the range that is released as it is.
    """
    columns: list[tuple[int, AnyArray]] = []
    entry = 1
    for block_set in block_sets:
        squares = products(structure, attribute_matrices, block_set.blocks, "column_square")
        entries = products(structure, attribute_matrices, block_set.blocks, "entry")
        if structure.scalar:
            m = block_set.M[:, 0, 0].astype(object)
            # One column, to which every block adds: as if one block had it all. Where cells of
            # ordered attributes differ, some cell has the most of every attribute at once.
            columns.append((int((squares * m * m).sum()), np.ones((1, 1), dtype=np.int64)))
            entry = max(entry, int((entries * m).max()))
        else:
            matrix = structure.piece(int(block_set.blocks[0])).matrix
            A = multiply_exactly(block_set.M[0], block_set.basis.matrix(matrix))
            columns.append((int(squares[0]), A))
            entry = max(entry, int(entries[0]) * find_largest_entry(A))
    return *column_squares(columns), SATURATION // entry


def unit_variances(
    structure: Structure,
    block_sets: tuple[BlockSet, ...],
    attribute_matrices: tuple[AttributeMatrix, ...],
) -> FloatArray:
    """Upper bounds on the variances of the structure's rows at noise variance 1. Raises DesignError
    if a basis does not span its block, or they cannot be bounded.
    """
    if structure.ordered:
        return _split_variances(structure, block_sets, attribute_matrices)
    variances = np.zeros(structure.rows)
    for block_set in block_sets:
        precision = products(structure, attribute_matrices, block_set.blocks, "precision").astype(
            np.float64
        )
        if structure.scalar:
            m = block_set.M[:, 0, 0].astype(np.float64)
            variances += structure.incidence[:, block_set.blocks] @ (1 / (precision * m * m))
        else:
            piece = structure.piece(int(block_set.blocks[0]))
            L, L_error = block_set.basis.representation(piece.matrix)
            unit = bound_solution_norms(L, block_set.M[0].astype(np.float64), L_error=L_error)
            variances[piece.rows] += unit * unit * piece.shares / precision[0]
    return variances * (1 + gamma(len(structure.blocks) + 64))


def _split_variances(
    structure: Structure,
    block_sets: tuple[BlockSet, ...],
    attribute_matrices: tuple[AttributeMatrix, ...],
) -> FloatArray:
    """`unit_variances` in the residual family."""
    z = np.empty(len(structure.blocks))
    for block_set in block_sets:
        z[block_set.blocks] = block_set.M[:, 0, 0].astype(np.float64) ** -2.0
    batched = batch_groups(structure)
    tables = [
        attribute_matrices[asked.attribute].moments(asked.factor) for asked in batched.factors
    ]
    # Sums of 2^m products of m + 1 numbers, all of them >= 0.
    return batched.by_row(batched.variances(tables, z)) * (1 + gamma(64))


def column_squares(parts: list[tuple[int, AnyArray]]) -> tuple[int, FloatArray]:
    """Of sum over parts (factor, A) of factor |A e_i|^2: the largest, exact, and upper bounds (D,).

    Floats pick the columns that may attain it, integers decide.
    """
    near = np.sum([float(f) * (A.astype(np.float64) ** 2).sum(axis=0) for f, A in parts], axis=0)
    error = gamma(sum(len(A) for _, A in parts) + 4)
    candidates = np.flatnonzero(near >= near.max() * (1 - 4 * error))
    stacked = [(f, A[:, candidates].T.tolist()) for f, A in parts]
    seen = {tuple(map(tuple, column)) for column in zip(*(A for _, A in stacked), strict=True)}
    factors = [f for f, _ in parts]
    exact = max(
        sum(f * sum(a * a for a in own) for f, own in zip(factors, column, strict=True))
        for column in seen
    )
    return exact, np.asarray(near * (1 + error))


def products(
    structure: Structure,
    attribute_matrices: tuple[AttributeMatrix, ...],
    blocks: IntArray,
    what: str,
) -> npt.NDArray[np.object_]:
    """Of each block, the product of a number of its attributes' attribute_matrices; exact, shape (b,)."""
    values = [getattr(split, what) for split in attribute_matrices]
    return np.multiply.reduce(
        np.array([*values, 1], dtype=object)[structure.blocks[blocks]], axis=1, initial=1
    )


def within(variances: FloatArray, scale: float, targets: FloatArray) -> bool:
    """Whether variances <= scale * targets holds exactly, and for the rounded product too."""
    allowed = targets if scale == 1.0 else np.nextafter(scale * targets, 0.0)
    return bool((variances <= allowed).all())
