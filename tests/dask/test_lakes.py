"""Delta and Iceberg tables count as the libraries that write them read them."""

from __future__ import annotations

import functools
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyiceberg.expressions import EqualTo
from pyiceberg.table import StaticTable
from pyiceberg.types import IntegerType, LongType
from pyroaring import BitMap64

import fitplug as fp
import fitplug_dask as fpd
from fitplug.errors import DataError
from fitplug_dask.checkpoint import _digest_count
from fitplug_dask.files import take_snapshot
from fitplug_dask.files.deletions import PlannedDeletion, load_deleted_rows
from fitplug_dask.files.header import DamagedFileError
from fitplug_dask.files.roaring_bitmaps import read_framed_positions, read_positions
from fitplug_dask.kernel import Job
from fitplug_dask.sources import Deletion, DeletionKind, Location, StoredColumn, find_files
from fitplug_dask.sources.avro import read_avro
from fitplug_dask.sources.delta_tables import decode_z85
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


# Deletion vectors


@pytest.mark.parametrize("seed", range(6))
def test_deletion_vectors_are_read_as_croaring_writes_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    drawn = {
        0: [],
        1: [0, 2**16 - 1, 2**16, 2**32 - 1, 2**32, 2**40 + 7],
        2: rng.integers(0, 2**20, 30_000).tolist(),  # containers that are bitmaps
        3: [*range(100, 70_000), *range(2**33, 2**33 + 10)],  # runs
        4: rng.integers(0, 2**34, 5000).tolist(),
        5: [p for k in range(6) for p in range(k << 16, (k << 16) + 5000)],  # runs with offsets
    }[seed]
    bitmap = BitMap64(drawn)
    if seed in (3, 5):
        bitmap.run_optimize()
    vector = lakes.make_vector([])[:4] + bitmap.serialize()
    np.testing.assert_array_equal(read_positions(vector), sorted(set(drawn)))
    np.testing.assert_array_equal(read_framed_positions(lakes.frame_vector(vector)), bitmap)


def test_a_damaged_deletion_vector_is_an_error() -> None:
    framed = lakes.frame_vector(lakes.make_vector([1, 5, 2**33, *range(5000)]))
    for at in range(0, len(framed), 97):
        damaged = framed[:at] + bytes([framed[at] ^ 1]) + framed[at + 1 :]
        with pytest.raises(ValueError, match="deletion vector"):
            read_framed_positions(damaged)


def test_base_85_is_that_of_zeromq() -> None:
    assert decode_z85("HelloWorld") == bytes.fromhex("864fd26fb559f75b")  # its specification
    for text in ("abcd", "abcdé"):
        with pytest.raises(ValueError, match=r"base 85|not found"):
            decode_z85(text)


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
        assert_counts(fpd.DeltaTable(delta, version), table.to_pyarrow_table())
        assert_counts(table, table.to_pyarrow_table())
    refuses(fpd.DeltaTable(delta, 6), "has no version 6.*the latest version is 5")
    refuses(fpd.DeltaTable(delta.parent), "is no Delta table")


def test_a_delta_table_from_its_checkpoint(delta: Path) -> None:
    deltalake.DeltaTable(delta).create_checkpoint()
    write_deltalake(delta, draw(9, 100), mode="append")
    for path in delta.glob(f"_delta_log/{0:019d}[0-4].json"):
        path.unlink()
    assert_counts(fpd.DeltaTable(delta), deltalake.DeltaTable(delta).to_pyarrow_table())
    refuses(fpd.DeltaTable(delta, 3), "has no version 3")
    checkpoint = next(delta.glob("_delta_log/*.checkpoint.parquet"))
    checkpoint.write_bytes(checkpoint.read_bytes()[:-20])
    refuses(fpd.DeltaTable(delta), "the log of the Delta table .* is damaged")


