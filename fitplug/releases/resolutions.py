"""Resolutions: how finely queries distinguish the values of each attribute.

A depth of an attribute divides its cells into blocks of consecutive cells: depth 0 is one block of
all cells, the levels of a hierarchy follow, and the last depth has a block for each cell. A
resolution has a depth for each attribute of the workload, so resolutions form a lattice: the meet
of two takes the coarser depth of each attribute, and the join the finer one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache, cached_property
from typing import TypeAlias

import numpy as np

from fitplug.domain import Codec, get_codec, list_measures
from fitplug.numeric import AnyArray, IntArray
from fitplug.workload import Factor, QueryGroup, Workload

Resolution: TypeAlias = tuple[int, ...]
"""The depth of each attribute of a workload."""


def meet(one: Resolution, other: Resolution) -> Resolution:
    """Return the finest resolution that is no finer than either."""
    return tuple(map(min, one, other))


def refines(fine: Resolution, coarse: Resolution) -> bool:
    """Return whether the blocks of `fine` divide the blocks of `coarse`."""
    return all(a >= b for a, b in zip(fine, coarse, strict=True))


class Resolutions:
    """The resolutions of a workload.

    Arrays of a resolution have an axis for each attribute of the workload, with an entry for each
    block.

    Attributes:
        workload: The workload.
        axes: The axis of each attribute.
    """

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.axes = {name: axis for axis, name in enumerate(workload.attributes)}
        self._find_starts = cache(self._compute_starts)

    @cached_property
    def coarsest(self) -> Resolution:
        """The resolution of the number of all records."""
        return (0,) * len(self.axes)

    @cached_property
    def finest(self) -> Resolution:
        """The resolution of the cells."""
        return tuple(self.count_depths(axis) - 1 for axis in range(len(self.axes)))

    def count_depths(self, axis: int) -> int:
        """Return how many depths an attribute has."""
        return max(2, len(self._codec(axis).levels) + 1)

    def shape(self, resolution: Resolution) -> tuple[int, ...]:
        """Return the shape of the arrays of a resolution."""
        return tuple(len(self.find_starts(k, depth)) for k, depth in enumerate(resolution))

    def size(self, resolution: Resolution) -> int:
        """Return the number of blocks of a resolution."""
        return math.prod(self.shape(resolution))

    def find_starts(self, axis: int, depth: int) -> IntArray:
        """Find the first cell of each block of an attribute."""
        return self._find_starts(axis, depth)

    def _compute_starts(self, axis: int, depth: int) -> IntArray:
        codec = self._codec(axis)
        if depth == 0:
            return np.zeros(1, dtype=np.int64)
        if depth == self.count_depths(axis) - 1:
            return np.arange(codec.size, dtype=np.int64)
        return codec.intervals(codec.levels[depth - 1])[:, 0]

    def count_cells(self, axis: int) -> int:
        """Return how many cells an attribute has."""
        return self._codec(axis).size

    def find_parents(self, axis: int, fine: int, coarse: int) -> IntArray:
        """Find the block of a coarser depth that contains each block of a finer one, ascending."""
        starts = self.find_starts(axis, coarse)
        return np.searchsorted(starts, self.find_starts(axis, fine), side="right") - 1

    def find_depth(self, factor: Factor) -> int:
        """Find the least depth whose blocks a factor's rows are sums of."""
        axis = self.axes[factor.attribute]
        levels = list(self._codec(axis).levels)[:-1]
        if factor.kind == "total":
            return 0
        return levels.index(factor.kind) + 1 if factor.kind in levels else self.finest[axis]

    def lists_blocks(self, factor: Factor) -> bool:
        """Return whether each row of a factor is one block of its depth."""
        levels = get_codec(self.workload.domain[factor.attribute]).levels
        return factor.kind in ("total", "identity", *levels[:-1])

    def find_resolution(self, group: QueryGroup) -> Resolution:
        """Find the coarsest resolution whose blocks the answers of a group are sums of."""
        depths = {f.attribute: self.find_depth(f) for f in group.factors if f.kind != "total"}
        return tuple(depths.get(name, 0) for name in self.axes)

    def coarsen(self, values: AnyArray, fine: Resolution, coarse: Resolution) -> AnyArray:
        """Add up the values of blocks within coarser blocks."""
        for axis, (depth, wanted) in enumerate(zip(fine, coarse, strict=True)):
            if depth != wanted:
                starts = self.find_starts(axis, wanted)
                at = np.searchsorted(self.find_starts(axis, depth), starts)
                values = np.add.reduceat(values, at, axis=axis)
        return values

    def spread(self, values: AnyArray, coarse: Resolution, fine: Resolution) -> AnyArray:
        """Give each finer block the value of the block that contains it."""
        for axis, (depth, wanted) in enumerate(zip(coarse, fine, strict=True)):
            if depth != wanted:
                values = values.take(self.find_parents(axis, wanted, depth), axis=axis)
        return values

    def refine_by_steps(
        self, start: Resolution, targets: list[Resolution], first: list[int]
    ) -> Iterator[Resolution]:
        """List resolutions through some targets, each finer by one depth of one attribute.

        Args:
            start: The resolution to start from; it is not listed.
            targets: The resolutions to pass, in ascending order.
            first: The order in which axes are refined between two targets.
        """
        at = list(start)
        for target in targets:
            for axis in first:
                while at[axis] < target[axis]:
                    at[axis] += 1
                    yield tuple(at)

    @cached_property
    def order(self) -> list[int]:
        """The axes in the order in which counts are divided: hierarchies, others, measures."""
        measures = list_measures(self.workload.domain, self.workload.attributes)

        def rank(axis: int) -> tuple[bool, bool, int, int]:
            name, codec = self.workload.attributes[axis], self._codec(axis)
            return (name in measures, not codec.levels, -codec.size if codec.levels else 0, axis)

        return sorted(range(len(self.axes)), key=rank)

    def _codec(self, axis: int) -> Codec:
        return get_codec(self.workload.domain[self.workload.attributes[axis]])


def add_within(values: AnyArray, parents: IntArray, axis: int) -> AnyArray:
    """Add up the values of consecutive blocks with the same parent.

    Args:
        values: The values of the blocks.
        parents: The parent of each block along the axis, ascending and without gaps.
        axis: The axis.
    """
    starts = np.searchsorted(parents, np.arange(parents[0], parents[-1] + 1))
    return np.asarray(np.add.reduceat(values, starts, axis=axis))
