"""Frames, streams and data sets of other libraries count as the same rows do in Parquet files."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from distributed import Client

import fitplug as fp
import fitplug_dask as fpd
from fitplug.errors import DataError
from fitplug_dask.files.memory_tables import convert_frame
from fitplug_dask.preview import list_columns
from fitplug_dask.sources import library_tables
from tests.helpers.sources import count_rows

DOMAIN = fp.Domain(
    {
        "sex": fp.Categories(["1", "2"], other="rest"),
        "age": fp.Integers(0, 9),
        "pay": fp.Bins([0, 0.5, 3]),
        "day": fp.Dates("2020-01-01", "2020-01-31"),
        "own": [True, False],
    }
)
WANTED = (DOMAIN, [("sex", "age"), ("pay", "day"), ("own",), ()])


def draw(rows: int = 900) -> pa.Table:
    rng = np.random.default_rng(rows)

    def some(values: Any, null: float = 0.02) -> list[Any]:
        chosen = rng.integers(0, len(values), rows)
        return [
            None if u < null else values[i] for u, i in zip(rng.random(rows), chosen, strict=True)
        ]

    days = [datetime.date(2020, 1, 1) + datetime.timedelta(days=d) for d in range(40)]
    return pa.table(
        {
            "sex": pa.array(some(["1", "2", "3"]), pa.string()),
            "age": pa.array(some(range(11)), pa.int64()),
            "pay": pa.array(some([0.0, 0.25, 0.5, 2.9, 3.0, -1.0]), pa.float64()),
            "day": pa.array(some(days), pa.date32()),
            "own": pa.array(some([True, False]), pa.bool_()),
            "id": pa.array(some(range(200)), pa.int64()),
            "n": pa.array(rng.integers(0, 5, rows), pa.int64()),
        }
    )


def to_pandas(table: pa.Table) -> pd.DataFrame:
    nullable = {pa.bool_(): pd.BooleanDtype(), pa.int64(): pd.Int64Dtype()}
    return table.to_pandas(types_mapper=nullable.get)


def make_delayed(table: pa.Table) -> list[Any]:
    """Frames of each library, with integers that are floats, objects and categories in some."""
    cuts = [table.slice(start, 150) for start in range(0, len(table), 150)]
    frames: list[Any] = [
        cuts[0],
        cuts[1].combine_chunks().to_batches()[0],
        pl.from_arrow(cuts[2]),
        to_pandas(cuts[3]),
        to_pandas(cuts[4]).astype({"sex": "category", "age": object, "own": object, "pay": object}),
        cuts[5].to_pandas(types_mapper=pd.ArrowDtype),
    ]
    frames[4]["id"] = [i if i is None else Decimal(i) for i in cuts[4]["id"].to_pylist()]
    return [dask.delayed(frame) for frame in frames]


def make_dataset(table: pa.Table, path: Path, **options: Any) -> Any:
    options = {"existing_data_behavior": "overwrite_or_ignore", **options}
    ds.write_dataset(table, path, max_rows_per_file=250, max_rows_per_group=100, **options)
    return ds.dataset(path, format=options["format"], partitioning=options.get("partitioning"))


SOURCES: dict[str, Callable[[pa.Table, Path], Any]] = {
    "a dask.dataframe": lambda t, _: dd.from_pandas(to_pandas(t), npartitions=4),
    "a shuffled dask.dataframe": lambda t, _: dd.from_pandas(to_pandas(t), npartitions=3).shuffle(
        "n"
    ),
    "delayed frames": lambda t, _: make_delayed(t),
    "a delayed frame": lambda t, _: dask.delayed(t),
    "a Table": lambda t, _: t,
    "a RecordBatch": lambda t, _: t.combine_chunks().to_batches()[0],
    "a RecordBatchReader": lambda t, _: t.to_reader(70),
    "a Scanner": lambda t, _: ds.dataset(t).scanner(columns=[*t.schema.names]),
    "a LazyFrame": lambda t, _: pl.from_arrow(t).lazy(),  # type: ignore[union-attr]
    "a DataFrame of Polars": lambda t, _: pl.from_arrow(t),
    "a relation": lambda t, _: duckdb.from_arrow(t),
    "a data set in memory": lambda t, _: ds.dataset([t.slice(0, 400), t.slice(400)]),
    "a data set of Parquet": lambda t, p: make_dataset(t, p, format="parquet"),
    "a data set of Arrow": lambda t, p: make_dataset(t, p, format="ipc"),
    "a data set of feather": lambda t, p: make_dataset(t, p / "f", format="feather"),
    "a partitioned data set": lambda t, p: make_dataset(
        t, p, format="parquet", partitioning=ds.partitioning(pa.schema([("n", pa.int64())]))
    ),
    "a union": lambda t, p: ds.dataset(
        [make_dataset(t.slice(0, 300), p, format="parquet"), ds.dataset(t.slice(300))]
    ),
}


def assert_same(counted: Any, expected: Any) -> None:
    for names in expected:
        np.testing.assert_array_equal(counted[names], expected[names])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("source", SOURCES)
def test_every_source_counts_as_files_do(tmp_path: Path, source: str) -> None:
    table = draw()
    pq.write_table(table, tmp_path / "all.parquet")
    make = SOURCES[source]

    def count(wanted: Any, **options: Any) -> Any:
        return count_rows(make(table, tmp_path / "data"), wanted, **options)

    expected = fpd.count(tmp_path / "all.parquet", WANTED)
    assert expected[()] > 300
    assert_same(count(WANTED), expected)
    for options in (
        {"where": {"n": [1, 2], "sex": "1"}},
        {"weight": "n", "where": {"id": list(range(40))}},
        {
            "person": "id",
            "unit": fp.AddRemove(2),
            "person_key": b"k" * 16,
            "where": {"n": [1, 2, 3]},
        },
    ):
        if "partitioned" in source and "weight" in options:
            continue  # the key of a folder is no column of weights
        counted, expected = (
            count(WANTED, **options),
            count_rows(tmp_path / "all.parquet", WANTED, **options),
        )
        if "delayed" in source and "person" in options:  # where the types of persons are unknown
            assert 100 < counted[()] == expected[()]
        else:
            assert_same(counted, expected)
    assert count((DOMAIN, [()]))[()] == len(table)
    told = fpd.preview(make(table, tmp_path / "data"), WANTED)
    assert told.files >= 1


def test_a_data_set_of_local_parquet_has_all_checks_of_files(tmp_path: Path) -> None:
    source = make_dataset(draw(), tmp_path, format="parquet")
    assert fpd.preview(source, WANTED).format == "Parquet"
    path = Path(source.files[0])
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(DataError, match="is truncated"):
        fpd.count(source, WANTED)


def test_a_filter_of_a_data_set_is_respected(tmp_path: Path) -> None:
    source = make_dataset(draw(), tmp_path, format="parquet")
    wanted = (DOMAIN, [("age",)])
    expected = fpd.count(fp.Source(tmp_path, where={"n": [0, 1]}), wanted)
    assert_same(fpd.count(source.filter(ds.field("n") < 2), wanted), expected)


def test_columns_that_a_fragment_lacks_are_null_as_the_schema_says(tmp_path: Path) -> None:
    table = draw()
    pq.write_table(table, tmp_path / "a.parquet")
    pq.write_table(table.drop_columns("sex"), tmp_path / "b.parquet")
    source = ds.dataset(tmp_path)
    counted = fpd.count(source, (DOMAIN, [("sex",)]))[("sex",)]
    alone = fpd.count(tmp_path / "a.parquet", (DOMAIN, [("sex",)]))[("sex",)]
    assert counted.tolist() == [*alone[:2], alone[2] + len(table)]


def test_a_stream_is_pulled_by_all_threads_each_batch_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_tables, "_BATCH_ROWS", 7)
    table = draw(5000)
    for _ in range(3):
        with dask.config.set(num_workers=4):
            assert fpd.count(table, (DOMAIN, [()]))[()] == 5000
            assert fpd.count(duckdb.from_arrow(table), (DOMAIN, [()]))[()] == 5000


def test_a_reader_is_read_once_and_never_whole() -> None:
    """The batches before are dropped: all of them together would take 8 GB."""
    big = pa.RecordBatch.from_arrays([pa.array(np.zeros(10**6, np.int64))], names=["age"])
    made = 0

    def make() -> Iterator[Any]:
        nonlocal made
        for _ in range(1000):
            made += 1
            yield big.slice(0, 10**6 if made % 100 == 0 else 10)

    reader = pa.RecordBatchReader.from_batches(big.schema, make())
    wanted = (fp.Domain({"age": fp.Integers(0, 1)}), [("age",)])
    assert fpd.count(reader, wanted)[("age",)][0] == 10 * 10**6 + 990 * 10
    with pytest.raises(DataError, match="the Arrow reader cannot be read"):
        fpd.count(_Twice(reader), wanted)


class _Twice(pa.RecordBatchReader):
    """A reader that fails, with a value in its words."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    @property
    def schema(self) -> Any:
        return pa.schema([("age", pa.int64())])

    def __iter__(self) -> Any:
        raise ValueError("SECRET 4711")


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize("persisted", [False, True])
@pytest.mark.slow
def test_partitions_are_computed_on_a_cluster(
    client: Client, persisted: bool, tmp_path: Path
) -> None:
    table = draw()
    pq.write_table(table, tmp_path / "all.parquet")
    frame = dd.from_pandas(to_pandas(table), npartitions=4)
    frame = frame[frame["n"] > 0].persist() if persisted else frame[frame["n"] > 0]
    expected = fpd.count(fp.Source(tmp_path, where={"n": [1, 2, 3, 4]}), WANTED)
    assert_same(fpd.count(frame, WANTED, client=client), expected)
    person: Any = {"person": "id", "unit": fp.AddRemove(2), "person_key": b"k" * 16}
    limited = count_rows(fp.Source(tmp_path, where={"n": [1, 2, 3, 4]}), WANTED, **person)
    assert_same(count_rows(frame, WANTED, client=client, **person), limited)


