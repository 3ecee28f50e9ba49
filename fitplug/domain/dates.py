"""Dates: an ordered cell for each day, week, month, quarter or year of a part of the calendar.

A period is an integer: the number of days, weeks, months, quarters or years since that of
1970-01-01.
"""

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
    FORMATS,
    NO_DAY,
    find_day,
    find_days,
    has_days,
    parse_date,
    parse_day,
)
from fitplug.domain.encoder import Codes, describe_wrong_type
from fitplug.domain.spec_form import SpecForm, read_ends
from fitplug.errors import DataError, DomainError, suggest_nearest
from fitplug.numeric import AnyArray, IntArray, frozen_property

_MONTHS = {"month": 1, "quarter": 3, "year": 12}
"""The number of months of each period that consists of months."""

_DAYS = {"day": 1, "week": 7}
"""The number of days of each other period."""

_PERIODS = ("day", "week", "month", "quarter", "year")

_MONDAY = datetime.date(1969, 12, 29).toordinal() - EPOCH
"""The first day of the week of 1970-01-01, from which weeks are counted."""

_COARSER = {"day": "month", "week": "quarter", "month": "quarter", "quarter": "year"}

_LABELS = {
    "week": re.compile(r"([0-9]{4})-?W([0-9]{2})"),
    "month": re.compile(r"([0-9]{4})-([0-9]{2})"),
    "quarter": re.compile(r"([0-9]{4})[- ]?Q([1-4])"),
    "year": re.compile(r"([0-9]{4})"),
}
"""The text that names a period. The label of a day is the day itself."""

_EXAMPLES = {"week": "2020-W53", "month": "2020-12", "quarter": "2020-Q4", "year": "2020"}


@dataclass(frozen=True, init=False)
class Dates(Attribute):
    """The days from `first` to `last`, with a cell for each day, week, month, quarter or year.

        fp.Dates("1920-01-01", "2020-12-31", by="year")

    Rows may hold dates, times without a zone (which count as their day), or text such as
    2020-12-31, 2020/12/31, 31.12.2020 or 2020-12-31T23:59:59. Text may also be the label of a cell,
    or 2020Q4 and 2020W53 for quarters and weeks. A text with an offset, such as
    2020-12-31T23:59:59Z, counts as the date that it shows. Everything else is outside the domain:
    other days, years before 1 or after 9999, and text of another form, such as 12/31/2020. Tables
    show cells as ISO 8601 does: 2020-12-31, 2020-W53, 2020-12 or 2020; and quarters as SDMX does,
    2020-Q4. In a query, each end of a range is the label of a cell, a day (datetime.date) or a year
    (an integer). The calendar is the proleptic Gregorian one; weeks are those of ISO 8601, which
    begin on Mondays.

    Args:
        first: The first day, as a date or as text, "2020-12-31". It must be the first day of a
            period. The label of a period stands for its first day: "2020-12" with `by="month"` is
            2020-12-01.
        last: The last day, included in the domain. It must be the last day of a period. The label
            of a period stands for its last day.
        by: The period that each cell covers: "day", "week", "month", "quarter" or "year".
        other: Label of an extra last cell for null and all other values. "prefix" counts leave this
            cell out, and a range includes it only if the upper end of the range is this label.
        date_format: "m/d/y" if text such as 1/2/2020 or 1-2-2020 is January 2, as in the
            United States; "d/m/y" if it is February 1; None if such text is outside the domain.

    Raises:
        DomainError: If an argument is not valid, `last` is before `first`, `first` does not begin a
            period, `last` does not end a period, or `other` is also the label of a period.
    """

    first: datetime.date
    last: datetime.date
    by: str
    other: str | None
    date_format: str | None

    def __init__(
        self,
        first: datetime.date | str,
        last: datetime.date | str,
        by: str = "day",
        other: str | None = None,
        date_format: str | None = None,
    ) -> None:
        if date_format not in (None, *FORMATS):
            raise DomainError(
                f"date_format must be {' or '.join(map(repr, FORMATS))}, not {date_format!r}"
            )
        if by not in _PERIODS:
            raise DomainError(f"unknown period by = {by!r}. {suggest_nearest(str(by), _PERIODS)}")
        ends = (_read_date(first, by), _read_date(last, by, at_end=True))
        if ends[1] < ends[0]:
            raise DomainError(
                f"the last date, {ends[1]}, is before the first, {ends[0]}. Swap them."
            )
        days = np.array([end.toordinal() - EPOCH for end in ends])
        begins, _ = _find_bounds(days[:1], by)
        _, stops = _find_bounds(days[1:], by)
        if [*begins, *stops] != [*days]:
            raise DomainError(
                f"{ends[0]} to {ends[1]} does not consist of whole {by}s. Use "
                f"{np.datetime64(int(begins[0]), 'D')} to {np.datetime64(int(stops[0]), 'D')}."
            )
        object.__setattr__(self, "first", ends[0])
        object.__setattr__(self, "last", ends[1])
        object.__setattr__(self, "by", by)
        object.__setattr__(self, "other", other)
        object.__setattr__(self, "date_format", date_format)
        self._check_other()

    @property
    def _value_count(self) -> int:
        """Number of periods."""
        return len(_list_periods(self))

    @property
    def values(self) -> Sequence[Any]:
        """The labels of the periods, in their order."""
        return tuple(_name_periods(_list_periods(self), self.by))


