"""Periods: the answers of a plan that are drawn period by period, and the files of each period.

The plan is causal (`fitplug.families.blocks.strategy.causality`): a query that counts no later
period is estimated from the answers drawn so far, with the plan's variance. The other queries are
not known yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fitplug.errors import InputError, WorkloadError
from fitplug.families import date_answers, date_queries
from fitplug.files import ArrowTable, Columns, Place, decode_parquet, write_parquet
from fitplug.numeric import AnyArray, IntArray, freeze
from fitplug.plan import Plan
from fitplug.releases import tables
from fitplug.releases.combination import estimate, estimate_all
from fitplug.releases.combined_numbers import EstimatedNumber, Estimates
from fitplug.releases.linear_combinations import CombinationLike
from fitplug.releases.manifest import Period, name_files, read_manifest
from fitplug.releases.noisy_answers import ByGroup, Limited, NoisyAnswers
from fitplug.releases.tables import are_equal_tables, choose_intervals, make_arrow, read_intervals
from fitplug.workload import ArraysByGroup, QueryGroup


@dataclass(frozen=True, eq=False)
class PartialRelease(NoisyAnswers):
    """The part of a release that is drawn so far, if it is drawn period by period.

    Its arrays have the shapes of the complete release, with nan for answers that are not known yet.
    `known` marks the known answers. All of it is public.

    Attributes:
        periods: The attribute whose cells are the periods.
        drawn: The number of periods that are drawn, from the first on.
    """

    periods: str = ""
    drawn: int = 0

    @property
    def period_count(self) -> int:
        """The number of all periods."""
        return self.plan.domain[self.periods].size

    @property
    def is_complete(self) -> bool:
        """Whether all periods are drawn."""
        return self.drawn == self.period_count

    @cached_property
    def known(self) -> ByGroup:
        """Which answers are known, by group: those that use only drawn periods."""
        return ArraysByGroup(self.plan.workload, self._find_known)

    @cached_property
    def estimates(self) -> ByGroup:
        """The unbiased estimates by group, of the group's shape; nan where they are not known."""
        return self._hide_unknown(self.plan.strategy.make_estimates(np.asarray(self.answers)))

    @cached_property
    def variances(self) -> ByGroup:
        """The variances of the estimates, rounded up; nan where the estimates are not known."""
        return self._hide_unknown(self.plan.variances)

    def estimate(self, asked: CombinationLike) -> EstimatedNumber:
        """Estimate a linear combination of answers, or a ratio of two: see `Release.estimate`.

        Raises:
            WorkloadError: It uses answers that are not known yet, or as for `Release.estimate`.
        """
        number = estimate(self, asked)
        self._check_known(number.value)
        return number

    def estimate_all(self, asked: Mapping[str, CombinationLike] | Sequence[str]) -> Estimates:
        """Estimate combinations with their joint covariance: see `Release.estimate_all`.

        Raises:
            WorkloadError: One uses answers that are not known yet, or as for `Release.estimate`.
        """
        estimates = estimate_all(self, asked)
        self._check_known(estimates.values)
        return estimates

    def to_arrow(
        self, name: str, *, period: int | None = None, confidence: float | None = None
    ) -> ArrowTable:
        """Make an Arrow table of a group's known answers.

        Args:
            name: The group.
            period: The index of a period, for only the answers that it completed; None for all
                known answers.
            confidence: The confidence of the intervals; see `Release.to_arrow`.

        Returns:
            A table as `Release.to_arrow` makes it, with fewer rows.
        """
        group = self.plan.workload[name]
        intervals = tables.choose_intervals(group, confidence)
        return tables.make_arrow(*self.make_table(group, intervals, period))

    def make_table(
        self, group: QueryGroup, intervals: tables.Intervals, period: int | None
    ) -> tuple[Columns, dict[str, str]]:
        """Make the columns and the metadata of the table of a group; see `to_arrow`."""
        dates = date_queries(group, self.periods, self.period_count).ravel()
        chosen = dates < self.drawn if period is None else dates == period
        columns = tables.make_columns(self, group, intervals)
        metadata = tables.make_metadata(self, group, intervals)
        metadata |= {"fitplug.periods": self.periods, "fitplug.drawn": str(self.drawn)}
        return {name: np.asarray(column)[chosen] for name, column in columns.items()}, metadata

    def _check_known(self, values: float | AnyArray) -> None:
        """Raise WorkloadError if a combination used answers that are not known."""
        if np.isnan(values).any():
            raise WorkloadError(
                f"the expression uses periods of {self.periods} that are not drawn yet (drawn: "
                f"{self.drawn} of {self.period_count})"
            )

    def _find_known(self, g: int) -> AnyArray:
        """Find which answers of the group at a position are known."""
        group = self.plan.workload.groups[g]
        return np.asarray(date_queries(group, self.periods, self.period_count) < self.drawn)

    def _hide_unknown(self, by_group: ByGroup) -> ByGroup:
        """Return the same arrays with nan in place of unknown answers."""

        def read(g: int) -> AnyArray:
            values = by_group[self.plan.workload.groups[g].name]
            return freeze(np.where(self._find_known(g), values, np.nan))

        return ArraysByGroup(self.plan.workload, read)


