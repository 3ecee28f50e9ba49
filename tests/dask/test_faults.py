"""Workers killed and tasks failing, on a cluster: totals stay exact, or one clear error."""

from __future__ import annotations

import itertools
import os
import random
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import cloudpickle
import dask
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client, LocalCluster

import fitplug as fp
import fitplug_dask as fpd
from fitplug.errors import DataError, FitplugError
from fitplug_dask import kernel
from fitplug_dask.counting import count_partitions
from fitplug_dask.files import take_snapshot
from fitplug_dask.kernel import Fault, Job, PartialCounts, count_partition, partitions
from fitplug_dask.kernel.partitions import Partition, cut_partitions
from fitplug_dask.sources import find_files
from fitplug_dask.workers import open_runner
from tests.helpers.lost_workers import kill_one

DOMAIN = fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 99)})
JOINT = ("sex", "age")
CountPartition: TypeAlias = Callable[[Job, Partition], Any]
WANTED = (DOMAIN, [JOINT, ("age",), ()])
ROWS, GROUP_ROWS = 61_357, 300

# Workers do not see this module, so its functions travel whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@contextmanager
def two_workers() -> Iterator[LocalCluster]:
    """A cluster for one run: of workers killed again and again, Dask may lose one for good."""
    # Several kills may hit one task four times, which the default takes for the task's fault.
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 50}),
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
    ):
        yield cluster


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with two_workers() as cluster:
        yield cluster


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("people") / "a.parquet"
    rng = np.random.default_rng(8)
    columns = {"sex": rng.choice(["1", "2", "3"], ROWS), "age": rng.integers(-1, 102, ROWS)}
    pq.write_table(pa.table(columns), path, row_group_size=GROUP_ROWS)
    return path


@pytest.fixture
def many_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "_MOST_ROWS", 300)
    monkeypatch.setattr(partitions, "_ROWS_PER_CELL", 1)


def counted_under_fire(
    cluster: LocalCluster, client: Client, people: Path, kills_at: list[float], seed: int
) -> int:
    """Kills a worker whenever so much is done; checks the tables and returns how many died."""
    rng, left = random.Random(seed), list(kills_at)
    ends: list[int] = []

    def kill(done: int, total: int) -> None:
        ends.append(done)
        if left and done >= left[0] * total and kill_one(cluster, rng):
            left.pop(0)

    counted = fpd.count(people, WANTED, client=client, progress=kill)
    exact = fpd.count(people, WANTED)
    for names in exact:
        np.testing.assert_array_equal(counted[names], exact[names])
    assert ends == sorted(ends)
    assert ends[-1] == ROWS
    return len(kills_at) - len(left)


@pytest.mark.long
@pytest.mark.parametrize(
    "kills_at",
    [[0.1, 0.5], [0.0], [1.0]],
)
def test_killed_workers_leave_totals_exact(
    cluster: LocalCluster, client: Client, people: Path, many_shares: None, kills_at: list[float]
) -> None:
    """At the start, in the middle, and when only sums are left to fetch."""
    assert counted_under_fire(cluster, client, people, kills_at, seed=1) >= 1


@pytest.mark.long
def test_twenty_random_kills_leave_totals_exact(people: Path, many_shares: None) -> None:
    rng, killed, run = random.Random(20261121), 0, 0
    while killed < 20:
        kills_at = sorted(rng.random() for _ in range(4))
        with two_workers() as cluster, Client(cluster) as client:
            killed += counted_under_fire(cluster, client, people, kills_at, seed=run)
        run += 1


def shares_of(people: Path) -> list[Partition]:
    return cut_partitions(
        take_snapshot(find_files(fp.Source(people)), dict(DOMAIN.attributes)), 1000, 2
    )


def run_with(people: Path, client: Client | None, count: CountPartition) -> PartialCounts:
    job = Job(dict(DOMAIN.attributes), (JOINT,))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kernel, "count_partition", count)
        runner = open_runner(client)
        return count_partitions(job, shares_of(people), runner, lambda done, total: None)


def failing(folder: Path, act: Callable[[], None], times: int) -> CountPartition:
    """Counts shares, but the first `times` tries, in whichever process, end by `act`."""

    def count(job: Job, share: Partition) -> Any:
        for i in range(times):
            try:
                (folder / str(i)).touch(exist_ok=False)
            except FileExistsError:
                continue
            act()
        return count_partition(job, share)

    return count


def fail() -> None:
    raise OSError("secret")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize(("act", "times"), [(fail, 3), (die, 2)])
def test_tasks_that_fail_run_again(
    client: Client, people: Path, tmp_path: Path, act: Callable[[], None], times: int
) -> None:
    counted = run_with(people, client, failing(tmp_path, act, times))
    exact = fpd.count(people, WANTED)[JOINT]
    np.testing.assert_array_equal(counted.counts[0].reshape(exact.shape), exact)
    assert len(list(tmp_path.iterdir())) == times


@pytest.mark.parametrize(("act", "named"), [(fail, "OSError"), (die, "KilledWorker")])
@pytest.mark.slow
def test_tasks_that_always_fail_end_in_one_clear_error(
    people: Path, tmp_path: Path, act: Callable[[], None], named: str
) -> None:
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        with pytest.raises(FitplugError) as caught:
            run_with(people, client, failing(tmp_path, act, 1000))
        logs = str(client.get_scheduler_logs())
        if act is fail:
            logs += str(client.get_worker_logs())
    message = str(caught.value)
    assert message.startswith(f"the cluster could not finish counting ({named}). Check the")
    assert "secret" not in message
    assert not isinstance(caught.value, DataError)
    assert caught.value.__context__ is None
    # How many rows a file or a row group has is in the arguments of the tasks, never in their repr.
    assert "rows=" not in logs
    assert f"{ROWS}" not in logs


def test_no_task_runs_on_behind_an_error(people: Path, many_shares: None) -> None:
    calls = itertools.count()
    begun, ended = threading.Event(), threading.Event()

    def first_fails(job: Job, share: Partition) -> PartialCounts | Fault:
        if next(calls) == 0:
            assert begun.wait(60)
            return Fault("it is gone")
        begun.set()
        time.sleep(0.5)
        ended.set()
        return count_partition(job, share)

    with dask.config.set(num_workers=2), pytest.raises(DataError, match="it is gone"):
        run_with(people, None, first_fails)
    assert ended.is_set()


@pytest.mark.slow
def test_keys_on_the_dashboard_and_reprs_in_logs_tell_no_numbers_of_rows(
    client: Client, people: Path
) -> None:
    seen: set[str] = set()

    def look(done: int, total: int) -> None:
        seen.update(client.run_on_scheduler(keys))

    fpd.count(people, WANTED, client=client, progress=look)
    assert seen
    form = re.compile(r"\('fitplug-([a-z-]+)-[0-9a-f]{32}', \d{1,2}\)")
    found = [form.fullmatch(key) for key in seen]
    actions = {key[1] for key in found if key}
    assert all(found)
    assert actions == {"demand-worker", "send-job", "count-partition", "watch-task", "add-counts"}
    assert str(shares_of(people)[0]) == "Partition(1 slices)"


def keys(dask_scheduler: Any) -> list[str]:
    return [str(key) for key in dask_scheduler.tasks]
