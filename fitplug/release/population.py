"""Which records the estimates of a release are about.

They are about all records that were counted, or about the records kept, where the records of each
person were limited before they were counted. Standard deviations and intervals are those of the
noise, and say nothing about records that a limit left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

Limited: TypeAlias = Literal["declared", "enforced"]
"""Why a person has at most so many records.

"declared": the publisher says so, and every record was counted. "enforced": the count left out the
records above the limit.
"""

LIMITS: tuple[str | None, ...] = (None, *get_args(Limited))
"""What a release may say of its limit; None if it is not known, as for an OpenDP measurement."""

_NUMBERS = "The estimates, their standard deviations and their intervals"


def describe_population(
    contributions: int | None,
    limited: Limited | None,
    unit: str = "person",
    outside: Sequence[str] = (),
    apart: str = "",
) -> str:
    """Describe in sentences which records the numbers of a release are about.

    Args:
        contributions: The largest number of records of one person; None if it is not known.
        limited: Why a person has at most so many records; None if it is not known.
        unit: What all records of one contributor stand for.
        outside: The attributes that the plan does not use and by whose values records were left
            out.
        apart: How the records of one person are apart, in words that follow their number.
    """
    description = _describe_limit(contributions, limited, unit, apart)
    if not outside:
        return description
    return (
        f"{description} The counts were made for other queries too: records with a value outside "
        f"the domain of {', '.join(outside)} are in no estimate either."
    )


def _describe_limit(
    contributions: int | None, limited: Limited | None, unit: str, apart: str
) -> str:
    """Describe what a limit on the records of a person left out."""
    if contributions is None:
        return (
            f"{_NUMBERS} are about the records that were counted. This release does not know "
            f"whether records were left out before, to limit how many one {unit} has: whoever "
            "called the OpenDP measurement that made it knows."
        )
    most = "one record" if contributions == 1 else f"{contributions} records"
    claim = f"each {unit} has at most {most}{apart}" if apart else f"no {unit} has more than {most}"
    if limited == "enforced":
        persons = f", so that a total is a number of {unit}s" if contributions == 1 else ""
        return (
            f"{_NUMBERS} are about the records kept, at most {contributions} of each {unit}'s"
            f"{apart}{persons}. They are not about all records: the records left out by this limit "
            "are in no estimate, how many they are is not known from this release, and an interval "
            "need not cover the count of all records."
        )
    if limited == "declared":
        return (
            f"{_NUMBERS} are about all records that were counted: the count left none out to limit "
            f"how many one {unit} has. That {claim}{',' if apart else ''} is the publisher's "
            "word, on which the privacy cost rests."
        )
    return (
        f"{_NUMBERS} are about the records that were counted. This release does not say whether "
        f"records were left out before, so that {claim}; if they were, the numbers are about the "
        "records kept and not about all records."
    )


def name_population(contributions: int | None, limited: Limited | None, apart: str) -> str:
    """Name the records that the numbers of a release are about, in a few words."""
    if limited == "enforced":
        return f"the records kept, at most {contributions} of each person's{apart}"
    return "all records counted" if limited == "declared" else "the records counted"
