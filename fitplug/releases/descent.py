"""Counts without negative numbers from the total down: each count is divided among its parts.

Every query of a workload is a sum over blocks of a resolution (`fitplug.releases.resolutions`). The
finest of these resolutions have a table each, from which all other answers are added up:

1. The first table begins with the total, every other table with the counts that it has in common
   with an earlier table. So two tables agree on their common counts if one was begun from the
   other.
2. Each step divides each count of the step before among its parts: the blocks of the next depth of
   one attribute. The steps pass through the invariants, and through what groups ask for, the
   coarsest first, as far as these refine each other: the nation by sex, states by sex, and so on.
3. The parts of a count are the nearest numbers to their estimates, by least squares, that are
   within their limits and add up to the count. For integers, each is rounded down, and those with
   the largest fractions are raised until they add up.

The limits of a count are those of its invariants and the sums of its parts' limits, so each step
has a solution if the first one has. All tables are marginals of one histogram if each has no more
in common with all earlier tables than it was begun with (docs/theory/post-processing.md, E6).

The parts of different counts do not depend on each other. So after a step with about `CHUNK`
counts, the counts are divided for one range of the lead attribute's blocks at a time, and only the
counts of this step and one chunk are in memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fitplug.errors import WorkloadError
from fitplug.numeric import AnyArray, FloatArray, IntArray
from fitplug.releases.division import project_families, round_families
from fitplug.releases.finest_tables import Estimates, FinestTable
from fitplug.releases.invariants import Limits
from fitplug.releases.resolutions import Resolution, Resolutions, meet, refines

CHUNK = 2**21
"""About the largest number of blocks whose counts are divided at once."""


@dataclass(frozen=True, eq=False)
class Chunk:
    """The counts of a table for a range of the blocks of its lead attribute.

    Attributes:
        start: The first block.
        stop: The block after the last one.
        counts: The counts, of the table's shape with only the range along the lead attribute.
    """

    start: int
    stop: int
    counts: AnyArray


_Level: TypeAlias = tuple[FloatArray, FloatArray, FloatArray]
"""The estimates of a step's blocks, and their lower and upper limits."""


def _add_to_chain(chain: list[Resolution], resolution: Resolution, table: FinestTable) -> None:
    """Add a group's resolution to a chain if each of the chain's resolutions refines it or is
    refined by it.

    So the group's numbers are divided directly where possible. A number that is added up from the
    counts of small parts has the biases of all of them.
    """
    between = refines(table.resolution, resolution) and refines(resolution, table.begins)
    if between and all(refines(resolution, r) or refines(r, resolution) for r in chain):
        chain.append(resolution)


