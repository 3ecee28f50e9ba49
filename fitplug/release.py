"""Releases: noisy answers with their exact spread. All of it is public, post-processing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.errors import WorkloadError, nearest
from fitplug.ledgerrows import Entry
from fitplug.plan import Plan
from fitplug.privacy import Method, epsilon_at
from fitplug.reconstruction import Estimates, combined_norm
from fitplug.rounding import UNIT, ceil_float
from fitplug.targets import DEFAULT_CONFIDENCE, check_confidence, two_sided_quantile

Array: TypeAlias = npt.NDArray[np.float64]
ByGroup: TypeAlias = Mapping[str, npt.NDArray[Any]]


class Combination(NamedTuple):
    """A linear combination of released answers: its value and its standard deviation."""

    value: float
    std: float


@dataclass(frozen=True, eq=False)
class Release:
    """What a mechanism released.

    plan: the plan that ran. answers: y = A x + z, integers (n,), in the plan's strategy.
    rho: what this release cost, for records of `contributions` rows a person.
    noise_scale: the noise's standard deviation over the plan's.
    entry: what a ledger keeps of it, if it was charged to one.
    """

    plan: Plan
    answers: npt.NDArray[np.int64]
    rho: float
    contributions: int = 1
    noise_scale: float = 1.0
    entry: Entry | None = None

    @cached_property
    def privacy_cost(self) -> float:
        """Delta of this release for all records of one person, rounded up."""
        scale = Fraction(self.contributions) / Fraction(self.noise_scale)
        return ceil_float(Fraction(self.plan.privacy_cost) * scale)

    def epsilon(self, delta: float, method: Method = "gaussian") -> float:
        """Least epsilon at delta for all records of one person; see `Plan.epsilon`."""
        return epsilon_at(self.privacy_cost, delta, method)

    @property
    def plan_digest(self) -> str:
        return self.plan.digest

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
        self, name: str, confidence: float = DEFAULT_CONFIDENCE
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Lower and upper ends, each of the group's shape: each covers the exact answer with
        this probability, one at a time. Raises WorkloadError and KeyError.
        """
        check_confidence(confidence)
        self.plan.workload[name]
        moe = two_sided_quantile(confidence) * np.sqrt(self.variances[name])
        return self.estimates[name] - moe, self.estimates[name] + moe

    def combine(self, coefficients: Mapping[str, npt.ArrayLike]) -> Combination:
        """Sum over groups of coefficients times answers, with the exact standard deviation that
        the full covariance gives. Coefficients broadcast to the group's shape.

        Raises WorkloadError for an unknown group or coefficients that do not fit.
        """
        workload = self.plan.workload
        given: dict[str, Array] = {}
        for name, asked in coefficients.items():
            if name not in workload.positions:
                raise WorkloadError(f"no query group {name!r}; {nearest(name, workload.names)}")
            shape = workload[name].shape
            array = np.asarray(asked, dtype=np.float64)
            try:
                given[name] = np.broadcast_to(array, shape)
            except ValueError:
                raise WorkloadError(
                    f"coefficients of {name!r} have shape {array.shape}, the group's is {shape}"
                ) from None
            if not np.isfinite(array).all():
                raise WorkloadError(f"coefficients of {name!r} must be finite")
        value = sum(float((c * self.estimates[name]).sum()) for name, c in given.items())
        norm = combined_norm(self.plan.strategy, given)
        return Combination(value, self.plan.noise_std * self.noise_scale * norm)

    def __repr__(self) -> str:
        return (
            f"Release(rho={self.rho:.6g}, plan={self.plan_digest[:12]}, "
            f"groups={', '.join(self.plan.workload.names)})"
        )
