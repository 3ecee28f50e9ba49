"""The covariance of a hierarchy: a dense covariance on top, one number per node below.

With S the sums of the P top nodes, R_v the sums of the k_v children of a node v that branches, E
and E_v their even spreads over the leaves (see `TreeShape`), and u_T, C_T, Y_T those of a dense
covariance of the top sums, (F23) and (F24) say

    u = E u_T      C = E C_T E' + sum_v c_v E_v (I - J/k_v) E_v'
                   Y = S'Y_T S  + sum_v c_v^-1 R_v'(I - J/k_v) R_v      Y C = I - 1 u',  Y u = 0

    eta(leaf) = eta_T(g) + sum over ancestors v of (1 - 1/k_v) / c_v
    child of v:  mu = mu_v / k_v,  gamma = gamma_v / k_v^2 + c_v (1 - 1/k_v)

From the top down these are sums along paths, and the prices of a Lagrangian are pooled upwards in
the same way. Each takes time linear in the nodes, and cubic in P. See
docs/theory/product-family.md, "Trees".
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from fitplug.errors import DesignError
from fitplug.families.base.attribute_matrices import DenseMatrix
from fitplug.families.base.contrasts import build_contrasts
from fitplug.families.base.tree_shape import TreeShape
from fitplug.families.product.design.attribute_covariance import AttributeOptimum, AttributeQueries
from fitplug.families.product.design.dense_covariance import NEGLIGIBLE, DenseCovariance
from fitplug.families.product.design.tree_optimum import optimise_tree
from fitplug.families.product.shape.batches import DistinctFactor
from fitplug.families.product.strategy.trees import TreeMatrix
from fitplug.numeric import FloatArray


@dataclass(frozen=True, eq=False)
class TreeCovariance:
    """The covariance of the leaves of a tree.

    Attributes:
        shape: The nodes of the tree.
        top: The covariance of the P top sums, in all their P - 1 contrasts.
        scales: c of the nodes that branch, shape (V,); infinite where nothing below is asked for.
    """

    shape: TreeShape
    top: DenseCovariance
    scales: FloatArray

    @classmethod
    def fits(cls, queries: AttributeQueries) -> bool:
        """Tell whether the queries are levels of a hierarchy."""
        return queries.tree is not None and queries.grades.tree is None

    @classmethod
    def optimise(cls, queries: AttributeQueries) -> AttributeOptimum:
        """Find the optimum of all levels asked for, and of the sum if a group asks for it."""
        shape = queries.tree
        assert shape is not None
        levels = {
            factor.factor.kind: float(c.min())
            for factor, c in zip(queries.factors, queries.targets, strict=True)
        }
        found = optimise_tree(shape, levels, queries.summed)
        shares = [found.queries[factor.factor.kind] + NEGLIGIBLE for factor in queries.factors]
        covariance = cls(shape, found.top, found.scales)
        return AttributeOptimum(covariance, found.cells, tuple(q / q.sum() for q in shares))

    @property
    def key(self) -> Hashable:
        """Equal for covariances that are identical."""
        return type(self), self.shape, self.top.key, self.scales.tobytes()

    def compute_eta(self) -> FloatArray:
        """Return Y_ii of each leaf, shape (n, 1)."""
        total = self.top.compute_eta()
        for c, k, parents in zip(
            self._scales_by_step(), self.shape.children, self.shape.parents, strict=True
        ):
            total = (total + ((1 - 1 / k) / c)[:, None])[parents]
        return total

    def compute_variance_parts(self, factor: DistinctFactor) -> FloatArray:
        """Return mu^2 and gamma of the nodes of a level, or of "total", shape (nodes, 2)."""
        shape, level = self.shape, factor.factor.kind
        if level in shape.above:
            return self.top.compute_row_parts(shape.build_top_rows(level))
        found = self.top.compute_row_parts(np.eye(shape.top))
        depth = shape.depths[level]
        for c, k, parents in zip(
            self._scales_by_step()[:depth], shape.children, shape.parents, strict=False
        ):
            found = found / k[:, None] ** 2.0
            found[:, 1] += np.where(k > 1, c, 0.0) * (1 - 1 / k)
            found = found[parents]
        return found

    def _scales_by_step(self) -> list[FloatArray]:
        return self.shape.arrange_by_step(self.scales, np.inf)

    def descend(
        self,
        cells: FloatArray,
        prices: FloatArray,
        pulls: Sequence[tuple[DistinctFactor, FloatArray]],
    ) -> TreeCovariance:
        """Return the covariance that minimises the Lagrangian, first in C, then in u."""
        (price,) = prices.tolist()
        levels = [(factor.factor.kind, pull) for factor, pull in pulls]
        return self.descend_levels(cells, price, levels)

    def descend_levels(
        self, cells: FloatArray, price: float, pulls: Sequence[tuple[str, FloatArray]]
    ) -> TreeCovariance:
        """Descend with pulls (nodes, 2) on the nodes of levels; see `AttributeCovariance.descend`.

        Of node v, c_v = (price P_v / a_v)^1/2 (F25), where P_v is the sum of p over its leaves, and
        a_v = the sum over its children w of pull_w1 + a_w / k_w^2.
        """
        shape = self.shape
        pooled = [np.zeros((len(first), 2)) for first in shape.first]
        rows = []
        for level, pull in pulls:
            if level in shape.above:
                rows.append((shape.build_top_rows(level), pull))
            else:
                pooled[shape.depths[level]] += pull
        scales = []
        for step in reversed(range(shape.steps)):
            k = shape.children[step]
            below = np.add.reduceat(pooled[step + 1], shape.first_children[step], axis=0)
            pooled[step] += below / k[:, None] ** 2.0
            mass = price * shape.sum_leaves(cells, step)
            if step < shape.deepest:
                # The pull is zero where all groups that ask for these nodes have zero coefficients.
                c = np.sqrt(mass / np.maximum(below[:, 1], np.finfo(float).tiny))
            else:
                c = np.full(len(k), np.inf)
            scales.append(c[k > 1])
        top = self.top
        if shape.top > 1:
            rows = [(np.eye(shape.top), pooled[0]), *rows]
            top = top.descend_rows(shape.sum_leaves(cells, 0), np.array([price]), rows)
        return TreeCovariance(shape, top, np.concatenate([*scales[::-1], np.zeros(0)]))

    def round_to_integers(self, factors: Sequence[DistinctFactor], bits: int) -> TreeMatrix:
        """Return the integer matrix next to this covariance; see `AttributeCovariance`.

        The multiplier of a node is at most about 2^bits / k_v where the contrasts are centred, so
        that large k_v need more bits.
        """
        shape = self.shape
        unit = 2.0**bits / (math.sqrt(float(self.compute_eta().max())) or 1.0)
        (real,) = self.top.precisions
        matrix = np.rint(real * unit).astype(np.int64)
        if np.linalg.matrix_rank(np.vstack([matrix, np.full(shape.top, unit)])) < shape.top:
            raise DesignError("the integer strategy of a hierarchy lost a contrast; raise its bits")
        precision = np.ones(shape.branching)
        for siblings in shape.siblings:
            precision[siblings.positions] = build_contrasts(siblings.k).precision
        m = np.rint(unit / np.sqrt(self.scales * precision))
        return TreeMatrix(shape, DenseMatrix(matrix), np.maximum(m, 1.0).astype(np.int64))
