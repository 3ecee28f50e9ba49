"""Variants: different integer matrices with which blocks measure one attribute.

All matrices A_v (r, n) of an attribute satisfy A_v u = 0 for the same reference u. So [A_v; 1'] has
the inverse [E_v, u] for each variant, and

    x = E_v A_v x + u 1'x

holds in every block for its variant's matrix. See docs/theory/product-family.md, "Variants".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fitplug.families.base.attribute_matrices import AttributeMatrix, DenseMatrix, RowGrades
from fitplug.families.base.mechanism import MAX_ENTRY
from fitplug.numeric import (
    AnyArray,
    FloatArray,
    IntArray,
    find_largest_entry,
    frozen_property,
    multiply_exactly,
)
from fitplug.workload import Factor

_SEVERAL = "this attribute has several matrices; use the matrix of the table that is computed"


@dataclass(frozen=True, eq=False)
class VariantMatrix(AttributeMatrix):
    """The integer matrices of an attribute, one for each variant.

    Attributes:
        matrices: A_v, each with grades.
        variants: The variant of each block, shape (b,).
    """

    matrices: tuple[AttributeMatrix, ...]
    variants: IntArray

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of grades of each variant."""
        return tuple(matrix.grades.count if matrix.grades else 1 for matrix in self.matrices)

    @frozen_property
    def grades(self) -> RowGrades:
        """The grades of the rows of all variants, one variant after another."""
        parts = [matrix.grades for matrix in self.matrices if matrix.grades]
        starts = np.append(0, np.cumsum([grades.count for grades in parts]))
        rows = np.concatenate([grades.rows + at for grades, at in zip(parts, starts, strict=False)])
        return RowGrades(
            rows=rows,
            adjoint=rows,
            column_squares=np.concatenate([grades.column_squares for grades in parts], axis=1),
            largest_entries=np.concatenate([grades.largest_entries for grades in parts]),
        )

    def of_block(self, block: int) -> AttributeMatrix:
        return self.matrices[self.variants[block]]

    @property
    def n(self) -> int:
        return self.matrices[0].n

    @property
    def rows(self) -> int:
        return self.matrices[0].rows

    @cached_property
    def column_square(self) -> int:
        return max(matrix.column_square for matrix in self.matrices)

    @cached_property
    def largest_entry(self) -> int:
        return max(matrix.largest_entry for matrix in self.matrices)

    @cached_property
    def growth(self) -> int:
        return max(matrix.growth for matrix in self.matrices)

    def apply(self, values: AnyArray, axis: int) -> AnyArray:
        raise TypeError(_SEVERAL)

    def invert(self, values: FloatArray, axis: int) -> FloatArray:
        raise TypeError(_SEVERAL)

    def adjoint(self, values: FloatArray, axis: int) -> FloatArray:
        raise TypeError(_SEVERAL)

    def compute_reference(self) -> FloatArray:
        return self.matrices[0].compute_reference()

    def upper_variance_parts(self, factor: Factor) -> FloatArray:
        """Bound mu^2 and the gammas of all variants' grades from above, (r, 1 + K)."""
        parts = [matrix.upper_variance_parts(factor) for matrix in self.matrices]
        mu = np.min([part[:, :1] for part in parts], axis=0)
        return np.concatenate([mu, *(part[:, 1:] for part in parts)], axis=1)


@dataclass(frozen=True, eq=False)
class DenseVariants(VariantMatrix):
    """The variants of an attribute whose matrices are written down.

    Attributes:
        reference: Integers in the proportions of u, shape (n,).
    """

    matrices: tuple[DenseMatrix, ...]
    reference: IntArray

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray], variants: IntArray) -> DenseVariants:
        """Read the matrices from the arrays of a plan file.

        Raises:
            KeyError: If one is missing.
        """
        pairs = zip(arrays["matrices"], arrays["grades"], strict=True)
        matrices = tuple(DenseMatrix(matrix, grades) for matrix, grades in pairs)
        return cls(matrices, variants, arrays["reference"])

    @property
    def arrays_in_file(self) -> Mapping[str, IntArray]:
        return {
            "matrices": np.stack([matrix.matrix for matrix in self.matrices]),
            "grades": np.stack([matrix.grades.rows for matrix in self.matrices if matrix.grades]),
            "reference": self.reference,
        }

    def split_rows(self) -> list[IntArray]:
        """Split the rows of all variants by grade."""
        return [rows for matrix in self.matrices for rows in matrix.split_rows()]

    def has_form(self, n: int) -> bool:
        u = self.reference
        if u.dtype != np.int64 or u.shape != (n,) or find_largest_entry(u) >= MAX_ENTRY:
            return False
        if sum(u.tolist()) <= 0 or len(self.matrices) != int(self.variants.max()) + 1:
            return False
        return all(
            matrix.row_grades is not None
            and matrix.has_form(n)
            and not multiply_exactly(matrix.matrix, u[:, None]).any()
            for matrix in self.matrices
        )

    def compute_reference(self) -> FloatArray:
        return np.asarray(self.reference / sum(self.reference.tolist()))
