"""The best scales z of a member of the product family, for given covariances of its attributes.

For given moments mu^2 and gamma of every factor, the variances over targets are K z, where K >= 0
is sparse, with a row for each query and a column for each block. With E_A = prod max eta_a over the
attributes of block A, the problem

    min over z > 0 of  (sum_A E_A / z_A) * max (K z)

is convex (F14). Its dual (F15) is the largest sum_A sqrt(E_A (K'q)_A) over weights q that sum to
1, which is the diagonal case of the dual solver. See docs/theory/product-family.md, "The best
scales for given splits".

With grades, eta_(a,k) of the cells of every attribute is given too, and the profile is G z^-1 for a
factored G >= 0 with a row for each combination of cells and a column for each scale. Attributes
with one grade enter with their largest eta, which attains the largest profile.

If targets do not vary along an attribute, the variance (F10) of a group's queries along it is
alpha mu^2 + beta gamma with alpha, beta >= 0. It is largest at a vertex of the upper right hull of
the points (mu^2, gamma). With several grades, rows that another row dominates in every number are
left out. See docs/theory/product-family.md, "Queries that can be left out".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from fitplug.errors import WorkloadError
from fitplug.families.base.attribute_matrices import AttributeMatrix
from fitplug.families.product.shape.batches import BatchedGroups, gather_tables
from fitplug.families.product.shape.grades import BlockScales, add_total
from fitplug.numeric import FloatArray, IntArray, to_positions
from fitplug.solve import DualValue, Problem, mix_with_uniform, solve_dual

MAX_ROWS = 2_000_000
"""The most rows of K, after symmetry and hulls, for which scales are found."""

_MOST_SLACK = 1e-2

_MAX_ITERATIONS = 1000

_SAME = 2.0**-32
"""The least difference of eta, relative to the largest, that distinguishes two cells."""

_FRESH = 1e-3
"""The share of uniform weights in the initial weights of an iteration."""


@dataclass(frozen=True, eq=False)
class VarianceMatrix:
    """K, factored, for each batch of g groups over m attributes.

    Attributes:
        places: Per batch, the index of the scale of each tuple of grades of the attributes, shape
            (g, 1 + K_1, ..., 1 + K_m).
        tables: Per batch and attribute, mu^2 and the gammas of the rows, shape (g, r_i, 1 + K_i).
        targets: Per batch, the targets, shape (g, r_1, ..., r_m).
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
        """Divide weights q (size,) by the targets; yield an array (g, r_1, ..., r_m) per batch."""
        start = 0
        for c in self.targets:
            yield q[start : start + c.size].reshape(c.shape) / c
            start += c.size

    def multiply_transposed(self, q: FloatArray) -> FloatArray:
        """Return K'q (count,) for weights q (size,)."""
        total = np.zeros(self.count + 1)
        batches = zip(self.places, self.tables, self.divide_by_targets(q), strict=True)
        for places, tables, terms in batches:
            for table in tables:
                terms = np.einsum("gi...,gia->g...a", terms, table)
            total += np.bincount(to_positions(places.ravel()), terms.ravel(), self.count + 1)
        return total[:-1]

    def multiply(self, z: FloatArray) -> FloatArray:
        """Return K z (size,), each row's variance over its target, for scales z (count,)."""
        ratios = []
        for places, tables, c in zip(self.places, self.tables, self.targets, strict=True):
            terms = np.append(z, 0.0)[places]
            for table in tables:
                terms = np.einsum("ga...,gia->g...i", terms, table)
            ratios.append((terms / c).ravel())
        return np.concatenate(ratios)


class Profiles(Protocol):
    """The profile of cells, or of pairs of cells, as a function of the scales."""

    @property
    def size(self) -> int:
        """The number of rows."""

    def multiply(self, precisions: FloatArray) -> FloatArray:
        """Return the profile (size,) of precisions 1 / z (count,)."""

    def multiply_transposed(self, p: FloatArray) -> FloatArray:
        """Return the mean cost (count,) of each scale at 1, for weights p (size,)."""

    def of_matrices(self, matrices: Sequence[AttributeMatrix]) -> Profiles:
        """Compute the profiles where integer matrices measure the attributes."""

    def balance(self, costs: FloatArray, needed: FloatArray) -> FloatArray:
        """Return the best scales (count,) for weights; the arguments are as in
        `compute_scales`."""
        return compute_scales(costs, needed)


@dataclass(frozen=True, eq=False)
class Scales:
    """Scales that meet every target.

    Attributes:
        z: The scales, shape (count,); 0 for scales that no query needs.
        upper: The privacy cost.
        lower: A lower bound on the cost of any scales for the same covariances.
        costs: The cost of each scale at 1, averaged by the dual weights of cells, shape (count,).
        cells: The dual weights of the classes of cells; see `ProfileMatrix`.
        q: The dual weights of the rows, shape (rows,), summing to 1.
    """

    z: FloatArray
    upper: float
    lower: float
    costs: FloatArray
    cells: FloatArray
    q: FloatArray


