"""Releases: noisy answers with their exact standard deviations. All of it is public."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import overload

import numpy.typing as npt

from fitplug.display import MOST_TABLES, Figure, format_up
from fitplug.files import ArrowTable, Columns
from fitplug.release import tables as exports
from fitplug.release.adjusted import Adjusted, make_integers, make_nonnegative
from fitplug.release.combination import (
    Combination,
    Combinations,
    Ratio,
    combine,
    combine_all,
    combine_each,
)
from fitplug.release.folder import check_tables, read_folder, write_folder
from fitplug.release.linear_combinations import CombinationLike
from fitplug.release.noisy_answers import NoisyAnswers
from fitplug.release.notebook import MOST_ANSWERS, make_release_html
from fitplug.release.plots import plot_release
from fitplug.release.population import name_population
from fitplug.workload import DEFAULT_CONFIDENCE, check_confidence


@dataclass(frozen=True, eq=False)
class Release(NoisyAnswers):
    """What a mechanism released, and all that is computed from it without the data.

    The attributes are those of `NoisyAnswers`. All methods are post-processing and cost no privacy.
    """

    @overload
    def combine(self, asked: Mapping[str, npt.ArrayLike]) -> Combination: ...
    @overload
    def combine(self, asked: str) -> Combination | Ratio: ...
    def combine(self, asked: CombinationLike) -> Combination | Ratio:
        """Estimate a linear combination of answers, or a ratio of two.

        Args:
            asked: An expression such as "pyramid[SEX = 1, AGEP <= 17] + total" (see
                `fitplug.expressions.parser`), or coefficients by group, which are broadcast to the
                group's shape.

        Returns:
            A Combination, whose standard deviation is exact, from the full covariance. For an
            expression "a / b" a Ratio, whose standard deviation is approximate, by the delta
            method.

        Raises:
            WorkloadError: There is no such group or value, the coefficients do not fit the group's
                shape, the group's rows cannot count these people, or the denominator of a ratio is
                too near to zero.
        """
        return combine(self, asked)

    def combine_all(self, asked: Mapping[str, CombinationLike] | Sequence[str]) -> Combinations:
        """Estimate several combinations with their joint covariance.

        Args:
            asked: Combinations as in `combine` by name, or a list of expressions.

        Returns:
            The values (k,) and the covariance (k, k).

        Raises:
            WorkloadError: As for `combine`.
        """
        return combine_all(self, asked)

    def combine_each(self, asked: Iterable[CombinationLike]) -> Iterator[Combination | Ratio]:
        """Estimate any number of combinations one after another, without their covariance.

        Some thousands of combinations are in memory at a time. A ratio whose denominator is too
        near to zero has the value and the standard deviation nan.

        Args:
            asked: Combinations as in `combine`.

        Yields:
            The estimates, in the order of the combinations.

        Raises:
            WorkloadError: A combination cannot be read; it is raised when that one is reached.
        """
        return combine_each(self, asked)

    def to_arrow(
        self, name: str, *, confidence: float | None = None, simultaneous: bool | None = None
    ) -> ArrowTable:
        """Make an Arrow table of a group, with a row for each answer.

        The columns are the attributes, estimate, std, moe, lower, upper and confidence. The
        metadata say what the table is. The intervals are those of `interval`.

        Args:
            name: The group.
            confidence: The confidence of the intervals; if None, that of the group's target, or
                0.95 if the target has none.
            simultaneous: Whether all intervals of the group cover their exact answers at once; if
                None, as in the group's target.

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
        group = self.plan.workload[name]
        intervals = exports.choose_intervals(group, confidence, simultaneous)
        columns = exports.make_columns(self, group, intervals)
        return columns, exports.make_metadata(self, group, intervals)

    def write(
        self, directory: str | PathLike[str], *, confidence: float = DEFAULT_CONFIDENCE
    ) -> None:
        """Write a new folder, which appears complete or not at all.

        It holds a Parquet table for each group, the plan, and the noisy answers. `read` reads
        everything from it again without the data.

        Args:
            directory: The folder, which must be new or empty.
            confidence: The confidence of the intervals of groups whose target has none.

        Raises:
            InputError: The folder is not empty.
            ImportError: pyarrow is not installed.
            OSError: The folder cannot be written.
        """
        check_confidence(confidence)
        write_folder(self, directory, confidence)

    @classmethod
    def read(cls, directory: str | PathLike[str]) -> Release:
        """Read the release of a folder that `write` or the command line wrote.

        The files carry digests, rho is compared with the plan's integers, and every table with the
        answers. This notices accidents and edits. Anyone who makes a folder on purpose can make all
        of it agree.

        Args:
            directory: The folder.

        Raises:
            InputError: The folder is incomplete, damaged or was edited.
            PlanError: The plan is damaged.
            ImportError: pyarrow is not installed.
        """
        fields, digest = read_folder(directory)
        release = cls(**fields)
        check_tables(release, directory, digest)
        return release

    def nonnegative(self, *, totals: Mapping[str, float] | None = None) -> Adjusted:
        """Make tables without negative counts that all agree with one histogram, for showing.

        The histogram is the nearest to the answers by generalised least squares. The tables are
        biased and have no standard deviations. This release stays unbiased; it is the one for
        statistics.

        Args:
            totals: Known public numbers, which are kept exactly, by group of one answer or by
                expression, such as {"total": 27253}.

        Returns:
            The tables, with this release as `.release`.

        Raises:
            WorkloadError: There are too many cells, or no such histogram has the totals.
        """
        return make_nonnegative(self, totals or {})

    def integers(self, *, totals: Mapping[str, int] | None = None) -> Adjusted:
        """Make tables as `nonnegative` does, with each count of the histogram rounded.

        Every count is rounded up or down to an integer such that the totals are still kept.

        Args:
            totals: As in `nonnegative`, integers.

        Returns:
            The tables, with this release as `.release`.

        Raises:
            WorkloadError: As for `nonnegative`, or no rounding has the totals.
        """
        return make_integers(self, totals or {})

    def plot(
        self, name: str, *, confidence: float | None = None, simultaneous: bool | None = None
    ) -> Figure:
        """Plot the estimates of a group of up to two attributes, with their intervals.

        Two attributes of many values are plotted as a map of the estimates.

        Args:
            name: The group.
            confidence: As in `to_arrow`.
            simultaneous: As in `to_arrow`.

        Returns:
            A matplotlib Figure.

        Raises:
            ImportError: matplotlib is not installed.
            KeyError: There is no such group.
            WorkloadError: The group has more than two attributes, or the confidence is out of
                range.
        """
        return plot_release(self, name, confidence=confidence, simultaneous=simultaneous)

    def _repr_html_(self) -> str:
        heads = {}
        for group in self.plan.workload.groups[:MOST_TABLES]:
            intervals = exports.choose_intervals(group, None)
            if group.size <= MOST_ANSWERS and exports.fits_table(group):
                columns = exports.make_columns(self, group, intervals)
                heads[group.name] = str(intervals), columns
        return make_release_html(self, heads)

    def __repr__(self) -> str:
        return (
            f"Release(rho={format_up(self.rho)}, plan={self.plan_digest[:12]}, "
            f"groups={', '.join(self.plan.workload.names)}, "
            f"about {name_population(self.contributions, self.limited)})"
        )
