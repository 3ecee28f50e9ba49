"""Decimals, whole floats, times with a zone, missing columns and repeated keys, against DuckDB,
Python's exact decimals and zoneinfo.
"""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fitplug as fp
import fitplug_dask as fpd
from fitplug.errors import DataError, DomainError
from fitplug_dask.encoding import convert_values

INT64 = range(-(2**63), 2**63)
DIGITS = {
    "few": lambda rng: int(rng.integers(-999, 1000)),
    "many": lambda rng: int(rng.integers(-(10**17), 10**17)),
    "most": lambda rng: int(rng.integers(-(2**62), 2**62)) * 10**18 + int(rng.integers(10**18)),
    "ends": lambda rng: (
        int(rng.choice([2**53, 2**63 - 1, 2**63, 2**64])) * int(rng.choice([-1, 1]))
    ),
}


def as_integer(value: Decimal | None) -> int | None:
    if value is None or value != value.to_integral_value():
        return None
    return int(value) if int(value) in INT64 else None


def draw_decimals(digits: str, scale: int) -> tuple[Any, list[Decimal | None]]:
    rng = np.random.default_rng([ord(digits[0]), scale])
    drawn = [DIGITS[digits](rng) for _ in range(200)] + [0, 1, 10 ** max(0, scale) * 7]
    values = [Decimal(d).scaleb(-scale) if abs(d) < 10**38 else Decimal(0) for d in drawn]
    held = [None, *values, None]
    return pa.array(held, pa.decimal128(38, scale)), held


@pytest.mark.parametrize("digits", DIGITS)
@pytest.mark.parametrize("scale", [0, 1, 9, 10, 20, 38])
def test_decimals_are_the_integers_and_nearest_floats_of_python(digits: str, scale: int) -> None:
    column, held = draw_decimals(digits, scale)
    for start in (0, 3):
        part, wanted = column.slice(start), held[start:]
        assert convert_values(part, int).to_pylist() == [as_integer(v) for v in wanted]
        floats = convert_values(part, float).to_pylist()
        assert floats == [None if v is None else float(Fraction(v)) for v in wanted]


