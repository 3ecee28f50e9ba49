"""Weights and filters of rows in files, against DuckDB and plain Python."""

from __future__ import annotations

import datetime
import gzip
import logging
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client
from hypothesis import given, settings, strategies as st
from pyarrow import csv, feather

import fitplug as fp
import fitplug_dask as fpd
from fitplug.counts.joint_tables import choose_joint_tables, sum_to_tables
from fitplug.counts.records import make_filters
from fitplug.domain import get_codec, get_shape
from fitplug.errors import DataError, DomainError, InputError, TablesError
from fitplug_dask import compiled_loops as loops, kernel
from fitplug_dask.exchange import run
from fitplug_dask.files import take_snapshot
from fitplug_dask.kernel import Fault, Job, counters, partitions, reading
from fitplug_dask.kernel.counters import JointCounters
from fitplug_dask.persons import selection, shuffle
from fitplug_dask.sources import find_files
from tests.helpers import numpy_loops
from tests.helpers.local_workers import start_workers
from tests.helpers.row_reading import watch_reading
from tests.helpers.secrets import NUMBER, TEXT, secrets_in, told_by
from tests.helpers.sources import count_rows, preview_rows

DOMAIN = fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 9), "race": ["a", "b"]})
TABLES = [("sex", "age"), ("age", "race"), ("race",), ()]
WANTED = (DOMAIN, TABLES)
DAYS = [datetime.date(2020, 2, 27) + datetime.timedelta(days=n) for n in range(4)]
INSIDE = "sex IN ('1', '2') AND age BETWEEN 0 AND 9 AND race IN ('a', 'b')"
MOST = 2**40

WHERE: list[tuple[dict[str, Any] | None, str]] = [
    (None, "true"),
    ({"level": "040"}, "level = '040'"),
    ({"level": ["040", "050"], "sex": "2"}, "level IN ('040', '050') AND sex = '2'"),
    ({"code": [7, -(10**12)]}, f"code IN (7, {-(10**12)})"),
    ({"flag": True, "age": [1, 2, 30]}, "flag AND age IN (1, 2, 30)"),
    ({"day": [DAYS[0], DAYS[2]]}, f"day IN (DATE '{DAYS[0]}', DATE '{DAYS[2]}')"),
    ({"level": "none such"}, "false"),
]


def people(seed: int, rows: int = 700) -> dict[str, Any]:
    rng = np.random.default_rng(seed)

    def drawn(values: list[Any], null: float = 0.05) -> list[Any]:
        at, none = rng.integers(0, len(values), rows), rng.random(rows) < null
        return [None if n else values[i] for i, n in zip(at, none, strict=True)]

    return {
        "id": drawn([f"person {i}" for i in range(60)]),
        "sex": drawn(["1", "2", "1", "2", "3"]),
        "age": drawn([*range(-1, 11)]),
        "race": drawn(["a", "b", "a", "b", "c"]),
        "level": drawn(["040", "050", "40", " 040", "é"]),
        "code": drawn([7, -7, -(10**12), 10**12]),
        "flag": drawn([True, False]),
        "day": drawn(DAYS),
        "pop": drawn([*range(-2, 300), 2**31, 2**40, 2**41, -(2**62)], 0.1),
    }


TYPES = {
    "id": pa.string(),
    "sex": pa.string(),
    "age": pa.int8(),
    "race": pa.string(),
    "level": pa.string(),
    "code": pa.int64(),
    "flag": pa.bool_(),
    "day": pa.date32(),
    "pop": pa.int64(),
}


def table_of(columns: dict[str, Any], **types: Any) -> pa.Table:
    kinds = TYPES | types
    return pa.table({name: pa.array(values, kinds[name]) for name, values in columns.items()})


