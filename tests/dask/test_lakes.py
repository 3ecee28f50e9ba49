"""Delta and Iceberg tables count as the libraries that write them read them."""

from __future__ import annotations

import datetime
import functools
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from distributed import Client, LocalCluster
from pyiceberg.expressions import EqualTo
from pyiceberg.table import StaticTable
from pyiceberg.types import IntegerType, LongType

import fitplug as fp
import fitplug_dask as fpd
from fitplug.errors import DataError
from fitplug_dask.sources.iceberg_tables import read_positions, read_vectors
from fitplug_dask.sources.source_files import find_remaining, pack_rows, unpack_rows
from tests.helpers import lakes

DOMAIN = fp.Domain(
    {"sex": ["1", "2"], "age": fp.Integers(0, 9), "year": fp.Categories([0, 1], other="later")}
)
WANTED = (DOMAIN, [("sex", "age"), ("year",)])


def draw(seed: int, rows: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "sex": rng.choice(["1", "2", "3"], rows),
            "age": pa.array(rng.integers(0, 12, rows), mask=rng.random(rows) < 0.1),
            "year": rng.integers(0, 3, rows),
            "id": rng.integers(0, 60, rows),
        }
    )


def count_naively(table: pa.Table) -> dict[tuple[str, ...], Any]:
    counted = {("sex", "age"): np.zeros((2, 10), int), ("year",): np.zeros(3, int)}
    columns = [table[name].to_pylist() for name in ("sex", "age", "year")]
    for sex, age, year in zip(*columns, strict=True):
        if sex in ("1", "2") and age in range(10):
            counted[("sex", "age")][int(sex) - 1, age] += 1
            counted[("year",)][2 if year is None else min(2, year)] += 1
    return counted


def assert_counts(source: Any, table: pa.Table, wanted: Any = WANTED) -> None:
    counted = fpd.count(source, wanted)
    expected = count_naively(table)
    assert expected[("year",)].sum() > 20
    for names, held in expected.items():
        np.testing.assert_array_equal(counted[names], held)


def refuses(source: Any, says: str, wanted: Any = WANTED) -> None:
    with pytest.raises(DataError, match=says) as caught:
        fpd.count(source, wanted)
    assert caught.value.__context__ is None


# Deleted rows


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9, 1000])
def test_deleted_rows_are_found_in_any_batch(rows: int) -> None:
    deleted = np.random.default_rng(rows).random(rows) < 0.3
    bits = unpack_rows(pack_rows(deleted))
    every = np.append(~deleted, np.ones(50, bool))
    for first in (*range(min(rows, 20)), max(0, rows - 1), rows, rows + 30):
        for size in (1, 8, 13, 20):
            expected = every[first : first + size]
            remaining = find_remaining(bits, first, len(expected))
            assert (remaining is None) == expected.all()
            if remaining is not None:
                np.testing.assert_array_equal(remaining, expected)


# Delta


@pytest.fixture
def delta(tmp_path: Path) -> Path:
    root = tmp_path / "delta table"
    for seed in range(4):
        write_deltalake(root, draw(seed, 100), mode="append", partition_by=["year"])
    deltalake.DeltaTable(root).delete("age = 5")
    deltalake.DeltaTable(root).update(updates={"age": "age + 1"}, predicate="sex = '1'")
    return root


def test_each_version_of_a_delta_table(delta: Path) -> None:
    for version in range(6):
        table = deltalake.DeltaTable(delta, version=version)
        assert_counts(fp.DeltaTable(delta, version), table.to_pyarrow_table())
        assert_counts(table, table.to_pyarrow_table())
    refuses(fp.DeltaTable(delta, 6), "has no version 6.*The latest version is 5")
    refuses(fp.DeltaTable(delta.parent), "is not a Delta table")
    file = next(delta.rglob("*.parquet"))
    for lake in (fp.DeltaTable(file), fp.IcebergTable(file)):
        refuses(lake, "is a file, but (Delta|Iceberg) tables are folders")


def test_a_delta_table_from_its_checkpoint(delta: Path) -> None:
    deltalake.DeltaTable(delta).create_checkpoint()
    write_deltalake(delta, draw(9, 100), mode="append")
    for path in delta.glob(f"_delta_log/{0:019d}[0-4].json"):
        path.unlink()
    assert_counts(fp.DeltaTable(delta), deltalake.DeltaTable(delta).to_pyarrow_table())
    refuses(fp.DeltaTable(delta, 3), "has no version 3")
    checkpoint = next(delta.glob("_delta_log/*.checkpoint.parquet"))
    checkpoint.write_bytes(checkpoint.read_bytes()[:-20])
    refuses(fp.DeltaTable(delta), "the log of the Delta table .* is damaged")


