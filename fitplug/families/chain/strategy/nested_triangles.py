"""Nested triangles: lower triangular matrices whose off-diagonal parts have low rank.

The cells form N = 2^D leaves of b cells each. The left half of a node of level l is 2^l consecutive
leaves, and so is the right half. Within a leaf the matrix is a triangle. The rows of the right half
of a node depend on the left half through K weighted sums of its cells: this part of the matrix is U
V'. If there are fewer than N b cells, the last ones do not exist.

The inverse of [[A1, 0], [U V', A2]] has the off-diagonal part -(A2^-1 U) (V' A1^-1), so it consists
of nested triangles too. Residuals bound its errors: if A2 X = U - r, then the error of a prefix of
X is at most |r| times the std of this prefix within the right half, and if X' A1 = V' - d', the
norm of the error of X' is at most the sum of |d_i| times the std of cell i (docs/theory/chains.md).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fitplug.numeric import AnyArray, FloatArray, gamma, invert_each_with_residual, upper_norm


class NestedTriangles(NamedTuple):
    """The parts of a matrix of nested triangles.

    Attributes:
        triangles: The lower triangles of the leaves, shape (N, b, b).
        sums: V of all levels, shape (D, N b / 2, K): within a level, the left halves of the nodes
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


def keep_cells(A: NestedTriangles, n: int) -> NestedTriangles:
    """Return A with zero rows for all cells after the first n."""
    triangles = A.triangles.copy()
    triangles.reshape(A.cells, -1)[n:] = 0
    return A._replace(triangles=triangles)


def halve(x: AnyArray, leaf: int, level: int) -> AnyArray:
    """View an array (N b, r) as the halves of a level's nodes, (nodes, 2, half, r)."""
    half = leaf << level
    return x.reshape(-1, 2, half, x.shape[-1])


