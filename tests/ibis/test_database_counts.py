"""Counts of a database are those of the same rows in Parquet, or refused by a column's type."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fitplug as fp
import fitplug_dask as fpd
from fitplug.errors import BudgetError, DataError, InputError, TablesError
from fitplug_ibis import codes, count, counting
from fitplug_ibis.codes import find_runs
from tests.helpers.databases import DOMAIN, TABLES, load_duckdb, load_sqlite, make_rows
from tests.helpers.third_party import Angles

pytestmark = [
    # Of PySpark, about pandas 3.
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.timeout(900),
]


def assert_same(counted: fp.Tables, expected: fp.Tables) -> None:
    assert set(counted) == set(expected)
    for names in expected:
        assert counted[names].dtype == np.int64
        np.testing.assert_array_equal(counted[names], expected[names], err_msg=str(names))


def test_every_kind_of_attribute(people: Any, parquet: Path) -> None:
    """Each alone, so that no other leaves out the rows that matter to it."""
    for name in DOMAIN.names:
        wanted = (DOMAIN, [(name,)])
        counted = count(people, wanted)
        assert_same(counted, fpd.count(parquet, wanted))
        assert len(np.flatnonzero(counted[(name,)])) > 1, name


@pytest.mark.parametrize(
    "options",
    [{}, {"weight": "weight"}, {"where": {"name": ["a", "7"], "citizen": True}}],
    ids=["rows", "weights", "filters"],
)
def test_tables_together(people: Any, parquet: Path, options: dict[str, Any]) -> None:
    for tables in (TABLES[:3], TABLES[3:5], TABLES[5:]):
        wanted = (DOMAIN, tables)
        expected = fpd.count(fp.Source(parquet, **options), wanted)
        assert expected.marginal(()) > 50
        assert_same(count(fp.Source(people, **options), wanted), expected)


def test_columns_of_other_names(people: Any, parquet: Path) -> None:
    named = {"sex": "name", "rooms": "hours"}
    wanted = (fp.Domain({"sex": ["a", "7"], "rooms": fp.Bins([0, 3, 7])}), [("sex", "rooms")])
    options: dict[str, Any] = {"columns": named, "where": {"sex": "a"}}
    expected = fpd.count(fp.Source(parquet, **options), wanted)
    assert expected[("sex", "rooms")].sum() > 5
    assert_same(count(fp.Source(people, **options), wanted), expected)


def test_filters_by_days_and_integers(people: Any, parquet: Path) -> None:
    days = [datetime.date(2000, 1, 9), datetime.date(2000, 3, 4), datetime.date(2000, 2, 3)]
    for where in ({"moved": days}, {"whole": [0, 9]}, {"rooms": 3}):
        wanted = (DOMAIN, [("sex",)])
        expected = fpd.count(fp.Source(parquet, where=where), wanted)
        assert expected[("sex",)].sum() > 20
        assert_same(count(fp.Source(people, where=where), wanted), expected)


def test_rows_in_no_table(people: Any, parquet: Path) -> None:
    groups = [fp.marginal("sex", "far", std=3.0), fp.marginal("age", std=2.0)]
    wage = [fp.queries({"wage": "sum", "sex": "identity"}, std=900.0)]
    for queries in (groups, wage):
        plan = fp.design(fp.Workload(DOMAIN, queries), coverage=True, tolerance=1e-2)
        for weight in (None, "weight"):
            counted = count(fp.Source(people, weight=weight), plan)
            expected = fpd.count(fp.Source(parquet, weight=weight), plan)
            assert_same(counted, expected)
            assert counted.outside == expected.outside
            assert counted.outside is not None


def test_numbers_of_many_tables(people: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "_LONGEST_UNION", 3)
    expected = count(people, (DOMAIN, TABLES[:3]))
    monkeypatch.setattr("fitplug.counts.joint_tables.MERGED_CELLS", 1)
    names = [(name,) for name in ("sex", "race", "age", "citizen", "income", "region", "code")]
    counted = count(people, (DOMAIN, [*names, ("sex", "race")]))
    alone = count(people, (DOMAIN, [names[:5] and tuple(n for (n,) in names)]))
    for name in names:
        np.testing.assert_array_equal(counted[name], alone.marginal(name))
    assert expected


def test_long_lists_are_joined(people: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [("sparse",), ("born", "code"), ("moved",), ("state",)]
    expected = count(people, (DOMAIN, names))
    monkeypatch.setattr(codes, "MOST_BRANCHES", 1)
    monkeypatch.setattr(codes, "_MOST_TEXTS", 1)
    assert_same(count(people, (DOMAIN, names)), expected)


def test_numbers_that_no_integer_holds(tmp_path: Path) -> None:
    """No cast of a value outside the domain is tried, whatever the optimiser does."""
    connection = ibis.duckdb.connect(tmp_path / "a.duckdb")
    values = "(18446744073709551615, 1e308), (3, 3), (null, 'nan'), (7, '-inf'), (0, 2.5)"
    connection.con.execute(
        f"create table t as select a::ubigint as a, b::double as b from (values {values}) v(a, b)"
    ).fetchall()
    domain = fp.Domain({"a": fp.Integers(0, 9, other="x"), "b": fp.Integers(0, 9, other="x")})
    tables = count(connection.table("t"), (domain, [("a", "b"), ("a",)]))
    assert tables[("a",)].tolist() == [1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 2]
    assert tables.marginal(("b",)).tolist() == [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 4]


def test_dates_beyond_the_calendar_and_of_any_size(postgres_or_duckdb: Any) -> None:
    raw, connection = postgres_or_duckdb
    raw("drop table if exists days")
    raw("create table days (d date, t timestamp, n numeric)")
    raw("insert into days values ('infinity', '-infinity', 1), ('2000-02-29', '2000-02-29', 2)")
    raw("insert into days values ('290000-01-01', '2000-01-01 00:00:00', 3), (null, null, null)")
    domain = fp.Domain(
        {
            "d": fp.Dates("2000-01-01", "2000-12-31", by="month", other="x"),
            "t": fp.Dates("2000-01-01", "2000-03-01", other="x"),
            "m": fp.Measure("2000-01-01", "2000-12-31", other="x"),
        }
    )
    table = connection.table("days")
    tables = count(table.mutate(m=table.d), (domain, [("d",), ("t",), ("m",)]))
    assert tables[("d",)].tolist()[:3] == [0, 1, 0]
    assert tables[("d",)].sum() == tables[("t",)].sum() == 4
    assert tables[("m",)].tolist() == [365 - 59, 59, 3 * 365]


@pytest.fixture(params=["duckdb", pytest.param("postgres", marks=pytest.mark.slow)])
def postgres_or_duckdb(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "duckdb":
        connection = ibis.duckdb.connect(tmp_path / "a.duckdb")
        yield lambda sql: connection.con.execute(sql).fetchall(), connection
        return
    url = request.getfixturevalue("postgres_url")
    import psycopg

    def run(sql: str) -> None:
        with psycopg.connect(url) as server:
            server.execute(sql)

    connection = ibis.connect(url)
    yield run, connection
    connection.disconnect()


def test_sqlite_holds_values_of_other_types(tmp_path: Path) -> None:
    """Text in a column of integers is no integer, and no number is a text."""
    connection = ibis.sqlite.connect(tmp_path / "a.sqlite")
    connection.con.execute(
        "create table t (a integer, b text collate nocase, c real, d date, w integer)"
    )
    connection.con.executemany(
        "insert into t values (?, ?, ?, ?, ?)",
        [
            (1, "x", 0.5, "2000-01-31", 1),
            ("abc", b"x", "z", "now", "many"),
            (1.5, "X", "0.5", 2451575, 2.5),
            (2, "x ", 1, "2000-01-31 23:00:00", 3),
            ("2", 7, b"1", "2000-02-30", 5),
            (None, None, None, "2000-01-31 hello", None),
        ],
    )
    connection.con.commit()
    domain = fp.Domain(
        {
            "a": fp.Integers(0, 3, other="-"),
            "b": fp.Categories(["x", "7"], other="-"),
            "c": fp.Bins([0, 1, 2], other="-"),
            "d": fp.Dates("2000-01-01", "2000-03-31", by="month", other="-"),
        }
    )
    names = [(name,) for name in domain.names]
    table = connection.table("t")
    tables = count(table, (domain, names))
    assert tables[("a",)].tolist() == [0, 1, 2, 0, 3]
    assert tables[("b",)].tolist() == [1, 1, 4]
    assert tables[("c",)].tolist() == [2, 1, 3]
    assert tables[("d",)].tolist() == [2, 0, 0, 4]
    weighted = count(fp.Source(table, weight="w"), (domain, [("a",)]))
    assert weighted[("a",)].tolist() == [0, 1, 8, 0, 0]


def test_an_expression_is_counted_as_a_table(people: Any, parquet: Path) -> None:
    grown = people.filter(people.age > 5).mutate(sex=people.name)
    domain = fp.Domain({"sex": ["a", "7"], "age": fp.Integers(0, 20)})
    counted = count(grown, (domain, [("sex", "age")]))
    rows = pq.read_table(parquet, columns=["age", "name"]).to_pylist()
    expected = sum(r["name"] in ("a", "7") and 5 < (r["age"] or 0) <= 20 for r in rows)
    assert counted[("sex", "age")].sum() == expected > 50


@pytest.mark.parametrize(
    ("name", "attribute", "says"),
    [
        ("age", ["1", "2"], "the domain expects strings"),
        ("sex", fp.Integers(0, 9), "the domain expects integers"),
        ("citizen", fp.Integers(0, 1), "the domain expects integers"),
        ("sex", fp.Dates("2000-01-01", "2000-12-31"), "the domain expects dates"),
        ("Sex", ["1"], r"no column 'Sex'. Did you mean 'sex'\?"),
        ("zoned", fp.Dates("2000-01-01", "2000-12-31"), "dates depend on the zone"),
        ("listed", ["1"], "which fitplug does not read"),
        ("long", fp.Bins([0, 1, 2]), "round to floats in different ways"),
        ("whole", fp.Categories([2**60, 1]), "does not hold all integers"),
    ],
)
def test_what_cannot_be_read_is_refused_by_its_type(
    tmp_path: Path, name: str, attribute: Any, says: str
) -> None:
    table = load_duckdb(make_rows(20), tmp_path).mutate(
        zoned=ibis.literal("2020-01-01").cast("timestamp('UTC')"),
        listed=ibis.array([1]),
        long=ibis.literal("1").cast("decimal(30, 20)"),
    )
    with pytest.raises(DataError, match=says):
        count(table, (fp.Domain({name: attribute}), [(name,)]))


def test_sqlite_has_no_measures_of_dates(tmp_path: Path) -> None:
    table = load_sqlite(make_rows(20), tmp_path)
    domain = fp.Domain({"born": fp.Measure("2000-01-01", "2000-12-31")})
    with pytest.raises(DataError, match="measure of dates, which fitplug cannot count in SQLite"):
        count(table, (domain, [("born",)]))


def test_kinds_of_other_packages_are_refused(tmp_path: Path) -> None:
    """Their cells may hold other values than those that tables show."""
    table = load_duckdb(make_rows(5), tmp_path)
    with pytest.raises(DataError, match="attribute 'age' is of the kind Angles"):
        count(table, (fp.Domain({"age": Angles(4)}), [("age",)]))


def test_no_error_or_log_has_a_value(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also where the database's own error quotes one."""
    rows = pa.table({"sex": ["1", "CANARY"]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    connection = ibis.duckdb.connect(tmp_path / "a.duckdb")
    connection.con.execute(f"create table t as select * from '{tmp_path}/rows.parquet'").fetchall()
    table = connection.table("t")
    failing = table.mutate(sex=table.sex.cast("int64"))
    with caplog.at_level(logging.DEBUG), pytest.raises(DataError, match="did not count") as caught:
        count(failing, (fp.Domain({"sex": [1, 2]}), [("sex",)]))
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert "CANARY" not in str(caught.value) + caplog.text + "".join(capfd.readouterr())


def test_sums_that_wrap_are_refused(tmp_path: Path) -> None:
    connection = ibis.duckdb.connect(tmp_path / "a.duckdb")
    connection.con.execute(
        "create table t as select 1 as sex, 1099511627776 as w from range(2000000)"
    ).fetchall()
    source = fp.Source(connection.table("t"), weight="w")
    with pytest.raises(TablesError, match="add up to more than"):
        count(source, (fp.Domain({"sex": [1, 2]}), [("sex",)]))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"zone": "Europe/Berlin"}, "'zone' is for files"),
        ({"missing": {"sex": "1"}}, "'missing' is for files"),
        ({"storage_options": {"key": "CANARY"}}, "'storage_options' is for files"),
    ],
)
def test_options_of_files_are_refused(tmp_path: Path, options: Any, says: str) -> None:
    table = load_duckdb(make_rows(20), tmp_path)
    with pytest.raises(InputError, match=says) as caught:
        count(fp.Source(table, **options), (DOMAIN, [("sex",)]))
    assert "CANARY" not in str(caught.value)
    with pytest.raises(InputError, match="'client' is for files"):
        count(table, (DOMAIN, [("sex",)]), client=object())
    with pytest.raises(InputError, match="'person_key' is for files"):
        count(table, (DOMAIN, [("sex",)]), person_key=b"0" * 16)


