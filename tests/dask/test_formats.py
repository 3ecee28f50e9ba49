"""CSV and Arrow files count as Parquet files of the same rows do; CSV is typed by the domain."""

from __future__ import annotations

import datetime
import gzip
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.feather as pf
import pyarrow.parquet as pq
import pytest

import fitplug as fp
import fitplug_dask as fpd
from fitplug.domain import OUTSIDE, Attribute, get_codec
from fitplug.errors import DataError
from fitplug_dask.compiled_loops import locate
from fitplug_dask.encoding import ColumnEncoder, classify_type, explain_mismatch
from fitplug_dask.encoding.stored_values import encode_folder_texts, encode_texts
from fitplug_dask.files import csv_text
from fitplug_dask.kernel import reading
from tests.helpers.counting import (
    BASE,
    DOMAIN,
    STRINGS,
    TABLES,
    WRITERS,
    assert_equal,
    by_duckdb,
    random_values,
    table_of,
    write_stream,
)


def fails(source: Any, domain: fp.Domain = DOMAIN, table: str = "sex") -> str:
    with pytest.raises(DataError) as caught:
        fpd.count(source, (domain, [(table,)]))
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    return str(caught.value)


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("seed", range(2))
def test_equals_parquet_and_duckdb(
    tmp_path: Path, suffix: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_BATCH_ROWS", 128)
    monkeypatch.setattr(csv_text, "_BLOCK_BYTES", 2**12)
    rng = np.random.default_rng(seed)
    for i, n in enumerate((0, 1, 700)):
        table = table_of(random_values(rng, n), BASE)
        pq.write_table(table, tmp_path / f"{i}.parquet")
        WRITERS[suffix](table, tmp_path / f"{i}{suffix}", chunksize=90)
    expected = by_duckdb(f"'{tmp_path}/*.parquet'", DOMAIN, TABLES)
    assert expected[()] > 50
    assert_equal(fpd.count(f"{tmp_path}/*{suffix}", (DOMAIN, TABLES)), expected)
    alone = fpd.count(f"{tmp_path}/*{suffix}", (DOMAIN, [()]))
    assert alone[()] == 701


@pytest.mark.parametrize("suffix", [".arrow", ".ipc", ".arrows"])
@pytest.mark.parametrize("stored", STRINGS)
def test_every_way_that_arrow_files_store_strings(tmp_path: Path, suffix: str, stored: str) -> None:
    values = {n: random_values(np.random.default_rng(5), 500)[n] for n in ("sex", "race")}
    table = table_of(values, {"sex": STRINGS[stored], "race": STRINGS[stored]})
    WRITERS[suffix](table, tmp_path / f"a{suffix}", chunksize=200)
    pq.write_table(table, tmp_path / "a.parquet")
    tables = [("race", "sex")]
    expected = by_duckdb(f"'{tmp_path}/a.parquet'", DOMAIN, tables)
    assert_equal(fpd.count(tmp_path / f"a{suffix}", (DOMAIN, tables)), expected)


@pytest.mark.parametrize("suffix", [".csv", ".arrow"])
@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("sign", ["int", "uint"])
def test_every_integer_width(tmp_path: Path, suffix: str, bits: int, sign: str) -> None:
    span = np.iinfo(f"{sign}{bits}")
    rng = np.random.default_rng(bits)
    drawn = [int(v) for v in rng.integers(0, 25, 300)] + [int(span.min), int(span.max), None]
    names = ("age", "code", "far", "income")
    table = pa.table({n: pa.array(rng.permutation(drawn).tolist(), f"{sign}{bits}") for n in names})
    pq.write_table(table, tmp_path / "a.parquet")
    WRITERS[suffix](table, tmp_path / f"a{suffix}", chunksize=100)
    for tables in ([("age",), ("income",)], [("code", "far")]):
        expected = by_duckdb(f"'{tmp_path}/a.parquet'", DOMAIN, tables)
        assert_equal(fpd.count(tmp_path / f"a{suffix}", (DOMAIN, tables)), expected)


def test_csv_as_duckdb_reads_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    odd = ["01", "1", "", None, 'a "b"', "a,b", "line\nend", "crlf\r\nend", "é", " 1", "null", "NA"]
    drawn = [odd[i] for i in rng.integers(0, len(odd), 3000)]
    ages = [None if v < 0 else v for v in rng.integers(-1, 25, 3000).tolist()]
    with duckdb.connect() as connection:
        connection.register("people", pa.table({"x": drawn, "age": ages}))
        connection.execute(f"COPY (FROM people) TO '{tmp_path}/a.csv' (FORCE_QUOTE (x))")
        connection.execute(f"COPY (FROM people) TO '{tmp_path}/a.parquet' (FORMAT parquet)")
    domain = fp.Domain(
        {"x": fp.Categories([v for v in odd if v is not None][:-1]), "age": fp.Integers(0, 20)}
    )
    wanted = (domain, [("x", "age")])
    expected = fpd.count(tmp_path / "a.parquet", wanted)
    assert expected["x", "age"].sum() > 1000
    assert_equal(fpd.count(tmp_path / "a.csv", wanted), dict(expected))


def counted(path: Path, content: str, attribute: Any, name: str = "x") -> list[int]:
    path.write_bytes(content.encode())
    domain = fp.Domain({name: attribute})
    return fpd.count(path, (domain, [(name,)]))[name].tolist()


def test_csv_text_is_typed_by_the_domain_and_never_by_the_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    text = 'x,y\n01,\n1,\n"1",\n1.0,\n+1, 1\n 1,\n,\n"",\n١,\n1e0,\n'
    assert counted(path, text, ["01", "1"]) == [1, 2]
    assert counted(path, text, fp.Categories(["", "1.0"], other="rest")) == [1, 1, 8]
    assert counted(path, text, fp.Integers(0, 1)) == [0, 7]
    assert counted(path, text, fp.Categories([1], other="rest")) == [7, 3]
    assert counted(path, text, fp.Bins([0, 1.5])) == [7]
    flags = "x,y\ntrue,\nFALSE,\n1,\nt,\n,\nyes,\n"
    assert counted(path, flags, [True, False]) == [1, 1]
    numbers = "x\n-.5\nnan\ninf\n1e400\n-1\n\n1_0\n0x1\n" + "9" * 30 + "\n"
    assert counted(path, numbers, fp.Bins([-1, 0, 2])) == [2, 0]
    huge = "x\n" + "9" * 5000 + "\n-" + "9" * 25 + "\n" + "0" * 5000 + "3\n3\n"
    assert counted(path, huge, fp.Integers(0, 3)) == [0, 0, 0, 2]


def test_csv_of_one_column_holds_a_null_on_every_blank_line(tmp_path: Path) -> None:
    rest = fp.Categories(["a"], other="rest")
    assert counted(tmp_path / "a.csv", "x\na\n\n\nb\n", rest) == [1, 3]
    assert counted(tmp_path / "b.csv", "x,y\na,1\n\n\nb,2\n", rest) == [1, 1]


def test_csv_line_ends_quotes_and_names(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    assert counted(path, '\ufeff"x y","a\nb"\r\n1,2\r\n', ["1"], "x y") == [1]
    assert counted(path, 'a,x\r\n"one\r\ntwo ""three""",1\r\n5" pipe,1\r\n', ["1"]) == [2]
    assert counted(path, "x,y\n", ["1"]) == [0]
    assert counted(path, "x\r1\r1\r", ["1"]) == [2]


def test_csv_bytes_that_are_not_utf8_are_a_value_outside_the_domain(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"sex,y\n1,\xff\n\xff,1\n2,\n")
    assert fpd.count(tmp_path, (DOMAIN, [("sex",)]))["sex"].tolist() == [1, 1]


CSV_FAULTS = {
    "few": ("sex,y\n1,2\n1\n", "is not valid CSV to its end"),
    "many": ("sex,y\n1,2\n1,2,3\n", "is not valid CSV to its end"),
    "open quote": ('sex,y\n1,"2\n1,2\n2,1\n', "quotes must close"),
    "open quote in one column": ('sex\n1\n"2\n1\n', "quotes must close"),
    "cut within the last line": ("sex,y\n1,2\n1", "is not valid CSV to its end"),
    "cut within a quote": ('sex,y\n1,2\n1,"2', "quotes must close"),
    "no names": ("\n\n", "has no line of column names"),
    "empty": ("", ""),
    "other names": ("1,2\n1,2\n", "has no column 'sex' in its first line"),
    "semicolons": ("sex;y\n1;2\n", "semicolons"),
    "twice": ("sex,sex\n1,2\n", "has two columns 'sex'"),
    "long": ("sex,y\n1," + "x" * 9000 + "\n", "is not valid CSV to its end"),
}


@pytest.mark.parametrize("fault", CSV_FAULTS)
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_a_bad_csv_file_is_named(
    tmp_path: Path, fault: str, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_text, "_BLOCK_BYTES", 2**12)
    text, message = CSV_FAULTS[fault]
    path = tmp_path / f"a{suffix}"
    if suffix == ".csv":
        path.write_text(text)
    else:
        path.write_bytes(gzip.compress(text.encode()))
    told = fails(tmp_path)
    assert told.startswith(str(path))
    assert message in told


@pytest.mark.parametrize("cut", [1, 5, 9, 30])
def test_a_truncated_or_altered_gzip_file_is_named(tmp_path: Path, cut: int) -> None:
    rng = np.random.default_rng(1)
    text = "sex\n" + "\n".join(rng.choice(["1", "2"], 500)) + "\n"
    whole = gzip.compress(text.encode())
    path = tmp_path / "a.csv.gz"
    path.write_bytes(whole)
    assert fpd.count(path, (DOMAIN, [("sex",)]))["sex"].sum() == 500
    path.write_bytes(whole[:-cut])
    assert fails(path).startswith(str(path))
    altered = bytearray(whole)
    altered[-cut] ^= 1
    path.write_bytes(bytes(altered))
    assert fails(path).startswith(str(path))
    path.write_text("sex\n1\n")
    assert "is not a gzipped CSV file" in fails(path)


@pytest.mark.parametrize("suffix", [".feather", ".arrow", ".arrows"])
def test_a_truncated_arrow_file_is_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    table = pa.table({"sex": ["1", "2"] * 500, "age": list(range(1000))})
    WRITERS[suffix](table, path, chunksize=100)
    whole = path.read_bytes()
    for cut in (1, 8, 20, 300, len(whole) - 4):
        path.write_bytes(whole[:-cut])
        told = fails(path)
        assert told.startswith(str(path))
        assert "truncated" in told or "damaged" in told or "not an Arrow" in told
    path.write_bytes(b"FEA1" + whole[4:])
    assert "Feather version 1" in fails(path)
    path.write_bytes(b"sex,age\n" * 99)
    assert "is not an Arrow file" in fails(path)
    path.write_bytes(b"")
    assert "is empty (0 bytes)" in fails(path)


def test_a_stream_that_goes_on_behind_its_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.arrows"
    write_stream(pa.table({"sex": ["1", "2"]}), path)
    path.write_bytes(path.read_bytes() * 2)
    assert "record batch 0 cannot be read" in fails(path)


def test_arrow_offsets_and_indices_are_checked_before_use(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    pf.write_feather(pa.table({"sex": ["1", "2"] * 50}), path, "uncompressed")
    content = bytearray(path.read_bytes())
    at = content.index(np.arange(101, dtype="<i4").tobytes())
    content[at + 40 : at + 44] = b"\xff\xff\xff\x7f"
    path.write_bytes(bytes(content))
    assert "record batch 0 cannot be read, so the file is damaged" in fails(path)
    coded = pa.array(["1", "2"] * 50).dictionary_encode()
    pf.write_feather(pa.table({"sex": coded}), path, "uncompressed")
    content = bytearray(path.read_bytes())
    at = content.index(np.array([0, 1] * 50, dtype="<i4").tobytes())
    content[at + 40 : at + 44] = b"\x09\x00\x00\x00"
    path.write_bytes(bytes(content))
    assert "record batch 0 cannot be read, so the file is damaged" in fails(path)


def test_a_damaged_name_in_a_schema_is_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    pf.write_feather(pa.table({"sex": ["1"], "\u00e9\u00e9\u00e9": ["2"]}), path)
    path.write_bytes(path.read_bytes().replace("\u00e9\u00e9".encode(), b"\xc3\xff\xff\xa9"))
    assert "has a damaged footer or schema" in fails(path)


def test_schemas_of_arrow_files_are_checked(tmp_path: Path) -> None:
    pf.write_feather(pa.table({"sex": [1]}), tmp_path / "a.feather")
    assert "has the type int64, but the domain expects strings" in fails(tmp_path)
    assert "no column 'age'. Known: 'sex'" in fails(tmp_path, table="age")


def test_several_formats_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("sex\n1\n")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"sex\n1\n"))
    told = fails(tmp_path)
    assert told.startswith(f"the data mix CSV ({tmp_path}/a.csv) and gzipped CSV (")
    assert fpd.count(f"{tmp_path}/*.csv", (DOMAIN, [("sex",)]))["sex"].sum() == 1


def test_hive_folders_of_csv(tmp_path: Path) -> None:
    for state in ("01", "02"):
        (tmp_path / f"state={state}").mkdir()
        (tmp_path / f"state={state}" / "a.csv").write_text("sex,y\n1,\n2,\n" * (1 + (state > "01")))
    domain = fp.Domain({"sex": ["1", "2"], "state": ["02", "01"]})
    tables = fpd.count(tmp_path, (domain, [("sex", "state")]))
    assert tables["sex", "state"].tolist() == [[2, 1], [2, 1]]
    assert fpd.count(tmp_path, (domain, [("state",)]))["state"].tolist() == [5, 2]


# Dates


LETTERS = fp.Categories(["a", "b", "c"], other="rest")


@pytest.mark.parametrize("at", [0, 1, 3, 4, 100])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(
    "attribute", [LETTERS, fp.Categories(["a", "b", "c"])], ids=["rest", "strict"]
)
def test_an_index_beyond_the_dictionary_is_damage(
    attribute: Attribute, missing: bool, at: int
) -> None:
    """Arrow reads such indices from Parquet without looking at them."""
    entries = ["c", "b", "a", "b"][: 4 if at else 0]
    indices = pa.array([at, None if missing else at], pa.uint8())
    column = pa.DictionaryArray.from_arrays(indices, pa.array(entries, pa.string()), safe=False)
    codes = np.empty(2, dtype=np.int64)
    with pytest.raises((IndexError, ValueError)) if at >= len(entries) else nullcontext():
        lookup = ColumnEncoder(get_codec(attribute), 1, OUTSIDE).make_lookup(column)
        locate([lookup], 0, codes)
    if at < len(entries):
        assert codes[0] == get_codec(attribute).codes([entries[at]])[0]
        assert codes[1] == (get_codec(attribute).null_code if missing else codes[0])


@pytest.mark.parametrize("stored", [pa.string(), pa.large_binary()])
def test_dictionaries_may_hold_the_same_texts_in_any_order(stored: pa.DataType) -> None:
    encoder = ColumnEncoder(get_codec(fp.Categories(["a", "b"])), stride=5, outside=-10)
    long = [str(number) for number in range(300)]
    for entries in (["b", "a"], ["z", "b", None, "a"], ["a"], [], [None, "c", "b"], [*long, "b"]):
        indices = pa.array(range(len(entries)), pa.int32())
        column = pa.DictionaryArray.from_arrays(indices, pa.array(entries, stored))
        cells = np.empty(len(entries), dtype=np.int64)
        locate([encoder.make_lookup(column)], 0, cells)
        assert cells.tolist() == [{"a": 0, "b": 5}.get(entry or "", -10) for entry in entries]


def test_a_dictionary_of_nulls_holds_nulls() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, None, 0], pa.int8()), pa.nulls(1))
    codes = np.empty(3, dtype=np.int64)
    locate([ColumnEncoder(get_codec(LETTERS), 1, OUTSIDE).make_lookup(column)], 0, codes)
    assert codes.tolist() == [3, 3, 3]


