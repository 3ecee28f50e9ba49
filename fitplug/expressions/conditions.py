"""Conditions on attributes, as expressions have them, and how they are written."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fitplug.errors import quote

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
    """What a selection says about one attribute.

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
