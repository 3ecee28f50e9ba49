"""Releases: noisy answers with their exact standard deviations. All of it is public."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import overload

import numpy as np
from numpy.typing import ArrayLike

from fitplug.display import format_up
from fitplug.releases.combination import estimate, estimate_all, estimate_each
from fitplug.releases.combined_numbers import Estimate, EstimatedNumber, Estimates
from fitplug.releases.coverage import CoverageRow, estimate_coverage
from fitplug.releases.display_tables import DisplayTables, make_display
from fitplug.releases.folder import read_folder, write_folder
from fitplug.releases.invariants import Totals
from fitplug.releases.linear_combinations import CombinationLike
from fitplug.releases.noisy_answers import name_population
from fitplug.releases.notebook import make_release_html
from fitplug.releases.quantiles import Quantile, estimate_quantiles
from fitplug.releases.release_tables import ReleaseTables
from fitplug.releases.rescue import read_rescued_answers, rescue_answers
from fitplug.releases.verification import is_of_one_part, verify_parts
from fitplug.workload import DEFAULT_CONFIDENCE, check_confidence


@dataclass(frozen=True, eq=False)
class Release(ReleaseTables):
    """A release: the noisy answers of a plan, and estimates, intervals and tables from them.

    Its attributes are documented in `NoisyAnswers`. All methods are post-processing and cost no
    privacy.

    Example:
        >>> release = fp.release(plan, tables)
        >>> release.estimates["sex x age"].shape
        (2, 4)
    """

    @overload
    def estimate(self, asked: Mapping[str, ArrayLike]) -> Estimate: ...
    @overload
    def estimate(self, asked: str) -> EstimatedNumber: ...
    def estimate(self, asked: CombinationLike) -> EstimatedNumber:
        """Estimate a linear combination of answers, a ratio of two, or a formula of several.

        Args:
            asked: An expression such as "pyramid[SEX = 1, AGEP <= 17] + total" (see
                `fitplug.expressions.parser`), or coefficients by group, which are broadcast to the
                group's shape.

        Returns:
            For a sum, an Estimate with its exact standard deviation. For a ratio "a / b", a Ratio
            with an approximate standard deviation, by the delta method, and Fieller's interval. For
            any other formula, such as "a / b - c / d", an Approximation, by the delta method.

        Raises:
            WorkloadError: There is no such group or value, the coefficients do not fit the group's
                shape, the group's queries cannot be combined into a count of these rows, or the
                denominator of a ratio is too close to zero.
        """
        return estimate(self, asked)

    def estimate_all(self, asked: Mapping[str, CombinationLike] | Sequence[str]) -> Estimates:
        """Estimate several combinations with their joint covariance.

        Args:
            asked: Combinations by name, or a list of expressions, each as in `estimate`.

        Returns:
            The values (k,) and the covariance (k, k).

        Raises:
            WorkloadError: As for `estimate`.

        Example:
            >>> release.estimate_all({"adults": '"sex x age"[age >= 2]'}).values.shape
            (1,)
        """
        return estimate_all(self, asked)

    def estimate_each(self, asked: Iterable[CombinationLike]) -> Iterator[EstimatedNumber]:
        """Estimate any number of combinations one after another, without their covariance.

        Only a few thousand combinations are in memory at a time. If the denominator of a ratio is
        too close to zero, the ratio's value and standard deviation are nan.

        Args:
            asked: Combinations as in `estimate`.

        Yields:
            The estimates, in the order of the combinations.

        Raises:
            WorkloadError: A combination cannot be read. The error is raised when the iteration
                reaches this combination.

        Example:
            >>> for one in release.estimate_each(["total", '"sex x age"[sex = 1]']):
            ...     print(f"std {one.std:.1f}")
            std 5.0
            std 7.9
        """
        return estimate_each(self, asked)

    @overload
    def quantile(
        self,
        asked: str,
        q: float,
        *,
        of: str | None = ...,
        confidence: float = ...,
        simultaneous: bool = ...,
    ) -> Quantile: ...
    @overload
    def quantile(
        self,
        asked: str,
        q: Sequence[float],
        *,
        of: str | None = ...,
        confidence: float = ...,
        simultaneous: bool = ...,
    ) -> list[Quantile]: ...
    def quantile(
        self,
        asked: str,
        q: float | Sequence[float],
        *,
        of: str | None = None,
        confidence: float = DEFAULT_CONFIDENCE,
        simultaneous: bool = False,
    ) -> Quantile | list[Quantile]:
        """Estimate quantiles of an ordered attribute, such as the median age.

        To estimate a median to within about r rows, design the plan with "prefix" queries of the
        attribute and std r.

        Example:
            >>> release.quantile("pyramid[SEX = 1]", 0.5)  # doctest: +SKIP
            Quantile(0.5: 38, 95% interval 37 to 39)

        Args:
            asked: The rows whose quantile is estimated: an expression for a sum, as in `estimate`.
                Its groups must have a count for each value of the attribute, or for all values up
                to each value.
            q: The quantile's probability, between 0 and 1, or several probabilities.
            of: The attribute. The attribute; by default the only ordered attribute that the
                expression's groups list.
            confidence: The probability that an interval covers the exact quantile.
            simultaneous: Whether all intervals of the call cover their exact quantiles
                simultaneously with this probability.

        Returns:
            A Quantile for each q. The interval covers the exact quantile of the counted rows with
            at least the given confidence, even if values repeat or rows are few.

        Raises:
            WorkloadError: `q` or the confidence is out of range, the expression is a ratio, its
                groups list no ordered attribute, or they list several and `of` is not given.
        """
        several = [q] if isinstance(q, (int, float)) else list(q)
        found = estimate_quantiles(
            self,
            asked,
            several,
            of=of,
            within=None,
            confidence=confidence,
            simultaneous=simultaneous,
        )
        return found[0] if isinstance(q, (int, float)) else found

    def coverage(self) -> list[CoverageRow]:
        """Estimate how many rows are not counted, because a value is outside the domain.

        Returns:
            A CoverageRow for each attribute that may have values outside the domain, then a
            CoverageRow for all rows outside the domain. An empty list if the plan was designed
            without `coverage=True`. A row with values outside the domain in several attributes is
            counted for each of these attributes.

        Example:
            >>> release.coverage()
            []
        """
        return estimate_coverage(self)

    def save(
        self, location: str | PathLike[str], *, confidence: float = DEFAULT_CONFIDENCE
    ) -> None:
        """Save the release to a new folder, which appears complete or not at all.

        The folder holds the plan, the noisy answers, and a table for each group, in Parquet files
        of about a million rows each. `load` reads the release from this folder alone. If the folder
        cannot be written, the plan and the noisy answers are saved in another folder, which the
        error names; see `recover`.

        Args:
            location: The folder, which must be new or empty: a path, or the URL of a folder in an
                object store.
            confidence: The confidence of the intervals, for groups whose target has no confidence.

        Raises:
            InputError: The folder is not empty.
            ImportError: pyarrow is not installed.
            OSError: The folder cannot be written.

        Example:
            >>> release.save(folder / "release")
            >>> (folder / "release").is_dir()
            True
        """
        check_confidence(confidence)
        with rescue_answers(self, location):
            write_folder(self, location, confidence)

    @classmethod
    def load(cls, location: str | PathLike[str]) -> Release:
        """Read the release of a folder that `save` or the command line wrote.

        Every file is compared with its digest, rho with the plan's integers, and every table with
        the answers. This detects damage and edits. It does not detect a forged folder in which all
        files agree. If the answers or tables are in several parts, a part is read and compared with
        its digest only when it is needed; `verify` checks all parts.

        Args:
            location: The folder: a path, or the URL of a folder in an object store.

        Raises:
            InputError: The folder is incomplete, damaged or was edited.
            PlanError: The plan is damaged.
            ImportError: pyarrow is not installed.

        Example:
            >>> release.save(folder / "copy")
            >>> fp.Release.load(folder / "copy").plan.digest == release.plan.digest
            True
        """
        release = cls(**read_folder(location)[0])
        if not is_of_one_part(release):
            return release
        release.verify()
        return replace(release, answers=np.asarray(release.answers), tables=None)

    @classmethod
    def recover(cls, folder: str | PathLike[str]) -> Release:
        """Read a release that `save` had to write into another folder than requested.

        Args:
            folder: The folder that the error of `save` named, with the plan and the noisy answers.

        Raises:
            InputError: The folder is incomplete, damaged or was edited.
            PlanError: The plan is damaged.
        """
        return cls(**read_rescued_answers(folder))

    def verify(self, *, sample: int | None = None, seed: int = 0) -> None:
        """Check the files of a release: their digests, and the tables against the answers.

        If the answers are in memory, this does nothing, because they were checked when they were
        read.

        Args:
            sample: Check only this many parts of the answers, and this many parts of the tables,
                chosen at random; None for all parts. The answers from which a chosen part of a
                table is computed are read, too.
            seed: The seed for drawing the parts.

        Raises:
            InputError: A part is missing, damaged or was edited, or a table does not match the
                answers; the message names the file.
            OSError: A part cannot be read.

        Example:
            >>> release.verify()
        """
        verify_parts(self, sample, seed)

    def nonnegative(self, *, totals: Totals | None = None) -> DisplayTables:
        """Make display tables, which are consistent with each other and have no negative counts.

        All numbers are sums over one nonnegative histogram. If this is not possible, they are sums
        over the most detailed tables, which may then disagree; see `DisplayTables.consistent`. The
        numbers are biased and have no standard deviations. This release stays unbiased; use it for
        statistics.

        Args:
            totals: Known numbers that the tables must match, by group or expression, such as
                {"total": 27253}; for a group, an array of the group's shape. Give 0 for cells that
                cannot contain a row. The tables always match the unit's public totals. In large
                releases, all totals must be of one attribute, or of nested regions.

        Returns:
            The tables. Their attribute `release` is this release.

        Raises:
            WorkloadError: No nonnegative counts match the totals. Or the release is large, and a
                total cannot be matched or no group has the most detailed counts.

        Example:
            >>> bool((release.nonnegative().estimates["sex x age"] >= 0).all())
            True
        """
        return make_display(self, "nonnegative", totals)

    def integers(self, *, totals: Totals | None = None) -> DisplayTables:
        """Make display tables as `nonnegative` does, but with integers.

        All sums are still consistent.

        Args:
            totals: Known integers, as in `nonnegative`.

        Returns:
            The tables. Their attribute `release` is this release.

        Raises:
            WorkloadError: As for `nonnegative`; or no integers add up to the totals, or a group
                asks for the sum of a measure.

        Example:
            >>> release.integers().estimates["sex x age"].shape
            (2, 4)
        """
        return make_display(self, "integers", totals)

    def _repr_html_(self) -> str:
        return make_release_html(self)

    def __repr__(self) -> str:
        unit = self.plan.unit
        return (
            f"Release(rho={format_up(self.rho, 6)}, unit={unit!r}, plan={self.plan.digest[:12]}, "
            f"groups={', '.join(self.plan.workload.names)}, "
            f"about {name_population(unit.records, self.limited, self.plan.bound_unit.apart)})"
        )