DAYS = fp.Dates("1969-12-30", "1970-01-03")
MOMENTS = ["1969-12-30 23:59:59", "1969-12-31 00:00:01", "1970-01-02 00:00:00", None]


@pytest.mark.parametrize(
    "arrow_type",
    [
        pa.date32(),
        pa.date64(),
        *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
        pa.dictionary(pa.int8(), pa.date32()),
    ],
    ids=str,
)
def test_dates_and_times_fall_on_the_day_that_has_begun(arrow_type: Any) -> None:
    moments = pa.array([m and datetime.datetime.fromisoformat(m) for m in MOMENTS])
    if pa.types.is_dictionary(arrow_type):
        column = moments.cast(pa.date32()).dictionary_encode().cast(arrow_type)
    elif pa.types.is_timestamp(arrow_type):
        column = moments.cast(pa.timestamp(arrow_type.unit)).cast(arrow_type)
    else:
        column = moments.cast(pa.date32()).cast(arrow_type)
    assert classify_type(arrow_type) == "dates"
    assert explain_mismatch(get_codec(DAYS), arrow_type) is None
    codes = np.empty(len(column), dtype=np.int64)
    lookup = ColumnEncoder(get_codec(DAYS), 1, OUTSIDE).make_lookup(column)
    locate([lookup], 0, codes)
    assert lookup.doubtful
    assert codes.tolist() == [0, 1, 3, -1]


