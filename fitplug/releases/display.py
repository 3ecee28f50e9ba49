"""How the display tables of a release are made: from which counts, with which limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np

from fitplug.domain import list_measures
from fitplug.errors import WorkloadError
from fitplug.files import Columns
from fitplug.numeric import AnyArray, FloatArray
from fitplug.releases import tables as exports
from fitplug.releases.descent import Chunk, Descent, make_no_histogram_error
from fitplug.releases.display_answers import AnswerSums, has_integer_coefficients
from fitplug.releases.finest_tables import (
    Estimates,
    FinestTable,
    NoEstimatesError,
    list_finest,
    read_range,
)
from fitplug.releases.invariants import (
    Known,
    Limits,
    Totals,
    bound_answers,
    list_limits,
    read_totals,
)
from fitplug.releases.least_squares import NoSolutionError, solve_counts
from fitplug.releases.noisy_answers import NoisyAnswers
from fitplug.releases.resolutions import Resolutions, add_within, refines
from fitplug.releases.tables import TableSlice
from fitplug.workload import QueryGroup

Method: TypeAlias = Literal["nonnegative", "integers"]

DISPLAY_COLUMNS = ("display", "lower", "upper", "confidence")
"""The columns after those of the attributes: a number, and the interval of the exact answer."""

MOST_ENTRIES = 10_000_000
"""The largest number of cells times answers; a problem of this size takes about a minute."""


@dataclass(frozen=True, eq=False)
class Display:
    """How the display tables of a release are made.

    Attributes:
        release: The unbiased release.
        method: "nonnegative", or "integers" if the counts are integers too.
        totals: The known numbers that the tables match, as the user gave them.
        resolutions: The resolutions of the workload.
        limits: The limits of the counts in blocks.
        finest: The finest tables; one of all cells if `known` is not None.
        is_consistent: Whether all tables come from one histogram. If not, some tables with
            attributes in common may differ in their totals; all have the same number of rows.
        known: The known sums, for a release that is small; None for a large one.
    """

    release: NoisyAnswers
    method: Method
    totals: Totals
    resolutions: Resolutions
    limits: list[Limits]
    finest: list[FinestTable]
    is_consistent: bool
    known: list[Known] | None

    @property
    def is_by_steps(self) -> bool:
        """Whether the counts are made from the total down, instead of by least squares."""
        return self.known is None

    def find_table(self, group: QueryGroup) -> int:
        """Find the number of the finest table that a group's answers are added up from."""
        resolution = self.resolutions.find_resolution(group)
        return next(k for k, one in enumerate(self.finest) if refines(one.resolution, resolution))

    def run(self) -> Iterator[tuple[int, int, Chunk]]:
        """Compute the counts of all finest tables.

        Yields:
            The number of the table, the axis that chunks are cut along, and a chunk.
        """
        if self.known is not None:
            counts = self._solve(self.known)
            yield 0, 0, Chunk(0, counts.shape[0] if counts.ndim else 1, counts)
            return
        begins: dict[int, AnyArray] = {}
        for k, table in enumerate(self.finest):
            later = [j for j, one in enumerate(self.finest) if one.begun_from == k]
            descent = Descent(
                self.resolutions, table, self.limits, integers=self.method == "integers"
            )
            estimates = Estimates(self.resolutions, self.release, table)
            for chunk in descent.run(estimates, begins.pop(k, None)):
                for j in later:
                    self._add_begins(begins, j, chunk, table, descent.lead)
                yield k, descent.lead, chunk

    def _solve(self, known: list[Known]) -> AnyArray:
        """Compute the histogram of a small release by least squares over all cells."""
        try:
            solved = solve_counts(self.release, self.resolutions, self.limits, known)
        except NoSolutionError:
            raise make_no_histogram_error() from None
        try:
            return solved.to_histogram(integers=self.method == "integers")
        except NoSolutionError:
            raise WorkloadError(
                f"no rounded counts match the totals {dict(self.totals)}. Give fewer totals."
            ) from None

    def _add_begins(
        self,
        begins: dict[int, AnyArray],
        later: int,
        chunk: Chunk,
        table: FinestTable,
        lead: int,
    ) -> None:
        """Add a chunk's counts to what a later table begins with."""
        resolutions, wanted = self.resolutions, self.finest[later].begins
        if later not in begins:
            begins[later] = np.zeros(resolutions.shape(wanted))
        fine = list(table.resolution)
        fine[lead] = wanted[lead]  # this axis of the chunk is added up here
        parents = resolutions.find_parents(lead, table.resolution[lead], wanted[lead])
        parents = parents[chunk.start : chunk.stop]
        counts = add_within(chunk.counts, parents, lead)
        counts = resolutions.coarsen(counts, tuple(fine), wanted)
        rows = slice(int(parents[0]), int(parents[-1]) + 1)
        begins[later][(slice(None),) * lead + (rows,)] += counts

    def iterate(self) -> Iterator[tuple[TableSlice, AnyArray]]:
        """Compute the tables of all groups, part by part, each part once."""
        of_table: dict[int, list[AnswerSums]] = {}
        for k, lead, chunk in self.run():
            if k not in of_table:
                yield from self._finish(of_table)
                of_table[k] = [
                    AnswerSums(self.resolutions, group, self.finest[k].resolution, lead)
                    for group in self.release.plan.workload.groups
                    if self.find_table(group) == k
                ]
            for sums in of_table[k]:
                yield from sums.add(chunk)
        yield from self._finish(of_table)

    def _finish(
        self, of_table: dict[int, list[AnswerSums]]
    ) -> Iterator[tuple[TableSlice, AnyArray]]:
        for sums in of_table.values():
            for one in sums:
                yield from one.finish()
        of_table.clear()

    def cut_interval(
        self,
        group: QueryGroup,
        estimates: AnyArray,
        moe: AnyArray,
        chosen: TableSlice | None = None,
    ) -> tuple[AnyArray, AnyArray]:
        """Cut the intervals of unbiased estimates to what the invariants allow.

        Args:
            group: The group.
            estimates: The estimates, of the shape of the group or of the part.
            moe: Their margins of error.
            chosen: The part; None for the whole group.

        Returns:
            The lower and the upper ends.
        """
        low, high = self._bound(group)
        if chosen is not None:
            low, high = (chosen.take(np.broadcast_to(one, group.shape)) for one in (low, high))
        lower = np.clip(estimates - moe, low, high) + 0.0
        upper = np.clip(estimates + moe, low, high) + 0.0
        if self.method == "integers" and has_integer_coefficients(group):
            # The exact answer is an integer. Where the interval has none, its ends are rounded out.
            inner = np.ceil(lower - 1e-9), np.floor(upper + 1e-9)
            has_one = inner[0] <= inner[1]
            lower = np.where(has_one, inner[0], np.floor(lower)) + 0.0
            upper = np.where(has_one, inner[1], np.ceil(upper))
        return lower, upper

    def _bound(self, group: QueryGroup) -> tuple[FloatArray, FloatArray]:
        """Compute the bounds of a group's answers; those of the latest group are cached."""
        latest = self.__dict__.get("_latest_bounds")
        if latest is None or latest[0] != group.name:
            bounds = bound_answers(self.resolutions, self.limits, group)
            self.__dict__["_latest_bounds"] = latest = (group.name, bounds)
        cached: tuple[FloatArray, FloatArray] = latest[1]
        return cached

    def make_results(
        self, chosen: TableSlice, values: AnyArray, intervals: exports.Intervals
    ) -> Columns:
        """Make the columns of numbers of a part of a group's table."""
        group = self.release.plan.workload[chosen.group]
        check_display_names(group)
        estimates = read_range(self.release, group, chosen.axis, chosen.start, chosen.stop)
        variances = chosen.take(self.release.variances[group.name])
        moe = intervals.compute_moe(group, np.sqrt(variances))
        lower, upper = self.cut_interval(group, estimates, moe, chosen)
        confidence = np.full(values.size, intervals.confidence)
        columns = (values.ravel(), lower.ravel(), upper.ravel(), confidence)
        return dict(zip(DISPLAY_COLUMNS, columns, strict=True))

    def describe(self, group: QueryGroup, intervals: exports.Intervals) -> dict[str, str]:
        """Make the metadata of a group's table."""
        metadata = exports.make_metadata(self.release, group, intervals)
        steps = ", by steps" if self.is_by_steps else ""
        return metadata | {
            "fitplug.units": f"{', '.join(DISPLAY_COLUMNS[:3])}: {group.quantity}",
            "fitplug.biased": "true",
            "fitplug.display": f"{self.method}{steps}",
            "fitplug.consistent": str(self.is_consistent).lower(),
        }


