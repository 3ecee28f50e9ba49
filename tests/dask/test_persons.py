"""At most k rows of each person: which ones depends on the person's rows alone."""

from __future__ import annotations

import hashlib
import tracemalloc
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from distributed import Client
from pyarrow import csv, feather

import fitplug as fp
import fitplug_dask as fpd
from fitplug.domain import get_shape
from fitplug.errors import BudgetError, DataError, DomainError, TablesError
from fitplug_dask import compiled_loops as loops
from fitplug_dask.exchange import depot, run
from fitplug_dask.kernel import Job, reading
from fitplug_dask.persons import selection, shuffle
from fitplug_dask.persons.packing import Packing, Rows
from fitplug_dask.persons.selection import Selection
from fitplug_dask.sources import library_tables
from fitplug_dask.workers import open_runner
from tests.helpers import numpy_loops
from tests.helpers.counting import STRINGS, WRITERS, make_array
from tests.helpers.siphash import scalar_siphash128
from tests.helpers.sources import count_rows

DOMAIN = fp.Domain(
    {"sex": ["1", "2"], "age": fp.Integers(0, 9), "race": fp.Categories(["a", "b"], other="rest")}
)
TABLES = [("sex", "age"), ("age", "race"), ()]
WANTED = (DOMAIN, TABLES)
KEY = b"sixteen bytes or more"


def naive_cells(row: dict[str, Any]) -> tuple[int, ...] | None:
    if row["sex"] not in ("1", "2") or row["age"] is None or not 0 <= row["age"] <= 9:
        return None
    race = {"a": 0, "b": 1}.get(row["race"], 2)
    return int(row["sex"]) - 1, row["age"], race


def brute_force(rows: list[dict[str, Any]], k: int, key: bytes = KEY) -> dict[Any, Any]:
    """Persons in a dictionary, each one's rows sorted by their priorities, written apart."""
    chosen = Selection.create(("id",), k, key)
    persons: dict[Any, list[tuple[int, ...]]] = defaultdict(list)
    for row in rows:
        cells = naive_cells(row)
        if row["id"] is not None and cells is not None:
            persons[row["id"]].append(cells)
    counts = {t: np.zeros(get_shape(DOMAIN, t), dtype=np.int64) for t in TABLES}
    for person, held in persons.items():
        if isinstance(person, int):
            text = person.to_bytes(9, "little", signed=True)
        else:
            text = person.encode() if isinstance(person, str) else person
        tag = b"".join(h.to_bytes(8, "little") for h in scalar_siphash128(chosen.tag_key, text))

        def priority(cells: tuple[int, ...], tag: bytes = tag) -> int:
            sex, age, race = cells
            word = ((sex * 10 + age) * 3 + race).to_bytes(8, "little")
            return scalar_siphash128(chosen.priority_key, tag + word)[0]

        for sex, age, race in sorted(held, key=priority)[:k]:
            counts["sex", "age"][sex, age] += 1
            counts["age", "race"][age, race] += 1
            counts[()] += 1
    return counts


def people(seed: int, persons: int = 40, integers: bool = False) -> list[dict[str, Any]]:
    """Persons of 1 to 19 rows each, some rows outside the domain, some of nobody."""
    rng = np.random.default_rng(seed)
    names = [i * 7 if integers else f"person {i}" * (1 + i % 3) for i in range(persons)]
    rows = [
        {
            "id": None if rng.random() < 0.05 else name,
            "sex": str(rng.choice(["1", "2", "3"], p=[0.6, 0.3, 0.1])),
            "age": None if rng.random() < 0.03 else int(rng.integers(-1, 11)),
            "race": str(rng.choice(["a", "b", "c"])),
        }
        for name in names
        for _ in range(rng.integers(1, 20))
    ]
    return [rows[i] for i in rng.permutation(len(rows))]


