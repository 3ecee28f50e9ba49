"""What a Lagrangian charges for the covariances of nodes, as weights of the rows asked of them.

The covariance of a node is charged for what is asked of it and, through the references of its
children, of the nodes below. All of this is L'diag(w)L with one matrix L for a depth, so that only
w differs between its nodes, and of a covariance S it needs the variances, the diagonal of L S L'.
So a node takes numbers for each row, and matrices are needed only for the means over its children.
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
    """The rows that are asked of the nodes of a depth or below it.

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
    """What covariances are charged: K = L'diag(w)L for each.

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
        """Add up charges (b, k) times multiples (b, k), shape (b,)."""
        return Charges(self.rows, np.asarray((multiples[:, None] @ self.weights)[:, 0]))

    def build_matrices(self) -> FloatArray:
        """Build K of charges (b,), shape (b, r, r)."""
        return self.rows.charge(self.weights)


@dataclass(frozen=True, eq=False)
class PartRows:
    """Where the rows of a part are among those of the depths, at its level and above.

    Attributes:
        at: The first of them, and the one after the last.
        squares: Where all of them are multiples of one row, the squares of these; None elsewhere.
    """

    at: slice
    squares: FloatArray | None

    def weigh(self, q: FloatArray) -> FloatArray:
        """Compute the weights of rows of the depth for q (n, rows of each node)."""
        return q if self.squares is None else np.asarray(q @ self.squares[:, None])

    def take(self, variances: FloatArray) -> FloatArray:
        """Take the part's variances from those of rows of the depth, (n, M)."""
        taken = variances[:, self.at]
        return taken if self.squares is None else np.asarray(taken * self.squares)


def find_depth_rows(
    classes: Sequence[CellClasses], parts: Sequence[GroupPart]
) -> tuple[list[DepthRows], list[PartRows]]:
    """Find the rows of each depth: those of the next depth, and then those of its parts.

    From the depth on at which there is one class of dense cells, its total is the only row.

    Args:
        classes: The classes of dense cells by depth.
        parts: What is asked.

    Returns:
        The rows of each depth, and where those of each part are.
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