_FEW_POINTS = 200
"""Up to this many distinct rows of a graded attribute all stay: plans then cost up to 1% less."""


def build_extreme_rows(
    batched: BatchedGroups, tables: Sequence[FloatArray], slack: float = 0.0
) -> VarianceMatrix:
    """Build K from rows that attain the largest variance over target for any scales.

    Args:
        batched: The groups.
        tables: mu^2 and gammas of the rows of each factor, shape (r, 1 + K).
        slack: The largest ratio may be overstated by a factor of 1 + slack for each attribute of a
            group. If there are too many rows, more slack is used.

    Raises:
        WorkloadError: If there are still more than `MAX_ROWS` rows.
    """
    hulls = []
    for table in tables:
        if table.shape[1] == 2:
            hulls.append(find_hull(table, slack))
        else:
            is_few = len(table) <= _FEW_POINTS
            hulls.append(np.unique(table, axis=0) if is_few else find_largest(table, slack))
    axes, targets = [], []
    for batch in batched.batches:
        batch_tables = tuple(
            gather_tables(tables, factors) if varies else stack_hulls([hulls[f] for f in factors])
            for factors, varies in zip(batch.factors.T, batch.varying, strict=True)
        )
        axes.append(batch_tables)
        shape = (len(batch.groups), *[table.shape[1] for table in batch_tables])
        targets.append(np.broadcast_to(batch.targets, shape))
    size = sum(c.size for c in targets)
    if size > MAX_ROWS and slack < _MOST_SLACK:
        return build_extreme_rows(batched, tables, 4 * max(slack, 1e-6))
    if size > MAX_ROWS:
        raise WorkloadError(
            f"{size:,} queries in tables of several attributes have different targets; the limit "
            f"is {MAX_ROWS:,}. Give all queries of each table the same target."
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
        profiles: The profile as a function of the scales.
        tolerance: The relative gap in the privacy cost that ends the iteration.
        near: The best scales for similar covariances, whose weights are the initial ones if their
            sizes match.

    Raises:
        DesignError: If floating point cannot hold the costs.
    """

    def evaluate(_: Problem, p: FloatArray, q: FloatArray) -> DualValue:
        costs, needed = profiles.multiply_transposed(p), rows.multiply_transposed(q)
        z = profiles.balance(costs, needed)
        precisions = invert_scales(z)
        total = float(costs @ precisions)
        return DualValue(
            total, profiles.multiply(precisions), rows.multiply(z), (np.sqrt(precisions),)
        )

    start = None
    if near is not None and (len(near.cells), len(near.q)) == (profiles.size, rows.size):
        start = mix_with_uniform(near.cells, _FRESH), mix_with_uniform(near.q, _FRESH)
    solution = solve_dual(
        Problem(profiles.size, rows.size, ()),
        tolerance=tolerance,
        max_iterations=_MAX_ITERATIONS,
        start=start,
        evaluate=evaluate,
    )
    (whitener,) = solution.whiteners
    z = invert_scales(whitener**2)
    costs = profiles.multiply_transposed(solution.p)
    return Scales(z, solution.upper, solution.lower, costs, solution.p, solution.q)


def compute_scales(costs: FloatArray, needed: FloatArray) -> FloatArray:
    """Return z = sqrt(P / K'q), or 0 for scales that no query needs.

    Args:
        costs: P, the average cost of each scale at 1, shape (count,).
        needed: K'q, shape (count,).
    """
    return np.sqrt(np.divide(costs, needed, out=np.zeros_like(costs), where=needed > 0))


def invert_scales(z: FloatArray) -> FloatArray:
    """Return 1 / z, or 0 for scales that no query needs, shape (count,)."""
    return np.divide(1.0, z, out=np.zeros_like(z), where=z > 0)


@dataclass(frozen=True, eq=False)
class ProfileMatrix(Profiles):
    """G, factored.

    Attributes:
        scales: The scales.
        undivided: For each scale, the product of its undivided attributes' largest eta, shape
            (count,).
        tables: 1 and eta of the distinct cells of each divided attribute, shape (c_i, 1 + K_i).
        classes: The distinct cell of each cell of a divided attribute, shape (n_i,).
    """

    scales: BlockScales
    undivided: FloatArray
    tables: tuple[FloatArray, ...]
    classes: tuple[IntArray, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The numbers of distinct cells (c_1, ...)."""
        return tuple(map(len, self.tables))

    @property
    def size(self) -> int:
        """The number of rows."""
        return int(np.prod(self.shape, dtype=np.int64))

    def multiply(self, precisions: FloatArray) -> FloatArray:
        """Return the profile (size,) of precisions 1 / z (count,)."""
        grid = np.bincount(
            to_positions(self.scales.places),
            self.undivided * precisions,
            int(np.prod(self.scales.grid, dtype=np.int64)),
        )
        shaped = grid.reshape(self.scales.grid).astype(np.float64)
        return multiply_axes(shaped, self.tables).ravel()

    def multiply_transposed(self, p: FloatArray) -> FloatArray:
        """Return the mean cost (count,) of each scale at 1, of weights p (size,) of the rows."""
        grid = multiply_axes(p.reshape(self.shape), [table.T for table in self.tables])
        return np.asarray(self.undivided * grid.ravel()[self.scales.places])

    def of_matrices(self, matrices: Sequence[AttributeMatrix]) -> ProfileMatrix:
        """Compute the profiles where integer matrices measure the attributes."""
        squares = [
            np.array([[float(matrix.column_square)]])
            if matrix.grades is None
            else matrix.grades.column_squares.astype(np.float64)
            for matrix in matrices
        ]
        for a, classes in zip(self.scales.divided.tolist(), self.classes, strict=True):
            if len(classes) == len(squares[a]):
                # Rounding makes cells differ that are alike.
                largest = np.zeros((1 + int(classes.max()), self.scales.counts[a]))
                np.maximum.at(largest, classes, squares[a])
                squares[a] = largest
        return build_profiles(self.scales, squares)


def build_profiles(scales: BlockScales, eta: Sequence[FloatArray]) -> ProfileMatrix:
    """Build G.

    Args:
        scales: The scales.
        eta: eta of each attribute's cells, shape (n, K), or (1, K) if cells share it.
    """
    largest = [
        diagonals.max(axis=0, initial=0.0) if k == 1 else np.ones(k)
        for diagonals, k in zip(eta, scales.counts, strict=True)
    ]
    distinct = [find_distinct(eta[a]) for a in scales.divided.tolist()]
    tables = tuple(add_total(cells) for cells, _ in distinct)
    undivided = scales.multiply(largest).astype(np.float64)
    return ProfileMatrix(scales, undivided, tables, tuple(classes for _, classes in distinct))


def find_distinct(eta: FloatArray) -> tuple[FloatArray, IntArray]:
    """Find the distinct rows of eta (n, K), which may differ by rounding, and that of each cell."""
    unit = _SAME * float(eta.max(initial=0.0)) or 1.0
    rows, classes = np.unique(np.ceil(eta / unit) * unit, axis=0, return_inverse=True)
    return rows, classes.ravel()


def multiply_axes(array: FloatArray, tables: Sequence[FloatArray]) -> FloatArray:
    """Multiply each axis of an array (m_1, m_2, ...) by a table (r_i, m_i)."""
    for table in tables:
        # Contract the first axis; the new axis comes last.
        array = np.tensordot(array, table, (0, 1))
    return np.asarray(array)


def find_hull(table: FloatArray, slack: float) -> FloatArray:
    """Find points (h, 2) whose convex hull dominates all rows (mu^2, gamma) of a table (r, 2).

    Args:
        table: Numbers >= 0, shape (r, 2).
        slack: The points may exceed the hull by a factor of 1 + slack. More slack gives fewer
            points.
    """
    points = table[np.lexsort((-table[:, 1], -table[:, 0]))]
    # Drop rows with no more gamma than a row with more mu^2 in one step; these are most.
    highest = np.maximum.accumulate(points[:, 1])
    points = points[np.append(True, highest[1:] > highest[:-1])]
    hull: list[FloatArray] = []
    for point in points:
        while len(hull) > 1 and _measure_excess(hull[-2], point, hull[-1]) <= 1:
            hull.pop()
        hull.append(point)
    corners = [0]
    for j in range(2, len(hull)):
        last, between = hull[corners[-1]], hull[corners[-1] + 1 : j]
        if any(_measure_excess(last, hull[j], point) > 1 + slack for point in between):
            corners.append(j - 1)
    if len(hull) > 1:
        corners.append(len(hull) - 1)
    return np.array(hull)[corners] * (1 + slack)


def find_largest(table: FloatArray, slack: float) -> FloatArray:
    """Find points (h, 1 + K) such that each row is dominated by a point in all columns.

    Args:
        table: mu^2 and gammas, numbers >= 0, shape (r, 1 + K).
        slack: The points are rows times 1 + slack. More slack gives fewer points.
    """
    left = np.unique(table, axis=0)
    left = left[np.argsort(-left.sum(axis=1), kind="stable")]
    points: list[FloatArray] = []
    while len(left):
        point = left[0] * (1 + slack)
        points.append(point)
        left = left[(left > point).any(axis=1)]
    return np.array(points)


def _measure_excess(a: FloatArray, b: FloatArray, point: FloatArray) -> float:
    """Return the distance of `point` over that of the line through a and b, from zero, all (2,).

    a has more mu^2 than b, and b has more gamma.
    """
    normal = b[1] - a[1], a[0] - b[0]
    at_line = normal[0] * a[0] + normal[1] * a[1]
    return float((normal[0] * point[0] + normal[1] * point[1]) / at_line)


def stack_hulls(hulls: Sequence[FloatArray]) -> FloatArray:
    """Stack hulls (h, 1 + K) to (g, most, 1 + K); shorter hulls repeat their points."""
    most = max(map(len, hulls))
    return np.stack([np.resize(hull, (most, hull.shape[1])) for hull in hulls])
