"""Coefficients of the answers of one query group in a sum, and the sets of cells that they count.

An expression selects a box of a group's answers: the product of its selections along each axis. A
box of any size is represented by its factors, and its answers are listed only if they are few. A
set of cells is a list of runs, sorted intervals, so unions and intersections take time in
proportion to the number of runs, not of cells.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from fitplug.expressions.paths import Step
from fitplug.numeric import BoolArray, FloatArray, IntArray, to_positions

Runs: TypeAlias = list[tuple[int, int]]
"""A set of cells: sorted intervals that do not touch, as (first cell, cell after the last)."""


def union(runs: Iterable[tuple[int, int]]) -> Runs:
    """Unite intervals in any order, which may overlap and be empty."""
    united: Runs = []
    for first, end in sorted(runs):
        if united and first <= united[-1][1]:
            united[-1] = united[-1][0], max(end, united[-1][1])
        elif first < end:
            united.append((first, end))
    return united


def intersection(left: Runs, right: Runs) -> Runs:
    """Intersect two sets of cells."""
    common: Runs = []
    i = j = 0
    while i < len(left) and j < len(right):
        first, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if first < end:
            common.append((first, end))
        if left[i][1] <= right[j][1]:
            i += 1
        else:
            j += 1
    return common


def complement(runs: Runs, size: int) -> Runs:
    """Return the cells of 0, ..., size - 1 that are not in a set."""
    ends = [0, *(end for run in runs for end in run), size]
    return [(a, b) for a, b in zip(ends[::2], ends[1::2], strict=True) if a < b]


_FEW = 2**20
"""A sum of boxes with at most this many coefficients is computed from a list of its answers."""


@dataclass(frozen=True, eq=False)
class SparseCoefficients:
    """The coefficients of a group's answers in a sum, most of which are zero.

    Attributes:
        positions: The positions of the answers with coefficients, in C order of the group's shape,
            ascending, shape (n,).
        values: The coefficients of these answers, shape (n,).
    """

    positions: IntArray
    values: FloatArray

    @property
    def count(self) -> int:
        """The number of coefficients."""
        return len(self.positions)

    @property
    def boxes(self) -> None:
        """None: the coefficients are listed one by one."""
        return None

    @property
    def is_finite(self) -> bool:
        """Whether all coefficients are finite."""
        return bool(np.isfinite(self.values).all())

    def to_array(self, shape: tuple[int, ...]) -> FloatArray:
        """Return the coefficients of all answers of the group, as an array of its shape."""
        array = np.zeros(shape)
        array.ravel()[self.positions] = self.values
        return array

    def scale(self, factor: float) -> SparseCoefficients:
        """Multiply by a factor."""
        return SparseCoefficients(self.positions, factor * self.values)

    def keep_range(
        self, shape: tuple[int, ...], axis: int, start: int, stop: int
    ) -> SparseCoefficients:
        """Keep the answers whose index along an axis is in a range.

        Returns:
            Their coefficients, in an array that has only the range of that axis.
        """
        if not shape or stop - start == shape[axis]:
            return self
        inner = math.prod(shape[axis + 1 :])
        outer, within = np.divmod(self.positions, shape[axis] * inner)
        index, rest = np.divmod(within, inner)
        inside = (index >= start) & (index < stop)
        moved = (outer * (stop - start) + index - start) * inner + rest
        return SparseCoefficients(moved[inside], self.values[inside])

    def multiply_values(self, values: FloatArray) -> float:
        """Compute the sum of the coefficients times values of the group's shape."""
        return float(self.values @ values.ravel()[self.positions])


