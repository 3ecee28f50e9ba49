"""The day of a time is one, in memory and in files, whatever holds it: against Python's calendar.

A time of a year that Python's calendar does not have is no value, as it is in every column.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import dask
import numpy as np
import opendp.prelude as dp
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather as pf
import pyarrow.parquet as pq
import pytest

import fitplug as fp
import fitplug_dask as fpd
import fitplug_opendp as fpo
from fitplug.domain import get_codec
from fitplug_dask.encoding import convert_values
from tests.helpers.opendp_spaces import features  # noqa: F401
from tests.helpers.sources import count_rows

EPOCH = datetime.date(1970, 1, 1)
TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
INT64 = range(-(2**63) + 1, 2**63)

YEARS = fp.Dates("0001-01-01", "9999-12-31", by="year")
CLAMPED = fp.Measure("1600-01-01", "2300-01-01", other="none")
DOMAIN = fp.Domain({"year": YEARS, "day": CLAMPED})
TABLES = [("year",), ("day",)]

FIRST, LAST = -719_162, 2_932_896  # of the years 1 and 9999
SECONDS = [
    86_400 * day + second
    for day in (0, -1, FIRST, FIRST - 1, LAST, LAST + 1, -107_000, 106_000, 18_262, 2**31, -(2**31))
    for second in (0, 1, 43_200, 86_399)
]


def find_day(seconds: int) -> datetime.date | None:
    try:
        return EPOCH + datetime.timedelta(days=seconds // 86_400)
    except OverflowError:
        return None


def expected(days: list[datetime.date | None]) -> dict[tuple[str, ...], Any]:
    """Counts by year; and shares of a measure of dates, the last ones those without a value."""
    years, shares = np.zeros(9999, int), np.zeros(3, int)
    first, last = datetime.date(1600, 1, 1), datetime.date(2300, 1, 1)
    for day in days:
        if day is None:
            shares[2] += get_codec(CLAMPED).shares
            continue
        years[day.year - 1] += 1
        above = (min(max(day, first), last) - first).days
        shares[:2] += [get_codec(CLAMPED).shares - above, above]
    return {("year",): years, ("day",): shares}


def arrays(ticks: list[int | None], unit: str) -> Iterator[tuple[str, Any]]:
    """Arrow's arrays of these ticks, with null for None."""
    held = pa.array(ticks, pa.int64()).cast(pa.timestamp(unit))
    yield "array", held
    yield "dictionary", held.dictionary_encode()


def columns(ticks: list[int | None], unit: str) -> Iterator[tuple[str, Any]]:
    """Columns in memory of these ticks, with null for None."""
    given = np.array([-(2**63) if t is None else t for t in ticks]).view(f"M8[{unit}]")
    yield "NumPy", given
    yield "NumPy, other bytes", given.astype(given.dtype.newbyteorder(">"))
    yield "list", [*given]
    yield "objects", np.array([*given, None], dtype=object)[:-1]
    yield "pandas", pd.Series(given)
    yield "pandas, categorical", pd.Series(given).astype("category")
    yield "pandas, objects", pd.Series([*pd.Series(given)], dtype=object)
    for name, array in arrays(ticks, unit):
        yield f"Arrow, {name}", array
        yield f"Arrow, {name} in chunks", pa.chunked_array([array[:5], array[5:]])
    yield "pandas of Arrow", pd.Series(array.dictionary_decode(), dtype=pd.ArrowDtype(held(unit)))
    if unit != "s":
        yield "Polars", pl.Series(ticks, dtype=pl.Int64).cast(pl.Datetime(unit))


def held(unit: str) -> Any:
    return pa.timestamp(unit)


def count_in_memory(column: Any) -> Any:
    return [fp.Tables.from_records(DOMAIN, {n: column}, [(n,)])[(n,)] for n in DOMAIN.names]


def count_source(source: Any, **keywords: Any) -> Any:
    counted = [count_rows(source(n), (DOMAIN, [(n,)]), **keywords) for n in DOMAIN.names]
    return [one[(n,)] for one, n in zip(counted, DOMAIN.names, strict=True)]


def count_lazily(column: Any) -> Any:
    tables = []
    for name in DOMAIN.names:
        frame = pl.LazyFrame({name: column})
        asked = "sum" if name == "day" else "identity"
        workload = fp.Workload(DOMAIN, [fp.queries({name: asked}, std=1e6)])
        plan = fp.design(workload, tolerance=0.1)
        space = dp.domain_of(frame, infer=True), dp.symmetric_distance()
        tables.append(fpo.make_tables(*space, plan)(frame)[(name,)])
    return tables