def write(folder: Path, columns: dict[str, Any], kind: str = "parquet", group: int = 90) -> Path:
    """Three files of several units."""
    folder.mkdir(parents=True, exist_ok=True)
    table = table_of(columns)
    for i, part in enumerate(table.slice(start, 250) for start in range(0, len(table), 250)):
        path = str(folder / f"{i}.{kind}")
        if kind == "parquet":
            pq.write_table(part, path, row_group_size=group)
        elif kind == "arrow":
            feather.write_feather(part, path, "uncompressed", chunksize=group)
        elif kind == "arrows":
            with pa.ipc.new_stream(path, part.schema) as stream:
                stream.write_table(part, max_chunksize=group)
        else:
            lines = pa.BufferOutputStream()
            csv.write_csv(part, lines)
            text = lines.getvalue().to_pybytes()
            Path(path).write_bytes(gzip.compress(text, 1) if kind == "csv.gz" else text)
    return folder


def by_duckdb(relation: Any, condition: str, weighted: bool) -> dict[tuple[str, ...], Any]:
    counted = f"sum(least(greatest(pop, 0), {MOST}))" if weighted else "count(*)"
    counts = {names: np.zeros(get_shape(DOMAIN, names), dtype=np.int64) for names in TABLES}
    with duckdb.connect() as connection:
        source = f"'{relation}'"
        if isinstance(relation, pa.Table):
            connection.register("held", relation)
            source = "held"
        found = connection.sql(
            f"SELECT {counted}, sex, age, race FROM {source} WHERE {INSIDE} AND {condition} "
            "GROUP BY ALL"
        ).fetchall()
    for number, sex, age, race in found:
        cells = {"sex": int(sex) - 1, "age": age, "race": "ab".index(race)}
        for names in TABLES:
            counts[names][tuple(cells[name] for name in names)] += int(number or 0)
    return counts


def assert_equal(tables: fp.Tables, expected: Any) -> None:
    for names in TABLES:
        assert tables[names].dtype == np.int64
        np.testing.assert_array_equal(tables[names], expected[names])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parquet", "arrow", "arrows", "csv", "csv.gz"])
@pytest.mark.parametrize("weight", [None, "pop"])
@pytest.mark.parametrize(("where", "condition"), WHERE)
def test_equals_duckdb_in_every_format(
    tmp_path: Path, kind: str, weight: str | None, where: Any, condition: str
) -> None:
    columns = people(1)
    write(tmp_path, columns, kind)
    counted = fpd.count(fp.Source(tmp_path, weight=weight, where=where), WANTED)
    expected = by_duckdb(table_of(columns), condition, weight is not None)
    assert (counted[()] > 0) == (condition != "false")
    assert_equal(counted, expected)
    in_memory = fp.Tables.from_records(
        DOMAIN, table_of(columns), TABLES, weights=weight, where=where
    )
    assert_equal(counted, in_memory)
    assert counted.rows == in_memory.rows


@settings(max_examples=40)
@given(
    tables=st.sets(st.sampled_from([*TABLES, ("sex",), ("sex", "race"), ("age",)]), min_size=1),
    weights=st.lists(
        st.one_of(st.none(), st.integers(-9, 50), st.integers(-(2**63), 2**63 - 1)),
        min_size=1,
        max_size=60,
    ),
    filtered=st.sets(st.sampled_from(["sex", "level", "flag"])),
    weighted=st.booleans(),
    compiled=st.booleans(),
    block=st.sampled_from([1, 7, 2**16]),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_row_reaches_its_cells_with_its_weight(
    tables: set[tuple[str, ...]],
    weights: list[int | None],
    filtered: set[str],
    weighted: bool,
    compiled: bool,
    block: int,
    seed: int,
) -> None:
    values: dict[str, Any] = {"sex": "2", "level": ["040", "050"], "flag": False}
    where = {name: values[name] for name in filtered}
    columns = people(seed, len(weights)) | {"pop": weights}
    wanted = sorted(tables)
    joints = choose_joint_tables(DOMAIN, wanted)
    used = {name for joint in joints for name in joint}
    expected = {t: np.zeros(get_shape(DOMAIN, t), np.int64) for t in wanted}
    for row in range(len(weights)):
        codes = {n: int(get_codec(DOMAIN[n]).codes([columns[n][row], None])[0]) for n in used}
        kept = all(columns[n][row] in np.atleast_1d(v).tolist() for n, v in where.items())
        if kept and min(codes.values(), default=0) >= 0:
            for t in wanted:
                number = min(max(weights[row] or 0, 0), MOST) if weighted else 1
                expected[t][tuple(codes[n] for n in t)] += number
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counters, "BLOCK_ROWS", block)
        if not compiled:
            for name in ("locate", "increment", "increment_pairs"):
                patch.setattr(loops, name, getattr(numpy_loops, name))
            patch.setattr(loops, "add_weights", numpy_loops.add_weights)
            patch.setattr(loops, "add_weights_of_pairs", numpy_loops.add_weights_of_pairs)
        weight = "pop" if weighted else None
        attributes = {n: DOMAIN[n] for n in DOMAIN.names if n in used}
        counting = JointCounters(attributes, joints, 60, weight, make_filters(where))
        batch = table_of(columns).to_batches()[0]
        for start in range(0, len(weights), 25):
            counting.take_batch(batch.slice(start, 25), columns, {})
    counted = sum_to_tables(DOMAIN, dict(zip(joints, counting.counters, strict=True)), wanted)
    for t in wanted:
        np.testing.assert_array_equal(counted[t], expected[t])


