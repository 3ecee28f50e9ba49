"""Finest tables: which groups' estimates determine all answers, and how they are read.

Answers of a workload are sums over blocks of a resolution. Each of the finest resolutions of groups
has a table, and all other estimates are sums of the estimates of these tables. Two tables may have
counts in common; each table begins with those that it has in common with one earlier table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fitplug.domain import Codec, get_codec, list_measures
from fitplug.numeric import AnyArray, FloatArray
from fitplug.releases.invariants import arrange
from fitplug.releases.noisy_answers import NoisyAnswers, list_parts
from fitplug.releases.resolutions import Resolution, Resolutions, meet, refines
from fitplug.workload import Factor, QueryGroup

_LARGEST_MATRIX = 2**22
"""The most entries of a factor's matrix that is inverted."""


class NoEstimatesError(Exception):
    """No group's answers determine the counts in the blocks of a finest resolution."""


@dataclass(frozen=True, eq=False)
class FinestTable:
    """A table from which answers are added up.

    Attributes:
        resolution: Its resolution.
        group: The group whose estimates it is made from.
        counts: With a measure, the group of the numbers of rows; `group` has the measure's sums.
        begins: The resolution of the counts that it begins with.
        begun_from: The number of the earlier table that has them; None for the first table.
    """

    resolution: Resolution
    group: QueryGroup
    counts: QueryGroup | None = None
    begins: Resolution = ()
    begun_from: int | None = None


def list_finest(resolutions: Resolutions) -> tuple[list[FinestTable], bool]:
    """List the finest tables of a workload in the order in which they are made.

    Returns:
        The tables, and whether they are marginals of one histogram, whatever their counts.

    Raises:
        NoEstimatesError: A finest resolution has no estimates.
    """
    workload = resolutions.workload
    of_group = {g.name: resolutions.find_resolution(g) for g in workload.groups}
    finest = [
        r
        for r in dict.fromkeys(of_group.values())
        if not any(other != r and refines(other, r) for other in of_group.values())
    ]
    tables = [_find_groups(resolutions, of_group, r) for r in finest]
    ordered: list[FinestTable] = []
    is_consistent = True
    while tables:
        # The next table is the one that has most in common with an earlier one.
        links = [
            (resolutions.size(meet(one.resolution, other.resolution)), -k, -j)
            for k, one in enumerate(tables)
            for j, other in enumerate(ordered)
        ]
        _, k, j = max(links, default=(0, 0, 0))
        if not ordered:
            k = -max(range(len(tables)), key=lambda n: (resolutions.size(tables[n].resolution), -n))
            begins, earlier = resolutions.coarsest, None
        else:
            begins, earlier = meet(tables[-k].resolution, ordered[-j].resolution), -j
        chosen = tables.pop(-k)
        common = [meet(chosen.resolution, other.resolution) for other in ordered]
        is_consistent = is_consistent and all(refines(begins, one) for one in common)
        ordered.append(replace(chosen, begins=begins, begun_from=earlier))
    return ordered, is_consistent


def _find_groups(
    resolutions: Resolutions, of_group: dict[str, Resolution], resolution: Resolution
) -> FinestTable:
    """Find the groups whose estimates determine those of all blocks of a resolution."""
    workload = resolutions.workload
    measures = [
        resolutions.axes[name]
        for name in list_measures(workload.domain, workload.attributes)
        if resolution[resolutions.axes[name]]
    ]
    counted = tuple(0 if axis in measures else d for axis, d in enumerate(resolution))
    sums = counts = None
    for group in workload.groups:
        plain = [f for f in group.factors if resolutions.axes.get(f.attribute) not in measures]
        if not all(_can_solve(resolutions, factor) for factor in plain):
            continue
        if of_group[group.name] == resolution:
            sums = sums or group
        if refines(of_group[group.name], counted) and not any(
            of_group[group.name][axis] for axis in measures
        ):
            counts = counts or group
    if sums is not None and not measures:
        return FinestTable(resolution, sums)
    of_two = len(measures) == 1 and resolutions.count_cells(measures[0]) == 2
    if sums is None or counts is None or not of_two:
        raise NoEstimatesError
    return FinestTable(resolution, sums, counts)


