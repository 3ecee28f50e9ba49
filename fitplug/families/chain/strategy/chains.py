"""Strategies of chains: integer matrices of the chain, and a number for each block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from fitplug.errors import PlanError
from fitplug.families.base.attribute_matrices import AttributeMatrix
from fitplug.families.base.block_sets import BlockSet
from fitplug.families.base.contrasts import build_contrasts
from fitplug.families.base.integers import SATURATION
from fitplug.families.base.mechanism import StrategyCost
from fitplug.families.base.structure import Structure
from fitplug.families.blocks.strategy.matrices import BlockSetStrategy
from fitplug.families.chain.shape import ChainStructure
from fitplug.families.chain.strategy.convolutions import ChainMatrix
from fitplug.families.chain.strategy.nested_chain import NestedChain, find_largest_column
from fitplug.numeric import AnyArray, FloatArray, ceil_float, gamma


class ChainStrategy(BlockSetStrategy[ChainStructure]):
    """The strategies of `ChainStructure`."""

    @property
    def chain_matrix(self) -> AttributeMatrix:
        """The matrix of the chain."""
        return self.attribute_matrices[self.structure.chain_position]

    @property
    def peaks_at_one_cell(self) -> bool:
        return super().peaks_at_one_cell and not isinstance(self.chain_matrix, NestedChain)

    def upper_record_variances(self) -> FloatArray:
        structure, subsets, matrix = self.structure, self.structure.subsets, self.chain_matrix
        scales = compute_block_scales(structure, self.block_sets)
        groups, blocks = subsets.pairs
        multiples = subsets.variance_multiples * scales[blocks]
        variances, starts = np.zeros(structure.rows), structure.row_starts
        for g, block, multiple in zip(groups, blocks, multiples, strict=True):
            factor = structure.find_factors(g)[structure.chain_position]
            assert factor is not None
            own = matrix.of_block(int(block)).upper_variance_parts(factor)[:, 1]
            variances[starts[g] : starts[g + 1]] += multiple * own
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
        if isinstance(matrix, NestedChain) and len(matrix.triangles) != len(self.structure.blocks):
            raise PlanError("the strategy does not measure the chain of each block")

    def compute_record_cost(self, claimed: int | None = None) -> StrategyCost:
        matrix, at, subsets = (
            self.chain_matrix,
            self.structure.chain_position,
            self.structure.subsets,
        )
        if not isinstance(matrix, NestedChain):
            return super().compute_record_cost(claimed)
        every = list(enumerate(self.attribute_matrices))
        squares = [1 if a == at else own.column_square for a, own in every]
        entries = [1 if a == at else own.largest_entry for a, own in every]
        chains, multiples, entry = [], [], 1
        for block_set in self.block_sets:
            of_squares = subsets.multiply(squares, block_set.blocks).tolist()
            of_entries = subsets.multiply(entries, block_set.blocks).tolist()
            for i, block in enumerate(block_set.blocks.tolist()):
                m = int(block_set.M[i, 0, 0])
                chains.append(matrix.of_block(block))
                multiples.append(of_squares[i] * m * m)
                entry = max(entry, of_entries[i] * m * chains[-1].largest_entry)
        square = find_largest_column(chains, multiples)
        column_squares = np.array([ceil_float(Fraction(square))])
        return StrategyCost(square, column_squares, SATURATION // entry)


def place_chain(
    structure: ChainStructure, matrix: ChainMatrix | NestedChain
) -> tuple[AttributeMatrix, ...]:
    """Put the matrix of the chain among the contrasts of the symmetric attributes."""
    matrices: list[AttributeMatrix] = [
        matrix if name == structure.chain else build_contrasts(n)
        for name, n in zip(structure.block_attributes, structure.sizes, strict=True)
    ]
    return tuple(matrices)


def compute_block_scales(structure: ChainStructure, block_sets: tuple[BlockSet, ...]) -> FloatArray:
    """Compute z_A of each block over the precision of its contrasts, shape (b,)."""
    precisions = [build_contrasts(n).precision for n in structure.sizes]
    precisions[structure.chain_position] = 1
    scales = np.empty(len(structure.blocks))
    for block_set in block_sets:
        own = structure.subsets.multiply(precisions, block_set.blocks).astype(np.float64)
        M = block_set.M[:, 0, 0].astype(np.float64)
        scales[block_set.blocks] = 1 / (own * M * M)
    return scales
