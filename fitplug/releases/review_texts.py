"""Texts of reviews: what only the publisher knows, and pages of Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

MISSING = "To be completed by the publisher"
"""How a review begins a text that only the publisher can write."""


def ask_publisher(key: str) -> str:
    """Make the text of a review that stands in for a fact only the publisher knows.

    Args:
        key: The field of `About` to fill in, which is also a key of [about] in a spec.
    """
    return f"{MISSING}, as {key} in [about]."


@dataclass(frozen=True)
class About:
    """Facts about a release that only the publisher knows. The review publishes all of them.

    Attributes:
        name: The name of the data product.
        curators: The people or organizations that publish the data product.
        description: A description of the data product.
        intended_use: The intended use of the data product.
        region: The region that the data product describes, or whose law applies.
        sector: One of Technology, Healthcare, Education, Government, Energy or Finance.
        unit: What all rows of one contributor stand for, such as a person or a household.
        actors: Who holds the data and who receives the release.
        preprocessing: How the rows were processed or examined before they were counted.
        sources: Links and references for the data product.
        notes: Any other notes.
        authors: The authors of the review.

    Example:
        >>> fp.About(name="People by sex and age", region="Hesse").region
        'Hesse'
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


T = TypeVar("T")

MOST_ROWS = 100
"""The largest number of rows of a table in a review."""

_ESCAPED_FIELDS = ("data_domain", "composition", "mechanisms", "justification")
"""Fields with lists and tables of fitplug, in which names are escaped already."""

# A character is escaped by a backslash if every dialect of Markdown allows it, else by its number:
# a dialect that ignores the backslash would interpret the character. The backslash is escaped by
# its number, because the registry takes two backslashes for an error in LaTeX.
_ESCAPES = {c: f"\\{c}" for c in "`*_[]{}#"} | {c: f"&#{ord(c)};" for c in "\\<>&|~"}

_STARTS = re.compile(r"^([0-9]+(?=[.)])|(?=[-+]))")
"""The start of a line that makes it a list or a rule, unless a backslash follows."""


def format_markdown(record: Mapping[str, Any]) -> str:
    """Write a review as a page of Markdown, with a heading for each section and each field.

    Markdown shows the publisher's texts as they were written: markup in them has no effect.

    Args:
        record: The review, from `review`.

    Returns:
        The page.
    """
    deployment = record["deployment"]
    lines = [f"# {escape_cell(deployment['basic']['name'])}", ""]
    for section, fields in deployment.items():
        lines += [f"## {_write_heading(section)}", ""]
        for field, value in fields.items():
            lines += [f"### {_write_heading(field)}", "", _write_value(field, value), ""]
    return "\n".join(lines)


def _write_value(field: str, value: Any) -> str:
    """Write the value of a field: a list, or paragraphs."""
    if isinstance(value, Mapping):
        return "\n".join(f"* {key} = {number!r}" for key, number in value.items())
    if isinstance(value, list):
        return "\n".join(f"* {escape_cell(entry)}" for entry in value)
    text = str(value)
    if field in _ESCAPED_FIELDS:
        return text
    return "\n\n".join(filter(None, map(escape_cell, re.split(r"\n\s*\n", text))))


def _write_heading(field: str) -> str:
    """Write the name of a field in words."""
    return field.replace("dp_", "").replace("_", " ").capitalize()


def make_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Make a table of Markdown from cells that are escaped already."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def split_rows(rows: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    """Split rows into the first ones, which a table shows, and the rest."""
    return rows[:MOST_ROWS], rows[MOST_ROWS:]


def escape_cell(text: str) -> str:
    """Escape a text for one line, or one cell of a table, so that Markdown shows it as it is."""
    line = " ".join(
        "".join(c if c.isprintable() or c.isspace() else "\ufffd" for c in text).split()
    )
    return _STARTS.sub(r"\1\\", "".join(_ESCAPES.get(c, c) for c in line))
