"""Wanted columns: which columns a count reads, and how those that no type says how to read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fitplug.counts import Filters
from fitplug.domain import Attribute


@dataclass(frozen=True)
class ColumnRules:
    """How columns are read that no type alone says how to read.

    Attributes:
        zone: The time zone in which times with a zone are read as days; None refuses them.
        missing: For columns that a file may lack, the value that all of its rows then have; None
            is null.
    """

    zone: str | None = None
    missing: Mapping[str, Any] = field(default_factory=dict)


PLAIN_RULES = ColumnRules()


@dataclass(frozen=True)
class WantedColumns:
    """The columns that a count reads.

    Attributes:
        attributes: The attributes that are counted, by name.
        person: The column that identifies persons, if there is one.
        weight: The column of weights, if there is one.
        filters: What rows must hold.
        rules: How columns are read that no type alone says how to read.
        checks: What was found for files of one folder and one schema, so that it is found once.
        codes: The codes of the values that folders' names spell.
    """

    attributes: Mapping[str, Attribute]
    person: str | None
    weight: str | None
    filters: Filters
    rules: ColumnRules
    checks: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    codes: dict[Any, int] = field(default_factory=dict, repr=False, compare=False)
