"""Releases in parts under fire: workers, clients and schedulers killed at random moments.

Whatever is killed, the ledger is charged once, every answer is drawn once into the release (proven
by an audit of all draws), and what is durable never changes.
"""

from __future__ import annotations

import functools
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster

import fitplug as fp
from fitplug.errors import FitplugError
from fitplug_dask.releases import release_source
from tests.helpers.audited_releases import (
    PART,
    PLAN,
    TABLES,
    Audit,
    Watch,
    check_drawn_once,
    use_slabs,
    use_small_parts,
    write_cells,
)
from tests.helpers.lost_workers import kill_one

pytestmark = pytest.mark.long

KILLS = int(os.environ.get("FITPLUG_KILLS", "4"))
"""How often each kind of process is killed; with 30, the tests take an hour."""

PAUSE = 0.3
"""Seconds between a draw and its becoming durable."""

SOURCE = Path(fp.__file__).parents[1]
ENVIRONMENT = os.environ | {
    "PYTHONPATH": f"{SOURCE}:{SOURCE / 'adapters'}",
    "OMP_NUM_THREADS": "1",
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "50",
}

CLIENT = f"""
import sys
import fitplug as fp, fitplug_dask as fpd
from fitplug_dask.releases import releasing
from pathlib import Path
from tests.helpers.audited_releases import PLAN, TABLES, Audit
releasing.PART = {PART}
root = Path(sys.argv[1])
client, source = None, TABLES
if len(sys.argv) > 2:
    from distributed import Client
    client = Client(sys.argv[2], timeout=20)
    # On a cluster the counts are made, and stay, on the workers.
    releasing._MOST_CELLS = 0
    source = fp.Source(root.parent / "people.parquet", weight="n")
else:
    Audit(root / "audit", 0.1).setup()
print("ready", flush=True)
ledger = fp.Ledger(root / "budget.db", rho=1.0)
releasing.release_source(PLAN, source, root / "out", ledger=ledger, key="a", client=client)
print("done", flush=True)
"""


def start(*arguments, output=subprocess.PIPE):
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        env=ENVIRONMENT,
        cwd=SOURCE,
        stdout=output,
        stderr=subprocess.STDOUT,
        text=True,
    )


def check_ready(client):
    said = client.stdout.readline()
    assert said == "ready\n", said + client.communicate(timeout=600)[0]


def check_once(root, audit, watch):
    ledger = fp.Ledger(root / "budget.db")
    assert len(ledger.entries()) == 1
    assert [stage.state for stage in ledger.stages().values()] == ["published"]
    _, draws = check_drawn_once(root / "out", audit, watch)
    left = {path.name for path in root.iterdir()}
    assert left - {"audit"} == {"budget.db", "out"}
    return draws


@pytest.fixture(autouse=True)
def people(tmp_path):
    write_cells(tmp_path / "people.parquet")


@pytest.fixture
def small_parts(monkeypatch):
    use_small_parts(monkeypatch)
    use_slabs(monkeypatch)


def test_workers_killed(tmp_path, small_parts):
    """A worker is killed at a random moment of each release, and Dask starts another."""
    rng, killed, discarded, run = random.Random(3), 0, 0, 0
    parts = len(PLAN.strategy.cut(PART).sizes)
    while killed < KILLS:
        with ExitStack() as stack:
            stack.enter_context(dask.config.set({"distributed.scheduler.allowed-failures": 50}))
            cluster = stack.enter_context(
                LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
            )
            client = stack.enter_context(Client(cluster))
            audit, span = Audit(tmp_path / f"audit-{run}", PAUSE), 0.0
            client.register_plugin(audit)
            for _ in range(7):  # the first one is not killed, and tells how long one takes
                root = tmp_path / str(run)
                root.mkdir()
                run += 1
                begun = time.monotonic()
                moment = span * 1.1 * rng.random() if span else None
                kills, draws = release_under_fire(root, cluster, client, audit, rng, moment)
                span = span or time.monotonic() - begun
                killed += kills
                discarded += draws - parts
                try:
                    client.wait_for_workers(2, timeout=60)
                except TimeoutError:  # Dask may lose a worker that was killed for good
                    break
    print(f"{killed} workers killed; {discarded} draws discarded, as another was durable first")


def release_under_fire(root, cluster, client, audit, rng, moment):
    """Release while a worker is killed; gives the number of kills and of draws."""
    kills, before = [], len(audit.read())
    ledger = fp.Ledger(root / "budget.db", rho=1.0)

    def kill():
        if moment is not None:
            time.sleep(moment)
            kills.append(kill_one(cluster, rng))

    killer = threading.Thread(target=kill)
    with Watch(root) as watch:
        killer.start()
        for _ in range(3):
            try:
                release_source(
                    PLAN,
                    fp.Source(root.parent / "people.parquet", weight="n"),
                    root / "out",
                    ledger=ledger,
                    key="a",
                    client=client,
                )
                break
            except FitplugError as error:
                print(error)
        killer.join()
    return sum(kills), check_once(root, audit, watch) - before


def test_clients_killed_on_threads(tmp_path):
    """The client, which also draws, is killed at random moments; the same call then finishes."""
    rng, killed = random.Random(5), 0
    runs = itertools.count()
    while killed < KILLS:
        root = tmp_path / str(next(runs))
        root.mkdir()
        fp.Ledger(root / "budget.db", rho=1.0)
        audit = Audit(root / "audit", PAUSE)
        with Watch(root) as watch:
            for _ in range(20):
                client = start("-c", CLIENT, root)
                check_ready(client)
                try:
                    said, _ = client.communicate(timeout=rng.random() * 0.7)
                except subprocess.TimeoutExpired:
                    client.send_signal(signal.SIGKILL)
                    client.communicate()
                    killed += 1
                    continue
                assert said == "done\n", said
                break
            else:
                client = start("-c", CLIENT, root)
                assert client.communicate(timeout=600)[0] == "ready\ndone\n"
        check_once(root, audit, watch)


