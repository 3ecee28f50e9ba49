"""Invariants: what is known about the true counts without the release, and the bounds that follow.

The known facts are totals of regions that the user gives, cells that are zero by their meaning
(structural zeros: totals of 0), the public totals of the unit of privacy, and that no count is
negative. An invariant of this module limits the counts in the blocks of one resolution.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from fitplug.errors import WorkloadError
from fitplug.expressions import DenseTerms, Quotient, parse
from fitplug.numeric import AnyArray, FloatArray
from fitplug.releases.noisy_answers import NoisyAnswers
from fitplug.releases.resolutions import Resolution, Resolutions
from fitplug.workload import Factor, QueryGroup, Workload

Totals: TypeAlias = Mapping[str, Any]
"""Known numbers by group or expression: a number, or for a group an array of its shape."""


@dataclass(frozen=True, eq=False)
class Limits:
    """Limits of the counts in the blocks of a resolution.

    Attributes:
        resolution: The resolution.
        lower: The lower limits, not negative, of the resolution's shape.
        upper: The upper limits; infinite where nothing is known.
    """

    resolution: Resolution
    lower: FloatArray
    upper: FloatArray

    @property
    def is_of_zeros(self) -> bool:
        """Whether the limits only show that some blocks are empty."""
        return not self.lower.any() and bool(((self.upper == 0) | np.isinf(self.upper)).all())

    def coarsen(self, resolutions: Resolutions, coarse: Resolution) -> Limits:
        """Return the limits of coarser blocks that follow."""
        lower, upper = (
            resolutions.coarsen(values, self.resolution, coarse)
            for values in (self.lower, self.upper)
        )
        return Limits(coarse, lower, upper)

    def join(self, other: Limits) -> Limits:
        """Return the tighter limits of the same blocks."""
        lower, upper = np.maximum(self.lower, other.lower), np.minimum(self.upper, other.upper)
        return Limits(self.resolution, lower, upper)


@dataclass(frozen=True, eq=False)
class Known:
    """A known sum of answers.

    Attributes:
        name: Its name in messages.
        terms: The coefficients of the sum by group. If all answers of one group are known, the
            coefficients are ones of the group's shape.
        value: The sum, shape (), or the answers of the one group, of its shape.
    """

    name: str
    terms: DenseTerms
    value: FloatArray


def read_totals(workload: Workload, totals: Totals) -> list[Known]:
    """Read the known totals that a user gives.

    Raises:
        WorkloadError: A total is not well formed.
    """
    return [_read_total(workload, name, value) for name, value in totals.items()]


def _read_total(workload: Workload, name: str, value: Any) -> Known:
    """Read a total: a group's answers, or an expression."""
    shape = workload[name].shape if name in workload.groups.positions else ()
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        array = np.array(None)
    is_number = array.dtype.kind in "iuf" and bool(np.isfinite(array).all())
    if not is_number:
        raise WorkloadError(f"total {name!r} must be a finite number, not {value!r}")
    if name not in workload.groups.positions:
        expression = parse(workload, name)
        if isinstance(expression, Quotient):
            raise WorkloadError(f"total {name!r} is a ratio. Give a count.")
        terms = expression
    else:
        terms = {name: np.ones(shape)}
    if (array.size != 1 and array.shape != shape) or array.size == 1 < np.prod(shape):
        raise WorkloadError(
            f"total {name!r} must have shape {shape}, not {array.shape}. Give one number per "
            "answer."
        )
    return Known(name, terms, array.astype(np.float64).reshape(shape))


def list_rows(workload: Workload, known: Known) -> Iterator[tuple[FloatArray, float]]:
    """List the coefficients over the cells, of the workload's shape, of each known number."""
    if not known.value.ndim:
        yield _count_cells(workload, known.terms), float(known.value)
        return
    for index in np.ndindex(known.value.shape):
        one = np.zeros(known.value.shape)
        one[index] = 1.0
        yield _count_cells(workload, {known.name: one}), float(known.value[index])


def _count_cells(workload: Workload, coefficients: DenseTerms) -> FloatArray:
    """Compute how often a sum of answers counts each cell, of the workload's shape."""
    counted = np.zeros(workload.shape)
    for name, weights in coefficients.items():
        group, values = workload[name], np.asarray(weights)
        for axis, factor in enumerate(group.factors):
            if factor.kind != "total":
                values = factor.adjoint(values, axis)
        counted += arrange(workload, group, values)
        # An axis of length one stands for each attribute that the group sums out.
    return counted


