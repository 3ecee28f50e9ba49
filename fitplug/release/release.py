"""Releases: noisy answers with their exact spread. All of it is public, post-processing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import overload

import numpy.typing as npt

from fitplug.display import MOST_TABLES, Figure, format_up
from fitplug.files import ArrowTable, Columns
from fitplug.release import folder as releasefile
from fitplug.release import tables as exports
from fitplug.release.adjusted import Adjusted, integers, nonnegative
from fitplug.release.combination import (
    Combination,
    Combinations,
    Ratio,
    combine,
    combine_all,
    combine_each,
)
from fitplug.release.linear_combinations import Asked
from fitplug.release.noisy_answers import NoisyAnswers
from fitplug.release.notebook import MOST_ANSWERS, release_html
from fitplug.release.plots import plot_release
from fitplug.release.population import name_population
from fitplug.workload import DEFAULT_CONFIDENCE, check_confidence


@dataclass(frozen=True, eq=False)
class Release(NoisyAnswers):
    """What a mechanism released; its fields are those of `NoisyAnswers`."""

    @overload
    def combine(self, asked: Mapping[str, npt.ArrayLike]) -> Combination: ...
    @overload
    def combine(self, asked: str) -> Combination | Ratio: ...
    def combine(self, asked: Asked) -> Combination | Ratio:
        """A sum over groups of coefficients times answers, with the exact standard deviation that
        the full covariance gives. asked: coefficients by group, which broadcast to its shape, or
        an expression such as "pyramid[SEX = 1, AGEP <= 17] + total"; see `parser`.

        An expression may be a ratio, "a / b", whose std is approximate, by the delta method.
        Raises WorkloadError for an unknown group or value, coefficients that do not fit, people
        that the group's rows cannot count, or a denominator too near to zero.
        """
        return combine(self, asked)

    def combine_all(self, asked: Mapping[str, Asked] | Sequence[str]) -> Combinations:
        """Several combinations, of coefficients or expressions, by name or as a list of
        expressions: their values (k,) and joint covariance (k, k). Raises as `combine`.
        """
        return combine_all(self, asked)

    def combine_each(self, asked: Iterable[Asked]) -> Iterator[Combination | Ratio]:
        """`combine` for any number of combinations, one after another, without their joint
        covariance: in memory for some thousands at a time, however many there are.

        A ratio with a denominator too near to zero has the value and the std nan. Raises
        WorkloadError when it comes to a combination that cannot be read.
        """
        return combine_each(self, asked)

    def to_arrow(
        self, name: str, *, confidence: float | None = None, simultaneous: bool | None = None
    ) -> ArrowTable:
        """A group as a table, a row per answer: its attributes, estimate, std, moe, lower, upper,
        and metadata of what it is. The intervals are as in `interval`; confidence and simultaneous
        are those of the group's target if not given, else 0.95 and one at a time.

        Raises ImportError without pyarrow, WorkloadError and KeyError.
        """
        return exports.arrow(*self._table(name, confidence, simultaneous))

    def to_pandas(
        self, name: str, *, confidence: float | None = None, simultaneous: bool | None = None
    ) -> exports.PandasFrame:
        """`to_arrow` for pandas, with the metadata as its `attrs`."""
        return exports.pandas_frame(*self._table(name, confidence, simultaneous))

    def to_polars(
        self, name: str, *, confidence: float | None = None, simultaneous: bool | None = None
    ) -> exports.PolarsFrame:
        """`to_arrow` for Polars, without the metadata."""
        return exports.polars_frame(self._table(name, confidence, simultaneous)[0])

    def _table(
        self, name: str, confidence: float | None, simultaneous: bool | None
    ) -> tuple[Columns, dict[str, str]]:
        group = self.plan.workload[name]
        of = exports.spread(group, confidence, simultaneous)
        return exports.columns(self, group, of), exports.metadata(self, group, of)

    def write(
        self, directory: str | PathLike[str], *, confidence: float = DEFAULT_CONFIDENCE
    ) -> None:
        """Write a new folder, whole or not at all: a Parquet table per group, the plan, and the
        noisy answers, from which `read` has everything again without the data.

        confidence: of the tables' intervals where a group's target names none. Raises InputError
        if the folder is there and not empty, ImportError without pyarrow, OSError.
        """
        check_confidence(confidence)
        releasefile.write(self, directory, confidence)

    @classmethod
    def read(cls, directory: str | PathLike[str]) -> Release:
        """The release that a folder holds, by `write` or by the command line.

        Raises InputError if the folder is damaged or was edited: the files carry digests, rho is
        held against the plan's integers, and every table against the answers. The digests notice
        accidents and edits; whoever makes a folder on purpose can make all of it agree.
        """
        parts, digest = releasefile.read(directory)
        release = cls(**parts)
        releasefile.check_tables(release, directory, digest)
        return release

    def nonnegative(self, *, totals: Mapping[str, float] | None = None) -> Adjusted:
        """Tables that all agree with one histogram without negative counts, the nearest to the
        answers by generalised least squares: for showing, biased, without std. This release is
        kept unbiased in `.release`, and is the one for statistics.

        totals: known public numbers by group of one answer or by expression, kept exactly, such
        as {"total": 27253}. Raises WorkloadError for more cells than can be solved for, or totals
        that no such histogram has.
        """
        return nonnegative(self, totals or {})

    def integers(self, *, totals: Mapping[str, int] | None = None) -> Adjusted:
        """`nonnegative` with every count of the histogram rounded to a whole number next to it,
        the totals still kept; totals are whole numbers.
        """
        return integers(self, totals or {})

    def plot(
        self, name: str, *, confidence: float | None = None, simultaneous: bool | None = None
    ) -> Figure:
        """A matplotlib Figure of a group of up to two attributes: estimates with their intervals,
        as in `to_arrow`; of two attributes of many values, a map of the estimates.

        Raises ImportError without matplotlib, WorkloadError and KeyError.
        """
        return plot_release(self, name, confidence=confidence, simultaneous=simultaneous)

    def _repr_html_(self) -> str:
        heads = {}
        for group in self.plan.workload.groups[:MOST_TABLES]:
            of = exports.spread(group, None)
            if group.size <= MOST_ANSWERS and exports.has_table(group):
                heads[group.name] = str(of), exports.columns(self, group, of)
        return release_html(self, heads)

    def __repr__(self) -> str:
        return (
            f"Release(rho={format_up(self.rho)}, plan={self.plan_digest[:12]}, "
            f"groups={', '.join(self.plan.workload.names)}, "
            f"about {name_population(self.contributions, self.limited)})"
        )
