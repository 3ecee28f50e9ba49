"""Truncation loss: how many rows a limit on the rows per person left out, from two releases.

One release keeps few rows per person and is accurate. The other, of a total or another short list
of counts, keeps many rows per person and is coarse, so that it costs little. Both are paid for, and
their difference and their ratio are post-processing. The noise of the two releases is independent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fitplug.domain import Attribute, list_names_without_other
from fitplug.errors import InputError
from fitplug.expressions import Expressions, list_sums
from fitplug.releases.combination import estimate
from fitplug.releases.combined_numbers import Estimate, find_ratio_interval
from fitplug.releases.linear_combinations import read_combination
from fitplug.releases.noisy_answers import NoisyAnswers
from fitplug.workload import (
    DEFAULT_CONFIDENCE,
    AddRemove,
    BoundUnit,
    describe_apart,
    find_quantile,
    get_limit,
)

_MOST_LETTERS = 120
"""The largest length of the description of rows in an error: a filter may list many values."""


@dataclass(frozen=True)
class TruncationLoss:
    """An estimate of the rows left out by a limit on rows per person; see `estimate_truncation`.

        lost = fp.estimate_truncation(at_most_3, at_most_20, "total")
        lost.share

    Attributes:
        kept: The estimated number of rows in the first release.
        whole: The estimated number of rows in the second release.
        kept_unit: The limit of the first release on the rows per person.
        whole_unit: The higher limit of the second release.
        apart: The attributes that the two releases treat differently: one of them leaves out rows
            with values outside the domain, and the other counts these rows. Such rows are then also
            part of the difference.
    """

    kept: Estimate
    whole: Estimate
    kept_unit: AddRemove
    whole_unit: AddRemove
    apart: tuple[str, ...] = ()

    @property
    def rows(self) -> Estimate:
        """The number of rows left out. Its std is exact, as the two releases are independent."""
        return Estimate(
            self.whole.value - self.kept.value, math.hypot(self.whole.std, self.kept.std)
        )

    @property
    def share(self) -> float:
        """The share of rows left out, 1 - kept / whole. Noise may make this share negative."""
        return 1 - self.kept.value / self.whole.value

    def share_interval(self, confidence: float = DEFAULT_CONFIDENCE) -> tuple[float, float]:
        """Compute an interval for the exact share of rows left out, at this confidence.

        The interval follows Fieller's theorem for the ratio of independent Gaussian estimates.

        Returns:
            The lower and the upper end.

        Raises:
            WorkloadError: The confidence is out of range.
            InputError: The estimate of the number of all rows is too close to zero, compared with
                its std.
        """
        z = find_quantile(confidence)
        low, high = find_ratio_interval(self.kept, self.whole, 0.0, z)
        if self.whole.value <= 0 or math.isinf(high):
            raise InputError(
                "the count of the second release is zero within its margin of error. Release this "
                "count again with a smaller std."
            )
        return 1 - high, 1 - low


def estimate_truncation(
    kept: NoisyAnswers, whole: NoisyAnswers, expression: str = "total", *, of: str | None = None
) -> TruncationLoss:
    """Estimate the number and share of rows that a limit on the rows per person left out.

        lost = fp.estimate_truncation(at_most_3, at_most_20, "total")

    Unless the second release counted every row, rows beyond its own limit are in neither release,
    so the result does not include them. The second release must include all rows of the first
    release, even if a unit of privacy requires a person's rows to be in different cells.

    Args:
        kept: The first release, whose count limited the rows per person.
        whole: The second release, of the same data with a higher limit or none.
        expression: The rows to count: the name of a group with one answer, or an expression as in
            `Release.estimate` that is not a ratio.
        of: The expression for the same rows in the second release, if it is not the same as in the
            first release.

    Returns:
        The rows left out.

    Raises:
        InputError: The first release has no limit, the second release does not have a higher limit,
            the two releases weight or filter rows differently, or the expression is a ratio.
        WorkloadError: The expression cannot be read.
    """
    if kept.limited != "enforced":
        raise InputError(
            "the first release did not limit the rows per person. Name a release that was counted "
            "with person=."
        )
    one, two = get_limit(kept.plan.unit), get_limit(whole.plan.unit)
    is_known = whole.limited is not None
    if not is_known or not _keeps_more(_bind(whole, two), _bind(kept, one)):
        other = f"{two.records:,}{describe_apart(two)}" if is_known else "unknown"
        raise InputError(
            f"the second release must keep more rows per person ({other}) than the first "
            f"({one.records:,}{describe_apart(one)})"
        )
    if kept.rows != whole.rows:
        raise InputError(
            f"the releases count different rows ({_describe_rows(kept)}; {_describe_rows(whole)}). "
            "Count both with the same weight and filters."
        )
    for release, asked in ((kept, expression), (whole, of or expression)):
        _check_counts_rows(release, asked)
    first, second = estimate(kept, expression), estimate(whole, of or expression)
    if not isinstance(first, Estimate) or not isinstance(second, Estimate):
        raise InputError(f"{expression!r} is a ratio. Give a count, such as total.")
    strict, others = _find_strict_attributes(kept), _find_strict_attributes(whole)
    apart = tuple(name for name in strict | others if strict.get(name) != others.get(name))
    return TruncationLoss(first, second, one, two, apart)


def _check_counts_rows(release: NoisyAnswers, expression: str) -> None:
    """Raise InputError if an expression asks for sums of measures, which count no rows."""
    workload = release.plan.workload
    for terms in list_sums(read_combination(Expressions(workload), expression)):
        for name in terms:
            if workload[name].quantity != "rows":
                raise InputError(
                    f"{name!r} is a {workload[name].quantity}, not a number of rows. Use only "
                    "groups that count rows."
                )


def _keeps_more(whole: BoundUnit, kept: BoundUnit) -> bool:
    """Return whether `whole` keeps all rows that `kept` keeps, and not the other way round."""
    return whole.count_changes(kept) == 1 and kept.count_changes(whole) != 1


def _bind(release: NoisyAnswers, limit: AddRemove) -> BoundUnit:
    """Bind a limit to the cells that a release counts."""
    workload = release.plan.workload
    return BoundUnit.bind(limit, workload.domain, workload.attributes)


def _describe_rows(release: NoisyAnswers) -> str:
    """Describe how rows were weighted and filtered, in a few words."""
    rows = release.rows or "each row counts once, and all are counted"
    return rows if len(rows) <= _MOST_LETTERS else f"{rows[: _MOST_LETTERS - 3]}..."


def _find_strict_attributes(release: NoisyAnswers) -> dict[str, Attribute]:
    """Find the attributes for which a value outside the domain leaves a row out."""
    domain = release.plan.domain
    used = {name for names in release.plan.tables for name in names}
    return {name: domain[name] for name in list_names_without_other(domain, used)}
