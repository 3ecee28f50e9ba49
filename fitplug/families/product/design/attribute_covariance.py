"""The covariance of one attribute in the product family: a reference u and contrasts C.

An attribute of n cells has a reference u (n,) with 1'u = 1, and its contrasts have a covariance C
(n, n) with C 1 = 0. Its precision Y (F2) has Y u = 0 and Y C = I - 1 u'. The family needs eta_i =
Y_ii for each cell, and mu = w'u and gamma = w'C w for each row w of a factor.

Each kind of covariance is a class that implements `AttributeCovariance`, and one entry in
`fitplug.families.product.design.members.COVARIANCE_KINDS`. The kind in this module has no
parameters: a symmetric attribute has u = 1/n and C = Y = I - J/n for all weights
(docs/theory/symmetry.md). See docs/theory/product-family.md, which calls the pair (u, C) a split.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fitplug.families.base.attribute_matrices import AttributeMatrix
from fitplug.families.base.contrasts import build_contrasts
from fitplug.families.base.tree_shape import TreeShape
from fitplug.families.product.shape.batches import DistinctFactor
from fitplug.families.product.shape.grades import AttributeGrades
from fitplug.numeric import FloatArray


@dataclass(frozen=True, eq=False)
class AttributeQueries:
    """The queries of a workload's groups along one attribute.

    Attributes:
        size: n, the number of cells.
        symmetric: Whether the cells may be permuted freely.
        tree: The nodes of a hierarchy whose levels queries use; None for other attributes.
        grades: The grades of the attribute's contrasts.
        factors: The distinct factors of this attribute.
        targets: For each factor, the targets of its rows, shape (r,), in units of the sum's target.
        summed: Whether some group sums the attribute out.
    """

    size: int
    symmetric: bool
    tree: TreeShape | None
    grades: AttributeGrades
    factors: tuple[DistinctFactor, ...]
    targets: tuple[FloatArray, ...]
    summed: bool

    @property
    def key(self) -> Hashable:
        """Equal for attributes whose queries are identical."""
        return (
            *(f.factor.kind if self.tree is not None else f.rows.tobytes() for f in self.factors),
            *(c.tobytes() for c in self.targets),
            self.symmetric,
            self.size,
            self.tree,
            self.grades.tree,
            self.grades.starts.tobytes(),
            self.summed,
        )


@dataclass(frozen=True, eq=False)
class AttributeOptimum:
    """The optimal covariance for the queries of one attribute alone, with dual weights.

    Attributes:
        covariance: The covariance.
        cells: Weights p of the cells, shape (n,), summing to 1.
        rows: For each factor, the weights of its rows, shape (r,), summing to 1.
    """

    covariance: AttributeCovariance
    cells: FloatArray
    rows: tuple[FloatArray, ...]


class AttributeCovariance(Protocol):
    """One attribute's reference u and covariances C_k, as the product family uses them."""

    @classmethod
    def fits(cls, queries: AttributeQueries) -> bool:
        """Tell whether this kind of covariance can serve these queries."""

    @classmethod
    def optimise(cls, queries: AttributeQueries) -> AttributeOptimum:
        """Find the covariance of least privacy cost for these queries alone.

        Raises:
            WorkloadError, DesignError: As from the dual solver.
        """

    @property
    def key(self) -> Hashable:
        """Equal for identical covariances."""

    def compute_eta(self) -> FloatArray:
        """Return (Y_k)_ii of each cell and grade, shape (n, K), or (1, K) if cells share it."""

    def compute_variance_parts(self, factor: DistinctFactor) -> FloatArray:
        """Return mu^2 and the gammas of the rows of a factor, shape (r, 1 + K)."""

    def descend(
        self,
        moments: Sequence[FloatArray],
        pulls: Sequence[tuple[DistinctFactor, FloatArray]],
    ) -> AttributeCovariance:
        """Return the covariance that minimises the Lagrangian, first in C, then in u.

        The Lagrangian (F18) is sum_k <P_k, Y_k>, plus pull_0 mu^2 + sum_k pull_k gamma_k summed
        over all rows.

        Args:
            moments: P_k of each grade: a diagonal, shape (n,), or, for dense covariances only, also
                a matrix, shape (n, n).
            pulls: For each factor of the attribute, the prices of its rows' mu^2 and gammas, (r, 1
                + K).
        """

    def round_to_integers(self, factors: Sequence[DistinctFactor], bits: int) -> AttributeMatrix:
        """Return an integer matrix whose largest column norm is about 2^bits.

        Contrasts that no query needs are measured too, with next to no precision.

        Args:
            factors: The factors of the attribute, for whose rows the rounding is chosen.
            bits: The binary logarithm of the largest column norm.

        Raises:
            DesignError: If the integers lose a contrast. More bits would keep it.
        """


def make_uniform_optimum(
    covariance: AttributeCovariance, queries: AttributeQueries
) -> AttributeOptimum:
    """Return a covariance with uniform weights on all cells and rows."""
    n = queries.size
    rows = tuple(np.full(factor.count, 1 / factor.count) for factor in queries.factors)
    return AttributeOptimum(covariance, np.full(n, 1 / n), rows)


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
        """Equal for identical covariances."""
        return type(self), self.size

    def compute_eta(self) -> FloatArray:
        """Return Y_ii, which all cells share, shape (1, 1)."""
        return np.array([[1 - 1 / self.size]])

    def compute_variance_parts(self, factor: DistinctFactor) -> FloatArray:
        """Return mu^2 and gamma of a cell, which all rows share, shape (1, 2)."""
        return np.array([[self.size**-2.0, 1 - 1 / self.size]])

    def descend(
        self,
        moments: Sequence[FloatArray],
        pulls: Sequence[tuple[DistinctFactor, FloatArray]],
    ) -> SymmetricCovariance:
        """Return the covariance itself, which no weights change."""
        return self

    def round_to_integers(self, factors: Sequence[DistinctFactor], bits: int) -> AttributeMatrix:
        """Return the integer contrasts of n cells, which are exact with any number of bits."""
        return build_contrasts(self.size)
