"""Strategies of chains: integer matrices of the chain, and a number for each block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

import numpy as np

from fitplug.errors import PlanError
from fitplug.families.base.attribute_matrices import AttributeMatrix
from fitplug.families.base.contrasts import build_contrasts
from fitplug.families.base.integers import SATURATION
from fitplug.families.base.strategy import BlockSet, Integers, IntegerStrategy
from fitplug.families.base.strategy_form import Mechanism, StrategyCost, make_mechanism
from fitplug.families.blocks.strategy.matrices import BlockSetForm
from fitplug.families.chain.shape import ChainStructure
from fitplug.families.chain.strategy.convolutions import ChainMatrix
from fitplug.families.chain.strategy.nested_chain import NestedChain, find_largest_column
from fitplug.numeric import AnyArray, FloatArray, ceil_float, gamma


class ChainForm(BlockSetForm[ChainStructure]):
    """The strategies of `ChainStructure`."""

    def upper_unit_variances(
        self,
        structure: ChainStructure,
        integers: Integers,
    ) -> FloatArray:
        scales = compute_block_scales(structure, integers.block_sets)
        matrix, subsets = integers.attribute_matrices[structure.chain_position], structure.subsets
        groups, blocks = subsets.pairs
        multiples = subsets.variance_multiples * scales[blocks]
        variances, starts = np.zeros(structure.rows), structure.row_starts
        for g, block, multiple in zip(groups, blocks, multiples, strict=True):
            factor = structure.find_factors(g)[structure.chain_position]
            assert factor is not None
            own = matrix.of_block(int(block)).upper_variance_parts(factor)[:, 1]
            variances[starts[g] : starts[g + 1]] += multiple * own
        return np.asarray(variances * (1 + gamma(len(structure.blocks) + 64)))

    def read_attribute_matrices(
        self, structure: ChainStructure, arrays: Sequence[Mapping[str, AnyArray]]
    ) -> tuple[AttributeMatrix, ...]:
        own = arrays[structure.chain_position]
        kind = NestedChain if "triangles" in own else ChainMatrix
        return place_chain(structure, kind.from_arrays(own))

    def check_form(self, strategy: IntegerStrategy, structure: ChainStructure) -> None:
        super().check_form(strategy, structure)
        matrix = strategy.attribute_matrices[structure.chain_position]
        if isinstance(matrix, NestedChain) and len(matrix.triangles) != len(structure.blocks):
            raise PlanError("the strategy does not measure the chain of each block")

    def list_mechanisms(self, strategy: IntegerStrategy, noise_std: float) -> tuple[Mechanism, ...]:
        if not any(isinstance(own, NestedChain) for own in strategy.attribute_matrices):
            return super().list_mechanisms(strategy, noise_std)
        # Blocks may have their largest sensitivities at different cells.
        square = strategy.sensitivity_squared
        return (make_mechanism("all answers", square, noise_std, strategy.size),)

    def compute_cost(self, structure: ChainStructure, integers: Integers) -> StrategyCost:
        at = structure.chain_position
        matrix = integers.attribute_matrices[at]
        if not isinstance(matrix, NestedChain):
            return super().compute_cost(structure, integers)
        squares = [1 if a == at else own.column_square for a, own in _enumerate(integers)]
        entries = [1 if a == at else own.largest_entry for a, own in _enumerate(integers)]
        chains, multiples, entry = [], [], 1
        for block_set in integers.block_sets:
            of_squares = structure.subsets.multiply(squares, block_set.blocks).tolist()
            of_entries = structure.subsets.multiply(entries, block_set.blocks).tolist()
            for i, block in enumerate(block_set.blocks.tolist()):
                m = int(block_set.M[i, 0, 0])
                chains.append(matrix.of_block(block))
                multiples.append(of_squares[i] * m * m)
                entry = max(entry, of_entries[i] * m * chains[-1].largest_entry)
        square = find_largest_column(chains, multiples)
        column_squares = np.array([ceil_float(Fraction(square))])
        return StrategyCost(square, column_squares, SATURATION // entry)


def _enumerate(integers: Integers) -> Iterator[tuple[int, AttributeMatrix]]:
    return enumerate(integers.attribute_matrices)


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
