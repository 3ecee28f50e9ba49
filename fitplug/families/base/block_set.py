"""Block sets: the integer matrices of the blocks that share a basis."""

from __future__ import annotations

from dataclasses import dataclass

from fitplug.families.base.basis import Basis
from fitplug.families.base.structure import Structure
from fitplug.numeric import FloatArray, IntArray, frozen_property


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
