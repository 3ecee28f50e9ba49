"""Strategies of chains: one integer matrix of the chain, and a number for each block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fitplug.families.base.attribute_matrices import AttributeMatrix
from fitplug.families.base.block_set import BlockSet
from fitplug.families.base.contrasts import build_contrasts
from fitplug.families.base.strategy import Integers
from fitplug.families.blocks.strategy.scalars import OneCellForm
from fitplug.families.chain.shape import ChainStructure
from fitplug.families.chain.strategy.integer_chain import ChainMatrix
from fitplug.numeric import AnyArray, FloatArray, gamma


class ChainForm(OneCellForm[ChainStructure]):
    """The strategies of `ChainStructure`."""

    def upper_unit_variances(
        self,
        structure: ChainStructure,
        integers: Integers,
    ) -> FloatArray:
        scales = compute_block_scales(structure, integers.block_sets)
        matrix, subsets = integers.attribute_matrices[structure.chain_position], structure.subsets
        groups, blocks = subsets.pairs
        sums = np.bincount(
            groups, subsets.variance_multiples * scales[blocks], len(structure.workload.groups)
        )
        parts = []
        for g, scale in enumerate(sums.tolist()):
            factor = structure.find_factors(g)[structure.chain_position]
            assert factor is not None
            parts.append(scale * matrix.upper_variance_parts(factor)[:, 1])
        return np.asarray(np.concatenate(parts) * (1 + gamma(len(structure.blocks) + 64)))

    def read_attribute_matrices(
        self, structure: ChainStructure, arrays: Sequence[Mapping[str, AnyArray]]
    ) -> tuple[AttributeMatrix, ...]:
        at = structure.chain_position
        return place_chain(structure, ChainMatrix.from_arrays(arrays[at]))


def place_chain(structure: ChainStructure, matrix: ChainMatrix) -> tuple[AttributeMatrix, ...]:
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