@pytest.mark.parametrize("scale", [-30, -19, -18, -3, 0, 2, 15, 22])
@pytest.mark.parametrize("precision", [1, 15, 16, 18, 19, 20, 38])
def test_decimals_of_every_precision(precision: int, scale: int) -> None:
    rng = np.random.default_rng([precision, scale + 30])
    drawn = [int("".join(map(str, rng.integers(0, 10, precision)))) for _ in range(50)]
    near = [e // 10 ** max(0, -scale) + d for e in (2**63, 2**53, 10**15) for d in (-1, 0, 1)]
    near += [10 ** max(0, scale) * n for n in near]
    digits = [0, 1, 10**precision - 1, *drawn, *(n for n in near if n < 10**precision)]
    signed = [sign * n for n in digits for sign in (1, -1)]
    values = [Fraction(n) / Fraction(10) ** scale for n in signed]
    whole = pa.array([None, *map(Decimal, signed)], pa.decimal128(precision, 0))
    column = whole.view(pa.decimal128(precision, scale))
    assert convert_values(column, int).to_pylist() == [
        None,
        *(int(v) if v.denominator == 1 and int(v) in INT64 else None for v in values),
    ]
    assert convert_values(column, float).to_pylist() == [None, *map(float, values)]


@pytest.mark.parametrize("width", [pa.decimal32(9, 2), pa.decimal64(18, 2), pa.decimal128(5, -2)])
def test_decimals_of_other_widths(width: Any) -> None:
    values = [Decimal(700), Decimal(-500), None, Decimal(0)]
    column = pa.array(values, width)
    assert convert_values(column, int).to_pylist() == [700, -500, None, 0]
    assert convert_values(column, float).to_pylist() == [700, -500, None, 0]
    if pa.types.is_decimal128(width):
        column = column.dictionary_encode()
        assert convert_values(column, int).to_pylist() == [700, -500, None, 0]
    assert convert_values(column[:0], int).to_pylist() == []


@pytest.mark.parametrize("width", [np.float16, np.float32, np.float64])
def test_floats_that_are_whole_are_integers(width: type) -> None:
    held = [1.0, -0.0, 2.5, math.nan, math.inf, -math.inf, 1e3, None]
    column = pa.array(
        np.array([0 if v is None else v for v in held], width),
        mask=np.array([v is None for v in held]),
    )
    assert convert_values(column, int).to_pylist() == [1, 0, None, None, None, None, 1000, None]
    wide = pa.array([2.0**63, -(2.0**63), 2.0**62, 1e300])
    assert convert_values(wide, int).to_pylist() == [None, -(2**63), 2**62, None]


def test_a_table_of_decimals_and_floats_counts_as_in_duckdb(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    n = 2000
    ages = [None if u < 0.1 else float(u * 130 // 1) for u in rng.random(n)]
    ages[::9] = [a if a is None else a + 0.5 for a in ages[::9]]
    pay = [None if u < 0.1 else Decimal(int(u * 50_000)).scaleb(-2) for u in rng.random(n)]
    code = [Decimal(int(u * 20)).scaleb(-1) for u in rng.random(n)]
    table = pa.table(
        {
            "age": ages,
            "pay": pa.array(pay, pa.decimal128(12, 2)),
            "code": pa.array(code, pa.decimal128(38, 10)),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    domain = fp.Domain(
        {"age": fp.Integers(0, 115), "pay": fp.Bins([0, 0.1, 100, 250.25, 400]), "code": [0, 1]}
    )
    counted = fpd.count(tmp_path, (domain, [("age",), ("pay", "code")]))
    rows = duckdb.sql(
        f"""SELECT age::INT, CASE WHEN pay < 0.1 THEN 0 WHEN pay < 100 THEN 1 WHEN pay < 250.25
        THEN 2 ELSE 3 END, code::INT, count(*) FROM '{tmp_path}/a.parquet' WHERE age = floor(age)
        AND age BETWEEN 0 AND 115 AND pay < 400 AND code IN (0, 1) GROUP BY ALL"""
    ).fetchall()
    age, pays = np.zeros(116, int), np.zeros((4, 2), int)
    for a, p, c, held in rows:
        age[a] += held
        pays[p, c] += held
    assert pays.sum() > 50
    np.testing.assert_array_equal(counted[("age",)], age)
    np.testing.assert_array_equal(counted[("pay", "code")], pays)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/St_Johns", "Pacific/Apia", "UTC"])
def test_the_day_of_a_time_is_that_of_the_zone(tmp_path: Path, unit: str, zone: str) -> None:
    rng = np.random.default_rng(len(zone))
    seconds = rng.integers(-2_000_000_000, 2_000_000_000, 500).tolist()
    seconds += [1325239200 + 3600 * h for h in range(-48, 48)]  # Samoa left out a day
    ticks = [s * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit] for s in seconds]
    column = pa.array([*ticks, None], pa.timestamp(unit, "Asia/Tokyo"))
    pq.write_table(pa.table({"day": column}), tmp_path / "a.parquet", version="2.6")
    days = fp.Dates("1900-01-01", "2040-12-31", by="day")
    wanted = (fp.Domain({"day": days}), [("day",)])
    counted = fpd.count(fp.Source(tmp_path, zone=zone), wanted)[("day",)]
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    expected = np.zeros(days.size, int)
    for s in seconds:
        local = (epoch + datetime.timedelta(seconds=s)).astimezone(ZoneInfo(zone)).date()
        expected[(local - datetime.date(1900, 1, 1)).days] += 1
    np.testing.assert_array_equal(counted, expected)


def test_times_beyond_all_calendars_are_outside(tmp_path: Path) -> None:
    for unit in ("s", "ms", "us", "ns"):
        ends = [-(2**63) + 1, 2**63 - 1, 0]
        column = pa.array(ends, pa.timestamp(unit, "UTC"))
        assert convert_values(column, datetime.date, "Asia/Tokyo")[2].is_valid
        batch = pa.table({"day": column})
        wanted = (fp.Domain({"day": fp.Dates("1970-01-01", "1970-01-01")}), [("day",)])
        assert fpd.count(fp.Source(batch, zone="Asia/Tokyo"), wanted)[("day",)].sum() == 1


def test_a_zone_is_needed_and_exists(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"day": pa.array([0], pa.timestamp("s", "UTC"))}), tmp_path / "a.parquet"
    )
    wanted = (fp.Domain({"day": fp.Dates("1970-01-01", "1970-12-31")}), [("day",)])
    with pytest.raises(DataError, match='set the time zone, such as zone="'):
        fpd.count(tmp_path, wanted)
    with pytest.raises(DomainError, match="not a time zone"):
        fpd.count(fp.Source(tmp_path, zone="Europe/Nowhere"), wanted)
    day = datetime.date(1970, 1, 1)
    assert (
        fpd.count(
            fp.Source(tmp_path, where={"day": day}, zone="UTC"), (fp.Domain({"a": ["1"]}), [()])
        )[()]
        == 1
    )


DOMAIN = fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 9)})
BOTH = (DOMAIN, [("sex", "age")])


@pytest.fixture
def two_files(tmp_path: Path) -> Path:
    pq.write_table(
        pa.table({"sex": ["1", "2", "2"], "id": ["a", "b", "c"]}), tmp_path / "a.parquet"
    )
    pq.write_table(
        pa.table(
            {"sex": ["1", "2", "2"], "age": [3, 4, None], "n": [5, 6, 7], "id": ["a", "b", "c"]}
        ),
        tmp_path / "b.parquet",
    )
    return tmp_path


