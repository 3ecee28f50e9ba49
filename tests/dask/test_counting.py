"""Counts equal DuckDB's, whatever type the columns are stored in and however files are cut."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import dask
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import fitplug as fp
import fitplug_dask as fpd
from fitplug.counts.joint_tables import MERGED_CELLS, choose_joint_tables
from fitplug_dask import kernel
from fitplug_dask.files import open_file, take_snapshot
from fitplug_dask.kernel import partitions, reading
from fitplug_dask.kernel.counters import JointCounters
from fitplug_dask.sources import find_files
from tests.helpers.counting import (
    BASE,
    DOMAIN,
    STRINGS,
    TABLES,
    assert_equal,
    by_duckdb,
    random_values,
    table_of,
)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("row_group_size", "batch_rows"), [(7, 2**16), (1000, 64)])
def test_equals_duckdb_over_several_files(
    tmp_path: Path, seed: int, row_group_size: int, batch_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_BATCH_ROWS", batch_rows)
    rng = np.random.default_rng(seed)
    for i, n in enumerate((0, 1, 400, 1300)):
        table = table_of(random_values(rng, n), BASE)
        pq.write_table(table, tmp_path / f"{i}.parquet", row_group_size=row_group_size)
    expected = by_duckdb(f"'{tmp_path}/*.parquet'", DOMAIN, TABLES)
    assert expected[()] > 100
    assert_equal(fpd.count(tmp_path, (DOMAIN, TABLES)), expected)


@pytest.mark.parametrize("kind", STRINGS)
@pytest.mark.parametrize("use_dictionary", [True, False])
def test_every_way_to_store_strings(tmp_path: Path, kind: str, use_dictionary: bool) -> None:
    values = {n: random_values(np.random.default_rng(5), 3000)[n] for n in ("sex", "race")}
    table = table_of(values, {"sex": STRINGS[kind], "race": STRINGS[kind]})
    pq.write_table(table, tmp_path / "a.parquet", use_dictionary=use_dictionary)
    tables = [("race", "sex")]
    expected = by_duckdb(f"'{tmp_path}/a.parquet'", DOMAIN, tables)
    assert_equal(fpd.count(tmp_path / "a.parquet", (DOMAIN, tables)), expected)


def test_dictionaries_that_writers_gave_up_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_BATCH_ROWS", 256)
    names = [f"{i:05}" for i in range(3000)]
    domain = fp.Domain({"name": fp.Categories(names[::7], other="rest"), "sex": ["1", "2"]})
    rng = np.random.default_rng(4)
    drawn = [*rng.choice(names[:20], 2000).tolist(), None, *rng.permutation(names).tolist()]
    table = pa.table({"name": drawn, "sex": rng.choice(["1", "2", "3"], len(drawn))})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=3000, dictionary_pagesize_limit=500)
    (file,) = take_snapshot(find_files(fp.Source(path)), dict(domain.attributes))
    assert file.dictionaries == ("name", "sex")
    expected = by_duckdb(f"'{path}'", domain, [("name", "sex")])
    assert_equal(fpd.count(path, (domain, [("name", "sex")])), expected)


@pytest.mark.parametrize("use_dictionary", [True, False])
def test_columns_of_many_distinct_strings_are_not_read_as_dictionaries(
    tmp_path: Path, use_dictionary: bool
) -> None:
    names = [f"a long enough name to fill the dictionary {i}" for i in range(60_000)]
    path = tmp_path / "a.parquet"
    table = pa.table({"name": names, "sex": ["1"] * len(names)})
    pq.write_table(table, path, row_group_size=40_000, use_dictionary=use_dictionary)
    domain = fp.Domain({"name": fp.Categories(names[:2], other="rest"), "sex": ["1"]})
    (file,) = take_snapshot(find_files(fp.Source(path)), dict(domain.attributes))
    with open_file(file) as read_row_group:
        batches = [batch for group in (0, 1) for batch in read_row_group(group, 2**15)]
    assert sum(batch.num_rows for batch in batches) == len(names)
    names_read = [pa.types.is_dictionary(batch.column("name").type) for batch in batches]
    assert names_read == [True, *[False] * (len(batches) - 1)]
    assert all(pa.types.is_dictionary(batch.column("sex").type) for batch in batches)
    counted = fpd.count(path, (domain, [("name",)]))["name"]
    np.testing.assert_array_equal(counted, [1, 1, 59_998])


def test_files_of_another_writer(tmp_path: Path) -> None:
    people = table_of(random_values(np.random.default_rng(6), 5000), BASE)
    path = tmp_path / "a.parquet"
    with duckdb.connect() as connection:
        connection.register("people", people)
        connection.execute(
            f"COPY (FROM people) TO '{path}' (FORMAT parquet, CODEC zstd, PARQUET_VERSION v2)"
        )
    assert_equal(fpd.count(path, (DOMAIN, TABLES)), by_duckdb(f"'{path}'", DOMAIN, TABLES))


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("sign", ["int", "uint"])
def test_every_integer_width(tmp_path: Path, bits: int, sign: str) -> None:
    kind = getattr(pa, f"{sign}{bits}")()
    span = np.iinfo(f"{sign}{bits}")
    rng = np.random.default_rng(bits)
    drawn = [int(v) for v in rng.integers(0, 25, 500)] + [int(span.min), int(span.max), None]
    if sign == "int":
        drawn += [-1, -2, -3, -4]
    columns = {n: pa.array(rng.permutation(drawn).tolist(), kind) for n in ("age", "code", "far")}
    columns["income"] = pa.array(drawn, kind)
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=100)
    for tables in ([("age",), ("income",)], [("code", "far")]):
        expected = by_duckdb(f"'{tmp_path}/a.parquet'", DOMAIN, tables)
        assert_equal(fpd.count(tmp_path / "a.parquet", (DOMAIN, tables)), expected)


@pytest.mark.parametrize("width", ["float16", "float32", "float64"])
def test_every_float_width_and_nan_is_null(tmp_path: Path, width: str) -> None:
    values = np.array([-10, -10.5, 0, 0.25, 0.5, 1999, 2000, np.nan, np.inf, -np.inf, 0])
    null = np.arange(len(values)) == len(values) - 1
    column = pa.array(values.astype(width), getattr(pa, width)(), mask=null, from_pandas=False)
    pq.write_table(pa.table({"income": column}), tmp_path / "a.parquet")
    counted = fpd.count(tmp_path, (DOMAIN, [("income",)]))
    np.testing.assert_array_equal(counted["income"], [1, 2, 1, 1])


def test_columns_of_the_null_type_hold_nulls(tmp_path: Path) -> None:
    table = pa.table({n: pa.nulls(4) for n in DOMAIN.names})
    pq.write_table(table, tmp_path / "a.parquet")
    counted = fpd.count(tmp_path, (DOMAIN, [("race",), ("far",)]))
    np.testing.assert_array_equal(counted["race"], [0, 0, 0, 0, 4])
    np.testing.assert_array_equal(counted["far"], [0, 0, 0, 4])
    for name in ("sex", "age", "code", "citizen", "income"):
        assert not fpd.count(tmp_path, (DOMAIN, [(name,)]))[(name,)].any()


def test_types_may_differ_between_files(tmp_path: Path) -> None:
    pq.write_table(pa.table({"age": pa.array([1, 2], pa.int8())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"age": pa.array([2, 3], pa.uint64())}), tmp_path / "b.parquet")
    counted = fpd.count(tmp_path, (DOMAIN, [("age",)]))["age"]
    np.testing.assert_array_equal(counted[4:7], [1, 2, 1])


def test_values_that_are_not_utf8_are_values_outside_the_domain(tmp_path: Path) -> None:
    raw = pa.array([b"1", b"\xff", b"2", b"\xe9"])
    damaged = pa.StringArray.from_buffers(4, raw.buffers()[1], raw.buffers()[2])
    pq.write_table(pa.table({"sex": damaged, "race": raw}), tmp_path / "a.parquet")
    np.testing.assert_array_equal(fpd.count(tmp_path, (DOMAIN, [("sex",)]))["sex"], [1, 1])
    np.testing.assert_array_equal(
        fpd.count(tmp_path, (DOMAIN, [("race",)]))["race"], [0, 0, 0, 0, 4]
    )


def test_a_record_outside_on_one_used_attribute_leaves_every_table(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"sex": ["1", "2", None, "1"], "age": [5, None, 6, 99], "code": [0, 0, 0, 0]}),
        tmp_path / "a.parquet",
    )
    both = fpd.count(tmp_path, (DOMAIN, [("sex",), ("age",)]))
    assert both["sex"].sum() == both["age"].sum() == 1
    assert fpd.count(tmp_path, (DOMAIN, [("sex",)]))["sex"].sum() == 3
    assert fpd.count(tmp_path, (DOMAIN, [()]))[()] == 4


def test_names_with_dots_and_quotes(tmp_path: Path) -> None:
    domain = fp.Domain({"a.b": ["x"], 'c "d"': fp.Integers(0, 1)})
    nested = pa.array([{"b": "y"}] * 3)
    pq.write_table(
        pa.table({"a": nested, "a.b": ["x", "x", "z"], 'c "d"': [0, 1, 0]}), tmp_path / "a.parquet"
    )
    counted = fpd.count(tmp_path, (domain, [domain.names]))
    np.testing.assert_array_equal(counted[domain.names], [[1, 1]])


def test_no_rows_and_empty_files_give_zeros(tmp_path: Path) -> None:
    empty = table_of(random_values(np.random.default_rng(0), 0), BASE)
    for name in ("a", "b"):
        pq.write_table(empty, tmp_path / f"{name}.parquet")
    told: list[tuple[int, int]] = []
    counted = fpd.count(
        tmp_path, (DOMAIN, TABLES), progress=lambda done, total: told.append((done, total))
    )
    assert all(not counted[names].any() for names in TABLES)
    assert told == [(0, 0)]


def test_wanted_may_be_any_object_with_a_domain_and_tables(tmp_path: Path) -> None:
    class Plan:
        domain = DOMAIN
        tables = (("age", "sex"), ("sex", "age"), ())

    pq.write_table(pa.table({"sex": ["1"], "age": [0]}), tmp_path / "a.parquet")
    counted = fpd.count([tmp_path / "a.parquet"], Plan())
    assert set(counted) == {("sex", "age"), ()}
    assert counted["age", "sex"][3, 0] == 1


def test_large_and_small_tables_together(tmp_path: Path) -> None:
    domain = fp.Domain({n: fp.Integers(0, 60) for n in "abcdef"})
    rng = np.random.default_rng(1)
    columns = {n: rng.integers(-1, 61, 5000) for n in "abcdef"}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=500)
    tables = [("a", "b", "c"), ("a",), ("d", "e"), ("e", "f"), ("b", "f"), ("c", "d")]
    counted = fpd.count(tmp_path, (domain, tables))
    assert_equal(counted, dict(fp.Tables.from_records(domain, columns, tables)))


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rows=st.lists(
        st.tuples(st.sampled_from(["1", "2", "3", None]), st.none() | st.integers(-5, 25)),
        max_size=60,
    ),
    row_group_size=st.integers(1, 20),
    tables=st.sets(st.sampled_from([("sex",), ("age",), ("sex", "age"), ()]), min_size=1),
)
def test_equals_counting_in_memory(
    tmp_path: Path, rows: list[Any], row_group_size: int, tables: set[Any]
) -> None:
    columns = {"sex": [r[0] for r in rows], "age": [r[1] for r in rows]}
    table = pa.table({n: pa.array(v, type=BASE[n]) for n, v in columns.items()})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=row_group_size)
    in_memory = {n: np.array(v, dtype=object) for n, v in columns.items()}
    expected = fp.Tables.from_records(DOMAIN, in_memory, sorted(tables))
    assert_equal(fpd.count(tmp_path, (DOMAIN, sorted(tables))), dict(expected))


@pytest.mark.parametrize("workers", [1, 3])
def test_shares_hold_every_row_group_once(tmp_path: Path, workers: int) -> None:
    rng = np.random.default_rng(2)
    for i in range(5):
        rows = pa.table({"sex": rng.choice(["1", "2"], 50 * i)})
        pq.write_table(rows, tmp_path / f"{i}.parquet", row_group_size=11)
    files = take_snapshot(find_files(fp.Source(tmp_path)), {"sex": DOMAIN["sex"]})
    cut = partitions.cut_partitions(files, cells=1, workers=workers)
    held = [(p.file.display_path, g) for s in cut for p in s.slices for g in p.row_groups]
    assert len(set(held)) == len(held) == sum(1 for f in files for rows in f.rows if rows)
    assert 5 * workers <= len(cut) <= 7 * workers
    assert max(s.rows for s in cut) < 2 * 500 / len(cut)


def test_progress_reaches_the_total_in_this_thread(tmp_path: Path) -> None:
    pq.write_table(pa.table({"sex": ["1"] * 1000}), tmp_path / "a.parquet", row_group_size=10)
    told: list[tuple[int, int]] = []
    with dask.config.set(num_workers=2):
        fpd.count(
            tmp_path, (DOMAIN, [("sex",)]), progress=lambda done, total: told.append((done, total))
        )
    done = [d for d, _ in told]
    assert done == sorted(done)
    assert done[0] == 0
    assert done[-1] == 1000
    assert len(told) > 4
    assert {total for _, total in told} == {1000}


def test_the_default_progress_shows_no_number_of_rows(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(pa.table({"sex": ["1"] * 987}), tmp_path / "a.parquet", row_group_size=100)
    fpd.count(tmp_path, (DOMAIN, [("sex",)]), progress=True)
    out, err = capfd.readouterr()
    assert not out
    assert err.endswith("100%\n")
    assert "987" not in err


def test_an_exception_of_the_progress_callable_reaches_the_caller(tmp_path: Path) -> None:
    pq.write_table(pa.table({"sex": ["1"] * 100}), tmp_path / "a.parquet", row_group_size=10)

    def interrupt(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fpd.count(tmp_path, (DOMAIN, [("sex",)]), progress=interrupt)


def test_reducing_leaves_its_inputs_as_they_are() -> None:
    parts = [kernel.PartialCounts((np.array([i, 1]),)) for i in range(3)]
    total = kernel.add_partial_counts(*parts)
    assert isinstance(total, kernel.PartialCounts)
    np.testing.assert_array_equal(total.counts[0], [3, 3])
    for i, part in enumerate(parts):
        np.testing.assert_array_equal(part.counts[0], [i, 1])
    single = kernel.add_partial_counts(parts[0])
    assert isinstance(single, kernel.PartialCounts)
    assert not np.shares_memory(single.counts[0], parts[0].counts[0])
    assert "1" not in repr(parts[0])


def test_importing_loads_neither_dask_nor_pyarrow() -> None:
    code = (
        "import sys, fitplug_dask; "
        "sys.exit(any(m in sys.modules for m in ('dask', 'distributed', 'pyarrow')))"
    )
    path = [str(Path(fpd.__file__).parents[1]), str(Path(fp.__file__).parents[1])]
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}; {code}"], check=False
    )
    assert run.returncode == 0


WITHOUT_PANDAS = """
import json, sys

