"""Trees of which each node is a grade: the blocks say how accurately each node is divided.

It is the integer matrix of `fitplug.families.product.strategy.trees` below one root, with the
multiplier 1 at every node. The rows of the contrasts H_v of a node v are a grade:

    eta_v(leaf) = |H_v e|^2 for v above the leaf       gamma_v(w) = that of v's child above w
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fitplug.families.base.attribute_matrices import DenseMatrix, RowGrades
from fitplug.families.base.contrasts import build_contrasts
from fitplug.families.base.tree_shape import TreeShape
from fitplug.families.product.strategy.trees import TreeMatrix
from fitplug.numeric import FloatArray, IntArray, frozen_property, gamma
from fitplug.workload import Factor


class NodeTreeMatrix(TreeMatrix):
    """The integer matrix of a tree whose nodes are grades; its shape decides it."""

    @classmethod
    def from_shape(cls, shape: TreeShape) -> NodeTreeMatrix:
        """Make the matrix of a tree below one root."""
        top = DenseMatrix(np.zeros((0, 1), dtype=np.int64))
        return cls(shape, top, np.ones(shape.branching, dtype=np.int64))

    @property
    def arrays_in_file(self) -> Mapping[str, IntArray]:
        return {}

    @frozen_property
    def grades(self) -> RowGrades:
        shape = self.shape
        rows, adjoint = [], []
        squares, entries = (np.zeros(shape.branching, dtype=np.int64) for _ in range(2))
        for group in shape.siblings:
            H = build_contrasts(group.k)
            rows.append(np.repeat(group.positions, H.rows))
            adjoint.append(np.repeat(group.positions, group.k))
            squares[group.positions] = H.column_square
            entries[group.positions] = H.largest_entry
        # The leaves of one parent have equal columns.
        columns = np.zeros((1, shape.branching), dtype=np.int64)
        steps = shape.arrange_by_step(np.arange(shape.branching), -1)
        for step, nodes in enumerate(steps):
            is_branching = nodes >= 0
            columns[is_branching, nodes[is_branching]] = squares[nodes[is_branching]]
            if step < shape.steps - 1:
                columns = columns[shape.parents[step]]
        return RowGrades(np.concatenate(rows), np.concatenate(adjoint), columns, entries)

    def upper_variance_parts(self, factor: Factor) -> FloatArray:
        """Bound mu^2 and the gammas of a level's nodes, or of "total", (nodes, 1 + V)."""
        level, shape = factor.kind, self.shape
        found = np.zeros((1, 1 + shape.branching))
        found[0, 0] = 1.0
        if level == "total":
            return found
        precisions = np.ones(shape.branching)
        for group in shape.siblings:
            precisions[group.positions] = group.k * build_contrasts(group.k).precision
        depth = shape.depths[level]
        nodes = shape.arrange_by_step(np.arange(shape.branching), -1)
        for own, k, parents in zip(nodes[:depth], shape.children, shape.parents, strict=False):
            found = found / (k[:, None].astype(np.float64) ** 2)
            is_branching = own >= 0
            grades = own[is_branching]
            found[is_branching, 1 + grades] += (k[is_branching] - 1) / precisions[grades]
            found = found[parents]
        # At most eight operations a step, on numbers that are not negative.
        return np.asarray(found * (1 + gamma(8 * depth)))
