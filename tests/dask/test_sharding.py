"""Tables counted in ranges of their cells: equal to those counted as a whole, and by DuckDB."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client

import fitplug as fp
import fitplug_dask as fpd
from fitplug.counts import choose_joint_tables
from fitplug.domain import get_shape
from fitplug.errors import DataError, TablesError
from fitplug.families import Slab
from fitplug_dask import request as requests, sharding
from fitplug_dask.exchange import run
from fitplug_dask.files import take_snapshot
from fitplug_dask.kernel import Job, cut_partitions, partitions
from fitplug_dask.sharding import Shards, choose_slab_cells, count_shards, cut_slabs
from fitplug_dask.sources import find_files
from fitplug_dask.workers import open_runner
from tests.helpers.forked_processes import forked, run_worker, start_scheduler
from tests.helpers.local_workers import start_workers
from tests.helpers.sources import count_rows

DOMAIN = fp.Domain(
    {
        "sex": ["1", "2"],
        "age": fp.Integers(0, 99),
        "place": fp.Integers(0, 499),
        "race": fp.Categories(["a", "b"], other="rest"),
    }
)
TABLES = [("sex", "age", "place"), ("age", "place"), ("race",), ()]


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("people")
    rng = np.random.default_rng(2)
    for i in range(4):
        n = 5000
        table = {
            "sex": rng.choice(["1", "2", "3"], n, p=[0.6, 0.3, 0.1]),
            "age": rng.integers(-1, 102, n),
            "place": rng.integers(0, 510, n),
            "race": rng.choice(["a", "b", "c"], n),
            "pop": rng.integers(-2, 50, n),
        }
        pq.write_table(pa.table(table), folder / f"{i}.parquet", row_group_size=500)
    return folder


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with start_workers(2, 1, processes=True) as client:
        yield client


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes whose tables and their counters may take half a megabyte, and slabs 60 KB."""
    share = 500_000 / open_runner(None).memory
    monkeypatch.setattr(run, "MEMORY_SHARE", share)
    monkeypatch.setattr(requests, "_TABLES_SHARE", share)
    monkeypatch.setattr(requests, "_TABLE_BYTES", 1)
    monkeypatch.setattr("fitplug_dask.kernel.partitions._SMALL_ROWS", 500)


