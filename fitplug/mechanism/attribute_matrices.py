"""Integer attribute_matrices: how the strategy measures one attribute apart from its total.

An integer matrix A (r, n) with E A x + u 1'x = x for all x: block A of a plan measures
(x)_{a in A} A_a (x) (sums over the rest). A symmetric attribute's is `fitplug.mechanism.contrasts.Contrast`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from fitplug.numeric import (
    AnyArray,
    FloatArray,
    IntArray,
    bound_norm,
    find_largest_entry,
    frozen_property,
    gamma,
    invert_with_residual,
    multiply_exactly,
    multiply_with_bound,
)
from fitplug.workload import Factor


class AttributeMatrix(Protocol):
    """What a strategy needs of an attribute of n cells.

    rows: r. column_square: max_i |A e_i|^2, exact. entry: the largest |A_ri|. growth: no less than
    any sum_i |A_ri|.
    """

    @property
    def n(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def column_square(self) -> int: ...
    @property
    def entry(self) -> int: ...
    @property
    def growth(self) -> int: ...

    def apply(self, values: AnyArray, axis: int) -> AnyArray:
        """A along an axis of n; exact for Python integers, and for int64 that `growth` times
        cannot leave.
        """

    def invert(self, values: FloatArray, axis: int) -> FloatArray:
        """E along an axis of r: what the cells are, less what their total says."""

    def adjoint(self, values: FloatArray, axis: int) -> FloatArray:
        """E' along an axis of n, up to an isometry."""

    def mean(self) -> FloatArray:
        """u (n,)."""

    def moments(self, factor: Factor) -> FloatArray:
        """Upper bounds on mu^2 = (w u)^2 and gamma = |w E|^2 of a factor's rows w, (r, 2).
        Raises DesignError if they cannot be bounded.
        """

    def arrays(self) -> Mapping[str, IntArray]:
        """The integers that make it, by name."""


@dataclass(frozen=True, eq=False)
class DenseMatrix:
    """Any integer matrix A (n - 1, n) with [A; 1'] invertible: its inverse is [E, u]."""

    matrix: IntArray

    def arrays(self) -> Mapping[str, IntArray]:
        return {"matrix": self.matrix}

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
    def entry(self) -> int:
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
        return self._along(values, axis, self._inverse[0][:, :-1].T)

    def adjoint(self, values: FloatArray, axis: int) -> FloatArray:
        return self._along(values, axis, self._inverse[0][:, :-1])

    def mean(self) -> FloatArray:
        return np.asarray(self._inverse[0][:, -1] * self._unit)

    def moments(self, factor: Factor) -> FloatArray:
        return self.bounds(factor.matrix())

    def bounds(self, W: FloatArray) -> FloatArray:
        """`moments` of rows W (r, n).

        With K = [A; unit 1'], X near its inverse and F = I - K X: W K^-1 = W X (I - F)^-1, which is
        W X + W X F (I - F)^-1.
        """
        X, residual = self._inverse
        parts, error = multiply_with_bound(W, X)
        off = bound_norm(error, axis=1)
        off = off + (bound_norm(parts, axis=1) + off) * residual / (1 - residual) * (1 + gamma(8))
        mu = (np.abs(parts[:, -1]) + off) * self._unit
        deviation = bound_norm(parts[:, :-1], axis=1) + off
        found = np.stack([mu, deviation], axis=1) ** 2 * (1 + gamma(8))
        found[(W == 1).all(axis=1)] = 1.0, 0.0  # 1'u = 1, 1'E = 0
        return np.asarray(found)

    @staticmethod
    def _along(values: FloatArray, axis: int, matrix: FloatArray) -> FloatArray:
        return np.moveaxis(np.moveaxis(values, axis, -1) @ matrix, -1, axis)

    @frozen_property
    def _inverse(self) -> tuple[FloatArray, float]:
        """X (n, n) next to [E, u / unit], the inverse of K, and a bound on |I - K X|_2."""
        K = np.vstack([self.matrix, np.full(self.n, self._unit)])
        return invert_with_residual(K.astype(np.float64))

    @property
    def _unit(self) -> float:
        """A power of two near A's entries, which balances [A; 1'] in floating point."""
        return 2.0 ** max(self.entry, 1).bit_length()