def test_a_missing_column_has_the_value_that_is_given(two_files: Path) -> None:
    with pytest.raises(DataError, match=r"a\.parquet has no column 'age'"):
        fpd.count(two_files, BOTH)
    counted = fpd.count(fp.Source(two_files, missing={"age": 9}), BOTH)[("sex", "age")]
    assert counted[:, 9].tolist() == [1, 2]
    assert counted.sum() == 5
    assert fpd.count(fp.Source(two_files, missing={"age": None}), BOTH)[("sex", "age")].sum() == 2
    person = fpd.count(
        fp.Source(two_files, missing={"age": 9}, person="id"), BOTH, unit=fp.AddRemove(1)
    )
    assert person[("sex", "age")].sum() == 3
    alone = (DOMAIN, [("sex",)])
    assert (
        fpd.count(fp.Source(two_files, missing={"age": 3}, where={"age": 3}), alone)[("sex",)].sum()
        == 4
    )
    weighted = fpd.count(fp.Source(two_files, missing={"n": 10}, weight="n"), alone)[("sex",)]
    assert weighted.tolist() == [15, 33]
    assert (
        fpd.count(fp.Source(two_files, missing={"n": None}, weight="n"), alone)[("sex",)].sum()
        == 18
    )


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        ({"age": 10}, "which is not in its domain"),
        ({"age": "9"}, "which is not in its domain"),
        ({"agee": 9}, "which is not counted. Did you mean 'age'"),
        ({"id": "a"}, "'missing' cannot set 'id', which identifies persons"),
    ],
)
def test_what_stands_for_a_missing_column_is_checked(
    two_files: Path, missing: dict[str, Any], says: str
) -> None:
    for call in (fpd.count, fpd.preview):
        limit: Any = {"unit": fp.AddRemove(1)} if call is fpd.count else {}
        with pytest.raises(DomainError, match=says):
            call(fp.Source(two_files, missing=missing, person="id"), BOTH, **limit)


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_rows_that_contradict_their_folder_are_in_no_table(tmp_path: Path, suffix: str) -> None:
    domain = fp.Domain(
        {"sex": ["1", "2"], "age": fp.Integers(0, 9), "day": fp.Dates("2020-01-01", "2020-01-09")}
    )
    folder = tmp_path / "age=07" / "day=2020-01-03"
    folder.mkdir(parents=True)
    day = datetime.date(2020, 1, 3)
    ages = [7, 7, 8, None, 7]
    days = [day, day, day, day, datetime.date(2020, 1, 4)]
    table = pa.table({"sex": ["1", "2", "1", "1", "1"], "age": ages, "day": days})
    if suffix == ".csv":
        lines = [
            f"{s},{'' if a is None else a},{d}"
            for s, a, d in zip(*table.to_pydict().values(), strict=True)
        ]
        (folder / "a.csv").write_text("\n".join(["sex,age,day", *lines, ""]))
    else:
        pq.write_table(table, folder / "a.parquet")
    counted = fpd.count(tmp_path, (domain, [("sex", "age", "day")]))[("sex", "age", "day")]
    assert counted.sum() == 2
    assert counted[:, 7, 2].tolist() == [1, 1]
    # A key that nothing counts is not read.
    assert fpd.count(tmp_path, (domain, [("sex",)]))[("sex",)].tolist() == [4, 1]
    only = fpd.count(fp.Source(tmp_path, where={"age": 7}), (domain, [("sex",)]))
    assert only[("sex",)].tolist() == [2, 1]


def test_persons_may_be_decimals(tmp_path: Path) -> None:
    ids = [Decimal(5), Decimal(5), Decimal(6), None]
    wanted = (DOMAIN, [("sex",)])
    for number, digits in enumerate((10, 38)):
        folder = tmp_path / str(number)
        folder.mkdir()
        table = {"sex": ["1"] * 4, "id": pa.array(ids, pa.decimal128(digits, 0))}
        pq.write_table(pa.table(table), folder / "a.parquet")
        counted = fpd.count(fp.Source(folder, person="id"), wanted, unit=fp.AddRemove(1))
        assert counted[("sex",)].tolist() == [2, 0]
        pq.write_table(pa.table({"sex": ["1"], "id": [5]}), folder / "b.parquet")
        if digits == 10:
            again = fpd.count(fp.Source(folder, person="id"), wanted, unit=fp.AddRemove(1))
            assert again[("sex",)].tolist() == [2, 0]
        else:
            with pytest.raises(DataError, match="Store person identifiers as one type"):
                fpd.count(fp.Source(folder, person="id"), wanted, unit=fp.AddRemove(1))


@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
@pytest.mark.parametrize("place", ["local", "store"])
def test_text_of_every_encoding_is_counted(tmp_path: Path, encoding: str, place: str) -> None:
    """Arrow makes no dictionaries of some, and says so as it says that a file is damaged."""
    table = pa.table({"sex": ["m", "f", None, "m"] * 100})
    how: dict[str, Any] = {"use_dictionary": False, "column_encoding": {"sex": encoding}}
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=150, **how)
    path = str(tmp_path / "a.parquet")
    if place == "store":
        system = fsspec.filesystem("memory")
        path = f"memory://encodings/{encoding}.parquet"
        system.pipe(path, (tmp_path / "a.parquet").read_bytes())
    counted = fpd.count(path, (fp.Domain({"sex": ["f", "m"]}), [("sex",)]))
    assert counted["sex"].tolist() == [100, 200]
