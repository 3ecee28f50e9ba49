"""Chains in several periods: nested triangles, and one more row for contrasts of periods.

The blocks of the chain alone, without and with the period attribute, measure the same nested
triangles. The second one also measures contrasts of h'x with integers h near a constant: nearly the
periods' totals, whose contrasts a person with records in all periods hardly changes. With E the
inverse of the triangles and any shares psi, E y + psi (y_0 - h'E y) estimates the cells
(docs/theory/persons.md, "Contrasts of totals").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fitplug.families.chain.strategy.chains import NestedChain
from fitplug.families.chain.strategy.nested_triangles import (
    multiply_nested,
    multiply_nested_transposed,
    upper_product_errors,
)
from fitplug.numeric import (
    UNIT_ROUNDOFF,
    AnyArray,
    FloatArray,
    IntArray,
    find_largest_entry,
    frozen_property,
    gamma,
    upper_norm,
)
from fitplug.workload import Factor

_MOST = 2**40
"""The bound on all integers, as for nested triangles."""


class TotalShares(NamedTuple):
    """The spread of the further row's answer over the cells.

    Attributes:
        shares: psi, shape (n,).
        prefixes: Upper bounds on what it adds to the variances of prefixes, mostly negative, (n,).
        cells: Likewise of single cells.
    """

    shares: FloatArray
    prefixes: FloatArray
    cells: FloatArray


@dataclass(frozen=True, eq=False)
class PeriodChain(NestedChain):
    """Nested triangles with a further row in each block.

    Attributes:
        totals: h in each block, shape (blocks, n), int64.
    """

    totals: IntArray = field(kw_only=True)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray]) -> PeriodChain:
        return cls(
            arrays["cells"],
            arrays["triangles"],
            arrays["sums"],
            arrays["weights"],
            arrays["grounded"],
            totals=arrays["totals"],
        )

    @property
    def arrays_in_file(self) -> Mapping[str, IntArray]:
        return {**super().arrays_in_file, "totals": self.totals}

    @property
    def rows(self) -> int:
        return self.n + 1

    @property
    def weights_of_total(self) -> IntArray:
        """h in this block, shape (n,)."""
        return self.totals[self.block]

    def has_form(self, n: int) -> bool:
        if not super().has_form(n) or self.totals.dtype != np.int64:
            return False
        shape = len(self.triangles), n
        return self.totals.shape == shape and find_largest_entry(self.totals) < _MOST

    @cached_property
    def largest_entry(self) -> int:
        return max(super().largest_entry, find_largest_entry(self.weights_of_total))

    @cached_property
    def growth(self) -> int:
        return max(super().growth, int(np.abs(self.weights_of_total.astype(object)).sum()))

    def apply(self, values: AnyArray, axis: int) -> AnyArray:
        h = self.weights_of_total.astype(values.dtype)
        total = np.moveaxis(values, axis, -1) @ h
        return np.concatenate([super().apply(values, axis), np.expand_dims(total, axis)], axis)

    def invert(self, values: AnyArray, axis: int) -> FloatArray:
        triangles, total = np.split(values, [self.n], axis)
        x = np.moveaxis(super().invert(triangles, axis), axis, -1)
        rest = np.moveaxis(total, axis, -1) - x @ self.weights_of_total[:, None]
        return np.moveaxis(x + rest * self._update.shares, -1, axis)

    def adjoint(self, values: FloatArray, axis: int) -> FloatArray:
        reduced, share = self._reduce(values, axis)
        return np.concatenate([super().adjoint(reduced, axis), share], axis)

    def upper_adjoint_error(self, values: FloatArray, axis: int) -> float:
        reduced, _ = self._reduce(values, axis)
        sizes, stds = np.abs(np.moveaxis(values, axis, -1)), self.inverse.cell_stds[: self.n]
        shares = sizes @ np.abs(self._update.shares)
        h = float(np.abs(self.weights_of_total) @ stds)
        rounding = gamma(self.n + 16) * (sizes @ stds + (2 * h + 1) * shares)
        return super().upper_adjoint_error(reduced, axis) + float(rounding.max(initial=0.0))

    def upper_variance_parts(self, factor: Factor) -> FloatArray:
        parts = super().upper_variance_parts(factor)
        first, last = factor.intervals().T
        update = self._update
        further = np.where(first == 0, update.prefixes[last], update.cells[last])
        variances = parts[:, 1] + further + gamma(8) * (parts[:, 1] + np.abs(further))
        return np.stack([parts[:, 0], variances], axis=1)

    def _reduce(self, values: FloatArray, axis: int) -> tuple[FloatArray, FloatArray]:
        """Subtract from queries what the further row answers; also return its shares."""
        moved = np.moveaxis(values, axis, -1)
        share = moved @ self._update.shares[:, None]
        reduced = moved - share * self.weights_of_total
        return np.moveaxis(reduced, -1, axis), np.moveaxis(share, -1, axis)

    @frozen_property
    def _update(self) -> TotalShares:
        """The shares near those of least variance.

        A query w has the variance |wE|^2 - 2 (w psi)(wE)(E'h) + (w psi)^2 (1 + |E'h|^2).
        """
        A, inverse, levels, n = self.floats, self.inverse, len(self.sums[0]), self.n
        E, absolute = inverse.inverse, A.take_absolute()
        h = np.zeros((A.cells, 1))
        h[:n, 0] = self.weights_of_total
        z = multiply_nested_transposed(E, h)
        rest = np.abs(h - multiply_nested_transposed(A, z)) + UNIT_ROUNDOFF * np.abs(h)
        rest += upper_product_errors(absolute, z, levels, transposed=True)
        off = float(rest[:, 0] @ inverse.cell_stds) * (1 + gamma(A.cells + 8))
        g = multiply_nested(E, z)
        rest = np.abs(z - multiply_nested(A, g)) + UNIT_ROUNDOFF * np.abs(z)
        rest += upper_product_errors(absolute, g, levels)
        g_off = float(upper_norm(rest[:, 0])) * (1 + gamma(8)) + off
        square = (float(upper_norm(z[:, 0])) + off) ** 2 * (1 + gamma(8))
        cells = g[:n, 0]
        shares = cells / (1 + square)

        def add(stds: FloatArray, sums: FloatArray, s: FloatArray) -> FloatArray:
            """Bound what is added to the variances of sums of g, for the same sums of shares."""
            sizes = np.abs(sums) + np.abs(s) * (1 + square)
            error = 2 * stds[:n] * g_off + gamma(16) * sizes
            return -2 * s * sums + s * s * (1 + square) + np.abs(s) * error

        summed, absolute_sums = np.cumsum(cells), np.cumsum(np.abs(shares)) * (2 + square)
        prefixes = add(inverse.prefix_stds, summed, np.cumsum(shares))
        # Both sums are rounded.
        prefixes += 4 * gamma(n + 8) * absolute_sums * (absolute_sums + np.abs(summed))
        return TotalShares(shares, prefixes, add(inverse.cell_stds, cells, shares))
