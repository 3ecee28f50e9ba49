"""Which rows the estimates of a release are about, and who made sure of the rows per person.

The estimates are about all rows that were counted, or about the rows kept, where counting limited
the rows of each person. Standard deviations and intervals are those of the noise, and say nothing
about rows that a limit left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

from fitplug.counts import is_weighted

Limited: TypeAlias = Literal["declared", "enforced"]
"""Why a person has at most so many rows.

"declared": nobody checked it, and every row was counted. "enforced": the count left out the rows
above the limit.
"""

LIMITS: tuple[str | None, ...] = (None, *get_args(Limited))
"""What a release may say of its limit; None if it is not known, as for an OpenDP measurement."""


def describe_population(
    contributions: int | None,
    limited: Limited | None,
    unit: str = "person",
    outside: Sequence[str] = (),
    apart: str = "",
    rows: str | None = None,
) -> str:
    """Describe in sentences which rows the numbers of a release are about.

    Args:
        contributions: The largest number of rows of one person; None if it is not known.
        limited: Why a person has at most so many rows; None if it is not known.
        unit: What all rows of one contributor stand for.
        outside: The attributes that the plan does not use and by whose values rows were left out.
        apart: How the rows of one person are apart, in words that follow their number.
        rows: How rows were weighted and filtered (`Tables.rows`).
    """
    description = _describe_rows_counted(contributions, limited, unit, apart, rows)
    if not outside:
        return description
    return (
        f"{description} The counts were made for other queries too: rows with a value outside "
        f"the domain of {', '.join(outside)} are in no estimate either."
    )


def describe_planned_population(
    contributions: int, limited: Limited, apart: str = "", rows: str | None = None
) -> str:
    """Describe in sentences which rows a release would be about, before any are counted.

    Args:
        contributions, limited, apart, rows: As for `describe_population`.
    """
    if limited == "enforced":
        return (
            f"Counting will keep at most {_name_rows(contributions)} per person{apart}. The "
            "answers will be about the rows kept, not about all rows."
        )
    assumption = describe_assumption(contributions, apart=apart, rows=rows, checks="does not")
    return f"Every matching row will be counted. {assumption}"


def describe_assumption(
    contributions: int,
    unit: str = "person",
    apart: str = "",
    rows: str | None = None,
    checks: str = "did not",
) -> str:
    """Say what the guarantee assumes where no count limited the rows per person.

    Args:
        contributions, unit, apart, rows: As for `describe_population`.
        checks: "did not" after the count, "does not" before it.
    """
    # A row with a weight stands for several people, each of whom is protected as one record.
    most = _name_rows(contributions, "record" if is_weighted(rows) else "row")
    return f"The guarantee assumes at most {most} per {unit}{apart}; fitplug {checks} check this."


def _name_rows(contributions: int, noun: str = "row") -> str:
    """Name a number of rows."""
    return f"one {noun}" if contributions == 1 else f"{contributions:,} {noun}s"


def _describe_rows_counted(
    contributions: int | None, limited: Limited | None, unit: str, apart: str, rows: str | None
) -> str:
    """Describe what a limit on the rows per person left out, or that there was none."""
    if contributions is None:
        return (
            "An OpenDP measurement made this release, which does not record how many rows one "
            f"{unit} may have, or whether rows were left out to limit that. Whoever called the "
            "measurement knows."
        )
    if limited == "enforced":
        total = f", so a total is a number of {unit}s" if contributions == 1 else ""
        return (
            f"Counting kept at most {_name_rows(contributions)} per {unit}{apart}{total}. The "
            "estimates, their standard deviations and their intervals are about the rows kept, not "
            "about all rows: how many were left out is not known from this release, and an "
            "interval need not cover the count of all rows."
        )
    counted = (
        "Every matching row was counted."
        if limited == "declared"
        else "This release does not record whether rows were left out to limit the rows per "
        f"{unit}."
    )
    return f"{counted} {describe_assumption(contributions, unit, apart, rows)}"


def name_population(contributions: int | None, limited: Limited | None, apart: str) -> str:
    """Name the rows that the numbers of a release are about, in a few words."""
    if limited == "enforced":
        return f"the rows kept, at most {contributions} per person{apart}"
    return "all rows counted" if limited == "declared" else "the rows counted"
