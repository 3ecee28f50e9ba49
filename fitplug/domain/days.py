"""Days: counted from 1970-01-01, by one rule for records in memory and in files.

Days lie in the years 1 to 9999 of Python's calendar, the proleptic Gregorian one. A time of another
year has no day, so it is outside every domain: it neither wraps nor becomes an existing day. The
least 64-bit integer is not a time either: it is NaT in NumPy and pandas.
"""

from __future__ import annotations

import datetime
import math
import re
from typing import Any

import numpy as np

from fitplug.numeric import BoolArray, IntArray

EPOCH = datetime.date(1970, 1, 1).toordinal()

_FIRST, _LAST = datetime.date.min.toordinal() - EPOCH, datetime.date.max.toordinal() - EPOCH

NO_DAY = _FIRST - 1
"""An integer that is not a day."""

_TICKS_A_DAY = {"D": 1, "h": 24, "m": 1440} | {
    unit: 86_400 * 10**digits for unit, digits in (("s", 0), ("ms", 3), ("us", 6), ("ns", 9))
}
"""The number of units of time in a day, by their names in NumPy, Arrow and Polars."""

_NOT_A_TIME = -(2**63)
_MOST_STEP = 100  # NumPy's types may count, for example, in steps of 25 seconds

_ISO_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_WRITTEN_TIME = re.compile(
    r"(?:(?P<year>[0-9]{4})(?P<between>[-/.])(?P<month>[0-9]{1,2})(?P=between)(?P<day>[0-9]{1,2})"
    r"|(?P<first>[0-9]{1,2})(?P<sign>[-/.])(?P<second>[0-9]{1,2})(?P=sign)(?P<last>[0-9]{4}))"
    r"(?:[ T](?P<hours>[01]?[0-9]|2[0-3]):(?P<minutes>[0-5][0-9])"
    r"(?::(?P<seconds>[0-5][0-9])(?:\.[0-9]+)?)?(?: ?[AP]M)?"
    r"(?: ?(?P<offset>Z|UTC|[+-][0-9]{2}(?::?[0-5][0-9](?::?[0-5][0-9])?)?))?)?"
)
"""A day, or a time of day, in the forms of ISO 8601, databases and spreadsheets, with or without an
offset.

The year comes first or last. In dates with points and the year last, the day is the first number.
In 1/2/2020, only the writer knows which number is the day, so one of FORMATS must be declared.
"""

FORMATS = ("m/d/y", "d/m/y")
"""The order of numbers in dates such as 1/2/2020 or 1-2-2020."""

BLANKS = " \t"
"""Characters around the text of a number or a date that are ignored."""

NULLS = ("NA", "N/A", "<NA>", "NaN", "nan", "NULL", "null", "None", "NaT", ".")
"""Texts that programs write for null."""


def find_days(ticks: IntArray, unit: str, step: int = 1) -> tuple[IntArray, BoolArray]:
    """Find the days of times.

    Args:
        ticks: Times since 1970-01-01, shape (n,).
        unit: The unit of the times, one that `has_days` allows.
        step: The number of units per tick.

    Returns:
        Days since 1970-01-01 (n,), and whether each time has a day (n,). The day of a time without
        one is meaningless.
    """
    shared = math.gcd(step, _TICKS_A_DAY[unit])
    step, a_day = step // shared, _TICKS_A_DAY[unit] // shared
    # Clipped times are beyond all days, and the products below fit into 64 bits.
    most = min((_LAST + 2) * a_day // step + 1, (2**63 - 1) // step)
    days = np.clip(ticks, -most, most) * np.int64(step) // np.int64(a_day)
    return days, (ticks != _NOT_A_TIME) & (days >= _FIRST) & (days <= _LAST)


def has_days(unit: str, step: int = 1) -> bool:
    """Return whether times in a unit of NumPy, with `step` units per tick, have days."""
    return unit in _TICKS_A_DAY and step <= _MOST_STEP


def find_day(value: Any) -> int | None:
    """Find the day of a date, or of a time without a zone, of Python, pandas or NumPy.

    Returns:
        Days since 1970-01-01; None for a year outside Python's calendar.

    Raises:
        TypeError: The value has the wrong type, or its day depends on a zone.
    """
    if isinstance(value, np.datetime64):
        unit, step = np.datetime_data(value.dtype)
        if not has_days(unit, step):
            raise TypeError
        days, are_days = find_days(np.array([value]).view(np.int64), unit, step)
        return int(days[0]) if are_days[0] else None
    if not isinstance(value, datetime.date) or getattr(value, "tzinfo", None) is not None:
        raise TypeError
    try:
        return value.toordinal() - EPOCH
    except (NotImplementedError, ValueError, OverflowError):  # pandas has times of other years
        return None


def parse_date(text: str) -> datetime.date | None:
    """Convert text of the form 2020-12-31 to the date that it names, if it names one."""
    if not _ISO_DAY.fullmatch(text):
        return None
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        return None


def parse_day(text: str, date_format: str | None = None) -> int | None:
    """Find the day that text shows.

    Args:
        text: A date, 2020-12-31, or a time of a day, 2020-12-31T23:59:59.5. A time with an offset,
            such as 2020-12-31T23:59Z, shows the day on a clock with this offset. Dates may also be
            2020/12/31, 2020.12.31 or 31.12.2020, with or without leading zeros. Blanks around it
            are ignored.
        date_format: One of FORMATS, to read 12/31/2020 or 31/12/2020; with None, dates that begin
            with a day or month must have points.

    Returns:
        Days since 1970-01-01, or None if the text has another form or names no day.
    """
    match = _WRITTEN_TIME.fullmatch(text.strip(BLANKS))
    return None if match is None else _find_written_day(match, date_format)


def _find_written_day(match: re.Match[str], date_format: str | None = None) -> int | None:
    """Find the day of a match of _WRITTEN_TIME, if there is such a day."""
    names = "year month day" if match["year"] else "last second first"
    if match["sign"] in ("/", "-"):
        if date_format is None:
            return None
        names = "last first second" if date_format == "m/d/y" else names
    try:
        return datetime.date(*map(int, match.group(*names.split()))).toordinal() - EPOCH
    except ValueError:
        return None


def parse_moment(text: str) -> int | None:
    """Find the moment of a time with an offset.

    Args:
        text: A time as `parse_day` reads it.

    Returns:
        Whole seconds since 1970-01-01T00:00Z. None for text that has no offset or is not a time.
    """
    match = _WRITTEN_TIME.fullmatch(text.strip(BLANKS))
    day = None if match is None else _find_written_day(match)
    if match is None or day is None or match["offset"] is None:
        return None
    offset = 0
    if match["offset"] not in ("Z", "UTC"):
        digits = match["offset"][1:].replace(":", "").ljust(6, "0")
        offset = _count_seconds(digits[:2], digits[2:4], digits[4:])
        offset = -offset if match["offset"][0] == "-" else offset
    return 86_400 * day + _count_seconds(*match.group("hours", "minutes", "seconds")) - offset


def _count_seconds(hours: str, minutes: str, seconds: str | None) -> int:
    return 3600 * int(hours) + 60 * int(minutes) + int(seconds or 0)
