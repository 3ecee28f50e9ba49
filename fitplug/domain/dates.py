"""Dates: an ordered cell for each day, month or year of a part of the calendar."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fitplug.domain.attribute import Attribute, Codec
from fitplug.domain.days import (
    BLANKS,
    EPOCH,
    NO_DAY,
    find_day,
    find_days,
    has_days,
    parse_date,
    parse_day,
)
from fitplug.domain.encoder import Codes, describe_wrong_type
from fitplug.domain.spec_form import SpecForm, read_ends
from fitplug.errors import DataError, DomainError
from fitplug.numeric import AnyArray, IntArray, frozen_property

_NUMPY_UNITS = {"day": "D", "month": "M", "year": "Y"}
"""The periods that a cell may be, and how NumPy calls them."""

_STEPS: dict[str, Any] = {by: np.ones((), f"m8[{unit}]")[()] for by, unit in _NUMPY_UNITS.items()}
"""From one period to the next, for NumPy."""

_COARSER = {"day": "month", "month": "year"}

_LABELS = {"month": re.compile(r"[0-9]{4}-[0-9]{2}"), "year": re.compile(r"[0-9]{4}")}
"""How a month and a year are labelled. The label of a day is the day itself."""

_FIRST_DAYS = {"month": "-01", "year": "-01-01"}
"""What makes the text of a period's first day of its label."""


@dataclass(frozen=True, init=False)
class Dates(Attribute):
    """The days from `first` to `last`, with a cell for each day, month or year among them.

        fp.Dates("1920-01-01", "2020-12-31", by="year")

    Rows hold dates, times without a zone, which count as their date, or text such as 2020-12-31,
    2020/12/31, 31.12.2020 or 2020-12-31T23:59:59. By month, text may also be 2020-12, and by year
    2020. A text with an offset, such as 2020-12-31T23:59:59Z, counts as the date that it shows.
    Other days, times of years before 1 or after 9999, and text of another form, such as 12/31/2020,
    are outside. Tables show cells
    as ISO 8601 does: 2020-12-31, 2020-12 or 2020. Ranges name these labels, or days as
    datetime.date, or years as integers. The calendar is the proleptic Gregorian one.

    Args:
        first: The first day, as a date or as text, "2020-12-31". It must begin a period. The label
            of a month or year, by month or by year, means the first day of it.
        last: The last day, included in the domain. It must end a period. A label means the last day
            of it.
        by: The period of a cell: "day", "month" or "year".
        other: Label of one more cell, the last, which takes null and everything that is outside. It
            is in no prefix or range, unless the range names it.

    Raises:
        DomainError: If there is no such day, if there is no day between the ends, if they cut a
            period apart, or if `other` names a period.
    """

    first: datetime.date
    last: datetime.date
    by: str
    other: str | None

    def __init__(
        self,
        first: datetime.date | str,
        last: datetime.date | str,
        by: str = "day",
        other: str | None = None,
    ) -> None:
        if by not in _NUMPY_UNITS:
            raise DomainError(f"by = {by!r} must be 'day', 'month' or 'year'")
        ends = [_read_date(first, by), _read_date(last, by, at_end=True)]
        if ends[1] < ends[0]:
            raise DomainError(
                f"the last date, {ends[1]}, is before the first, {ends[0]}. Swap them."
            )
        unit = f"M8[{_NUMPY_UNITS[by]}]"
        low, high = (np.datetime64(end, "D") for end in ends)
        begins = low.astype(unit).astype("M8[D]")
        stops = (high.astype(unit) + _STEPS[by]).astype("M8[D]") - _STEPS["day"]
        if (begins, stops) != (low, high):
            raise DomainError(
                f"{low} to {high} does not consist of whole {by}s. Use {begins} to {stops}."
            )
        object.__setattr__(self, "first", ends[0])
        object.__setattr__(self, "last", ends[1])
        object.__setattr__(self, "by", by)
        object.__setattr__(self, "other", other)
        self._check_other()

    @property
    def _value_count(self) -> int:
        """Number of periods."""
        return len(_list_periods(self))

    @property
    def values(self) -> Sequence[Any]:
        """The periods as ISO 8601 writes them, in their order."""
        return tuple(map(str, _list_periods(self)))


