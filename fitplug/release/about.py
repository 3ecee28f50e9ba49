"""About: what only the publisher knows of a release."""

from __future__ import annotations

from dataclasses import dataclass

MISSING = "To be said by the publisher"
"""How a review begins a text that only the publisher can write."""


def ask_publisher(key: str) -> str:
    """Make the text of a review where only the publisher knows what to say.

    Args:
        key: The field of `About` to fill in, which is also a key of [about] in a spec.
    """
    return f"{MISSING}, as {key} in [about]."


@dataclass(frozen=True)
class About:
    """What only the publisher knows of a release. All of it is published in the review.

    Attributes:
        name: The name of the data product.
        curators: Who publishes it.
        description: What it is.
        intended_use: What it is meant to be used for.
        region: The region that it describes, or whose law applies.
        sector: Technology, Healthcare, Education, Government, Energy or Finance.
        unit: What all records of one contributor stand for, such as a person or a household.
        actors: Who holds the data and who receives the release.
        preprocessing: What was done with the rows, or found out about them, before they were
            counted.
        sources: Where more is said.
        notes: Any other notes.
        authors: The authors of the review.
    """

    name: str | None = None
    curators: tuple[str, ...] = ()
    description: str | None = None
    intended_use: str | None = None
    region: str | None = None
    sector: str | None = None
    unit: str = "person"
    actors: str | None = None
    preprocessing: str | None = None
    sources: str | None = None
    notes: str | None = None
    authors: tuple[str, ...] = ()
