"""Answers of groups that are added up from the chunks of a finest table."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fitplug.families import PART
from fitplug.numeric import AnyArray
from fitplug.releases.descent import Chunk
from fitplug.releases.resolutions import Resolution, Resolutions, add_within
from fitplug.releases.tables import TableSlice
from fitplug.workload import QueryGroup


class AnswerSums:
    """Adds up the answers of a group, and yields them in parts of about `PART`, in full rows only.

    A node of a tree may lie in several chunks, whose sums are added. Only one part's answers are in
    memory. If the group sums over the lead attribute or has ranges of it, all of its answers are in
    memory.
    """

    def __init__(
        self, resolutions: Resolutions, group: QueryGroup, resolution: Resolution, lead: int
    ) -> None:
        self._resolutions, self._group = resolutions, group
        self._resolution, self._lead = resolution, lead
        self._factors = {f.attribute: f for f in group.factors if f.kind != "total"}
        name = next((n for n, axis in resolutions.axes.items() if axis == lead), "")
        factor = self._factors.get(name)
        self._is_streamed = factor is not None and resolutions.lists_blocks(factor)
        names = [f.attribute for f in group.factors]
        self._axis = names.index(name) if self._is_streamed else 0
        self._rows = 0 if factor is None else resolutions.find_depth(factor)
        self._number, self._first = 0, 0
        self._pending: AnyArray | None = None

    def add(self, chunk: Chunk) -> Iterator[tuple[TableSlice, AnyArray]]:
        """Add a chunk, and yield the answers that no later chunk adds to."""
        first, sums = self._sum(chunk)
        if self._pending is None:
            shape = list(sums.shape)
            if not self._is_streamed and len(shape) > self._lead:
                shape[self._lead] = self._count_rows()
            self._first = first
            self._pending = sums if self._is_streamed else np.zeros(shape, sums.dtype)
        elif self._is_streamed:
            if first < self._first + self._length(self._pending):  # the last row goes on
                last = self._take(self._pending, -1, None)
                sums = np.concatenate(
                    [last + self._take(sums, 0, 1), self._take(sums, 1, None)], self._lead
                )
                self._pending = np.concatenate([self._take(self._pending, 0, -1), sums], self._lead)
            else:
                self._pending = np.concatenate([self._pending, sums], self._lead)
        if not self._is_streamed:
            part = (slice(None),) * self._lead + (slice(first, first + self._length(sums)),)
            self._pending[part if sums.ndim else ...] += sums
            return
        full = self._length(self._pending) - 1
        if full > 0 and self._pending.size > PART:
            yield self._give(self._take(self._pending, 0, full))
            self._pending = self._take(self._pending, full, None)

    def finish(self) -> Iterator[tuple[TableSlice, AnyArray]]:
        """Yield the answers that are left."""
        assert self._pending is not None
        yield self._give(self._pending)

    def _give(self, sums: AnyArray) -> tuple[TableSlice, AnyArray]:
        values = self._answer(sums)
        rows = values.shape[self._axis] if values.ndim else 1
        cut = TableSlice(
            self._group.name, self._number, self._axis, self._first, self._first + rows
        )
        self._number, self._first = self._number + 1, self._first + rows
        return cut, values

    def _count_rows(self) -> int:
        return len(self._resolutions.find_starts(self._lead, self._rows))

    def _length(self, values: AnyArray) -> int:
        return values.shape[self._lead] if values.ndim else 1

    def _take(self, values: AnyArray, start: int, stop: int | None) -> AnyArray:
        return values[(slice(None),) * self._lead + (slice(start, stop),)]

    def _sum(self, chunk: Chunk) -> tuple[int, AnyArray]:
        """Add up a chunk to the group's blocks.

        Returns:
            The first block along the lead attribute, and the sums in the workload's order.
        """
        resolutions, values, first = self._resolutions, chunk.counts, 0
        for name, axis in resolutions.axes.items():
            depth, factor = self._resolution[axis], self._factors.get(name)
            wanted = 0 if factor is None else resolutions.find_depth(factor)
            parents = resolutions.find_parents(axis, depth, wanted)
            if axis == self._lead:
                parents = parents[chunk.start : chunk.stop]
                first = int(parents[0])
            if depth != wanted:
                values = add_within(values, parents, axis)
        return first, values

    def _answer(self, values: AnyArray) -> AnyArray:
        """Compute answers, of the group's shape along other axes, from sums of blocks."""
        group, axes = self._group, self._resolutions.axes
        is_integer = values.dtype.kind == "i"
        for factor in self._factors.values():
            if not self._resolutions.lists_blocks(factor):
                values = factor.apply(values, axes[factor.attribute])
        kept = [name for name in axes if name in self._factors]
        values = values.reshape([values.shape[axes[name]] for name in kept])
        order = [f.attribute for f in group.factors if f.attribute in self._factors]
        values = values.transpose([kept.index(name) for name in order])
        for axis, factor in enumerate(group.factors):
            if factor.kind == "total":
                values = np.expand_dims(values, axis)
        if is_integer and has_integer_coefficients(group):
            return np.rint(values).astype(np.int64)
        return np.asarray(values)


def has_integer_coefficients(group: QueryGroup) -> bool:
    """Return whether the answers of a group are integers if the counts are."""
    arrays = [f.array for f in group.factors if f.array is not None]
    return all((array == np.rint(array)).all() for array in arrays)


def add_up(
    resolutions: Resolutions, group: QueryGroup, resolution: Resolution, counts: AnyArray
) -> AnyArray:
    """Add up the answers of a group, of its shape, from all counts of a table in memory."""
    sums = AnswerSums(resolutions, group, resolution, 0)
    rows = counts.shape[0] if counts.ndim else 1
    parts = [*sums.add(Chunk(0, rows, counts)), *sums.finish()]
    values = [part for _, part in parts]
    axis = parts[0][0].axis
    return values[0] if len(values) == 1 else np.concatenate(values, axis=axis)
