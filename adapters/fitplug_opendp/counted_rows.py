"""Which rows exact counts were made of, as releases and ledgers record it."""

from __future__ import annotations

from dataclasses import dataclass

from fitplug.counts import Tables
from fitplug.plan import Plan
from fitplug.release import Limited


@dataclass(frozen=True)
class CountedRows:
    """The rows that a release was counted from, in public words.

    Attributes:
        rows: How rows were weighted and filtered (`Tables.rows`); None if each is one record.
        limited: Whether the count enforced the limit on the records of a person, or the publisher
            declared it.
    """

    rows: str | None
    limited: Limited | None

    @classmethod
    def from_tables(cls, tables: Tables) -> CountedRows:
        """Return the rows that these counts were made of."""
        return cls(tables.rows, find_limit(tables))

    def __str__(self) -> str:
        limited = ", limited by person" if self.limited == "enforced" else ""
        return f"{self.rows or 'rows that are one record each'}{limited}"


def find_limit(tables: Tables) -> Limited:
    """Return "enforced" if the count kept only so many records of each person, else "declared"."""
    return "declared" if tables.contributions is None else "enforced"


def find_seal(tables: Tables) -> str | None:
    """Return the seal of counts that another count of the same people may not reproduce.

    These are counts that kept records of a person by a secret hash, and counts of weighted or
    filtered rows: in another count a person may be in other cells. Counts of all rows need no
    seal, and the result is None.
    """
    return None if tables.contributions is None and tables.rows is None else tables.seal


def list_outside_attributes(plan: Plan, tables: Tables) -> tuple[str, ...]:
    """List the attributes without use in the plan by whose values the count left records out."""
    used = {name for names in plan.tables for name in names}
    unused = {name for names in tables for name in names} - used
    return tables.domain.list_names_without_other(unused)
