"""The products of all pairs of columns of nested triangles, as matrices of low rank.

The columns of two cells in the halves of a node meet in the rows of its right half and of the right
halves of the nodes above, of whose left halves the node is a part. There they depend on the cells
only through the K sums V of the left half: the products are V_i'(A_2'U)_j and V_i'(U'U) V_j.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fitplug.families.chain.strategy.nested_triangles import (
    NestedTriangles,
    halve,
    multiply_nested_transposed,
)
from fitplug.numeric import FloatArray, gamma


class ColumnProducts(NamedTuple):
    """The products of the columns of two ranges of cells, left @ right.T.

    Attributes:
        first: The first cell of the left range.
        second: The first cell of the right range; the same if the ranges are the same.
        left: Shape (cells, k).
        right: Shape (cells, k).
        error: A bound on the errors of all products.
    """

    first: int
    second: int
    left: FloatArray
    right: FloatArray
    error: float


def list_column_products(A: NestedTriangles) -> Iterator[ColumnProducts]:
    """List the products of all pairs of columns: of the halves of nodes, then within leaves.

    Args:
        A: The matrix, in floats.
    """
    _, b, _ = A.triangles.shape
    K, absolute = A.sums.shape[-1], A.take_absolute()
    for level in range(len(A.sums) - 1, -1, -1):
        half = b << level
        U = np.zeros((A.cells, K))
        halve(U, b, level)[:, 1] = A.weights[level].reshape(-1, half, K)
        rights = halve(multiply_nested_transposed(A, U, level), b, level)[:, 1]
        sizes = halve(multiply_nested_transposed(absolute, np.abs(U), level), b, level)[:, 1]
        V = A.sums[level].reshape(-1, half, K)
        for node, (left, right, size) in enumerate(zip(V, rights, sizes, strict=True)):
            first = 2 * half * node
            yield _add_nodes_above(A, level, (first, first + half), left, right, size)
    for leaf, triangle in enumerate(A.triangles):
        columns = triangle.T
        yield _add_nodes_above(A, -1, (leaf * b,) * 2, columns, columns, np.abs(columns))


def _add_nodes_above(
    A: NestedTriangles,
    level: int,
    starts: tuple[int, int],
    left: FloatArray,
    right: FloatArray,
    sizes: FloatArray,
) -> ColumnProducts:
    """Add what two ranges of cells within a node have in common above it.

    Args:
        A: The matrix.
        level: The level of the node; -1 for a leaf.
        starts: The first cells of the two ranges.
        left: The left factor of the products within the node, shape (cells, k).
        right: The right factor, likewise.
        sizes: The right factor computed from absolute values.
    """
    _, b, _ = A.triangles.shape
    lefts, rights, bounds = [left], [right], [sizes]
    for above in range(level + 1, len(A.sums)):
        half = b << above
        node, place = divmod(starts[0], 2 * half)
        if place >= half:
            continue
        V, U = (part[above, node * half : (node + 1) * half] for part in (A.sums, A.weights))
        V1, V2 = (V[start - 2 * half * node :][: len(left)] for start in starts)
        lefts.append(V1)
        rights.append(V2 @ (U.T @ U))
        bounds.append(np.abs(V2) @ (np.abs(U).T @ np.abs(U)))
    left, right, sizes = (np.concatenate(parts, axis=1) for parts in (lefts, rights, bounds))
    largest = float(np.abs(left).max(axis=0) @ sizes.max(axis=0))
    # Each product sums up to 2 A.cells terms at the innermost, then the sums, then the factors.
    error = largest * gamma(2 * A.cells + 4 * left.shape[1] + 64)
    return ColumnProducts(*starts, left, right, error)