def test_persons_weights_and_filters_of_a_delta_table(delta: Path) -> None:
    table = deltalake.DeltaTable(delta).to_pyarrow_table()
    rows = list(zip(*(table[n].to_pylist() for n in ("sex", "age", "year", "id")), strict=True))
    held = [row for row in rows if row[0] in "12" and row[1] in range(10) and row[2] == 1]
    wanted = (DOMAIN, [("sex", "age")])
    source = fp.DeltaTable(delta)
    counted = fpd.count(fp.Source(source, where={"year": 1}), wanted)
    assert counted[("sex", "age")].sum() == len(held) > 20
    limited = fpd.count(
        fp.Source(source, where={"year": 1}, person="id"), wanted, unit=fp.AddRemove(2)
    )
    most = sum(min(2, k) for k in Counter(row[3] for row in held).values())
    assert limited[("sex", "age")].sum() == most < len(held)
    weighted = fpd.count(fp.Source(source, weight="id"), wanted)[("sex", "age")]
    inside = [row[3] for row in rows if row[0] in "12" and row[1] in range(10)]
    assert weighted.sum() == sum(inside)


@pytest.mark.parametrize("storage", ["u", "i", "p"])
def test_deletion_vectors_of_delta(tmp_path: Path, storage: str) -> None:
    table = pa.table({**draw(1, 900).to_pydict(), "row": range(900)})
    write_deltalake(tmp_path / "t", table)
    (add,) = lakes.list_added(tmp_path / "t")
    gone = [0, 7, 899, *range(300, 420)]
    lakes.delete_delta_rows(tmp_path / "t", add, gone, storage)
    kept = table.filter(pa.array([row not in gone for row in range(900)]))
    source = fp.DeltaTable(tmp_path / "t")
    assert_counts(source, kept)
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(tmp_path / "t"))
    read = pa.table(query.execute("SELECT count(*) AS n FROM t").read_all())
    assert fpd.count(source, (DOMAIN, [()]))[()] == read["n"][0].as_py() == 777
    assert_counts(fp.DeltaTable(tmp_path / "t", 0), table)
    assert fpd.preview(source, WANTED).rows is None


def test_a_deletion_vector_that_is_gone_or_damaged(tmp_path: Path) -> None:
    write_deltalake(tmp_path, draw(1, 90))
    lakes.delete_delta_rows(tmp_path, lakes.list_added(tmp_path)[0], [1, 2], "u")
    (vector,) = tmp_path.glob("ab/*.bin")
    content = vector.read_bytes()
    vector.write_bytes(content.replace(b"\x02\x00", b"\x03\x00"))
    refuses(
        fp.DeltaTable(tmp_path),
        "the log or a deletion file of the Delta table .* is damaged or missing",
    )
    vector.unlink()
    refuses(
        fp.DeltaTable(tmp_path),
        "the log or a deletion file of the Delta table .* is damaged or missing",
    )


@pytest.mark.parametrize("mode", ["name", "id"])
def test_renamed_columns_of_delta(tmp_path: Path, mode: str) -> None:
    table = draw(3, 200)
    fields, metadata = [], {}
    for number, field in enumerate(table.schema):
        physical = f"col-{number}"
        ids = {b"PARQUET:field_id": str(number + 1).encode()}
        fields.append(pa.field("x" * number if mode == "id" else physical, field.type, True, ids))
        metadata[field.name] = {
            "delta.columnMapping.id": number + 1,
            "delta.columnMapping.physicalName": physical,
        }
    pq.write_table(
        table.cast(pa.schema([f.remove_metadata() for f in table.schema]))
        .rename_columns([f.name for f in fields])
        .cast(pa.schema(fields)),
        tmp_path / "a%20b.parquet",
    )
    types = {"sex": "string", "age": "long", "year": "long", "id": "long"}
    schema = {
        "type": "struct",
        "fields": [
            {"name": n, "type": t, "nullable": True, "metadata": metadata[n]}
            for n, t in types.items()
        ],
    }
    (tmp_path / "_delta_log").mkdir()
    first = tmp_path / "_delta_log" / f"{0:020d}.json"
    actions = [
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
        {
            "metaData": {
                "id": "00000000-0000-0000-0000-000000000000",
                "format": {"provider": "parquet", "options": {}},
                "partitionColumns": [],
                "createdTime": 1,
                "schemaString": json.dumps(schema),
                "configuration": {"delta.columnMapping.mode": mode},
            }
        },
        {
            "add": {
                "path": "a%2520b.parquet",
                "partitionValues": {},
                "size": (tmp_path / "a%20b.parquet").stat().st_size,
                "modificationTime": 1,
                "dataChange": True,
            }
        },
    ]
    first.write_text("".join(json.dumps(action) + "\n" for action in actions))
    assert_counts(fp.DeltaTable(tmp_path), table)
    lakes.commit_delta(tmp_path, lakes.describe_feature("columnMapping", "newFeature"))
    refuses(fp.DeltaTable(tmp_path), "uses newFeature, which fitplug does not support")


