"""Block sets: blocks that share an integer basis, each with an integer matrix over it.

Block A of the structure measures (x)_{a in A} A_a (x)_{a not in A} 1' (x) M B, with A_a the integer
matrix of attribute a (`fitplug.families.base.attribute_matrices`), B an integer basis of the
block's queries over the dense cells and M = round(S G), where G'G = Sigma_A^-1 in the coordinates
of B. Row j of a block has the estimate L_j M^-1 y, unbiased, whose variance is at most
sigma^2 |L_j M^-1|^2 / precision. See docs/theory/integer-mechanism.md.

Answers and estimates are made block by block: nothing of the size of the domain is ever formed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from fitplug.families.base.attribute_matrices import spread_table
from fitplug.families.base.basis import Basis, BasisKind
from fitplug.families.base.mechanism import SATURATION
from fitplug.families.base.strategy import IntegerStrategy, S
from fitplug.families.base.structure import Structure
from fitplug.files import select_prefixed
from fitplug.numeric import (
    AnyArray,
    FloatArray,
    IntArray,
    frozen_property,
    make_room,
    multiply_exactly,
    multiply_numbers,
)


@dataclass(frozen=True, eq=False)
class BlockSet:
    """Blocks that share a basis: all blocks that are numbers, or one that is a matrix.

    Attributes:
        blocks: The structure's blocks, shape (b,).
        basis: B, shape (n, D).
        M: Upper triangular matrices with positive diagonals, shape (b, n, n).
        multiples: Further factors of each block's answers, one for each tuple of its attributes'
            grades, shape (K_1, ..., K_m) for m attributes; empty if no attribute has grades.
    """

    blocks: IntArray
    basis: Basis
    M: IntArray
    multiples: tuple[IntArray, ...] = ()

    def to_arrays(self) -> dict[str, AnyArray]:
        """Return the arrays for a plan file by name, as `from_arrays` reads them."""
        numbered = zip(self.blocks.tolist(), self.multiples, strict=False)
        return {
            "blocks": self.blocks,
            "M": self.M,
            "index": self.basis.index,
            "scale": self.basis.scale,
            **{f"multiples{block}": multiples for block, multiples in numbered},
        }

    @classmethod
    def from_arrays(cls, kind: BasisKind, arrays: Mapping[str, AnyArray]) -> BlockSet:
        """Build a set from the kind of its basis and the arrays of a plan file, unchecked."""
        multiples = select_prefixed(arrays, "multiples")
        blocks = arrays["blocks"].tolist() if multiples else ()
        return cls(
            blocks=arrays["blocks"],
            basis=Basis(kind, arrays["index"], arrays["scale"]),
            M=arrays["M"],
            multiples=tuple(multiples[str(block)] for block in blocks),
        )


@dataclass(frozen=True, eq=False)
class Representation:
    """The rows of a set's blocks in the coordinates of its basis.

    Attributes:
        structure: The structure.
        block_set: The blocks, which all have the same matrix.
    """

    structure: Structure
    block_set: BlockSet

    @frozen_property
    def rows(self) -> tuple[FloatArray, FloatArray]:
        """L, shape (r, n), and bounds on the 2-norm of its rows' errors, shape (r,)."""
        matrix = self.structure.build_block_matrix(int(self.block_set.blocks[0]))
        return self.block_set.basis.represent(matrix)


