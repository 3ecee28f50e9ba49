"""Histograms of large releases without negative counts: from the total down, family by family.

The estimates of a group that distinguishes all cells are the start; the estimates of all other
groups are sums of them. The procedure has these steps:

1. The total is the sum of all estimates, or the public number that is given. It is not negative.
2. The attributes are taken one after another, hierarchies first and level by level, then the others
   in the domain's order. Each step divides every count of the step before among its children: by
   the values of that attribute, or by the nodes below a node.
3. The counts of a family of children are the nearest ones, by least squares, to the estimates that
   are not negative and add up to the count that is divided. For integers, each is rounded down, and
   those with the largest fractions are raised until they add up.

With a measure, the cells of its bounds are estimated from counts and sums, and divide last. So no
sum is less or more than so many records can have.

Every family needs only its own estimates, so time and memory grow with the cells alone. The result
is not the nearest histogram of all. For small releases `fitplug.releases.least_squares` finds that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fitplug.domain import get_codec, list_measures
from fitplug.errors import WorkloadError
from fitplug.numeric import AnyArray, FloatArray, IntArray
from fitplug.releases.noisy_answers import NoisyAnswers
from fitplug.workload import Factor, QueryGroup, Workload

MOST_CELLS = 2**27
"""The largest number of cells, whose histogram takes 1 GB."""

_CHUNK = 2**21
"""About the largest number of cells that are projected at once."""


@dataclass(frozen=True, eq=False)
class Finest:
    """Groups that tell all cells of a workload apart which any of its groups tells apart.

    Attributes:
        group: The group that does so, but for a measure.
        sums: The group that asks for the sums of the measure in the same cells; None without one.
        measure: The name of the measure; empty without one.
    """

    group: QueryGroup
    sums: QueryGroup | None = None
    measure: str = ""


def find_finest(workload: Workload) -> Finest | None:
    """Find groups of whose answers those of all other groups are sums.

    Returns:
        The groups; None if there are none, or more than one measure, or one with a third cell.
    """
    measures = list_measures(workload.domain, workload.attributes)
    if len(measures) > 1 or any(workload.domain[name].size != 2 for name in measures):
        return None
    counted = set(workload.attributes) - set(measures)
    for group in workload.groups:
        factors = {f.attribute: f for f in group.factors}
        if set(group.attributes) != counted:
            continue
        others = [f for one in workload.groups for f in one.factors if f.attribute in factors]
        lists_cells = all(
            factor.kind in ("identity", "total", *_list_levels(workload, factor))
            for factor in factors.values()
        )
        if lists_cells and all(_is_finer(workload, factors[f.attribute], f) for f in others):
            if not measures:
                return Finest(group)
            sums = _find_sums(workload, group, measures[0])
            return None if sums is None else Finest(group, sums, measures[0])
    return None


def _find_sums(workload: Workload, group: QueryGroup, measure: str) -> QueryGroup | None:
    """Find the group that asks for the sums of a measure in the cells of a group."""
    wanted = {f.attribute: f.kind for f in group.factors if f.kind != "total"} | {measure: "sum"}
    for one in workload.groups:
        if {f.attribute: f.kind for f in one.factors if f.kind != "total"} == wanted:
            return one
    return None


def adjust_stepwise(
    release: NoisyAnswers, finest: Finest, total: float | None, *, integers: bool
) -> AnyArray:
    """Make a histogram without negative counts, from the total down.

    Args:
        release: The release.
        finest: The groups, by `find_finest`.
        total: The number of all records, if it is public.
        integers: Whether the counts are integers.

    Returns:
        The histogram, of the workload's shape. Where the group has nodes of a level, the count of
        a node is in its first leaf.

    Raises:
        WorkloadError: There are too many cells, or the total is negative.
    """
    workload = release.plan.workload
    if workload.cell_count > MOST_CELLS:
        raise WorkloadError(
            f"{workload.cell_count:,} cells are too many for one histogram; the limit is "
            f"{MOST_CELLS:,}. Show the unbiased estimates."
        )
    by_name = {f.attribute: f for f in finest.group.factors}
    in_order = [by_name[name] for name in workload.domain.names if name in finest.group.attributes]
    ordered = sorted(in_order, key=lambda f: not get_codec(workload.domain[f.attribute]).levels)
    values = _arrange(release, finest.group, ordered)
    if finest.sums is not None:
        values = _estimate_bounds(release, finest, ordered, values)
        ordered.append(Factor(finest.measure, "identity", 2))
    count = float(values.sum()) if total is None else float(total)
    if total is not None and count < 0:
        raise WorkloadError(
            "no nonnegative histogram has all the given totals. Check that they agree with each "
            "other."
        )
    counts = np.array(max(count, 0.0)).reshape((1,) * len(ordered))
    counts = np.rint(counts) if integers else counts
    for axis, factor in enumerate(ordered):
        for starts, families in _list_steps(workload, factor):
            later = tuple(range(axis + 1, len(ordered)))
            margin = values.sum(axis=later, keepdims=True) if later else values
            if len(starts) < factor.rows:
                margin = np.add.reduceat(margin, starts, axis=axis)
            counts = _divide(counts, margin, axis, families, integers=integers)
    return _spread_cells(workload, ordered, counts.astype(np.int64) if integers else counts)


def _arrange(release: NoisyAnswers, group: QueryGroup, ordered: list[Factor]) -> FloatArray:
    """Return the estimates of a group with an axis for each of some factors, in their order."""
    axes = [f.attribute for f in group.factors]
    names = [f.attribute for f in ordered]
    order = [
        *(axes.index(name) for name in names),
        *(axes.index(n) for n in axes if n not in names),
    ]
    return release.estimates[group.name].transpose(order).reshape([f.rows for f in ordered])


def _estimate_bounds(
    release: NoisyAnswers, finest: Finest, ordered: list[Factor], counts: FloatArray
) -> FloatArray:
    """Estimate the two cells of a measure, on a new last axis, from counts and sums."""
    assert finest.sums is not None
    low, high = get_codec(release.plan.domain[finest.measure]).quantities["sum"].tolist()
    above = (_arrange(release, finest.sums, ordered) - low * counts) / (high - low)
    return np.stack([counts - above, above], axis=-1)


def _is_finer(workload: Workload, finest: Factor, other: Factor) -> bool:
    """Return whether a factor tells apart whatever another of the same attribute tells apart."""
    if finest.kind == "identity" or other.kind == "total":
        return True
    levels = _list_levels(workload, finest)
    if finest.kind not in levels or other.kind not in levels:
        return False
    return levels.index(other.kind) <= levels.index(finest.kind)


def _list_levels(workload: Workload, factor: Factor) -> list[str]:
    """List the levels of a factor's attribute, the coarsest first."""
    return list(get_codec(workload.domain[factor.attribute]).levels)


