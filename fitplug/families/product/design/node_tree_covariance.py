"""The covariance of a hierarchy whose nodes are grades.

The contrasts of the children of node v, spread below in equal shares, have the covariance
E_v (I - J/k_v) E_v' times the scales of the blocks. There is nothing to choose: a number c_v at
each node would only multiply the scales. It is `TreeCovariance` with c_v = 1 below one root.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from fitplug.families.base.contrasts import build_contrasts
from fitplug.families.base.tree_shape import TreeShape
from fitplug.families.product.design.attribute_covariance import (
    AttributeOptimum,
    AttributeQueries,
    make_uniform_optimum,
)
from fitplug.families.product.shape.batches import DistinctFactor
from fitplug.families.product.strategy.node_trees import NodeTreeMatrix
from fitplug.numeric import FloatArray


@dataclass(frozen=True, eq=False)
class NodeTreeCovariance:
    """A hierarchy whose V nodes with several children are grades.

    Attributes:
        shape: The nodes below one root.
    """

    shape: TreeShape

    @classmethod
    def fits(cls, queries: AttributeQueries) -> bool:
        """Tell whether the nodes are grades."""
        return queries.grades.tree is not None

    @classmethod
    def optimise(cls, queries: AttributeQueries) -> AttributeOptimum:
        """Return the covariance with uniform weights."""
        assert queries.grades.tree is not None
        return make_uniform_optimum(cls(queries.grades.tree), queries)

    @property
    def key(self) -> Hashable:
        """Equal for covariances that are identical."""
        return type(self), self.shape

    def compute_eta(self) -> FloatArray:
        """Return (Y_v)_ii of each leaf and node, shape (n, V)."""
        matrix = NodeTreeMatrix.from_shape(self.shape)
        columns = matrix.grades.column_squares / self._precisions
        return np.asarray(columns[self.shape.parents[-1]])

    def compute_variance_parts(self, factor: DistinctFactor) -> FloatArray:
        """Return mu^2 and the gammas of the nodes of a level, or of "total", (nodes, 1 + V)."""
        found = NodeTreeMatrix.from_shape(self.shape).upper_variance_parts(factor.factor)
        found[:, 1:] *= self._precisions
        return found

    @property
    def _precisions(self) -> FloatArray:
        """The factor in H_v'H_v of each node, shape (V,)."""
        found = np.ones(self.shape.branching)
        for group in self.shape.siblings:
            found[group.positions] = build_contrasts(group.k).precision
        return found

    def descend(
        self,
        cells: FloatArray,
        prices: FloatArray,
        pulls: Sequence[tuple[DistinctFactor, FloatArray]],
    ) -> NodeTreeCovariance:
        """Return the covariance itself, which no weights change."""
        return self

    def round_to_integers(self, factors: Sequence[DistinctFactor], bits: int) -> NodeTreeMatrix:
        """Return the integer contrasts of each node, which are exact with any number of bits."""
        return NodeTreeMatrix.from_shape(self.shape)
