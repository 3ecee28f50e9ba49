"""Strategies of the product family: any integer matrix for each attribute, a number per block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fitplug.errors import PlanError
from fitplug.families.base.attribute_matrices import AttributeMatrix, DenseMatrix
from fitplug.families.base.contrasts import make_contrasts
from fitplug.families.base.strategy import Integers, IntegerStrategy
from fitplug.families.base.strategy_form import Mechanism, StrategyCost, make_mechanism
from fitplug.families.blocks.strategy.matrices import BlockSetForm
from fitplug.families.product.shape.products import ProductStructure
from fitplug.families.product.strategy.multiples import (
    check_multiples,
    compute_graded_cost,
    gather_multiples,
)
from fitplug.families.product.strategy.node_trees import NodeTreeMatrix
from fitplug.families.product.strategy.trees import TreeMatrix
from fitplug.families.product.strategy.variants import VariantMatrix
from fitplug.numeric import AnyArray, FloatArray, gamma


class ProductForm(BlockSetForm[ProductStructure]):
    """The strategies of `ProductStructure`."""

    has_grades = True

    def compute_cost(self, structure: ProductStructure, integers: Integers) -> StrategyCost:
        if not len(structure.batched.scales.divided):
            return super().compute_cost(structure, integers)
        return compute_graded_cost(structure.batched.scales, integers)

    def list_mechanisms(self, strategy: IntegerStrategy, noise_std: float) -> tuple[Mechanism, ...]:
        structure = strategy.structure
        assert isinstance(structure, ProductStructure)
        if not len(structure.batched.scales.divided):
            return super().list_mechanisms(strategy, noise_std)
        # The grades have their largest sensitivities at different cells.
        square = strategy.sensitivity_squared
        return (make_mechanism("all answers", square, noise_std, strategy.size),)

    def check_form(self, strategy: IntegerStrategy, structure: ProductStructure) -> None:
        super().check_form(strategy, structure)
        for name, grades, matrix in zip(
            structure.block_attributes,
            structure.batched.grades,
            strategy.attribute_matrices,
            strict=True,
        ):
            if isinstance(matrix, VariantMatrix):
                counts = matrix.counts
            else:
                counts = (1 if matrix.grades is None else matrix.grades.count,)
            if counts != tuple(np.diff(grades.starts).tolist()):
                raise PlanError(f"what it measures of {name!r} does not have the workload's grades")
        for block_set in strategy.block_sets:
            check_multiples(structure.batched.scales, block_set)

    def upper_unit_variances(
        self,
        structure: ProductStructure,
        integers: Integers,
    ) -> FloatArray:
        # Blocks that are not measured are answered without noise.
        batched = structure.batched
        multiples = gather_multiples(batched.scales, integers.block_sets).astype(np.float64)
        z = np.divide(1.0, multiples**2, out=np.zeros(len(multiples)), where=multiples > 0)
        tables = [
            integers.attribute_matrices[distinct.attribute].upper_variance_parts(distinct.factor)
            for distinct in batched.factors
        ]
        # Sums over m axes of at most 1 + K_i products each, all of them >= 0.
        roundings = 64 + sum(1 + k for k in batched.scales.counts if k > 1)
        variances = batched.arrange_by_row(batched.compute_variances(tables, z))
        return variances * (1 + gamma(roundings))

    def read_attribute_matrices(
        self, structure: ProductStructure, arrays: Sequence[Mapping[str, AnyArray]]
    ) -> tuple[AttributeMatrix, ...]:
        matrices: list[AttributeMatrix] = list(make_contrasts(structure))
        for a, (name, tree) in enumerate(
            zip(structure.block_attributes, structure.batched.trees, strict=True)
        ):
            if name in structure.symmetric:
                continue
            grades = structure.batched.grades[a]
            if grades.tree is not None:
                matrices[a] = NodeTreeMatrix.from_shape(grades.tree)
            elif len(grades.starts) > 2:
                matrices[a] = VariantMatrix.from_arrays(arrays[a], grades.variants)
            elif tree is None:
                matrices[a] = DenseMatrix.from_arrays(arrays[a])
            else:
                matrices[a] = TreeMatrix.from_arrays(tree, arrays[a])
        return tuple(matrices)