@dataclass(frozen=True, eq=False)
class BlockSetIntegers(IntegerStrategy[S]):
    """The integers of a strategy of block sets; `BlockSetStrategy` derives all else from them.

    Attributes:
        block_sets: The block sets. Each measured block of the structure is in exactly one.
    """

    block_sets: tuple[BlockSet, ...]

    def describe_blocks(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        return {"bases": [block_set.basis.kind for block_set in self.block_sets]}, {
            f"family{i}.{name}": array
            for i, block_set in enumerate(self.block_sets)
            for name, array in block_set.to_arrays().items()
        }

    @classmethod
    def read_blocks(
        cls, structure: Structure, header: Mapping[str, Any], arrays: Mapping[str, AnyArray]
    ) -> dict[str, Any]:
        block_sets = (
            BlockSet.from_arrays(kind, select_prefixed(arrays, f"family{i}."))
            for i, kind in enumerate(header["bases"])
        )
        return {"block_sets": tuple(block_sets)}

    @property
    def widths(self) -> list[tuple[IntArray, int]]:
        return [(block_set.blocks, block_set.basis.size) for block_set in self.block_sets]

    @property
    def column_height(self) -> int:
        return sum(block_set.basis.size for block_set in self.block_sets)

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
        """The rows of each block set in its basis, each computed when it is read."""
        return tuple(Representation(self.structure, block_set) for block_set in self.block_sets)

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

    def build_block_matrix(self, block: int) -> FloatArray:
        """Build M of a block as floats, shape (n, n)."""
        number, i = self.positions[block]
        return np.asarray(self.block_sets[number].M[i].astype(np.float64))

    def find_multiples(self, block: int) -> IntArray | None:
        """Find the factors by which a block multiplies the answers of each tuple of grades.

        Returns:
            An axis for each attribute of the block, or None if its answers are not multiplied.
        """
        number, i = self.positions.get(block, (-1, 0))
        if number < 0 or not self.block_sets[number].multiples:
            return None
        return self.block_sets[number].multiples[i]

    def spread_multiples(self, block: int, *, adjoint: bool = False) -> IntArray | None:
        """Spread a block's factors for grades over the rows of its attributes' matrices.

        Args:
            block: A block.
            adjoint: Whether to spread over the entries of the matrices' adjoints.

        Returns:
            An axis for each attribute of the block, or None if its answers are not multiplied.
        """
        if (multiples := self.find_multiples(block)) is None:
            return None
        (subset,) = self.structure.subsets.list_attributes([block])
        labels = []
        for matrix in (self.find_matrix(a, block) for a in subset):
            if (grades := matrix.grades) is None:
                entries = matrix.adjoint(np.zeros(matrix.n), 0).size if adjoint else matrix.rows
                labels.append(np.zeros(entries, dtype=np.int64))
            else:
                labels.append(grades.adjoint if adjoint else grades.rows)
        return spread_table(multiples, labels)

    def list_blocks(self) -> Iterator[tuple[BlockSet, int, tuple[int, ...], int]]:
        """List each block's set, its index in the set, and the shape and start of its answers."""
        start = 0
        for block_set in self.block_sets:
            for i, subset in enumerate(self.structure.subsets.list_attributes(block_set.blocks)):
                block = int(block_set.blocks[i])
                rows = (self.find_matrix(a, block).rows for a in subset)
                shape = (*rows, block_set.basis.size)
                yield block_set, i, shape, start
                start += math.prod(shape)

    def measure_block(self, block_set: BlockSet, i: int, counts: AnyArray) -> IntArray:
        """Compute a block's answers from B x, clamped.

        Args:
            block_set: The set that the block is in.
            i: The block's index in the set.
            counts: B x: an axis of n_a cells for each attribute of the block, and a last one of n.

        Returns:
            The answers, shape (size,).
        """
        block = int(block_set.blocks[i])
        (subset,) = self.structure.subsets.list_attributes([block])
        y = counts
        for axis, matrix in enumerate(self.find_matrix(a, block) for a in subset):
            y = matrix.apply(make_room(y, matrix.growth), axis)
        if y.size:
            y = multiply_exactly(y.reshape(-1, y.shape[-1]), block_set.M[i].T)
            multiples = self.spread_multiples(block)
            if multiples is not None:
                y = multiply_numbers(y, multiples.reshape(-1, 1))
        return np.asarray(np.clip(y, -SATURATION, SATURATION).ravel(), dtype=np.int64)

    def estimate_block(self, block_set: BlockSet, i: int, answers: AnyArray) -> FloatArray:
        """Estimate B x of a block, apart from what its margins determine.

        Args:
            block_set: The set that the block is in.
            i: The block's index in the set.
            answers: The block's noisy answers: an axis of the rows of A_a for each attribute a of
                the block, and a last one of n.

        Returns:
            The estimates, with axes of n_a cells in place of the rows of A_a.
        """
        block = int(block_set.blocks[i])
        (subset,) = self.structure.subsets.list_attributes([block])
        n = block_set.basis.size
        M, values = block_set.M[i].astype(np.float64), answers.astype(np.float64)
        if n == 1:
            estimates = values / M[0, 0]  # there may be many such blocks, and this takes less time
        else:
            estimates = np.asarray(
                solve_triangular(M, values.reshape(-1, n).T).T.reshape(values.shape)
            )
        multiples = self.spread_multiples(block)
        if multiples is not None:
            estimates = estimates / multiples[..., None]
        for axis, a in enumerate(subset):
            estimates = self.find_matrix(a, block).invert(estimates, axis)
        return estimates