@pytest.mark.parametrize("on", ["threads", pytest.param("cluster", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weight": "pop"},
        {"where": {"race": ["a", "c"]}},
        {"weight": "pop", "where": {"sex": "1"}},
    ],
)
def test_tables_in_shards_are_those_counted_as_a_whole(
    people: Path, on: str, options: dict[str, Any], client: Client, request: Any
) -> None:
    expected = count_rows(people, (DOMAIN, TABLES), **options)
    request.getfixturevalue("small")
    told: list[tuple[int, int]] = []
    counted = count_rows(
        people,
        (DOMAIN, TABLES),
        client=client if on == "cluster" else None,
        progress=lambda *rows: told.append(rows),
        **options,
    )
    assert told[-1] == (40_000, 40_000)  # each row is read once and gathered once
    for names in expected:
        np.testing.assert_array_equal(counted[names], expected[names])
        assert counted[names].dtype == np.int64


def count_slabs(people: Path, slabs: list[Slab], client: Any = None, **options: Any) -> list[Any]:
    job = Job({n: DOMAIN[n] for n in DOMAIN.names}, choose_joint_tables(DOMAIN, TABLES))
    files = take_snapshot(find_files(fp.Source(people)), job.attributes)
    return count_shards(
        job, cut_partitions(files, 1, 8), Shards(slabs, keep, "x"), client=client, **options
    )


def keep(shared: str, number: int, counts: Any) -> Any:
    return shared, number, counts


def test_slabs_of_any_attribute_are_counted_as_duckdb_counts(people: Path) -> None:
    slabs = [
        Slab(("age", "place"), "place", 100, 103),
        Slab(("age", "place"), "place", 101, 500),
        Slab(("age", "place"), "age", 7, 8),
        Slab(("age", "place"), None, 0, 0),
        Slab((), None, 0, 0),
    ]
    with duckdb.connect() as connection:
        query = f"""SELECT age, place, count(*) FROM '{people}/*.parquet'
            WHERE sex IN ('1', '2') AND age BETWEEN 0 AND 99 AND place BETWEEN 0 AND 499
            GROUP BY age, place"""
        expected = np.zeros((100, 500), dtype=np.int64)
        for age, place, n in connection.sql(query).fetchall():
            expected[age, place] = n
    for number, (shared, told, counts) in enumerate(count_slabs(people, slabs)):
        assert (shared, told) == ("x", number)
        whole = expected if slabs[number].names else np.array(expected.sum())
        np.testing.assert_array_equal(counts, whole[slabs[number].index])


@pytest.mark.slow
def test_a_killed_worker_changes_no_shard(people: Path) -> None:
    slabs = cut_slabs(DOMAIN, [("sex", "age", "place")], 10_000)
    expected = fpd.count(people, (DOMAIN, TABLES))["sex", "age", "place"]
    with forked() as start:
        address, _ = start_scheduler(start)
        workers = [start(run_worker, address) for _ in range(2)]
        with Client(address) as client:
            client.wait_for_workers(2, timeout=60)

            def kill(done: int, total: int) -> None:
                if len(workers) == 2 and 3 * done > total:
                    workers.pop().kill()

            counted = count_slabs(people, slabs, client, report=kill)
    assert len(workers) == 1
    for slab, (_, _, counts) in zip(slabs, counted, strict=True):
        np.testing.assert_array_equal(counts, expected[slab.index])


def test_slabs_cover_each_table_once_and_are_small() -> None:
    slabs = cut_slabs(DOMAIN, [("age", "place"), ("sex",), ()], 990)
    covered = {names: np.zeros(get_shape(DOMAIN, names), dtype=int) for names in [("sex",), ()]}
    covered["age", "place"] = np.zeros((100, 500), dtype=int)
    for slab in slabs:
        covered[slab.names][slab.index] += 1
        assert covered[slab.names][slab.index].size <= 990
    assert all((cells == 1).all() for cells in covered.values())
    with pytest.raises(
        TablesError, match="200 cells for each value of 'place', but a task can hold only 99"
    ):
        cut_slabs(DOMAIN, [("sex", "age", "place")], 99)
    assert choose_slab_cells(24 * 8000, 8) == 1000
    assert choose_slab_cells(0, 8) == 1


def test_a_table_of_a_billion_cells_takes_the_memory_of_its_slabs(tmp_path: Path) -> None:
    domain = fp.Domain({"p": fp.Integers(0, 99_999), "q": fp.Integers(0, 9_999)})
    rng = np.random.default_rng(0)
    columns = {"p": rng.integers(0, 100_000, 3000), "q": rng.integers(0, 10_000, 3000)}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=500)
    job = Job({n: domain[n] for n in domain.names}, (("p", "q"),))
    files = take_snapshot(find_files(fp.Source(tmp_path)), job.attributes)
    slabs = [Slab(("p", "q"), "p", start, start + 50) for start in range(0, 1000, 50)]
    tracemalloc.start()
    sums = count_shards(job, cut_partitions(files, 1, 2), Shards(slabs, add_all), client=None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(sums) == np.count_nonzero(columns["p"] < 1000)
    assert peak < 60_000_000


def add_all(shared: None, number: int, counts: Any) -> int:
    return int(counts.sum())


def test_what_must_be_whole_is_refused_with_a_way_out(
    people: Path, tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TablesError, match="cells needs about"):
        fpd.count(fp.Source(people, person="id"), (DOMAIN, TABLES), unit=fp.AddRemove(1))
    monkeypatch.setattr(requests, "_TABLE_BYTES", 100)
    with pytest.raises(TablesError, match=r"150,004 cells.* but this process may use"):
        fpd.count(people, (DOMAIN, TABLES))


def test_more_records_than_integers_hold_are_refused(
    people: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (partitions, sharding):
        monkeypatch.setattr(module, "LARGEST_SUM", 5000)
    with pytest.raises(DataError, match="the rows or their weights add up to more than"):
        fpd.count(people, (DOMAIN, TABLES))
