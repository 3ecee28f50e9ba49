"""What tests of counts and of releases in parts share."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from distributed import Client

import fitplug as fp
from fitplug.files import object_stores
from fitplug_dask import compiled_loops as loops
from fitplug_dask.exchange import run
from fitplug_dask.kernel import reading
from fitplug_dask.persons import selection, shuffle
from fitplug_dask.releases import executor
from fitplug_dask.sources import stores
from tests.helpers import numpy_loops
from tests.helpers.audited_releases import Audit
from tests.helpers.local_workers import start_workers


@pytest.fixture
def audit(tmp_path_factory, monkeypatch):
    """An audit of all draws of this process."""
    monkeypatch.setattr(executor, "draw_part", executor.draw_part)  # is put back
    audit = Audit(tmp_path_factory.mktemp("audit") / "draws")
    audit.setup()
    return audit


@pytest.fixture
def keys(tmp_path_factory, monkeypatch):
    """The folder of this test's key files that nobody names."""
    state = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    return state / "fitplug" / "keys"


@pytest.fixture
def ledger(tmp_path):
    return fp.Ledger(tmp_path / "budget.db", rho=1.0)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Two workers in this process."""
    with start_workers(2, 1, processes=False) as client:
        yield client


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts at requests to stores follow each other at once."""
    none = {name: timedelta(milliseconds=1) for name in ("init_backoff", "max_backoff")}
    monkeypatch.setattr(
        object_stores, "RETRIES", {"max_retries": 7, "backoff": {**none, "base": 2}}
    )
    monkeypatch.setattr(stores, "_WAIT_SECONDS", 0.001)


@pytest.fixture(params=["compiled", "numpy"])
def either_loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled loops, and their oracles in NumPy."""
    if request.param == "numpy":
        for name in dir(loops):
            if not name.startswith("_"):
                monkeypatch.setattr(loops, name, getattr(numpy_loops, name))


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches, rows compacted after every few, many small buckets, and rows on the disk."""
    monkeypatch.setattr(reading, "_BATCH_ROWS", 8)
    monkeypatch.setattr(selection, "_COMPACTED_ROWS", 20)
    monkeypatch.setattr(shuffle, "_CROWDED_ROWS", 2)
    monkeypatch.setattr("fitplug_dask.kernel.partitions._SMALL_ROWS", 20)
    monkeypatch.setattr(shuffle, "_BUCKET_ROWS", 9)
    monkeypatch.setattr(run, "MEMORY_SHARE", 1e-7)