@contextmanager
def run_cluster(folder):
    """A scheduler and two workers in processes of their own, which a killed client leaves alone.

    They log to a file: a pipe that nobody reads would be full after some clients, and stop them.
    """
    folder.mkdir(exist_ok=True)
    address_file = folder / f"scheduler-{time.monotonic_ns()}.json"
    common = ("--scheduler-file", address_file)
    processes = []
    with ExitStack() as stack:
        log = stack.enter_context((folder / "log").open("a"))
        start_server = functools.partial(start, "-m", output=log)
        stack.callback(end_all, processes)
        scheduler = start_server(
            "distributed.cli.dask_scheduler", *common, "--port", "0", "--no-dashboard"
        )
        processes.append(scheduler)
        for number in range(2):
            options = ("--nthreads", "1", "--no-dashboard", "--no-nanny", "--name", number)
            options += ("--local-directory", folder, "--death-timeout", "20")
            processes.append(start_server("distributed.cli.dask_worker", *common, *options))
        with Client(scheduler_file=str(address_file), timeout=60) as client:
            client.wait_for_workers(2, timeout=300)
            address = client.scheduler.address
        yield address, scheduler


def end_all(processes):
    for process in reversed(processes):
        process.kill()
        process.wait()


def install(address, audit):
    with Client(address, timeout=20) as client:
        client.register_plugin(audit)


def time_release(root, address):
    """Release on a cluster; gives the seconds from when the client is ready."""
    root.mkdir()
    client = start("-c", CLIENT, root, address)
    check_ready(client)
    begun = time.monotonic()
    assert client.communicate(timeout=600)[0].endswith("done\n")
    return time.monotonic() - begun


def test_clients_of_a_cluster_killed(tmp_path):
    rng, killed, discarded = random.Random(6), 0, 0
    runs = itertools.count()
    parts = len(PLAN.strategy.cut(PART).sizes)
    with run_cluster(tmp_path / "cluster") as (address, _):
        span = time_release(tmp_path / "unkilled", address)
        while killed < KILLS:
            root = tmp_path / str(next(runs))
            root.mkdir()
            fp.Ledger(root / "budget.db", rho=1.0)
            audit = Audit(root / "audit", PAUSE)
            install(address, audit)
            with Watch(root) as watch:
                for _ in range(2):
                    client = start("-c", CLIENT, root, address)
                    check_ready(client)
                    time.sleep(0.9 * span * rng.random())
                    if client.poll() is None:
                        client.send_signal(signal.SIGKILL)
                        killed += 1
                    client.communicate()
                client = start("-c", CLIENT, root, address)
                said = client.communicate(timeout=600)[0]
                assert said.endswith("done\n"), said
                time.sleep(0.5)  # tasks of killed clients may still run
            discarded += check_once(root, audit, watch) - parts
    print(f"{killed} clients killed; {discarded} draws discarded, as another was durable first")


def test_schedulers_killed(tmp_path):
    """The client ends by a clear error in time, and another cluster finishes the release."""
    rng, killed, span = random.Random(7), 0, 0.0
    runs = itertools.count()
    while killed < KILLS:
        root = tmp_path / str(next(runs))
        root.mkdir()
        fp.Ledger(root / "budget.db", rho=1.0)
        audit = Audit(root / "audit", PAUSE)
        with Watch(root) as watch:
            for last in (False, True):
                with run_cluster(tmp_path / "cluster") as (address, scheduler):
                    if not span:
                        span = time_release(tmp_path / "unkilled", address)
                    install(address, audit)
                    client = start("-c", CLIENT, root, address)
                    check_ready(client)
                    if not last:
                        time.sleep(span * rng.random())
                        scheduler.send_signal(signal.SIGKILL)
                        killed += 1
                    said = client.communicate(timeout=600)[0]
                    if said.endswith("done\n"):
                        continue
                    assert not last, said
                    assert "the cluster does not answer" in said
                    is_charged = bool(fp.Ledger(root / "budget.db").entries())
                    assert ("nothing more will be charged" in said) == is_charged, said
        check_once(root, audit, watch)


def test_noise_after_kills_is_as_large_as_the_plan_says(tmp_path, small_parts):
    """The choice of a durable draw does not depend on what was drawn: 20 resumed releases."""
    from fitplug_dask.releases import executor

    exact, rng, noise = PLAN.strategy.answer_exactly(TABLES.marginal), random.Random(8), []
    real = executor.write_answers_part
    for run in range(20):
        root = tmp_path / str(run)
        root.mkdir()
        ledger = fp.Ledger(root / "budget.db", rho=1.0)
        for _ in range(50):

            def write(*given):
                if rng.random() < 0.3:
                    raise OSError(28, "No space left on device")
                return real(*given)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(executor, "write_answers_part", write)
                try:
                    released = release_source(PLAN, TABLES, root / "out", ledger=ledger)
                    break
                except FitplugError:
                    continue
        noise.append(np.asarray(released.answers) - exact)
    scaled = np.concatenate(noise) / PLAN.noise_std
    assert abs(float((scaled**2).mean()) - 1) < 5.5 * np.sqrt(2 / scaled.size)
    assert abs(float(scaled.mean())) < 5.5 / np.sqrt(scaled.size)