class DatesCodec(Codec, kind=Dates):
    """What the rooms of fitplug ask of `Dates`."""

    attribute: Dates
    spec_form: ClassVar[SpecForm] = SpecForm(
        "{ dates = [first, last], by = 'year' }", names=("dates",), optional=("by",)
    )
    value_type: ClassVar[type] = datetime.date
    is_ordered: ClassVar[bool] = True

    @property
    def days(self) -> tuple[int, int]:
        """The first and the last day, in days since 1970-01-01."""
        first, last = (
            np.datetime64(end, "D").astype(np.int64)
            for end in (self.attribute.first, self.attribute.last)
        )
        return int(first), int(last)

    @frozen_property
    def periods(self) -> npt.NDArray[np.datetime64]:
        """The day, month or year of each cell, shape (value_count,)."""
        return _list_periods(self.attribute)

    @property
    def integer_span(self) -> tuple[int, int] | None:
        """The days since 1970-01-01 before the first day and after the last."""
        first, last = self.days
        return first - 1, last + 1

    def codes(self, values: npt.ArrayLike) -> Codes:
        """Compute the codes of dates.

        Args:
            values: Dates, times without a zone, text and nulls, shape (n,). Numbers are refused,
                as none of them should become a date silently.

        Returns:
            The cells (n,), `null_code` for other days, for text that is no date and for null.

        Raises:
            DataError: If a value has another type, or is a time of a zone.
        """
        if isinstance(values, (list, tuple)):
            # NumPy would convert times of several units to the finest, in which far ones wrap.
            values = np.array([*values, None], dtype=object)[:-1]
        array = np.asarray(values)
        if not array.size:
            return np.zeros(0, dtype=np.int64)
        if array.dtype.kind == "M" and has_days(*np.datetime_data(array.dtype)):
            ticks = array.astype(array.dtype.newbyteorder("=")).view(np.int64)
            days, are_days = find_days(ticks, *np.datetime_data(array.dtype))
            return self.codes_of_days(np.where(are_days, days, NO_DAY))
        if array.dtype.kind not in "OUT":
            raise DataError(describe_wrong_type(datetime.date, str(array.dtype)))
        days_or_none = [_count_days(value, self.attribute.by) for value in array.tolist()]
        return self.codes_of_days(
            np.array([NO_DAY if day is None else day for day in days_or_none], dtype=np.int64)
        )

    def codes_of_numbers(self, numbers: AnyArray) -> Codes:
        """Compute the codes of days since 1970-01-01.

        Args:
            numbers: Integers, shape (n,).

        Returns:
            The cells (n,), `null_code` for other days.
        """
        return self.codes_of_days(numbers)

    def codes_of_days(self, days: IntArray) -> Codes:
        """Compute the codes of days.

        Args:
            days: Days since 1970-01-01, shape (n,).

        Returns:
            The cells (n,), `null_code` for days outside.
        """
        first, last = self.days
        inside = (days >= first) & (days <= last)
        near = np.where(inside, days, first).astype("M8[D]")
        cells = near.astype(self.periods.dtype) - self.periods[0]
        return np.where(inside, cells.astype(np.int64), self.null_code)

    @cached_property
    def _cell_of(self) -> dict[Any, int]:
        cells: dict[Any, int] = {label: cell for cell, label in enumerate(self.values)}
        if self.attribute.by == "day":
            cells |= {day: cell for cell, day in enumerate(self.periods.tolist())}
        if self.attribute.by == "year":
            cells |= {int(label): cell for cell, label in enumerate(self.values)}
        return cells

    def find_end(self, value: Any) -> int | None:
        """Find the cell of a label; also of a date if cells are days, of an integer if years."""
        return self._cell_of.get(value) if type(value) in (str, int, datetime.date) else None

    def remedy(self, names: str) -> str:
        """Say that longer periods are fewer, as long as there are longer ones."""
        coarser = _COARSER.get(self.attribute.by)
        return f"{names} by {coarser}" if coarser else f"fewer years of {names}"

    def spec(self) -> Any:
        """Describe the attribute as a spec file writes it."""
        ends = [self.attribute.first.isoformat(), self.attribute.last.isoformat()]
        return {"dates": ends, "by": self.attribute.by, **self._spec_of_other()}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Dates:
        """Make the attribute of a table such as `{ dates = ["1920-01-01", "2020-12-31"] }`."""
        first, last = read_ends(spec, "dates", "dates, [first, last]")
        return Dates(first, last, by=spec.get("by", "day"), other=spec.get("other"))


def _list_periods(dates: Dates) -> npt.NDArray[np.datetime64]:
    unit = f"M8[{_NUMPY_UNITS[dates.by]}]"
    first, last = (np.datetime64(end, "D").astype(unit) for end in (dates.first, dates.last))
    return np.arange(first, last + _STEPS[dates.by])


def _parse_label(text: str, by: str) -> datetime.date | None:
    """Convert the label of a month or year to its first day, if periods are labelled so."""
    form = _LABELS.get(by)
    return parse_date(text + _FIRST_DAYS[by]) if form and form.fullmatch(text) else None


def _read_date(end: Any, by: str, *, at_end: bool = False) -> datetime.date:
    """Read an end of the domain: a date, its text, or the label of a period that has this end."""
    if type(end) is datetime.date:
        return end
    day = parse_date(end) if isinstance(end, str) else None
    if day is None and isinstance(end, str):
        day = _parse_label(end, by)
        if day is not None and at_end:
            period = np.datetime64(day, "D").astype(f"M8[{_NUMPY_UNITS[by]}]")
            day = ((period + _STEPS[by]).astype("M8[D]") - _STEPS["day"]).item()
    if day is None:
        label = {"month": ", or a month such as '2020-12'", "year": ", or a year such as '2020'"}
        raise DomainError(
            f"{end!r} is not a date. Use a datetime.date or text such as "
            f"'2020-12-31'{label.get(by, '')}."
        )
    return day


def _count_days(value: Any, by: str) -> int | None:
    """Count the days since 1970-01-01; None for null and for text that names no day or period.

    Raises:
        DataError: The value is neither a day nor text, or its day depends on a zone.
    """
    if value is None or value != value:
        return None
    if isinstance(value, str):
        day = parse_day(value)
        if day is None and by != "day":
            label = value.strip(BLANKS)
            if by == "year":  # a column of years with nulls, written as floats
                label = label.removesuffix(".0")
            first = _parse_label(label, by)
            day = None if first is None else first.toordinal() - EPOCH
        return day
    try:
        return find_day(value)
    except TypeError:
        zoned = getattr(value, "tzinfo", None) is not None
    kind = "times of a zone, whose day depends on the zone" if zoned else type(value).__name__
    raise DataError(describe_wrong_type(datetime.date, kind))
