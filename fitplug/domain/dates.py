"""Dates: attributes whose cells are days, months or years of the calendar."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fitplug.domain.attribute import OUTSIDE, Codes, wrong_type
from fitplug.errors import DataError, DomainError
from fitplug.numeric import IntArray, frozen_property

UNITS = {"day": "D", "month": "M", "year": "Y"}
"""What a cell may be, and NumPy's name of it."""

_ONE: dict[str, Any] = {by: np.ones((), f"m8[{unit}]")[()] for by, unit in UNITS.items()}
"""NumPy's step from one to the next."""

_NO_DAY = ("generic", "Y", "M", "W")
"""NumPy's units of time that name no day."""

_ISO_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_ISO = re.compile(
    rf"({_ISO_DAY.pattern})"
    r"([ T]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]+)?)?)?"
)


@dataclass(frozen=True, init=False)
class Dates:
    """The days first..last of the (proleptic Gregorian) calendar, both ends in, in ordered cells.

    by: "day", "month" or "year", of which `first` must begin one and `last` end one. Dates are
    datetime.date or text, "2020-12-31". Cells are labelled as ISO 8601 does: 2020-12-31, 2020-12,
    2020; ranges of a query name these labels, or days by datetime.date, or years by integers.

    Values are dates, times without a zone, of which the date is taken, or text in exactly the form
    2020-12-31 or 2020-12-31T23:59:59; text in any other form is outside the domain. Raises
    DomainError.
    """

    first: datetime.date
    last: datetime.date
    by: str
    value_type: ClassVar[type] = datetime.date
    null_code: ClassVar[int] = OUTSIDE

    def __init__(
        self, first: datetime.date | str, last: datetime.date | str, by: str = "day"
    ) -> None:
        if by not in UNITS:
            raise DomainError(f"dates are by day, month or year, not by {by!r}")
        ends = [_given(end) for end in (first, last)]
        if ends[1] < ends[0]:
            raise DomainError(
                f"the dates {ends[0]} to {ends[1]} are none; give the earlier end first"
            )
        unit = f"M8[{UNITS[by]}]"
        low, high = (np.datetime64(end, "D") for end in ends)
        begins = low.astype(unit).astype("M8[D]")
        over = (high.astype(unit) + _ONE[by]).astype("M8[D]") - _ONE["day"]
        if (begins, over) != (low, high):
            raise DomainError(
                f"the dates {low} to {high} are not whole {by}s; give {begins} to {over}"
            )
        object.__setattr__(self, "first", ends[0])
        object.__setattr__(self, "last", ends[1])
        object.__setattr__(self, "by", by)

    @property
    def days(self) -> tuple[int, int]:
        """The first and the last day, in days since 1970-01-01."""
        first, last = (np.datetime64(end, "D").astype(int) for end in (self.first, self.last))
        return int(first), int(last)

    @frozen_property
    def _periods(self) -> npt.NDArray[np.datetime64]:
        unit = f"M8[{UNITS[self.by]}]"
        first, last = (np.datetime64(end, "D").astype(unit) for end in (self.first, self.last))
        return np.arange(first, last + _ONE[self.by])

    @property
    def size(self) -> int:
        return len(self._periods)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(map(str, self._periods))

    def codes(self, values: npt.ArrayLike) -> Codes:
        """Cells (n,) of `values` (n,), -1 for those that have none.

        Raises DataError on anything but dates, text and nulls: no number becomes a date silently.
        """
        array = np.asarray(values)
        if not array.size:
            return np.zeros(0, dtype=np.int64)
        if array.dtype.kind == "M" and np.datetime_data(array.dtype)[0] not in _NO_DAY:
            try:
                whole = array.astype("M8[D]")
            except OverflowError:  # units so fine that they reach hours only
                raise DataError(wrong_type(datetime.date, str(array.dtype))) from None
            # Not a time is the least integer, before any domain.
            return self.codes_of_days(whole.astype(np.int64))
        if array.dtype.kind not in "OUT":
            raise DataError(wrong_type(datetime.date, str(array.dtype)))
        none = self.days[0] - 1
        days = [none if (day := _day(value)) is None else day for value in array.tolist()]
        return self.codes_of_days(np.array(days, dtype=np.int64))

    def codes_of_days(self, days: IntArray) -> Codes:
        """Cells (n,) of days since 1970-01-01 (n,), -1 for those outside."""
        first, last = self.days
        inside = (days >= first) & (days <= last)
        near = np.where(inside, days, first).astype("M8[D]")
        cells = near.astype(self._periods.dtype) - self._periods[0]
        return np.where(inside, cells.astype(np.int64), OUTSIDE)

    @cached_property
    def _cell_of(self) -> dict[Any, int]:
        cells: dict[Any, int] = {label: cell for cell, label in enumerate(self.labels)}
        if self.by == "day":
            cells |= {day: cell for cell, day in enumerate(self._periods.tolist())}
        if self.by == "year":
            cells |= {int(label): cell for cell, label in enumerate(self.labels)}
        return cells

    def position(self, value: Any) -> int | None:
        """The cell of a value as a range names it, or None."""
        return self._cell_of.get(value) if type(value) in (str, int, datetime.date) else None

    def spec(self) -> Any:
        """As a spec file writes it."""
        return {"dates": [self.first.isoformat(), self.last.isoformat()], "by": self.by}


def _given(end: Any) -> datetime.date:
    if type(end) is datetime.date:
        return end
    day = _parsed(end) if isinstance(end, str) else None
    if day is None:
        raise DomainError(f"{end!r} is no date; write it as a date or as '2020-12-31'")
    return day


def day_of_text(text: str) -> int | None:
    """Days since 1970-01-01 of the day that text names, 2020-12-31, also if a time of that day
    without a zone follows, 2020-12-31T23:59:59.5; else None.
    """
    match = _ISO.fullmatch(text)
    day = _parsed(match[1]) if match else None
    return None if day is None else day.toordinal() - _EPOCH


def _parsed(text: str) -> datetime.date | None:
    """The day that text of the form 2020-12-31 names."""
    if not _ISO_DAY.fullmatch(text):
        return None
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        return None


def _day(value: Any) -> int | None:
    """Days since 1970-01-01; None for null and for text that names no day. Raises DataError."""
    if value is None or value != value:
        return None
    if isinstance(value, str):
        return day_of_text(value)
    if isinstance(value, np.datetime64):
        return int(value.astype("M8[D]").astype(np.int64))
    if getattr(value, "tzinfo", None) is not None:
        raise DataError(wrong_type(datetime.date, "times of a zone, whose day depends on the zone"))
    if not isinstance(value, datetime.date):
        raise DataError(wrong_type(datetime.date, type(value).__name__))
    return value.toordinal() - _EPOCH


_EPOCH = datetime.date(1970, 1, 1).toordinal()
