"""Trees: hierarchies of any number of leaves, measured by integers that are never one matrix.

A tree is read from its top level down: P top nodes, then the levels asked for, then the leaves.
With S the sums of the top nodes, R_v those of the children of a node v below, k_v > 1 of them, and
H_v their contrasts (`fitplug.contrasts`),

    A = [A_T S; m_v H_v R_v for every v]        [A_T; 1'] (P, P) invertible

    x = E A x + u 1'x        1'u = 1,  A u = 0,  1'E = 0

where u spreads evenly below the top and, with precision_v the factor in H_v'H_v, E adds

    child of v:  parent's / k_v + H_v^+ y_v / m_v        H_v^+ = H_v' / precision_v

The contrasts of different nodes do not meet: E'E is block diagonal.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.contrasts import contrast
from fitplug.errors import DomainError
from fitplug.factors import Factor
from fitplug.frozen import frozen_property
from fitplug.hierarchy import Hierarchy
from fitplug.rounding import exact_product, gamma, largest
from fitplug.splits import Whole

Array: TypeAlias = npt.NDArray[np.float64]
Indices: TypeAlias = npt.NDArray[np.int64]

MAX_TOP = 600
"""Most nodes of the top level, whose covariance is dense."""

_WRAPS = 2**63


@dataclass(frozen=True, eq=False)
class Siblings:
    """The nodes of a depth that have k > 1 children each.

    parents: (b,), their places at that depth. places: (b,), among all nodes that branch.
    children: (b, k), places at the next depth.
    """

    depth: int
    k: int
    parents: Indices
    places: Indices
    children: Indices


@dataclass(frozen=True, eq=False)
class TreeShape:
    """The nodes that a workload tells apart: depth 0 is the top level, the last depth the leaves.

    first: per depth the first leaf of each node, ascending; a node's leaves follow each other.
    depths: of the levels asked for, at the top or below. above: of coarser ones and "total", the
    first top node of each node. deepest: the depth of the finest level asked for.

    The V nodes that branch, those with k > 1 children, are in the order of depth, then of leaves.
    """

    first: tuple[Indices, ...]
    depths: dict[str, int]
    above: dict[str, Indices]
    deepest: int

    @property
    def n(self) -> int:
        """The number of leaves."""
        return len(self.first[-1])

    @property
    def top(self) -> int:
        """P, the number of top nodes."""
        return len(self.first[0])

    @property
    def steps(self) -> int:
        """The number of depths below the top."""
        return len(self.first) - 1

    @frozen_property
    def eldest(self) -> tuple[Indices, ...]:
        """Per step the first child of each parent."""
        return tuple(
            np.searchsorted(below, own)
            for own, below in zip(self.first, self.first[1:], strict=False)
        )

    @frozen_property
    def children(self) -> tuple[Indices, ...]:
        """Per step the number of each parent's children."""
        return tuple(
            np.diff(eldest, append=len(below))
            for eldest, below in zip(self.eldest, self.first[1:], strict=True)
        )

    @frozen_property
    def parents(self) -> tuple[Indices, ...]:
        """Per step the parent of each child."""
        return tuple(np.repeat(np.arange(len(k)), k) for k in self.children)

    @frozen_property
    def leaves(self) -> tuple[Indices, ...]:
        """Per depth the number of each node's leaves."""
        return tuple(np.diff(first, append=self.n) for first in self.first)

    @frozen_property
    def siblings(self) -> tuple[Siblings, ...]:
        """The nodes that branch, by step and number of children."""
        found, start = [], 0
        for depth, (k, eldest) in enumerate(zip(self.children, self.eldest, strict=True)):
            place = start + np.cumsum(k > 1) - 1
            start += int((k > 1).sum())
            order = np.argsort(k, kind="stable")
            sizes, ends = np.unique(k[order], return_index=True)
            for size, own in zip(sizes.tolist(), np.split(order, ends[1:]), strict=True):
                if size > 1:
                    children = eldest[own, None] + np.arange(size)
                    found.append(Siblings(depth, size, own, place[own], children))
        return tuple(found)

    @cached_property
    def branching(self) -> int:
        """V, the number of nodes that branch."""
        return sum(int((k > 1).sum()) for k in self.children)

    def by_step(self, values: npt.NDArray[Any], fill: Any) -> list[npt.NDArray[Any]]:
        """Values (V,) of the nodes that branch, per step for every parent; `fill` for others."""
        found, start = [], 0
        for k in self.children:
            here = np.full(len(k), fill, dtype=values.dtype)
            count = int((k > 1).sum())
            here[k > 1] = values[start : start + count]
            start += count
            found.append(here)
        return found

    def sums(self, values: npt.NDArray[Any], depth: int) -> npt.NDArray[Any]:
        """Leaves (..., n) summed to the nodes of a depth, (..., nodes)."""
        return np.add.reduceat(values, self.first[depth], axis=-1)

    def nodes(self, level: str) -> int:
        """How many nodes a level has."""
        return (
            len(self.above[level]) if level in self.above else len(self.first[self.depths[level]])
        )

    def over(self, level: str) -> Indices:
        """The top node of every node of a level that is not above it, (nodes,)."""
        first = self.first[self.depths[level]]
        return np.searchsorted(self.first[0], first, side="right") - 1

    def over_top(self, level: str) -> Array:
        """The rows of a level above the top, over the top nodes, (nodes, P)."""
        first = self.above[level]
        node = np.searchsorted(first, np.arange(self.top), side="right") - 1
        return (np.arange(len(first))[:, None] == node).astype(np.float64)