def arrange(workload: Workload, group: QueryGroup, values: AnyArray) -> AnyArray:
    """Bring the axes of a group's factors into the workload's order, with all its attributes."""
    axes = {f.attribute: axis for axis, f in enumerate(group.factors) if f.kind != "total"}
    summed_out = tuple(axis for axis, f in enumerate(group.factors) if f.kind == "total")
    names = [name for name in workload.attributes if name in axes]
    values = values.transpose([axes[name] for name in names] + list(summed_out))
    lengths = iter(values.shape)
    return values.reshape([next(lengths) if name in axes else 1 for name in workload.attributes])


def list_limits(
    resolutions: Resolutions, release: NoisyAnswers, known: Iterable[Known]
) -> tuple[list[Limits], str | None]:
    """List the limits of blocks that follow from known numbers.

    Returns:
        The limits, one for each resolution; and the name of a total that gives no limits, because
        it is not the count of one block or of all blocks of a group, or None.
    """
    limits: dict[Resolution, Limits] = {}
    left_out = None
    for one in itertools.chain(_read_public(resolutions, release), _read(resolutions, known)):
        if isinstance(one, str):
            left_out = one
            continue
        same = limits.get(one.resolution)
        limits[one.resolution] = one if same is None else same.join(one)
    return list(limits.values()), left_out


def _read_public(resolutions: Resolutions, release: NoisyAnswers) -> Iterator[Limits]:
    """Read the totals that the unit of privacy makes public."""
    totals, names = release.public_totals, release.plan.strategy.structure.public_attributes
    if totals is not None and names is not None:
        resolution = tuple(
            resolutions.finest[axis] if name in names else 0
            for name, axis in resolutions.axes.items()
        )
        values = totals.astype(np.float64).reshape(resolutions.shape(resolution))
        yield Limits(resolution, values, values)


def _read(resolutions: Resolutions, known: Iterable[Known]) -> Iterator[Limits | str]:
    """Convert known numbers to limits; yield the name of one that is not a count of blocks."""
    workload = resolutions.workload
    for one in known:
        if not one.value.any() and all((weights >= 0).all() for weights in one.terms.values()):
            yield from _read_zeros(resolutions, one)
            continue
        (name, weights), *more = one.terms.items()
        group = workload[name]
        if more or not all(map(resolutions.lists_blocks, group.factors)):
            yield one.name
            continue
        resolution, marked = resolutions.find_resolution(group), arrange(workload, group, weights)
        if one.value.ndim:
            values = arrange(workload, group, one.value)
            yield Limits(resolution, values, values)
            continue
        found = _find_block(resolutions, resolution, marked)
        if found is None:
            yield one.name
            continue
        resolution, block = found
        lower = np.zeros(resolutions.shape(resolution))
        upper = np.full(lower.shape, np.inf)
        lower[block] = upper[block] = float(one.value) / marked.max()
        yield Limits(resolution, lower, upper)


def _read_zeros(resolutions: Resolutions, known: Known) -> Iterator[Limits | str]:
    """Read which blocks are empty because a sum of counts is zero."""
    workload = resolutions.workload
    for name, weights in known.terms.items():
        group = workload[name]
        resolution = resolutions.find_resolution(group)
        marked = np.array(weights > 0, dtype=np.float64)
        for axis, factor in enumerate(group.factors):
            if factor.array is not None and (factor.array < 0).any():
                yield known.name
                return
            if not resolutions.lists_blocks(factor):
                marked = np.asarray(factor.adjoint(marked, axis) > 0, dtype=np.float64)
        marked = arrange(workload, group, marked)
        upper = np.where(marked > 0, 0.0, np.inf)
        yield Limits(resolution, np.zeros(upper.shape), upper)


