"""Releases: noisy answers with their exact spread. All of it is public, post-processing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from os import PathLike
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from fitplug import adjusted, combination, exports, notebook, plots, releasefile
from fitplug.adjusted import Adjusted
from fitplug.combination import Combination, Combinations, Ratio
from fitplug.frozen import freeze
from fitplug.ledgerrows import Entry
from fitplug.linear import Asked
from fitplug.plan import Plan
from fitplug.population import Limited, describe_population, name_population
from fitplug.privacy import Method, epsilon_at
from fitplug.reconstruction import Estimates
from fitplug.rounding import UNIT, above, ceil_float
from fitplug.targets import DEFAULT_CONFIDENCE, check_confidence, quantile

ByGroup: TypeAlias = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Release:
    """What a mechanism released.

    plan: the plan that ran. answers: y = A x + z, integers (n,), in the plan's strategy.
    rho: what this release cost, for records of `contributions` rows a person. None: rho is for one
    record, as an OpenDP measurement does not know how many its context counts for a person.
    noise_scale: the noise's standard deviation over the plan's.
    entry: what a ledger keeps of it, if it was charged to one.
    limited: "enforced" if the count kept at most `contributions` records of each person: estimates
    and intervals are then about the records kept, and not about all. "declared" if every record
    was counted and `contributions` is the publisher's word. None if it is not known.
    rows: how the rows counted were understood, if they were weighted or filtered; see `Tables`.
    outside: attributes that the plan does not use, by whose values the counts left records out too:
    they were made for other queries as well.
    seal: of the exact counts, if they may be of other records than another count; see
    `Tables.seal`.
    """

    plan: Plan
    answers: npt.NDArray[np.int64]
    rho: float
    contributions: int | None = 1
    noise_scale: float = 1.0
    entry: Entry | None = None
    limited: Limited | None = None
    rows: str | None = None
    seal: str | None = None
    outside: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        freeze(self.answers)

    @cached_property
    def privacy_cost(self) -> float:
        """Delta of this release for all records of one person, rounded up; for one record if how
        many a person has is not known.
        """
        scale = Fraction(self.contributions or 1) / Fraction(self.noise_scale)
        return ceil_float(Fraction(self.plan.privacy_cost) * scale)

    def epsilon(self, delta: float, method: Method = "gaussian") -> float:
        """Least epsilon at delta, for what `privacy_cost` is of; see `Plan.epsilon`."""
        return epsilon_at(self.privacy_cost, delta, method)

    @property
    def plan_digest(self) -> str:
        return self.plan.digest

    @property
    def population(self) -> str:
        """Which records the estimates, their stds and their intervals are about, in sentences."""
        return describe_population(self.contributions, self.limited, outside=self.outside)

    @cached_property
    def estimates(self) -> ByGroup:
        """Unbiased answers; per group, of the group's shape. Computed group by group when read."""
        return Estimates(self.plan.strategy, self.answers)

    @cached_property
    def variances(self) -> ByGroup:
        """Variances of the estimates, rounded up; per group, of the group's shape."""
        if self.noise_scale == 1.0:
            return self.plan.variances
        factor = self.noise_scale**2 * (1 + 4 * UNIT)
        rows = self.plan.strategy.variances(self.plan.noise_std) * factor
        return self.plan.structure.by_group(rows)

    def interval(
        self, name: str, confidence: float = DEFAULT_CONFIDENCE, *, simultaneous: bool = False
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Lower and upper ends, each of the group's shape: each covers the exact answer with
        this probability, one at a time, or with simultaneous=True all of the group together with
        at least that, whatever their covariance (Sidak's inequality). Quantiles are those of
        Gaussian noise; the discrete noise's steps are small beside its std.

        The exact answer is that of the records that were counted: where a limit left out records
        of persons with many, the interval need not cover the answer of all records. `population`
        says which records were counted. Raises WorkloadError and KeyError.
        """
        check_confidence(confidence)
        group = self.plan.workload[name]
        z = quantile(confidence, group.size if simultaneous else 1)
        moe = z * np.sqrt(self.variances[name])
        return self.estimates[name] - moe, self.estimates[name] + moe

    @overload
    def combine(self, asked: Mapping[str, npt.ArrayLike]) -> Combination: ...
    @overload
    def combine(self, asked: str) -> Combination | Ratio: ...
    def combine(self, asked: Asked) -> Combination | Ratio:
        """A sum over groups of coefficients times answers, with the exact standard deviation that
        the full covariance gives. asked: coefficients by group, which broadcast to its shape, or
        an expression such as "pyramid[SEX = 1, AGEP <= 17] + total"; see `fitplug.expressions`.

        An expression may be a ratio, "a / b", whose std is approximate, by the delta method.
        Raises WorkloadError for an unknown group or value, coefficients that do not fit, people
        that the group's rows cannot count, or a denominator too near to zero.
        """
        return combination.combine(self, asked)

    def combine_all(self, asked: Mapping[str, Asked] | Sequence[str]) -> Combinations:
        """Several combinations, of coefficients or expressions, by name or as a list of
        expressions: their values (k,) and joint covariance (k, k). Raises as `combine`.
        """
        return combination.combine_all(self, asked)

    def combine_each(self, asked: Iterable[Asked]) -> Iterator[Combination | Ratio]:
        """`combine` for any number of combinations, one after another, without their joint
        covariance: in memory for some thousands at a time, however many there are.

        A ratio with a denominator too near to zero has the value and the std nan. Raises
        WorkloadError when it comes to a combination that cannot be read.
        """
        return combination.combine_each(self, asked)

    def to_arrow(
        self, name: str, *, confidence: float | None = None, simultaneous: bool | None = None
    ) -> exports.ArrowTable:
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
    ) -> tuple[exports.Columns, dict[str, str]]:
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
        return adjusted.nonnegative(self, totals or {})

    def integers(self, *, totals: Mapping[str, int] | None = None) -> Adjusted:
        """`nonnegative` with every count of the histogram rounded to a whole number next to it,
        the totals still kept; totals are whole numbers.
        """
        return adjusted.integers(self, totals or {})

    def plot(
        self, name: str, *, confidence: float | None = None, simultaneous: bool | None = None
    ) -> plots.Figure:
        """A matplotlib Figure of a group of up to two attributes: estimates with their intervals,
        as in `to_arrow`; of two attributes of many values, a map of the estimates.

        Raises ImportError without matplotlib, WorkloadError and KeyError.
        """
        return plots.plot_release(self, name, confidence=confidence, simultaneous=simultaneous)

    def _repr_html_(self) -> str:
        heads = {}
        for group in self.plan.workload.groups[: notebook.MOST_TABLES]:
            of = exports.spread(group, None)
            if group.size <= notebook.MOST_ANSWERS and exports.has_table(group):
                heads[group.name] = str(of), exports.columns(self, group, of)
        return notebook.release_html(self, heads)

    def __repr__(self) -> str:
        return (
            f"Release(rho={above(self.rho)}, plan={self.plan_digest[:12]}, "
            f"groups={', '.join(self.plan.workload.names)}, "
            f"about {name_population(self.contributions, self.limited)})"
        )