def test_a_file_of_another_size_than_the_log_says(delta: Path) -> None:
    pq.write_table(draw(7, 5), delta / lakes.list_added(delta)[-1]["path"])
    refuses(fp.DeltaTable(delta), "does not have the size that its table records")


def test_values_of_partitions_are_read_as_the_log_spells_them(tmp_path: Path) -> None:
    days = [datetime.date(2020, 1, k) for k in (1, 2, 3)]
    rows = pa.table(
        {
            "day": pa.array([*days, None] * 30, pa.date32()),
            "is_new": [True, False, None] * 40,
            "place": ["a b", "é/%20", "x=y", None, ""] * 24,
            "size": range(120),
        }
    )
    write_deltalake(tmp_path, rows, partition_by=["day", "is_new", "place"])
    domain = fp.Domain(
        {
            "day": fp.Dates("2020-01-01", "2020-01-03"),
            "is_new": fp.Categories([False, True], other="unknown"),
            "place": fp.Categories(["a b", "é/%20", "x=y"], other="none"),
        }
    )
    written = rows.to_pylist()
    held = Counter((row["day"], row["is_new"], row["place"]) for row in written if row["day"])
    counted = fpd.count(fp.DeltaTable(tmp_path), (domain, [("day", "is_new", "place")]))
    cells = counted[("day", "is_new", "place")]
    for i, day in enumerate(days):
        for j, new in enumerate((False, True)):
            for k, place in enumerate(("a b", "é/%20", "x=y")):
                assert cells[i, j, k] == held[day, new, place] > 0
    assert cells.sum() == 90


def test_a_table_that_changes_does_not_change_the_count(delta: Path, tmp_path: Path) -> None:
    opened = deltalake.DeltaTable(delta)
    before = opened.to_pyarrow_table()
    plain = tmp_path / "plain"
    write_deltalake(plain, draw(1, 90))
    lakes.delete_delta_rows(plain, lakes.list_added(plain)[0], [1, 2], "u")
    write_deltalake(delta, draw(9, 100), mode="append")
    assert_counts(opened, before)

    def remove(done: int, total: int) -> None:
        for vector in plain.glob("ab/*.bin"):
            vector.unlink()

    counted = fpd.count(fp.DeltaTable(plain), (DOMAIN, [()]), progress=remove)
    assert counted[()] == 88


@pytest.mark.parametrize("package", ["deltalake", "pyiceberg"])
def test_a_missing_library_is_one_sentence(
    delta: Path, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    source = fp.DeltaTable(delta) if package == "deltalake" else fp.IcebergTable("m.json")
    refuses(source, rf'needs the package {package}. Install it with: pip install "fitplug\[')


# Iceberg


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Any]:
    with lakes.make_catalog(tmp_path.as_uri()) as catalog:
        yield catalog


@pytest.fixture
def iceberg(catalog: Any) -> Any:
    table = catalog.create_table("n.t", draw(0, 1).schema)
    for seed in range(3):
        table.append(draw(seed, 100))
    return table


def locate(table: Any) -> str:
    return str(table.metadata_location).removeprefix("file://")


def test_an_iceberg_table_and_its_snapshots(iceberg: Any) -> None:
    first = iceberg.current_snapshot().snapshot_id
    before = iceberg.scan().to_arrow()
    iceberg.delete(EqualTo("age", 5))
    assert_counts(iceberg, iceberg.scan().to_arrow())
    assert_counts(fp.IcebergTable(locate(iceberg)), iceberg.scan().to_arrow())
    assert_counts(fp.IcebergTable(locate(iceberg), first), before)
    refuses(fp.IcebergTable(locate(iceberg), 5), "has no snapshot 5")
    folder = Path(locate(iceberg)).parents[1]
    refuses(fp.IcebergTable(folder), "current version of the Iceberg table")
    (folder / "metadata" / "version-hint.text").write_text(Path(locate(iceberg)).name)
    assert_counts(fp.IcebergTable(folder), iceberg.scan().to_arrow())


