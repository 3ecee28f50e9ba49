"""Units of privacy: whom a plan protects, and which data sets count as neighbours.

Two data sets are neighbours in a unit if they differ only by one person's presence, or by one
record's values. Their histograms then differ by some v of a set V:

    AddRemove(records=k)                 k e_i       k records of a person, anywhere
    AddRemove(records=k, distinct=True)  sum of e_i  at most k records, each in another cell
    AddRemove(records=k, once_per="M")   sum of e_i  at most k records, one in each cell of M
    ReplaceOne(within=W)                 e_i - e_j   i and j lie in the same cells of W

A cell may hold several values: a bin, a month of dates, the codes of a prefix, or all values that
are not listed. The squared privacy cost of a plan is the largest |A v|^2 over V, divided by the
variance of the noise (docs/theory/dual.md).

Claims of two units are compared only between bound units, which name their cells. "Each record in
another cell" means one thing for months and regions and another for regions alone, and so does "at
most one in each cell of MONTH" for twelve months and for two half-years. A bound unit has the names
of these attributes, and a digest of the cells of each. docs/theory/units.md proves the rule of
`BoundUnit.count_changes`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from fitplug.domain import MOST_SHARES, Domain, count_shares, get_codec, list_measures
from fitplug.errors import BudgetError, DomainError, WorkloadError
from fitplug.numeric import is_positive_integer

MOST_RECORDS = 10**6
"""The largest number of records that a unit of privacy lets one person have."""


@dataclass(frozen=True, repr=False)
class AddRemove:
    """Neighbouring data sets differ by one person's rows, added or removed.

        fp.AddRemove(records=12, once_per="MONTH")

    k rows of one person cost k^2 times the rho of one row. They cost less if `distinct` or
    `once_per` guarantees that the rows lie in different cells. Counting with `person` enforces
    these limits. Without `person`, the guarantee assumes that the data satisfy the limits.

    Attributes:
        records: k, the largest number of rows per person, at most 10^6.
        distinct: Whether a person has at most one row in each cell, that is, in each combination of
            the values of all attributes.
        once_per: The name of an attribute. A person has at most one row in each cell of this
            attribute, including the cell `other`.

    Raises:
        BudgetError: An argument is invalid, or the arguments cannot be combined.
    """

    records: int = 1
    distinct: bool = False
    once_per: str | None = None

    def __post_init__(self) -> None:
        if not is_positive_integer(self.records) or self.records > MOST_RECORDS:
            raise BudgetError(
                f"records must be an integer from 1 to {MOST_RECORDS}, not {self.records!r}"
            )
        if not isinstance(self.distinct, bool):
            raise BudgetError(f"distinct must be True or False, not {self.distinct!r}")
        if self.once_per is not None and not isinstance(self.once_per, str):
            raise BudgetError(f"once_per must be the name of an attribute, not {self.once_per!r}")
        if self.distinct and self.once_per is not None:
            raise BudgetError(
                "the settings 'distinct' and 'once_per' cannot be combined. Remove one of them."
            )
        if self.records == 1 and (self.distinct or self.once_per is not None):
            raise BudgetError("'distinct' and 'once_per' need 'records' to be at least 2")

    def __str__(self) -> str:
        if self.records == 1:
            return "one row added or removed"
        where = describe_apart(self) or ", anywhere"
        return f"one person's rows added or removed: at most {self.records:,}{where}"

    def __repr__(self) -> str:
        given = {"distinct": self.distinct, "once_per": self.once_per}
        more = "".join(f", {name}={value!r}" for name, value in given.items() if value)
        return f"AddRemove(records={self.records}{more})"

    def to_spec(self) -> dict[str, Any]:
        """Return the unit of privacy as a dict, as spec files, plan files and ledgers have it."""
        given = {"distinct": self.distinct, "once_per": self.once_per}
        return {"records": self.records} | {name: value for name, value in given.items() if value}


@dataclass(frozen=True)
class ReplaceOne:
    """Neighbouring data sets differ in the values of one row, so the number of rows is public.

    Attributes:
        within: The attributes whose values the row keeps. The number of rows in each combination of
            cells of these attributes is then public, too.

    Raises:
        BudgetError: `within` is not a tuple of names, or a name is given twice.

    Example:
        >>> str(fp.ReplaceOne(within=("sex",)))
        'one row replaced by another of the same sex'
    """

    within: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = self.within
        if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
            raise BudgetError('within must be a tuple of attribute names, such as ("STATE",)')
        if len(set(names)) < len(names):
            raise BudgetError(
                f"the setting 'within' names an attribute twice: {', '.join(names)}. Name each "
                "attribute once."
            )

    def __str__(self) -> str:
        if not self.within:
            return "one row replaced by another"
        return f"one row replaced by another of the same {' and '.join(self.within)}"

    @property
    def records(self) -> int:
        """The largest number of rows that one person may have: one."""
        return 1

    def to_spec(self) -> dict[str, Any]:
        """Return the unit of privacy as a dict, as spec files, plan files and ledgers have it."""
        return {"replace_one": list(self.within)}


def _check_attributes(key: str, names: Sequence[str], domain: Domain) -> None:
    """Raise DomainError if a name is not an attribute of a domain, or a measure."""
    for name in list_measures(domain, domain.ordered(names)):
        raise DomainError(
            f"the setting {key!r} names the measure {name!r}. Name another attribute."
        )


Unit: TypeAlias = AddRemove | ReplaceOne
"""A unit of privacy."""

_DISTINCT_MEASURE = "distinct=True cannot be combined with the measure {}. Use once_per= instead."

ONE_RECORD = AddRemove()
"""The default: one row, added or removed."""


def get_limit(unit: Unit) -> AddRemove:
    """Return the limit that a count enforces on a person's rows."""
    return unit if isinstance(unit, AddRemove) else ONE_RECORD


