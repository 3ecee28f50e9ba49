"""Chains: prefixes of one long attribute, measured by weighted convolutions.

The integer matrix of a chain of n cells is A = R T M, with diagonal R and M of positive integers r
and m, and T the lower triangular Toeplitz matrix of an integer sequence t. It is invertible, so

    x = E A x        E = M^-1 T^-1 R^-1

and the reference u of `fitplug.mechanism.attribute_matrices` is zero. Products with A are exact
convolutions of integers, and products with E are convolutions with a proven error
(docs/theory/chains.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fitplug.mechanism.integer_limits import MAX_ENTRY
from fitplug.mechanism.prefix_variances import bound_prefix_stds
from fitplug.mechanism.toeplitz_inverse import ToeplitzInverse, invert_toeplitz
from fitplug.numeric import (
    AnyArray,
    FloatArray,
    IntArray,
    bound_convolution_error,
    bound_norm,
    convolve,
    convolve_exactly,
    convolve_with_bound,
    correlate,
    find_largest_entry,
    frozen_property,
    gamma,
)
from fitplug.workload import Factor


@dataclass(frozen=True, eq=False)
class ChainMatrix:
    """The integer matrix A = R T M of a chain; see the module.

    Attributes:
        row_weights: r, shape (n,), int64.
        sequence: t, shape (n,), int64.
        column_weights: m, shape (n,), int64.
    """

    row_weights: IntArray
    sequence: IntArray
    column_weights: IntArray

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray]) -> ChainMatrix:
        """Read the matrix from the arrays of a plan file.

        Raises:
            KeyError: If one is missing.
        """
        return cls(arrays["row_weights"], arrays["sequence"], arrays["column_weights"])

    @property
    def arrays_in_file(self) -> Mapping[str, IntArray]:
        return {
            "row_weights": self.row_weights,
            "sequence": self.sequence,
            "column_weights": self.column_weights,
        }

    @property
    def is_symmetric(self) -> bool:
        return False

    def has_form(self, n: int) -> bool:
        arrays = self.arrays_in_file.values()
        if not all(array.dtype == np.int64 and array.shape == (n,) for array in arrays):
            return False
        weights = np.minimum(self.row_weights, self.column_weights)
        largest = [find_largest_entry(array) for array in arrays]
        return int(weights.min()) >= 1 and self.sequence[0] >= 1 and max(largest) < MAX_ENTRY

    @property
    def n(self) -> int:
        return len(self.sequence)

    @property
    def rows(self) -> int:
        return self.n

    @cached_property
    def column_square(self) -> int:
        squares = self._column_sums
        m = self.column_weights
        # Floats pick the columns that may attain the largest square, and integers decide.
        near = squares.astype(np.float64) * m.astype(np.float64) ** 2
        candidates = np.flatnonzero(near >= near.max() * (1 - 1e-9))
        pairs = zip(squares[candidates].tolist(), m[candidates].tolist(), strict=True)
        return max(square * weight**2 for square, weight in pairs)

    @frozen_property
    def _column_sums(self) -> AnyArray:
        """sum_j r_j^2 t_(j - i)^2 of each column i, shape (n,), exact."""
        t = self.sequence.astype(object) ** 2
        r = self.row_weights.astype(object) ** 2
        if max(t.max(), r.max()) < 2**62:
            t, r = t.astype(np.int64), r.astype(np.int64)
        return np.asarray(convolve_exactly(t, r[::-1])[::-1])

    @cached_property
    def largest_entry(self) -> int:
        """No less than the largest |A_ji|: at least as large as |t_(j - i)| m_i r_j of any j >= i."""
        later = np.maximum.accumulate(self.row_weights[::-1])[::-1]
        products = later.astype(object) * self.column_weights.astype(object)
        return int(products.max()) * find_largest_entry(self.sequence)

    @cached_property
    def growth(self) -> int:
        total = int(np.abs(self.sequence).astype(object).sum())
        return int(self.row_weights.max()) * total * int(self.column_weights.max())

    def apply(self, values: AnyArray, axis: int) -> AnyArray:
        moved = np.moveaxis(values, axis, -1)
        kind = moved.dtype
        sums = convolve_exactly(self.sequence, moved * self.column_weights.astype(kind))
        return np.moveaxis(sums * self.row_weights.astype(sums.dtype), -1, axis)

    def invert(self, values: AnyArray, axis: int) -> FloatArray:
        moved = np.moveaxis(values, axis, -1).astype(np.float64)
        found = convolve(self._inverse.v, moved / self.row_weights) / self.column_weights
        return np.moveaxis(found, -1, axis)

    def adjoint(self, values: FloatArray, axis: int) -> FloatArray:
        moved = np.moveaxis(values, axis, -1)
        found = correlate(self._inverse.v, moved / self.column_weights) / self.row_weights
        return np.moveaxis(found, -1, axis)

    def bound_adjoint_error(self, values: FloatArray, axis: int) -> float:
        moved = np.moveaxis(values, axis, -1) / self.column_weights
        norm = float(bound_norm(moved, axis=-1).max(initial=0.0))
        v = float(bound_norm(self._inverse.v))
        error = bound_convolution_error(self.n) * v + self._inverse.v_error * self.n**0.5
        return norm * error / int(self.row_weights.min()) * (1 + gamma(16))

    def compute_reference(self) -> FloatArray:
        return np.zeros(self.n)

    def bound_variance_parts(self, factor: Factor) -> FloatArray:
        """Bound mu^2 = 0 and gamma of prefixes and single cells from above, (rows, 2)."""
        first, last = factor.intervals().T
        found = np.where(first == 0, self._prefix_variances[last], self._cell_variances[last])
        return np.stack([np.zeros(len(found)), found], axis=1)

    @frozen_property
    def _inverse(self) -> ToeplitzInverse:
        return invert_toeplitz(self.sequence)

    @frozen_property
    def _prefix_variances(self) -> FloatArray:
        """Bounds on the variances of all prefixes at noise of variance 1, shape (n,)."""
        r = self.row_weights.astype(np.float64)
        own = self._inverse
        return np.asarray(bound_prefix_stds(own.u, own.u_error, r, self.column_weights) ** 2)

    @frozen_property
    def _cell_variances(self) -> FloatArray:
        """Bounds on the variances of all cells at noise of variance 1, shape (n,)."""
        v, r = self._inverse.v, self.row_weights.astype(np.float64)
        squares, error = convolve_with_bound(v * v, r**-2.0)
        off = self._inverse.v_error * float(bound_norm(1 / r))
        stds = (np.sqrt(np.maximum(squares, 0.0) + error) + off) / self.column_weights
        return np.asarray(stds**2 * (1 + gamma(32)))