def _list_steps(workload: Workload, factor: Factor) -> Iterator[tuple[IntArray, IntArray]]:
    """List the steps that divide an attribute, the coarsest first.

    Yields:
        The first row of each child, shape (children,), and the family of each child, ascending.
    """
    levels = _list_levels(workload, factor)
    codec = get_codec(workload.domain[factor.attribute])
    if not levels:
        yield np.arange(factor.rows), np.zeros(factor.rows, dtype=np.int64)
        return
    finest = levels[-1] if factor.kind == "identity" else factor.kind
    first_cells = codec.intervals(finest)[:, 0]
    above = np.zeros(1, dtype=np.int64)
    for level in levels[: levels.index(finest) + 1]:
        starts = np.searchsorted(first_cells, codec.intervals(level)[:, 0])
        yield starts, np.searchsorted(above, starts, side="right") - 1
        above = starts


def _divide(
    counts: FloatArray, margin: FloatArray, axis: int, families: IntArray, *, integers: bool
) -> FloatArray:
    """Divide counts among the children along an axis.

    Args:
        counts: With an entry for each family along the axis.
        margin: The estimates of the children, with the same other axes.
        axis: The axis.
        families: The family of each child, ascending.
        integers: Whether the counts, and those of the children, are integers.

    Returns:
        The counts of the children, of the margin's shape.
    """
    parents = np.moveaxis(counts, axis, -1).reshape(-1, counts.shape[axis])
    moved = np.moveaxis(margin, axis, -1)
    children = np.ascontiguousarray(moved).reshape(-1, margin.shape[axis])
    adjusted = np.empty(children.shape)
    rows = max(1, _CHUNK // children.shape[1])
    for start in range(0, len(children), rows):
        values, above = children[start : start + rows], parents[start : start + rows]
        offsets = above.shape[1] * np.arange(len(values))[:, None]
        part = project_families(values.ravel(), (families + offsets).ravel(), above.ravel())
        if integers:
            part = round_families(part, (families + offsets).ravel(), above.ravel())
        adjusted[start : start + rows] = part.reshape(values.shape)
    return np.moveaxis(adjusted.reshape(moved.shape), -1, axis)


def project_families(values: FloatArray, families: IntArray, totals: FloatArray) -> FloatArray:
    """Find the nearest numbers to some values that are not negative and have totals by family.

    Of a family they are max(v - t, 0) with the one t that gives the total.

    Args:
        values: Shape (n,).
        families: The family of each value, ascending; each has at least one, shape (n,).
        totals: The total of each family, not negative, shape (f,).

    Returns:
        Shape (n,). The sums are the totals up to rounding.
    """
    starts = np.searchsorted(families, np.arange(len(totals)))
    order = np.lexsort((-values, families))
    descending = values[order]
    rank = np.arange(len(values)) - starts[families] + 1
    # Sums within a family, from its largest value: sums over all would lose digits.
    sums = _sum_within(descending, starts)
    tried = (sums - totals[families]) / rank
    positive = np.add.reduceat((descending > tried).astype(np.int64), starts)
    last = starts + np.maximum(positive, 1) - 1
    return np.asarray(np.maximum(values - tried[last][families], 0.0))


def _sum_within(values: FloatArray, starts: IntArray) -> FloatArray:
    """Compute running sums that begin anew at each start."""
    lengths = np.diff(starts, append=len(values))
    sums = np.empty(len(values))
    for length in np.unique(lengths).tolist():
        at = starts[lengths == length][:, None] + np.arange(length)
        sums[at] = np.cumsum(values[at], axis=1)
    return sums


def round_families(values: FloatArray, families: IntArray, totals: FloatArray) -> FloatArray:
    """Round numbers that are not negative down or up, so that families have integer totals.

    Those with the largest fractions are raised; of equal ones, the first.

    Args:
        values: Shape (n,).
        families: The family of each value, ascending; each has at least one, shape (n,).
        totals: The integer total of each family, which is the sum of its values up to rounding.
    """
    starts = np.searchsorted(families, np.arange(len(totals)))
    low = np.floor(values)
    short = np.rint(totals - np.add.reduceat(low, starts))
    order = np.lexsort((-(values - low), families))
    rank = np.empty(len(values), dtype=np.int64)
    rank[order] = np.arange(len(values)) - starts[families]
    return low + (rank < short[families])


def _spread_cells(workload: Workload, ordered: list[Factor], counts: AnyArray) -> AnyArray:
    """Put the counts of a group's rows into cells, of the workload's shape."""
    names = [f.attribute for f in ordered]
    used = [name for name in workload.attributes if name in names]
    arranged = counts.transpose([names.index(name) for name in used])
    for axis, name in enumerate(used):
        factor = ordered[names.index(name)]
        if factor.kind != "identity":
            size = workload.domain[name].size
            spread = np.zeros(
                (*arranged.shape[:axis], size, *arranged.shape[axis + 1 :]), arranged.dtype
            )
            at = get_codec(workload.domain[name]).intervals(factor.kind)[:, 0]
            spread[(slice(None),) * axis + (at,)] = arranged
            arranged = spread
    assert math.prod(arranged.shape) == workload.cell_count
    return arranged.reshape(workload.shape)
