"""Measures are counted as `Tables.from_records` and DuckDB say, from all that holds numbers."""

from __future__ import annotations

import datetime
import decimal
import math
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

import fitplug as fp
import fitplug_dask as fpd
from fitplug.counts import make_filters
from fitplug.counts.joint_tables import choose_joint_tables, sum_to_tables
from fitplug.domain import get_codec
from fitplug.errors import DataError, DomainError
from fitplug_dask import compiled_loops as loops, request as requests
from fitplug_dask.encoding import convert_values
from fitplug_dask.exchange import run
from fitplug_dask.kernel import counters
from fitplug_dask.kernel.counters import JointCounters
from fitplug_dask.workers import open_runner
from tests.helpers import numpy_loops
from tests.helpers.sources import count_rows

PLAIN = {"sex": fp.Categories(["1", "2"]), "age": fp.Integers(0, 9)}
TABLES = [("sex", "pay"), ("sex",), ("pay",), ("age", "pay", "days"), ("days",), ()]
INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16()]
INTEGERS += [pa.uint32(), pa.uint64()]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
DECIMALS = [pa.decimal128(9, 2), pa.decimal128(38, 4)]
NUMBERS = [*INTEGERS, *FLOATS, *DECIMALS, pa.null()]
EPOCH = datetime.date(1970, 1, 1)


@st.composite
def measures(draw: st.DrawFn) -> fp.Measure:
    unit = draw(st.sampled_from([1, 2, 5, 0.5, 0.1, 0.25, 2**20]))
    low = draw(st.sampled_from([0, -7, 3, -0.5, 100]))
    shares = draw(st.sampled_from([1, 2, 7, 100, 2**17]))
    high = float(decimal.Decimal(repr(low)) + shares * decimal.Decimal(repr(unit)))
    return fp.Measure(low, high, unit=unit, other=draw(st.sampled_from([None, "none"])))


def draw_numbers(rng: np.random.Generator, kind: Any, rows: int) -> pa.Array:
    """Draw a column of a type, with nulls, NaN and infinities where it has them."""
    near = rng.integers(-5, 120, rows)
    if pa.types.is_null(kind):
        return pa.nulls(rows)
    if pa.types.is_decimal(kind):
        values: list[Any] = [decimal.Decimal(int(v)) / 4 for v in near]
        values = [v.quantize(decimal.Decimal("0.01")) for v in values]
    elif pa.types.is_floating(kind):
        values = [np.float16(v / 4) for v in near] if kind == pa.float16() else list(near / 4)
        extra = [math.nan, math.inf, -math.inf]
        values = [extra[rng.integers(3)] if rng.random() < 0.2 else v for v in values]
        values = [np.float16(v) for v in values] if kind == pa.float16() else values
    else:
        ends = np.iinfo(kind.to_pandas_dtype())
        values = [min(max(int(v), int(ends.min)), int(ends.max)) for v in near]
        large = [int(ends.min), int(ends.max)]
        values = [large[rng.integers(2)] if rng.random() < 0.2 else v for v in values]
    return pa.array([None if rng.random() < 0.2 else v for v in values], type=kind)


def list_values(column: pa.Array) -> list[Any]:
    """List the values as the core reads records in memory: decimals as floats."""
    held = column.to_pylist()
    return [float(v) if isinstance(v, decimal.Decimal) else v for v in held]


def make_rows(rng: np.random.Generator, rows: int, kind: Any) -> dict[str, pa.Array]:
    days = [EPOCH + datetime.timedelta(int(d)) for d in rng.integers(-5, 45, rows)]
    return {
        "sex": pa.array(rng.choice(["1", "2", "3"], rows, p=[0.5, 0.4, 0.1])),
        "age": pa.array(rng.integers(-1, 11, rows)),
        "pay": draw_numbers(rng, kind, rows),
        "days": pa.array([None if rng.random() < 0.1 else d for d in days], type=pa.date32()),
        "n": pa.array(rng.integers(-1, 2**20, rows)),
    }


def check_equal(counted: fp.Tables, expected: fp.Tables, tables: Any = TABLES) -> None:
    for names in tables:
        np.testing.assert_array_equal(counted[names], expected[names])