def _can_solve(resolutions: Resolutions, factor: Factor) -> bool:
    """Return whether the blocks of a factor follow from its answers."""
    if resolutions.lists_blocks(factor) or factor.kind == "prefix":
        return not factor.left_out or factor.kind != "prefix"
    if factor.kind == "all_ranges":
        return not factor.left_out
    if factor.rows < factor.size or factor.rows * factor.size > _LARGEST_MATRIX:
        return False
    return int(np.linalg.matrix_rank(factor.matrix())) == factor.size


def _solve_blocks(
    resolutions: Resolutions, factor: Factor, values: AnyArray, axis: int
) -> AnyArray:
    """Compute the values of blocks from those of a factor's rows, which are sums of them."""
    if resolutions.lists_blocks(factor):
        return values
    if factor.kind == "prefix":
        return np.diff(values, axis=axis, prepend=0.0)
    if factor.kind == "all_ranges":
        first, last = factor.intervals().T
        return values.take(np.flatnonzero(first == last), axis=axis)
    inverse = np.linalg.pinv(factor.matrix())
    return np.moveaxis(np.moveaxis(values, axis, -1) @ inverse.T, -1, axis)


class Estimates:
    """The unbiased estimates of the blocks of a table, for ranges of an attribute's blocks."""

    def __init__(self, resolutions: Resolutions, release: NoisyAnswers, table: FinestTable) -> None:
        self._resolutions, self._release, self._table = resolutions, release, table

    def read(self, lead: int, start: int, stop: int) -> FloatArray:
        """Read the estimates of a range of blocks, with all blocks of the other attributes."""
        table, resolutions = self._table, self._resolutions
        depth = table.resolution[lead]
        values = self._read_group(table.group, lead, start, stop, depth)
        if table.counts is None:
            return values
        counts = self._read_group(table.counts, lead, start, stop, depth)
        (factor,) = [f for f in table.group.factors if self._codec(f).quantities]
        measure = resolutions.axes[factor.attribute]
        coarse = tuple(0 if k == measure else d for k, d in enumerate(table.resolution))
        fine = list(resolutions.find_resolution(table.counts))
        fine[lead] = coarse[lead]  # `_read_group` added this axis up already
        counts = resolutions.coarsen(counts, tuple(fine), coarse)
        low, high = self._codec(factor).quantities["sum"].tolist()
        above = (values - low * counts) / (high - low)
        return np.concatenate([counts - above, above], axis=measure)

    def _codec(self, factor: Factor) -> Codec:
        return get_codec(self._release.plan.domain[factor.attribute])

    def _read_group(
        self, group: QueryGroup, lead: int, start: int, stop: int, depth: int
    ) -> FloatArray:
        """Read the estimates of a group's blocks, in the workload's order of attributes.

        The lead attribute has the blocks from `start` to `stop` of a depth.
        """
        resolutions, workload = self._resolutions, self._resolutions.workload
        along = [
            k for k, f in enumerate(group.factors) if resolutions.axes.get(f.attribute) == lead
        ]
        fine = resolutions.find_resolution(group)[lead]
        parents = resolutions.find_parents(lead, fine, depth)
        first, end = np.searchsorted(parents, [start, stop]).tolist()
        is_cut = bool(along) and resolutions.lists_blocks(group.factors[along[0]])
        if is_cut:
            values = read_range(self._release, group, along[0], first, end)
        else:
            values = self._release.estimates[group.name]
        for axis, factor in enumerate(group.factors):
            if not self._codec(factor).quantities:
                values = _solve_blocks(resolutions, factor, values, axis)
        values = arrange(workload, group, values)
        if not is_cut:
            values = values[(slice(None),) * lead + (slice(first, end),)]
        if fine == depth:
            return np.asarray(values)
        at = np.searchsorted(parents[first:end], np.arange(start, stop))
        return np.asarray(np.add.reduceat(values, at, axis=lead))


def read_range(
    release: NoisyAnswers, group: QueryGroup, axis: int, start: int, stop: int
) -> FloatArray:
    """Read the estimates of a group whose index along an axis is in a range."""
    parts = list_parts(release, group.name)
    if len(parts) == 1 or parts[0].axis != axis:
        values = release.estimates[group.name]
        return values[(slice(None),) * axis + (slice(start, stop),)] if values.ndim else values
    read = []
    for part in parts:
        if part.start < stop and start < part.stop:
            ends = slice(max(start - part.start, 0), min(stop, part.stop) - part.start)
            read.append(part.read()[(slice(None),) * axis + (ends,)])
    return np.concatenate(read, axis=axis)
