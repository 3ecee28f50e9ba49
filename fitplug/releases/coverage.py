"""Coverage of a release: how many rows are not counted, by attribute, and their share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fitplug.releases.combination import estimate
from fitplug.releases.combined_numbers import Estimate, Ratio
from fitplug.releases.noisy_answers import NoisyAnswers
from fitplug.workload import Factor

_MOST_ENTRIES = 10**6
"""The most entries of a matrix whose columns are summed."""


@dataclass(frozen=True)
class CoverageRow:
    """An estimate of how many rows are outside the domain, from `Release.coverage`.

        release = fp.release(plan, tables)  # of a plan with coverage
        for row in release.coverage():
            print(row.attribute, row.rows.value, row.share.interval())

    Attributes:
        attribute: The attribute whose value is outside the domain. None if `rows` counts all rows
            outside the domain.
        rows: The estimated number of these rows. Noise may make the estimate negative.
        share: These rows as a share of all rows, inside and outside the domain. None if the answers
            of no query group add up to the number of rows in the tables.
    """

    attribute: str | None
    rows: Estimate
    share: Ratio | None


def estimate_coverage(release: NoisyAnswers) -> list[CoverageRow]:
    """Estimate how many rows are not counted; see `Release.coverage`."""
    named = _estimate_numbers(release)
    if not named:
        return []
    (_, in_no_table), in_tables = named[-1], _estimate_total(release)
    # A number by attribute is the mean of its own answer and of the number outside: half the
    # latter's variance is their covariance. A single attribute has no answer of its own.
    shared = in_no_table.std**2 / (1 if len(named) == 2 else 2)
    covariances = [*[shared] * (len(named) - 1), in_no_table.std**2]
    return [
        CoverageRow(name, number, _divide(number, in_no_table, in_tables, covariance))
        for (name, number), covariance in zip(named, covariances, strict=True)
    ]


def list_coverage(release: NoisyAnswers) -> list[dict[str, Any]]:
    """List the numbers of rows outside the domain, for the metadata of tables in any format."""
    return [
        {"attribute": name, "rows": number.value, "std": number.std}
        for name, number in _estimate_numbers(release)
    ]


def _estimate_numbers(release: NoisyAnswers) -> list[tuple[str | None, Estimate]]:
    """Estimate the number of rows outside each attribute, then outside any; [] without coverage."""
    coverage, answers = release.plan.coverage, release.coverage_answers
    if coverage is None or answers is None:
        return []
    values = coverage.estimate(answers).tolist()
    stds = np.sqrt(coverage.upper_variances(release.noise_std)).tolist()
    return list(zip((*coverage.names, None), map(Estimate, values, stds), strict=True))


def _divide(
    number: Estimate, in_no_table: Estimate, in_tables: Estimate | None, covariance: float
) -> Ratio | None:
    """Divide a number of rows by the number of all rows.

    The noise of the number in tables is independent of the other two; `covariance` is that of the
    other two.
    """
    if in_tables is None:
        return None
    whole = Estimate(
        in_tables.value + in_no_table.value, math.hypot(in_tables.std, in_no_table.std)
    )
    value = number.value / whole.value if whole.value > 2 * whole.std else math.nan
    # The delta method for x / y with correlated x and y.
    square = number.std**2 - 2 * value * covariance + (value * whole.std) ** 2
    std = math.sqrt(max(square, 0.0)) / whole.value if whole.value > 0 else math.nan
    return Ratio(value, std, number, whole, covariance)


def _estimate_total(release: NoisyAnswers) -> Estimate | None:
    """Estimate the number of rows in the tables, from the smallest group that adds up to it."""
    groups = release.plan.workload.groups
    for group in sorted(groups, key=lambda group: group.size):
        if group.size > _MOST_ENTRIES:
            return None
        if all(map(_counts_each_once, group.factors)):  # the answers add up to the rows in tables
            total = estimate(release, {group.name: np.ones(group.shape)})
            assert isinstance(total, Estimate)
            return total
    return None


def _counts_each_once(factor: Factor) -> bool:
    """Return whether the rows of a factor count each cell once."""
    if factor.kind in ("identity", "total"):
        return True
    if factor.rows * factor.size > _MOST_ENTRIES:
        return False
    return bool((factor.matrix().sum(axis=0) == 1).all())
