"""Bound units: units of privacy with the cells that their words are about.

"Each record in another cell" says something else of months and regions than of regions alone, and
so does "at most one in each cell of MONTH" of twelve months and of two half-years. A bound unit
holds the names of these attributes, and a digest of the cells of each. Claims are compared between
bound units only. docs/theory/units.md proves the rule of `count_changes`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from fitplug.domain import Domain
from fitplug.errors import BudgetError, DomainError
from fitplug.workload.units import AddRemove, ReplaceOne, Unit, read_unit

Cells: TypeAlias = tuple[tuple[str, str], ...]
"""Names of attributes, sorted, each with the digest of its cells (`Domain.digest_cells`)."""

_SHOWN_DIGITS = 8
_MOST_NAMES = 8


@dataclass(frozen=True)
class BoundUnit:
    """A unit of privacy, with the cells that it is about.

    Attributes:
        unit: The unit.
        cells: The attributes in whose cells the records of a person are apart, together; for
            `ReplaceOne` the attributes in whose cells a record is before and after its change.
            None if the unit says nothing of cells, or if they are not known yet.
    """

    unit: Unit
    cells: Cells | None = None

    @classmethod
    def bind(cls, unit: Unit, domain: Domain, counted: Iterable[str] | None = None) -> BoundUnit:
        """Bind a unit to the cells of a domain.

        Args:
            unit: The unit.
            domain: The domain.
            counted: The attributes that are counted: records outside the domain on one of them are
                in no table. All of the domain's if it is left out.

        Raises:
            DomainError: An attribute is unknown, or a measure, whose cells divide a record.
        """
        unit.check_domain(domain)
        if unit.is_of_records:
            return cls(unit)
        names = domain.ordered(tuple(domain if counted is None else counted))
        if isinstance(unit, ReplaceOne):
            # No record comes from outside the domain, or goes there: all of it is in the claim.
            names = domain.names
        elif unit.once_per is not None:
            names = (unit.once_per,)
        elif measures := [name for name in names if domain[name].quantities]:
            raise DomainError(
                f"records with the measure {measures[0]} are divided over two cells, so that no "
                "two are in distinct cells; give records alone, or once_per"
            )
        return cls(unit, tuple(sorted((name, domain.digest_cells(name)) for name in names)))

    @property
    def is_known(self) -> bool:
        """Whether nothing is missing to compare the unit with others as that of a charge.

        `ReplaceOne()` without cells is known: its record may have any values before and after.
        """
        has_rule = bool(self.unit.within) if isinstance(self.unit, ReplaceOne) else self._is_apart
        return self.cells is not None or not has_rule

    @property
    def _is_apart(self) -> bool:
        return isinstance(self.unit, AddRemove) and not self.unit.is_of_records

    def __str__(self) -> str:
        if self.cells is None:
            return str(self.unit) if self.is_known else f"{self.unit} (cells not known yet)"
        named = self._list_names()
        if isinstance(self.unit, ReplaceOne):
            return f"{self.unit}, both in the domain of {named} ({self._short_digest})"
        return f"{self.unit}{self._of_names} ({self._short_digest})"

    @property
    def apart(self) -> str:
        """How a person's records are apart, in words that follow their number; empty if not."""
        return f"{self.unit.apart}{self._of_names}"

    @property
    def _of_names(self) -> str:
        """The attributes of the cells, after words that do not name them; empty if these do."""
        is_named = not isinstance(self.unit, AddRemove) or not self.unit.distinct
        return "" if is_named or self.cells is None else f" of {self._list_names()}"

    def _list_names(self) -> str:
        """List the names of the attributes; of many, the first."""
        names = [name for name, _ in self.cells or ()]
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        return (" x ".join(names[:_MOST_NAMES]) or "no attribute") + more

    @property
    def _short_digest(self) -> str:
        """The first digits of a digest of all cells, which differ where cells do."""
        whole = hashlib.sha256(json.dumps(self.cells).encode()).hexdigest()
        return f"cells {whole[:_SHOWN_DIGITS]}"

    def to_spec(self) -> dict[str, Any]:
        """Return the table that says this in a ledger or a release; `read_bound_unit` reads it."""
        return self.unit.to_spec() | ({} if self.cells is None else {"cells": dict(self.cells)})

    def complete(self, other: BoundUnit) -> BoundUnit:
        """Return this unit with the cells of another, if its own are not known and it is alike."""
        if self.cells is not None or other.cells is None:
            return self
        mine, theirs = self.unit, other.unit
        if isinstance(mine, AddRemove) and isinstance(theirs, AddRemove):
            is_alike = (mine.distinct, mine.once_per) == (theirs.distinct, theirs.once_per)
        elif isinstance(mine, ReplaceOne) and isinstance(theirs, ReplaceOne):
            is_alike = set(mine.within) <= set(dict(other.cells))
        else:
            is_alike = False
        return replace(self, cells=other.cells) if is_alike else self

    def count_changes(self, other: BoundUnit) -> int | None:
        """Count the changes in this unit that any change in another unit is made of.

        Args:
            other: The other unit.

        Returns:
            m, so that a claim rho in this unit is the claim m^2 rho in the other one; None if no
            such number is known.
        """
        mine, theirs = self.unit, other.unit
        if isinstance(mine, AddRemove) and isinstance(theirs, AddRemove):
            # Any records are a change, or any that the other unit keeps apart. Else only one is.
            is_change = mine.is_of_records or (other._is_apart and self._holds(other.cells))
            return -(-theirs.records // (mine.records if is_change else 1))
        if isinstance(mine, ReplaceOne) and isinstance(theirs, ReplaceOne):
            if self.cells is None:
                is_wider = not mine.within
            else:
                is_wider = set(mine.within) <= set(theirs.within) and other._holds(self.cells)
            return 1 if is_wider else None
        return None

    def _holds(self, cells: Cells | None) -> bool:
        """Return whether these attributes, with the same cells, are among those of this unit."""
        return None not in (self.cells, cells) and set(cells or ()) <= set(self.cells or ())


def read_bound_unit(spec: Mapping[str, Any]) -> BoundUnit:
    """Read a bound unit from the table that `BoundUnit.to_spec` returns.

    Raises:
        BudgetError: The table says something else.
    """
    unit = read_unit({key: value for key, value in spec.items() if key != "cells"})
    if "cells" not in spec:
        return BoundUnit(unit)
    cells = spec["cells"]
    is_of_texts = isinstance(cells, dict) and all(isinstance(d, str) for d in cells.values())
    if not is_of_texts or unit.is_of_records:
        raise BudgetError("the cells of a unit of privacy are digests by name of an attribute")
    return BoundUnit(unit, tuple(sorted(cells.items())))
