"""Counts on a dask.distributed cluster: equal to those on threads, also when workers are killed."""

from __future__ import annotations

import gc
import os
import pickle
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client, LocalCluster

import fitplug as fp
import fitplug_dask as fpd
from fitplug.errors import DataError, FitplugError
from fitplug_dask.exchange import run
from fitplug_dask.kernel import partitions
from fitplug_dask.persons import shuffle
from fitplug_dask.workers import cluster, open_runner
from fitplug_dask.workers.cluster import ClusterRunner, inspect_workers
from tests.helpers.local_workers import start_workers
from tests.helpers.sources import count_rows

DOMAIN = fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 99), "state": ["01", "02"]})
WANTED = (DOMAIN, [("sex", "age"), ("age", "state"), ()])

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with start_workers(2, 1, processes=True) as client:
        yield client


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("people")
    rng = np.random.default_rng(3)
    for state in ("01", "02"):
        for part in range(3):
            path = root / f"state={state}" / f"{part}.parquet"
            path.parent.mkdir(exist_ok=True)
            n = int(rng.integers(20_000, 60_000))
            sex = rng.choice(["1", "2", "3"], n)
            table = pa.table({"sex": sex, "age": rng.integers(-1, 102, n)})
            pq.write_table(table, path, row_group_size=2_000)
    return root


def await_no_tasks(client: Client) -> None:
    """Wait until the scheduler has dropped all tasks of fitplug."""

    def list_tasks(dask_scheduler: Any) -> list[str]:
        return [str(key) for key in dask_scheduler.tasks if "fitplug" in str(key)]

    for _ in range(200):
        if not client.run_on_scheduler(list_tasks):
            return
        time.sleep(0.02)
    raise AssertionError("tasks are left on the scheduler")


def raise_in_task(shared: Any, one: Any) -> Any:
    raise ValueError


def assert_same(one: fp.Tables, other: fp.Tables) -> None:
    assert set(one) == set(other)
    for names in one:
        np.testing.assert_array_equal(one[names], other[names])


def test_a_cluster_counts_as_threads_do(client: Client, people: Path) -> None:
    told: list[tuple[int, int]] = []
    counted = fpd.count(people, WANTED, client=client, progress=lambda *rows: told.append(rows))
    assert_same(counted, fpd.count(people, WANTED))
    done, totals = zip(*told, strict=True)
    assert list(done) == sorted(done)
    assert (done[0], done[-1]) == (0, totals[0])
    assert len(told) >= 2  # reports that come together are one


def test_every_run_counts_anew(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    wanted = (DOMAIN, [("sex",)])
    pq.write_table(pa.table({"sex": ["1", "1", "2"]}), path)
    state = path.stat()
    first = fpd.count(path, wanted, client=client)
    pq.write_table(pa.table({"sex": ["1", "2", "2"]}), path)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    second = fpd.count(path, wanted, client=client)
    assert (first["sex"].tolist(), second["sex"].tolist()) == ([2, 1], [1, 2])


def test_runs_at_the_same_time_do_not_meet(client: Client, people: Path, tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"sex": ["1"] * 10, "age": [3] * 10, "state": ["01"] * 10}), tmp_path / "a.parquet"
    )
    inner: list[fp.Tables] = []

    def start_another(done: int, total: int) -> None:
        if done and not inner:
            inner.append(fpd.count(tmp_path, WANTED, client=client))

    outer = fpd.count(people, WANTED, client=client, progress=start_another)
    assert inner[0][()] == 10
    assert_same(outer, fpd.count(people, WANTED))


