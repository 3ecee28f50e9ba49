"""Display tables: what offices publish, nonnegative integer counts that all agree.

Noise may make small counts negative, and sums of measures smaller or larger than that many rows can
have. All numbers of display tables are added up from one nonnegative histogram, or from a few
finest tables that agree, and they keep what is known without the release (`invariants`). A count
raised to zero pulls the counts next to it up, so the numbers are no longer unbiased. That is why
display tables have no standard deviations. Their intervals are those of the unbiased estimates, cut
to what the invariants allow, and keep their coverage. Use the release itself for statistics.
docs/theory/post-processing.md has the proofs.

* Small releases: the histogram is the nearest to all answers, min |(y - A x) / sigma|^2 with x >= 0
  (`least_squares`). The noise of the answers y is independent and of equal variance, so this is
  generalised least squares with their true covariance.
* Large ones: from the total down (`descent`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from fitplug.errors import WorkloadError
from fitplug.files import ArrowTable, Columns
from fitplug.numeric import AnyArray, freeze
from fitplug.releases import tables as exports
from fitplug.releases.display import Display, Method, plan_display
from fitplug.releases.display_answers import add_up
from fitplug.releases.invariants import Totals
from fitplug.releases.noisy_answers import NoisyAnswers
from fitplug.releases.tables import TableSlice
from fitplug.workload import DEFAULT_CONFIDENCE, QueryGroup, find_quantile

MOST_CELLS = 2**27
"""The largest number of cells of a finest table in memory, which takes 1 GB."""


@dataclass(frozen=True, eq=False)
class DisplayTables:
    """Tables in memory that are made for display, not for statistics.

    The tables are biased, so they have no variances. Their intervals are confidence intervals for
    the exact answers.

    Attributes:
        display: How the tables were made: the release, the method and the known totals.
        counts: The most detailed tables, from which all others are summed. Each has an axis for
            each attribute of the workload.
        biased: Always True.

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
        """The method: "integers" if counts are nonnegative integers, otherwise "nonnegative"."""
        return self.display.method

    @property
    def totals(self) -> Totals:
        """The known totals that the tables match."""
        return self.display.totals

    @property
    def consistent(self) -> bool:
        """Whether all tables come from one histogram.

        If False, tables of different attributes may disagree on a count that follows from both.
        """
        return self.display.is_consistent

    @property
    def histogram(self) -> AnyArray:
        """The histogram of all tables, with an axis for each attribute of the workload.

        If several histograms fit the tables, this is one of them. Cells that no query distinguishes
        may be merged into one cell.

        Raises:
            WorkloadError: The tables were not made from one histogram.
        """
        if len(self.counts) > 1:
            raise WorkloadError("these tables have no histogram. Use their `estimates`.")
        return self.counts[0]

    @cached_property
    def estimates(self) -> Mapping[str, AnyArray]:
        """For each group, an array of its shape; int64 if counts and queries are integers."""
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

        These are the intervals of the unbiased estimates (`Release.interval`), limited to
        nonnegative numbers that the totals allow, and to integers if the counts are integers. If
        the totals are right, each interval contains the exact answer whenever the release's
        interval does. A displayed number may lie outside its interval.

        Args:
            name: The group.
            confidence: The probability that an interval covers the exact answer.
            simultaneous: Whether all intervals of the group cover their exact answers
                simultaneously with this probability.

        Returns:
            Two arrays of the group's shape: the lower ends and the upper ends.

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

        The columns are the group's attributes, `display`, `lower`, `upper` and `confidence`. The
        metadata state that the table is biased.

        Args:
            name: The group.
            confidence: As for `Release.to_arrow`.
            simultaneous: As for `Release.to_arrow`.

        Raises:
            ImportError: pyarrow is not installed.
            KeyError: There is no such group.
            WorkloadError: The confidence is out of range, or an attribute has the same name as a
                column of results.
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
        return self.make_table(group, exports.choose_intervals(group, confidence, simultaneous))

    def make_table(
        self, group: QueryGroup, intervals: exports.Intervals
    ) -> tuple[Columns, dict[str, str]]:
        """Make the columns and the metadata of a group's table; see `to_arrow`."""
        whole = TableSlice(group.name, 0, 0, 0, (group.shape or (1,))[0])
        results = self.display.make_results(whole, self.estimates[group.name], intervals)
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
            f"a table in memory can have at most {MOST_CELLS:,} cells, not {cells:,}. Release into "
            "a folder with [output] display = true."
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
