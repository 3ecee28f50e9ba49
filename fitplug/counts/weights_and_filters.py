"""Rows: how many records each stands for, and which of them are counted.

A row is one record, unless a column of weights says how many it stands for. Of all rows those are
counted that hold, in each column that a filter names, one of the values it gives. Both are public:
the name of a column, and values that are given and never read.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.counts.columns import values_of
from fitplug.domain import NAMES, OUTSIDE, Categories, Codes, Dates
from fitplug.errors import DataError, DomainError, InputError
from fitplug.numeric import BoolArray, IntArray

MOST_WEIGHT = 2**40
"""Records that one row stands for at most; what is more counts as many."""

Value: TypeAlias = str | int | bool | datetime.date
Where: TypeAlias = Mapping[str, Value | Collection[Value]]
"""The values, or the one value, that a row must hold, by the name of the column."""

Filters: TypeAlias = Mapping[str, Categories | Dates]
"""The same, as attributes whose cells are the values; every other value and null are outside."""

_KINDS = (str, int, bool, datetime.date)


@dataclass(frozen=True)
class Weight:
    """How many records a row stands for, read as an attribute's cells are.

    It is a whole number from 0 to MOST_WEIGHT. Null counts nothing; a number below 0 counts as 0,
    one above MOST_WEIGHT as that. So no weight is refused for its value, and one record more in a
    row changes what is counted by one at most.
    """

    value_type: ClassVar[type] = int
    null_code: ClassVar[int] = 0
    size: ClassVar[int] = 1  # of the codes that a null may have

    def codes(self, values: npt.ArrayLike) -> Codes:
        """Numbers of records (n,) of `values` (n,). Raises DataError on anything but integers and
        nulls: no float becomes a count silently.
        """
        try:
            array = np.asarray(values)
        except (TypeError, ValueError):  # of lists of different lengths
            array = np.empty(())
        if array.ndim != 1:
            raise DataError("weights must be one list of numbers, one per row")
        if array.dtype == np.uint64:
            return np.minimum(array, np.uint64(MOST_WEIGHT)).astype(np.int64)
        if array.dtype.kind in "iu":  # widened first, as bounds must fit the type of the array
            return np.clip(array.astype(np.int64), 0, MOST_WEIGHT)
        if array.dtype.kind != "O":
            if not array.size:
                return np.zeros(0, dtype=np.int64)
            raise DataError(_no_weights("floats" if array.dtype.kind == "f" else "other values"))
        weights = np.zeros(len(array), dtype=np.int64)
        for row, value in enumerate(array.tolist()):
            if value is None or (isinstance(value, float) and value != value):
                continue
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
                raise DataError(_no_weights("other values"))
            weights[row] = min(max(int(value), 0), MOST_WEIGHT)
        return weights


WEIGHT = Weight()


def _no_weights(found: str) -> str:
    return f"weights must be integers, but the column holds {found}; convert it"


@dataclass(frozen=True, init=False)
class _Days(Dates):
    """Single days: dates whose cells are those of `chosen` only."""

    chosen: tuple[datetime.date, ...]

    def __init__(self, chosen: Sequence[datetime.date]) -> None:
        super().__init__(min(chosen), max(chosen))
        object.__setattr__(self, "chosen", tuple(chosen))

    def codes_of_days(self, days: IntArray) -> Codes:
        chosen = np.array(self.chosen, dtype="M8[D]").astype(np.int64)
        return np.where(np.isin(days, chosen), super().codes_of_days(days), OUTSIDE)

    def spec(self) -> Any:
        return {"days": [day.isoformat() for day in self.chosen]}


def filters_of(where: Where | None) -> Filters:
    """The filters that `where` gives, by the names of their columns in order. Raises DomainError.

    Two that keep the same rows are equal, in whichever order the columns and values are given.
    """
    if where is None:
        return {}
    if not isinstance(where, Mapping) or not all(isinstance(n, str) and n for n in where):
        raise DomainError(
            'where must give values by the name of a column, such as {"STATE": ["01", "02"]}'
        )
    return {name: _filter(name, where[name]) for name in sorted(where)}


def _filter(name: str, given: Any) -> Categories | Dates:
    listed = list(given) if isinstance(given, (list, tuple, set, frozenset)) else [given]
    values = [value.item() if isinstance(value, np.generic) else value for value in listed]
    if not values:
        raise DomainError(f"where gives no value of {name!r}, so no row would be counted; give one")
    kinds = {type(value) for value in values}
    if len(kinds) > 1 or not kinds <= set(_KINDS):
        raise DomainError(
            f"where gives {name!r} the values {listed!r}, but they must be all strings, all "
            "integers, all booleans or all dates"
        )
    try:
        return (
            _Days(sorted(set(values))) if kinds == {datetime.date} else Categories(sorted(values))
        )
    except DomainError as error:
        raise DomainError(f"where: {name!r}: {error}") from None


def check_rows(
    weight: str | None, filters: Filters, used: Container[str], person: str | None = None
) -> None:
    """Refuse weights that could not be those of records. used: the attributes that are counted.

    Raises DomainError, and InputError with `person`.
    """
    if weight is None:
        return
    if not isinstance(weight, str) or not weight:
        raise DomainError(f"weight = {weight!r} must be the name of a column")
    if weight in used:
        raise DomainError(
            f"weight = {weight!r} says how many records a row stands for, so it cannot be counted "
            "too; leave it out of the queries or name another column of weights"
        )
    if weight in filters:
        raise DomainError(
            f"where cannot name {weight!r}, the column of weights: one record more would take all "
            "records of its row in or out; leave it out of where"
        )
    if person is not None:
        raise InputError(
            f"weight = {weight!r} and person = {person!r} do not go together: a row that stands "
            "for several records is no single person's; leave out one of them"
        )


def say_rows(weight: str | None, filters: Filters, most: int | None = None) -> str | None:
    """How rows are understood, in words; None if each row is one record and all are counted.

    The same words are of the same weights and filters. most: values of a column to name; more are
    only numbered, for people to read.
    """
    parts = []
    if weight is not None:
        parts.append(f"each row stands for {_key(weight)} records")
    if filters:
        held = [
            f"{_key(name)} is {_listed(attribute, most)}" for name, attribute in filters.items()
        ]
        parts.append(f"only rows where {' and '.join(held)} are counted")
    return "; ".join(parts) or None


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def _listed(attribute: Categories | Dates, most: int | None) -> str:
    values = attribute.chosen if isinstance(attribute, _Days) else getattr(attribute, "values", ())
    shown = [
        value.isoformat()
        if isinstance(value, datetime.date)
        else json.dumps(value, ensure_ascii=False)
        for value in values
    ]
    if most is not None and len(shown) > most:
        return f"{', '.join(shown[:most])} or one of {len(shown) - most:,} more"
    return " or ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def rows_inside(columns: Any, filters: Filters, rows: int) -> BoolArray:
    """Which of the rows (n,) held in memory, in a mapping or frame of columns, the filters let
    through. Raises DataError.
    """
    inside = np.ones(rows, dtype=bool)
    for name, attribute in filters.items():
        try:
            codes = attribute.codes(values_of(columns[name]))
        except (TypeError, ValueError, ArithmeticError):  # whose words may be of the values
            codes = None
        if codes is None or codes.shape != (rows,):
            raise DataError(
                f"column {name!r} holds other values than {NAMES[attribute.value_type]}, which "
                "where gives; convert the column or change where"
            )
        inside &= codes != OUTSIDE
    return inside
