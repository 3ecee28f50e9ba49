"""Display tables: what offices publish, without negative counts, of integers, all in agreement.

Noise makes small counts negative at times, and sums of measures less or more than so many records
can have. All numbers of display tables are added up from one nonnegative histogram, or from few
finest tables that agree, and they keep what is known without the release (`invariants`). A count
raised to zero pulls the counts next to it up, so the numbers are no longer right on average. That
is why display tables have no standard deviations. Their intervals are those of the unbiased
estimates, cut to what the invariants allow, and still cover. Statistics are for the release itself.
docs/theory/post-processing.md has the proofs.

* Small releases: the histogram is the nearest to all answers, min |(y - A x) / sigma|^2 with x >= 0
  (`least_squares`). The noise of the answers y is independent and of equal variance, so this is the
  least squares of their true covariance.
* Large ones: from the total down (`descent`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from fitplug.domain import list_measures
from fitplug.errors import WorkloadError
from fitplug.files import ArrowTable, Columns
from fitplug.numeric import AnyArray, FloatArray, freeze
from fitplug.releases import tables as exports
from fitplug.releases.descent import Chunk, Descent, make_no_histogram_error
from fitplug.releases.display_answers import AnswerSums, add_up
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
from fitplug.releases.resolutions import Resolutions, refines
from fitplug.releases.tables import TableSlice
from fitplug.workload import DEFAULT_CONFIDENCE, QueryGroup, find_quantile

Method: TypeAlias = Literal["nonnegative", "integers"]

DISPLAY_COLUMNS = ("display", "lower", "upper", "confidence")
"""The columns after those of the attributes: a number, and the interval of the exact answer."""

MOST_ENTRIES = 10_000_000
"""The largest number of cells times answers; a problem of this size takes about a minute."""

MOST_CELLS = 2**27
"""The largest number of cells of a finest table in memory, which takes 1 GB."""


@dataclass(frozen=True, eq=False)
class Display:
    """How the display tables of a release are made.

    Attributes:
        release: The unbiased release.
        method: "nonnegative", or "integers" if the counts are integers too.
        totals: The known numbers that the tables keep, as the user gave them.
        resolutions: The resolutions of the workload.
        limits: What is known of blocks.
        finest: The finest tables; one of all cells if `known` is not None.
        is_consistent: Whether all tables are of one histogram. If not, some tables with attributes
            in common may differ in their totals; all have the same number of rows.
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
                f"no rounded counts have the totals {dict(self.totals)}. Give fewer totals."
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
        at = np.searchsorted(parents, np.arange(parents[0], parents[-1] + 1))
        counts = np.add.reduceat(chunk.counts, at, axis=lead)
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
            estimates: The estimates, of the group's shape or of that of a part.
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
        arrays = [f.array for f in group.factors if f.array is not None]
        if self.method == "integers" and all((a == np.rint(a)).all() for a in arrays):
            # The exact answer is an integer. Where the interval has none, its ends are rounded out.
            inner = np.ceil(lower - 1e-9), np.floor(upper + 1e-9)
            has_one = inner[0] <= inner[1]
            lower = np.where(has_one, inner[0], np.floor(lower)) + 0.0
            upper = np.where(has_one, inner[1], np.ceil(upper))
        return lower, upper

    def _bound(self, group: QueryGroup) -> tuple[FloatArray, FloatArray]:
        """Return between which numbers the answers of a group are; the last group's are kept."""
        latest = self.__dict__.get("_latest_bounds")
        if latest is None or latest[0] != group.name:
            bounds = bound_answers(self.resolutions, self.limits, group)
            self.__dict__["_latest_bounds"] = latest = (group.name, bounds)
        found: tuple[FloatArray, FloatArray] = latest[1]
        return found

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
        WorkloadError: The release has none, or a total is not well formed or cannot be kept.
    """
    workload = release.plan.workload
    measures = list_measures(release.plan.domain, workload.attributes)
    if method == "integers" and measures:
        raise WorkloadError(
            f"integer tables are not available with sums of {measures[0]}, because a row is "
            "divided between two cells of a measure. Use nonnegative()."
        )
    known = read_totals(workload, totals)
    for one in known:
        if method == "integers" and not (one.value == np.rint(one.value)).all():
            raise WorkloadError(f"total {one.name!r} = {totals[one.name]!r} is not an integer")
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
            f"a release this large cannot keep the total {left_out!r}. Give the count of one "
            "region or value, or all counts of a group."
        )
    fractional = any((np.isfinite(v) & (v != np.rint(v))).any() for one in limits
                     for v in (one.lower, one.upper))  # fmt: skip
    if method == "integers" and fractional:
        raise WorkloadError(f"no integer counts have the totals {dict(totals)}. Give fewer totals.")
    try:
        finest, is_consistent = list_finest(resolutions)
    except NoEstimatesError:
        raise WorkloadError(
            f"{release.plan.strategy.size} answers over {workload.cell_count} cells are too many "
            f"to adjust together (at most {MOST_ENTRIES:,} answers times cells), and no group "
            "lists the finest counts that others are sums of, which display tables of large "
            "releases need (with a measure: two groups, of the counts and the sums of the same "
            "cells). Show the unbiased estimates, or ask for such a group."
        ) from None
    return Display(*arguments, finest, is_consistent, None)


@dataclass(frozen=True, eq=False)
class DisplayTables:
    """Display tables in memory: for showing, not for statistics.

    The tables are biased, so they have no variances. Their intervals are for the exact answers.

    Attributes:
        display: How they were made: the release, the method, the totals.
        counts: The counts of each finest table, with an axis for each attribute of the workload.
        biased: True.

    Example:
        >>> shown = release.integers()
        >>> shown.method
        'integers'
        >>> lower, upper = shown.interval("total")
    """

    display: Display
    counts: tuple[AnyArray, ...] = field(repr=False)
    biased: ClassVar[bool] = True

    @property
    def release(self) -> NoisyAnswers:
        """The unbiased release that the tables were made from; use it for statistics."""
        return self.display.release

    @property
    def method(self) -> Method:
        """ "nonnegative", or "integers" if the counts are integers too."""
        return self.display.method

    @property
    def totals(self) -> Totals:
        """The known numbers that the tables keep."""
        return self.display.totals

    @property
    def consistent(self) -> bool:
        """Whether all tables are of one histogram.

        If not, tables of different attributes may differ in the counts that they have in common.
        """
        return self.display.is_consistent

    @property
    def histogram(self) -> AnyArray:
        """The histogram of all tables, with an axis for each attribute of the workload.

        Where the queries do not distinguish cells, they are counted together, or other histograms
        fit as well.

        Raises:
            WorkloadError: The tables are added up from several finest tables.
        """
        if len(self.counts) > 1:
            raise WorkloadError("these tables were not made from one histogram. Use `estimates`.")
        return self.counts[0]

    @cached_property
    def estimates(self) -> Mapping[str, AnyArray]:
        """The tables by group, of the group's shape; int64 if counts and queries are integers."""
        display, tables = self.display, {}
        for group in self.release.plan.workload.groups:
            k = display.find_table(group)
            resolution = display.finest[k].resolution
            tables[group.name] = add_up(display.resolutions, group, resolution, self.counts[k])
        return MappingProxyType(tables)

    def interval(
        self, name: str, confidence: float = DEFAULT_CONFIDENCE, *, simultaneous: bool = False
    ) -> tuple[AnyArray, AnyArray]:
        """Compute intervals for the exact answers of a group.

        They are those of the unbiased estimates (`Release.interval`), cut to what the totals allow
        and to nonnegative numbers, and to integers if the counts are. They contain the exact
        answers wherever those of the release do, if the totals are right. A displayed number may
        lie outside its interval.

        Args:
            name: The group.
            confidence: The probability that an interval covers the exact answer.
            simultaneous: Whether all intervals of the group cover at once with this probability.

        Returns:
            The lower and the upper ends, each of the group's shape.

        Raises:
            WorkloadError: The confidence is out of range.
            KeyError: There is no such group.
        """
        group = self.release.plan.workload[name]
        quantile = find_quantile(confidence, group.size if simultaneous else 1)
        moe = quantile * np.sqrt(self.release.variances[name])
        return self.display.cut_interval(group, self.release.estimates[name], moe)

    def to_arrow(
        self, name: str, *, confidence: float | None = None, simultaneous: bool | None = None
    ) -> ArrowTable:
        """Make an Arrow table of a group, with a row for each answer.

        The columns are the attributes, display, lower, upper and confidence. The metadata say that
        the table is biased.

        Args:
            name: The group.
            confidence: As for `Release.to_arrow`.
            simultaneous: As for `Release.to_arrow`.

        Raises:
            ImportError: pyarrow is not installed.
            KeyError: There is no such group.
            WorkloadError: The confidence is out of range, or an attribute has the name of a result
                column.
        """
        return exports.make_arrow(*self._make_table(name, confidence, simultaneous))

    def to_pandas(
        self, name: str, *, confidence: float | None = None, simultaneous: bool | None = None
    ) -> exports.PandasFrame:
        """Make the table of `to_arrow` as a pandas DataFrame, with the metadata as `attrs`."""
        return exports.make_pandas(*self._make_table(name, confidence, simultaneous))

    def to_polars(
        self, name: str, *, confidence: float | None = None, simultaneous: bool | None = None
    ) -> exports.PolarsFrame:
        """Make the table of `to_arrow` as a Polars DataFrame, without the metadata."""
        return exports.make_polars(self._make_table(name, confidence, simultaneous)[0])

    def _make_table(
        self, name: str, confidence: float | None, simultaneous: bool | None
    ) -> tuple[Columns, dict[str, str]]:
        """Make the columns of a group's table, and its metadata."""
        group = self.release.plan.workload[name]
        intervals = exports.choose_intervals(group, confidence, simultaneous)
        whole = TableSlice(name, 0, 0, 0, (group.shape or (1,))[0])
        results = self.display.make_results(whole, self.estimates[name], intervals)
        labels = exports.label_rows(self.release.plan.domain, group)
        return labels | results, self.display.describe(group, intervals)

    def __repr__(self) -> str:
        return f"DisplayTables({self.method}, biased, of {self.release!r})"


def make_display(release: NoisyAnswers, method: Method, totals: Totals | None) -> DisplayTables:
    """Make display tables in memory: see `Release.nonnegative` and `Release.integers`."""
    display = plan_display(release, method, totals or {})
    cells = max(display.resolutions.size(one.resolution) for one in display.finest)
    if cells > MOST_CELLS:
        raise WorkloadError(
            f"{cells:,} cells are too many for one table in memory; the limit is {MOST_CELLS:,}. "
            "Release into a folder with [output] display = true."
        )
    chunks: dict[int, list[AnyArray]] = {}
    axes = {}
    for k, axis, chunk in display.run():
        chunks.setdefault(k, []).append(chunk.counts)
        axes[k] = axis
    counts = (
        of[0] if len(of) == 1 else np.concatenate(of, axis=axes[k]) for k, of in chunks.items()
    )
    return DisplayTables(display, tuple(freeze(one) for one in counts))
