"""The residual family: covariances of several ordered attributes that are never written down.

Every attribute a of n cells has a reference u_a (1'u_a = 1) and a covariance C_a on its contrasts
(C_a 1 = 0) with inverse Y_a there (Y_a u_a = 0). For the subsets A of the groups' attributes,

    Sigma = sum_A z_A (x)_{a in A} C_a (x)_{a not in A} u_a u_a'
    profile(i) = sum_A z_A^-1 prod_{a in A} eta_a(i_a)                          eta = diag Y
    variance(S, j) = sum_{A in S} z_A prod_{a in A} gamma_a(j_a) prod_{a in S - A} mu_a(j_a)^2

with gamma = w'C_a w and mu = w'u_a of a factor's row w. Nothing has the size of the product: the
largest profile is at the largest eta_a, and for targets that do not vary along an attribute only
the rows on the hull of its (mu^2, gamma) can have the largest variance.

The scales z are a convex problem. With both tables given, K[(S, j), A] the variances' coefficients
over the targets and E_A = prod max eta_a, its dual is max over q of sum_A sqrt(E_A (K'q)_A), the
diagonal case of the dual solver. A symmetric attribute has u = 1/n and C = I - J/n.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.linalg import cholesky, qr, solve_triangular

from fitplug.errors import DesignError, WorkloadError
from fitplug.solvers import dual
from fitplug.solvers.anderson import Anderson
from fitplug.workload import Workload

Array: TypeAlias = npt.NDArray[np.float64]
Indices: TypeAlias = npt.NDArray[np.int64]

MAX_ROWS = 2_000_000
"""Most rows of groups, after symmetry and hulls, that scales are found for."""

_MOST_SLACK = 1e-2

_LARGEST_STEP = 2.0  # a weight changes by at most a factor e^2 an iteration
_IDLE = 2.0**-10  # of the largest column norm, in contrasts that no query asks for


class Split(Protocol):
    """One attribute's space in two: the direction u and the contrasts, with covariance C."""

    def eta(self) -> Array:
        """(Y_a)_ii, shape (n,) or, if all are alike, (1,)."""

    def moments(self, rows: Array) -> Array:
        """mu^2 and gamma of factor rows (r, n), shape (r, 2)."""


@dataclass(frozen=True)
class Symmetric:
    """An attribute of n cells that may be permuted freely: u = 1/n, C = I - J/n."""

    size: int

    def eta(self) -> Array:
        return np.array([1 - 1 / self.size])

    def moments(self, rows: Array) -> Array:
        mean = rows.mean(axis=1)
        return np.stack([mean**2, (rows**2).sum(axis=1) - self.size * mean**2], axis=1)


@dataclass(frozen=True, eq=False)
class Ordered:
    """Any attribute, in the k contrasts that its queries ask for.

    contrasts: N (n, k) with orthonormal columns and N'1 = 0; a row w of a query is
        (w'1/n) 1 + N N'w. reference: v = N'u (k,). covariance: G = N'C N (k, k).
    """

    contrasts: Array
    reference: Array
    covariance: Array

    def eta(self) -> Array:
        X = (self.contrasts - self.reference).T
        return np.asarray((X * np.linalg.solve(self.covariance, X)).sum(axis=0))

    def moments(self, rows: Array) -> Array:
        f = rows @ self.contrasts
        mu = rows.mean(axis=1) + f @ self.reference
        return np.stack([mu**2, ((f @ self.covariance) * f).sum(axis=1)], axis=1)


@dataclass(frozen=True, eq=False)
class Whole:
    """A split that an integer matrix makes, free of rounding: A (n - 1, n) with [A; 1'] invertible.

    Block A of a plan measures (x)_{a in A} A_a (x) (sums over the rest). The inverse of [A; 1'] is
    [E, u]: E A + u 1' = I, so A u = 0, 1'u = 1, C = E E', Y = A'A, and eta is integer.
    """

    matrix: npt.NDArray[np.int64]

    @cached_property
    def inverse(self) -> Array:
        """[E, u], shape (n, n)."""
        return np.asarray(np.linalg.inv(np.vstack([self.matrix, np.ones(self.matrix.shape[1])])))

    def eta(self) -> Array:
        return np.asarray((self.matrix.astype(np.float64) ** 2).sum(axis=0))

    def moments(self, rows: Array) -> Array:
        parts = rows @ self.inverse
        return np.stack([parts[:, -1] ** 2, (parts[:, :-1] ** 2).sum(axis=1)], axis=1)


def whole(split: Ordered, bits: int) -> Whole:
    """The integer split next to a real one, its largest column norm about 2^bits.

    Contrasts that no query asks for are measured too, next to not at all. Raises DesignError if the
    rounded matrix has lost a contrast: more bits keep it.
    """
    N = split.contrasts
    n, k = N.shape
    L = cholesky(split.covariance, lower=True)
    real = solve_triangular(L, (N - split.reference).T, lower=True)
    spanned = np.column_stack([np.ones(n), N])
    idle = qr(spanned)[0][:, k + 1 :].T
    size = math.sqrt(float((real**2).sum(axis=0).max(initial=0.0))) or 1.0
    matrix = np.rint(np.vstack([real / size, _IDLE * idle]) * 2.0**bits).astype(np.int64)
    if np.linalg.matrix_rank(np.vstack([matrix, np.ones(n)])) < n:
        raise DesignError("the integer strategy of an attribute lost a contrast; raise its bits")
    return Whole(matrix)


