"""Noisy answers: what a mechanism released, which rows it describes, and what the plan adds.

All of this is public, because it is post-processing. The estimates describe all rows that were
counted, or only the rows kept if counting limited the rows per person. Standard deviations and
intervals cover the noise, not the rows that a limit left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, Protocol, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from fitplug.counts import is_weighted
from fitplug.domain import get_shape, list_names_without_other
from fitplug.families import list_names
from fitplug.files import ArrowTable
from fitplug.ledger import Entry
from fitplug.numeric import UNIT_ROUNDOFF, AnyArray, FloatArray, IntArray, ceil_float, freeze
from fitplug.plan import Plan
from fitplug.privacy import DiscreteNoise, epsilon_at
from fitplug.workload import DEFAULT_CONFIDENCE, find_quantile, list_measure_rules

Limited: TypeAlias = Literal["declared", "enforced"]
"""The source of the limit on the rows per person.

"declared": nobody checked it, and every row was counted. "enforced": the count left out the rows
above the limit.
"""

LIMITS: tuple[str | None, ...] = (None, *get_args(Limited))
"""The possible values of a release's `limited`; None if unknown, as for an OpenDP measurement."""


def describe_population(
    records: int,
    limited: Limited | None,
    unit: str = "person",
    outside: Sequence[str] = (),
    apart: str = "",
    rows: str | None = None,
) -> str:
    """Describe in sentences which rows the numbers of a release are about.

    Args:
        records: The largest number of rows of one person.
        limited: The source of the limit on the rows per person; None if it is not known.
        unit: What all rows of one contributor stand for.
        outside: The attributes that the plan does not use and by whose values rows were left out.
        apart: How the rows of one person differ, in words after their number (`BoundUnit.apart`).
        rows: How rows were weighted and filtered (`Tables.rows`).
    """
    description = _describe_rows_counted(records, limited, unit, apart, rows)
    if not outside:
        return description
    return (
        f"{description} The counts were also made for other queries, so rows with a value outside "
        f"the domain of {', '.join(outside)} are not counted either."
    )


def describe_planned_population(
    records: int, limited: Limited, apart: str = "", rows: str | None = None
) -> str:
    """Describe in sentences which rows a release would be about, before any are counted.

    Args:
        records, limited, apart, rows: As for `describe_population`.
    """
    if limited == "enforced":
        return (
            f"Counting will keep at most {_name_rows(records)} per person{apart}, and no row "
            "without an identifier. The answers will describe the rows kept, not all rows."
        )
    assumption = describe_assumption(records, apart=apart, rows=rows, checks="does not")
    return f"Every matching row will be counted. {assumption}"


def describe_rows_outside(plan: Plan, limited: Limited | None = None) -> str:
    """Describe which rows are not counted, by the rule and without knowing the rows.

    Args:
        plan: The plan.
        limited: "enforced" if persons are identified, so that rows without an identifier are not
            counted either.

    Returns:
        A noun phrase such as "rows with a value of SEX that is missing or outside the domain".
        "" if every row is in the tables.
    """
    used = {name for names in plan.tables for name in names}
    strict = list_names_without_other(plan.domain, used)
    outside = f"rows with a value of {list_names(strict)} that is missing or outside the domain"
    rows = [outside] if strict else []
    if limited == "enforced":
        rows.append("rows without an identifier")
    return "; ".join(rows)


def describe_assumption(
    records: int,
    unit: str = "person",
    apart: str = "",
    rows: str | None = None,
    checks: str = "did not",
) -> str:
    """Say what the guarantee assumes where no count limited the rows per person.

    Args:
        records, unit, apart, rows: As for `describe_population`.
        checks: "did not" after the count, "does not" before it.
    """
    # A row with a weight stands for several people, each of whom is protected as one row is.
    most = (
        f"that each {unit} adds at most {records:,} to the weights"
        if is_weighted(rows)
        else f"at most {_name_rows(records)} per {unit}{apart}"
    )
    return f"The guarantee assumes {most}; fitplug {checks} check this."


def _name_rows(records: int) -> str:
    """Name a number of rows."""
    return "one row" if records == 1 else f"{records:,} rows"


