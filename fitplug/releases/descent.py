"""Counts without negative numbers from the total down: each count is divided among its parts.

Every query of a workload is a sum over blocks of a resolution (`fitplug.releases.resolutions`). The
finest of these resolutions have a table each, from which all other answers are added up:

1. The first table begins with the total, each other one with the counts that it has in common with
   an earlier table. So two tables agree on what they have in common, if one was begun from the
   other.
2. Attributes are taken one after another, first those of invariants, then hierarchies level by
   level, then the others. Each step divides each count of the step before among its parts.
3. The parts of a count are the nearest numbers to their estimates, by least squares, that are
   within their limits and add up to the count. For integers, each is rounded down, and those with
   the largest fractions are raised until they add up.

The limits of a count are those of its invariants and the sums of its parts' limits, so each step
has a solution if the first one has. All tables are marginals of one histogram if each has no more
in common with all earlier tables than it was begun with (docs/theory/post-processing.md, E6).

The counts of different blocks of the first attribute do not depend on each other once it is
divided. So the other attributes are divided for a range of its blocks at a time, from the parts in
which a large release is read: in memory are the counts of the first attribute and one chunk.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fitplug.errors import WorkloadError
from fitplug.numeric import AnyArray, FloatArray
from fitplug.releases.division import project_families, round_families
from fitplug.releases.finest_tables import CHUNK, Estimates, FinestTable
from fitplug.releases.invariants import Limits
from fitplug.releases.resolutions import Resolution, Resolutions, meet, refines


@dataclass(frozen=True, eq=False)
class Chunk:
    """The counts of a table for a range of the blocks of its lead attribute.

    Attributes:
        start: The first block.
        stop: The block after the last one.
        counts: The counts, of the table's shape but for the range.
    """

    start: int
    stop: int
    counts: AnyArray


_Level: TypeAlias = tuple[FloatArray, FloatArray, FloatArray]
"""The estimates of a step's blocks, and their lower and upper limits."""