def describe_apart(unit: Unit) -> str:
    """Say how a person's rows must differ, in words after their number; empty if they need not."""
    if isinstance(unit, ReplaceOne) or allows_any_rows(unit):
        return ""
    if unit.distinct:
        return ", each in a different cell"
    return f", at most one in each cell of {unit.once_per}"


def allows_any_rows(unit: Unit) -> bool:
    """Return whether neighbours differ by any k rows."""
    return isinstance(unit, AddRemove) and not unit.distinct and unit.once_per is None


def count_changes(unit: Unit) -> int:
    """Count the equal changes between neighbours: k changes of one row if any k rows may differ,
    otherwise one change of one person.
    """
    return unit.records if allows_any_rows(unit) else 1


def select_public(unit: Unit, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Select the attributes whose joint totals are public; None if no totals are."""
    if isinstance(unit, AddRemove):
        return None
    return tuple(name for name in names if name in unit.within)


def check_unit(unit: Unit, domain: Domain) -> None:
    """Raise DomainError if an attribute that the unit names is unknown or a measure."""
    if isinstance(unit, ReplaceOne):
        _check_attributes("within", unit.within, domain)
    elif unit.once_per is not None:
        _check_attributes("once_per", (unit.once_per,), domain)


def check_measures(unit: Unit, domain: Domain, names: Sequence[str]) -> None:
    """Raise WorkloadError if a unit does not allow plans with the measures among attributes."""
    measures = list_measures(domain, names)
    shares = count_shares(domain, measures)
    if shares > MOST_SHARES:
        raise WorkloadError(
            f"the measures {', '.join(measures)} divide each row into {shares:,} shares; the limit "
            f"is {MOST_SHARES:,}. Give the measures larger units."
        )
    if measures and isinstance(unit, AddRemove) and unit.distinct:
        raise WorkloadError(_DISTINCT_MEASURE.format(measures[0]))


def read_unit(spec: Mapping[str, Any]) -> Unit:
    """Read a unit from the table that `to_spec` returns.

    Raises:
        BudgetError: The table does not describe a unit.
    """
    form = "Write, for example, { records = 3 } or { replace_one = [] }."
    if set(spec) == {"replace_one"}:
        within = spec["replace_one"]
        if not isinstance(within, list | tuple):
            raise BudgetError(f"replace_one must be a list of attribute names. {form}")
        return ReplaceOne(tuple(within))
    unknown = sorted(set(spec) - {"records", "distinct", "once_per"})
    if unknown or "records" not in spec:
        wrong = f"has the unknown key {unknown[0]!r}" if unknown else "lacks the key 'records'"
        raise BudgetError(f"the unit of privacy {wrong}. {form}")
    return AddRemove(**spec)


Cells: TypeAlias = tuple[tuple[str, str], ...]
"""Names of attributes, sorted, each with the digest of its cells (`Codec.digest`)."""

_SHOWN_DIGITS = 8
_MOST_NAMES = 8


@dataclass(frozen=True)
class BoundUnit:
    """A unit of privacy, with the cells that it refers to.

    Attributes:
        unit: The unit.
        cells: The attributes whose joint cells keep a person's records apart; for `ReplaceOne`, the
            attributes in whose cells the record lies before and after its change. None if the unit
            does not refer to cells, or if they are not known yet.
    """

    unit: Unit
    cells: Cells | None = None

    @classmethod
    def bind(cls, unit: Unit, domain: Domain, counted: Iterable[str] | None = None) -> BoundUnit:
        """Bind a unit to the cells of a domain.

        Args:
            unit: The unit.
            domain: The domain.
            counted: The attributes that are counted, by default all of the domain. Records outside
                the domain on one of them are not counted.

        Raises:
            DomainError: An attribute is unknown, or a measure, whose cells divide a record.
        """
        check_unit(unit, domain)
        if allows_any_rows(unit):
            return cls(unit)
        names = domain.ordered(tuple(domain if counted is None else counted))
        if isinstance(unit, ReplaceOne):
            # The record is in the domain before and after, so the claim refers to all attributes.
            names = domain.names
        elif unit.once_per is not None:
            names = (unit.once_per,)
        elif measures := list_measures(domain, names):
            raise DomainError(_DISTINCT_MEASURE.format(measures[0]))
        return cls(unit, tuple(sorted((name, get_codec(domain[name]).digest) for name in names)))

    @property
    def is_known(self) -> bool:
        """Whether the unit can be that of a charge: it has the cells that it refers to.

        `ReplaceOne()` needs no cells: its record may have any values before and after.
        """
        has_rule = bool(self.unit.within) if isinstance(self.unit, ReplaceOne) else self._is_apart
        return self.cells is not None or not has_rule

    @property
    def _is_apart(self) -> bool:
        return isinstance(self.unit, AddRemove) and not allows_any_rows(self.unit)

    def __str__(self) -> str:
        if self.cells is None:
            return str(self.unit) if self.is_known else f"{self.unit} (cells not known yet)"
        named = self._list_names()
        if isinstance(self.unit, ReplaceOne):
            return f"{self.unit}, both in the domain of {named} ({self._short_digest})"
        return f"{self.unit}{self._of_names} ({self._short_digest})"

    @property
    def apart(self) -> str:
        """How a person's records must differ, in words after their number; "" if they need not."""
        return f"{describe_apart(self.unit)}{self._of_names}"

    @property
    def _of_names(self) -> str:
        """The attributes of the cells in words; empty if the words before already name them."""
        is_named = not isinstance(self.unit, AddRemove) or not self.unit.distinct
        return "" if is_named or self.cells is None else f" of {self._list_names()}"

    def _list_names(self) -> str:
        """List the names of the attributes, at most the first `_MOST_NAMES`."""
        names = [name for name, _ in self.cells or ()]
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        return (" x ".join(names[:_MOST_NAMES]) or "no attribute") + more

    @property
    def _short_digest(self) -> str:
        """The first digits of a digest of all cells, which differ where cells do."""
        whole = hashlib.sha256(json.dumps(self.cells).encode()).hexdigest()
        return f"cells {whole[:_SHOWN_DIGITS]}"

    def to_spec(self) -> dict[str, Any]:
        """Return the unit as a table for a ledger or a release; `read_bound_unit` reads it."""
        return self.unit.to_spec() | ({} if self.cells is None else {"cells": dict(self.cells)})

    def complete(self, other: BoundUnit) -> BoundUnit:
        """Return this unit with another's cells if its own are unknown and the units are alike."""
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
        """Count how many changes in this unit make up any change in another unit.

        Args:
            other: The other unit.

        Returns:
            m: a claim of rho in this unit implies a claim of m^2 rho in the other one. None if no
            such number is known.
        """
        mine, theirs = self.unit, other.unit
        if isinstance(mine, AddRemove) and isinstance(theirs, AddRemove):
            # One change may be any k records, or any k records that the other unit keeps apart.
            # Otherwise a change is one record.
            is_change = allows_any_rows(mine) or (other._is_apart and self._holds(other.cells))
            return -(-theirs.records // (mine.records if is_change else 1))
        if isinstance(mine, ReplaceOne) and isinstance(theirs, ReplaceOne):
            if self.cells is None:
                is_wider = not mine.within
            else:
                is_wider = set(mine.within) <= set(theirs.within) and other._holds(self.cells)
            return 1 if is_wider else None
        return None

    def _holds(self, cells: Cells | None) -> bool:
        """Return whether this unit's cells include these attributes with the same cells."""
        return None not in (self.cells, cells) and set(cells or ()) <= set(self.cells or ())


def read_bound_unit(spec: Mapping[str, Any]) -> BoundUnit:
    """Read a bound unit from the table that `BoundUnit.to_spec` returns.

    Raises:
        BudgetError: The table does not describe a bound unit.
    """
    unit = read_unit({key: value for key, value in spec.items() if key != "cells"})
    if "cells" not in spec:
        return BoundUnit(unit)
    cells = spec["cells"]
    is_of_texts = isinstance(cells, dict) and all(isinstance(d, str) for d in cells.values())
    if not is_of_texts or allows_any_rows(unit):
        raise BudgetError(
            "the setting 'cells' of a unit of privacy must be a table of attribute names and texts"
        )
    return BoundUnit(unit, tuple(sorted(cells.items())))