INTEGERS = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64()]


@pytest.mark.parametrize(
    "held",
    [*INTEGERS, pa.uint64(), pa.dictionary(pa.int8(), pa.int32())],
    ids=str,
)
@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_integers_of_any_width_are_weights(tmp_path: Path, held: Any, kind: str) -> None:
    width = held.index_type if pa.types.is_dictionary(held) else held
    most = np.iinfo(width.to_pandas_dtype()).max
    values = [1, None, 3, int(most), 100] * 3
    column = pa.array(values, held.value_type if width is not held else held)
    if width is not held:
        column = column.dictionary_encode().cast(held)
    table = pa.table({"sex": ["1", "1", "2", "2", "3"] * 3, "pop": column})
    if kind == "parquet":
        pq.write_table(table, tmp_path / "a.parquet")
    else:
        feather.write_feather(table, str(tmp_path / "a.arrow"), "uncompressed")
    counted = fpd.count(fp.Source(tmp_path, weight="pop"), (DOMAIN, [("sex",)]))
    assert counted["sex"].tolist() == [3, 3 * (3 + min(int(most), MOST))]


def test_a_column_of_nulls_alone_counts_nothing(tmp_path: Path) -> None:
    pq.write_table(pa.table({"sex": ["1"], "pop": pa.nulls(1)}), tmp_path / "a.parquet")
    wanted = (DOMAIN, [("sex",)])
    assert fpd.count(fp.Source(tmp_path, weight="pop"), wanted)["sex"].sum() == 0
    assert fpd.count(fp.Source(tmp_path, where={"pop": 3}), wanted)["sex"].sum() == 0


def test_text_of_csv_is_typed_by_weights_and_by_the_values_given(tmp_path: Path) -> None:
    lines = [
        ("1", "040", "5"),
        ("1", "40", "7"),
        ("2", "040", ""),
        ("2", "040", "1.5"),
        ("2", "040", "many"),
        ("2", "040", "+3"),
        ("2", "040", " 4"),
        ("2", "040", "4.0"),
        ("2", "040", "-4"),
        ("2", '"040"', '"6"'),
        ("2", "040", "99999999999999999999999"),
        ("1", "", "11"),
        ("1", '""', "13"),
    ]
    text = "sex,level,pop\n" + "".join(",".join(line) + "\n" for line in lines)
    (tmp_path / "a.csv").write_text(text)
    wanted = (DOMAIN, [("sex",)])

    def counted(where: Any) -> list[int]:
        return fpd.count(fp.Source(tmp_path, weight="pop", where=where), wanted)["sex"].tolist()

    assert counted({"level": "040"}) == [5, 17 + MOST]  # 3, 4 and 4 in other spellings, too
    assert counted({"level": 40}) == [12, 17 + MOST]
    assert counted({"level": ""}) == [13, 0]
    assert counted(None) == [36, 17 + MOST]
    assert counted({"level": True}) == [0, 0]


