"""The best scales z of a member of the residual family, for given covariances of its attributes.

With the moments mu^2 and gamma of every factor given, the variances over targets are K z for a
sparse K >= 0 with a row for each query and a column for each block. With E_A = prod max eta_a over
the attributes of block A, the problem

    min over z > 0 of  (sum_A E_A / z_A) * max (K z)

is convex (F14). Its dual (F15) is the largest sum_A sqrt(E_A (K'q)_A) over weights q that sum to
1, which is the diagonal case of the dual solver. See docs/theory/residual-family.md, "The best
scales for given splits".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fitplug.errors import WorkloadError
from fitplug.families.product.design.row_hulls import find_hull, stack_hulls
from fitplug.families.product.shape.batches import BatchedGroups, gather_tables
from fitplug.numeric import FloatArray, IntArray
from fitplug.solve import MIXING, Iterate, find_fixed_point, mix_with_uniform, normalise_logarithms

MAX_ROWS = 2_000_000
"""The most rows of K, after symmetry and hulls, for which scales are found."""

_MOST_SLACK = 1e-2

_MAX_ITERATIONS = 1000


@dataclass(frozen=True, eq=False)
class VarianceMatrix:
    """K, factored: per batch of g groups over m attributes.

    Attributes:
        blocks: Per batch the index of the block of each subset of the attributes, shape
            (g, 2, ..., 2).
        tables: Per batch and attribute mu^2 and gamma of the rows, shape (g, r_i, 2).
        targets: Per batch the targets, shape (g, r_1, ..., r_m).
        count: b, the number of blocks.
    """

    blocks: tuple[IntArray, ...]
    tables: tuple[tuple[FloatArray, ...], ...]
    targets: tuple[FloatArray, ...]
    count: int

    @cached_property
    def size(self) -> int:
        """The number of rows of K."""
        return sum(c.size for c in self.targets)

    def divide_by_targets(self, q: FloatArray) -> Iterator[FloatArray]:
        """Divide weights q (size,) by the targets; yields an array (g, r_1, ..., r_m) per batch."""
        start = 0
        for c in self.targets:
            yield q[start : start + c.size].reshape(c.shape) / c
            start += c.size

    def multiply_transposed(self, q: FloatArray) -> FloatArray:
        """Return K'q (count,) of weights q (size,)."""
        total = np.zeros(self.count)
        batches = zip(self.blocks, self.tables, self.divide_by_targets(q), strict=True)
        for blocks, tables, terms in batches:
            for table in tables:
                terms = np.einsum("gi...,gia->g...a", terms, table)
            total += np.bincount(blocks.ravel(), terms.ravel(), self.count)
        return total

    def multiply(self, z: FloatArray) -> FloatArray:
        """Return K z (size,), the variance of each row over its target, of scales z (count,)."""
        ratios = []
        for blocks, tables, c in zip(self.blocks, self.tables, self.targets, strict=True):
            terms = z[blocks]
            for table in tables:
                terms = np.einsum("ga...,gia->g...i", terms, table)
            ratios.append((terms / c).ravel())
        return np.concatenate(ratios)


@dataclass(frozen=True, eq=False)
class Scales:
    """Scales that meet every target.

    Attributes:
        z: The scale of each block, shape (b,); 0 for a block that no query needs.
        upper: The privacy cost.
        lower: No other scales for the same covariances cost less.
        q: The dual weights of the rows at the best scales, shape (rows,), summing to 1.
    """

    z: FloatArray
    upper: float
    lower: float
    q: FloatArray


def build_extreme_rows(
    batched: BatchedGroups, tables: Sequence[FloatArray], slack: float = 0.0
) -> VarianceMatrix:
    """Build K from rows that include the largest variance over target for all scales.

    Args:
        batched: The groups.
        tables: mu^2 and gamma of the rows of each factor, shape (r, 2).
        slack: The largest ratio may be too large by a factor of 1 + slack for each attribute of a
            group. If there are too many rows, more slack is used.

    Raises:
        WorkloadError: If there are still more than `MAX_ROWS` rows.
    """
    hulls = [find_hull(table, slack) for table in tables]
    axes, targets = [], []
    for batch in batched.batches:
        own_tables = tuple(
            gather_tables(tables, own) if varies else stack_hulls([hulls[f] for f in own])
            for own, varies in zip(batch.factors.T, batch.varying, strict=True)
        )
        axes.append(own_tables)
        shape = (len(batch.groups), *[table.shape[1] for table in own_tables])
        targets.append(np.broadcast_to(batch.targets, shape))
    size = sum(c.size for c in targets)
    if size > MAX_ROWS and slack < _MOST_SLACK:
        return build_extreme_rows(batched, tables, 4 * max(slack, 1e-6))
    if size > MAX_ROWS:
        raise WorkloadError(
            f"{size} queries differ in their targets, and up to {MAX_ROWS} can be designed for: "
            "give tables of several attributes one target each, or ask fewer of them"
        )
    blocks = tuple(batch.blocks for batch in batched.batches)
    return VarianceMatrix(blocks, tuple(axes), tuple(targets), len(batched.blocks))


def optimise_scales(rows: VarianceMatrix, costs: FloatArray, *, tolerance: float) -> Scales:
    """Find the best scales.

    Args:
        rows: K.
        costs: E, the largest cost of each block at scale 1, shape (b,).
        tolerance: The relative gap in the privacy cost that ends the iteration.

    Raises:
        DesignError: If floating point cannot hold the costs.
    """
    mixing = MIXING * tolerance

    def evaluate(x: FloatArray) -> Iterate[FloatArray] | None:
        q = np.exp(x)
        needed = rows.multiply_transposed(q)
        total, z = float(np.sqrt(costs * needed).sum()), compute_scales(costs, needed)
        ratios = rows.multiply(z)
        largest = float(ratios.max())
        upper = math.sqrt(total * largest)
        if not (math.isfinite(upper) and total > 0):
            return None
        return Iterate(
            x=x,
            following=mix_with_uniform(q * ratios / total, mixing),
            lower=total,
            upper=upper,
            merit=2 * math.log(total) + mixing * float(x.mean()),
            found=z / ratios.max(),
        )

    found = find_fixed_point(
        evaluate,
        normalise_logarithms,
        normalise_logarithms(np.zeros(rows.size)),
        tolerance=tolerance,
        max_iterations=_MAX_ITERATIONS,
    )
    best = found.best_upper
    return Scales(best.found, best.upper, found.best_lower.lower, np.exp(best.x))


def compute_scales(costs: FloatArray, needed: FloatArray) -> FloatArray:
    """Return z = sqrt(E / K'q), or 0 for a block that no query needs.

    Args:
        costs: E, shape (b,).
        needed: K'q, shape (b,).
    """
    return np.sqrt(np.divide(costs, needed, out=np.zeros_like(costs), where=needed > 0))
