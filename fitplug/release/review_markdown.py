"""A review as a page of Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_MARKED = ("data_domain", "composition", "mechanisms", "justification")
"""Fields with lists and tables of ours, in which names are escaped already."""

# Behind a backslash what every kind of Markdown takes there, else by number: a kind that does not
# take the backslash would run what comes behind it.
_ESCAPES = {c: f"\\{c}" for c in "\\`*_[]{}#"} | {c: f"&#{ord(c)};" for c in "<>&|~"}

_STARTS = re.compile(r"^([0-9]+(?=[.)])|(?=[-+]))")
"""Behind this, or before it, a line begins as a list or a rule."""


def markdown(record: Mapping[str, Any]) -> str:
    """A review as a page of Markdown: a heading per section, and a paragraph or more per field.

    What the publisher wrote is shown as it was written: it makes no element of its own.
    """
    deployment = record["deployment"]
    lines = [f"# {escape_cell(deployment['basic']['name'])}", ""]
    for section, fields in deployment.items():
        lines += [f"## {_words(section)}", ""]
        for field, value in fields.items():
            lines += [f"### {_words(field)}", "", _shown(field, value), ""]
    return "\n".join(lines)


def _shown(field: str, value: Any) -> str:
    if isinstance(value, Mapping):
        return "\n".join(f"* {key} = {number!r}" for key, number in value.items())
    if isinstance(value, list):
        return "\n".join(f"* {escape_cell(entry)}" for entry in value)
    text = str(value)
    if field in _MARKED:
        return text
    return "\n\n".join(filter(None, map(escape_cell, re.split(r"\n\s*\n", text))))


def _words(field: str) -> str:
    return field.replace("dp_", "").replace("_", " ").capitalize()


def make_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def escape_cell(text: str) -> str:
    """A text for one line, or one cell of a table, that Markdown shows as it is."""
    line = " ".join(
        "".join(c if c.isprintable() or c.isspace() else "\ufffd" for c in text).split()
    )
    return _STARTS.sub(r"\1\\", "".join(_ESCAPES.get(c, c) for c in line))
