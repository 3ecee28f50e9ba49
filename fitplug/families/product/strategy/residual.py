"""Strategies of the residual family: any integer matrix for each attribute, a number per block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fitplug.families.base.attribute_matrices import AttributeMatrix, DenseMatrix
from fitplug.families.base.contrasts import make_contrasts
from fitplug.families.base.strategy import Integers
from fitplug.families.blocks.strategy.scalars import OneCellForm
from fitplug.families.product.shape.residual import ResidualStructure
from fitplug.families.product.strategy.trees import TreeMatrix
from fitplug.numeric import AnyArray, FloatArray, gamma


class ResidualForm(OneCellForm[ResidualStructure]):
    """The strategies of `ResidualStructure`."""

    def upper_unit_variances(
        self,
        structure: ResidualStructure,
        integers: Integers,
    ) -> FloatArray:
        # Blocks that are not measured are answered without noise.
        z = np.zeros(len(structure.blocks))
        for block_set in integers.block_sets:
            z[block_set.blocks] = block_set.M[:, 0, 0].astype(np.float64) ** -2.0
        batched = structure.batched
        tables = [
            integers.attribute_matrices[distinct.attribute].upper_variance_parts(distinct.factor)
            for distinct in batched.factors
        ]
        # Sums of 2^m products of m + 1 numbers, all of them >= 0.
        return batched.arrange_by_row(batched.compute_variances(tables, z)) * (1 + gamma(64))

    def read_attribute_matrices(
        self, structure: ResidualStructure, arrays: Sequence[Mapping[str, AnyArray]]
    ) -> tuple[AttributeMatrix, ...]:
        matrices: list[AttributeMatrix] = list(make_contrasts(structure))
        for a, (name, tree) in enumerate(
            zip(structure.block_attributes, structure.batched.trees, strict=True)
        ):
            if name in structure.symmetric:
                continue
            if tree is None:
                matrices[a] = DenseMatrix.from_arrays(arrays[a])
            else:
                matrices[a] = TreeMatrix.from_arrays(tree, arrays[a])
        return tuple(matrices)