def pinched_parts(shape: TreeShape, p: Array, y: Array, level: str) -> tuple[Array, Array]:
    """What pinching leaves of X = diag(y)^1/2 W diag(p)^1/2, for the sums W of a level's nodes.

    p: (n,), y: (nodes,), not negative. Gives X on the top nodes' columns s_g = p|_g^1/2 / p_g^1/2,
    (r, P), and each row's part of <J, X> on the rest, (r,), rounded down: both are known to a
    relative error of `rounding`(shape). Below the top, a row for each top node.

    X has rows (y_w p_w)^1/2 s_w'. J takes s_w to row w, and so s_g to sum_w (p_w / p_g)^1/2 w: on
    these, below the top, X is diag(d) with d_g = sum_{w in g} (p_w / p_g) (y_w p_w)^1/2. On the
    rest J is a partial isometry, and so are levels stacked as a_f J_f with sum_f a_f^2 = 1: there
    they count (sum_f loose_f^2)^1/2, with loose_f = sum_w (1 - p_w / p_g) (y_w p_w)^1/2.
    """
    mass = shape.sums(p, 0)
    if level in shape.above:
        rows = shape.over_top(level)
        return np.sqrt(y)[:, None] * rows * np.sqrt(mass), np.zeros(len(rows))
    own, inner = shape.over(level), shape.sums(p, shape.depths[level])
    share = np.divide(inner, mass[own], out=np.ones(len(own)), where=mass[own] > 0)
    size, error = np.sqrt(y * inner), rounding(shape)
    loose = size * np.maximum(1 - share * (1 + error), 0.0) * (1 - error)
    d, rest = (np.bincount(own, part, shape.top) for part in (share * size, loose))
    return np.diag(d), rest.astype(np.float64)


def rounding(shape: TreeShape) -> float:
    """The relative error of a few sums over all leaves of numbers >= 0."""
    return gamma(4 * shape.n + 64)


def tree_shape(
    hierarchy: Hierarchy, asked: Collection[str], *, most: int = MAX_TOP, top: str | None = None
) -> TreeShape:
    """The tree of the levels asked for; "identity" is the finest, "total" need not be named.

    Its top is the second finest level asked for: leaves below it are alike. Where that has more
    than `most` nodes, the finest of all levels that has no more, or one root of all leaves.
    top: another choice. Raises DomainError for what is no level, or a top below all that is asked.
    """
    levels = hierarchy.levels
    for name in asked:
        if name not in (*levels, "identity", "total"):
            hierarchy.intervals(name)
    first = {level: hierarchy.intervals(level)[:, 0] for level in levels}
    named = [level for level in levels if level in asked]
    if "identity" in asked and levels[-1] not in named:
        named.append(levels[-1])
    if top is None and len(named) > 1:
        fit = [level for level in levels if len(first[level]) <= most]
        at = min(levels.index(named[-2]), len(fit) - 1)
        top = levels[at] if at >= 0 else None
    elif top is not None and (not named or levels.index(top) > levels.index(named[-1])):
        raise DomainError(f"level {top!r} is finer than every level asked for")
    start = -1 if top is None else levels.index(top)
    kept = [np.zeros(1, dtype=np.int64) if top is None else first[top]]
    depths, above = {}, {"total": np.zeros(1, dtype=np.int64)}
    for level in named:
        if levels.index(level) < start:
            above[level] = np.searchsorted(kept[0], first[level])
            continue
        if len(first[level]) > len(kept[-1]):
            kept.append(first[level])
        depths[level] = len(kept) - 1
    deepest = len(kept) - 1
    if len(kept[-1]) < hierarchy.size:
        kept.append(first[levels[-1]])
    if levels[-1] in depths:
        depths["identity"] = depths[levels[-1]]
    return TreeShape(tuple(kept), depths, above, deepest)


@dataclass(frozen=True, eq=False)
class IntegerTree:
    """The integer split A of a tree; see the module.

    top: A_T (P - 1, P). multipliers: m (V,), int64, of the nodes that branch.
    The rows of A are those of A_T S, then by `shape.siblings` each parent's.
    """

    shape: TreeShape
    top: Whole
    multipliers: Indices

    def arrays(self) -> Mapping[str, Indices]:
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
        sums = exact_product(A, leaves[0][:, None]) if A.size else [0]
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
    def _squares(self) -> npt.NDArray[Any]:
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

    def eta(self) -> npt.NDArray[Any]:
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

    def apply(self, values: npt.NDArray[Any], axis: int) -> npt.NDArray[Any]:
        """A along an axis of leaves, exact: int64 if no answer can leave it, else Python integers.

        values: int64 or Python integers.
        """
        # What wraps within int64 is wrapped back, as the answers fit.
        fits = not values.size or self.growth * largest(values) < _WRAPS
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

    def invert(self, values: npt.NDArray[Any], axis: int) -> Array:
        """E along an axis of A's rows: the estimates of the leaves, less u times the total."""
        moved = np.moveaxis(values, axis, -1).astype(np.float64)
        at = self.shape.top - 1
        found = self.top.invert(moved[..., :at], -1)
        own: list[Array] = [
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

    def mean(self) -> Array:
        """u, shape (n,)."""
        found = self.top.mean()
        for k, parents in zip(self.shape.children, self.shape.parents, strict=True):
            found = (found / k)[parents]
        return np.asarray(found)

    def adjoint(self, values: Array, axis: int) -> Array:
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

    def moments(self, factor: Factor) -> Array:
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
    def _variances(self) -> list[Array]:
        """What each parent adds to its children's gamma, (1 - 1/k) / (m^2 precision), by step."""
        found = np.zeros(self.shape.branching)
        for group in self.shape.siblings:
            m = self.multipliers[group.places].astype(np.float64)
            found[group.places] = (group.k - 1) / (m * m * group.k * contrast(group.k).precision)
        return self.shape.by_step(found, 0.0)
