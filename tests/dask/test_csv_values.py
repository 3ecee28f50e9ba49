"""CSV files that other programs write count as the same rows do in Parquet files and in memory."""

from __future__ import annotations

import datetime
import gzip
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

import dask
import dask.dataframe as dd
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

import fitplug as fp
import fitplug_dask as fpd
from fitplug.domain import get_codec
from fitplug_dask.encoding import parse_text
from fitplug_dask.files import csv_text
from tests.helpers.sources import count_rows

DOMAIN = fp.Domain(
    {
        "age": fp.Integers(0, 99),
        "code": fp.Categories([1, 20, 3_000_000_000], other="rest"),
        "pay": fp.Bins([-10, 0, 0.5, 9e15]),
        "worth": fp.Measure(-100, 100, other="none"),
        "born": fp.Dates("1960", "1980", by="year"),
        "adult": [True, False],
        "name": fp.Categories(["a", "b "], other="rest"),
    }
)
Counts: TypeAlias = dict[tuple[str, ...], Any]
TABLES = [(name,) for name in DOMAIN.names]
ROWS = 400


def draw(values: list[Any], seed: int, nulls: bool = True) -> list[Any]:
    rng = np.random.default_rng(seed)
    held = [*values, None] if nulls else values
    return [held[i] for i in rng.integers(0, len(held), ROWS)]


def make_columns() -> dict[str, list[Any]]:
    days = [datetime.date(1959, 12, 31), datetime.date(1960, 1, 1), datetime.date(1980, 7, 1)]
    return {
        "age": draw([0, 34, 99, 100, -1], 1),
        "code": draw([1, 20, 3_000_000_000, 2**62], 2),
        "pay": draw([-10.0, -0.0, 0.25, 1e16, 5e-324, 1e17, 8e15], 3),
        "worth": draw([1e300, -1e300, float("inf"), float("-inf"), 12.25], 4),
        "born": draw(days, 5),
        "adult": draw([True, False], 6),
        "name": draw(["a", "b ", "b", " a"], 7),
        "n": draw([0, 1, 7], 8),
    }


def write_by_pandas(columns: dict[str, list[Any]], path: Path) -> None:
    frame = pd.DataFrame(columns)
    assert frame["age"].dtype == frame["n"].dtype == np.float64  # as 34.0
    frame.to_csv(path, index=False)
    assert "34.0" in path.read_text()


def write_by_polars(columns: dict[str, list[Any]], path: Path) -> None:
    pl.DataFrame(columns).write_csv(path)


def write_by_arrow(columns: dict[str, list[Any]], path: Path) -> None:
    pc.write_csv(pa.table(columns), path)


def write_by_duckdb(columns: dict[str, list[Any]], path: Path) -> None:
    held = pa.table(columns)
    with duckdb.connect() as connection:
        connection.register("held", held)
        connection.execute(f"COPY held TO '{path}' (HEADER)")


WRITERS: list[Callable[[dict[str, list[Any]], Path], None]] = [
    write_by_pandas,
    write_by_polars,
    write_by_arrow,
    write_by_duckdb,
]


def assert_equal(found: Counts, wanted: Counts) -> None:
    for names in TABLES:
        np.testing.assert_array_equal(found[names], wanted[names], err_msg=str(names))


def count_each(source: Any, **keywords: Any) -> Counts:
    """Each table by itself, as a row that is outside of one is not counted."""
    return {t: count_rows(source, (DOMAIN, [t]), **keywords)[t] for t in TABLES}


def count_in_memory(columns: Any, **keywords: Any) -> Counts:
    return {t: fp.Tables.from_records(DOMAIN, columns, [t], **keywords)[t] for t in TABLES}