def test_a_stream_stays_in_its_process(client: Client) -> None:
    for source in (draw(), pl.from_arrow(draw()), duckdb.from_arrow(draw())):
        with pytest.raises(DataError, match="only this process can read"):
            fpd.count(source, WANTED, client=client)


# What is wrong


def fails(source: Any, wanted: Any = WANTED, **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        count_rows(source, wanted, **options)
    assert caught.value.__context__ is None
    return str(caught.value)


@dask.delayed
def break_down() -> Any:
    raise ValueError("SECRET 4711")


def test_what_a_source_raises_is_not_told() -> None:
    broken = pa.RecordBatchReader.from_batches(draw().schema, (_raise() for _ in range(1)))
    lazy = pl.from_arrow(draw()).lazy().with_columns(pl.col("sex").str.to_date("%Y", strict=True))  # type: ignore[union-attr]
    relation = duckdb.sql("SELECT CAST('SECRET 4711' AS INT) + range AS age FROM range(5)")
    age = (DOMAIN, [("age",)])
    for source, wanted in (
        ([break_down()], WANTED),
        (broken, WANTED),
        (lazy, (DOMAIN, [("day",), ("sex",)])),
        (relation, age),
        ([dask.delayed("SECRET 4711")], WANTED),
    ):
        assert "4711" not in fails(source, wanted)


def _raise() -> Any:
    raise ValueError("SECRET 4711")


def test_types_and_columns_of_frames_are_checked_when_they_are_computed() -> None:
    frame = to_pandas(draw())
    texts = frame.assign(age=frame["sex"])
    assert "column 'age'" in fails(
        dask.delayed(pa.table({"age": pa.array(["x"])})), (DOMAIN, [("age",)])
    )
    assert "has no column 'ages'" in fails(
        dd.from_pandas(frame, npartitions=2), (fp.Domain({"ages": [1]}), [("ages",)])
    )
    missing = (fp.Domain({"ages": fp.Integers(0, 3)}), [("ages",)])
    assert "has no column 'ages'" in fails(dask.delayed(frame), missing)
    assert fpd.count(fp.Source(dask.delayed(frame), missing={"ages": 2}), missing)[("ages",)][
        2
    ] == len(frame)
    weights = frame.assign(n=frame["n"] / 2)
    assert "weights are integers" in fails(dask.delayed(weights), (DOMAIN, [("age",)]), weight="n")
    assert "two columns 'age'" in fails(dask.delayed(pd.concat([frame, texts[["age"]]], axis=1)))
    assert "is not a pandas, Polars or Arrow frame" in fails(dask.delayed(5))
    person: Any = {"person": "own", "unit": fp.AddRemove(1)}
    assert "person identifiers must be" in fails(
        dask.delayed(frame.dropna()[["age", "own"]].astype({"own": bool})),
        (DOMAIN, [("age",)]),
        **person,
    )


@pytest.mark.parametrize("source", [5, b"x", None, [], [1], {"a": 1}, [None], object()])
def test_what_is_no_source(source: Any) -> None:
    says = "is empty" if source == [] else "the data must be a path, .* not "
    with pytest.raises(DataError, match=says):
        fpd.count(source, WANTED)


def test_the_columns_of_a_frame_are_listed() -> None:
    assert list_columns(draw())["age"] == "integers"
    assert set(list_columns(dd.from_pandas(to_pandas(draw()), npartitions=2))) == set(
        draw().schema.names
    )


def test_objects_that_are_no_values_are_null() -> None:
    zoned = datetime.datetime(2020, 1, 1, 23, 30, tzinfo=datetime.timezone.utc)
    held = ["1", b"2", 3, 3.0, 2.5, True, None, Decimal(4), zoned, float("inf"), pd.NaT, 2**70]
    frame = pd.DataFrame({"x": pd.Series(held, dtype=object)})

    def read(value_type: Any, zone: str | None = None) -> Any:
        return convert_frame(frame, ["x"], {} if value_type is None else {"x": value_type}, zone)[
            "x"
        ]

    assert read(str).to_pylist() == [b"1", b"2", *[None] * 10]
    assert read(int).to_pylist() == [None, None, 3, 3, None, None, None, 4, *[None] * 4]
    assert read(bool).to_pylist()[5] is True
    assert read(None).to_pylist() == [b"1", b"2", b"3", b"3", None, None, None, b"4", *[None] * 4]
    assert read(datetime.date, "Asia/Tokyo").to_pylist()[8] == zoned.isoformat().encode()
    assert read(datetime.date).to_pylist() == [b"1", *[None] * 11]  # the attribute reads text
