"""Attribute matrices: how the strategy measures one attribute apart from its total.

An attribute matrix is an integer matrix A (r, n) with E A x + u 1'x = x for all x. Block A of a
plan measures (x)_{a in A} A_a (x) (sums over the other attributes). Symmetric attributes have the
matrices of `fitplug.families.base.contrasts`, trees those of
`fitplug.families.product.strategy.trees`. See docs/theory/integer-mechanism.md, (M6) to (M9).

Each row may have a grade 1 to K. A block of a graded attribute multiplies the rows of each grade by
a number of the block's choice, so its answers can be more accurate in one grade than in another
(docs/theory/product-family.md, "Grades").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from fitplug.families.base.mechanism import MAX_ENTRY
from fitplug.numeric import (
    AnyArray,
    FloatArray,
    IntArray,
    find_largest_entry,
    frozen_property,
    gamma,
    invert_with_residual,
    multiply_exactly,
    multiply_with_bound,
    upper_norm,
)
from fitplug.workload import Factor


@dataclass(frozen=True, eq=False)
class RowGrades:
    """The grades of the rows of an integer matrix A (r, n), counted from 0.

    Attributes:
        rows: The grade of each row, shape (r,).
        adjoint: The grade of each entry of the result of the matrix's `adjoint`.
        column_squares: The distinct columns' squared norms by grade, shape (classes, K), exact.
        largest_entries: The largest |A_ri| of each grade, shape (K,), at least 1.
    """

    rows: IntArray
    adjoint: IntArray
    column_squares: AnyArray
    largest_entries: IntArray

    @property
    def count(self) -> int:
        """K."""
        return len(self.largest_entries)


def spread_table(table: IntArray, grades: Sequence[IntArray]) -> IntArray:
    """Spread numbers given for tuples of grades over the rows with these grades.

    Args:
        table: A number for each tuple of grades, shape (K_1, ..., K_m).
        grades: The grade of each row of m attributes, shapes (r_i,).

    Returns:
        Shape (r_1, ..., r_m).
    """
    for axis, row_grades in enumerate(grades):
        table = table.take(row_grades, axis)
    return table


class AttributeMatrix(Protocol):
    """The integer matrix A (r, n) with which a strategy measures an attribute of n cells."""

    @property
    def n(self) -> int:
        """The number of cells."""

    @property
    def rows(self) -> int:
        """r, the number of rows."""

    @property
    def column_square(self) -> int:
        """max_i |A e_i|^2, exact."""

    @property
    def largest_entry(self) -> int:
        """The largest |A_ri|."""

    @property
    def growth(self) -> int:
        """At least sum_i |A_ri| for every row r, so that |A x| <= growth * max |x|."""

    @property
    def is_symmetric(self) -> bool:
        """Whether it treats all cells alike: true for symmetric attributes and no others."""
        return False

    @property
    def grades(self) -> RowGrades | None:
        """The grades of its rows, or None if all rows have the same one."""
        return None

    @property
    def arrays_in_file(self) -> Mapping[str, IntArray]:
        """The integers that define it, by their names in plan files."""

    def of_block(self, block: int) -> AttributeMatrix:
        """Return the matrix in a block: most attributes have the same one in all blocks."""
        return self

    def has_form(self, n: int) -> bool:
        """Tell whether its arrays have the shapes, types and ranges of a matrix of n cells.

        Whether [A; 1'] is invertible is left to `upper_variance_parts`.
        """

    def apply(self, values: AnyArray, axis: int) -> AnyArray:
        """Multiply by A along an axis of n.

        The product is exact for Python integers, and for int64 if `growth` times the largest value
        fits into int64.
        """

    def invert(self, values: FloatArray, axis: int) -> FloatArray:
        """Multiply by E along an axis of r: estimate the cells, apart from the total's share."""

    def adjoint(self, values: FloatArray, axis: int) -> FloatArray:
        """Multiply by E' along an axis of n, up to an isometry."""

    def upper_adjoint_error(self, values: FloatArray, axis: int) -> float:
        """Bound the error of each entry of `adjoint`; 0 if it is only a few roundings."""
        return 0.0

    def compute_reference(self) -> FloatArray:
        """Compute u, shape (n,)."""

    def upper_variance_parts(self, factor: Factor) -> FloatArray:
        """Bound mu^2 = (w u)^2 and gamma = |w E|^2 from above for each row w of a factor.

        Returns:
            Shape (r, 2) for r rows: the contributions to the variance of w x of a total of variance
            1, and of A x with noise of variance 1. With K grades, shape (r, 1 + K): the total's
            contribution, and then that of the rows of each grade.

        Raises:
            DesignError: If they cannot be bounded.
        """


@dataclass(frozen=True, eq=False)
class DenseMatrix(AttributeMatrix):
    """Any integer matrix A (n - 1, n) with [A; 1'] invertible: its inverse is [E, u].

    Attributes:
        matrix: A.
        row_grades: The grade of each row, ascending from 0, shape (n - 1,); None if all are equal.
    """

    matrix: IntArray
    row_grades: IntArray | None = None

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray]) -> DenseMatrix:
        """Read the matrix from the arrays of a plan file.

        Raises:
            KeyError: If one is missing.
        """
        return cls(arrays["matrix"], arrays.get("grades"))

    @property
    def arrays_in_file(self) -> Mapping[str, IntArray]:
        graded = {} if self.row_grades is None else {"grades": self.row_grades}
        return {"matrix": self.matrix, **graded}

    @frozen_property
    def grades(self) -> RowGrades | None:
        if self.row_grades is None:
            return None
        graded = self.split_rows()
        squares = [(rows.astype(object) ** 2).sum(axis=0) for rows in graded]
        return RowGrades(
            rows=self.row_grades,
            adjoint=self.row_grades,
            column_squares=np.stack(squares, axis=1),
            largest_entries=np.array([max(1, find_largest_entry(rows)) for rows in graded]),
        )

    def split_rows(self) -> list[IntArray]:
        """Split the rows by grade."""
        if self.row_grades is None:
            return [self.matrix]
        return [self.matrix[self.row_grades == k] for k in range(int(self.row_grades.max()) + 1)]

    def has_form(self, n: int) -> bool:
        fits = self.matrix.dtype == np.int64 and self.matrix.shape == (n - 1, n)
        if (grades := self.row_grades) is not None:
            fits = fits and n > 1 and grades.dtype == np.int64 and grades.shape == (n - 1,)
            fits = fits and int(grades[0]) == 0 and bool(np.isin(np.diff(grades), (0, 1)).all())
        return fits and (not self.matrix.size or find_largest_entry(self.matrix) < MAX_ENTRY)

    @property
    def n(self) -> int:
        return int(self.matrix.shape[1])

    @property
    def rows(self) -> int:
        return len(self.matrix)

    @cached_property
    def column_square(self) -> int:
        return max(sum(a * a for a in column) for column in self.matrix.T.tolist())

    @cached_property
    def largest_entry(self) -> int:
        return find_largest_entry(self.matrix) if self.matrix.size else 0

    @cached_property
    def growth(self) -> int:
        return max((sum(map(abs, row)) for row in self.matrix.tolist()), default=0)

    def apply(self, values: AnyArray, axis: int) -> AnyArray:
        moved = np.moveaxis(values, axis, -1)
        if not moved.size or not self.rows:
            return np.moveaxis(np.zeros((*moved.shape[:-1], self.rows), values.dtype), -1, axis)
        flat = multiply_exactly(moved.reshape(-1, self.n), self.matrix.T)
        return np.moveaxis(flat.reshape(*moved.shape[:-1], self.rows), -1, axis)

    def invert(self, values: FloatArray, axis: int) -> FloatArray:
        return _multiply_along(values, axis, self._inverse[0][:, :-1].T)

    def adjoint(self, values: FloatArray, axis: int) -> FloatArray:
        return _multiply_along(values, axis, self._inverse[0][:, :-1])

    def compute_reference(self) -> FloatArray:
        return np.asarray(self._inverse[0][:, -1] * self._unit)

    def upper_variance_parts(self, factor: Factor) -> FloatArray:
        return self.upper_row_parts(factor.matrix())

    def upper_row_parts(self, W: FloatArray) -> FloatArray:
        """Bound the variance parts of rows W (r, n); see `upper_variance_parts`.

        With K = [A; unit 1'], X near its inverse and F = I - K X: W K^-1 = W X (I - F)^-1, which is
        W X + W X F (I - F)^-1.
        """
        X, residual = self._inverse
        parts, error = multiply_with_bound(W, X)
        off = upper_norm(error, axis=1)
        off = off + (upper_norm(parts, axis=1) + off) * residual / (1 - residual) * (1 + gamma(8))
        mu = (np.abs(parts[:, -1]) + off) * self._unit
        grades = np.zeros(self.rows, np.int64) if self.row_grades is None else self.row_grades
        deviations = [
            upper_norm(parts[:, :-1][:, grades == k], axis=1) + off
            for k in range(int(grades.max(initial=0)) + 1)
        ]
        squares = np.stack([mu, *deviations], axis=1) ** 2 * (1 + gamma(8))
        squares[(W == 1).all(axis=1)] = 0.0  # 1'u = 1, 1'E = 0
        squares[(W == 1).all(axis=1), 0] = 1.0
        return np.asarray(squares)

    @frozen_property
    def _inverse(self) -> tuple[FloatArray, float]:
        """X (n, n), near the inverse [E, u / unit] of K, and a bound on |I - K X|_2."""
        K = np.vstack([self.matrix, np.full(self.n, self._unit)])
        return invert_with_residual(K.astype(np.float64))

    @property
    def _unit(self) -> float:
        """A power of two near A's entries, which balances [A; 1'] in floating point."""
        return 2.0 ** max(self.largest_entry, 1).bit_length()


def _multiply_along(values: FloatArray, axis: int, matrix: FloatArray) -> FloatArray:
    """Multiply each vector along an axis by a matrix from the right."""
    return np.moveaxis(np.moveaxis(values, axis, -1) @ matrix, -1, axis)