@pytest.mark.parametrize("write", WRITERS)
def test_files_of_other_programs(write: Any, tmp_path: Path) -> None:
    columns = make_columns()
    write(columns, tmp_path / "a.csv")
    expected = count_in_memory(columns)
    assert_equal(count_each(tmp_path / "a.csv"), expected)
    assert min(expected[("age",)][[0, 34, 99]]) > 30
    # Pandas makes floats of integers in this frame, and strings of nothing.
    pd.DataFrame(columns).to_parquet(tmp_path / "a.parquet")
    assert_equal(count_each(tmp_path / "a.parquet"), expected)
    weighted = count_in_memory(columns, weights="n")
    assert_equal(count_each(tmp_path / "a.csv", weight="n"), weighted)
    years = [None if day is None else day.year for day in columns["born"]]
    write(columns | {"born": years}, tmp_path / "a.csv")
    assert fpd.count(tmp_path / "a.csv", (DOMAIN, [("born",)]))["born"].sum() > ROWS / 3
    np.testing.assert_array_equal(
        fpd.count(tmp_path / "a.csv", (DOMAIN, [("born",)]))["born"], expected[("born",)]
    )


def test_blanks_around_numbers_and_dates_mean_nothing_and_text_is_itself(tmp_path: Path) -> None:
    columns = make_columns() | {"name": draw(["a", "b ", "b", " a"], 7, nulls=False)}
    texts = {
        name: ["" if v is None else str(v) if name == "name" else f" \t{v} " for v in values]
        for name, values in columns.items()
    }
    pd.DataFrame(texts).to_csv(tmp_path / "a.csv", index=False)
    assert_equal(count_each(tmp_path / "a.csv"), count_in_memory(columns))


NUMERALS = r"[ \t]{0,2}[+-]?[0-9]{0,4}\.?[0-9]{0,3}([eE][+-]?[0-9]{1,3})?[ \t]{0,2}"


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(text=st.from_regex(NUMERALS, fullmatch=True) | st.text(" +-.e0159x_", max_size=6))
def test_numerals_are_those_of_the_decimal_module(text: str) -> None:
    try:
        value = None if "_" in text else Decimal(text.strip(" \t"))
    except InvalidOperation:
        value = None
    assert parse_text(float, text) == (None if value is None else float(value))
    whole = value is not None and value == value.to_integral_value()
    assert parse_text(int, text) == (int(value) if whole and value is not None else None)


def test_numerals_of_any_length_are_read_in_no_time() -> None:
    assert parse_text(int, "1e999999999999") > 2**100
    assert parse_text(int, "-1e" + "9" * 5000) < -(2**100)
    assert parse_text(int, "1e-" + "9" * 5000) is None
    assert parse_text(int, "1" + "0" * 6000 + "e-6000") == 1
    assert parse_text(int, "7e" + "0" * 30 + "1") == 70
    assert parse_text(int, "0" * 6000 + "7." + "0" * 6000) == 7
    assert parse_text(int, "." + "0" * 6000 + "7e6001") == 7


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", ["2,b", '2,"b"', "2,", '"2","x\ny"'])
@pytest.mark.parametrize("block", [2**9, 2**22])
def test_the_last_line_needs_no_end(
    tmp_path: Path, suffix: str, end: str, last: str, block: int, monkeypatch: Any
) -> None:
    monkeypatch.setattr(csv_text, "_BLOCK_BYTES", block)
    eol = end or "\n"
    wanted = (fp.Domain({"x": fp.Integers(0, 2)}), [("x",)])
    for rows in (0, 1, 127, 128, 129, 300):
        text = eol.join(["x,y", *["1,a"] * rows, last]) + end
        raw = text.encode()
        path = tmp_path / f"a{suffix}"
        path.write_bytes(gzip.compress(raw) if suffix == ".csv.gz" else raw)
        assert fpd.count(path, wanted)["x"].tolist() == [0, rows, 1]
        assert len(pd.read_csv(path)) == rows + 1
    plain = eol.join(["x", "1", "2", "1"]) + end
    (tmp_path / "b.csv").write_bytes(plain.encode())
    assert fpd.count(tmp_path / "b.csv", wanted)["x"].tolist() == [0, 2, 1]
    (tmp_path / "b.csv").write_bytes(b"x" + end.encode())
    assert fpd.count(tmp_path / "b.csv", wanted)["x"].tolist() == [0, 0, 0]


DAYS = fp.Domain(
    {"day": fp.Dates("1899-12-30", "2101-01-01"), "span": fp.Measure("1950-01-01", "2050-01-01")}
)
BERLIN = ZoneInfo("Europe/Berlin")


