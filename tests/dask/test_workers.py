"""Workers whose code differs are refused by name, and no call to a cluster waits without end."""

from __future__ import annotations

import importlib.util
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cloudpickle
import dask
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dask.utils import key_split
from distributed import Client, LocalCluster

import fitplug as fp
import fitplug_dask as fpd
from fitplug.errors import DataError, FitplugError, InputError
from fitplug_dask import kernel
from fitplug_dask.counting import count_partitions
from fitplug_dask.files import take_snapshot
from fitplug_dask.kernel import Job, count_partition, partitions
from fitplug_dask.kernel.partitions import Partition, cut_partitions
from fitplug_dask.releases import release_source
from fitplug_dask.sources import find_files
from fitplug_dask.workers import Runner, cluster, handshake, limits, open_runner
from fitplug_dask.workers.cluster import ClusterRunner
from tests.helpers.dask_processes import Processes, copy_packages, dask_processes, write_blocker
from tests.helpers.sources import count_rows

DOMAIN = fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 99)})
WANTED = (DOMAIN, [("sex", "age"), ()])
ROWS = 20_000

# Workers do not see this module, so its functions travel whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("people") / "a.parquet"
    rng = np.random.default_rng(8)
    columns = {"sex": rng.choice(["1", "2", "3"], ROWS), "age": rng.integers(-1, 102, ROWS)}
    pq.write_table(pa.table(columns), path, row_group_size=100)
    return path


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with dask_processes(tmp_path) as processes:
        yield processes


def double_counts(packages: Path) -> Path:
    """Alter a copy of the packages so that it counts every batch of rows twice."""
    counters = packages / "fitplug_dask" / "kernel" / "counters.py"
    text = counters.read_text()
    altered = text.replace(
        "            self._count_block(*block)\n",
        2 * "            self._count_block(*block)\n",
    )
    assert altered != text
    counters.write_text(altered)
    return packages


def find_address(client: Client, name: str) -> str:
    """The address of a worker that has come or comes."""
    for _ in range(300):
        for address, worker in client.scheduler_info(n_workers=-1)["workers"].items():
            if worker["name"] == name:
                return str(address)
        time.sleep(0.1)
    raise AssertionError(f"{name} does not come")


def refuse(people: Path, client: Client) -> str:
    """The error of a count in which no task may begin."""
    told: list[int] = []
    with pytest.raises(FitplugError) as caught:
        fpd.count(people, WANTED, client=client, progress=lambda done, _: told.append(done))
    assert not isinstance(caught.value, DataError)
    assert caught.value.__context__ is None
    assert not told
    return str(caught.value)


# Which code


@pytest.mark.long
def test_workers_with_other_code_and_without_are_refused_by_name(
    people: Path, processes: Processes, tmp_path: Path
) -> None:
    bare_packages = [write_blocker(tmp_path / "bare")]
    scheduler, _ = processes.start_scheduler(path=bare_packages)  # it needs no fitplug
    packages = copy_packages(tmp_path / "other")
    double_counts(packages)
    with Client(scheduler) as client:
        bare_worker = processes.start_worker(scheduler, "bare", path=bare_packages)
        altered_worker = processes.start_worker(scheduler, "altered", path=[packages])
        processes.start_worker(scheduler, "same")
        bare, altered, same = (find_address(client, n) for n in ("bare", "altered", "same"))
        message = refuse(people, client)
        assert f"{bare}: it cannot import this version of fitplug_dask" in message
        assert f"{altered}: different fitplug_dask" in message
        assert same not in message
        assert 'Install the same "fitplug[dask]" there' in message

        # Its files are put right, but it has imported the altered ones.
        copy_packages(tmp_path / "right")
        right = tmp_path / "right" / "fitplug_dask" / "kernel" / "counters.py"
        (packages / "fitplug_dask" / "kernel" / "counters.py").write_text(right.read_text())
        message = refuse(people, client)
        assert f"{altered}: different fitplug_dask" in message

        # A worker that is gone is not asked.
        altered_worker.kill()
        bare_worker.kill()
        wait_for(lambda: set(client.nthreads()) == {same})
        counted = fpd.count(people, WANTED, client=client)
    exact = fpd.count(people, WANTED)
    for names in exact:
        np.testing.assert_array_equal(counted[names], exact[names])


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(300):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it did not happen")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["altered", "bare"])
def test_a_worker_that_comes_later_is_refused_by_name(
    people: Path, processes: Processes, tmp_path: Path, kind: str
) -> None:
    scheduler, _ = processes.start_scheduler()
    if kind == "bare":
        path = write_blocker(tmp_path / "bare")
    else:
        path = double_counts(copy_packages(tmp_path / "other"))
    processes.start_worker(scheduler, "same")
    late: list[str] = []

    def add_worker(done: int, total: int) -> None:
        if done and not late:
            processes.start_worker(scheduler, "late", path=[path])
            late.append(find_address(client, "late"))

    with Client(scheduler) as client:
        find_address(client, "same")
        with pytest.raises(FitplugError) as caught:
            count_slowly(people, client, add_worker)
    said = (
        "cannot import this version of fitplug_dask" if kind == "bare" else "different fitplug_dask"
    )
    assert late[0] in str(caught.value)
    assert said in str(caught.value)
    assert not isinstance(caught.value, DataError)


