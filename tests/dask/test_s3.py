"""Files in S3: a server of moto, and for faults the server of tests, which answers as S3 does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from distributed import Client, LocalCluster

import fitplug as fp
import fitplug_dask as fpd
from fitplug.errors import DataError, FitplugError
from fitplug_dask.releases import release_source
from fitplug_dask.sources import find_files
from tests.helpers import lakes
from tests.helpers.s3_server import S3Server, serve_s3
from tests.helpers.sources import count_rows
from tests.helpers.store_server import StoreServer, serve

DOMAIN = fp.Domain({"sex": ["1", "2"], "state": ["01", "02"], "age": fp.Integers(0, 99)})
JOINT = ("sex", "state", "age")
WANTED = (DOMAIN, [JOINT])
SECRET = "CANARY7351"

# Some versions of aiobotocore and moto use what Python calls old.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def people(seed: int, rows: int = 20_000) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "between": rng.random(rows),
            "sex": rng.choice(["1", "2", "3"], rows),
            "age": rng.integers(-1, 101, rows),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hive folders in a folder "bucket"."""
    folder = tmp_path_factory.mktemp("s3")
    for seed, state in enumerate(("01", "02", "03")):
        for part in "ab":
            path = folder / f"bucket/p/state={state}/{part}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(people(seed), path, row_group_size=4000)
    return folder


@pytest.fixture(autouse=True)
def _(short_waits: None) -> None: ...


@pytest.fixture(scope="module")
def s3(folder: Path) -> Iterator[S3Server]:
    """A server of moto that holds the bucket."""
    with serve_s3(SECRET) as running:
        running.put(folder / "bucket/p", "p")
        yield running


@pytest.fixture
def moto(s3: S3Server) -> dict[str, Any]:
    """The storage options of the server."""
    return dict(s3.options)


def fails(source: Any, **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        count_rows(source, WANTED, **options)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert SECRET not in str(caught.value)
    return str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["p", "p/", "p/state=*", "p/**/*.parquet"])
def test_folders_and_globs(folder: Path, moto: dict[str, Any], source: str) -> None:
    expected = fpd.count(folder / "bucket/p", WANTED)[JOINT]
    counted = fpd.count(fp.Source(f"s3://bucket/{source}", storage_options=moto), WANTED)
    np.testing.assert_array_equal(counted[JOINT], expected)


def test_a_listing_tells_all_states(moto: dict[str, Any]) -> None:
    for file in find_files(fp.Source("s3://bucket/p", storage_options=moto)):
        assert file.location.listed == file.location.read_state()
        assert file.location.proves_state(file.location.listed[1])


def test_on_a_cluster(folder: Path, moto: dict[str, Any]) -> None:
    expected = fpd.count(folder / "bucket/p", WANTED)[JOINT]
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        counted = fpd.count(fp.Source("s3://bucket/p", storage_options=moto), WANTED, client=client)
    np.testing.assert_array_equal(counted[JOINT], expected)


@pytest.mark.slow
def test_tables_of_lakes(tmp_path: Path, s3: S3Server, moto: dict[str, Any]) -> None:
    table = people(5, 300).append_column("state", pa.array(["01"] * 300))
    local = tmp_path / "delta"
    write_deltalake(local, table)
    lakes.delete_delta_rows(local, lakes.list_added(local)[0], range(100), "u")
    s3.put(local, "delta")
    properties = {
        "s3.endpoint": moto["endpoint_url"],
        "s3.access-key-id": moto["key"],
        "s3.secret-access-key": moto["secret"],
        "s3.region": "us-east-1",
    }
    with lakes.make_catalog("s3://bucket/iceberg", **properties) as catalog:
        written = catalog.create_table("n.t", table.schema)
        written.append(table.slice(100))
    expected = fpd.count(fp.DeltaTable(local), WANTED)[JOINT]
    assert expected.sum() > 20
    for source in (
        fp.DeltaTable("s3://bucket/delta"),
        fp.IcebergTable(written.metadata_location),
        written,
    ):
        counted = fpd.count(fp.Source(source, storage_options=moto), WANTED)[JOINT]
        np.testing.assert_array_equal(counted, expected)
    assert "has no _delta_log" in fails(fp.DeltaTable("s3://bucket/p"), storage_options=moto)
    none = fp.IcebergTable("s3://bucket/none.metadata.json")
    assert "cannot be read" in fails(none, storage_options=moto)


def test_an_object_that_is_replaced_meanwhile(folder: Path, s3: S3Server) -> None:
    s3.put(folder / "bucket/p/state=01/a.parquet", "q/state=01/a.parquet")

    def replace(done: int, total: int) -> None:
        if not done:
            s3.put(folder / "bucket/p/state=02/a.parquet", "q/state=01/a.parquet")

    assert fails("s3://bucket/q", storage_options=s3.options, progress=replace) == (
        "s3://bucket/q/state=01/a.parquet changed during the count. "
        "Count again when nothing writes to it."
    )


