"""Charges: a Lagrangian's prices for the covariances of nodes, as weights of rows.

The covariance of a node is charged for the queries at the node and, through the references of its
children, for the queries below. All of this is L'diag(w)L with one matrix L per depth, so only w
differs between nodes of a depth, and a covariance S enters by the variances, the diagonal of L S
L'. So a node needs one number per row, and matrices are needed only for the means over its
children.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fitplug.families.tree.shape.blocks import GroupPart
from fitplug.numeric import FloatArray, IntArray
from fitplug.workload import CellClasses


@dataclass(frozen=True, eq=False)
class DepthRows:
    """The rows of queries at the nodes of a depth or below it.

    Attributes:
        L: The rows over the depth's classes of dense cells, shape (M, r).
    """

    L: FloatArray

    @property
    def count(self) -> int:
        """M, the number of rows."""
        return len(self.L)

    def charge(self, weights: FloatArray) -> FloatArray:
        """Compute L'diag(w)L for weights (b, M), shape (b, r, r)."""
        if self.L.shape[1] == 1:
            return np.asarray(weights @ self._squares)[:, :, None]
        return np.asarray(self.L.T @ (weights[:, :, None] * self.L))

    def compute_variances(self, S: FloatArray) -> FloatArray:
        """Compute the diagonals of L S L' for covariances (b, r, r), shape (b, M)."""
        if self.L.shape[1] == 1:
            return np.asarray(S[:, 0] * self._squares[:, 0])
        return np.asarray(((self.L @ S) * self.L).sum(axis=2))

    @cached_property
    def _squares(self) -> FloatArray:
        return np.asarray(self.L**2)


@dataclass(frozen=True, eq=False)
class Charges:
    """The charges K = L'diag(w)L of some covariances.

    Attributes:
        rows: L.
        weights: w, shape (..., M).
    """

    rows: DepthRows
    weights: FloatArray

    def take(self, at: IntArray) -> Charges:
        """Take the charges of some nodes."""
        return Charges(self.rows, self.weights[at])

    def add_traces(self, S: FloatArray) -> FloatArray:
        """Compute tr(K S), (b, k), for charges (b, k) and S (b, r, r)."""
        variances = self.rows.compute_variances(S)
        return np.asarray((self.weights @ variances[:, :, None])[:, :, 0])

    def add(self, multiples: FloatArray) -> Charges:
        """Sum charges (b, k) times multiples (b, k) over k, shape (b,)."""
        return Charges(self.rows, np.asarray((multiples[:, None] @ self.weights)[:, 0]))

    def build_matrices(self) -> FloatArray:
        """Build K of charges (b,), shape (b, r, r)."""
        return self.rows.charge(self.weights)


@dataclass(frozen=True, eq=False)
class PartRows:
    """The positions of a part's rows among the rows of its depth and the depths above.

    Attributes:
        at: The range of positions.
        squares: If all of the part's rows are multiples of one row, the squares of the multiples;
            else None.
    """

    at: slice
    squares: FloatArray | None

    def weigh(self, q: FloatArray) -> FloatArray:
        """Convert weights q (n, rows of each node) of the part's rows to weights of the depth's
        rows."""
        return q if self.squares is None else np.asarray(q @ self.squares[:, None])

    def take(self, variances: FloatArray) -> FloatArray:
        """Take the variances of the part's rows from those of the depth's rows (n, M)."""
        taken = variances[:, self.at]
        return taken if self.squares is None else np.asarray(taken * self.squares)


def find_depth_rows(
    classes: Sequence[CellClasses], parts: Sequence[GroupPart]
) -> tuple[list[DepthRows], list[PartRows]]:
    """Find the rows of each depth: those of the next depth, followed by those of its parts.

    From the first depth with one class of dense cells on, the total is the only row.

    Args:
        classes: The classes of dense cells by depth.
        parts: The parts of groups in the block.

    Returns:
        The rows of each depth, and the positions of each part's rows.
    """
    D = len(classes[0].of_cell)
    rows, by_depth = np.zeros((0, D)), []
    places: dict[int, PartRows] = {}
    for depth in reversed(range(len(classes))):
        at_depth = classes[depth]
        is_total = at_depth.size == 1
        if is_total:
            rows = (at_depth.of_cell == 0).astype(np.float64)[None]
        for i, part in enumerate(parts):
            if part.level.depth != depth:
                continue
            if is_total:
                places[i] = PartRows(slice(0, 1), at_depth.restrict(part.matrix)[:, 0] ** 2)
            else:
                places[i] = PartRows(slice(len(rows), len(rows) + len(part.matrix)), None)
                rows = np.vstack([rows, part.matrix])
        by_depth.append(DepthRows(at_depth.restrict(rows)))
    return by_depth[::-1], [places[i] for i in range(len(parts))]
