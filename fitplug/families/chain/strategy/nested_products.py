"""Products with nested triangles: lower triangular matrices whose far parts have few columns.

The cells are N = 2^D leaves of b cells each. A node of level l is 2^l leaves that follow each
other. Within a leaf the matrix is a triangle. Between the two halves of a node, the rows of the
right half see K weighted sums of the cells of the left one: the part of the matrix there is U V'.
Where cells are fewer than N b, the last ones do not exist (docs/theory/chains.md).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fitplug.numeric import AnyArray, FloatArray, gamma


class NestedTriangles(NamedTuple):
    """The parts of a matrix of nested triangles.

    Attributes:
        triangles: The lower triangles of the leaves, shape (N, b, b).
        sums: V of all levels, shape (D, N b / 2, K): the left halves of the nodes of a level,
            one after another.
        weights: U of all levels, likewise for the right halves.
    """

    triangles: AnyArray
    sums: AnyArray
    weights: AnyArray

    @property
    def cells(self) -> int:
        """N b, the number of rows and columns."""
        leaves, b, _ = self.triangles.shape
        return int(leaves * b)

    def astype(self, kind: type) -> NestedTriangles:
        """Convert all numbers."""
        return NestedTriangles(*(x.astype(kind) for x in self))

    def take_absolute(self) -> NestedTriangles:
        """Take the absolute values of all numbers."""
        return NestedTriangles(*(np.abs(x) for x in self))


def halve(x: AnyArray, leaf: int, level: int) -> AnyArray:
    """View an array (N b, r) as the halves of the nodes of a level, (nodes, 2, half, r)."""
    half = leaf << level
    return x.reshape(-1, 2, half, x.shape[-1])


def multiply_nested(A: NestedTriangles, x: AnyArray, levels: int | None = None) -> AnyArray:
    """Multiply by A, or by its parts within the nodes of a level.

    Args:
        A: The matrix.
        x: Shape (N b, r).
        levels: How many levels are used; None for all.

    Returns:
        Shape (N b, r), of the type that products of both have.
    """
    leaves, b, _ = A.triangles.shape
    y = (A.triangles @ x.reshape(leaves, b, -1)).reshape(A.cells, -1)
    for level in range(len(A.sums) if levels is None else levels):
        half, K = b << level, A.sums.shape[-1]
        V, U = (part[level].reshape(-1, half, K) for part in (A.sums, A.weights))
        halve(y, b, level)[:, 1] += U @ (V.swapaxes(1, 2) @ halve(x, b, level)[:, 0])
    return y


def multiply_nested_transposed(
    A: NestedTriangles, x: AnyArray, levels: int | None = None
) -> AnyArray:
    """Multiply by A'; the arguments are those of `multiply_nested`."""
    leaves, b, _ = A.triangles.shape
    y = (A.triangles.swapaxes(1, 2) @ x.reshape(leaves, b, -1)).reshape(A.cells, -1)
    for level in range(len(A.sums) if levels is None else levels):
        half, K = b << level, A.sums.shape[-1]
        V, U = (part[level].reshape(-1, half, K) for part in (A.sums, A.weights))
        halve(y, b, level)[:, 0] += V @ (U.swapaxes(1, 2) @ halve(x, b, level)[:, 1])
    return y


def square_columns(A: NestedTriangles) -> tuple[FloatArray, FloatArray]:
    """Compute the squares of all columns of floats, and bounds on their errors, (N b,) each."""
    b, K = A.triangles.shape[1], A.sums.shape[-1]
    squares = np.square(A.triangles).sum(axis=1).ravel()
    errors = gamma(b + 4) * squares
    for level in range(len(A.sums)):
        half = b << level
        V, U = (part[level].reshape(-1, half, K) for part in (A.sums, A.weights))
        for found, factor in ((squares, 1.0), (errors, gamma(half + 3 * K + 8))):
            further = factor * ((V @ (U.swapaxes(1, 2) @ U)) * V).sum(axis=2)
            halve(found[:, None], b, level)[:, 0, :, 0] += further
            U, V = np.abs(U), np.abs(V)
    errors += gamma(2 * len(A.sums) + 4) * (squares + errors)
    return squares, errors


def upper_entry(A: NestedTriangles) -> Any:
    """Bound the largest entry of A from above, but for rounding; exact for Python integers."""
    b, K = A.triangles.shape[1], A.sums.shape[-1]
    found = np.abs(A.triangles).max()
    for level in range(len(A.sums)):
        V, U = (np.abs(x[level]).reshape(-1, b << level, K) for x in (A.sums, A.weights))
        found = max(found, (V.max(axis=1) * U.max(axis=1)).sum(axis=1).max())
    return found
