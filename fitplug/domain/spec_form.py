"""Spec forms: the tables of a spec file that describe attributes of one kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fitplug.errors import DomainError, suggest_nearest


@dataclass(frozen=True)
class SpecForm:
    """The keys of a table in a spec file that describes an attribute of one kind.

    Attributes:
        example: An example of the table, for messages.
        names: Keys that identify this kind; any of them is enough.
        required: Required keys.
        optional: Optional keys, besides `other`, which every kind has.
    """

    example: str
    names: tuple[str, ...]
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    def check(self, spec: Mapping[str, Any]) -> None:
        """Refuse a table with unknown keys, or without required ones.

        Raises:
            DomainError: For such a table.
        """
        allowed = sorted({*self.names, *self.required, *self.optional, "other"})
        for key in spec:
            if key not in allowed:
                raise DomainError(f"unknown key {key!r}. {suggest_nearest(key, allowed)}")
        for key in self.required:
            if key not in spec:
                raise DomainError(f"{key!r} is missing. Write {self.example}")


def read_ends(spec: Mapping[str, Any], key: str, described: str) -> tuple[Any, Any]:
    """Read the two ends of a range, `key = [first, last]`, which `described` names in errors."""
    ends = spec[key]
    if not isinstance(ends, list) or len(ends) != 2:
        raise DomainError(f"{key} = {ends!r} must be two {described}")
    return ends[0], ends[1]