def inspect(client: Client) -> Runner:
    """A runner that has inspected the worker "same", which needs longer than tests may wait."""
    find_address(client, "same")
    runner = open_runner(client)
    with dask.config.set({"fitplug.timeout": "60s"}):
        assert runner.threads
    return runner


def count_slowly(people: Path, client: Client | Runner, report: Any, seconds: float = 0.05) -> Any:
    """Counts of many partitions, each of which takes its time."""

    def count(job: Job, partition: Partition) -> Any:
        time.sleep(seconds)
        return count_partition(job, partition)

    files = take_snapshot(find_files(fp.Source(people)), dict(DOMAIN.attributes))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(partitions, "_MOST_ROWS", 100)
        patched.setattr(partitions, "_ROWS_PER_CELL", 1)
        cut = cut_partitions(files, 100, 1)
        assert len(cut) > 100
        job = Job(dict(DOMAIN.attributes), (("sex", "age"),))
        patched.setattr(kernel, "count_partition", count)
        return count_partitions(job, cut, open_runner(client), report)


# How long


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
def test_a_scheduler_that_ends_or_hangs_is_one_clear_error(
    people: Path, processes: Processes, end: signal.Signals
) -> None:
    scheduler, process = processes.start_scheduler()
    processes.start_worker(scheduler, "same")

    def end_it(done: int, total: int) -> None:
        if done:
            process.send_signal(end)

    short = {"fitplug.timeout": "1s", "distributed.comm.timeouts.connect": "1s"}
    client = Client(scheduler)
    with dask.config.set(short):
        try:
            runner = inspect(client)
            began = time.monotonic()
            with pytest.raises(FitplugError, match="the cluster does not answer") as caught:
                count_slowly(people, runner, end_it)
        finally:
            process.kill()
            client.close(timeout=1)
    assert time.monotonic() - began < 50  # and not a minute, as without the setting
    assert not isinstance(caught.value, DataError)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("interval", "limit"),
    [
        ("100ms", {}),
        ("1s", {"person": "age", "unit": fp.AddRemove(300), "person_key": bytes(16)}),
        ("10s", {}),
    ],
)
def test_a_cluster_that_scales_from_zero_counts(
    people: Path, interval: str, limit: dict[str, Any]
) -> None:
    wanted = (DOMAIN, [("sex",) if limit else ("sex", "age")])
    with scale_from_zero(interval) as client:
        counted = count_rows(people, wanted, client=client, **limit)
    (expected,) = count_rows(people, wanted, **limit).values()
    np.testing.assert_array_equal(counted[wanted[1][0]], expected)


