"""Partial releases: the answers of the periods of a plan that are drawn, before all of them are.

The plan is causal (`fitplug.families.blocks.strategy.causality`): a query that counts no later
period is estimated from the answers that are drawn, with the variance that the plan says. The rest
is not known yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fitplug.errors import WorkloadError
from fitplug.families import date_queries, make_estimates
from fitplug.files import ArrowTable, Columns
from fitplug.numeric import AnyArray, freeze
from fitplug.release import tables as exports
from fitplug.release.combination import combine, combine_all
from fitplug.release.combined_numbers import Combinations, CombinedNumber
from fitplug.release.linear_combinations import CombinationLike
from fitplug.release.noisy_answers import ByGroup, NoisyAnswers
from fitplug.workload import ArraysByGroup, QueryGroup


@dataclass(frozen=True, eq=False)
class PartialRelease(NoisyAnswers):
    """What is released of a plan whose answers are drawn period by period.

    Its arrays have the shapes that those of the complete release will have, with nan for what is
    not known yet. `known` says which answers are. All of it is public.

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
        """Which answers are known, by group: those that count no period that is not drawn."""
        return ArraysByGroup(self.plan.workload, self._find_known)

    @cached_property
    def estimates(self) -> ByGroup:
        """The unbiased estimates by group, of the group's shape; nan where they are not known."""
        return self._hide_unknown(make_estimates(self.plan.strategy, np.asarray(self.answers)))

    @cached_property
    def variances(self) -> ByGroup:
        """The variances of the estimates, rounded up; nan where these are not known."""
        return self._hide_unknown(self.plan.variances)

    def combine(self, asked: CombinationLike) -> CombinedNumber:
        """Estimate a linear combination of answers, or a ratio of two: see `Release.combine`.

        Raises:
            WorkloadError: It uses answers that are not known yet, or as for `Release.combine`.
        """
        found = combine(self, asked)
        self._check_known(found.value)
        return found

    def combine_all(self, asked: Mapping[str, CombinationLike] | Sequence[str]) -> Combinations:
        """Estimate combinations with their joint covariance: see `Release.combine_all`.

        Raises:
            WorkloadError: One uses answers that are not known yet, or as for `Release.combine`.
        """
        found = combine_all(self, asked)
        self._check_known(found.values)
        return found

    def to_arrow(
        self, name: str, *, period: int | None = None, confidence: float | None = None
    ) -> ArrowTable:
        """Make an Arrow table of the answers of a group that are known.

        Args:
            name: The group.
            period: The index of a period: only the answers that it made known are in the table.
            confidence: The confidence of the intervals; see `Release.to_arrow`.

        Returns:
            A table as `Release.to_arrow` makes it, with fewer rows.
        """
        group = self.plan.workload[name]
        intervals = exports.choose_intervals(group, confidence)
        return exports.make_arrow(*self.make_table(group, intervals, period))

    def make_table(
        self, group: QueryGroup, intervals: exports.Intervals, period: int | None
    ) -> tuple[Columns, dict[str, str]]:
        """Make the columns and the metadata of the table of a group; see `to_arrow`."""
        dates = date_queries(group, self.periods, self.period_count).ravel()
        chosen = dates < self.drawn if period is None else dates == period
        columns = exports.make_columns(self, group, intervals)
        metadata = exports.make_metadata(self, group, intervals)
        metadata |= {"fitplug.periods": self.periods, "fitplug.drawn": str(self.drawn)}
        return {name: np.asarray(column)[chosen] for name, column in columns.items()}, metadata

    def _check_known(self, values: float | AnyArray) -> None:
        """Raise WorkloadError if a combination used answers that are not known."""
        if np.isnan(values).any():
            raise WorkloadError(
                f"the combination uses answers of periods of {self.periods} that are not drawn "
                f"yet; {self.drawn} of {self.period_count} are"
            )

    def _find_known(self, g: int) -> AnyArray:
        """Find which answers of the group at a position are known."""
        group = self.plan.workload.groups[g]
        return np.asarray(date_queries(group, self.periods, self.period_count) < self.drawn)

    def _hide_unknown(self, found: ByGroup) -> ByGroup:
        """Return the same arrays with nan in the place of what is not known."""

        def read(g: int) -> AnyArray:
            values = found[self.plan.workload.groups[g].name]
            return freeze(np.where(self._find_known(g), values, np.nan))

        return ArraysByGroup(self.plan.workload, read)
