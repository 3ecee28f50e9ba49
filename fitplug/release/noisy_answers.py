"""Noisy answers: what a mechanism released, and what follows from it by the plan alone.

All of it is public: it is post-processing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TypeAlias

import numpy as np

from fitplug.ledger import Entry
from fitplug.mechanism import Estimates
from fitplug.numeric import UNIT_ROUNDOFF, AnyArray, IntArray, ceil_float, freeze
from fitplug.plan import Plan
from fitplug.privacy import Method, epsilon_at
from fitplug.release.population import Limited, describe_population
from fitplug.workload import DEFAULT_CONFIDENCE, check_confidence, quantile

ByGroup: TypeAlias = Mapping[str, AnyArray]


@dataclass(frozen=True, eq=False)
class NoisyAnswers:
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
    answers: IntArray
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
        factor = self.noise_scale**2 * (1 + 4 * UNIT_ROUNDOFF)
        rows = self.plan.strategy.variances(self.plan.noise_std) * factor
        return self.plan.structure.by_group(rows)

    def interval(
        self, name: str, confidence: float = DEFAULT_CONFIDENCE, *, simultaneous: bool = False
    ) -> tuple[AnyArray, AnyArray]:
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
