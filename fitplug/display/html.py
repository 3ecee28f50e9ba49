"""Small tables of HTML, as notebooks show them.

Every text is escaped. Colours are the notebook's own, so that light and dark themes both work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from fitplug.display.numbers import format_up

if TYPE_CHECKING:
    pass

MOST_GROUPS, MOST_TABLES, MOST_ROWS = 30, 3, 5

SHOWN_DELTA = 1e-9

_LEFT, _RIGHT = ' style="text-align: left"', ' style="text-align: right"'


def format_std_range(smallest: float, largest: float) -> str:
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
    """The first rows, whose first cell heads the row; texts to the left, numbers to the right."""
    count = len(rows) if count is None else count
    numeric = [
        all(row[i][:1].isdigit() or row[i][:1] == "-" for row in rows) and i > 0
        for i in range(len(headings))
    ]
    head = "".join(
        f'<th scope="col"{_RIGHT if right else _LEFT}>{escape(text)}</th>'
        for text, right in zip(headings, numeric, strict=True)
    )
    body = "".join(f"<tr>{_cells(row, numeric)}</tr>" for row in rows[:most])
    more = say_more(count - most, what) if count > most else ""
    return (
        f'<table><caption style="text-align: left; padding: .4em 0">{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"
    )


def _cells(row: Sequence[str], numeric: Sequence[bool]) -> str:
    first = f'<th scope="row"{_LEFT}>{escape(_short(row[0]))}</th>' if row else ""
    rest = zip(row[1:], numeric[1:], strict=True)
    return first + "".join(
        f"<td{_RIGHT if right else _LEFT}>{escape(_short(text))}</td>" for text, right in rest
    )


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "\N{HORIZONTAL ELLIPSIS}"


def say_more(count: int, what: str) -> str:
    return f'<p style="margin: .2em 0">and {count:,} more {what}</p>'


def make_section(title: str, facts: Iterable[str], *parts: str) -> str:
    lines = "<br>".join(escape(fact) for fact in facts)
    return (
        f'<div class="fitplug"><p style="margin: .2em 0"><strong>{escape(title)}</strong><br>'
        f"{lines}</p>{''.join(parts)}</div>"
    )