@dataclass(frozen=True, eq=False)
class Box:
    """Coefficients that are a product along the axes of a group's shape.

    Attributes:
        factors: The coefficients along each axis.
        weight: A factor of the whole product.
    """

    factors: tuple[SparseCoefficients, ...]
    weight: float = 1.0

    @property
    def selection(self) -> tuple[bytes, ...]:
        """A key that is equal exactly for boxes that differ only in their weights."""
        arrays = (array for factor in self.factors for array in (factor.positions, factor.values))
        return tuple(array.tobytes() for array in arrays)

    @property
    def count(self) -> int:
        """The number of coefficients."""
        return math.prod(factor.count for factor in self.factors)

    def list_coefficients(self, shape: tuple[int, ...]) -> SparseCoefficients:
        """List the coefficients, for an array of this shape."""
        coefficients = multiply_coefficients(self.factors, shape)
        return coefficients if self.weight == 1.0 else coefficients.scale(self.weight)

    def multiply_values(self, values: FloatArray) -> float:
        """Compute the sum of the coefficients times values of the group's shape."""
        return float(self.add_up(self.take(values)))

    def take(self, values: FloatArray) -> FloatArray:
        """Take the values that have coefficients out of an array of the group's shape."""
        for axis, factor in enumerate(self.factors):
            first = int(factor.positions[0])
            if np.array_equal(factor.positions, np.arange(first, first + factor.count)):
                positions = slice(first, first + factor.count)  # a view, without a copy
                values = values[(slice(None),) * axis + (positions,)]
            else:
                values = np.take(values, to_positions(factor.positions), axis=axis)
        return values

    def add_up(self, values: FloatArray, axis: int | None = None) -> FloatArray:
        """Add up the values from `take`, times the coefficients, along all axes except `axis`."""
        along = list(self.factors)
        if axis is not None:
            values = np.moveaxis(values, axis, 0)
            del along[axis]
        for factor in reversed(along):
            values = values @ factor.values
        return np.asarray(values * self.weight)

    def bound_stds(self, variances: FloatArray, axis: int) -> FloatArray:
        """Bound from above the stds of the results of `add_up` for noise with these variances.

        By Cauchy-Schwarz, the sum of |c| s is at most the root of (sum of |c|) (sum of |c| s^2), so
        no array of stds is needed.

        Args:
            variances: The variances, of the group's shape.
            axis: The axis that is not summed.
        """
        factors = [SparseCoefficients(f.positions, np.abs(f.values)) for f in self.factors]
        absolute = Box(tuple(factors), abs(self.weight))
        weights = [float(f.values.sum()) for k, f in enumerate(factors) if k != axis]
        sums = absolute.add_up(absolute.take(variances), axis)
        return np.sqrt(absolute.weight * math.prod(weights) * sums) * (1 + 1e-9)

    def keep_range(self, axis: int, start: int, stop: int) -> Box | None:
        """Keep the answers whose index along an axis is in a range; None if there are none."""
        factor = self.factors[axis]
        inside: BoolArray = (factor.positions >= start) & (factor.positions < stop)
        if not inside.any():
            return None
        part = SparseCoefficients(factor.positions[inside] - start, factor.values[inside])
        return Box((*self.factors[:axis], part, *self.factors[axis + 1 :]), self.weight)


@dataclass(frozen=True, eq=False, kw_only=True)
class CumulativeBox(Box):
    """Coefficients that count the people of a selection up to each cell of an attribute.

    Along the attribute's axis, the positions are the rows of all steps, with coefficients of 1.

    Attributes:
        axis: The axis of the attribute.
        cells: The number of its cells.
        runs: The runs of the selected cells, each with the steps from its start to the boundaries
            in it. A step follows the steps that it starts from.
    """

    axis: int
    cells: int
    runs: list[tuple[tuple[int, int], list[Step]]]

    @property
    def is_nested(self) -> bool:
        """Whether the rows up to each cell include all rows up to the cell before."""
        every = [steps for _, steps in self.runs]
        forwards = all(step.sign == 1 for steps in every for step in steps)
        return forwards and all(a.end == b.start for steps in every for a, b in pairwise(steps))

    def accumulate(self, values: FloatArray, *, absolute: bool = False) -> FloatArray:
        """Add up values of the steps' rows up to each cell.

        Args:
            values: The values (steps,).
            absolute: Whether to add the values of subtracted rows too.

        Returns:
            The sums, shape (cells,); nan for cells up to which the rows cannot count.
        """
        sums = np.full(self.cells, math.nan)
        before, rest = 0.0, iter(values.tolist())
        for (first, end), steps in self.runs:
            reached = {first: before}
            for step, value in zip(steps, rest, strict=False):
                sign = 1 if absolute else step.sign
                reached[step.end] = reached[step.start] + sign * value
            sums[first:end] = [reached.get(cell + 1, math.nan) for cell in range(first, end)]
            before = sums[end - 1]
            sums[end:] = before  # no cell between runs is selected
        return sums


