"""Persons of units of privacy, by brute force: which raw records they may have.

Persons have records with raw values. Each release sees them through the cells of its own domain,
written here as plain dictionaries, and leaves out records that a dictionary does not have.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import fitplug as fp
from fitplug.workload import BoundUnit, allows_any_rows

Record = tuple[int, int]
"""The raw values of a record: its month, 0 to 3, and its region, 0 or 1."""

RECORDS: list[Record] = list(itertools.product(range(4), range(2)))
ATTRIBUTES: dict[str, tuple[Any, dict[int, int]]] = {
    "fine": (fp.Integers(0, 3), {0: 0, 1: 1, 2: 2, 3: 3}),
    "coarse": (fp.Bins([0, 2, 4]), {0: 0, 1: 0, 2: 1, 3: 1}),
    "fewer": (fp.Integers(0, 2), {0: 0, 1: 1, 2: 2}),
    "other": (fp.Categories([0, 1], other="rest"), {0: 0, 1: 1, 2: 2, 3: 2}),
    "region": (fp.Integers(0, 1), {0: 0, 1: 1}),
}
MONTHS = ("fine", "coarse", "fewer", "other")


@dataclass(frozen=True)
class Release:
    """What is counted, in cells of which domain, and for which unit."""

    unit: Any
    cells: tuple[tuple[str, str], ...]  # the kind of each attribute that is counted, by name

    @property
    def domain(self) -> fp.Domain:
        return fp.Domain({name: ATTRIBUTES[kind][0] for name, kind in self.cells})

    @property
    def bound(self) -> BoundUnit:
        return BoundUnit.bind(self.unit, self.domain)

    def __str__(self) -> str:
        return f"{self.unit} in {dict(self.cells)}"

    def find_cell(self, record: Record, names: Any = None) -> tuple[int, ...] | None:
        """The cell of a record over some of the attributes; None if it is outside on one."""
        raw = dict(zip(("month", "region"), record, strict=True))
        cells = [
            ATTRIBUTES[kind][1].get(raw[name])
            for name, kind in self.cells
            if names is None or name in names
        ]
        return None if None in cells else tuple(cell for cell in cells if cell is not None)

    def is_apart(self, records: Any) -> bool:
        """Whether the unit allows that a person has these records."""
        if allows_any_rows(self.unit):
            return True
        names = None if self.unit.distinct else (self.unit.once_per,)
        cells = [cell for r in records if (cell := self.find_cell(r, names)) is not None]
        return len(set(cells)) == len(cells)

    def count(self, records: Any) -> Counter[Any]:
        return Counter(cell for r in records if (cell := self.find_cell(r)) is not None)


def list_persons(release: Release) -> Iterator[tuple[tuple[Record, ...], tuple[Record, ...]]]:
    """List the records of a person before and after, for all persons of a unit."""
    if isinstance(release.unit, fp.ReplaceOne):
        for before, after in itertools.permutations(RECORDS, 2):
            if None in (release.find_cell(before), release.find_cell(after)):
                continue
            within = release.unit.within
            if release.find_cell(before, within) == release.find_cell(after, within):
                yield (before,), (after,)
        return
    for k in range(1, release.unit.records + 1):
        for records in itertools.combinations_with_replacement(RECORDS, k):
            if release.is_apart(records):
                yield (), records


def freeze(histogram: Counter[Any]) -> tuple[Any, ...]:
    """Return a histogram that can be compared and hashed."""
    return tuple(sorted(histogram.items()))
