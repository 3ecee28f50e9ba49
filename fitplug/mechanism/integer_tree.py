"""Trees: hierarchies of any number of leaves, measured by integers that are never one matrix.

With S the sums of the P top nodes, R_v those of the children of a node v below, k_v > 1 of them,
and H_v their contrasts (`fitplug.mechanism.contrasts`),

    A = [A_T S; m_v H_v R_v for every v]        [A_T; 1'] (P, P) invertible

    x = E A x + u 1'x        1'u = 1,  A u = 0,  1'E = 0

where u spreads evenly below the top and, with precision_v the factor in H_v'H_v, E adds

    child of v:  parent's / k_v + H_v^+ y_v / m_v        H_v^+ = H_v' / precision_v

The contrasts of different nodes do not meet: E'E is block diagonal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fitplug.mechanism.attribute_matrices import DenseMatrix
from fitplug.mechanism.contrasts import contrast
from fitplug.numeric import (
    AnyArray,
    FloatArray,
    IntArray,
    find_largest_entry,
    frozen_property,
    gamma,
    multiply_exactly,
)
from fitplug.structure import Siblings, TreeShape
from fitplug.workload import Factor

_WRAPS = 2**63


@dataclass(frozen=True, eq=False)
class TreeMatrix:
    """The integer split A of a tree; see the module.

    top: A_T (P - 1, P). multipliers: m (V,), int64, of the nodes that branch.
    The rows of A are those of A_T S, then by `shape.siblings` each parent's.
    """

    shape: TreeShape
    top: DenseMatrix
    multipliers: IntArray

    def arrays(self) -> Mapping[str, IntArray]:
        return {"matrix": self.top.matrix, "multipliers": self.multipliers}

    @property
    def n(self) -> int:
        return self.shape.n

    @cached_property
    def rows(self) -> int:
        own = sum(len(group.parents) * contrast(group.k).rows for group in self.shape.siblings)
        return self.shape.top - 1 + own

    @cached_property
    def entry(self) -> int:
        """The largest |entry| of A."""
        own = [self._multiplier(group) * contrast(group.k).entry for group in self.shape.siblings]
        return max([self.top.entry, *own])

    @cached_property
    def growth(self) -> int:
        """At least every row's sum of |entries|, so that |A x| <= growth * max |x|."""
        leaves = self.shape.leaves
        A = np.abs(self.top.matrix)
        sums = multiply_exactly(A, leaves[0][:, None]) if A.size else [0]
        own = [
            self._multiplier(group)
            * contrast(group.k).entry
            * int(leaves[group.depth][group.parents].max())
            for group in self.shape.siblings
        ]
        return max([int(np.max(sums)), *own])

    def _multiplier(self, group: Siblings) -> int:
        return int(self.multipliers[group.places].max())

    @frozen_property
    def _squares(self) -> AnyArray:
        """What each node that branches adds to |A e_i|^2, (V,): int64 if it fits, else Python's."""
        columns = np.ones(self.shape.branching, dtype=np.int64)
        for group in self.shape.siblings:
            columns[group.places] = contrast(group.k).column_square
        bound = max(
            (self._multiplier(g) ** 2 * contrast(g.k).column_square for g in self.shape.siblings),
            default=0,
        )
        fits = self.shape.top * self.top.entry**2 + self.shape.steps * bound < _WRAPS
        kind = np.int64 if fits else object
        return np.asarray(self.multipliers.astype(kind) ** 2 * columns.astype(kind))

    def eta(self) -> AnyArray:
        """|A e_i|^2 of each leaf, (n,), exact: int64 if it fits, else Python integers."""
        total = (self.top.matrix.astype(self._squares.dtype) ** 2).sum(axis=0)
        steps = self.shape.by_step(self._squares, 0)
        for own, parents in zip(steps, self.shape.parents, strict=True):
            total = (total + own)[parents]
        return np.asarray(total)

    @cached_property
    def column_square(self) -> int:
        """The largest |A e_i|^2, exact."""
        return int(self.eta().max())

    def apply(self, values: AnyArray, axis: int) -> AnyArray:
        """A along an axis of leaves, exact: int64 if no answer can leave it, else Python integers.

        values: int64 or Python integers.
        """
        # What wraps within int64 is wrapped back, as the answers fit.
        fits = not values.size or self.growth * find_largest_entry(values) < _WRAPS
        kind: Any = np.int64 if fits and values.dtype != object else object
        moved = np.moveaxis(values, axis, -1).astype(kind)
        parts = [self.top.apply(self.shape.sums(moved, 0), -1).astype(kind)]
        sums, depth = moved, 0
        for group in self.shape.siblings:
            if depth != group.depth + 1:
                depth = group.depth + 1
                sums = self.shape.sums(moved, depth)
            y = contrast(group.k).apply(sums[..., group.children], -1)
            y = y * self.multipliers[group.places, None].astype(kind)
            parts.append(y.reshape(*y.shape[:-2], y.shape[-2] * y.shape[-1]))
        return np.moveaxis(np.concatenate(parts, axis=-1), -1, axis)

    def invert(self, values: AnyArray, axis: int) -> FloatArray:
        """E along an axis of A's rows: the estimates of the leaves, less u times the total."""
        moved = np.moveaxis(values, axis, -1).astype(np.float64)
        at = self.shape.top - 1
        found = self.top.invert(moved[..., :at], -1)
        own: list[FloatArray] = [
            np.zeros((*moved.shape[:-1], len(parents))) for parents in self.shape.parents
        ]
        for group in self.shape.siblings:
            H, b = contrast(group.k), len(group.parents)
            y = moved[..., at : at + b * H.rows].reshape(*moved.shape[:-1], b, H.rows)
            at += b * H.rows
            y = H.invert(y / self.multipliers[group.places, None], -1)
            own[group.depth][..., group.children] = y
        for part, k, parents in zip(own, self.shape.children, self.shape.parents, strict=True):
            found = (found / k)[..., parents] + part
        return np.moveaxis(found, -1, axis)

    def mean(self) -> FloatArray:
        """u, shape (n,)."""
        found = self.top.mean()
        for k, parents in zip(self.shape.children, self.shape.parents, strict=True):
            found = (found / k)[parents]
        return np.asarray(found)

    def adjoint(self, values: FloatArray, axis: int) -> FloatArray:
        """E' along an axis of leaves, up to an isometry: per node that branches its k children."""
        moved = np.moveaxis(values, axis, -1)
        pulled = [moved]  # what weights on a depth's nodes come to on the depth above
        for k, eldest in zip(self.shape.children[::-1], self.shape.eldest[::-1], strict=True):
            pulled.insert(0, np.add.reduceat(pulled[0], eldest, axis=-1) / k)
        parts = [self.top.adjoint(pulled[0], -1)]
        for group in self.shape.siblings:
            y = contrast(group.k).adjoint(pulled[group.depth + 1][..., group.children], -1)
            y = y / self.multipliers[group.places, None]
            parts.append(y.reshape(*y.shape[:-2], y.shape[-2] * y.shape[-1]))
        return np.moveaxis(np.concatenate(parts, axis=-1), -1, axis)

    def moments(self, factor: Factor) -> FloatArray:
        """Upper bounds on mu^2 and gamma of a level's nodes, or of "total", shape (nodes, 2)."""
        level = factor.kind
        if level in self.shape.above:
            return self.top.bounds(self.shape.over_top(level))
        depth = self.shape.depths[level]
        found = self.top.bounds(np.eye(self.shape.top))
        for own, k, parents in zip(
            self._variances[:depth], self.shape.children, self.shape.parents, strict=False
        ):
            found = found / (k[:, None].astype(np.float64) ** 2)
            found[:, 1] += own
            found = found[parents]
        # At most eight operations a step, on numbers that are not negative.
        return np.asarray(found * (1 + gamma(8 * depth)))

    @frozen_property
    def _variances(self) -> list[FloatArray]:
        """What each parent adds to its children's gamma, (1 - 1/k) / (m^2 precision), by step."""
        found = np.zeros(self.shape.branching)
        for group in self.shape.siblings:
            m = self.multipliers[group.places].astype(np.float64)
            found[group.places] = (group.k - 1) / (m * m * group.k * contrast(group.k).precision)
        return self.shape.by_step(found, 0.0)