def draw_moments() -> list[datetime.datetime]:
    rng = np.random.default_rng(5)
    start = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    seconds = rng.integers(-2_200_000_000, 4_000_000_000, 300)
    return [start + datetime.timedelta(seconds=int(s)) for s in seconds]


def write_times(moments: list[datetime.datetime], path: Path) -> dict[str, list[str]]:
    """The moments as text, by who writes them."""
    column = pa.array(moments, pa.timestamp("us", "UTC"))
    berlin = [moment.astimezone(BERLIN) for moment in moments]
    pd.DataFrame({"x": pd.Series(berlin)}).to_csv(path / "pandas.csv", index=False)
    pl.DataFrame({"x": pl.from_arrow(column).dt.convert_time_zone("Asia/Tokyo")}).write_csv(
        path / "polars.csv"
    )
    pc.write_csv(pa.table({"x": column}), path / "arrow.csv")
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'America/St_Johns'")
        connection.register("held", pa.table({"x": column}))
        connection.execute(f"COPY held TO '{path}/duckdb.csv' (HEADER)")
    texts = {
        name: pd.read_csv(path / f"{name}.csv", dtype=str)["x"].tolist()
        for name in ("pandas", "polars", "arrow", "duckdb")
    }
    texts["Python"] = [moment.isoformat() for moment in berlin]
    texts["Z"] = [f"{moment:%Y-%m-%dT%H:%M:%SZ}" for moment in moments]
    texts["BigQuery"] = [f"{moment:%Y-%m-%d %H:%M:%S} UTC" for moment in moments]
    return texts