class NoPandas:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == "pandas":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, NoPandas)
import fitplug as fp, fitplug_dask as fpd
numbers = {name: fp.Integers(0, 3) for name in ("i8", "u16", "i64", "f32", "decimal")}
dates = fp.Dates("2024-01-01", "2024-01-04", by="day")
measures = {"income": fp.Measure(0, 3, unit=1), "share": fp.Measure(0.0, 3.0, unit=0.5)}
texts = {"text": ["0", "1", "2", "3"], "day": dates, "time": dates}
domain = fp.Domain({**numbers, **texts, **measures})
groups = [fp.marginal(name, std=1.0) for name in (*numbers, *texts)]
groups += [fp.queries({name: "sum"}, std=1.0) for name in measures]
workload = fp.Workload(domain, groups)
for of_data, options in (
    ({}, {}), ({"person": "id"}, {"unit": fp.AddRemove(2)}), ({"weight": "weight"}, {})
):
    tables = fpd.count(fp.Source(sys.argv[1], **of_data), workload, **options)
    print(json.dumps({name: tables[name,].tolist() for name in domain}))
"""


def test_nothing_that_counts_needs_pandas(tmp_path: Path) -> None:
    """No package that counting needs brings pandas, and some functions of PyArrow ask for it."""
    numbers = [0, 1, 1, 2, 3, None]
    days = [None if n is None else datetime.date(2024, 1, 1 + n) for n in numbers]
    types = {"i8": pa.int8(), "u16": pa.uint16(), "i64": pa.int64(), "f32": pa.float32()}
    columns = {name: pa.array(numbers, kind) for name, kind in types.items()}
    columns |= {
        "decimal": pa.array(numbers, pa.decimal128(9, 2)),
        "text": pa.array([None if n is None else str(n) for n in numbers]),
        "day": pa.array(days),
        "time": pa.array(days).cast(pa.timestamp("ns")),
        "income": pa.array(numbers, pa.int16()),
        "share": pa.array(numbers, pa.float64()),
        "id": pa.array(["a", "a", "b", "b", "c", "c"]),
        "weight": pa.array([2, 1, 1, 1, 4, 9], pa.uint8()),
    }
    pq.write_table(pa.table(columns), tmp_path / "people.parquet")
    path = os.pathsep.join([str(Path(fpd.__file__).parents[1]), str(Path(fp.__file__).parents[1])])
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_PANDAS, str(tmp_path / "people.parquet")],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    counts = [1, 2, 1, 1], [1, 2, 1, 1], [2, 2, 1, 4]
    for line, counted in zip(run.stdout.splitlines(), counts, strict=True):
        held = json.loads(line)
        mean = sum(n * value for value, n in enumerate(counted)) / sum(counted)
        for name in ("income", "share"):
            low, high = held.pop(name)
            assert 3 * high / (low + high) == pytest.approx(mean)
        assert held == dict.fromkeys(held, counted)


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_package_that_reading_misses_is_named_and_is_no_damage(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def miss(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'pandas'", name="pandas")

    monkeypatch.setattr(JointCounters, "take_batch", miss)
    path = tmp_path / f"people.{kind}"
    write = pq.write_table if kind == "parquet" else pa.csv.write_csv
    write(pa.table({"sex": ["1"]}), str(path))
    with pytest.raises(fp.DataError, match="because a worker lacks the package pandas"):
        fpd.count(path, (fp.Domain({"sex": ["1", "2"]}), [("sex",)]))


@pytest.mark.parametrize("missing", ["dask", "pyarrow"])
def test_a_missing_extra_says_what_to_install(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=r'pip install "fitplug\[dask\]"'):
        fpd.count("data", (DOMAIN, [("sex",)]))


def test_every_wanted_table_is_in_a_joint_one() -> None:
    names = tuple("abcdefghij")
    domain = fp.Domain({n: fp.Integers(1, 12) for n in names})
    wanted = [t for t in product(names, names) if t[0] < t[1]]
    joints = choose_joint_tables(domain, wanted)
    assert all(any(set(t) <= set(j) for j in joints) for t in wanted)
    assert len(joints) < len(wanted) / 2
    assert all(12 ** len(j) <= MERGED_CELLS for j in joints)
