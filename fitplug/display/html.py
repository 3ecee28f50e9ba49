"""HTML: small tables and sections for notebooks.

Every text is escaped. No colours are set, so that light and dark themes of a notebook both work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from fitplug.display.numbers import format_up

MOST_GROUPS, MOST_TABLES, MOST_ROWS = 30, 3, 5
"""The largest numbers of groups, of tables and of rows of a table that are shown."""

SHOWN_DELTA = 1e-9
"""The delta at which notebooks show epsilon."""

_LEFT, _RIGHT = ' style="text-align: left"', ' style="text-align: right"'


def format_std_range(smallest: float, largest: float) -> str:
    """Format a range of standard deviations, rounded up; equal ends are shown once."""
    low, high = format_up(smallest, 4), format_up(largest, 4)
    return high if low == high else f"{low} to {high}"


def make_table(
    caption: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    most: int,
    count: int | None = None,
    what: str = "groups",
) -> str:
    """Make a table in which columns of numbers are aligned to the right.

    Args:
        caption: The text above the table.
        headings: One text per column.
        rows: One text per column each; the first is the heading of the row.
        most: How many rows are shown, at most.
        count: How many rows there are, if `rows` holds only the first ones.
        what: What the rows are, in the plural, for the line about those that are not shown.
    """
    count = len(rows) if count is None else count
    numeric = [
        all(row[i][:1].isdigit() or row[i][:1] == "-" for row in rows) and i > 0
        for i in range(len(headings))
    ]
    head = "".join(
        f'<th scope="col"{_RIGHT if right else _LEFT}>{escape(text)}</th>'
        for text, right in zip(headings, numeric, strict=True)
    )
    body = "".join(f"<tr>{_make_cells(row, numeric)}</tr>" for row in rows[:most])
    more = say_more(count - most, what) if count > most else ""
    return (
        f'<table><caption style="text-align: left; padding: .4em 0">{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"
    )


def _make_cells(row: Sequence[str], numeric: Sequence[bool]) -> str:
    """Make the cells of a row; `numeric` says which columns hold numbers."""
    first = f'<th scope="row"{_LEFT}>{escape(_shorten(row[0]))}</th>' if row else ""
    rest = zip(row[1:], numeric[1:], strict=True)
    return first + "".join(
        f"<td{_RIGHT if right else _LEFT}>{escape(_shorten(text))}</td>" for text, right in rest
    )


def _shorten(text: str) -> str:
    """Cut a text to 80 characters."""
    return text if len(text) <= 80 else text[:79] + "\N{HORIZONTAL ELLIPSIS}"


def say_more(count: int, what: str) -> str:
    """Make the line that shows how many more things of a kind there are."""
    return f'<p style="margin: .2em 0">and {count:,} more {what}</p>'


def make_section(title: str, facts: Iterable[str], *contents: str) -> str:
    """Make a section with a title, one line per fact, and HTML contents that are not escaped."""
    lines = "<br>".join(escape(fact) for fact in facts)
    return (
        f'<div class="fitplug"><p style="margin: .2em 0"><strong>{escape(title)}</strong><br>'
        f"{lines}</p>{''.join(contents)}</div>"
    )