@dataclass(frozen=True, eq=False)
class BoxCoefficients:
    """The coefficients of a group's answers in a sum, as a sum of boxes.

    Attributes:
        shape: The group's shape.
        boxes: The boxes.
    """

    shape: tuple[int, ...]
    boxes: tuple[Box, ...]

    @property
    def count(self) -> int:
        """The number of coefficients; where boxes overlap, they count more than once."""
        return sum(box.count for box in self.boxes)

    @property
    def is_finite(self) -> bool:
        """Whether all coefficients are finite."""
        largest = [
            abs(box.weight) * math.prod(float(np.abs(f.values).max()) for f in box.factors)
            for box in self.boxes
        ]
        return bool(np.isfinite(largest).all() and math.isfinite(sum(largest)))

    @property
    def positions(self) -> IntArray:
        """The positions of the answers with coefficients; see `SparseCoefficients`."""
        return self._listed.positions

    @property
    def values(self) -> FloatArray:
        """The coefficients of these answers."""
        return self._listed.values

    def to_array(self, shape: tuple[int, ...]) -> FloatArray:
        """Return the coefficients of all answers of the group, as an array of its shape."""
        return self._listed.to_array(shape)

    def scale(self, factor: float) -> BoxCoefficients:
        """Multiply by a factor."""
        boxes = tuple(Box(box.factors, factor * box.weight) for box in self.boxes)
        return BoxCoefficients(self.shape, boxes)

    def keep_range(
        self, shape: tuple[int, ...], axis: int, start: int, stop: int
    ) -> BoxCoefficients:
        """Keep the answers whose index along an axis is in a range.

        Returns:
            Their coefficients, in an array that has only the range of that axis.
        """
        if not shape or stop - start == shape[axis]:
            return self
        boxes = [box.keep_range(axis, start, stop) for box in self.boxes]
        range_shape = tuple(stop - start if k == axis else n for k, n in enumerate(shape))
        return BoxCoefficients(range_shape, tuple(box for box in boxes if box is not None))

    def multiply_values(self, values: FloatArray) -> float:
        """Compute the sum of the coefficients times values of the group's shape."""
        if self.count <= _FEW:
            return self._listed.multiply_values(values) if self.boxes else 0.0
        return math.fsum(box.multiply_values(values) for box in self.boxes)

    @cached_property
    def _listed(self) -> SparseCoefficients:
        """The list of the coefficients."""
        return add_coefficients([box.list_coefficients(self.shape) for box in self.boxes])


Coefficients: TypeAlias = SparseCoefficients | BoxCoefficients


def add_boxes(summands: Sequence[Coefficients]) -> Coefficients:
    """Add several coefficients of one group, as boxes if all are."""
    boxed = [summand for summand in summands if isinstance(summand, BoxCoefficients)]
    if len(boxed) == len(summands):
        return merge_boxes(boxed[0].shape, [box for summand in boxed for box in summand.boxes])
    return add_coefficients(
        [SparseCoefficients(summand.positions, summand.values) for summand in summands]
    )


def merge_boxes(shape: tuple[int, ...], boxes: Sequence[Box]) -> BoxCoefficients:
    """Add boxes; the weights of those with the same factors are added."""
    merged: dict[tuple[bytes, ...], Box] = {}
    for box in boxes:
        key = box.selection
        weight = box.weight + (merged[key].weight if key in merged else 0.0)
        merged[key] = Box(box.factors, weight)
    return BoxCoefficients(shape, tuple(merged.values()))


def add_coefficients(summands: Sequence[SparseCoefficients]) -> SparseCoefficients:
    """Add several coefficients of one group, whose positions need not be sorted."""
    positions = np.concatenate([summand.positions for summand in summands])
    values = np.concatenate([summand.values for summand in summands])
    distinct, inverse = np.unique(positions, return_inverse=True)
    if len(distinct) == len(positions):
        order = np.argsort(positions, kind="stable")
        return SparseCoefficients(positions[order], values[order])
    sums = np.zeros(len(distinct))
    np.add.at(sums, inverse.ravel(), values)
    return SparseCoefficients(distinct, sums)


def multiply_coefficients(
    factors: Sequence[SparseCoefficients], shape: tuple[int, ...]
) -> SparseCoefficients:
    """Multiply the coefficients along each axis into coefficients for a group of this shape."""
    positions, values = np.zeros(1, dtype=np.int64), np.ones(1)
    for factor, rows in zip(factors, shape, strict=True):
        positions = np.add.outer(positions * rows, factor.positions).ravel()
        values = np.multiply.outer(values, factor.values).ravel()
    return SparseCoefficients(positions, values)