WIDTHS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(
    "attribute",
    [
        fp.Integers(-3, 4),
        fp.Integers(0, 120),
        fp.Categories([7, 3, 100], other="rest"),
        fp.Integers(-(10**6), 10**6),  # without a table of all values
    ],
    ids=["narrow", "ages", "some", "wide"],
)
def test_integers_of_every_width_have_the_cells_of_their_values(
    width: str, missing: bool, attribute: Attribute
) -> None:
    ends = np.iinfo(width)
    values: list[int | None] = [0, 3, 4, 5, 7, 100, 120, int(ends.max), int(ends.max) - 1]
    values += [int(ends.min), -1 if ends.min else 1, 2 if not missing else None]
    column = pa.array([1, *values], getattr(pa, width)()).slice(1)
    lookup = ColumnEncoder(get_codec(attribute), 1, OUTSIDE).make_lookup(column)
    codes = np.empty(len(values), dtype=np.int64)
    locate([lookup], 0, codes)
    assert codes.tolist() == [get_codec(attribute).codes([value])[0] for value in values]
    assert lookup.doubtful or (codes >= 0).all()


def test_times_of_a_zone_are_refused() -> None:
    for zone in ("UTC", "Europe/Rome"):
        assert f"tz={zone}], but the domain expects dates" in str(
            explain_mismatch(get_codec(DAYS), pa.timestamp("us", zone))
        )
    assert "expects integers" in str(explain_mismatch(get_codec(fp.Integers(0, 1)), pa.date32()))