def test_persons_weights_and_filters_of_a_delta_table(delta: Path) -> None:
    table = deltalake.DeltaTable(delta).to_pyarrow_table()
    rows = list(zip(*(table[n].to_pylist() for n in ("sex", "age", "year", "id")), strict=True))
    held = [row for row in rows if row[0] in "12" and row[1] in range(10) and row[2] == 1]
    wanted = (DOMAIN, [("sex", "age")])
    source = fpd.DeltaTable(delta)
    counted = fpd.count(source, wanted, where={"year": 1})
    assert counted[("sex", "age")].sum() == len(held) > 20
    limited = fpd.count(source, wanted, where={"year": 1}, person="id", contributions=2)
    most = sum(min(2, k) for k in Counter(row[3] for row in held).values())
    assert limited[("sex", "age")].sum() == most < len(held)
    weighted = fpd.count(source, wanted, weight="id")[("sex", "age")]
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
    source = fpd.DeltaTable(tmp_path / "t")
    assert_counts(source, kept)
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(tmp_path / "t"))
    read = pa.table(query.execute("SELECT count(*) AS n FROM t").read_all())
    assert fpd.count(source, (DOMAIN, [()]))[()] == read["n"][0].as_py() == 777
    assert_counts(fpd.DeltaTable(tmp_path / "t", 0), table)
    assert fpd.survey(source, WANTED).rows is None


def test_a_deletion_vector_that_is_gone_or_damaged(tmp_path: Path) -> None:
    write_deltalake(tmp_path, draw(1, 90))
    lakes.delete_delta_rows(tmp_path, lakes.list_added(tmp_path)[0], [1, 2], "u")
    (vector,) = tmp_path.glob("ab/*.bin")
    content = vector.read_bytes()
    vector.write_bytes(content.replace(b"\x02\x00", b"\x03\x00"))
    refuses(fpd.DeltaTable(tmp_path), "has deleted rows, and the file that tells which is damaged")
    vector.unlink()
    refuses(fpd.DeltaTable(tmp_path), "cannot be found, which tells deleted rows")


@pytest.mark.parametrize("storage", ["u", "i", "p"])
def test_a_checkpoint_is_of_one_set_of_deleted_rows(tmp_path: Path, storage: str) -> None:
    digests = set()
    for gone in ([1, 2], [1, 3]):
        write_deltalake(tmp_path / "t", draw(1, 90), mode="overwrite")
        lakes.delete_delta_rows(tmp_path / "t", lakes.list_added(tmp_path / "t")[-1], gone, storage)
        source = fpd.DeltaTable(tmp_path / "t")
        files = take_snapshot(find_files(source), {"sex": DOMAIN["sex"]})
        # As if the file of the rows were the same: only the deleted rows differ.
        same = replace(files[0], location=Location("a"), stamp="", size=0, footer=None)
        digests.add(_digest_count(Job({"sex": DOMAIN["sex"]}, (("sex",),)), [same]))
    assert len(digests) == 2


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
                "format": {"provider": "parquet"},
                "schemaString": json.dumps(schema),
                "configuration": {"delta.columnMapping.mode": mode},
            }
        },
        {
            "add": {
                "path": "a%2520b.parquet",
                "partitionValues": {},
                "size": (tmp_path / "a%20b.parquet").stat().st_size,
            }
        },
    ]
    first.write_text("".join(json.dumps(action) + "\n" for action in actions))
    assert_counts(fpd.DeltaTable(tmp_path), table)
    lakes.commit_delta(tmp_path, lakes.describe_feature("columnMapping", "newFeature"))
    refuses(fpd.DeltaTable(tmp_path), "uses newFeature, which is not supported")


def test_a_file_of_another_size_than_the_log_says(delta: Path) -> None:
    pq.write_table(draw(7, 5), delta / lakes.list_added(delta)[-1]["path"])
    refuses(fpd.DeltaTable(delta), "does not have the size that its table says")