@dataclass(frozen=True, eq=False)
class PeriodAnswers:
    """The noisy answers of one period of a series.

    Attributes:
        period: The period.
        answers: The plan's answers that are drawn in this period, in order.
        seal: The seal of the exact counts of the period, which reveals nothing about them.
        limited: Whether the counts of all periods together enforce the limit on the rows per
            person; see `NoisyAnswers`.
        rows: How rows were weighted and filtered; see `NoisyAnswers`.
        outside: Attributes by which records were left out; see `NoisyAnswers`.
    """

    period: Period
    answers: IntArray
    seal: str
    limited: Limited
    rows: str | None = None
    outside: tuple[str, ...] = ()


_FIELDS = ("answers", "seal", "limited", "rows", "outside")


def read_period_answers(folder: Place, plan: Plan, period: Period) -> tuple[PeriodAnswers, str]:
    """Read the answers of a period of a series.

    Args:
        folder: The folder that has them.
        plan: The plan of the series.
        period: The period.

    Returns:
        The answers, and their digest.

    Raises:
        InputError: They are missing, damaged or edited, or belong to another series or period.
        OSError: They cannot be read.
    """
    fields, digest = read_manifest(folder, plan, period)
    fields["answers"] = fields["answers"].read_part(0)
    described = {name: fields[name] for name in _FIELDS}
    if described["seal"] is None or described["limited"] is None:
        raise InputError(
            f"{folder}: the answers of this period are incomplete. Get the folder again from its "
            "publisher."
        )
    return PeriodAnswers(period, **described), digest


def join_periods(
    plan: Plan, periods: str, drawn: Sequence[PeriodAnswers], **described: Any
) -> PartialRelease:
    """Join the answers of the first periods of a series to a partial release.

    Args:
        plan: The plan, which is causal along the attribute.
        periods: The attribute whose cells are the periods.
        drawn: The answers of each period, from the first on.
        described: Further fields of the release, by the names of the attributes of `NoisyAnswers`.

    Raises:
        InputError: The number of answers in a period differs from the plan's.
    """
    dates = date_answers(plan.strategy, periods)
    answers = np.zeros(plan.strategy.size, dtype=np.int64)
    for period_answers in drawn:
        mine = dates == period_answers.period.index
        if period_answers.answers.shape != (int(mine.sum()),):
            raise InputError("the number of answers of a period differs from the plan's")
        answers[mine] = period_answers.answers
    labels = plan.domain[periods].labels
    is_enforced = all(period_answers.limited == "enforced" for period_answers in drawn)
    outside = {name for period_answers in drawn for name in period_answers.outside}
    return PartialRelease(
        plan=plan,
        answers=answers,
        periods=periods,
        drawn=len(drawn),
        limited="enforced" if drawn and is_enforced else "declared",
        rows=_describe_rows([period_answers.rows for period_answers in drawn], labels),
        outside=plan.domain.ordered(tuple(outside)),
        **described,
    )


def complete_period_folder(
    release: PartialRelease, folder: Path, confidence: float, digest: str
) -> None:
    """Write the tables of the answers that the newest period completed into the period's folder.

    Args:
        release: The release so far.
        folder: The folder, which has the period's answers.
        confidence: The confidence of the intervals, for groups whose target has no confidence.
        digest: The digest of the answers.

    Raises:
        ImportError: pyarrow is not installed.
        OSError: The folder cannot be written.
    """
    names = name_files(release.plan.workload)
    for group in release.plan.workload.groups:
        intervals = choose_intervals(group, None, default=confidence)
        columns, metadata = release.make_table(group, intervals, release.drawn - 1)
        if len(columns["estimate"]):
            metadata |= {"fitplug.answers_digest": digest}
            write_parquet(folder / f"{names[group.name]}.parquet", make_arrow(columns, metadata))


@contextmanager
def report_damage(path: Path) -> Iterator[None]:
    """Turn any error of a block that reads a period's table into an InputError."""
    try:
        yield
    except ImportError:
        raise
    except Exception:  # pyarrow raises many kinds on damage
        raise InputError(
            f"{path} is missing or damaged. Get the folder again from its publisher."
        ) from None


def check_period_tables(release: PartialRelease, folder: Path, digest: str) -> None:
    """Raise InputError unless the tables of the newest period agree with the release.

    Args:
        release: The partial release after that period.
        folder: The folder of the period.
        digest: The digest of its answers.
    """
    names = name_files(release.plan.workload)
    for group in release.plan.workload.groups:
        path = folder / f"{names[group.name]}.parquet"
        expected, _ = release.make_table(group, choose_intervals(group, None), release.drawn - 1)
        if not len(expected["estimate"]):
            continue
        with report_damage(path):
            table = decode_parquet(path.read_bytes())
            expected, said = release.make_table(group, read_intervals(table), release.drawn - 1)
        said["fitplug.answers_digest"] = digest
        if not are_equal_tables(table, make_arrow(expected, said)):
            raise InputError(
                f"{path}: the table does not match the answers. Get the folder again from its "
                "publisher."
            )


def _describe_rows(rows: Sequence[str | None], labels: Sequence[str]) -> str | None:
    """Say how the rows of all periods were weighted and filtered."""
    if len(set(rows)) <= 1:
        return rows[0] if rows else None
    return "; ".join(
        f"in {label}, {described or 'each row counts once'}"
        for label, described in zip(labels, rows, strict=False)
    )
