"""Tokens of an expression, and conditions on attributes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from fitplug.errors import WorkloadError, quote

_PATTERN = re.compile(
    r"""\s*(?:
      (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
    | (?P<word>[\w.]+)
    | (?P<quoted>"(?:[^"]|"")*"|'(?:[^']|'')*')
    | (?P<sign><=|>=|!=|==|[-+*/()\[\],=<>|])
    )""",
    re.VERBOSE,
)


class Token(NamedTuple):
    """A word, number, sign or text in quotes, and the column where it begins, from 1."""

    kind: str
    text: str
    column: int


def split_tokens(text: str) -> list[Token]:
    """Split an expression into tokens.

    Returns:
        Tokens of the kinds "number", "word", "quoted" and "sign", and one of the kind "end".

    Raises:
        WorkloadError: A character belongs to no token; the message names its column.
    """
    tokens, at = [], 0
    end = len(text.rstrip())
    while at < end:
        match = _PATTERN.match(text, at)
        if match is None:
            column = at + len(text[at:]) - len(text[at:].lstrip()) + 1
            wrong = text[column - 1]
            why = "an unclosed quote" if wrong in "\"'" else f"{wrong!r}"
            raise WorkloadError(
                f"{why} at character {column} is not allowed here. Put names and values with "
                "special characters in quotes."
            )
        kind = str(match.lastgroup)
        token = match[kind]
        if kind == "quoted":
            token = token[1:-1].replace(2 * token[0], token[0])
        tokens.append(Token(kind, token, match.start(kind) + 1))
        at = match.end()
    return [*tokens, Token("end", "", end + 1)]


ORDERS = ("<", "<=", ">", ">=")
COMPARISONS = ("=", "!=", *ORDERS)
MOST_SHOWN = 4
"""The largest number of values that a message lists."""

_BARE = re.compile(r"[\w.]+|-\d+(\.\d+)?")
"""Values and names that need no quotes in an expression."""


def write_value(text: str) -> str:
    """Write a value, a label or a name for an expression, in quotes if it needs them."""
    bare = _BARE.fullmatch(text) and text not in ("or", "in")
    return text if bare else quote(text)


@dataclass(frozen=True)
class Condition:
    """A comparison of an attribute with values.

    Attributes:
        attribute: The name of the attribute.
        comparison: One of COMPARISONS.
        values: The values as the user wrote them. With several values, "=" holds for any of them.
    """

    attribute: str
    comparison: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        values = [write_value(value) for value in self.values[:MOST_SHOWN]]
        attribute = write_value(self.attribute)
        if len(self.values) == 1:
            return f"{attribute} {self.comparison} {values[0]}"
        more = len(self.values) - MOST_SHOWN
        values += [f"and {more} more"] if more > 0 else []
        return f"{attribute} in [{', '.join(values)}]"


@dataclass(frozen=True)
class Clause:
    """The part of a selection about one attribute.

    Attributes:
        attribute: The name of the attribute.
        options: Lists of conditions. The clause holds if all conditions of at least one list hold.
    """

    attribute: str
    options: tuple[tuple[Condition, ...], ...]

    def __str__(self) -> str:
        options = [", ".join(map(str, option)) for option in self.options[:MOST_SHOWN]]
        more = len(self.options) - MOST_SHOWN
        return " or ".join([*options, *([f"{more} more"] if more > 0 else [])])