def test_what_is_not_there(moto: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert fails("s3://bucket/none", storage_options=moto) == (
        "s3://bucket/none: the file or folder does not exist. Check the URL."
    )
    assert "Check the URL and storage_options." in fails("s3://none/none", storage_options=moto)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    nobody = {"endpoint_url": moto["endpoint_url"]}
    assert fails("s3://bucket/p", storage_options=nobody) == (
        "s3://bucket/p cannot be accessed. Check the credentials in storage_options."
    )


# Faults, by a server that knows of buckets no more than S3 objects need


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[StoreServer]:
    with serve(folder) as running:
        yield running


def reach(server: StoreServer) -> dict[str, Any]:
    return {"key": "key", "secret": SECRET, "endpoint_url": server.url.rstrip("/")}


URLS = [f"s3://bucket/p/state=01/{part}.parquet" for part in "ab"]


@pytest.mark.parametrize(
    "fault",
    [
        "reset",
        "truncate",
        *(pytest.param(f, marks=pytest.mark.slow) for f in ("500", "503", "short")),
    ],
)
def test_what_fails_in_passing_is_asked_again(
    server: StoreServer, folder: Path, fault: str
) -> None:
    expected = fpd.count(folder / "bucket/p/state=01", WANTED)[JOINT]
    server.behave(faults=[fault] * 3)
    counted = fpd.count(fp.Source(URLS, storage_options=reach(server)), WANTED)
    np.testing.assert_array_equal(counted[JOINT], expected)
    told = server.tell()
    assert told["HEAD"] == len(URLS)


@pytest.mark.slow
def test_what_fails_forever_is_not_damage(
    server: StoreServer,
) -> None:
    server.behave(share=1.0, drawn=["503"])
    told = fails(URLS, storage_options=reach(server))
    assert told.startswith(f"{URLS[0]} cannot be read now: its store repeatedly failed to answer")
    server.behave(password="another", denial=403)
    denied = fails(URLS, storage_options=reach(server))
    assert denied == f"{URLS[0]} cannot be accessed. Check the credentials in storage_options."


@pytest.mark.slow
def test_a_store_that_takes_requests_and_never_answers(server: StoreServer) -> None:
    server.behave(silent=10**6)
    with dask.config.set({"fitplug.timeout": "1s"}):
        told = fails("s3://bucket/p/state=01/a.parquet", storage_options=reach(server))
    assert "the store did not answer" in told
    assert server.tell()["HEAD"] + server.tell()["GET"] == 4


@pytest.mark.slow
def test_an_output_that_takes_requests_and_never_answers(server: StoreServer) -> None:
    server.behave(silent=10**6)
    domain = fp.Domain({"sex": ["1", "2"]})
    plan = fp.design(fp.Workload(domain, [fp.marginal("sex", std=9.0)]))
    tables = fp.Tables(domain, {("sex",): np.array([3, 4])})
    begun = time.monotonic()
    with (
        dask.config.set({"fitplug.timeout": "1s"}),
        pytest.raises(FitplugError, match=r"s3://bucket/out: .*Nothing was charged"),
    ):
        release_source(plan, tables, "s3://bucket/out", folder_options=reach(server))
    assert time.monotonic() - begun < 50  # and not a minute, as without the setting


def test_a_store_that_does_not_look_at_the_precondition(
    server: StoreServer, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "bucket").mkdir()
    for name, state in (("a.parquet", "01"), ("a.parquet.new", "02")):
        source = folder / f"bucket/p/state={state}/a.parquet"
        (tmp_path / "bucket" / name).write_bytes(source.read_bytes())
    domain = fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 99)})
    wanted = (domain, [("sex", "age")])
    with serve(tmp_path) as other:
        other.behave(checks_etag=False, swap=2)
        with pytest.raises(DataError, match="changed during the count"):
            fpd.count(fp.Source("s3://bucket/a.parquet", storage_options=reach(other)), wanted)


def test_marks_of_folders_hold_no_rows(folder: Path, s3: S3Server) -> None:
    part = folder / "bucket/p/state=01/a.parquet"
    for name in ("p/", "p/state=01/"):
        s3.put(b"", f"marked/{name}")
    s3.put(part, "marked/p/state=01/a.parquet")
    counted = fpd.count(fp.Source("s3://bucket/marked", storage_options=s3.options), WANTED)
    np.testing.assert_array_equal(counted[JOINT], fpd.count(part, WANTED)[JOINT])
