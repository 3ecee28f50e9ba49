"""Chains: prefixes of one long attribute, measured by weighted convolutions.

The integer matrix of a chain of n cells is A = R T M, with diagonal R and M of positive integers r
and m, and T the lower triangular Toeplitz matrix of an integer sequence t. It is invertible, so

    x = E A x        E = M^-1 T^-1 R^-1

and the reference u of `fitplug.families.base.attribute_matrices` is zero. If the total has a
tighter target than the prefixes, A has one more row, k times the total, and the difference between
its answer and k 1'E y is spread over the cells. Products with A are exact convolutions of integers,
and products with E are convolutions with a proven error (docs/theory/chains.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fitplug.families.base.attribute_matrices import AttributeMatrix
from fitplug.families.chain.strategy.convolution_variances import (
    ToeplitzInverse,
    TotalUpdate,
    find_total_update,
    invert_toeplitz,
    upper_prefix_stds,
)
from fitplug.numeric import (
    AnyArray,
    FloatArray,
    IntArray,
    convolve,
    convolve_exactly,
    convolve_with_bound,
    correlate,
    find_largest_entry,
    frozen_property,
    gamma,
    multiply_numbers,
    upper_convolution_error,
    upper_norm,
)
from fitplug.workload import Factor

_MOST = 2**33
"""The bound on all integers of a chain: larger ones would leave no room for records."""


@dataclass(frozen=True, eq=False)
class ChainMatrix(AttributeMatrix):
    """The integer matrix A = R T M of a chain; see the module's docstring.

    Attributes:
        row_weights: r, shape (n,), int64.
        sequence: t, shape (n,), int64.
        column_weights: m, shape (n,), int64.
        total_weight: k, shape (1,), int64; 0 for no row of the total.
    """

    row_weights: IntArray
    sequence: IntArray
    column_weights: IntArray
    total_weight: IntArray

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray]) -> ChainMatrix:
        """Read the matrix from the arrays of a plan file.

        Raises:
            KeyError: If one is missing.
        """
        names = "row_weights", "sequence", "column_weights", "total_weight"
        return cls(*(arrays[name] for name in names))

    @property
    def arrays_in_file(self) -> Mapping[str, IntArray]:
        return {
            "row_weights": self.row_weights,
            "sequence": self.sequence,
            "column_weights": self.column_weights,
            "total_weight": self.total_weight,
        }

    def has_form(self, n: int) -> bool:
        arrays = self.arrays_in_file.values()
        shapes = [(n,), (n,), (n,), (1,)]
        fits = [a.dtype == np.int64 and a.shape == b for a, b in zip(arrays, shapes, strict=True)]
        if not all(fits):
            return False
        least = min(int(self.row_weights.min()), int(self.column_weights.min()))
        largest = max(find_largest_entry(array) for array in arrays)
        at_least_one = least >= 1 and self.sequence[0] >= 1
        return bool(at_least_one and self.total_weight[0] >= 0 and largest < _MOST)

    @property
    def n(self) -> int:
        return len(self.sequence)

    @property
    def rows(self) -> int:
        return self.n + (self._total > 0)

    @property
    def _total(self) -> int:
        """k, the weight of the total; 0 if it has no row."""
        return int(self.total_weight[0])

    @cached_property
    def column_square(self) -> int:
        squares = self._column_sums
        m = self.column_weights
        # Floats pick the columns that may attain the largest square, and integers decide.
        near = squares.astype(np.float64) * m.astype(np.float64) ** 2
        candidates = np.flatnonzero(near >= near.max() * (1 - 1e-9))
        pairs = zip(squares[candidates].tolist(), m[candidates].tolist(), strict=True)
        return self._total**2 + max(square * weight**2 for square, weight in pairs)

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
        """An upper bound on |A_ji| = r_j |t_(j - i)| m_i for all j >= i."""
        later = np.maximum.accumulate(self.row_weights[::-1])[::-1]
        products = later.astype(object) * self.column_weights.astype(object)
        return max(int(products.max()) * find_largest_entry(self.sequence), self._total)

    @cached_property
    def growth(self) -> int:
        total = int(np.abs(self.sequence).astype(object).sum())
        prefix_growth = int(self.row_weights.max()) * total * int(self.column_weights.max())
        return max(prefix_growth, self._total * self.n)

    def apply(self, values: AnyArray, axis: int) -> AnyArray:
        moved = np.moveaxis(values, axis, -1)
        kind = moved.dtype
        sums = convolve_exactly(self.sequence, moved * self.column_weights.astype(kind))
        answers = multiply_numbers(sums, self.row_weights)
        if self._total:
            total = multiply_numbers(
                moved.sum(axis=-1, keepdims=True), np.array([self._total], dtype=np.int64)
            )
            if object in (answers.dtype, total.dtype):
                answers, total = answers.astype(object), total.astype(object)
            answers = np.concatenate([answers, total], axis=-1)
        return np.moveaxis(answers, -1, axis)

    def invert(self, values: AnyArray, axis: int) -> FloatArray:
        moved = np.moveaxis(values, axis, -1).astype(np.float64)
        scaled = moved[..., : self.n] / self.row_weights
        cells = convolve(self._inverse.v, scaled) / self.column_weights
        if self._total:
            rest = moved[..., self.n :] - self._total * cells.sum(axis=-1, keepdims=True)
            cells = cells + rest * self._update.shares
        return np.moveaxis(cells, -1, axis)

    def adjoint(self, values: FloatArray, axis: int) -> FloatArray:
        moved = np.moveaxis(values, axis, -1)
        if self._total:
            share = moved @ self._update.shares[:, None]
            moved = moved - self._total * share
        weights = correlate(self._inverse.v, moved / self.column_weights) / self.row_weights
        if self._total:
            weights = np.concatenate([weights, share], axis=-1)
        return np.moveaxis(weights, -1, axis)

    def upper_adjoint_error(self, values: FloatArray, axis: int) -> float:
        norm = float(upper_norm(np.moveaxis(values, axis, -1), axis=-1).max(initial=0.0))
        v, root = float(upper_norm(self._inverse.v)), self.n**0.5
        least = int(self.column_weights.min()) * int(self.row_weights.min())
        shares = float(upper_norm(self._update.shares)) if self._total else 0.0
        # The total's share is rounded, and so is its effect on every cell.
        share_error = gamma(self.n + 8) * norm * shares
        reduced_norm = norm * (1 + self._total * shares * root)
        error = (
            (upper_convolution_error(self.n) * v + self._inverse.v_error * root)
            * reduced_norm
            / least
        )
        error += self._total * share_error * v * root / least
        return (error + share_error) * (1 + gamma(self.n + 16))

    def compute_reference(self) -> FloatArray:
        return np.zeros(self.n)

    def upper_variance_parts(self, factor: Factor) -> FloatArray:
        """Bound mu^2 = 0 and gamma of prefixes and single cells from above, (rows, 2)."""
        first, last = factor.intervals().T
        gammas = np.where(first == 0, self._prefix_variances[last], self._cell_variances[last])
        return np.stack([np.zeros(len(gammas)), gammas], axis=1)

    @frozen_property
    def _inverse(self) -> ToeplitzInverse:
        return invert_toeplitz(self.sequence)

    @frozen_property
    def _update(self) -> TotalUpdate:
        """The spread of the total's answer over the cells."""
        r = self.row_weights.astype(np.float64)
        return find_total_update(self._inverse, r, self.column_weights, self._total)

    @frozen_property
    def _prefix_variances(self) -> FloatArray:
        """Bounds on the variances of all prefixes at noise of variance 1, shape (n,)."""
        r, inverse = self.row_weights.astype(np.float64), self._inverse
        variances = upper_prefix_stds(inverse.u, inverse.u_error, r, self.column_weights) ** 2
        return self._update.update_prefixes(variances) if self._total else variances

    @frozen_property
    def _cell_variances(self) -> FloatArray:
        """Bounds on the variances of all cells at noise of variance 1, shape (n,)."""
        v, r = self._inverse.v, self.row_weights.astype(np.float64)
        squares, error = convolve_with_bound(v * v, r**-2.0)
        off = self._inverse.v_error * float(upper_norm(1 / r))
        stds = (np.sqrt(np.maximum(squares, 0.0) + error) + off) / self.column_weights
        variances = np.asarray(stds**2 * (1 + gamma(32)))
        return self._update.update_cells(variances) if self._total else variances