@dataclass(frozen=True, eq=False)
class Batch:
    """g groups over m attributes whose tables have the same shapes.

    groups: their places in the workload. attributes: (g, m), ascending. factors: (g, m), indices
    into `Layout.factors`. varying: the axes along which targets vary. targets: (g, r_1, ..., r_m),
    with r_i = 1 where they do not. blocks: (g, 2, ..., 2), the index of each subset A of S.
    """

    groups: Indices
    attributes: Indices
    factors: Indices
    varying: tuple[bool, ...]
    targets: Array
    blocks: Indices


@dataclass(frozen=True, eq=False)
class Layout:
    """The groups of a workload, batched, and the subsets A of their attributes.

    symmetric: whether each attribute may be permuted freely. factors: the different factors as
    (attribute, rows (r, n)), one row for a symmetric attribute. members: (b, most), the blocks'
    attributes, padded with -1.
    """

    workload: Workload
    symmetric: tuple[bool, ...]
    factors: tuple[tuple[int, Array], ...]
    batches: tuple[Batch, ...]
    members: Indices

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return self.workload.shape

    def products(self, values: Sequence[float] | Array) -> Array:
        """prod_{a in A} values[a] for every block, shape (b,)."""
        return np.asarray(np.append(np.asarray(values), 1.0)[self.members].prod(axis=1))

    def tables(self, splits: Sequence[Split]) -> list[Array]:
        """mu^2 and gamma of every factor's rows, (r, 2)."""
        return [splits[a].moments(rows) for a, rows in self.factors]


def layout(workload: Workload) -> Layout:
    """Group and index a workload's groups and blocks."""
    place = {name: a for a, name in enumerate(workload.attributes)}
    symmetric = [True] * len(place)
    found: dict[tuple[object, ...], int] = {}
    factors: list[tuple[int, Array]] = []
    entries: dict[tuple[object, ...], list[tuple[int, list[int], list[int], Array]]] = {}
    for number, group in enumerate(workload.groups):
        own, targets = [], group.variances
        for axis, factor in enumerate(group.factors):
            # A scalar target is a view that repeats one number.
            if targets.strides[axis] == 0 or (targets == targets.take([0], axis)).all():
                targets = targets.take([0], axis)
            if factor.kind == "total":
                continue
            a = place[factor.attribute]
            given = factor.cells if factor.array is None else factor.array
            varies = targets.shape[axis] > 1
            # Rows with targets of their own get weights of their own.
            apart = number if varies else None
            key = (a, factor.kind, None if given is None else given.tobytes(), apart)
            if key not in found:
                found[key] = len(factors)
                factors.append((a, factor.matrix()))
            if factor.kind != "identity" or varies:
                symmetric[a] = False
            own.append((a, axis, found[key]))
        own.sort()
        kept = targets.transpose(
            [axis for _, axis, _ in own]
            + [i for i, f in enumerate(group.factors) if f.kind == "total"]
        ).reshape([targets.shape[axis] for _, axis, _ in own])
        lengths = tuple(len(factors[f][1]) for _, _, f in own)
        entry = (number, [a for a, _, _ in own], [f for _, _, f in own], kept)
        entries.setdefault((lengths, kept.shape), []).append(entry)
    keys, members = _subsets([np.array([e[1] for e in same]) for same in entries.values()])
    batches = []
    for (_, same), blocks in zip(entries.items(), keys, strict=True):
        shape = same[0][3].shape
        batches.append(
            Batch(
                groups=np.array([e[0] for e in same]),
                attributes=np.array([e[1] for e in same], dtype=np.int64),
                factors=np.array([e[2] for e in same], dtype=np.int64),
                varying=tuple(r > 1 for r in shape),
                targets=np.stack([e[3] for e in same]),
                blocks=blocks,
            )
        )
    alike = [(a, W[:1] if symmetric[a] else W) for a, W in factors]
    return Layout(workload, tuple(symmetric), tuple(alike), tuple(batches), members)


def _subsets(attributes: list[Indices]) -> tuple[list[Indices], Indices]:
    """Per batch the subsets' indices (g, 2, ..., 2), and every subset's attributes (b, most)."""
    most = max(1, *(own.shape[1] for own in attributes))
    chosen = []
    for own in attributes:
        g, m = own.shape
        held = np.array(list(itertools.product([False, True], repeat=m)))
        rows = np.full((g, 2**m, most), -1)
        rows[:, :, :m] = np.sort(np.where(held, own[:, None, :], -1), axis=2)[:, :, ::-1]
        chosen.append(rows)
    flat = np.concatenate([rows.reshape(-1, most) for rows in chosen])
    members, index = np.unique(flat, axis=0, return_inverse=True)
    ends = np.cumsum([rows.shape[0] * rows.shape[1] for rows in chosen])[:-1]
    parts = np.split(index.ravel(), ends)
    shaped = [p.reshape(len(a), *[2] * a.shape[1]) for p, a in zip(parts, attributes, strict=True)]
    return shaped, members