# Folders, threads, clusters


def hive(folder: Path, columns: dict[str, Any]) -> Path:
    table = table_of(columns)
    states = ["01", "02", "1", "__HIVE_DEFAULT_PARTITION__"]
    for i, state in enumerate(states):
        (folder / f"state={state}").mkdir(parents=True)
        part = table.take(list(range(i, len(table), len(states))))
        pq.write_table(part, folder / f"state={state}" / "a.parquet", row_group_size=50)
    return folder


@pytest.mark.parametrize(
    ("state", "condition", "files"),
    [
        ("01", "state = '01'", 1),
        (["01", "02"], "state IN ('01', '02')", 2),
        (1, "state IN ('01', '1')", 2),
        ("77", "false", 0),
    ],
)
def test_folders_of_other_values_are_not_read(
    tmp_path: Path, state: Any, condition: str, files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    hive(tmp_path, people(2))
    read = watch_reading(monkeypatch)
    where = {"state": state, "level": ["040", "050"]}
    with duckdb.connect() as connection:
        held = connection.sql(
            f"SELECT * FROM read_parquet('{tmp_path}/**/*.parquet', hive_partitioning = true, "
            "hive_types = {'state': VARCHAR})"
        ).to_arrow_table()
    for weight in (None, "pop"):
        read.clear()
        counted = fpd.count(fp.Source(tmp_path, weight=weight, where=where), WANTED)
        expected = by_duckdb(held, f"{condition} AND level IN ('040', '050')", weight is not None)
        assert_equal(counted, expected)
        assert len({group.path for group in read}) == files
    told = fpd.preview(fp.Source(tmp_path, where=where), WANTED)
    assert (told.files, told.left_out) == (files, 4 - files)


def test_a_folder_key_is_an_attribute_and_a_filter(tmp_path: Path) -> None:
    columns = people(3)
    hive(tmp_path, columns)
    domain = fp.Domain({"state": ["01", "02", "1"], "sex": ["1", "2"]})
    wanted = (domain, [("state", "sex"), ("state",)])
    whole = fpd.count(fp.Source(tmp_path, weight="pop"), wanted)["state", "sex"]
    some = fpd.count(fp.Source(tmp_path, weight="pop", where={"state": ["02", "1"]}), wanted)
    assert whole.all()
    np.testing.assert_array_equal(some["state", "sex"], np.vstack([[0, 0], whole[1:]]))
    alone = fpd.count(fp.Source(tmp_path, where={"state": "02"}), (domain, [("state",)]))
    assert alone["state"].tolist() == [0, len(columns["sex"][1::4]), 0]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with start_workers(2, 1, processes=True) as client:
        yield client


@pytest.mark.long
def test_workers_and_shares_change_nothing(
    tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = people(4, 600)
    write(tmp_path, columns, group=50)
    where, condition = WHERE[2]
    monkeypatch.setattr(partitions, "_MOST_ROWS", 50)
    monkeypatch.setattr(partitions, "_ROWS_PER_CELL", 0.1)
    for weight in (None, "pop"):
        expected = by_duckdb(table_of(columns), condition, weight is not None)
        options: dict[str, Any] = {"weight": weight, "where": where}
        for threads in (1, 4):
            with dask.config.set(num_workers=threads):
                assert_equal(count_rows(tmp_path, WANTED, **options), expected)
        assert_equal(count_rows(tmp_path, WANTED, **options, client=client), expected)
    options = {"where": where, "person": "id", "unit": fp.AddRemove(2), "person_key": bytes(16)}
    here = count_rows(tmp_path, WANTED, **options)
    assert_equal(count_rows(tmp_path, WANTED, **options, client=client), here)


def test_large_sums_are_exact_and_beyond_int64_refused(tmp_path: Path) -> None:
    wanted = (DOMAIN, [("sex",), ()])

    def written(rows: int, weight: int) -> Path:
        table = pa.table({"sex": ["1"] * rows, "pop": np.full(rows, weight)})
        pq.write_table(table, tmp_path / "a.parquet", row_group_size=2**16)
        return tmp_path

    odd = 2**39 + 12345
    assert fpd.count(fp.Source(written(2**13, odd), weight="pop"), wanted)["sex"][0] == 2**13 * odd
    for rows in (2**13 + 1, 2**18 + 2**16, 2**23 + 2**17):
        with pytest.raises(
            (TablesError, DataError), match=r"more than (2\*\*53|9,007,199,254,740,992)"
        ):
            fpd.count(fp.Source(written(rows, 2**62), weight="pop"), wanted)


def test_partial_sums_never_wrap() -> None:
    part = kernel.PartialCounts((np.array([kernel.LARGEST_SUM, 0]),))
    whole = kernel.add_partial_counts(*[part] * 8)
    assert isinstance(whole, Fault)
    half = kernel.PartialCounts((np.array([kernel.LARGEST_SUM // 2, 0]),))
    total = kernel.add_partial_counts(pickle.loads(pickle.dumps(half)), half)
    assert isinstance(total, kernel.PartialCounts)
    assert total.counts[0].tolist() == [kernel.LARGEST_SUM, 0]


# Persons


@pytest.mark.slow
@pytest.mark.parametrize("crowded", [False, True])
@pytest.mark.parametrize("k", [1, 2, 7])
@pytest.mark.parametrize(("where", "condition"), WHERE[1:])
def test_rows_left_out_are_none_of_a_persons_k(
    tmp_path: Path,
    where: Any,
    condition: str,
    k: int,
    crowded: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if crowded:
        monkeypatch.setattr(reading, "_BATCH_ROWS", 8)
        monkeypatch.setattr(selection, "_COMPACTED_ROWS", 20)
        monkeypatch.setattr("fitplug_dask.kernel.partitions._SMALL_ROWS", 20)
        monkeypatch.setattr(shuffle, "_BUCKET_ROWS", 9)
        monkeypatch.setattr(run, "MEMORY_SHARE", 1e-7)
    columns = people(5)
    table = table_of(columns)
    write(tmp_path / "all", columns)
    options: dict[str, Any] = {
        "person": "id",
        "unit": fp.AddRemove(k),
        "person_key": b"sixteen bytes or more",
    }
    counted = count_rows(fp.Source(tmp_path / "all", where=where), WANTED, **options)
    with duckdb.connect() as connection:
        connection.register("held", table)
        (kept,) = connection.sql(
            f"SELECT coalesce(sum(least(n, {k})), 0) FROM (SELECT count(*) AS n FROM held "
            f"WHERE {INSIDE} AND id IS NOT NULL AND {condition} GROUP BY id)"
        ).fetchall()[0]
        passing = connection.sql(f"SELECT * FROM held WHERE {condition}").to_arrow_table()
    assert counted[()] == kept
    # The same rows as where the others were never there, with the same key.
    (tmp_path / "some").mkdir()
    pq.write_table(passing, tmp_path / "some" / "a.parquet")
    assert_equal(counted, count_rows(tmp_path / "some", WANTED, **options))


@pytest.mark.parametrize("seed", range(3))
def test_one_person_more_changes_only_its_own_rows(tmp_path: Path, seed: int) -> None:
    columns = people(seed, 200)
    where = {"level": ["040", "050"], "flag": True}
    options: dict[str, Any] = {
        "person": "id",
        "unit": fp.AddRemove(2),
        "person_key": b"sixteen bytes or more",
    }
    table = table_of(columns)

    def counted(some: pa.Table, name: str) -> fp.Tables:
        pq.write_table(some, tmp_path / f"{name}.parquet")
        return count_rows(fp.Source(tmp_path / f"{name}.parquet", where=where), WANTED, **options)

    whole = counted(table, "all")
    for name in ("person 3", "person 17", "person 40"):
        own = np.array([held == name for held in columns["id"]])
        rest = counted(table.filter(pa.array(~own)), "rest")
        alone = counted(table.filter(pa.array(own)), "own")
        for names in TABLES:
            np.testing.assert_array_equal(whole[names] - rest[names], alone[names])


# What is refused, and what nothing tells


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"weight": "popp"}, DataError, "no column 'popp'. Did you mean 'pop'"),
        ({"weight": "share"}, DataError, "'share' has the type double, but weights are integers"),
        ({"weight": "level"}, DataError, "'level' has the type string, but weights are integers"),
        ({"weight": "flag"}, DataError, "'flag' has the type bool, but weights are integers"),
        ({"weight": "money"}, DataError, "has the type decimal128.*but weights are integers"),
        ({"weight": "age"}, DomainError, "cannot be both the weight and an attribute"),
        ({"weight": ""}, DomainError, "must be the name of a column"),
        (
            {"weight": "pop", "where": {"pop": 1}},
            DomainError,
            "the filter 'where' cannot use the weight column 'pop'",
        ),
        (
            {"weight": "pop", "person": "id", "unit": fp.AddRemove(1)},
            InputError,
            "cannot be combined",
        ),
        ({"weight": "state"}, DataError, "'state' must be a column of the files, not a folder"),
        ({"where": {"levle": "x"}}, DataError, "no column 'levle'. Did you mean 'level'"),
        (
            {"where": {"level": 40}},
            DataError,
            "has the type string, but 'where' gives integers.*change 'where'",
        ),
        ({"where": {"code": "7"}}, DataError, "has the type int64, but 'where' gives strings"),
        ({"where": {"share": "1"}}, DataError, "has the type double, but 'where' gives strings"),
        (
            {"where": {"day": "2020-01-01"}},
            DataError,
            "has the type date32.*but 'where' gives strings",
        ),
        ({"where": {"state": 1}}, DataError, "state=x: 'where' gives integers for 'state'"),
        ({"where": {"level": []}}, DomainError, "no value of 'level'"),
    ],
)
def test_what_is_refused_before_any_row_is_read(
    tmp_path: Path, options: Any, error: Any, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "state=x"
    folder.mkdir()
    table = table_of(people(7, 10))
    table = table.append_column("share", pa.array([0.5] * 10))
    table = table.append_column("money", pa.array([1] * 10).cast(pa.decimal128(20, 1)))
    pq.write_table(table, folder / "a.parquet")
    read = watch_reading(monkeypatch)
    for call in (count_rows, preview_rows):
        asked = {n: v for n, v in options.items() if call is count_rows or n != "unit"}
        with pytest.raises(error, match=says) as caught:
            call(tmp_path, WANTED, **asked)
        assert caught.value.__cause__ is None
    assert not read


def test_a_missing_column_of_csv_quotes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"sex,age,race,{TEXT}\n1,1,a,{NUMBER}\n")
    for options in ({"weight": "pop"}, {"where": {"level": "040"}}):
        with pytest.raises(DataError, match=r"has no column '(pop|level)' in its") as caught:
            count_rows(tmp_path, WANTED, **options)  # type: ignore[arg-type]
        assert not secrets_in(told_by(caught.value))


def broken_page(path: Path) -> None:
    rows = {"sex": ["1"] * 1237, "level": [TEXT] * 1237, "pop": [NUMBER] * 1237}
    pq.write_table(pa.table(rows), path, compression="none", use_dictionary=False)
    content = bytearray(path.read_bytes())
    at = content.index(NUMBER.to_bytes(8, "little"))
    content[at - 40 : at] = b"\xee" * 40
    path.write_bytes(bytes(content))


def floats(path: Path) -> None:
    rows = {"sex": ["1"], "level": [TEXT], "pop": [NUMBER + 0.5]}
    pq.write_table(pa.table(rows), path)


def strings(path: Path) -> None:
    rows = {"sex": ["1"], "level": [TEXT], "pop": [str(NUMBER)]}
    pq.write_table(pa.table(rows), path)


def too_many(path: Path) -> None:
    rows = {"sex": ["1"] * 30_000, "level": [TEXT] * 30_000, "pop": [NUMBER] * 30_000}
    pq.write_table(pa.table(rows), path)


@pytest.mark.parametrize("on", ["threads", pytest.param("cluster", marks=pytest.mark.slow)])
def test_no_failure_tells_weights_or_what_is_filtered(
    tmp_path: Path,
    on: str,
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    used = request.getfixturevalue("client") if on == "cluster" else None
    for fail in (broken_page, floats, strings, too_many):
        fail(tmp_path / "bad.parquet")
        where = {"level": [TEXT.lower(), "040"]} if fail is not too_many else None
        with caplog.at_level(logging.DEBUG), pytest.raises(InputError) as caught:
            fpd.count(
                fp.Source(tmp_path, weight="pop", where=where), (DOMAIN, [("sex",)]), client=used
            )
        assert not secrets_in(told_by(caught.value))
        assert "30,000" not in told_by(caught.value)
    assert not secrets_in(caplog.text + "".join(capfd.readouterr()))
    if used is not None:
        assert not secrets_in(f"{used.get_worker_logs()} {used.get_scheduler_logs()}")


def test_neither_a_job_nor_its_files_tell_rows(tmp_path: Path) -> None:
    rows = {"sex": ["1"], "level": [TEXT], "pop": [NUMBER]}
    pq.write_table(pa.table(rows), tmp_path / "a.parquet")
    filters = make_filters({"level": "040"})
    job = Job({"sex": DOMAIN["sex"]}, (("sex",),), "pop", filters)
    files = take_snapshot(
        find_files(fp.Source(tmp_path)), job.attributes, weight="pop", filters=filters
    )
    assert set(files[0].columns) == {"sex", "level", "pop"}
    assert not secrets_in(f"{job} {files}")


# What a survey says


def test_a_survey_says_how_rows_are_understood(tmp_path: Path) -> None:
    write(tmp_path, people(8))
    plain = fpd.preview(tmp_path, WANTED)
    assert plain.rows_are == "each row counts once"
    assert plain.counts == ("pop",)
    limited = fpd.preview(fp.Source(tmp_path, person="id"), WANTED)
    assert limited.counts == ()
    assert limited.rows_are == (
        "each row counts once, for the person in column 'id'; rows beyond the limit per person and "
        "rows without an identifier are not counted"
    )
    told = fpd.preview(fp.Source(tmp_path, weight="pop", where={"level": "040"}), WANTED)
    assert told.counts == ()
    assert told.rows_are == (
        'each row counts pop times; only rows where level is "040" are counted'
    )
    many = {"code": list(range(50)), "flag": True}
    assert fpd.preview(fp.Source(tmp_path, where=many), WANTED).rows_are == (
        "each row counts once; only rows where code is 0, 1, 2 or one of 47 more and flag is "
        "true are counted"
    )


def test_which_columns_seem_to_be_counts(tmp_path: Path) -> None:
    named = ["n", "N", "POP", "pop_2020", "POP100", "total", "Count", "row_count", "freq", "WEIGHT"]
    not_named = ["county", "country", "num_rooms", "total_income", "age", "popular", "id", "x"]
    columns: dict[str, Any] = {name: [1] for name in ["sex", *named, *not_named]}
    columns |= {"sex": ["1"], "weights": [0.5], "cnt": ["1"]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    wanted = (DOMAIN, [("sex",)])
    assert fpd.preview(tmp_path, wanted).counts == tuple(named)
    known = fp.Domain({"sex": ["1", "2"], "n": [1, 2]})
    assert fpd.preview(tmp_path, (known, [("sex",)])).counts == tuple(named[1:])
    assert "N" not in fpd.preview(fp.Source(tmp_path, where={"N": 1}), wanted).counts
    csv.write_csv(pa.table(columns), str(tmp_path / "a.csv"))
    assert fpd.preview(tmp_path / "a.csv", wanted).counts == (*named, "weights", "cnt")
    # Of the total alone no column is needed, so the first line may be a person's.
    assert fpd.preview(tmp_path / "a.csv", (DOMAIN, [()])).counts == ()
