"""The covariance of a symmetric attribute: u = 1/n and C = Y = I - J/n.

It is the best one for all weights (docs/theory/symmetry.md), so the descent leaves it unchanged.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from fitplug.families.base.attribute_matrices import AttributeMatrix
from fitplug.families.base.contrasts import build_contrasts
from fitplug.families.product.design.attribute_covariance import (
    AttributeOptimum,
    AttributeQueries,
    make_uniform_optimum,
)
from fitplug.families.product.shape.batches import DistinctFactor
from fitplug.numeric import FloatArray


@dataclass(frozen=True)
class SymmetricCovariance:
    """An attribute whose cells may be permuted freely.

    Attributes:
        size: n, the number of cells.
    """

    size: int

    @classmethod
    def fits(cls, queries: AttributeQueries) -> bool:
        """Tell whether the attribute is symmetric."""
        return queries.symmetric

    @classmethod
    def optimise(cls, queries: AttributeQueries) -> AttributeOptimum:
        """Return the covariance with uniform weights."""
        return make_uniform_optimum(cls(queries.size), queries)

    @property
    def key(self) -> Hashable:
        """Equal for covariances that are identical."""
        return type(self), self.size

    def compute_eta(self) -> FloatArray:
        """Return Y_ii, which all cells share, shape (1, 1)."""
        return np.array([[1 - 1 / self.size]])

    def compute_variance_parts(self, factor: DistinctFactor) -> FloatArray:
        """Return mu^2 and gamma of a cell, which all rows share, shape (1, 2)."""
        return np.array([[self.size**-2.0, 1 - 1 / self.size]])

    def descend(
        self,
        cells: FloatArray,
        prices: FloatArray,
        pulls: Sequence[tuple[DistinctFactor, FloatArray]],
    ) -> SymmetricCovariance:
        """Return the covariance itself, which no weights change."""
        return self

    def round_to_integers(self, factors: Sequence[DistinctFactor], bits: int) -> AttributeMatrix:
        """Return the integer contrasts of n cells, which are exact with any number of bits."""
        return build_contrasts(self.size)
