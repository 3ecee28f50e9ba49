"""Workers, schedulers and clients that end at random moments: exact totals, or one clear error."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import dask
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client

import fitplug as fp
import fitplug_dask as fpd
from fitplug.errors import DataError, FitplugError
from tests.helpers.forked_processes import forked, run_worker, start_scheduler

pytestmark = pytest.mark.long

DOMAIN = fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 99)})
WANTED = (DOMAIN, [("sex", "age"), ("age",), ()])
ROWS = 20_000
TIMES = 30
SETTINGS = {
    "fitplug.rows-per-task": 500,
    "fitplug.timeout": "20s",
    "distributed.comm.timeouts.connect": "2s",
}


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("people") / "a.parquet"
    rng = np.random.default_rng(8)
    columns = {"sex": rng.choice(["1", "2", "3"], ROWS), "age": rng.integers(-1, 102, ROWS)}
    pq.write_table(pa.table(columns), path, row_group_size=100)
    return path


@pytest.fixture(scope="module")
def exact(people: Path) -> fp.Tables:
    return fpd.count(people, WANTED)


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with dask.config.set(SETTINGS):
        yield


def assert_exact(counted: fp.Tables, exact: fp.Tables) -> None:
    for names in exact:
        np.testing.assert_array_equal(counted[names], exact[names])


def measure(people: Path, client: Client) -> float:
    """How long a count takes once the workers are warm."""
    fpd.count(people, WANTED, client=client)
    began = time.monotonic()
    fpd.count(people, WANTED, client=client)
    return time.monotonic() - began


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it did not happen")


def test_workers_killed_and_added(people: Path, exact: fp.Tables) -> None:
    """In every count one of two workers is killed and another comes, each at a random moment."""
    rng = random.Random(16)
    with forked() as start:
        address, _ = start_scheduler(start)
        workers = [start(run_worker, address) for _ in range(2)]
        with Client(address) as client:
            wait_for(lambda: len(client.nthreads()) == 2)
            seconds = measure(people, client)
            for _ in range(TIMES):
                victim = workers.pop(rng.randrange(2))
                kill = threading.Timer(rng.uniform(0, seconds), victim.kill)
                add = threading.Timer(
                    rng.uniform(0, seconds), lambda: workers.append(start(run_worker, address))
                )
                kill.start()
                add.start()
                assert_exact(fpd.count(people, WANTED, client=client), exact)
                kill.join()
                add.join()
                wait_for(lambda: len(client.nthreads()) == 2)


def test_schedulers_killed(people: Path, exact: fp.Tables) -> None:
    rng = random.Random(17)
    seconds, ends = 0.0, {"exact": 0, "error": 0}
    with forked() as start:
        for i in range(TIMES + 1):
            address, scheduler = start_scheduler(start)
            start(run_worker, address)
            client = Client(address)
            try:
                wait_for(lambda c=client: len(c.nthreads()) == 1)  # type: ignore[misc]
                if i == 0:
                    seconds = 1.5 * measure(people, client)
                    continue
                kill = threading.Timer(rng.uniform(0, seconds), scheduler.kill)
                kill.start()
                began = time.monotonic()
                try:
                    assert_exact(fpd.count(people, WANTED, client=client), exact)
                    ends["exact"] += 1
                except FitplugError as error:
                    message = str(error)
                    ends["error"] += 1
                    assert (isinstance(error, DataError), error.__context__) == (False, None)  # noqa: PT017
                    assert message.startswith("the cluster"), message
                assert time.monotonic() - began < 60
                kill.join()
            finally:
                scheduler.kill()
                client.close(timeout=1)
    assert ends["error"] >= TIMES // 3


def count_on(address: str, people: Path) -> None:
    with dask.config.set(SETTINGS), Client(address) as client:
        fpd.count(people, WANTED, client=client)


def test_clients_killed(people: Path, exact: fp.Tables) -> None:
    """A killed client leaves nothing on the cluster, and the next one counts."""
    rng = random.Random(18)
    with forked() as start:
        address, _ = start_scheduler(start)
        for _ in range(2):
            start(run_worker, address)
        with Client(address) as client:
            wait_for(lambda: len(client.nthreads()) == 2)
            seconds = 0.3 + 1.5 * measure(people, client)
            for _ in range(TIMES):
                killed = start(count_on, address, people)
                killed.join(rng.uniform(0.2, seconds))
                killed.kill()
                killed.join()
                if rng.random() < 0.1:
                    counted = fpd.count(people, WANTED, client=client)
                    assert_exact(counted, exact)
            counted = fpd.count(people, WANTED, client=client)
            assert_exact(counted, exact)
            wait_for(lambda: not client.run_on_scheduler(list_tasks))


def list_tasks(dask_scheduler: object) -> list[str]:
    tasks: dict[object, object] = dask_scheduler.tasks  # type: ignore[attr-defined]
    return [str(key) for key in tasks if "fitplug" in str(key)]