class DatesCodec(Codec, kind=Dates):
    """The codec of `Dates`."""

    attribute: Dates
    spec_form: ClassVar[SpecForm] = SpecForm(
        "{ dates = [first, last], by = 'year' }",
        names=("dates",),
        required=("by",),
        optional=("date_format",),
    )
    value_type: ClassVar[type] = datetime.date
    is_ordered: ClassVar[bool] = True

    @property
    def days(self) -> tuple[int, int]:
        """The first and the last day, in days since 1970-01-01."""
        return self.attribute.first.toordinal() - EPOCH, self.attribute.last.toordinal() - EPOCH

    @frozen_property
    def periods(self) -> IntArray:
        """The period of each cell, as `_find_periods` numbers them, shape (value_count,)."""
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
                so that none silently becomes a date.

        Returns:
            The cells (n,), `null_code` for other days, for text that is not a date and for null.

        Raises:
            DataError: If a value has another type, or is a time with a zone.
        """
        if isinstance(values, (list, tuple)):
            # NumPy would convert times of several units to the finest, in which distant ones wrap.
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
        days_or_none = [self.count_days(value) for value in array.tolist()]
        return self.codes_of_days(
            np.array([NO_DAY if day is None else day for day in days_or_none], dtype=np.int64)
        )

    def count_days(self, value: Any) -> int | None:
        """Count the days since 1970-01-01; None for null and for text that names no day or period.

        Raises:
            DataError: The value is neither a day nor text, or its day depends on a zone.
        """
        if value is None or value != value:
            return None
        if isinstance(value, str):
            by, day = self.attribute.by, parse_day(value, self.attribute.date_format)
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
        near = _find_periods(np.where(inside, days, first), self.attribute.by)
        return np.where(inside, near - self.periods[0], self.null_code)

    @cached_property
    def _cell_of(self) -> dict[Any, int]:
        cells: dict[Any, int] = {label: cell for cell, label in enumerate(self.values)}
        if self.attribute.by == "day":
            dates = self.periods.astype("M8[D]").tolist()
            cells |= {day: cell for cell, day in enumerate(dates)}
        if self.attribute.by == "year":
            cells |= {int(label): cell for cell, label in enumerate(self.values)}
        return cells

    def find_end(self, value: Any) -> int | None:
        """Find the cell of a label, of a date if cells are days, or of an integer if years."""
        return self._cell_of.get(value) if type(value) in (str, int, datetime.date) else None

    def suggest(self, value: Any, *, end: bool = False) -> str:
        """Name the first and the last period: the nearest date is seldom the intended one."""
        return f"Its values are {self.values[0]} to {self.values[-1]}."

    def remedy(self, names: str) -> str:
        """Suggest longer periods, or fewer years if there are no longer ones."""
        coarser = _COARSER.get(self.attribute.by)
        return f"{names} by {coarser}" if coarser else f"fewer years of {names}"

    def spec(self) -> Any:
        """Describe the attribute as a spec file writes it."""
        ends = [self.attribute.first.isoformat(), self.attribute.last.isoformat()]
        form = self.attribute.date_format
        known = {} if form is None else {"date_format": form}
        return {"dates": ends, "by": self.attribute.by, **known, **self._spec_of_other()}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Dates:
        """Make the attribute of a table such as `{ dates = ["1920", "2020"], by = "year" }`."""
        first, last = read_ends(spec, "dates", "dates, [first, last]")
        given = {key: spec[key] for key in ("other", "date_format") if key in spec}
        return Dates(first, last, spec["by"], **given)


def _list_periods(dates: Dates) -> IntArray:
    """List the periods of an attribute, in order."""
    ends = [dates.first.toordinal() - EPOCH, dates.last.toordinal() - EPOCH]
    first, last = _find_periods(np.array(ends), dates.by)
    return np.arange(first, last + 1)


def _find_periods(days: IntArray, by: str) -> IntArray:
    """Number the periods of days since 1970-01-01, shape (n,)."""
    if by in _DAYS:
        return (days - (_MONDAY if by == "week" else 0)) // _DAYS[by]
    months = days.astype("M8[D]").astype("M8[M]").astype(np.int64)
    return np.asarray(months // _MONTHS[by])


def _find_first_days(periods: IntArray, by: str) -> IntArray:
    """Find the first day of each period, in days since 1970-01-01, shape (n,)."""
    if by in _DAYS:
        return periods * _DAYS[by] + (_MONDAY if by == "week" else 0)
    months = (periods * _MONTHS[by]).astype("M8[M]")
    return months.astype("M8[D]").astype(np.int64)


def _find_bounds(days: IntArray, by: str) -> tuple[IntArray, IntArray]:
    """Find the first and the last day of the period of each day, shapes (n,)."""
    periods = _find_periods(days, by)
    return _find_first_days(periods, by), _find_first_days(periods + 1, by) - 1


def _name_periods(periods: IntArray, by: str) -> list[str]:
    """Write the label of each period, (n,)."""
    if by == "quarter":
        return [f"{1970 + n // 4:04}-Q{n % 4 + 1}" for n in periods.tolist()]
    days = _find_first_days(periods, by).astype("M8[D]")
    if by == "week":
        return ["{:04}-W{:02}".format(*day.isocalendar()[:2]) for day in days.tolist()]
    return [str(label) for label in days.astype(f"M8[{by[0].upper()}]")]


def _parse_label(text: str, by: str) -> datetime.date | None:
    """Convert the label of a period to its first day; None for other text, and by day."""
    match = _LABELS[by].fullmatch(text) if by in _LABELS else None
    if match is None:
        return None
    year, number = int(match[1]), int(match[2]) if by != "year" else 1
    try:
        if by == "week":
            return datetime.date.fromisocalendar(year, number, 1)
        return datetime.date(year, (number - 1) * _MONTHS[by] + 1, 1)
    except ValueError:
        return None


def _read_date(end: Any, by: str, *, at_end: bool = False) -> datetime.date:
    """Read an end of the domain: a date, its text, or the label of a period that has this end."""
    if type(end) is datetime.date:
        return end
    day = parse_date(end) if isinstance(end, str) else None
    if day is None and isinstance(end, str):
        day = _parse_label(end, by)
        if day is not None and at_end:
            _, stops = _find_bounds(np.array([day.toordinal() - EPOCH]), by)
            day = stops.astype("M8[D]").tolist()[0]
    if day is None or type(day) is not datetime.date:
        label = f", or a {by} such as {_EXAMPLES[by]!r}" if by in _EXAMPLES else ""
        raise DomainError(
            f"{end!r} is not a date. Use a datetime.date or text such as '2020-12-31'{label}."
        )
    return day
