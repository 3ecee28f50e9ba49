"""Which records the estimates of a release are about: all that were counted, or those kept where
each person's records were limited to so many before they were counted.

The noise, and so every standard deviation and interval, tells nothing of what a limit left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

Limited: TypeAlias = Literal["declared", "enforced"]
"""How a person's records come to be at most so many: the publisher says so and every record was
counted, or the count left out what was more.
"""

LIMITS: tuple[str | None, ...] = (None, *get_args(Limited))
"""What a release may say; None where it is not known, as in releases of an OpenDP measurement."""

_NUMBERS = "The estimates, their standard deviations and their intervals"


def describe_population(
    contributions: int | None,
    limited: Limited | None,
    unit: str = "person",
    outside: Sequence[str] = (),
) -> str:
    """Sentences that say which records the numbers of a release are about.

    contributions: most records of one person, None if not known. unit: what the records of one
    contributor stand for. outside: see `Release.outside`.
    """
    said = _describe_limit(contributions, limited, unit)
    if not outside:
        return said
    return (
        f"{said} The counts were made for other queries too: records with a value outside the "
        f"domain of {', '.join(outside)} are in no estimate either."
    )


def _describe_limit(contributions: int | None, limited: Limited | None, unit: str) -> str:
    if contributions is None:
        return (
            f"{_NUMBERS} are about the records that were counted. This release does not know "
            f"whether records were left out before, to limit how many one {unit} has: whoever "
            "called the OpenDP measurement that made it knows."
        )
    most = "one record" if contributions == 1 else f"{contributions} records"
    if limited == "enforced":
        persons = f", so that a total is a number of {unit}s" if contributions == 1 else ""
        return (
            f"{_NUMBERS} are about the records kept, at most {contributions} of each {unit}'s"
            f"{persons}. They are not about all records: the records left out by this limit are in "
            "no estimate, how many they are is not known from this release, and an interval need "
            "not cover the count of all records."
        )
    if limited == "declared":
        return (
            f"{_NUMBERS} are about all records that were counted: the count left none out to limit "
            f"how many one {unit} has. That no {unit} has more than {most} is the publisher's "
            "word, on which the privacy cost rests."
        )
    return (
        f"{_NUMBERS} are about the records that were counted. This release does not say whether "
        f"records were left out before, so that no {unit} has more than {most}; if they were, the "
        "numbers are about the records kept and not about all records."
    )


def name_population(contributions: int | None, limited: Limited | None) -> str:
    """The same in a few words, for where there is no place for sentences."""
    if limited == "enforced":
        return f"the records kept, at most {contributions} of each person's"
    return "all records counted" if limited == "declared" else "the records counted"