def multiply_nested(A: NestedTriangles, x: AnyArray, levels: int | None = None) -> AnyArray:
    """Multiply by A, or by its diagonal blocks of some number of levels.

    Args:
        A: The matrix.
        x: Shape (N b, r).
        levels: The number of levels to use; None for all.

    Returns:
        The product, shape (N b, r).
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
    """Compute the squared norms of all columns, and bounds on their errors, (N b,) each."""
    b, K = A.triangles.shape[1], A.sums.shape[-1]
    squares = np.square(A.triangles).sum(axis=1).ravel()
    errors = gamma(b + 4) * squares
    for level in range(len(A.sums)):
        half = b << level
        V, U = (part[level].reshape(-1, half, K) for part in (A.sums, A.weights))
        for sums, factor in ((squares, 1.0), (errors, gamma(half + 3 * K + 8))):
            further = factor * ((V @ (U.swapaxes(1, 2) @ U)) * V).sum(axis=2)
            halve(sums[:, None], b, level)[:, 0, :, 0] += further
            U, V = np.abs(U), np.abs(V)
    errors += gamma(2 * len(A.sums) + 4) * (squares + errors)
    return squares, errors


def upper_entry(A: NestedTriangles) -> Any:
    """Bound the entries of A from above, up to rounding; without rounding for Python integers."""
    b, K = A.triangles.shape[1], A.sums.shape[-1]
    largest = np.abs(A.triangles).max()
    for level in range(len(A.sums)):
        V, U = (np.abs(x[level]).reshape(-1, b << level, K) for x in (A.sums, A.weights))
        largest = max(largest, (V.max(axis=1) * U.max(axis=1)).sum(axis=1).max())
    return largest


class NestedInverse(NamedTuple):
    """The inverse E of nested triangles, with bounds on the norms of its rows.

    Attributes:
        inverse: E, in floats.
        prefix_stds: Upper bounds on the norms of the prefix sums of E's rows, shape (N b,).
        cell_stds: Upper bounds on the norms of E's rows, shape (N b,).
    """

    inverse: NestedTriangles
    prefix_stds: FloatArray
    cell_stds: FloatArray


def invert_nested(A: NestedTriangles) -> NestedInverse:
    """Invert nested triangles of floats.

    Raises:
        DesignError: If a leaf's triangle is too ill-conditioned for proven errors.
    """
    _, b, _ = A.triangles.shape
    X, residuals = invert_each_with_residual(A.triangles)
    # T^-1 = X (1 - D)^-1 with D = 1 - T X.
    up = 1 / (1 - residuals)[:, None] * (1 + gamma(8))
    sums = upper_norm(np.cumsum(X, axis=1), axis=2)
    sums = sums + gamma(b) * upper_norm(np.cumsum(np.abs(X), axis=1), axis=2)
    prefix_stds, cell_stds = (sums * up).ravel(), (upper_norm(X, axis=2) * up).ravel()
    E = NestedTriangles(X, np.zeros(A.sums.shape), np.zeros(A.weights.shape))
    absolute = A.take_absolute()
    for level in range(len(A.sums)):
        right = _Solution.solve(A, E, absolute, level)
        half, K = b << level, A.sums.shape[-1]
        E.weights[level] = -right.U.reshape(-1, K)
        E.sums[level] = right.V.reshape(-1, K)
        # A residual r changes a prefix by at most its std times |r|.
        prefixes, cells = (halve(x[:, None], b, level)[:, 1] for x in (prefix_stds, cell_stds))
        lefts = halve(cell_stds[:, None], b, level)[:, 0]
        V_errors = (right.V_rest * lefts).sum(axis=1) * (1 + gamma(half))
        U_rest = upper_norm(right.U_rest, axis=1)[:, None]
        P = np.cumsum(right.U, axis=1)
        P_errors = prefixes * U_rest + gamma(half) * np.cumsum(np.abs(right.U), axis=1)
        first = np.eye(1, K)
        further = _upper_norms(first - P, P_errors, right.V, V_errors)
        prefixes[:] = _add_norms(prefixes, further)
        further = _upper_norms(right.U, cells * U_rest, right.V, V_errors)
        cells[:] = _add_norms(cells, further)
    return NestedInverse(E, prefix_stds, cell_stds)


def upper_product_errors(
    A: NestedTriangles, x: FloatArray, levels: int, *, transposed: bool = False
) -> FloatArray:
    """Bound the rounding errors of products of floats with A or A'.

    Args:
        A: The absolute values of the matrix.
        x: Shape (N b, r).
        levels: The number of levels that were used.
        transposed: Whether the product is with A'.

    Returns:
        Shape (N b, r).
    """
    _, b, _ = A.triangles.shape
    multiply = multiply_nested_transposed if transposed else multiply_nested
    terms = (b << levels) + b + levels * (A.sums.shape[-1] + 2) + 16
    return np.asarray(gamma(terms) * multiply(A, np.abs(x), levels))


class _Solution(NamedTuple):
    """A level's part of the inverse, with the residuals of the equations that it solves.

    Attributes:
        U: A2^-1 U of each right half, shape (nodes, half, K).
        V: A1^-T V of each left half, likewise.
        U_rest: Bounds on |U - A2 X|, likewise.
        V_rest: Bounds on |V - A1' X|, likewise.
    """

    U: FloatArray
    V: FloatArray
    U_rest: FloatArray
    V_rest: FloatArray

    @classmethod
    def solve(
        cls, A: NestedTriangles, E: NestedTriangles, absolute: NestedTriangles, level: int
    ) -> _Solution:
        """Solve the equations of a level with the inverse of the levels below."""
        _, b, _ = A.triangles.shape
        given = np.zeros((A.cells, A.sums.shape[-1]))
        halves = halve(given, b, level)
        halves[:, 0] = A.sums[level].reshape(halves[:, 0].shape)
        X = multiply_nested_transposed(E, given, level)
        rest = np.abs(given - multiply_nested_transposed(A, X, level))
        rest += upper_product_errors(absolute, X, level, transposed=True)
        V, V_rest = (halve(x, b, level)[:, 0].copy() for x in (X, rest))
        given[:] = 0
        halves[:, 1] = A.weights[level].reshape(halves[:, 1].shape)
        X = multiply_nested(E, given, level)
        rest = np.abs(given - multiply_nested(A, X, level))
        rest += upper_product_errors(absolute, X, level)
        U, U_rest = (halve(x, b, level)[:, 1].copy() for x in (X, rest))
        up = 1 + gamma(8)
        return cls(U, V, U_rest * up, V_rest * up)


def _upper_norms(
    f: FloatArray, f_errors: FloatArray, V: FloatArray, V_errors: FloatArray
) -> FloatArray:
    """Bound |V f_j| for rows f_j (nodes, half, K) with errors of up to `f_errors`.

    Args:
        f: Shape (nodes, half, K).
        f_errors: Bounds on the errors of f's entries, likewise.
        V: Shape (nodes, half, K).
        V_errors: Bounds on the errors of the norms of the columns of V, shape (nodes, K).

    Returns:
        Shape (nodes, half, 1).
    """
    half, K = f.shape[1:]
    norms = (upper_norm(V, axis=1) + V_errors)[:, None]
    squares = ((f @ (V.swapaxes(1, 2) @ V)) * f).sum(axis=2, keepdims=True)
    sizes = (np.abs(f) * norms).sum(axis=2, keepdims=True)
    squares = np.maximum(squares, 0.0) + gamma(half + 3 * K + 8) * sizes * sizes
    errors = np.abs(f) * V_errors[:, None] + f_errors * norms
    return np.asarray((np.sqrt(squares) + errors.sum(axis=2, keepdims=True)) * (1 + gamma(K + 8)))


def _add_norms(stds: FloatArray, further: FloatArray) -> FloatArray:
    """Bound the norms of rows from the norms of their two parts."""
    return np.asarray(np.sqrt(stds * stds + further * further) * (1 + gamma(4)))