@settings(max_examples=60, deadline=None)
@given(
    pay=measures(),
    kind=st.sampled_from(NUMBERS),
    packed=st.booleans(),
    weighted=st.booleans(),
    filtered=st.booleans(),
    compiled=st.booleans(),
    block=st.sampled_from([7, 2**16]),
    tables=st.sets(st.sampled_from(TABLES), min_size=1),
    shared=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_batch_reaches_the_shares_that_the_core_counts(
    pay: fp.Measure,
    kind: Any,
    packed: bool,
    weighted: bool,
    filtered: bool,
    compiled: bool,
    block: int,
    tables: set[tuple[str, ...]],
    shared: bool,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    days = fp.Measure("1970-01-05", "1970-01-31", unit=2, other=pay.other)
    domain = fp.Domain({**PLAIN, "pay": pay, "days": days})
    columns = make_rows(rng, int(rng.integers(1, 40)), kind)
    where = {"sex": ["2", "3"]} if filtered else None
    wanted = sorted(domain.ordered(names) for names in tables)
    used = {name for names in wanted for name in names}
    keys: dict[str, int] = {}
    if shared and "days" in used:  # all rows as the first, as those of a folder are
        first = columns["days"].to_pylist()[0]
        columns["days"] = pa.array([first] * len(columns["days"]), type=pa.date32())
        keys = {"days": int(get_codec(days).codes([first])[0])}
        if keys["days"] < 0:
            return  # such files are not read
    expected = fp.Tables.from_records(
        domain,
        {name: list_values(column) for name, column in columns.items()},
        wanted,
        weights="n" if weighted else None,
        where=where,
    )
    if packed and kind in (*INTEGERS, pa.float64()):
        columns["pay"] = columns["pay"].dictionary_encode()
    columns["pay"] = convert_values(columns["pay"], float)
    read = [n for n in columns if (n in used or n == "n" or n == "sex") and n not in keys]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counters, "BLOCK_ROWS", block)
        if not compiled:
            for name in ("locate", "increment", "increment_pairs", "add_weights", "add_shares"):
                patch.setattr(loops, name, getattr(numpy_loops, name))
            patch.setattr(loops, "encode_numbers", numpy_loops.encode_numbers)
        joints = choose_joint_tables(domain, wanted)
        counting = JointCounters(
            dict(domain.attributes),
            joints,
            len(columns["n"]),
            "n" if weighted else None,
            make_filters(where),
        )
        batch = pa.RecordBatch.from_arrays([columns[n] for n in read], names=read)
        counting.take_batch(batch, read, keys)
    assert not counting.is_full
    counted = sum_to_tables(domain, dict(zip(joints, counting.counters, strict=True)), wanted)
    for names in wanted:
        np.testing.assert_array_equal(counted[names], expected[names])


DAYS = fp.Measure("1970-01-05", "1970-01-31")
PAY = fp.Measure(0, 25.5, unit=0.5, other="none")
DOMAIN = fp.Domain({**PLAIN, "pay": PAY, "days": DAYS})
ROWS = 3000


@pytest.fixture(scope="module")
def people() -> dict[str, pa.Array]:
    rng = np.random.default_rng(8)
    rows = make_rows(rng, ROWS, pa.float64())
    return {**rows, "id": pa.array(rng.integers(0, 900, ROWS))}


@pytest.fixture(scope="module")
def folder(people: dict[str, pa.Array], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("people")
    pq.write_table(pa.table(people), folder / "people.parquet", row_group_size=500)
    return folder


def count_in_memory(
    columns: dict[str, pa.Array], domain: fp.Domain = DOMAIN, tables: Any = TABLES, **options: Any
) -> fp.Tables:
    held = {name: list_values(column) for name, column in columns.items()}
    return fp.Tables.from_records(domain, held, tables, **options)


def test_duckdb_sums_and_counts_the_same(folder: Path) -> None:
    counted = fpd.count(folder, (DOMAIN, TABLES))
    query = f"""SELECT sex, count(pay) AS valued,
        sum(least(greatest(floor(pay / 0.5 + 0.5), 0), 51))::BIGINT AS units, count(*) AS n
        FROM (SELECT sex, age, days, nullif(pay, 'nan'::DOUBLE) AS pay FROM '{folder}/*.parquet')
        WHERE sex IN ('1', '2') AND age BETWEEN 0 AND 9 AND days IS NOT NULL
        GROUP BY sex ORDER BY sex"""
    found = duckdb.sql(query).fetchall()
    expected = [[51 * valued - units, units, 51 * (n - valued)] for _, valued, units, n in found]
    assert counted[("sex", "pay")].tolist() == expected
    assert counted[("sex",)].tolist() == [n for *_, n in found]


@pytest.mark.parametrize("how", ["threads", "shards", "persons"])
@pytest.mark.parametrize("where", [None, {"sex": "1"}])
def test_every_way_to_count_counts_the_same(
    how: str,
    where: Any,
    people: dict[str, pa.Array],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = count_in_memory(people, where=where)
    options: dict[str, Any] = {}
    if how == "persons":  # who may keep all their records
        options = {"person": "id", "unit": fp.AddRemove(50)}
    elif how == "shards":
        share = 2000 / open_runner(None).memory
        monkeypatch.setattr(run, "MEMORY_SHARE", share)
        monkeypatch.setattr(requests, "_TABLES_SHARE", share)
        monkeypatch.setattr(requests, "_TABLE_BYTES", 1)
    check_equal(count_rows(fp.Source(folder, where=where), (DOMAIN, TABLES), **options), expected)


@pytest.mark.parametrize("tables", [TABLES, [("pay",)], [("pay", "days")]])
def test_weighted_rows_are_divided(tables: Any, people: dict[str, pa.Array], folder: Path) -> None:
    expected = count_in_memory(people, tables=tables, weights="n")
    check_equal(fpd.count(fp.Source(folder, weight="n"), (DOMAIN, tables)), expected, tables)


def test_text_spells_numbers_and_other_text_is_no_value(tmp_path: Path) -> None:
    spelled = ["1", "12.4", "-3", "1e9", "", " 7", "7 ", "+3", "1,5", "N", "nan", "0x1", '""']
    values = [1, 12.4, -3, 1e9, None, 7, 7, 3] + [None] * 5
    lines = [f'1,"{text}"' if "," in text else f"1,{text}" for text in spelled]
    (tmp_path / "a.csv").write_text("\n".join(["sex,pay", *lines, ""]))
    tables = [("sex", "pay"), ("sex",)]
    for other in (None, "none"):
        domain = fp.Domain({"sex": ["1"], "pay": fp.Measure(0, 20, unit=0.25, other=other)})
        columns = {"sex": ["1"] * len(values), "pay": values}
        expected = fp.Tables.from_records(domain, columns, tables)
        check_equal(fpd.count(tmp_path, (domain, tables)), expected, tables)


def test_times_and_texts_of_days_are_measured(tmp_path: Path) -> None:
    days = [datetime.date(1970, 1, 1), datetime.date(1970, 1, 9), datetime.date(1999, 1, 1), None]
    expected = fp.Tables.from_records(DOMAIN, {"days": days}, [("days",)])
    times = [d and datetime.datetime(d.year, d.month, d.day, 13, 5) for d in days]
    kinds = [pa.date32(), pa.date64(), pa.timestamp("us"), pa.timestamp("ns"), pa.string()]
    for kind in kinds:
        texts = [d and d.isoformat() for d in days]
        held = times if pa.types.is_timestamp(kind) else texts if kind == pa.string() else days
        pq.write_table(pa.table({"days": pa.array(held, type=kind)}), tmp_path / "a.parquet")
        check_equal(fpd.count(tmp_path, (DOMAIN, [("days",)])), expected, [("days",)])


def test_folders_and_columns_that_files_lack_give_values(tmp_path: Path) -> None:
    domain = fp.Domain({"sex": ["1", "2"], "pay": PAY})
    for pay in ("3", "99", "__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / f"pay={pay}").mkdir()
        table = pa.table({"sex": ["1", "2", "2", None]})
        pq.write_table(table, tmp_path / f"pay={pay}" / "a.parquet")
    tables = [("sex", "pay"), ("pay",)]
    counted = fpd.count(tmp_path, (domain, tables))
    columns = {"sex": ["1", "2", "2", None] * 3, "pay": [3] * 4 + [99] * 4 + [None] * 4}
    check_equal(counted, fp.Tables.from_records(domain, columns, tables), tables)
    check_equal(
        fpd.count(tmp_path, (domain, [("pay",)])),
        fp.Tables.from_records(domain, {"pay": columns["pay"]}, [("pay",)]),
        [("pay",)],
    )
    lacking = tmp_path / "lacking.parquet"
    pq.write_table(table, lacking)
    given = fpd.count(fp.Source(lacking, missing={"pay": 7.2}), (domain, tables))
    columns = {"sex": ["1", "2", "2"], "pay": [7.2] * 3}
    check_equal(given, fp.Tables.from_records(domain, columns, tables), tables)


def test_booleans_are_no_numbers(tmp_path: Path) -> None:
    pq.write_table(pa.table({"pay": [True, None]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="has the type bool, but the domain expects numbers"):
        fpd.count(tmp_path, (DOMAIN, [("pay",)]))


def test_frames_and_large_measures_are_counted() -> None:
    """Of 2^25 units there is no table of codes."""
    domain = fp.Domain({"pay": fp.Measure(0, 2**25)})
    for held in (np.arange(5) * 2**23, np.arange(5) * 2.0**23 + 0.5):
        table = pa.table({"pay": held, "id": [1, 2, 3, 4, 5]})
        expected = fp.Tables.from_records(domain, {"pay": held}, [("pay",)])
        check_equal(fpd.count(table, (domain, [("pay",)])), expected, [("pay",)])
        limited = fpd.count(
            fp.Source(table, person="id"), (domain, [("pay",)]), unit=fp.AddRemove(1)
        )
        check_equal(limited, expected, [("pay",)])


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("rows", [1, 5])
def test_shares_that_would_overflow_are_refused(
    sharded: bool, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pay = fp.Measure(0, 2**20)
    domain = fp.Domain({"sex": ["1", "2"], "pay": pay, "more": pay})
    most = 2**18  # of records whose 2^40 shares each fit
    weights = [most] if rows == 1 else [most // 4] * 4 + [0]
    columns = {"sex": ["1"] * rows, "pay": [2**20] * rows, "more": [3] * rows}
    if sharded:
        share = 100 / open_runner(None).memory
        monkeypatch.setattr(requests, "_TABLES_SHARE", share)
        monkeypatch.setattr(requests, "_TABLE_BYTES", 1)
    tables = [("sex", "pay", "more"), ("sex",)]
    source = tmp_path / "a.parquet"
    pq.write_table(pa.table({**columns, "n": weights}), source, row_group_size=1)
    counted = fpd.count(fp.Source(source, weight="n"), (domain, tables))
    assert int(counted[tables[0]].sum()) == 2**58
    for last in (weights[-1] + 1, 2**40):
        weights[-1] = last
        pq.write_table(pa.table({**columns, "n": weights}), source, row_group_size=1)
        with pytest.raises(DataError, match=r"exceeds 2\*\*58"):
            fpd.count(fp.Source(source, weight="n"), (domain, tables))
        assert fpd.count(fp.Source(source, weight="n"), (domain, [("sex",)]))[("sex",)][0] == sum(
            weights
        )


def test_a_person_adds_at_most_so_many_records_whatever_they_measure(
    people: dict[str, pa.Array], tmp_path: Path
) -> None:
    shares = np.array([get_codec(PAY).shares, get_codec(DAYS).shares])
    named = 7
    others = pa.table(people).filter(pa.compute.not_equal(people["id"], named))
    own = pa.table(people).filter(pa.compute.equal(people["id"], named)).slice(0, 1)
    tables = [("sex", "pay"), ("days",), ("sex",)]
    for seed, unit in enumerate([fp.AddRemove(records=2), fp.AddRemove(records=3, once_per="age")]):
        how = {"person": "id", "unit": unit, "person_key": bytes([seed]) * 16}
        tables_of = (DOMAIN, [*tables, ("age",)])
        before = count_rows(others, tables_of, **how)
        for pay, day in [(0.0, 4), (25.5, 30), (None, 9), (7.1, 17)]:
            held = own.to_pylist()[0] | {"sex": "1", "age": 3, "pay": pay}
            held["days"] = EPOCH + datetime.timedelta(day)
            mine = pa.Table.from_pylist([held] * 5, schema=others.schema)
            after = count_rows(pa.concat_tables([others, mine]), tables_of, **how)
            kept = 1 if unit.once_per else 2
            for names, each in zip(tables, [*shares, 1], strict=True):
                more = after[names] - before[names]
                assert more.min() >= 0
                assert more.sum() == kept * each


def test_units_of_distinct_cells_are_refused(people: dict[str, pa.Array]) -> None:
    wanted = (DOMAIN, [("sex", "pay")])
    for unit, said in [
        (fp.AddRemove(records=2, distinct=True), "distinct=True cannot be combined"),
        (fp.AddRemove(records=2, once_per="pay"), "is a measure"),
    ]:
        with pytest.raises(DomainError, match=said):
            fpd.count(fp.Source(pa.table(people), person="id"), wanted, unit=unit)


def test_joint_tables_have_the_measures_of_a_wanted_table() -> None:
    tables = [("sex", "pay"), ("sex", "days"), ("age",), ("age", "pay")]
    for joint in choose_joint_tables(DOMAIN, tables):
        assert sum(bool(get_codec(DOMAIN[name]).quantities) for name in joint) <= 1


def test_a_plan_is_counted_and_its_sums_are_those_of_the_rows(
    people: dict[str, pa.Array], folder: Path
) -> None:
    workload = fp.Workload(
        DOMAIN,
        [
            fp.queries({"sex": "identity", "pay": "sum"}, std=50.0, name="pay"),
            fp.marginal("sex", "age", std=5.0),
        ],
    )
    plan = fp.design(workload)
    check_equal(fpd.count(folder, plan), count_in_memory(people, tables=plan.tables), plan.tables)