class Descent:
    """The steps from the counts that a table begins with to the table's own counts.

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
        """Choose the steps.

        Raises:
            WorkloadError: The resolutions of two invariants do not refine each other.
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
                "a release this large cannot match totals of partly overlapping regions. Give "
                "totals of nested regions."
            )
        chain = list(targets)
        asked = {resolutions.find_resolution(group) for group in resolutions.workload.groups}
        for resolution in sorted(asked, key=lambda r: (resolutions.size(r), r)):
            _add_to_chain(chain, resolution, table)
        chain = sorted({*chain, table.resolution} - {table.begins}, key=sum)
        self._steps = [table.begins]
        self._steps += resolutions.refine_by_steps(table.begins, chain, resolutions.order)
        self._limits = seen
        # Up to the split all counts are in memory; after it, those of a range of the lead's blocks.
        sizes = [resolutions.size(r) for r in self._steps]
        self._split = max(k for k, size in enumerate(sizes) if size <= CHUNK or not k)
        split = resolutions.shape(self._steps[self._split])
        self.lead = int(np.argmax(split)) if split else 0

    def _list_ranges(self) -> list[tuple[int, int]]:
        """List ranges of the lead's blocks at the split with about `CHUNK` blocks of the table."""
        resolutions, lead, table = self._resolutions, self.lead, self.table.resolution
        if not table:
            return [(0, 1)]
        parents = resolutions.find_parents(lead, table[lead], self._steps[self._split][lead])
        others = resolutions.size(table) // len(parents)
        ends = np.cumsum(np.bincount(parents)) * others
        cuts = np.searchsorted(ends, np.arange(1, ends[-1] // CHUNK + 1) * CHUNK)
        cuts = np.unique([0, *cuts.tolist(), len(ends)])
        return list(itertools.pairwise(cuts.tolist()))

    def _find_rows(self, k: int, blocks: tuple[int, int]) -> tuple[int, int]:
        """Return which of the lead's blocks at step k lie in a range of its blocks at the split."""
        if not self._steps[k]:
            return 0, 1
        depths = self._steps[k][self.lead], self._steps[self._split][self.lead]
        parents = self._resolutions.find_parents(self.lead, *depths)
        first, end = np.searchsorted(parents, blocks).tolist()
        return first, end

    def run(self, estimates: Estimates, begins: FloatArray | None) -> Iterator[Chunk]:
        """Compute the counts of the table, chunk after chunk.

        Args:
            estimates: The estimates of the table's blocks.
            begins: The counts that the table begins with; None for the total of the estimates.

        Raises:
            WorkloadError: No counts are within all limits.
        """
        shape, last = self._resolutions.shape(self._steps[self._split]), len(self._steps) - 1
        values, low, high = (np.empty(shape) for _ in range(3))
        ranges = self._list_ranges()
        everything = 0, shape[self.lead] if shape else 1
        for blocks in ranges:
            part = (slice(None),) * self.lead + (slice(*blocks),) if shape else ...
            rows = self._find_rows(last, blocks)
            top = self._climb(estimates.read(self.lead, *rows), last, self._split, blocks)[0]
            values[part], low[part], high[part] = top
        levels = self._climb(values, self._split, 0, everything, low, high)
        counts = self._begin(levels[0], begins)
        for k in range(1, self._split + 1):
            counts = self._divide(counts, levels[k], k, everything)
        for blocks in ranges:
            part = (slice(None),) * self.lead + (slice(*blocks),) if shape else ...
            rows = self._find_rows(last, blocks)
            chunk = np.asarray(counts[part])
            if self._split < last:
                read = estimates.read(self.lead, *rows)
                below = self._climb(read, last, self._split, blocks)
                for k in range(self._split + 1, last + 1):
                    chunk = self._divide(chunk, below[k - self._split], k, blocks)
            yield Chunk(*rows, chunk.astype(np.int64) if self._integers else chunk)

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

    def _climb(
        self,
        values: FloatArray,
        first: int,
        last: int,
        blocks: tuple[int, int],
        low: FloatArray | None = None,
        high: FloatArray | None = None,
    ) -> list[_Level]:
        """Add up values and limits from one step to an earlier one.

        Args:
            values: The values of the first step.
            first: The number of the step.
            last: The number of the earlier one.
            blocks: The range of the lead's blocks at the split that `values` have.
            low: The lower limits of the first step; None to compute them from its invariants.
            high: The upper limits, likewise.
        """
        if low is None or high is None:
            low, high = np.zeros(values.shape), np.full(values.shape, np.inf)
            low, high = self._limit(first, low, high, blocks)
        levels = [(values, low, high)]
        for k in range(first, last, -1):
            axis, families = self._find_families(k, blocks)
            at = np.searchsorted(families, np.arange(families[-1] + 1))
            values, low, high = (np.add.reduceat(v, at, axis=axis) for v in levels[0])
            levels.insert(0, (values, *self._limit(k - 1, low, high, blocks)))
        return levels

    def _find_families(self, k: int, blocks: tuple[int, int]) -> tuple[int, IntArray]:
        """Find the axis that a step divides, and the parent of each of the step's blocks."""
        before, after = self._steps[k - 1], self._steps[k]
        (axis,) = [a for a, (x, y) in enumerate(zip(before, after, strict=True)) if x != y]
        families = self._resolutions.find_parents(axis, after[axis], before[axis])
        if axis == self.lead and k > self._split:
            families = families[slice(*self._find_rows(k, blocks))]
            families = families - families[0]
        return axis, families

    def _limit(
        self, k: int, low: FloatArray, high: FloatArray, blocks: tuple[int, int]
    ) -> tuple[FloatArray, FloatArray]:
        """Tighten limits by the invariants of a step's resolution; at the last step, by all.

        Args:
            k: The number of the step.
            low: The sums of the lower limits of the parts.
            high: The sums of their upper limits.
            blocks: The range of the lead's blocks at the split.

        Raises:
            WorkloadError: No counts are within all limits.
        """
        at = self._steps[k]
        if k == len(self._steps) - 1:
            used = [one for r, one in self._limits.items() if refines(at, r)]
        else:
            used = [one for r, one in self._limits.items() if r == at]
        for one in used:
            lower, upper = one.lower, one.upper
            if one.resolution != at:
                upper = self._resolutions.spread(upper, one.resolution, at)
                lower = np.zeros(upper.shape)
            if k >= self._split and at:
                part = (slice(None),) * self.lead + (slice(*self._find_rows(k, blocks)),)
                lower, upper = lower[part], upper[part]
            low, high = np.maximum(low, lower), np.minimum(high, upper)
        if used and (low > high * (1 + 1e-9)).any():
            raise make_no_histogram_error()
        return low, high

    def _divide(
        self, counts: FloatArray, level: _Level, k: int, blocks: tuple[int, int]
    ) -> FloatArray:
        """Divide counts among the blocks of a step."""
        axis, families = self._find_families(k, blocks)
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
    """Make the error for totals that no histogram has."""
    return WorkloadError("no counts of at least 0 add up to the given totals. Correct the totals.")
