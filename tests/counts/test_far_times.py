"""Times that no date of Python can be are values like others, and no error tells of them."""

from __future__ import annotations

import datetime

import numpy as np
import pytest

import fitplug as fp

pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")

DAYS = fp.Domain({"day": fp.Dates("1969-12-31", "1970-01-02")})
VALUES = fp.Domain({"day": fp.Measure("1969-12-31", "1970-01-02", other="none")})
HALF_DAY = {"s": 43_200, "ms": 43_200 * 10**3, "us": 43_200 * 10**6, "ns": 43_200 * 10**9}
FAR = [2**62, -(2**62), 2**63 - 1, -(2**63) + 2**47]  # NumPy wraps what is within a day of -2**63


def columns(unit, far):
    """Half a day before and after 1970-01-01, one and a half days later, a far time and null."""
    half = HALF_DAY[unit]
    given = np.array([-half, half, 3 * half, far], dtype=np.int64).view(f"M8[{unit}]")
    yield given
    yield pd.Series([*given, None], dtype=f"M8[{unit}]")
    yield pa.array([*given.view(np.int64).tolist(), None], pa.int64()).cast(pa.timestamp(unit))
    if unit != "s":
        numbers = pl.Series([*given.view(np.int64).tolist(), None])
        yield numbers.cast(pl.Datetime(unit))


@pytest.mark.parametrize("unit", HALF_DAY)
@pytest.mark.parametrize("far", FAR)
def test_far_times(unit, far):
    for column in columns(unit, far):
        named = {"day": column}
        counts = fp.Tables.from_records(DAYS, named, [("day",)])["day",]
        assert counts.tolist() == [1, 1, 1]
        counts = fp.Tables.from_records(VALUES, named, [("day",)])["day",]
        # In units of a day from the first bound: 0, 1 and 2. Nanoseconds reach to the years 1677
        # and 2262, which are clamped; other far times are no dates, and have no value.
        is_date = unit == "ns"
        units = 3 + 2 * (is_date and far > 0)
        valued = 3 + is_date
        assert counts.tolist() == [2 * valued - units, units, 2 * (len(column) - valued)]


@pytest.mark.parametrize("far", [2**31 - 1, -(2**31)])
def test_far_dates(far):
    for column in (
        pl.Series([-1, 0, far, None], dtype=pl.Int32).cast(pl.Date),
        pa.array([-1, 0, far, None], pa.int32()).cast(pa.date32()),
    ):
        counts = fp.Tables.from_records(DAYS, {"day": column}, [("day",)])["day",]
        assert counts.tolist() == [1, 1, 0]


def test_times_of_a_zone_are_refused_as_before():
    moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    for column in (
        pl.Series([moment]),
        pa.array([moment], pa.timestamp("us", tz="UTC")),
        pd.Series([moment]),
    ):
        with pytest.raises(fp.DataError, match="zone"):
            fp.Tables.from_records(DAYS, {"day": column}, [("day",)])


def test_a_filter_reads_them_too():
    moments = pl.Series([0, 2**62], dtype=pl.Int64).cast(pl.Datetime("ms"))
    where = {"day": datetime.date(1970, 1, 1)}
    counted = fp.Tables.from_records(DAYS, {"day": moments}, [("day",)], where=where)
    assert counted["day",].tolist() == [0, 1, 0]