# Iceberg


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Any]:
    with lakes.make_catalog(tmp_path) as catalog:
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
    assert_counts(fpd.IcebergTable(locate(iceberg)), iceberg.scan().to_arrow())
    assert_counts(fpd.IcebergTable(locate(iceberg), first), before)
    refuses(fpd.IcebergTable(locate(iceberg), 5), "has no snapshot 5")
    folder = Path(locate(iceberg)).parents[1]
    refuses(fpd.IcebergTable(folder), "does not say which version")
    (folder / "metadata" / "version-hint.text").write_text(Path(locate(iceberg)).name)
    assert_counts(fpd.IcebergTable(folder), iceberg.scan().to_arrow())


@pytest.mark.parametrize("kind", [DeletionKind.POSITIONS, DeletionKind.EQUAL_VALUES])
def test_damage_never_changes_which_rows_are_deleted(tmp_path: Path, kind: DeletionKind) -> None:
    """Every byte that changes is an error, or changes nothing: pages have checksums."""
    path, name = tmp_path / "gone.parquet", "s3://bucket/a"
    rows = [(name, 3 * i) for i in range(20)] + [("s3://bucket/z", 4)] * 20
    columns = dict(zip(("file_path", "pos"), map(list, zip(*rows, strict=True)), strict=True))
    pq.write_table(pa.table(columns), path, row_group_size=10, write_page_checksum=True)
    content = path.read_bytes()
    pos = StoredColumn(("pos",))
    batch = pa.record_batch({"pos": list(range(100))})

    def find_kept() -> list[bool] | None:
        location = Location(str(path))
        size, stamp = location.read_state()
        deletion = Deletion(kind, location, size, stamp, file_path=name, columns={"pos": pos})
        kept = load_deleted_rows(PlannedDeletion(deletion, (("pos", "pos"),))).find_kept(batch, 0)
        return None if kept is None else kept.tolist()

    whole = find_kept()
    assert whole is not None
    assert whole.count(False) == 20 + (kind is DeletionKind.EQUAL_VALUES)
    errors = 0
    for at in range(0, len(content), 11):
        path.write_bytes(content[:at] + bytes((content[at] ^ 1,)) + content[at + 1 :])
        try:
            assert find_kept() == whole
        except DamagedFileError:
            errors += 1
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
    assert_counts(fpd.IcebergTable(metadata), read)
    assert fpd.count(fpd.IcebergTable(metadata), (DOMAIN, [()]))[()] == len(read)


def test_equality_deletes_of_iceberg(iceberg: Any, tmp_path: Path) -> None:
    """They delete rows of older files only, and null equals null."""
    ids = {field.name: field.field_id for field in iceberg.schema().fields}
    schema = pa.schema(
        [
            pa.field(n, t, True, {"PARQUET:field_id": str(ids[n])})
            for n, t in (("age", pa.int64()), ("sex", pa.large_string()))
        ]
    )
    gone = {(3, "1"), (None, "2"), (4, "3"), (7, "2")}
    ages, sexes = zip(*gone, strict=True)
    path = tmp_path / "gone.parquet"
    pq.write_table(pa.table([ages, sexes], schema=schema), path)
    delete = lakes.describe_delete(path, "values", 4, equality_ids=[ids["age"], ids["sex"]])
    older = iceberg.scan().to_arrow()
    metadata = lakes.commit_iceberg_deletes(iceberg, tmp_path, delete)
    pairs = zip(older["age"].to_pylist(), older["sex"].to_pylist(), strict=True)
    kept = older.filter(pa.array([pair not in gone for pair in pairs]))
    assert 0 < len(kept) < len(older)
    assert_counts(fpd.IcebergTable(metadata), kept)
    everyone = fp.Domain({"year": fp.Categories([0, 1], other="later")})
    assert fpd.count(fpd.IcebergTable(metadata), (everyone, [("year",)]))[("year",)].sum() == len(
        kept
    )
    # A file of the same commit, or a later one, is not older.
    document = json.loads(metadata.read_text())
    listed = list(read_avro(Path(document["snapshots"][-1]["manifest-list"][7:]).read_bytes()))
    assert max(one["sequence_number"] for one in listed) == 4