def write(path: Path, rows: list[dict[str, Any]], group: int = 50, id_type: Any = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    integers = any(isinstance(row["id"], int) for row in rows)
    types = {
        "id": id_type or (pa.int64() if integers else pa.string()),
        "sex": pa.string(),
        "age": pa.int8(),
        "race": pa.string(),
    }
    columns = {n: make_array([row[n] for row in rows], t) for n, t in types.items()}
    pq.write_table(pa.table(columns), path, row_group_size=group)
    return path


def limited(source: Any, k: int, **options: Any) -> fp.Tables:
    return count_rows(
        fp.Source(source, person="id"),
        WANTED,
        unit=fp.AddRemove(k),
        **{"person_key": KEY, **options},
    )


def assert_equal(tables: fp.Tables, expected: Any) -> None:
    for names in TABLES:
        np.testing.assert_array_equal(tables[names], expected[names])


@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize("k", [1, 2, 5, 18, 19, 10**6])
def test_equals_brute_force_and_duckdb(tmp_path: Path, k: int, integers: bool) -> None:
    rows = people(k, integers=integers)
    write(tmp_path / "a.parquet", rows[:200])
    write(tmp_path / "b.parquet", rows[200:], group=7)
    tables = limited(tmp_path, k)
    assert_equal(tables, brute_force(rows, k))
    assert tables.unit == fp.AddRemove(k)
    inside = "sex IN ('1', '2') AND age BETWEEN 0 AND 9 AND id IS NOT NULL"
    with duckdb.connect() as connection:
        query = f"""SELECT sum(least(n, {k})) FROM (SELECT count(*) AS n
            FROM '{tmp_path}/*.parquet' WHERE {inside} GROUP BY id)"""
        (kept,) = connection.sql(query).fetchall()[0]
    assert tables[()] == kept


@pytest.mark.usefixtures("crowded")
@pytest.mark.parametrize("k", [1, 3, 30])
def test_buckets_compaction_and_the_disk_change_nothing(
    tmp_path: Path, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    append = depot.SpillFile.append

    def watched(file: Any, message: bytes, context: bytes) -> Any:
        written.append(len(message))
        return append(file, message, context)

    monkeypatch.setattr(depot.SpillFile, "append", watched)
    rows = people(3)
    told: list[tuple[int, int]] = []
    counted = limited(
        write(tmp_path / "a.parquet", rows), k, progress=lambda *rows: told.append(rows)
    )
    assert_equal(counted, brute_force(rows, k))
    assert told[0] == (0, told[-1][1])
    assert told[-1][0] == told[-1][1] == 2 * len(rows)
    assert sum(written) > len(rows)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow
def test_order_files_and_workers_change_nothing(
    tmp_path: Path, seed: int, client: Client, request: pytest.FixtureRequest
) -> None:
    rows = people(seed)
    k = 3
    first = limited(write(tmp_path / "one" / "a.parquet", rows), k)
    rng = np.random.default_rng(seed)
    mixed = [rows[i] for i in rng.permutation(len(rows))]
    for i in range(5):
        write(tmp_path / "many" / f"{i}.parquet", mixed[i::5], group=1 + 9 * i)
    assert_equal(limited(tmp_path / "many", k), first)
    with dask.config.set(num_workers=1):
        assert_equal(limited(tmp_path / "many", k), first)
    assert_equal(limited(tmp_path / "many", k, client=client), first)
    request.getfixturevalue("crowded")
    assert_equal(limited(tmp_path / "many", k, client=client), first)


@pytest.mark.parametrize("seed", range(4))
def test_one_person_more_or_less_changes_its_own_kept_rows_only(tmp_path: Path, seed: int) -> None:
    rows, k = people(seed, persons=8), 1 + seed
    whole = limited(write(tmp_path / "all.parquet", rows), k)
    for name in {row["id"] for row in rows if row["id"] is not None}:
        without = [row for row in rows if row["id"] != name]
        alone = [row for row in rows if row["id"] == name]
        rest = limited(write(tmp_path / "rest.parquet", without), k)
        own = limited(write(tmp_path / "own.parquet", alone), k)
        assert own[()] <= k
        for names in TABLES:
            np.testing.assert_array_equal(whole[names] - rest[names], own[names])


def test_every_key_keeps_other_rows_and_a_fresh_one_is_drawn(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", people(1))
    kept = {limited(path, 2, person_key=bytes([i] * 16))["sex", "age"].tobytes() for i in range(4)}
    assert len(kept) == 4
    fresh = {limited(path, 2, person_key=None)["sex", "age"].tobytes() for _ in range(4)}
    assert len(fresh) == 4


def test_each_of_a_persons_cells_is_kept_equally_often(tmp_path: Path) -> None:
    rows = [
        {"id": f"{i}", "sex": "1", "age": age, "race": "a"} for i in range(4000) for age in range(4)
    ]
    counts = limited(write(tmp_path / "a.parquet", rows, group=16_000), 1)["sex", "age"][0]
    # 1000 of each expected, with a standard deviation of 27.
    assert counts.sum() == 4000
    assert np.abs(counts[:4] - 1000).max() < 140


@pytest.mark.parametrize("id_type", STRINGS.values(), ids=STRINGS)
def test_every_way_to_store_strings_names_the_same_persons(tmp_path: Path, id_type: Any) -> None:
    rows = people(2)
    write(tmp_path / "a.parquet", rows[:150], id_type=id_type)
    write(tmp_path / "b.parquet", rows[150:])
    assert_equal(limited(tmp_path, 2), brute_force(rows, 2))


SPELLINGS = [
    ["7", " 7", "007", "+7", "7.0", "07.\t"],
    ["100000", "1e+05", "100000.00"],
    ["-3", "-003", "-3.0"],
    ["0", "000", "0.0"],
    ["12345678901234567890123", "0012345678901234567890123"],
    ["a7", " a7 "],
    *(["A7"], ["1e5"], ["7.5"], ["1.23e+01"], ["7 7"], ["person 10"]),
    *(["Nat"], ["NAN"], ["NA1"], ["..", " .."], ["<NA> 1"]),
]
"""Persons, with the ways to write each of them."""


@pytest.mark.parametrize("kind", STRINGS.values(), ids=STRINGS)
@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".csv"])
def test_a_person_is_one_however_it_is_spelled(tmp_path: Path, kind: Any, suffix: str) -> None:
    texts = [text for person in SPELLINGS for text in person]
    # As R, pandas, SAS, databases and Python write null.
    nobody = ["NA", " NA ", "<NA>", "nan", "NaN", "NaT", ".", "NULL", "null", "None", "N/A"]
    ids = [*texts, None, "", " ", *nobody]
    columns = {"id": ids, "house": ["07"] * len(ids), "sex": ["1"] * len(ids)}
    columns |= {"race": ["a"] * len(ids), "age": [1] * len(ids)}
    table = pa.table(columns)
    if suffix == ".csv":
        csv.write_csv(table, tmp_path / "a.csv")
    else:
        table = table.set_column(0, "id", make_array(ids, kind))
        write_one = pq.write_table if suffix == ".parquet" else feather.write_feather
        write_one(table, tmp_path / f"a{suffix}")
    for person in ("id", ["id", "house"], ["house", "id"]):
        source = fp.Source(tmp_path, person=person)
        counted = fp.count(source, WANTED, unit=fp.AddRemove(1))
        assert counted[()] == len(SPELLINGS)


def split_key(rows: list[dict[str, Any]], types: Any) -> dict[str, pa.Array]:
    """Rows whose persons are numbers, with two columns in the place of their key."""
    pairs = [(None, 0) if row["id"] is None else divmod(row["id"], 21) for row in rows]
    columns = {}
    for name, part, kind in zip(("house", "line"), zip(*pairs, strict=True), types, strict=True):
        spell = str if kind == pa.string() else int
        columns[name] = pa.array([None if v is None else spell(v) for v in part], kind)
    return columns | {n: pa.array([row[n] for row in rows]) for n in ("sex", "age", "race")}


@pytest.mark.parametrize("k", [1, 3, 30])
@pytest.mark.parametrize("types", [(pa.string(), pa.int64()), (pa.int8(), pa.string())])
def test_a_key_of_two_columns_is_one_key(
    tmp_path: Path, k: int, types: Any, client: Client
) -> None:
    """Pairs such as 1, 23 and 12, 3 are two persons; files, order and workers change nothing."""
    rows = people(k, integers=True)
    whole = pa.table(split_key(rows, types))
    pq.write_table(whole, tmp_path / "a.parquet", row_group_size=37)
    person = ["house", "line"]
    how: Any = {"unit": fp.AddRemove(k), "person_key": KEY}
    counted = fp.count(fp.Source(tmp_path / "a.parquet", person=person), WANTED, **how)
    per_person: Counter[int] = Counter(
        row["id"] for row in rows if row["id"] is not None and naive_cells(row) is not None
    )
    assert counted[()] == sum(min(k, n) for n in per_person.values())
    if k == 30:
        assert_equal(counted, brute_force(rows, k))
    assert_equal(fp.count(fp.Source(whole, person=person), WANTED, **how), counted)
    frame = dd.from_pandas(whole.to_pandas(), npartitions=3)  # whose integers become text
    assert fp.count(fp.Source(frame, person=person), WANTED, **how)[()] == counted[()]
    on_workers = fp.count(
        fp.Source(tmp_path / "a.parquet", person=person), WANTED, client=client, **how
    )
    assert_equal(on_workers, counted)
    other = fp.count(fp.Source(tmp_path / "a.parquet", person=person[::-1]), WANTED, **how)
    assert other[()] == counted[()]


UUIDS = {n: hashlib.md5(b"%d" % n).digest() for n in range(200)}
IDENTIFIERS: dict[str, tuple[Any, Any]] = {
    **{str(t): (t, str) for t in (pa.string(), pa.large_string(), pa.string_view())},
    **{str(t): (t, str) for t in (pa.binary(), pa.large_binary(), pa.binary_view())},
    "dictionary of texts": (pa.dictionary(pa.int16(), pa.large_string()), str),
    "dictionary of views": (pa.dictionary(pa.uint8(), pa.string_view()), str),
    "dictionary of integers": (pa.dictionary(pa.int32(), pa.int16()), int),
    "fixed bytes": (pa.binary(16), UUIDS.get),
    "UUIDs": (pa.uuid(), UUIDS.get),
    **{f"int{b}": (getattr(pa, f"int{b}")(), int) for b in (8, 16, 32, 64)},
    **{f"uint{b}": (getattr(pa, f"uint{b}")(), int) for b in (8, 16, 32, 64)},
    "largest integers": (pa.uint64(), lambda n: 2**64 - 1 - n),
    "decimals": (pa.decimal128(18, 0), int),
    "narrow decimals": (pa.decimal32(9, 0), int),
    "wide decimals": (pa.decimal128(38, 0), str),
}
"""Types in which persons may be identified, and what the number of a person is in them."""


def store_persons(identifiers: list[Any], kind: Any) -> pa.Array:
    """Identifiers in a type, with the entries of dictionaries behind others that are cut off."""
    if isinstance(kind, pa.DictionaryType):
        coded = pa.array([identifiers[-1], *identifiers]).dictionary_encode()
        entries = pa.concat_arrays([coded.dictionary[:1], coded.dictionary]).cast(kind.value_type)
        indices = coded.indices[1:].cast(kind.index_type)
        return pa.DictionaryArray.from_arrays(indices, entries.slice(1))
    if pa.types.is_decimal(kind):
        identifiers = [None if i is None else Decimal(i) for i in identifiers]
    return pa.array(identifiers, kind)


def number_persons(seed: int, share_of_nobody: float) -> list[dict[str, Any]]:
    """Rows of 30 persons, whose identifiers are numbers."""
    rng = np.random.default_rng(seed)
    rows = people(seed, persons=30)
    for row in rows:
        row["id"] = None if rng.random() < share_of_nobody else int(rng.integers(30)) * 4
    return rows


@pytest.mark.parametrize("name", IDENTIFIERS)
# Without a null, other versions of Arrow cast a slice in another way than with one.
@pytest.mark.parametrize("share_of_nobody", [0.0, 0.1])
def test_slices_of_every_type_keep_the_rows_that_a_loop_keeps(
    name: str, share_of_nobody: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library_tables.SharedStream, "shares", 1)
    kind, identify = IDENTIFIERS[name]
    rows = number_persons(8, share_of_nobody)[:200]
    for row in rows:
        row["id"] = None if row["id"] is None else identify(row["id"])
    ids = store_persons([row["id"] for row in rows], kind)
    columns = {n: pa.array([row[n] for row in rows]) for n in ("sex", "age", "race")}
    table = pa.table({"id": ids, **columns})
    for offset in (0, 1, 8, 65):
        expected = brute_force(rows[offset:], 2)
        assert expected[()] > 30
        assert_equal(limited(table.slice(offset), 2), expected)


SOURCES: dict[str, Any] = {
    "a batch": lambda table: table.combine_chunks().to_batches()[0],
    "chunks": lambda table: pa.concat_tables([table.slice(0, 9), table.slice(9, 70), table[79:]]),
    "a reader": lambda table: pa.RecordBatchReader.from_batches(table.schema, table.to_batches(7)),
    "a data set": pyarrow.dataset.dataset,
    "a part of a data set": lambda t: pyarrow.dataset.dataset(t).filter(pc.field("age") < 99),
    "a relation of DuckDB": lambda table: duckdb.from_arrow(table),
    "a frame of Polars": pl.from_arrow,
    "a slice in Polars": lambda t: pl.concat([pl.from_arrow(t)[:5], pl.from_arrow(t)])[5:].lazy(),
    "delayed Arrow": lambda table: [dask.delayed(table.slice(i, 50)) for i in range(0, 999, 50)],
    "delayed Polars": lambda table: [dask.delayed(pl.from_arrow(table)[:60]),
                                     dask.delayed(pl.from_arrow(table)[60:])],
    "delayed pandas": lambda table: [dask.delayed(table.to_pandas()[:60]),
                                     dask.delayed(table.to_pandas()[60:])],
}  # fmt: skip


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("share_of_nobody", [0.0, 0.1])
def test_slices_from_every_source_keep_the_rows_that_a_loop_keeps(
    source: str, share_of_nobody: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_BATCH_ROWS", 32)
    rows = number_persons(9, share_of_nobody)
    for row in rows:
        row["id"] = None if row["id"] is None else f"person {row['id']}"
    columns = {name: pa.array([row[name] for row in rows]) for name in rows[0]}
    table = pa.table(columns).slice(5)
    assert_equal(limited(SOURCES[source](table), 2), brute_force(rows[5:], 2))


@pytest.mark.usefixtures("either_loops")
@pytest.mark.parametrize("name", ["a.arrow", "a.arrows", "a.csv", "a.parquet"])
def test_slices_of_files_keep_the_rows_that_a_loop_keeps(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_BATCH_ROWS", 32)
    rows = number_persons(7, 0.0)
    for row in rows:
        row["id"] = f"person {row['id']}"
    table = pa.table({name: pa.array([row[name] for row in rows]) for name in rows[0]})
    WRITERS.get(Path(name).suffix, pq.write_table)(table, tmp_path / name)
    assert_equal(limited(tmp_path / name, 2), brute_force(rows, 2))


@pytest.mark.parametrize("id_type", [pa.int16(), pa.int32(), pa.uint8(), pa.uint64()], ids=str)
def test_every_width_of_integers_names_the_same_persons(tmp_path: Path, id_type: Any) -> None:
    rows = people(2, persons=30, integers=True)
    write(tmp_path / "a.parquet", rows[:150], id_type=id_type)
    write(tmp_path / "b.parquet", rows[150:])
    assert_equal(limited(tmp_path, 2), brute_force(rows, 2))


def test_a_column_of_the_null_type_is_nobody(tmp_path: Path) -> None:
    rows = people(2)
    write(tmp_path / "a.parquet", rows)
    pq.write_table(
        pa.table({"id": pa.nulls(2), "sex": ["1", "1"], "age": [1, 1], "race": ["a", "a"]}),
        tmp_path / "b.parquet",
    )
    assert_equal(limited(tmp_path, 2), brute_force(rows, 2))


def test_the_total_alone_and_folders_as_attributes(tmp_path: Path) -> None:
    rows = people(6)
    write(tmp_path / "state=01" / "a.parquet", rows)
    write(tmp_path / "state=02" / "a.parquet", rows)
    write(tmp_path / "state=03" / "a.parquet", rows)
    total = fpd.count(fp.Source(tmp_path, person="id"), (DOMAIN, [()]), unit=fp.AddRemove(2))
    per_person = Counter(row["id"] for row in rows if row["id"] is not None)
    assert total[()] == sum(min(2, 3 * n) for n in per_person.values())
    states = fp.Domain({"state": ["01", "02"]})
    counted = fpd.count(
        fp.Source(tmp_path, person="id"), (states, [("state",)]), unit=fp.AddRemove(10**6)
    )
    assert counted["state"].tolist() == [sum(per_person.values())] * 2


def test_many_attributes_take_several_words() -> None:
    attributes: dict[str, Any] = {f"a{i}": fp.Integers(0, 10**6) for i in range(7)}
    packing = Packing(Job(attributes, ()))
    assert [len(names) for names in packing.words] == [3, 3, 1]
    rng = np.random.default_rng(0)
    codes = {name: rng.integers(0, 10**6 + 1, 50) for name in attributes}
    unpacked = packing.unpack(packing.pack(codes, 50))
    assert all((unpacked[name] == codes[name]).all() for name in attributes)


def test_rows_whose_persons_agree_in_half_of_the_hash_are_told_apart() -> None:
    tags = np.array([[5, 1], [5, 2], [5, 1], [5, 2], [6, 1]], dtype=np.uint64)
    rows = Rows(tags, np.arange(5, dtype=np.uint64)[:, None])
    kept = Selection.create(("id",), 1, KEY).select_rows(rows)
    assert sorted(tuple(t) for t in tags[kept].tolist()) == [(5, 1), (5, 2), (6, 1)]


@pytest.mark.slow
def test_memory_is_bounded_by_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n, limit = 400_000, 1_000_000
    rng = np.random.default_rng(0)
    columns = {"id": rng.integers(0, n // 8, n), "sex": ["1"] * n, "age": rng.integers(0, 10, n)}
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=10_000)
    del columns
    wanted = (DOMAIN, [("sex", "age")])
    options: dict[str, Any] = {"person": "id", "unit": fp.AddRemove(3), "person_key": KEY}
    monkeypatch.setattr(reading, "_BATCH_ROWS", 2048)
    monkeypatch.setattr("fitplug_dask.kernel.partitions._SMALL_ROWS", 10_000)
    peaks = {}
    with dask.config.set(num_workers=1):
        count_rows(path, wanted, **options)
        for allowed in (2**32, limit):
            share = allowed / open_runner(None).memory
            monkeypatch.setattr(run, "MEMORY_SHARE", share)
            tracemalloc.start()  # NumPy tells it of every array
            counted = count_rows(path, wanted, **options)
            peaks[allowed] = counted, tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
    (whole, most), (parts, least) = peaks.values()
    np.testing.assert_array_equal(whole["sex", "age"], parts["sex", "age"])
    assert most > n * 17  # the hash of each row and its cell
    assert least < limit + 3_500_000  # a partition, a bucket, batches, tables and tasks


def test_buckets_fit_in_the_memory_of_all_threads_and_in_numbers_of_16_bits() -> None:
    job = Job({"sex": DOMAIN["sex"], "age": DOMAIN["age"]}, ())
    for rows, allowed, threads in [(10**6, 10**9, 2), (10**8, 10**7, 8), (100, 10**9, 64)]:
        count = shuffle.choose_buckets(job, rows, allowed, threads)
        assert threads * (rows / count) * shuffle._COPIES * (16 + 8 + 17) <= 1.01 * allowed
    assert shuffle.choose_buckets(job, 10**12, 10**6, 2) == 2**16
    assert shuffle.choose_buckets(job, 0, 10**6, 2) == 1


def test_a_person_of_very_many_rows_takes_no_more_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_BATCH_ROWS", 512)
    monkeypatch.setattr(selection, "_COMPACTED_ROWS", 1000)
    held: list[int] = []
    add = selection.concatenate_rows

    def watched(parts: Any) -> Rows:
        rows = add(parts)
        held.append(len(rows.tags))
        return rows

    monkeypatch.setattr(selection, "concatenate_rows", watched)
    rows = [{"id": "0", "sex": "1", "age": i % 10, "race": "a"} for i in range(20_000)]
    counted = limited(write(tmp_path / "a.parquet", rows, group=20_000), 5)
    assert counted[()] == 5
    assert max(held) < 2_000


def test_a_person_of_very_many_rows_crowds_no_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fitplug_dask.kernel.partitions._SMALL_ROWS", 2_000)
    monkeypatch.setattr(shuffle, "_BUCKET_ROWS", 2_000)
    monkeypatch.setattr(shuffle, "_CROWDED_ROWS", 100)
    sent: list[int] = []
    select = Selection.select_rows

    def watched(selection: Selection, rows: Rows) -> Any:
        sent.append(len(rows.tags))
        return select(selection, rows)

    rows = [{"id": f"{i * (i % 2)}", "sex": "1", "age": i % 10, "race": "a"} for i in range(40_000)]
    expected = limited(write(tmp_path / "a.parquet", rows, group=2_000), 5)
    monkeypatch.setattr(Selection, "select_rows", watched)
    counted = limited(tmp_path, 5)
    assert_equal(counted, expected)
    assert counted[()] == 20_000 + 5
    assert len(sent) > 30
    assert max(sent) < 3_000


@pytest.mark.parametrize("words", [0, 1, 3])
@pytest.mark.parametrize("limit", [1, 2, 7, 1000])
def test_the_compiled_selection_is_that_of_numpy(words: int, limit: int) -> None:
    rng = np.random.default_rng(limit)
    n = 4000
    persons = rng.integers(0, 2**64, (500, 2), dtype=np.uint64)
    persons[::7, 0] = persons[0, 0]  # half of a hash in common, either one
    persons[::5, 1] = persons[0, 1]
    tags = persons[np.minimum(rng.geometric(0.01, n), 499)]
    cells = rng.integers(0, 4, (n, words)).astype(np.uint64)
    found = []
    for built in (loops, numpy_loops):
        kept = np.empty(n, dtype=np.int64)
        chosen = kept[: built.select_rows(3, 2**64 - 5, tags, cells, limit, kept)]
        assert len(set(chosen.tolist())) == len(chosen)
        found.append(sorted(map(tuple, np.hstack([tags, cells])[chosen].tolist())))
    assert found[0] == found[1]
    each = Counter(map(tuple, tags.tolist()))
    assert len(found[0]) == sum(min(limit, rows) for rows in each.values())


def test_records_are_sorted_by_bucket_in_both_ways() -> None:
    rng = np.random.default_rng(0)
    records = rng.integers(0, 256, (1000, 17)).astype(np.uint8)
    bucket = rng.integers(0, 300, 1000).astype(np.uint16)
    expected = records[np.argsort(bucket, kind="stable")]
    for built in (loops, numpy_loops):
        ordered, sizes = np.empty_like(records), np.bincount(bucket, minlength=300)
        ends = np.cumsum(sizes) - sizes
        built.sort_records(records, bucket, ends, ordered)
        np.testing.assert_array_equal(ordered, expected)
        np.testing.assert_array_equal(ends, np.cumsum(sizes))


# What is refused


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"unit": fp.AddRemove(2)}, BudgetError, "Name the column of persons"),
        ({"person_key": KEY}, BudgetError, "needs a count that limits the rows per person"),
        ({"person": "id"}, BudgetError, "person= needs a unit of privacy"),
        (
            {"person": "id", "unit": fp.AddRemove(1), "person_key": b"short"},
            TypeError,
            "person_key must be at least 16 bytes",
        ),
        (
            {"person": "age", "unit": fp.AddRemove(1)},
            DomainError,
            "'age' cannot be both a person column and an attribute",
        ),
        (
            {"person": "idd", "unit": fp.AddRemove(1)},
            DataError,
            "no column 'idd'. Did you mean 'id'",
        ),
        (
            {"person": "weight", "unit": fp.AddRemove(1)},
            DataError,
            "has the type double, but person",
        ),
    ],
)
def test_what_is_refused(tmp_path: Path, options: Any, error: Any, says: str) -> None:
    table = {"id": ["x"], "sex": ["1"], "age": [1], "race": ["a"], "weight": [0.5]}
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    with pytest.raises(error, match=says) as caught:
        count_rows(tmp_path, WANTED, **options)
    assert caught.value.__context__ is None
    if "person" in options and error in (DomainError, DataError):
        with pytest.raises(error, match=says):
            fpd.preview(fp.Source(tmp_path, person=options["person"]), WANTED)


