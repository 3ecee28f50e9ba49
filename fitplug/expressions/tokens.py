"""Tokens: the words, numbers, signs and quoted texts of an expression."""

from __future__ import annotations

import re
from typing import NamedTuple

from fitplug.errors import WorkloadError

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
    found, at = [], 0
    end = len(text.rstrip())
    while at < end:
        match = _PATTERN.match(text, at)
        if match is None:
            column = at + len(text[at:]) - len(text[at:].lstrip()) + 1
            wrong = text[column - 1]
            why = "a quote that is not closed" if wrong in "\"'" else f"{wrong!r}"
            raise WorkloadError(
                f"{why} at column {column} means nothing here; names and values with other "
                "characters than letters, digits, _ and dots go in quotes"
            )
        kind = str(match.lastgroup)
        token = match[kind]
        if kind == "quoted":
            token = token[1:-1].replace(2 * token[0], token[0])
        found.append(Token(kind, token, match.start(kind) + 1))
        at = match.end()
    return [*found, Token("end", "", end + 1)]