@pytest.mark.parametrize("name", ["d.parquet", "d.feather", "d.csv"])
@pytest.mark.parametrize("by", ["day", "month", "year"])
def test_dates_are_counted_in_every_format(tmp_path: Path, name: str, by: str) -> None:
    rng = np.random.default_rng(7)
    days = rng.integers(-500, 800, 2000).astype("datetime64[D]").astype(object)
    moments = [None if i % 17 == 0 else day for i, day in enumerate(days.tolist())]
    people = pa.table({"born": pa.array(moments, pa.date32())})
    writers: Any = {".parquet": pq.write_table, ".csv": pc.write_csv}
    writers.get(Path(name).suffix, pf.write_feather)(people, str(tmp_path / name))
    born = fp.Dates("1969-01-01", "1971-12-31", by=by)
    counted = fpd.count(tmp_path, (fp.Domain({"born": born}), [("born",)]))["born"]
    pattern = {"day": "%Y-%m-%d", "month": "%Y-%m", "year": "%Y"}[by]
    exact = dict(
        duckdb.sql(
            f"select strftime(born, '{pattern}'), count(*) from people "
            "where born between '1969-01-01' and '1971-12-31' group by 1"
        ).fetchall()
    )
    assert counted.sum() > 1000
    assert dict(zip(born.labels, counted.tolist(), strict=True)) == {
        label: exact.get(label, 0) for label in born.labels
    }


def test_dates_as_texts() -> None:
    texts = ["1970-01-01", "1970-01-02 10:30", "1969-12-31T23:59:59.9", "1970-1-1", "1970-13-01"]
    texts += ["1970-01-01Z", "19700101", "", "1970-01-01 10:30+01:00"]
    assert encode_texts(get_codec(DAYS), [*texts, None]).tolist() == [2, 3, 1, 2, *[-1] * 4, 2, -1]
    spelled = encode_folder_texts(get_codec(DAYS), ["1970-01-02", "yesterday", None])
    assert spelled == [3, None, OUTSIDE]