def test_damage_never_changes_which_rows_are_deleted(tmp_path: Path) -> None:
    """Every byte that changes is an error, or changes nothing: pages have checksums."""
    gone = {"s3://bucket/a": range(0, 60, 3), "s3://bucket/z": [4]}
    rows = [(name, position) for name, held in gone.items() for position in held]
    columns = dict(zip(("file_path", "pos"), map(list, zip(*rows, strict=True)), strict=True))
    path = tmp_path / "gone.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=10, write_page_checksum=True)
    puffin = lakes.write_puffin(tmp_path / "gone.puffin", {"s3://bucket/a": range(0, 60, 3)})
    readers = {path: lambda content: read_positions(content, 21), puffin: read_vectors}
    for written, read in readers.items():
        content = written.read_bytes()
        whole = {name: held.tolist() for name, held in read(content).items()}
        assert whole["s3://bucket/a"] == list(range(0, 60, 3))
        errors = 0
        # The footer of Puffin, which names the files, has no checksum.
        end = content.rindex(b"PFA1{") if written == puffin else len(content)
        for at in range(end):
            damaged = content[:at] + bytes((content[at] ^ 1,)) + content[at + 1 :]
            try:
                told = {name: held.tolist() for name, held in read(damaged).items()}
            except Exception:
                errors += 1
            else:
                assert told == whole, at
        assert errors > 30


