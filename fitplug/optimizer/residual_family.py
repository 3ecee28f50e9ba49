"""Members of the residual family (see `batches`), and the best scales for given splits.

For targets that do not vary along an attribute only the rows on the hull of its (mu^2, gamma) can
have the largest variance. The scales z are a convex problem. With both tables given, K[(S, j), A]
the variances' coefficients over the targets and E_A = prod max eta_a, its dual is max over q of
sum_A sqrt(E_A (K'q)_A), the diagonal case of the dual solver.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from fitplug.errors import WorkloadError
from fitplug.numeric import FloatArray, IntArray
from fitplug.optimizer import dual
from fitplug.optimizer.anderson import Anderson
from fitplug.structure import BatchedGroups, DistinctFactor, gathered

MAX_ROWS = 2_000_000
"""Most rows of groups, after symmetry and hulls, that scales are found for."""

_MOST_SLACK = 1e-2

_LARGEST_STEP = 2.0  # a weight changes by at most a factor e^2 an iteration


class Split(Protocol):
    """One attribute's space in two: the direction u and the contrasts, with covariance C."""

    def eta(self) -> FloatArray:
        """(Y_a)_ii, shape (n,) or, if all are alike, (1,)."""

    def moments(self, asked: DistinctFactor) -> FloatArray:
        """mu^2 and gamma of a factor's rows, shape (r, 2)."""


@dataclass(frozen=True)
class Symmetric:
    """An attribute of n cells that may be permuted freely: u = 1/n, C = I - J/n."""

    size: int

    def eta(self) -> FloatArray:
        return np.array([1 - 1 / self.size])

    def moments(self, asked: DistinctFactor) -> FloatArray:
        return np.array([[self.size**-2.0, 1 - 1 / self.size]])


@dataclass(frozen=True, eq=False)
class Ordered:
    """Any attribute, in the k contrasts that its queries ask for.

    contrasts: N (n, k) with orthonormal columns and N'1 = 0; a row w of a query is
        (w'1/n) 1 + N N'w. reference: v = N'u (k,). covariance: G = N'C N (k, k).
    """

    contrasts: FloatArray
    reference: FloatArray
    covariance: FloatArray

    def eta(self) -> FloatArray:
        X = (self.contrasts - self.reference).T
        return np.asarray((X * np.linalg.solve(self.covariance, X)).sum(axis=0))

    def moments(self, asked: DistinctFactor) -> FloatArray:
        return self.of_rows(asked.rows)

    def of_rows(self, rows: FloatArray) -> FloatArray:
        """`moments` of rows (r, n)."""
        f = rows @ self.contrasts
        mu = rows.mean(axis=1) + f @ self.reference
        return np.stack([mu**2, ((f @ self.covariance) * f).sum(axis=1)], axis=1)


@dataclass(frozen=True, eq=False)
class Weights:
    """Dual weights. cells: p_a per attribute, (n_a,), each summing to 1. queries: per batch the q
    of the rows that targets tell apart, the targets' shape, all summing to 1. shares: per factor
    how the weight of a row is spread where targets do not vary, (r,), summing to 1.
    """

    cells: tuple[FloatArray, ...]
    queries: tuple[FloatArray, ...]
    shares: tuple[FloatArray, ...]


@dataclass(frozen=True, eq=False)
class Rows:
    """K, factored: per batch blocks (g, 2, ..., 2), tables m x (g, r_i, 2), targets (g, r...)."""

    blocks: tuple[IntArray, ...]
    tables: tuple[tuple[FloatArray, ...], ...]
    targets: tuple[FloatArray, ...]
    count: int

    @cached_property
    def size(self) -> int:
        return sum(c.size for c in self.targets)

    def weights(self, q: FloatArray) -> Iterator[FloatArray]:
        """q (size,) over the targets, by batch."""
        start = 0
        for c in self.targets:
            yield q[start : start + c.size].reshape(c.shape) / c
            start += c.size

    def down(self, q: FloatArray) -> FloatArray:
        """K'q, shape (count,)."""
        total = np.zeros(self.count)
        for blocks, tables, part in zip(self.blocks, self.tables, self.weights(q), strict=True):
            for table in tables:
                part = np.einsum("gi...,gia->g...a", part, table)
            total += np.bincount(blocks.ravel(), part.ravel(), self.count)
        return total

    def up(self, z: FloatArray) -> FloatArray:
        """K z, shape (size,): every row's variance over its target."""
        ratios = []
        for blocks, tables, c in zip(self.blocks, self.tables, self.targets, strict=True):
            part = z[blocks]
            for table in tables:
                part = np.einsum("ga...,gia->g...i", part, table)
            ratios.append((part / c).ravel())
        return np.concatenate(ratios)


@dataclass(frozen=True, eq=False)
class Scales:
    """Scales z (b,) that meet every target, at the privacy cost `upper`; z = 0 for a block that no
    query needs. No other scales for these splits cost less than `lower`. q (rows,): the weights.
    """

    z: FloatArray
    upper: float
    lower: float
    q: FloatArray