def _find_block(
    resolutions: Resolutions, resolution: Resolution, marked: FloatArray
) -> tuple[Resolution, tuple[int, ...]] | None:
    """Find the block, of the finest possible resolution, that marked blocks fill; None if none."""
    coarse, block = [], []
    is_marked = marked > 0
    for axis, depth in enumerate(resolution):
        others = tuple(k for k in range(len(resolution)) if k != axis)
        rows = np.flatnonzero(is_marked.any(axis=others))
        for tried in range(depth, -1, -1):
            parents = resolutions.find_parents(axis, depth, tried)
            if np.array_equal(np.flatnonzero(parents == parents[rows[0]]), rows):
                coarse.append(tried)
                block.append(int(parents[rows[0]]))
                break
        else:
            return None
    at = np.zeros(resolutions.shape(tuple(coarse)))
    at[tuple(block)] = marked.max()
    if not np.array_equal(resolutions.spread(at, tuple(coarse), resolution), marked):
        return None
    return tuple(coarse), tuple(block)


def bound_answers(
    resolutions: Resolutions, limits: Sequence[Limits], group: QueryGroup
) -> tuple[FloatArray, FloatArray]:
    """Compute bounds of the exact answers of a group.

    An answer is w x with w >= 0, and in each block r of an invariant x adds up to a number between
    lower_r and upper_r. So w x is between the sum of lower_r min(w in r) and the sum of upper_r
    max(w in r). Each invariant gives one such interval.

    Returns:
        The lower and upper ends, of shapes that broadcast to the group's shape.
    """
    if any(f.array is not None and (f.array < 0).any() for f in group.factors):
        return np.array(-np.inf), np.array(np.inf)
    low, high = np.zeros(()), np.full((), np.inf)
    for one in limits:
        least = _add_extremes(resolutions, one, one.lower, group, is_upper=False)
        most = _add_extremes(
            resolutions, one, np.where(np.isinf(one.upper), 0.0, one.upper), group, is_upper=True
        )
        is_open = _add_extremes(
            resolutions, one, np.isinf(one.upper).astype(np.float64), group, is_upper=True
        )
        low, high = np.maximum(low, least), np.minimum(high, np.where(is_open > 0, np.inf, most))
    return low, high


def _add_extremes(
    resolutions: Resolutions,
    limits: Limits,
    values: FloatArray,
    group: QueryGroup,
    *,
    is_upper: bool,
) -> FloatArray:
    """Add up values of blocks, times the largest or least coefficient of an answer in a block."""
    factors = {f.attribute: f for f in group.factors if f.kind != "total"}
    for name, axis in resolutions.axes.items():
        depth = limits.resolution[axis]
        if name in factors:
            values = _apply(resolutions, factors[name], axis, depth, values, is_upper=is_upper)
        else:
            values = values.sum(axis=axis, keepdims=True)
    used = [name for name in resolutions.axes if name in factors]
    values = values.reshape([values.shape[resolutions.axes[name]] for name in used])
    order = [used.index(f.attribute) for f in group.factors if f.attribute in factors]
    return values.transpose(order).reshape(group.shape)


def _apply(
    resolutions: Resolutions,
    factor: Factor,
    axis: int,
    depth: int,
    values: FloatArray,
    *,
    is_upper: bool,
) -> FloatArray:
    """Multiply values along an axis by each row's largest or least coefficient in each block."""
    if depth == resolutions.finest[axis]:
        return np.asarray(factor.apply(values, axis))
    row_depth = resolutions.find_depth(factor)
    if resolutions.lists_blocks(factor) and row_depth <= depth:
        at = np.searchsorted(
            resolutions.find_starts(axis, depth), resolutions.find_starts(axis, row_depth)
        )
        return np.asarray(np.add.reduceat(values, at, axis=axis))
    if resolutions.lists_blocks(factor):
        parents = resolutions.find_parents(axis, row_depth, depth)
        sizes = np.bincount(parents)  # a block of one row is that row
        taken = values.take(parents, axis=axis)
        if is_upper:
            return taken
        return taken * (sizes[parents] == 1).reshape(
            [-1 if k == axis else 1 for k in range(values.ndim)]
        )
    starts = resolutions.find_starts(axis, depth)
    if factor.array is not None:
        reduce = np.maximum if is_upper else np.minimum
        extremes = reduce.reduceat(factor.array, starts, axis=1)
    else:
        first, last = factor.intervals().T[:, :, None]
        ends = np.append(starts[1:], resolutions.count_cells(axis)) - 1
        extremes = (
            (first <= ends) & (last >= starts) if is_upper else (first <= starts) & (last >= ends)
        )
    return np.moveaxis(np.moveaxis(values, axis, -1) @ extremes.T.astype(np.float64), -1, axis)