def assert_counts(found: Any, days: list[datetime.date | None], what: str) -> None:
    for counts, wanted in zip(found, expected(days).values(), strict=True):
        np.testing.assert_array_equal(counts, wanted, err_msg=what)


def draw(unit: str) -> tuple[list[int | None], list[datetime.date | None]]:
    """Ticks of a unit, with the ends of its range and null, and the days of them."""
    ticks = [s * TICKS[unit] for s in SECONDS] + [INT64[0], INT64[-1], -(2**62), 2**62]
    kept = [t for t in ticks if t in INT64]
    return [*kept, None], [*(find_day(t // TICKS[unit]) for t in kept), None]


@pytest.mark.parametrize("unit", TICKS)
def test_times_in_memory(unit: str) -> None:
    ticks, days = draw(unit)
    for what, column in columns(ticks, unit):
        assert_counts(count_in_memory(column), days, what)


@pytest.mark.parametrize("unit", TICKS)
def test_times_in_files(unit: str, tmp_path: Path) -> None:
    ticks, days = draw(unit)
    for what, array in arrays(ticks, unit):
        for suffix, write in ((".parquet", pq.write_table), (".arrow", pf.write_feather)):
            if suffix == ".parquet" and unit == "s":
                continue  # which Parquet does not have
            paths = {}
            for name in DOMAIN.names:
                paths[name] = tmp_path / f"{what}-{name}{suffix}"
                write(pa.table({name: array}), paths[name])
            assert_counts(count_source(paths.__getitem__), days, what + suffix)
        assert_counts(count_source(lambda name, a=array: pa.table({name: a})), days, what)
    series = pd.Series(np.array([-(2**63) if t is None else t for t in ticks]).view(f"M8[{unit}]"))
    objects = pd.Series([*series], dtype=object)
    numbers = pd.Series(np.array([*series.to_numpy(), None], dtype=object)[:-1])
    for column in (series, objects, numbers):
        frames = {n: [dask.delayed(pd.DataFrame({n: column}))] for n in DOMAIN.names}
        assert_counts(count_source(frames.__getitem__), days, "pandas of a task")


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_times_of_lazy_frames(unit: str) -> None:
    ticks, days = draw(unit)
    column = pl.Series(ticks, dtype=pl.Int64).cast(pl.Datetime(unit))
    assert_counts(count_lazily(column), days, "LazyFrame")


def test_dates(tmp_path: Path) -> None:
    numbers = [0, -1, FIRST, FIRST - 1, LAST, LAST + 1, 2**31 - 1, -(2**31), None]
    days = [None if n is None else find_day(86_400 * n) for n in numbers]
    short = pa.array(numbers, pa.int32()).cast(pa.date32())
    wide = pa.array([None if n is None else n * 86_400_000 for n in numbers], pa.int64())
    series = pl.Series(numbers, dtype=pl.Int32).cast(pl.Date)
    of_numpy = np.array([-(2**63) if n is None else n for n in numbers]).view("M8[D]")
    for column in (short, wide.cast(pa.date64()), short.dictionary_encode(), series, of_numpy):
        assert_counts(count_in_memory(column), days, str(type(column)))
        if isinstance(column, pa.Array):
            sources = {n: pa.table({n: column}) for n in DOMAIN.names}
            assert_counts(count_source(sources.__getitem__), days, str(column.type))
            for name in DOMAIN.names:
                pq.write_table(sources[name], tmp_path / f"{name}.parquet")
            path = tmp_path / "{}.parquet"
            assert_counts(count_source(lambda n: str(path).format(n)), days, str(column.type))  # noqa: B023
    assert_counts(count_lazily(series), days, "LazyFrame")
    known = [day for day in days if day is not None]
    moments = [datetime.datetime.combine(day, datetime.time(23, 59)) for day in known]
    for plain in (
        known,
        moments,
        [str(day) for day in known],
        [f" {day}T23:59\t" for day in known],
    ):
        assert_counts(count_in_memory(plain), known, "list")
    mixed = [np.datetime64("9999-01-01"), np.datetime64(1, "ns")]  # NumPy wraps the first
    assert_counts(count_in_memory(mixed), [datetime.date(9999, 1, 1), EPOCH], "several units")


@pytest.mark.parametrize("type_", ["M8[h]", "M8[m]", "M8[25s]", "M8[2D]", "M8[7ms]"])
def test_other_units_of_numpy(type_: str) -> None:
    ticks = [0, 1, -1, 2**62, -(2**62), 2**63 - 1, 10**9, -(10**7), 35_000]
    step = np.timedelta64(np.array(1).astype(type_.replace("M", "m")), "ms").astype(int)
    days = [find_day(t * int(step) // 1000) for t in ticks]
    assert_counts(count_in_memory(np.array(ticks).view(type_)), days, type_)


@pytest.mark.parametrize(
    "type_",
    [pa.time32("s"), pa.time64("us"), pa.duration("ms"), pa.timestamp("us", "UTC")],
    ids=str,
)
def test_types_that_have_no_day_are_refused_whatever_they_hold(type_: Any) -> None:
    for values in ([None], [0], [2**62], []):
        fits = [v if v is None or type_.bit_width == 64 else v % 2**31 for v in values]
        column = pa.array(fits, pa.int64()).cast(
            pa.int32() if type_.bit_width == 32 else pa.int64()
        )
        array = column.cast(type_)
        held = [array, array.dictionary_encode(), pl.from_arrow(array)]
        held.append(pd.Series(array, dtype=pd.ArrowDtype(type_)))
        for attribute in (YEARS, CLAMPED, fp.Integers(0, 9), fp.Bins([0, 1])):
            domain = fp.Domain({"x": attribute})
            for one in held:
                with pytest.raises(fp.DataError, match=r"column 'x': the (type|column)") as caught:
                    fp.Tables.from_records(domain, {"x": one}, [("x",)])
                assert str(2**62) not in str(caught.value)
            with pytest.raises(fp.DataError, match="column 'x' has the type"):
                fpd.count(pa.table({"x": array}), (domain, [("x",)]))


ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Pacific/Apia", "Asia/Kathmandu"]


def find_local_day(seconds: int, zone: str) -> datetime.date | None:
    """By Python, which fails near the ends of its calendar; what repeats does so in 400 years."""
    shift = 0 if abs(seconds) < 50 * 10**9 else 146_097 * (1 if seconds > 0 else -1)
    moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc) + datetime.timedelta(
        days=-shift, seconds=seconds
    )
    local = moment.astimezone(ZoneInfo(zone)).date()
    return find_day(86_400 * ((local - EPOCH).days + shift))


@pytest.mark.parametrize("zone", ZONES)
def test_times_with_a_zone(zone: str, tmp_path: Path) -> None:
    """Summer time goes on after 2037, where the tables of zones end; years end at 1 and 9999."""
    rng = np.random.default_rng(len(zone))
    seconds = [86_400 * day + h * 3600 for day in (0, FIRST, LAST + 1) for h in range(-30, 31)]
    seconds += [int(s) for s in rng.integers(2 * 10**9, 2 * 10**11, 3000)]
    midnights = [86_400 * int(d) for d in rng.integers(20_000, 2_900_000, 500)]
    seconds += [m - h * 3600 - 1800 for m in midnights for h in (-2, -1, 4, 5)]
    days = [find_local_day(s, zone) for s in seconds]
    for unit in ("s", "us"):
        array = pa.array([s * TICKS[unit] for s in seconds], pa.timestamp(unit, "Asia/Tokyo"))
        sources = {n: pa.table({n: array}) for n in DOMAIN.names}
        assert_counts(count_source(sources.__getitem__, zone=zone), days, unit)
        shown = convert_values(array, datetime.date, zone).cast(pa.int64()).to_pylist()
        assert [find_day(t // TICKS[unit]) for t in shown] == days


def test_a_far_time_does_not_agree_with_the_day_of_its_folder(tmp_path: Path) -> None:
    """2**32 days later a date of 32 bits would be the same."""
    folder = tmp_path / "day=1970-01-02"
    folder.mkdir()
    times = [86_400, 86_400 + 43_200, 86_400 * (1 + 2**32), 0, 2**62, None]
    for suffix, array in (("a", pa.array(times, pa.timestamp("s"))), ("b", pa.nulls(2))):
        pf.write_feather(
            pa.table({"day": array, "x": ["1"] * len(array)}), folder / f"{suffix}.arrow"
        )
    domain = fp.Domain({"day": fp.Dates("1970-01-01", "1970-01-03"), "x": ["1"]})
    assert fpd.count(tmp_path, (domain, [("day", "x")]))["day", "x"].tolist() == [[0], [2], [0]]