@dataclass(frozen=True, eq=False)
class Rows:
    """K, factored: per batch blocks (g, 2, ..., 2), tables m x (g, r_i, 2), targets (g, r...)."""

    blocks: tuple[Indices, ...]
    tables: tuple[tuple[Array, ...], ...]
    targets: tuple[Array, ...]
    count: int

    @cached_property
    def size(self) -> int:
        return sum(c.size for c in self.targets)

    def weights(self, q: Array) -> Iterator[Array]:
        """q (size,) over the targets, by batch."""
        start = 0
        for c in self.targets:
            yield q[start : start + c.size].reshape(c.shape) / c
            start += c.size

    def down(self, q: Array) -> Array:
        """K'q, shape (count,)."""
        total = np.zeros(self.count)
        for blocks, tables, part in zip(self.blocks, self.tables, self.weights(q), strict=True):
            for table in tables:
                part = np.einsum("gi...,gia->g...a", part, table)
            total += np.bincount(blocks.ravel(), part.ravel(), self.count)
        return total

    def up(self, z: Array) -> Array:
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

    z: Array
    upper: float
    lower: float
    q: Array


def extreme_rows(layout: Layout, splits: Sequence[Split], slack: float = 0.0) -> Rows:
    """K at rows whose largest variance over target is that of all, or above it by no more than a
    factor 1 + slack for each of a group's attributes.
    """
    tables = layout.tables(splits)
    hulls = [_hull(table, slack) for table in tables]
    axes, targets = [], []
    for batch in layout.batches:
        mine = tuple(
            gathered(tables, own) if varies else _padded([hulls[f] for f in own])
            for own, varies in zip(batch.factors.T, batch.varying, strict=True)
        )
        axes.append(mine)
        shape = (len(batch.groups), *[table.shape[1] for table in mine])
        targets.append(np.broadcast_to(batch.targets, shape))
    size = sum(c.size for c in targets)
    if size > MAX_ROWS and slack < _MOST_SLACK:
        return extreme_rows(layout, splits, 4 * max(slack, 1e-6))
    if size > MAX_ROWS:
        raise WorkloadError(
            f"{size} queries differ in their targets, and up to {MAX_ROWS} can be designed for: "
            "give tables of several attributes one target each, or ask fewer of them"
        )
    blocks = tuple(batch.blocks for batch in layout.batches)
    return Rows(blocks, tuple(axes), tuple(targets), len(layout.members))


def _padded(hulls: list[Array]) -> Array:
    """Hulls (h, 2) as one array; the shorter ones repeat their rows."""
    most = max(map(len, hulls))
    return np.stack([np.resize(hull, (most, 2)) for hull in hulls])


def _hull(table: Array, slack: float) -> Array:
    """Points (h, 2) that dominate mixtures of them that dominate all rows (r, 2), all >= 0, and
    exceed them by no more than a factor 1 + slack: the hull, thinned.
    """
    points = table[np.lexsort((-table[:, 1], -table[:, 0]))]
    hull: list[Array] = []
    for point in points:
        if hull and point[1] <= hull[-1][1]:
            continue
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


def _above(a: Array, b: Array, point: Array) -> float:
    """How far `point` lies beyond the line from a to b, where a has more mu^2 and b more gamma: the
    multiple of a point of the line."""
    normal = b[1] - a[1], a[0] - b[0]
    at_line = normal[0] * a[0] + normal[1] * a[1]
    return float((normal[0] * point[0] + normal[1] * point[1]) / at_line)


def scales(
    rows: Rows,
    spend: Array,
    *,
    tolerance: float,
    max_iterations: int = 1000,
    start: Array | None = None,
) -> Scales:
    """The best scales z, to a relative gap in the privacy cost; spend: E (b,)."""
    m, eps = rows.size, dual.MIXING * tolerance
    x = np.zeros(m) if start is None else np.log(start)
    accelerator = Anderson()
    best, lower = (math.inf, spend, x), 0.0
    highest: tuple[float, Array, Array] | None = None
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


def scales_at(spend: Array, needed: Array) -> Array:
    """z = sqrt(E / K'q), and 0 for blocks that no query needs."""
    return np.sqrt(np.divide(spend, needed, out=np.zeros_like(spend), where=needed > 0))


def largest_spend(layout: Layout, splits: Sequence[Split]) -> Array:
    """E (b,): prod_{a in A} max eta_a, what block A spends at z_A = 1 where most is spent."""
    return layout.products([float(s.eta().max(initial=0.0)) for s in splits])


def gathered(tables: Sequence[Array] | Mapping[int, Array], own: Indices) -> Array:
    """tables[f] for each f of own (g,), stacked."""
    different, place = np.unique(own, return_inverse=True)
    return np.stack([tables[f] for f in different])[place.ravel()]
