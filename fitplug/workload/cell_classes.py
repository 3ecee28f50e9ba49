"""Classes of cells: cells that no query distinguishes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fitplug.numeric import AnyArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class CellClasses:
    """Classes of cells that some queries do not distinguish.

    Attributes:
        of_cell: The class of each cell, shape (D,), numbered by first cell; -1 if no query counts
            it.
        first: The first cell of each class, shape (r,).
    """

    of_cell: IntArray
    first: IntArray

    @property
    def size(self) -> int:
        """r, the number of classes."""
        return len(self.first)

    def merge_counts(self, counts: AnyArray) -> AnyArray:
        """Sum counts (..., D) by class, (..., r), exactly for integers without overflow."""
        of_cell = self.of_cell
        if np.array_equal(of_cell, np.arange(self.size)):
            return counts
        order = np.argsort(of_cell, kind="stable")[int((of_cell < 0).sum()) :]
        if not len(order):
            return np.zeros((*counts.shape[:-1], 0), dtype=counts.dtype)
        starts = np.searchsorted(of_cell[order], np.arange(self.size))
        return np.asarray(np.add.reduceat(counts[..., order], starts, axis=-1, dtype=counts.dtype))

    def merge_matrices(self, matrices: AnyArray) -> AnyArray:
        """Sum the entries of symmetric matrices (..., D, D) by class, (..., r, r)."""
        return self.merge_counts(self.merge_counts(matrices).swapaxes(-1, -2))

    def find_merged(self, coarser: CellClasses) -> CellClasses:
        """Group these classes by the coarser classes that contain them."""
        return number_classes(coarser.of_cell[self.first], coarser.size)

    def restrict(self, matrix: FloatArray) -> FloatArray:
        """Restrict queries (m, D) that distinguish no cells of a class to classes, (m, r)."""
        return np.asarray(matrix[:, self.first])


def find_classes(W: FloatArray) -> CellClasses:
    """Find the classes of cells that no query of W (m, D) distinguishes."""
    of_cell = classify_cells(W)
    return number_classes(of_cell, int(of_cell.max()) + 1)


def number_classes(of_cell: IntArray, size: int) -> CellClasses:
    """Make the classes from the class of each cell: 0 to size - 1, or -1 for none."""
    _, first = np.unique(of_cell, return_index=True)
    return CellClasses(of_cell, first[len(first) - size :])


def classify_cells(W: FloatArray) -> IntArray:
    """Number the classes of cells that no query of W (m, d) distinguishes.

    Returns:
        The class of each cell, shape (d,), numbered by first cell; -1 where a column is zero.
    """
    columns = np.add(W.T, 0.0, order="C")  # turns -0.0 into 0.0
    class_of = {bytes(columns[0].nbytes): -1}
    classes = [class_of.setdefault(column.tobytes(), len(class_of) - 1) for column in columns]
    return np.array(classes, dtype=np.int64)