def extreme_rows(batched: BatchedGroups, tables: Sequence[FloatArray], slack: float = 0.0) -> Rows:
    """K at rows whose largest variance over target is that of all, or above it by no more than a
    factor 1 + slack for each of a group's attributes. tables: mu^2 and gamma of each factor's rows.
    """
    hulls = [_hull(table, slack) for table in tables]
    axes, targets = [], []
    for batch in batched.batches:
        mine = tuple(
            gathered(tables, own) if varies else _padded([hulls[f] for f in own])
            for own, varies in zip(batch.factors.T, batch.varying, strict=True)
        )
        axes.append(mine)
        shape = (len(batch.groups), *[table.shape[1] for table in mine])
        targets.append(np.broadcast_to(batch.targets, shape))
    size = sum(c.size for c in targets)
    if size > MAX_ROWS and slack < _MOST_SLACK:
        return extreme_rows(batched, tables, 4 * max(slack, 1e-6))
    if size > MAX_ROWS:
        raise WorkloadError(
            f"{size} queries differ in their targets, and up to {MAX_ROWS} can be designed for: "
            "give tables of several attributes one target each, or ask fewer of them"
        )
    blocks = tuple(batch.blocks for batch in batched.batches)
    return Rows(blocks, tuple(axes), tuple(targets), len(batched.members))


def _padded(hulls: list[FloatArray]) -> FloatArray:
    """Hulls (h, 2) as one array; the shorter ones repeat their rows."""
    most = max(map(len, hulls))
    return np.stack([np.resize(hull, (most, 2)) for hull in hulls])


def _hull(table: FloatArray, slack: float) -> FloatArray:
    """Points (h, 2) that dominate mixtures of them that dominate all rows (r, 2), all >= 0, and
    exceed them by no more than a factor 1 + slack: the hull, thinned.
    """
    points = table[np.lexsort((-table[:, 1], -table[:, 0]))]
    # Of many rows, few have more gamma than all with more mu^2.
    highest = np.maximum.accumulate(points[:, 1])
    points = points[np.append(True, highest[1:] > highest[:-1])]
    hull: list[FloatArray] = []
    for point in points:
        while len(hull) > 1 and _above(hull[-2], point, hull[-1]) <= 1:
            hull.pop()
        hull.append(point)
    kept = [0]
    for j in range(2, len(hull)):
        last, between = hull[kept[-1]], hull[kept[-1] + 1 : j]
        if any(_above(last, hull[j], point) > 1 + slack for point in between):
            kept.append(j - 1)
    if len(hull) > 1:
        kept.append(len(hull) - 1)
    return np.array(hull)[kept] * (1 + slack)


def _above(a: FloatArray, b: FloatArray, point: FloatArray) -> float:
    """How far `point` lies beyond the line from a to b, where a has more mu^2 and b more gamma: the
    multiple of a point of the line."""
    normal = b[1] - a[1], a[0] - b[0]
    at_line = normal[0] * a[0] + normal[1] * a[1]
    return float((normal[0] * point[0] + normal[1] * point[1]) / at_line)


def scales(
    rows: Rows,
    spend: FloatArray,
    *,
    tolerance: float,
    max_iterations: int = 1000,
    start: FloatArray | None = None,
) -> Scales:
    """The best scales z, to a relative gap in the privacy cost; spend: E (b,)."""
    m, eps = rows.size, dual.MIXING * tolerance
    x = np.zeros(m) if start is None else np.log(start)
    accelerator = Anderson()
    best, lower = (math.inf, spend, x), 0.0
    highest: tuple[float, FloatArray, FloatArray] | None = None
    for _ in range(max_iterations):
        x = x - x.max()
        x -= math.log(np.exp(x).sum())
        q = np.exp(x)
        needed = rows.down(q)
        total, z = float(np.sqrt(spend * needed).sum()), scales_at(spend, needed)
        h = rows.up(z)
        upper = math.sqrt(total * float(h.max()))
        best = min(best, (upper, z / h.max(), q), key=lambda found: found[0])
        lower = max(lower, total)
        if best[0] / lower - 1 <= tolerance:
            break
        merit = 2 * math.log(total) + eps * float(x.mean())
        if highest is not None and merit < highest[0] - 1e-13:
            # Extrapolation led astray: the plain step from the highest point never does.
            accelerator.forget()
            x = highest[1] + highest[2]
            highest = None
            continue
        raised = (q * h / total + eps / m) / (1 + eps)
        residual = np.log(raised) - x
        highest = (merit, x, residual)
        step = accelerator.step(x, residual, np.sqrt(raised))
        x = x + np.clip(step, -_LARGEST_STEP, _LARGEST_STEP)
    upper, z, q = best
    return Scales(z, upper, lower, q)


def scales_at(spend: FloatArray, needed: FloatArray) -> FloatArray:
    """z = sqrt(E / K'q), and 0 for blocks that no query needs."""
    return np.sqrt(np.divide(spend, needed, out=np.zeros_like(spend), where=needed > 0))


def largest_spend(batched: BatchedGroups, splits: Sequence[Split]) -> FloatArray:
    """E (b,): prod_{a in A} max eta_a, what block A spends at z_A = 1 where most is spent."""
    return batched.products([float(s.eta().max(initial=0.0)) for s in splits])