def test_killed_workers_keep_the_same_rows_of_each_person(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(7)
    for i in range(4):
        table = {"id": rng.integers(0, 3_000, 10_000), "age": rng.integers(-1, 102, 10_000)}
        pq.write_table(pa.table(table), tmp_path / f"{i}.parquet", row_group_size=1_000)
    limit: dict[str, Any] = {"person": "id", "unit": fp.AddRemove(3), "person_key": bytes(16)}
    wanted = (DOMAIN, [("age",), ()])
    expected = count_rows(tmp_path, wanted, **limit)
    monkeypatch.setattr("fitplug_dask.kernel.partitions._SMALL_ROWS", 1_000)
    monkeypatch.setattr(shuffle, "_BUCKET_ROWS", 500)
    monkeypatch.setattr(run, "MEMORY_SHARE", 1e-5)
    pids = list(client.run(os.getpid).values())[:1]

    def kill(done: int, total: int) -> None:
        if pids and 3 * done > total:
            os.kill(pids.pop(), signal.SIGKILL)

    assert_same(count_rows(tmp_path, wanted, client=client, progress=kill, **limit), expected)
    assert not pids


def test_a_bad_file_ends_the_run_with_the_same_error(
    client: Client, people: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(people, tmp_path / "people")
    bad = copy / "state=02" / "1.parquet"
    content = bytearray(bad.read_bytes())
    content[4:200] = b"\xff" * 196
    bad.write_bytes(bytes(content))
    with pytest.raises(DataError) as caught:
        fpd.count(copy, WANTED, client=client)
    message = str(caught.value)
    assert message.startswith(f"{bad}: row group 0 cannot be read")
    assert caught.value.__context__ is None
    with pytest.raises(DataError, match=r"1\.parquet: row group 0 cannot be read"):
        fpd.count(copy, WANTED)
    assert_same(fpd.count(people, WANTED, client=client), fpd.count(people, WANTED))


def test_nothing_stays_on_the_cluster(client: Client, people: Path) -> None:
    gc.collect()  # errors that earlier tests caught refer to their counts
    await_no_tasks(client)
    gc.disable()
    try:
        fpd.count(people, WANTED, client=client)
        await_no_tasks(client)
        with pytest.raises(FitplugError, match="could not finish"):
            open_runner(client).map("raise", raise_in_task, range(3))
        await_no_tasks(client)
    finally:
        gc.enable()


def measure_tasks(dask_scheduler: Any) -> dict[str, int]:
    """Measure what the scheduler holds, and sends on, of each task: bytes by key."""
    return {
        str(key): len(pickle.dumps(task.run_spec)) for key, task in dask_scheduler.tasks.items()
    }


@pytest.mark.parametrize("limit", [{}, {"person": "id", "unit": fp.AddRemove(2)}])
def test_the_codes_of_a_tree_are_sent_once(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: dict[str, Any]
) -> None:
    gc.collect()
    await_no_tasks(client)
    monkeypatch.setattr(partitions, "_MOST_ROWS", 100)
    monkeypatch.setattr(partitions, "_ROWS_PER_CELL", 1 / 4000)
    rng = np.random.default_rng(8)
    tree = fp.Hierarchy({"county": 5, "block": 12}, [f"{i // 100:05}{i:07}" for i in range(20_000)])
    block = rng.choice(np.array(tree.values), 2_000)
    table = pa.table({"block": block, "id": rng.integers(0, 500, 2_000)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=100)
    wanted = (fp.Domain({"block": tree}), [("block",)])
    seen: dict[str, int] = {}

    def look(done: int, total: int) -> None:
        seen.update(client.run_on_scheduler(measure_tasks))

    counted = count_rows(tmp_path, wanted, client=client, progress=look, **limit)
    if not limit:
        assert_same(counted, fpd.count(tmp_path, wanted))
    tree_bytes = len(pickle.dumps(tree))
    (job,) = (key for key in seen if ("exchange-job" if limit else "send-job") in key)
    others = [s for key, s in seen.items() if key != job]
    assert len(others) > 20
    assert seen[job] < 1.1 * tree_bytes
    assert 50 * max(others) < tree_bytes
    assert tree_bytes < 20_000 * (12 + 1)  # the codes and the counties


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("closed", ["client", "cluster"])
def test_a_cluster_that_fails_ends_in_one_clear_error(
    people: Path, closed: str, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "_MOST_ROWS", 2_500)
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        ends: list[int] = []

        def close(done: int, total: int) -> None:
            ends.append(done)
            if len(ends) == 1 + after:
                {"client": client, "cluster": cluster}[closed].close()

        with pytest.raises(
            FitplugError, match=r"the cluster (could not finish|does not answer)"
        ) as caught:
            fpd.count(people, WANTED, client=client, progress=close)
    assert not isinstance(caught.value, DataError)
    assert caught.value.__context__ is None


def test_an_error_of_the_cluster_is_named_but_not_quoted(client: Client) -> None:
    def dies() -> None:
        raise MemoryError("secret")

    with pytest.raises(FitplugError, match=r"could not finish counting \(MemoryError\)") as caught:
        ClusterRunner(client)._attempt(dies)
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_count_inspects_the_cluster_once(
    client: Client, people: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def inspect(*given: Any) -> Any:
        asked.append(given)
        return inspect_workers(*given)

    monkeypatch.setattr(cluster, "inspect_workers", inspect)
    limit: dict[str, Any] = {"person": "age", "unit": fp.AddRemove(2)}
    fpd.count(people, WANTED, client=client)
    count_rows(people, (DOMAIN, [("sex",), ()]), client=client, **limit)
    assert len(asked) == 2