@pytest.mark.parametrize("store_schema", [True, False])
def test_renamed_added_and_widened_columns_of_iceberg(
    catalog: Any, store_schema: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers other than Arrow number the columns in Parquet's own schema only."""
    writer = functools.partial(pq.ParquetWriter, store_schema=store_schema)
    monkeypatch.setattr(pq, "ParquetWriter", writer)
    old = draw(1, 100)
    types = pa.schema(
        [old.schema.field(n) if n != "age" else pa.field(n, pa.int32()) for n in old.schema.names]
    )
    table = catalog.create_table("n.t", types)
    table.append(old.cast(types))
    (task,) = table.scan().plan_files()
    metadata = pq.read_metadata(task.file.file_path.removeprefix("file://")).metadata or {}
    assert (b"ARROW:schema" in metadata) == store_schema
    with table.update_schema() as update:
        update.rename_column("sex", "gender")
        update.rename_column("id", "sex")
        update.update_column("age", LongType())
        update.add_column("level", IntegerType())
    with table.update_schema() as update:
        update.rename_column("sex", "person")
        update.rename_column("gender", "sex")
    new = draw(2, 100).rename_columns(["sex", "age", "year", "person"])
    table.append(new.append_column("level", pa.array([1] * 100, pa.int32())))
    assert_counts(table, table.scan().to_arrow())
    domain = fp.Domain({"level": fp.Categories([1], other="none")})
    assert fpd.count(table, (domain, [("level",)]))[("level",)].tolist() == [100, 100]
    refuses(table, "has no column 'id'", (fp.Domain({"id": [1]}), [("id",)]))


def test_position_deletes_of_iceberg(iceberg: Any, tmp_path: Path) -> None:
    files = [task.file.file_path for task in iceberg.scan().plan_files()]
    deleted = [(files[0], p) for p in range(0, 100, 3)] + [(files[1], 99), (files[1], 0)]
    path = lakes.write_positions(tmp_path / "gone.parquet", deleted)
    delete = lakes.describe_delete(path, "positions", len(deleted))
    metadata = lakes.commit_iceberg_deletes(iceberg, tmp_path, delete)
    read = StaticTable.from_metadata(metadata.as_uri()).scan().to_arrow()
    assert len(read) == 300 - len(deleted)
    assert_counts(fp.IcebergTable(metadata), read)
    assert fpd.count(fp.IcebergTable(metadata), (DOMAIN, [()]))[()] == len(read)


def test_equality_deletes_of_iceberg_are_refused(iceberg: Any, tmp_path: Path) -> None:
    number = next(field.field_id for field in iceberg.schema().fields if field.name == "age")
    field = pa.field("age", pa.int64(), True, {"PARQUET:field_id": str(number)})
    path = tmp_path / "gone.parquet"
    pq.write_table(pa.table([[3, None]], schema=pa.schema([field])), path)
    delete = lakes.describe_delete(path, "values", 2, equality_ids=[number])
    metadata = lakes.commit_iceberg_deletes(iceberg, tmp_path, delete)
    for source in (fp.IcebergTable(metadata), StaticTable.from_metadata(metadata.as_uri())):
        refuses(source, "has equality deletes, which fitplug does not support. Write a copy")


def test_deletion_vectors_of_iceberg(iceberg: Any, tmp_path: Path) -> None:
    files = [task.file.file_path for task in iceberg.scan().plan_files()]
    older = lakes.write_positions(tmp_path / "old.parquet", [(files[0], 50)])
    gone = {files[0]: [1, 2, 50, 99], files[1]: list(range(10, 90))}
    path = lakes.write_puffin(tmp_path / "vectors.puffin", gone)
    entries = [
        lakes.describe_delete(path, "bitmap", len(held), referenced_data_file=file)
        for file, held in gone.items()
    ]
    ignored = lakes.describe_delete(older, "positions", 1)
    metadata = lakes.commit_iceberg_deletes(iceberg, tmp_path, *entries, ignored)
    kept = []
    for file in files:
        table = pq.read_table(file.removeprefix("file://"))
        kept.append(
            table.filter(pa.array([p not in gone.get(file, ()) for p in range(len(table))]))
        )
    source = fp.IcebergTable(metadata)
    assert_counts(source, pa.concat_tables(kept))
    lakes.write_puffin(path, {file: [p + 60 for p in held] for file, held in gone.items()})
    refuses(source, "cannot be read, or its metadata are damaged")  # rows beyond the end
    path.write_bytes(path.read_bytes()[:-1])
    refuses(source, "cannot be read, or its metadata are damaged")
    path.unlink()
    refuses(source, "cannot be read, or its metadata are damaged")


def test_scans_of_iceberg(iceberg: Any) -> None:
    first = iceberg.current_snapshot().snapshot_id
    before = iceberg.scan().to_arrow()
    iceberg.append(draw(7, 50))
    scan = iceberg.scan(selected_fields=("sex", "age", "year"))
    assert_counts(scan, scan.to_arrow())
    assert_counts(iceberg.scan(snapshot_id=first), before)
    refuses(scan, "has no column 'id'", (fp.Domain({"id": [1]}), [("id",)]))
    refuses(iceberg.scan("age = 5"), "has a filter or a limit")
    refuses(iceberg.scan(limit=5), "has a filter or a limit")


@pytest.mark.slow
def test_lakes_on_a_cluster(delta: Path, iceberg: Any, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    write_deltalake(plain, draw(1, 900))
    opened = deltalake.DeltaTable(delta)
    data_set = opened.to_pyarrow_dataset()
    lakes.delete_delta_rows(plain, lakes.list_added(plain)[0], range(500, 600), "u")
    file = next(iter(iceberg.scan().plan_files())).file.file_path
    gone = lakes.write_positions(tmp_path / "gone.parquet", [(file, p) for p in range(50)])
    delete = lakes.describe_delete(gone, "positions", 50)
    metadata = lakes.commit_iceberg_deletes(iceberg, tmp_path, delete)
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        for source in (opened, data_set, fp.DeltaTable(plain), fp.IcebergTable(metadata)):
            counted = fpd.count(source, WANTED, client=client)
            alone = fpd.count(source, WANTED)
            for table in alone:
                np.testing.assert_array_equal(counted[table], alone[table])


# Folders


def test_the_folder_of_a_lake_is_refused(delta: Path, iceberg: Any, tmp_path: Path) -> None:
    data = Path(locate(iceberg)).parents[1]
    hudi = tmp_path / "hudi" / ".hoodie"
    hudi.mkdir(parents=True)
    pq.write_table(draw(1, 5), tmp_path / "hudi" / "a.parquet")
    for root, says in (
        (delta, "is a Delta table.*fp.DeltaTable"),
        (data, "is an Iceberg table.*fp.IcebergTable"),
        (hudi.parent, "is a Hudi table.*does not support Hudi"),
    ):
        inside = next(root.rglob("*.parquet"))
        for source in (root, inside, inside.parent, f"{root}/*", f"{root}/**/*.parquet"):
            refuses(source, says)