def test_what_is_no_table_of_one_database_is_refused(tmp_path: Path) -> None:
    table = load_duckdb(make_rows(20), tmp_path)
    with pytest.raises(DataError, match="not a table"):
        count(table.sex, (DOMAIN, [("sex",)]))
    with pytest.raises(DataError, match="must belong to exactly one database"):
        count(ibis.table({"sex": "string"}, name="people"), (DOMAIN, [("sex",)]))
    many = fp.Domain({f"a{n}": fp.Integers(0, 999) for n in range(3)})
    with pytest.raises(TablesError, match=r"1,000,000,000 cells"):
        count(table.mutate(a0=1, a1=1, a2=1), (many, [("a0", "a1", "a2")]))
    plan = fp.design(fp.Workload(DOMAIN, [fp.marginal("sex", std=3.0)]), coverage=True)
    with pytest.raises(BudgetError, match="coverage"):
        count(fp.Source(table, person="person"), plan)


@pytest.mark.parametrize("seed", range(20))
def test_runs_hold_every_integer_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    keys = np.flatnonzero(rng.random(60) < 0.7)
    cells = rng.integers(-1, 3, len(keys)) if seed % 2 else np.arange(len(keys)) % 9
    for step in (0, 1):
        runs = find_runs(keys, cells, step)
        found = {
            key: -1 if run.code is None else run.code + run.step * (key - run.first)
            for run in runs
            for key in range(run.first, run.last + 1)
        }
        assert sum(run.last - run.first + 1 for run in runs) == len(found)
        assert [found[int(key)] for key in keys] == cells.tolist()
        assert all(found[key] == -1 for key in found if key not in keys)