def check_display_names(group: QueryGroup) -> None:
    """Raise WorkloadError if an attribute of a group has the name of a column of display tables."""
    for factor in group.factors:
        if factor.attribute == DISPLAY_COLUMNS[0]:
            raise WorkloadError(
                f"attribute {factor.attribute!r} has the name of a column of display tables. "
                "Rename the attribute."
            )


def plan_display(release: NoisyAnswers, method: Method, totals: Totals) -> Display:
    """Find how the display tables of a release are made.

    Raises:
        WorkloadError: The release can have no display tables, or a total is not well formed or
            cannot be kept.
    """
    workload = release.plan.workload
    measures = list_measures(release.plan.domain, workload.attributes)
    if method == "integers" and measures:
        raise WorkloadError(
            f"integer tables cannot have sums of the measure {measures[0]}. Use nonnegative()."
        )
    known = read_totals(workload, totals)
    for one in known:
        if method == "integers" and not (one.value == np.rint(one.value)).all():
            raise WorkloadError(f"total {one.name!r} must be an integer, not {totals[one.name]!r}")
    resolutions = Resolutions(workload)
    limits, left_out = list_limits(resolutions, release, known)
    if any((one.lower > one.upper).any() or (one.upper < 0).any() for one in limits):
        raise make_no_histogram_error()
    arguments = release, method, MappingProxyType(dict(totals)), resolutions, limits
    if workload.cell_count * release.plan.strategy.size <= MOST_ENTRIES:
        table = FinestTable(resolutions.finest, workload.groups[0])
        return Display(*arguments, [table], True, known)
    if left_out is not None:
        raise WorkloadError(
            f"a release this large cannot match the total {left_out!r}. Give the count of one "
            "region or value."
        )
    fractional = any((np.isfinite(v) & (v != np.rint(v))).any() for one in limits
                     for v in (one.lower, one.upper))  # fmt: skip
    if method == "integers" and fractional:
        raise WorkloadError(
            f"no integer counts match the totals {dict(totals)}. Give fewer totals."
        )
    try:
        finest, is_consistent = list_finest(resolutions)
    except NoEstimatesError:
        raise WorkloadError(
            f"{release.plan.strategy.size:,} answers times {workload.cell_count:,} cells exceed "
            f"the limit of {MOST_ENTRIES:,} for adjusted tables. Use the unbiased estimates."
        ) from None
    return Display(*arguments, finest, is_consistent, None)
