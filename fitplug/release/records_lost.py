"""Records lost: what a limit on the records of a person left out, by a second, coarser release.

One release keeps few records of each person and is accurate. Another, of a total or another short
list of counts, keeps many of each and is coarse, so that it costs little. Both are paid for; their
difference and their ratio are post-processing. The noise of the two is independent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fitplug.domain import Attribute
from fitplug.errors import InputError
from fitplug.release.combination import Combination, combine
from fitplug.release.noisy_answers import NoisyAnswers
from fitplug.workload import DEFAULT_CONFIDENCE, check_confidence, quantile

_SHOWN = 120
"""Letters of how rows are understood, in an error: a filter may list many values."""


@dataclass(frozen=True)
class Lost:
    """Records lost by a limit on the records of a person.

    kept, whole: how many records there are with at most `limit` of each person, and with at most
    `whole_limit`. apart: the attributes by which one release leaves out records outside the domain
    and the other does not: where there are any, those records are in the difference too.
    """

    kept: Combination
    whole: Combination
    limit: int
    whole_limit: int
    apart: tuple[str, ...] = ()

    @property
    def records(self) -> Combination:
        """How many records were lost; the std is exact, as the two releases are independent."""
        return Combination(
            self.whole.value - self.kept.value, math.hypot(self.whole.std, self.kept.std)
        )

    @property
    def share(self) -> float:
        """The share of the records that was lost: 1 - kept / whole. Noise may make it negative."""
        return 1 - self.kept.value / self.whole.value

    def share_interval(self, confidence: float = DEFAULT_CONFIDENCE) -> tuple[float, float]:
        """Lower and upper end of the share: covers the exact share with this probability, by
        Fieller's theorem for the ratio of independent Gaussian estimates.

        Raises WorkloadError for the confidence, and InputError where the whole is too near to zero
        for its std.
        """
        check_confidence(confidence)
        z2 = quantile(confidence, 1) ** 2
        (a, b), (va, vb) = (self.kept.value, self.whole.value), (self.kept.std, self.whole.std)
        square = b * b - z2 * vb * vb
        if b <= 0 or square <= 0:
            raise InputError(
                "the count of the coarser release is within its margin of error of zero: a share "
                "of it says nothing; release it with a smaller std"
            )
        # The ratios r with (a - r b)^2 <= z^2 (va^2 + r^2 vb^2).
        middle, half = a * b, math.sqrt(z2 * (a * a * vb * vb + va * va * square))
        return 1 - (middle + half) / square, 1 - (middle - half) / square


def estimate_lost(
    kept: NoisyAnswers, whole: NoisyAnswers, expression: str = "total", *, of: str | None = None
) -> Lost:
    """How many records, and which share, a limit on the records of a person left out.

    kept: a release whose count kept at most `contributions` records of each person. whole: one with
    more of each, of the same data. expression: what to count, the name of a group of one answer or
    an expression as in `Release.combine`, no ratio. of: the same in the second release, where that
    asks for it in other words.

    Records beyond the second limit are in neither release, unless that limit is declared. Raises
    InputError for releases that are not two such, or that weigh or filter their rows in different
    ways, and WorkloadError for expressions.
    """
    if kept.limited != "enforced" or kept.contributions is None:
        raise InputError(
            "the first release does not say that its count kept only so many records of each "
            "person: no record is known to be lost; name the release that was limited by person"
        )
    if whole.contributions is None or whole.contributions <= kept.contributions:
        raise InputError(
            f"the first release keeps at most {kept.contributions} records of each person, and the "
            f"second {whole.contributions or 'does not say how many'}: the second must keep more"
        )
    if kept.rows != whole.rows:
        raise InputError(
            f"the two releases are of different records, as the first counted {_understood(kept)} "
            f"and the second {_understood(whole)}: count both with the same weight and filters"
        )
    first, second = combine(kept, expression), combine(whole, of or expression)
    if not isinstance(first, Combination) or not isinstance(second, Combination):
        raise InputError(f"{expression!r} is a ratio; give a count, such as total")
    one, two = _strict(kept), _strict(whole)
    apart = tuple(name for name in one | two if one.get(name) != two.get(name))
    return Lost(first, second, kept.contributions, whole.contributions, apart)


def _understood(release: NoisyAnswers) -> str:
    rows = release.rows or "each row is one record, and all are counted"
    return f"its rows so ({rows if len(rows) <= _SHOWN else f'{rows[: _SHOWN - 3]}...'})"


def _strict(release: NoisyAnswers) -> dict[str, Attribute]:
    """The attributes by whose values records are left out of all tables."""
    domain = release.plan.domain
    used = {name for names in release.plan.tables for name in names}
    return {n: domain[n] for n in domain.names if n in used and domain[n].null_code < 0}