def _describe_rows_counted(
    records: int, limited: Limited | None, unit: str, apart: str, rows: str | None
) -> str:
    """Describe what a limit on the rows per person left out, or that there was none."""
    if limited == "enforced":
        total = f", so a total is a number of {unit}s" if records == 1 else ""
        return (
            f"Counting kept at most {_name_rows(records)} per {unit}{apart}{total}. Rows without "
            "an identifier were not counted. The estimates, their standard deviations and their "
            "intervals describe the rows kept, not all rows. This release does not show how many "
            "rows were left out, and an interval may miss the count of all rows."
        )
    counted = (
        "Every matching row was counted."
        if limited == "declared"
        else "This release does not record whether rows were left out to limit the rows per "
        f"{unit}."
    )
    return f"{counted} {describe_assumption(records, unit, apart, rows)}"


def name_population(records: int, limited: Limited | None, apart: str) -> str:
    """Name the rows that the numbers of a release are about, in a few words."""
    if limited == "enforced":
        return f"the rows kept, at most {records} per person{apart}"
    return "all rows counted" if limited == "declared" else "the rows counted"


ByGroup: TypeAlias = Mapping[str, AnyArray]


class AnswersInParts(Protocol):
    """Noisy answers whose parts are read when needed."""

    @property
    def size(self) -> int:
        """The number of answers."""

    @property
    def shape(self) -> tuple[int]:
        """The shape (n,)."""

    def __getitem__(self, chosen: Any) -> Any:
        """Read some answers."""

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        """Read all answers."""


@dataclass(frozen=True)
class EstimatesPart:
    """A part of a group's estimates: those whose index along an axis is in a range.

    Attributes:
        axis: The axis.
        start: The first index along the axis.
        stop: The index after the last one.
        read: A function that reads the estimates, of the group's shape with only the range along
            the axis.
    """

    axis: int
    start: int
    stop: int
    read: Callable[[], FloatArray]

    def index(self, dimensions: int) -> tuple[slice, ...]:
        """Return the index of the part in an array of the group's shape."""
        ends = {self.axis: slice(self.start, self.stop)}
        return tuple(ends.get(axis, slice(None)) for axis in range(dimensions))


class TablesInParts(Protocol):
    """Tables whose parts are read when needed."""

    @property
    def estimates(self) -> ByGroup:
        """The estimates by group, each read on access."""

    def list_parts(self, name: str) -> Sequence[EstimatesPart]:
        """List the parts of a group's estimates."""

    def iterate(self, name: str) -> Iterator[ArrowTable]:
        """Read the parts of a group's table one after another."""