class Descent:
    """The way from the counts that a table begins with to its own.

    Attributes:
        table: The table.
        lead: The axis whose blocks the chunks are ranges of.
    """

    def __init__(
        self,
        resolutions: Resolutions,
        table: FinestTable,
        limits: Sequence[Limits],
        *,
        integers: bool,
    ) -> None:
        """Find the way.

        Raises:
            WorkloadError: The invariants are not on one way.
        """
        self.table, self._resolutions, self._integers = table, resolutions, integers
        seen: dict[Resolution, Limits] = {}
        for one in limits:
            at = meet(one.resolution, table.resolution)
            coarse = one.coarsen(resolutions, at)
            seen[at] = coarse if at not in seen else seen[at].join(coarse)
        targets = [r for r, one in seen.items() if not one.is_of_zeros]
        targets = [r for r in targets if not refines(table.begins, r) or table.begun_from is None]
        targets = sorted(targets, key=sum)
        steps = [table.begins, *targets, table.resolution]
        if not all(refines(b, a) for a, b in itertools.pairwise(steps)):
            raise WorkloadError(
                "the totals are of regions that cross each other, which a release this large "
                "cannot keep. Give totals of one attribute, or of nested ones."
            )
        order = resolutions.order
        self._way = [table.begins]
        self._way += resolutions.refine_by_steps(table.begins, [*targets, table.resolution], order)
        self._limits = seen
        self.lead = next((a for a in order if table.begins[a] < table.resolution[a]), 0)
        # The steps before this one are made for all blocks of the lead attribute together.
        whole = table.resolution[self.lead]
        self._split = next(k for k, r in enumerate(self._way) if r[self.lead] == whole)

    def run(self, estimates: Estimates, begins: FloatArray | None) -> Iterator[Chunk]:
        """Compute the counts of the table, chunk after chunk.

        Args:
            estimates: The estimates of the table's blocks.
            begins: The counts that the table begins with; None for the total of the estimates.

        Raises:
            WorkloadError: No counts are within all limits.
        """
        resolutions, lead, split = self._resolutions, self.lead, self._way[self._split]
        ranges = estimates.list_ranges(lead)
        values = np.empty(resolutions.shape(split))
        low, high = np.zeros(values.shape), np.full(values.shape, np.inf)
        for start, stop in ranges:
            part = (slice(None),) * lead + (slice(start, stop),)
            below = self._climb(estimates.read(lead, start, stop), start, stop, self._split)
            values[part], low[part], high[part] = below[0]
        levels = self._climb_whole(values, low, high)
        counts = self._begin(levels[0], begins)
        for k in range(1, self._split + 1):
            counts = self._divide(counts, levels[k], k, 0)
        for start, stop in ranges:
            part = (slice(None),) * lead + (slice(start, stop),)
            below = self._climb(estimates.read(lead, start, stop), start, stop, self._split)
            chunk = counts[part]
            for k in range(self._split + 1, len(self._way)):
                chunk = self._divide(chunk, below[k - self._split], k, start)
            yield Chunk(start, stop, chunk.astype(np.int64) if self._integers else chunk)

    def _begin(self, level: _Level, begins: FloatArray | None) -> FloatArray:
        """Return the counts that the table begins with."""
        values, low, high = level
        if (low > high).any():
            raise make_no_histogram_error()
        if begins is None:
            begins = np.clip(values, low, high)
            return np.rint(begins) if self._integers else begins
        slack = 0.0 if self._integers else 1e-6 * np.maximum(begins, 1.0)
        if (begins < low - slack).any() or (begins > high + slack).any():
            raise make_no_histogram_error()
        return begins

    def _climb_whole(self, values: FloatArray, low: FloatArray, high: FloatArray) -> list[_Level]:
        """Add up values and limits of the split's resolution for the steps before it."""
        levels = [(values, low, high)]
        for k in range(self._split, 0, -1):
            values, low, high = (
                self._resolutions.coarsen(v, self._way[k], self._way[k - 1]) for v in levels[0]
            )
            low, high = self._limit(k - 1, low, high, None)
            levels.insert(0, (values, low, high))
        return levels

    def _climb(self, values: FloatArray, start: int, stop: int, last: int) -> list[_Level]:
        """Add up values and limits of a chunk, from the table's resolution to that of a step."""
        top = len(self._way) - 1
        low, high = np.zeros(values.shape), np.full(values.shape, np.inf)
        levels = [(values, *self._limit(top, low, high, (start, stop)))]
        for k in range(top, last, -1):
            values, low, high = (
                self._resolutions.coarsen(v, self._way[k], self._way[k - 1]) for v in levels[0]
            )
            levels.insert(0, (values, *self._limit(k - 1, low, high, (start, stop))))
        return levels

    def _limit(
        self, k: int, low: FloatArray, high: FloatArray, rows: tuple[int, int] | None
    ) -> tuple[FloatArray, FloatArray]:
        """Bring in the invariants of a step's resolution; at the last step those of empty blocks.

        Args:
            k: The number of the step.
            low: The sums of the lower limits of the parts.
            high: The sums of their upper limits.
            rows: The range of the lead attribute's blocks; None for all.

        Raises:
            WorkloadError: No counts are within all limits.
        """
        at = self._way[k]
        if k == len(self._way) - 1:
            used = [one for r, one in self._limits.items() if refines(at, r)]
        else:
            used = [one for r, one in self._limits.items() if r == at]
        for one in used:
            lower, upper = one.lower, one.upper
            if one.resolution != at:
                upper = self._resolutions.spread(upper, one.resolution, at)
                lower = np.zeros(upper.shape)
            if rows is not None:
                part = (slice(None),) * self.lead + (slice(*rows),)
                lower, upper = lower[part], upper[part]
            low, high = np.maximum(low, lower), np.minimum(high, upper)
        if used and (low > high * (1 + 1e-9)).any():
            raise make_no_histogram_error()
        return low, high

    def _divide(self, counts: FloatArray, level: _Level, k: int, start: int) -> FloatArray:
        """Divide counts among the blocks of the next step; the first lead block is `start`."""
        before, after = self._way[k - 1], self._way[k]
        (axis,) = [a for a, (x, y) in enumerate(zip(before, after, strict=True)) if x != y]
        families = self._resolutions.find_parents(axis, after[axis], before[axis])
        values = level[0]
        moved = [np.moveaxis(v, axis, -1).reshape(-1, values.shape[axis]) for v in level]
        parents = np.moveaxis(counts, axis, -1).reshape(-1, counts.shape[axis])
        has_limits = bool(self._limits)
        divided = np.empty(moved[0].shape)
        rows = max(1, CHUNK // divided.shape[1])
        for first in range(0, len(divided), rows):
            v, least, most = (one[first : first + rows].ravel() for one in moved)
            above = parents[first : first + rows]
            offsets = above.shape[1] * np.arange(len(above))[:, None]
            of = (families + offsets).ravel()
            limits = (least, most) if has_limits else (None, None)
            part = project_families(v, of, above.ravel(), *limits)
            if self._integers:
                part = round_families(part, of, above.ravel(), limits[1])
            divided[first : first + rows] = part.reshape(len(above), -1)
        shape = np.moveaxis(values, axis, -1).shape
        return np.moveaxis(divided.reshape(shape), -1, axis)


def make_no_histogram_error() -> WorkloadError:
    """Make the error for totals that no counts have."""
    return WorkloadError(
        "no nonnegative histogram has all the given totals. Check that they agree with each other."
    )