def test_persons_of_two_types_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", people(1))
    write(tmp_path / "b.parquet", people(1, integers=True))
    with pytest.raises(DataError, match=r"b\.parquet: column 'id' holds integers, but strings in"):
        limited(tmp_path, 1)


def test_persons_by_folder_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "who=3" / "a.parquet", people(1))
    with pytest.raises(DataError, match=r"'who' must be a column of the files, not a folder"):
        fpd.count(fp.Source(tmp_path, person="who"), WANTED, unit=fp.AddRemove(1))


@pytest.mark.parametrize("on", ["threads", "cluster"])
def test_a_damaged_file_is_named_and_nothing_is_quoted(
    tmp_path: Path, on: str, client: Client
) -> None:
    path = write(tmp_path / "a.parquet", people(1))
    content = bytearray(path.read_bytes())
    content[4:100] = b"\xff" * 96
    path.write_bytes(bytes(content))
    with pytest.raises(DataError, match=r"a\.parquet: row group 0 cannot be read") as caught:
        limited(tmp_path, 1, client=client if on == "cluster" else None)
    assert caught.value.__context__ is None


def test_secrets_are_not_shown() -> None:
    chosen = Selection.create(("id",), 3, KEY)
    rows = Rows(np.full((1, 2), 735, np.uint64), np.full((1, 1), 735, np.uint64))
    shown = repr(chosen) + repr(rows) + repr(shuffle.PersonJob(Job({}, ()), chosen, 9))
    assert "735" not in shown
    assert repr(chosen.tag_key) not in shown