def test_deletion_vectors_of_iceberg(iceberg: Any, tmp_path: Path) -> None:
    files = [task.file.file_path for task in iceberg.scan().plan_files()]
    older = lakes.write_positions(tmp_path / "old.parquet", [(files[0], 50)])
    gone = {0: [1, 2, 50, 99], 1: list(range(10, 90))}
    content, entries = b"PFA1", []
    blobs = {number: lakes.frame_vector(lakes.make_vector(held)) for number, held in gone.items()}
    starts = {}
    for number, blob in blobs.items():
        starts[number] = len(content)
        content += blob
    path = tmp_path / "vectors.puffin"
    path.write_bytes(content)
    for number, blob in blobs.items():
        entries.append(
            lakes.describe_delete(
                path,
                "bitmap",
                len(gone[number]),
                referenced_data_file=files[number],
                content_offset=starts[number],
                content_size_in_bytes=len(blob),
            )
        )
    ignored = lakes.describe_delete(older, "positions", 1)
    metadata = lakes.commit_iceberg_deletes(iceberg, tmp_path, *entries, ignored)
    kept = []
    for number, file in enumerate(files):
        table = pq.read_table(file.removeprefix("file://"))
        kept.append(
            table.filter(pa.array([p not in gone.get(number, ()) for p in range(len(table))]))
        )
    assert_counts(fpd.IcebergTable(metadata), pa.concat_tables(kept))


@pytest.mark.parametrize("codec", ["deflate", "snappy", "zstandard", "null"])
def test_avro_is_read_as_its_writer_wrote_it(codec: str) -> None:
    schema = fastavro.parse_schema(
        {
            "type": "record",
            "name": "r",
            "fields": [
                {"name": "a", "type": ["null", "long"]},
                {"name": "b", "type": {"type": "array", "items": "string"}},
                {"name": "c", "type": {"type": "map", "values": "double"}},
                {"name": "d", "type": {"type": "fixed", "name": "f", "size": 3}},
                {"name": "e", "type": {"type": "enum", "name": "e", "symbols": ["x", "y"]}},
                {"name": "g", "type": ["null", "f"]},
                {"name": "h", "type": "bytes"},
                {"name": "i", "type": "float"},
                {"name": "j", "type": "boolean"},
            ],
        }
    )
    records = [
        {
            "a": None if i % 7 == 0 else (-1) ** i * i**5,
            "b": ["é" * j for j in range(i % 4)],
            "c": {str(j): j / 3 for j in range(i % 3)},
            "d": b"abc",
            "e": "xy"[i % 2],
            "g": None if i % 2 else b"xyz",
            "h": bytes(range(i % 256)),
            "i": i / 4,
            "j": i % 3 == 0,
        }
        for i in range(3000)
    ]
    written = io.BytesIO()
    fastavro.writer(written, schema, records, codec)
    assert list(read_avro(written.getvalue())) == records
    with pytest.raises(ValueError, match=re.compile("Avro|early")):
        list(read_avro(written.getvalue()[:-5]))


# Folders


def test_the_folder_of_a_lake_is_refused(delta: Path, iceberg: Any, tmp_path: Path) -> None:
    data = Path(locate(iceberg)).parents[1]
    hudi = tmp_path / "hudi" / ".hoodie"
    hudi.mkdir(parents=True)
    pq.write_table(draw(1, 5), tmp_path / "hudi" / "a.parquet")
    for root, says in (
        (delta, "is a Delta table.*fpd.DeltaTable"),
        (data, "is an Iceberg table.*fpd.IcebergTable"),
        (hudi.parent, "is a Hudi table.*Hudi is not supported"),
    ):
        inside = next(root.rglob("*.parquet"))
        for source in (root, inside, inside.parent, f"{root}/*", f"{root}/**/*.parquet"):
            refuses(source, says)