def count_days(source: Any, zone: str | None) -> list[Any]:
    return [fpd.count(fp.Source(source, zone=zone), (DAYS, [(n,)]))[(n,)] for n in DAYS.names]


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "UTC"])
def test_times_with_an_offset_are_read_as_times_with_a_zone(zone: str, tmp_path: Path) -> None:
    moments = draw_moments()
    column = pa.array(moments, pa.timestamp("us", "UTC"))
    expected = count_days(pa.table({"day": column, "span": column}), zone)
    assert expected[0].sum() > 200
    local = [moment.astimezone(ZoneInfo(zone)).date() for moment in moments]
    in_memory = fp.Tables.from_records(DAYS, {"day": local, "span": local}, [("day",)])
    np.testing.assert_array_equal(expected[0], in_memory["day",])
    objects = pd.Series([m.astimezone(BERLIN) for m in moments], dtype=object)
    frames = [dask.delayed(pd.DataFrame({"day": objects, "span": objects}))]
    for found, wanted in zip(count_days(frames, zone), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    for who, texts in write_times(moments, tmp_path).items():
        held = pa.array([*texts, None, "2020-01-01T25:00Z", "2020-02-30 10:00+01"])
        table = pa.table({"day": held, "span": held})
        pc.write_csv(table, tmp_path / "a.csv")
        pq.write_table(table, tmp_path / "a.parquet")
        pq.write_table(table, tmp_path / "b.parquet", use_dictionary=False)
        for source in (tmp_path / "a.csv", tmp_path / "a.parquet", tmp_path / "b.parquet", table):
            for found, wanted in zip(count_days(source, zone), expected, strict=True):
                np.testing.assert_array_equal(found, wanted, err_msg=who)


def test_without_a_zone_the_day_is_the_one_that_the_text_shows(tmp_path: Path) -> None:
    """In memory as in files; text without an offset is the same with a zone as without one."""
    texts = ["2020-01-01T23:30:00Z", "2020-01-01 23:30+14:00", "2020-01-01T00:00:00.5-1130"]
    texts += ["2020-01-02 00:00:00 UTC", "2020-01-02", "2020-01-02T23:59:59", "2020-01-02+01:00"]
    wanted = (fp.Domain({"day": fp.Dates("2020-01-01", "2020-01-02")}), [("day",)])
    (tmp_path / "a.csv").write_text("\n".join(["day", *texts]))
    assert fpd.count(tmp_path / "a.csv", wanted)["day"].tolist() == [3, 3]
    assert fp.Tables.from_records(wanted[0], {"day": texts}, [("day",)])["day",].tolist() == [3, 3]
    assert fpd.count(fp.Source(tmp_path / "a.csv", zone="Asia/Tokyo"), wanted)["day"].tolist() == [
        2,
        4,
    ]


def test_a_zone_moves_days_out_of_the_calendar(tmp_path: Path) -> None:
    texts = ["0001-01-01T00:30:00+05:00", "9999-12-31T23:30:00-05:00", "9999-12-31T23:30:00Z"]
    wide = fp.Domain({"day": fp.Dates("0001-01-01", "9999-12-31", by="year")})
    (tmp_path / "a.csv").write_text("\n".join(["day", *texts]))
    counted = fpd.count(fp.Source(tmp_path / "a.csv", zone="UTC"), (wide, [("day",)]))["day"]
    assert (counted.sum(), counted[-1]) == (1, 1)


def test_a_person_is_one_however_programs_write_its_number(tmp_path):
    """pandas writes 34 in a month without nulls, and 34.0 in one with a null."""
    ids = [34, 34, 7, -2, 10**15, 0]
    months = {"a": [*ids], "b": [*ids, None]}
    for name, own in months.items():
        frame = pd.DataFrame({"id": own, "age": [1] * len(own)})
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    assert "34.0" in (tmp_path / "b.csv").read_text()
    assert "34.0" not in (tmp_path / "a.csv").read_text()
    (tmp_path / "c.csv").write_text(
        'id,age\n 34 ,1\n+7,1\n"34.",1\n007,1\n1e+15,1\n34.5,1\nx34.0,1\n\xff,1\n" ",1\n'
    )
    counted = fpd.count(
        fp.Source(tmp_path, person="id"),
        (DOMAIN, [("age",)]),
        unit=fp.AddRemove(1),
        person_key=b"0" * 16,
    )
    # The five numbers, and three texts that are none. Blank text is nobody.
    assert counted["age"].sum() == 5 + 3


EXCEL = {
    "2020-12-31": "2020-12-31 0:00",
    "2020/12/31": "2020/12/31 9:05",
    "31.12.2020": "31.12.2020 23:59",
    "2020.1.9": "9.1.2020 9:05:30",
}
"""Days and times as spreadsheets write them in several countries, without doubt about the day."""
DOUBTFUL = ["12/31/2020", "1/2/2020", "2020-12/31", "31.12.20", "2020-13-01", "32.1.2020", "1.2020"]


def test_dates_are_read_where_there_is_no_doubt(tmp_path: Path) -> None:
    domain = fp.Domain({"day": fp.Dates("2020-01-01", "2020-12-31")})
    texts = [text for pair in EXCEL.items() for text in pair]
    lines = "\r\n".join(["day", *texts, *DOUBTFUL])
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbf" + lines.encode())
    for zone in (None, "Europe/Berlin"):
        counted = fp.count(fp.Source(tmp_path / "a.csv", zone=zone), (domain, [("day",)]))["day"]
        assert (counted[-1], counted[8], counted.sum()) == (6, 2, 8)
    assert fp.Tables.from_records(domain, {"day": texts}, [("day",)])["day"].sum() == 8


@pytest.mark.parametrize(("date_format", "cells"), [("m/d/y", [0, 1]), ("d/m/y", [1, 0])])
def test_a_declared_format_reads_dates_with_slashes(
    date_format: str, cells: list[int], tmp_path: Path
) -> None:
    dates = fp.Dates("2020-01", "2020-02", by="month", date_format=date_format)
    domain = fp.Domain({"day": dates})
    assert fp.Domain.from_spec(domain.spec()) == domain
    plain = fp.Dates("2020-01", "2020-02", by="month")
    assert get_codec(dates).digest != get_codec(plain).digest  # other cells for the same text
    alike = ["2020-01-31", "2020-01", "1.2.2020", "2020/2/1"]
    texts = ["1/2/2020", "1-2-2020 9:05", "01/02/2020 12:00:00 AM", *alike, "13/13/2020", "1/2/20"]
    (tmp_path / "a.csv").write_text("\n".join(["day", *texts]))
    expected = [2, 2]
    expected[cells[0]] += 3
    wanted = (domain, [("day",)])
    assert fp.count(tmp_path / "a.csv", wanted)["day"].tolist() == expected
    assert fp.Tables.from_records(domain, {"day": texts}, [("day",)])["day"].tolist() == expected


UNREAD = [
    ("1/2/2020", {"dates": ["2020", "2021"], "by": "year"}, "such as 1/2/2020.*Add date_format"),
    ("2/1/20 9:05", {"dates": ["2020", "2021"], "by": "year"}, "years of two digits"),
    ("31JAN2020", {"dates": ["2020", "2021"], "by": "year"}, "such as 31JAN2020"),
    ("Jan 31, 2020", {"dates": ["2020", "2021"], "by": "year"}, "such as Jan 31, 2020"),
    ("20200131", {"dates": ["2020", "2021"], "by": "year"}, "such as 20200131"),
    ("31JAN2020:13:45:00", {"dates": ["2020", "2021"], "by": "year"}, "such as 31JAN2020"),
    (
        "31jan2020 13:45:00",
        {"dates": ["2020-01-01", "2020-12-31"], "by": "day"},
        "such as 31JAN2020",
    ),
    ("31. 1. 2020", {"dates": ["2020-01-01", "2020-12-31"], "by": "day"}, r"such as 31\. 1\. 2020"),
    ("44197", {"dates": ["2020-01-01", "2020-12-31"], "by": "day"}, "such as 12345.*expects dates"),
    ("44197.75", {"measure": ["2020-01-01", "2020-12-31"]}, r"such as 43861\.5"),
    ("1609459200", {"dates": ["2020", "2021"], "by": "year"}, "such as 1234567890"),
    ("12,5", {"bins": [0, 20]}, "with a decimal comma"),
    ("40-44", {"integers": [0, 99]}, "such as 30-34.*Declare its values as categories"),
    ("85 and over", {"bins": [0, 99]}, "such as 30-34.*Declare its values as categories"),
    ("90+", {"measure": [0, 99]}, "such as 30-34"),
    ("$1,200", {"measure": [0, 9999]}, r"such as \$12, .*Convert the column"),
    ("1/2/2020", {"integers": [0, 20]}, "such as 1/2/2020, but the domain expects integers"),
    ("1.0", ["1", "2"], r"such as 12\.0.*Declare the values as integers"),
    ("1", [True, False], "truth values, 0 and 1.*Declare the values as text or integers"),
    ("Y", [True, False], "truth values, yes and no"),
    ("8", ["06", "08", "10"], "such as 1, .* codes such as 06. Restore the leading zeros"),
    ("8", {"categories": ["06", "08"], "other": "x"}, "such as 1, .* codes such as 06"),
    ("1001", {"levels": {"s": 2, "c": 5}, "leaves": ["01001", "36061"]}, "codes such as 01001"),
    (" M", ["M", "F"], "blanks at its ends.*Remove them"),
]


@pytest.mark.parametrize(
    ("text", "entry", "says", "name"),
    [(*case, ("a.csv", "a.csv.gz")[i % 2]) for i, case in enumerate(UNREAD)],
)
def test_a_form_that_no_value_is_read_from_is_refused(
    text: str, entry: Any, says: str, name: str, tmp_path: Path
) -> None:
    """The form of the first values is like the type of a column, which Parquet files have."""
    wanted = (fp.Domain.from_spec({"a": entry}), [("a",)])

    def count(texts: list[str]) -> Any:
        lines = "\n".join(["a,b", *(f'"{t}",x' for t in texts)]).encode()
        (tmp_path / name).write_bytes(gzip.compress(lines) if name.endswith("gz") else lines)
        return fp.count(tmp_path / name, wanted)

    for texts in ([text] * 10, [text, "NA", "", "<NA>"] * 10, [text] * 100 + ["x"] * 10**5):
        with pytest.raises(fp.DataError, match=says) as caught:
            count(texts)
        examples = ("1/2/2020", "31JAN2020", "Jan 31, 2020", "20200131", "31. 1. 2020", "1", "Y")
        says_value = text in str(caught.value).replace(str(tmp_path), "").replace("01001", "")
        assert text in examples or not says_value
    for texts in ([text] * 9, [*[text] * 10, "x"], ["x", *[text] * 200], ["NA"] * 200):
        count(texts)


def test_forms_that_are_read_are_not_refused(tmp_path: Path) -> None:
    read = {
        "12.0": [fp.Integers(0, 20), fp.Bins([0, 20]), fp.Categories(["12.0", "13"])],
        "1": [fp.Integers(0, 20), fp.Categories(["1", "01"]), fp.Categories([1])],
        "10": [fp.Categories(["01", "10"]), fp.Categories(["0x", "10"]), fp.Bins([0, 20])],
        "2020": [fp.Dates("2020", "2020", by="year")],
        " M": [fp.Categories([" M", "M"])],
        "20200131": [fp.Integers(20_200_000, 20_201_000), fp.Categories(["20200131"])],
        "2020.0": [fp.Dates("2020", "2020", by="year")],
        "1/2/2020": [fp.Categories(["1/2/2020"])],
        "30-34": [fp.Categories(["30-34", "35+"])],
    }
    for text, attributes in read.items():
        (tmp_path / "a.csv").write_text("\n".join(["a", *[text] * 20]))
        for attribute in attributes:
            domain = fp.Domain({"a": attribute})
            assert fp.count(tmp_path / "a.csv", (domain, [("a",)]))["a"].sum() == 20


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    """Excel's "CSV (Comma delimited)" is in the encoding of the country."""
    wanted = (fp.Domain({"a": ["Köln", "Ulm"]}), [("a",)])
    (tmp_path / "a.csv").write_text("\n".join(["a", *["Köln", "Ulm"] * 10]), encoding="cp1252")
    with pytest.raises(fp.DataError, match=r"encoding other than UTF-8.*Save the file as UTF-8"):
        fp.count(tmp_path / "a.csv", wanted)
    (tmp_path / "a.csv").write_text("\n".join(["a", *["Köln", "Ulm"] * 9]), encoding="cp1252")
    assert fp.count(tmp_path / "a.csv", wanted)["a"].tolist() == [0, 9]
    (tmp_path / "a.csv").write_text("\n".join(["a", *["Köln", "Ulm"] * 10]), encoding="utf-8")
    assert fp.count(tmp_path / "a.csv", wanted)["a"].tolist() == [10, 10]


def test_columns_may_have_other_names(tmp_path: Path) -> None:
    domain = fp.Domain({"age": fp.Integers(0, 99), "old": fp.Bins([0, 65, 100]), "sex": ["1", "2"]})
    frame = pd.DataFrame({"a g e": [5, 70, 80], "s": ["1", "2", "2"], "age": [1, 1, 1]})
    columns = {"age": "a g e", "old": "a g e", "sex": "s"}
    wanted = (domain, [("age",), ("old",), ("sex",)])
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_parquet(tmp_path / "hive", partition_cols=["s"])
    parts = dd.from_pandas(frame, npartitions=2)
    sources = [tmp_path / "a.csv", tmp_path / "a.parquet", tmp_path / "hive", frame]
    for path in [*sources, pl.from_pandas(frame), pa.table(frame)]:
        tables = fp.count(fp.Source(path, columns=columns), wanted)
        assert tables["age"][[5, 70, 80]].tolist() == [1, 1, 1], path
        assert (tables["old"].tolist(), tables["sex"].tolist()) == ([1, 2], [1, 2])
    two = {"age": "a g e", "sex": "s"}
    tables = fp.count(fp.Source(parts, columns=two), (domain, [("age",), ("sex",)]))
    assert (tables["age"][70], tables["sex"].tolist()) == (1, [1, 2])
    with pytest.raises(fp.DataError, match=r"'a g e' is used for .* Store a column for each"):
        fp.count(fp.Source(parts, columns=columns), wanted)
    with pytest.raises(fp.DataError, match="has no column 'a ge'"):
        fp.count(fp.Source(tmp_path / "a.parquet", columns={"age": "a ge"}), wanted)


@pytest.mark.parametrize(("separator", "called"), [(";", "semicolons"), ("\t", "tabs")])
def test_other_separators_are_named(separator: str, called: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"age{separator}name\n3{separator}a\n")
    with pytest.raises(fp.DataError, match=f"Separate the values by commas, not {called}"):
        fp.count(tmp_path / "a.csv", (DOMAIN, [("age",)]))