def test_a_release_is_charged_for_no_fewer_records_than_the_tables_hold(tmp_path: Path) -> None:
    workload = fp.Workload(DOMAIN, [fp.marginal("sex", std=5.0)])
    plan = fp.design(workload)
    path = write(tmp_path / "a.parquet", people(1))
    tables = fpd.count(fp.Source(path, person="id"), workload, unit=fp.AddRemove(3))
    with pytest.raises(TablesError, match="were counted for the unit"):
        fp.release(plan, tables)
    assert fp.release(fp.design(workload, unit=fp.AddRemove(3)), tables).limited == "enforced"
    assert fpd.count(path, plan).unit is None


@pytest.mark.parametrize("name", ["d.csv", "d.feather"])
def test_of_other_formats_the_same_rows_are_kept(tmp_path: Path, name: str) -> None:
    rng = np.random.default_rng(3)
    n = 3000
    people = pa.table(
        {
            "id": pa.array([f"p{i}" for i in rng.integers(0, 400, n)]),
            "sex": pa.array(rng.choice(["1", "2"], n)),
            "age": pa.array(rng.integers(0, 10, n)),
            "race": pa.array(rng.choice(["a", "b", "c"], n)),
        }
    )
    pq.write_table(people, tmp_path / "d.parquet")
    writers: Any = {"d.csv": csv.write_csv, "d.feather": feather.write_feather}
    writers[name](people, str(tmp_path / name))
    wanted = {"person": "id", "unit": fp.AddRemove(3), "person_key": KEY}
    one, other = (count_rows(tmp_path / file, WANTED, **wanted) for file in ("d.parquet", name))
    assert one[()] < n
    for table in TABLES:
        np.testing.assert_array_equal(one[table], other[table])
