"""The best scales z of a member of the product family, for given covariances of its attributes.

With the moments mu^2 and gamma of every factor given, the variances over targets are K z for a
sparse K >= 0 with a row for each query and a column for each block. With E_A = prod max eta_a over
the attributes of block A, the problem

    min over z > 0 of  (sum_A E_A / z_A) * max (K z)

is convex (F14). Its dual (F15) is the largest sum_A sqrt(E_A (K'q)_A) over weights q that sum to
1, which is the diagonal case of the dual solver. See docs/theory/product-family.md, "The best
scales for given splits".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from fitplug.errors import WorkloadError
from fitplug.families.product.design.row_hulls import find_hull, stack_hulls
from fitplug.families.product.shape.batches import BatchedGroups, gather_tables
from fitplug.numeric import FloatArray, IntArray, to_positions
from fitplug.solve import DualValue, Problem, mix_with_uniform, solve_dual

MAX_ROWS = 2_000_000
"""The most rows of K, after symmetry and hulls, for which scales are found."""

_MOST_SLACK = 1e-2

_MAX_ITERATIONS = 1000

_FRESH = 1e-3
"""The share of uniform weights in those that an iteration begins from."""


@dataclass(frozen=True, eq=False)
class VarianceMatrix:
    """K, factored: per batch of g groups over m attributes.

    Attributes:
        places: Per batch the index of the scale of each tuple of grades of the attributes, shape
            (g, 1 + K_1, ..., 1 + K_m).
        tables: Per batch and attribute mu^2 and gammas of the rows, shape (g, r_i, 1 + K_i).
        targets: Per batch the targets, shape (g, r_1, ..., r_m).
        count: The number of scales.
    """

    places: tuple[IntArray, ...]
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
        total = np.zeros(self.count + 1)
        batches = zip(self.places, self.tables, self.divide_by_targets(q), strict=True)
        for places, tables, terms in batches:
            for table in tables:
                terms = np.einsum("gi...,gia->g...a", terms, table)
            total += np.bincount(to_positions(places.ravel()), terms.ravel(), self.count + 1)
        return total[:-1]

    def multiply(self, z: FloatArray) -> FloatArray:
        """Return K z (size,), the variance of each row over its target, of scales z (count,)."""
        ratios = []
        for places, tables, c in zip(self.places, self.tables, self.targets, strict=True):
            terms = np.append(z, 0.0)[places]
            for table in tables:
                terms = np.einsum("ga...,gia->g...i", terms, table)
            ratios.append((terms / c).ravel())
        return np.concatenate(ratios)


class Profiles(Protocol):
    """What scales add to the profile: of cells, or of pairs of cells."""

    @property
    def size(self) -> int:
        """The number of rows."""

    def multiply(self, precisions: FloatArray) -> FloatArray:
        """Return the profile (size,) of precisions 1 / z (count,)."""

    def multiply_transposed(self, p: FloatArray) -> FloatArray:
        """Return the mean cost (count,) of each scale at 1, of weights p (size,)."""


@dataclass(frozen=True, eq=False)
class Scales:
    """Scales that meet every target.

    Attributes:
        z: The scales, shape (count,); 0 where no query needs one.
        upper: The privacy cost.
        lower: No other scales for the same covariances cost less.
        costs: What each scale costs at 1, averaged by the dual weights of cells, shape (count,).
        cells: The dual weights of the classes of cells; see `ProfileMatrix`.
        q: The dual weights of the rows, shape (rows,), summing to 1.
    """

    z: FloatArray
    upper: float
    lower: float
    costs: FloatArray
    cells: FloatArray
    q: FloatArray


def build_extreme_rows(
    batched: BatchedGroups, tables: Sequence[FloatArray], slack: float = 0.0
) -> VarianceMatrix:
    """Build K from rows that include the largest variance over target for all scales.

    Args:
        batched: The groups.
        tables: mu^2 and gammas of the rows of each factor, shape (r, 1 + K).
        slack: The largest ratio may be too large by a factor of 1 + slack for each attribute of a
            group. If there are too many rows, more slack is used.

    Raises:
        WorkloadError: If there are still more than `MAX_ROWS` rows.
    """
    hulls = [
        find_hull(table, slack) if table.shape[1] == 2 else np.unique(table, axis=0)
        for table in tables
    ]
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
    places = tuple(batch.scales for batch in batched.batches)
    return VarianceMatrix(places, tuple(axes), tuple(targets), batched.scales.count)


def optimise_scales(
    rows: VarianceMatrix,
    profiles: Profiles,
    *,
    tolerance: float,
    near: Scales | None = None,
) -> Scales:
    """Find the best scales.

    Args:
        rows: K.
        profiles: What scales add to the profile.
        tolerance: The relative gap in the privacy cost that ends the iteration.
        near: The best scales of similar covariances, whose weights are begun from if there are as
            many.

    Raises:
        DesignError: If floating point cannot hold the costs.
    """

    def evaluate(_: Problem, p: FloatArray, q: FloatArray) -> DualValue:
        costs, needed = profiles.multiply_transposed(p), rows.multiply_transposed(q)
        z = compute_scales(costs, needed)
        precisions = np.divide(1.0, z, out=np.zeros_like(z), where=z > 0)
        total = float(np.sqrt(costs * needed).sum())
        return DualValue(
            total, profiles.multiply(precisions), rows.multiply(z), (np.sqrt(precisions),)
        )

    start = None
    if near is not None and (len(near.cells), len(near.q)) == (profiles.size, rows.size):
        start = mix_with_uniform(near.cells, _FRESH), mix_with_uniform(near.q, _FRESH)
    found = solve_dual(
        Problem(profiles.size, rows.size, ()),
        tolerance=tolerance,
        max_iterations=_MAX_ITERATIONS,
        start=start,
        evaluate=evaluate,
    )
    (whitener,) = found.whiteners
    z = np.divide(1.0, whitener**2, out=np.zeros_like(whitener), where=whitener > 0)
    costs = profiles.multiply_transposed(found.p)
    return Scales(z, found.upper, found.lower, costs, found.p, found.q)


def compute_scales(costs: FloatArray, needed: FloatArray) -> FloatArray:
    """Return z = sqrt(P / K'q), or 0 where no query needs a scale.

    Args:
        costs: What scales cost at 1, on average, shape (count,).
        needed: K'q, shape (count,).
    """
    return np.sqrt(np.divide(costs, needed, out=np.zeros_like(costs), where=needed > 0))