@pytest.mark.slow
def test_a_cluster_that_scales_from_zero_releases_and_is_inspected_once(
    people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def inspect(*given: Any) -> Any:
        asked.append(given)
        return handshake.inspect_workers(*given)

    monkeypatch.setattr(cluster, "inspect_workers", inspect)
    query = fp.queries({"sex": "identity", "age": "prefix"}, std=20.0)
    plan = fp.design(fp.Workload(DOMAIN, [query]))
    with scale_from_zero("100ms") as client:
        released = release_source(plan, people, tmp_path / "out", client=client)
    assert released.estimates
    assert len(asked) == 1


@contextmanager
def scale_from_zero(interval: str) -> Iterator[Client]:
    with (
        LocalCluster(n_workers=0, threads_per_worker=1, dashboard_address=":0") as local,
        Client(local) as client,
    ):
        local.adapt(minimum=0, maximum=2, interval=interval)
        yield client


@pytest.mark.slow
def test_a_scheduler_that_hangs_is_not_asked_for_ever(processes: Processes) -> None:
    scheduler, process = processes.start_scheduler()
    processes.start_worker(scheduler, "same")
    short = {"fitplug.timeout": "1s", "distributed.comm.timeouts.connect": "1s"}
    client = Client(scheduler)
    with dask.config.set(short):
        try:
            find_address(client, "same")
            assert limits.list_workers(client)
            process.send_signal(signal.SIGSTOP)
            with pytest.raises(FitplugError, match="the cluster does not answer within 1 s"):
                limits.list_workers(client)
        finally:
            process.kill()
            client.close(timeout=1)


@pytest.mark.slow
def test_a_worker_that_hangs_is_named(processes: Processes) -> None:
    scheduler, _ = processes.start_scheduler()
    worker = processes.start_worker(scheduler, "hung")
    with dask.config.set({"fitplug.timeout": "3s"}), Client(scheduler) as client:
        address = find_address(client, "hung")
        worker.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(FitplugError, match=rf"did not answer within 3 s \({address}\)"):
                assert open_runner(client).threads
        finally:
            worker.kill()


@pytest.mark.long
def test_a_cluster_whose_workers_are_gone_is_one_clear_error(
    people: Path, processes: Processes
) -> None:
    scheduler, _ = processes.start_scheduler()

    def kill(done: int, total: int) -> None:
        if done:
            worker.kill()

    with dask.config.set({"fitplug.timeout": "1s"}), Client(scheduler) as client:
        with pytest.raises(FitplugError, match="no worker joined the cluster within 1 s"):
            fpd.count(people, WANTED, client=client)
        worker = processes.start_worker(scheduler, "same")
        runner = inspect(client)
        with pytest.raises(FitplugError, match="the cluster had no worker"):
            count_slowly(people, runner, kill)


@pytest.mark.slow
def test_workers_that_stay_paused_are_one_clear_error(people: Path) -> None:
    with (
        dask.config.set({"fitplug.timeout": "5s"}),
        LocalCluster(
            n_workers=1, processes=False, memory_limit="1 MiB", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        (worker,) = cluster.workers.values()
        wait_for(lambda: worker.status.name == "paused")  # or it may count before that
        with pytest.raises(FitplugError, match="had only workers that Dask paused"):
            fpd.count(people, WANTED, client=client)


@pytest.mark.parametrize("setting", ["soon", 0, -1, "nan"])
def test_a_timeout_that_is_none_is_refused(setting: object) -> None:
    with (
        dask.config.set({"fitplug.timeout": setting}),
        pytest.raises(InputError, match=r"fitplug\.timeout must be a time above 0"),
    ):
        limits.read_timeout()


# How many tasks


def cut(people: Path, threads: int, **options: Any) -> list[Partition]:
    with dask.config.set(options):
        files = take_snapshot(find_files(fp.Source(people)), dict(DOMAIN.attributes))
        return cut_partitions(files, 200, threads)


def test_operators_may_ask_for_smaller_tasks(people: Path) -> None:
    small = dask.config.set({"fitplug.rows-per-task": 500})
    with small:
        parts = cut(people, 2)
    assert len(parts) == ROWS // 500
    assert {part.rows for part in parts} == {500}
    assert len(cut(people, 2)) == 12
    for wrong in (0, "many", True, 2.5):
        with (
            dask.config.set({"fitplug.rows-per-task": wrong}),
            pytest.raises(InputError, match="must be a whole number of at least 1"),
        ):
            cut(people, 2)


def test_tasks_of_many_columns_have_fewer_rows(
    people: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "_MOST_VALUES", 2_000)
    assert {part.rows for part in cut(people, 1)} == {1_000}


def add(*terms: int) -> int:
    return sum(terms)


def double(shared: int, given: int) -> int:
    return shared * given


@pytest.mark.parametrize("on", ["threads", "cluster"])
@pytest.mark.parametrize("tasks", [1, 6, 70])
def test_each_task_is_added_and_reported_once(
    client: Client, on: str, tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_MOST_WATCHED", 20)
    runner = open_runner(client if on == "cluster" else None)
    weights, reported = [7 + i for i in range(tasks)], []
    how: Any = {"shared": 2, "weights": weights, "report": reported.append}
    assert runner.map("double", double, range(tasks), **how) == [2 * i for i in range(tasks)]
    assert sorted(reported) == weights
    reported.clear()
    assert runner.map_sum("double", double, range(tasks), add, 4, **how) == tasks * (tasks - 1)
    assert sum(reported) == sum(weights)
    assert len(reported) <= 20 or on == "threads"


def test_the_dashboard_shows_what_tasks_do(client: Client) -> None:
    for action in ("count-partition", "add-counts"):
        for _ in range(100):
            assert key_split(ClusterRunner(client)._name_task(action)) == f"fitplug-{action}"


def test_workers_on_several_hosts_without_tls_are_warned_of_once() -> None:
    cluster._warn_once.cache_clear()
    local = frozenset({"tcp://127.0.0.1:1", "tcp://127.0.0.1:2", "inproc://10.0.0.1/1"})
    cluster.warn_without_tls(local)
    cluster.warn_without_tls(frozenset({"tls://10.0.0.1:1", "tls://10.0.0.2:1"}))
    several = frozenset({"tcp://10.0.0.1:1", "tcp://10.0.0.2:1"})
    with pytest.warns(UserWarning, match="several hosts without TLS"):
        cluster.warn_without_tls(several)
    cluster.warn_without_tls(several)


# What is compared


def test_a_process_describes_what_it_counts_with() -> None:
    packages = ("fitplug", "fitplug_dask", "fitplug_opendp")
    here = handshake.describe_code(packages)
    assert set(packages) < set(here)
    assert (here["NumPy"], here["PyArrow"]) == (np.__version__, pa.__version__)
    assert here["OpenDP"]
    assert handshake.list_differences(here, here) == []
    assert "OpenDP" not in handshake.describe_code()


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ({"fitplug": "2"}, ["different fitplug"]),
        ({"fitplug": None}, ["no fitplug"]),
        ({"NumPy": "1.26.4"}, ["NumPy 1.26.4, not 2.4.6"]),
        ({"NumPy": None}, ["no NumPy"]),
        ({"compiled loops": ".so 2"}, ["different compiled loops"]),
        ({"compiled loops": ".dll 2"}, []),
        ({"compiled loops": None}, ["no compiled loops"]),
        ({}, []),
    ],
)
def test_what_differs_is_said_in_words(there: dict[str, Any], said: list[str]) -> None:
    here = {"Python": "3.11", "NumPy": "2.4.6", "fitplug": "1", "compiled loops": ".so 1"}
    other = {name: value for name, value in (here | there).items() if value is not None}
    assert handshake.list_differences(here, other) == said


@pytest.mark.parametrize(("name", "change"), [("a.py", "b.py"), ("a.pyx", "other content")])
def test_every_source_is_in_the_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, change: str
) -> None:
    (tmp_path / "fitplug").mkdir()
    (tmp_path / "fitplug" / "__init__.py").write_text("")
    file = tmp_path / "fitplug" / name
    file.write_text("content")
    spec = importlib.util.spec_from_file_location("fitplug", tmp_path / "fitplug" / "__init__.py")
    monkeypatch.setattr(handshake.util, "find_spec", {"fitplug": spec}.get)
    before = dict(handshake._digest_code())
    if change.endswith(".py"):
        file.rename(file.with_name(change))
    else:
        file.write_text(change)
    assert dict(handshake._digest_code()) != before