@dataclass(frozen=True, eq=False)
class NoisyAnswers:
    """The noisy answers of a mechanism.

    Attributes:
        plan: The plan that ran.
        answers: The noisy answers y = A x + z of the plan's strategy A, integers of shape (n,). If
            a folder has the answers in parts, they are read when needed: use slices or
            `numpy.asarray`.
        rho: The cost of this release in rho of zCDP, for one person in the plan's unit of privacy.
        noise_scale: The standard deviation of the noise divided by the plan's `noise_std`.
        entry: The ledger's entry, if the release was charged to a ledger.
        limited: "enforced" if the count kept at most as many rows per person as the plan's unit
            allows; estimates and intervals then describe the counted rows, not all rows. "declared"
            if every row was counted and fitplug did not check the limit. None if this is unknown,
            as for an OpenDP measurement.
        rows: A text that describes how rows were weighted and filtered, or None; see `Tables`.
        seal: If another count might use other rows, the seal of the exact counts: a digest that
            identifies the counts without revealing them (see `Tables.seal`).
        outside: Attributes that the plan does not use, but by which rows were left out, because the
            counts were made for other queries, too.
        coverage_answers: Noisy answers about rows outside the domain, shape (plan.coverage.size,);
            None if the plan has no coverage.
        tables: The tables of a folder in parts, from which estimates are read; None for a release
            whose estimates are computed from its answers.
    """

    plan: Plan
    answers: IntArray | AnswersInParts
    rho: float
    noise_scale: float = 1.0
    entry: Entry | None = None
    limited: Limited | None = None
    rows: str | None = None
    seal: str | None = None
    outside: tuple[str, ...] = ()
    coverage_answers: IntArray | None = None
    tables: TablesInParts | None = None

    def __post_init__(self) -> None:
        if isinstance(self.answers, np.ndarray):
            freeze(self.answers)
        if self.coverage_answers is not None:
            freeze(self.coverage_answers)

    @property
    def public_totals(self) -> IntArray | None:
        """The exact numbers of counted rows that the unit of privacy makes public.

        They are not protected: anyone who reads the release knows them exactly. The array has an
        axis for each attribute in `within` of the unit that queries use, and no axis if only the
        number of all rows is public. None if nothing is public.
        """
        structure = self.plan.strategy.structure
        if structure.public_attributes is None:
            return None
        totals = np.asarray(self.answers[self.plan.strategy.size :])
        totals = totals // structure.shares
        return freeze(totals.reshape(get_shape(self.plan.domain, structure.public_attributes)))

    @cached_property
    def privacy_cost(self) -> float:
        """The privacy cost Delta for one person in the plan's unit of privacy, rounded up."""
        return ceil_float(Fraction(self.plan.privacy_cost) / Fraction(self.noise_scale))

    def epsilon(self, delta: float) -> float:
        """Compute epsilon at a delta, for one person in the plan's unit of privacy.

        Args:
            delta: The delta of (epsilon, delta) differential privacy.

        Returns:
            epsilon, rounded up.

        Raises:
            BudgetError: delta is out of range.

        Example:
            >>> 0.5 < release.epsilon(1e-9) < 5
            True
        """
        noise = DiscreteNoise(self.noise_std, self.plan.noise.answers)
        return epsilon_at(self.privacy_cost, delta, noise.loss)

    @property
    def noise_std(self) -> float:
        """The standard deviation of the noise in each of the integer answers."""
        return self.plan.noise_std * self.noise_scale

    @property
    def population(self) -> str:
        """Sentences that state which rows the estimates and their intervals are about, and how
        values of measures are clamped and rounded.
        """
        described = describe_population(
            self.plan.unit.records,
            self.limited,
            outside=self.outside,
            apart=self.plan.bound_unit.apart,
            rows=self.rows,
        )
        return " ".join([described, *list_measure_rules(self.plan.workload)])

    @cached_property
    def estimates(self) -> ByGroup:
        """For each group, an array of its shape: the unbiased estimates, computed on access."""
        if (tables := find_parted_tables(self)) is not None:
            return tables.estimates
        return self.plan.strategy.make_estimates(np.asarray(self.answers))

    @cached_property
    def variances(self) -> ByGroup:
        """For each group, an array of its shape: the variances of the estimates, rounded up."""
        if self.noise_scale == 1.0:
            return self.plan.variances
        factor = self.noise_scale**2 * (1 + 4 * UNIT_ROUNDOFF)
        rows = self.plan.strategy.upper_variances(self.plan.noise_std) * factor
        return self.plan.strategy.structure.group_values(rows)

    def interval(
        self, name: str, confidence: float = DEFAULT_CONFIDENCE, *, simultaneous: bool = False
    ) -> tuple[AnyArray, AnyArray]:
        """Compute intervals for the exact answers of a group.

        The intervals use quantiles of the Gaussian distribution, and the noise is discrete
        Gaussian. The difference is negligible for the noise that plans usually have: the standard
        deviation `noise_std` of the integer answers is then far above 10. If it is 10 or more, an
        interval of 95% around an estimate that depends on one noisy answer covers the exact answer
        with a probability between 94.4% and 95.6%. With a `noise_std` of 1, the smallest that a
        plan can have, the probability is only about 88%.

        The interval is for the exact answer over the rows that were counted. If a limit left out
        rows, the interval need not cover the answer over all rows. `population` describes which
        rows were counted.

        Args:
            name: The group.
            confidence: The probability that an interval covers the exact answer.
            simultaneous: Whether all intervals of the group cover their exact answers
                simultaneously with at least this probability, whatever the covariance (Sidak's
                inequality). If False, each interval covers its own answer with this probability.

        Returns:
            Two arrays of the group's shape: the lower ends and the upper ends.

        Raises:
            WorkloadError: The confidence is out of range.
            KeyError: There is no such group.

        Example:
            >>> lower, upper = release.interval("total", 0.95)
            >>> lower.size
            1
        """
        group = self.plan.workload[name]
        stds = np.sqrt(self.variances[name])
        moe = find_quantile(confidence, group.size if simultaneous else 1) * stds
        estimates = self.estimates[name]
        return estimates - moe, estimates + moe


def find_parted_tables(release: NoisyAnswers) -> TablesInParts | None:
    """Return the tables that estimates are read from; None if answers in memory give them."""
    return None if isinstance(release.answers, np.ndarray) else release.tables


def list_parts(release: NoisyAnswers, name: str) -> Sequence[EstimatesPart]:
    """List the parts in which a group's estimates are read; in memory there is one."""
    if (tables := find_parted_tables(release)) is not None:
        return tables.list_parts(name)
    rows, *_ = *release.plan.workload[name].shape, 1
    return [EstimatesPart(0, 0, rows, lambda: release.estimates[name])]
