"""Files in stores, by URLs of fsspec: found, checked and counted as local files are."""

from __future__ import annotations

import dataclasses
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client
from fsspec.implementations.memory import MemoryFileSystem

import fitplug as fp
import fitplug_dask as fpd
from fitplug.errors import DataError
from fitplug.files import redact_url
from fitplug_dask.files import take_snapshot
from fitplug_dask.sources import Location, find_files
from tests.helpers.local_workers import start_workers
from tests.helpers.row_reading import watch_reading
from tests.helpers.sources import count_rows

DOMAIN = fp.Domain({"sex": ["1", "2"], "state": ["01", "02"], "age": fp.Integers(0, 9)})
WANTED = (DOMAIN, [("sex", "state", "age")])
SECRET = "CANARY7351"


class Store(MemoryFileSystem):  # type: ignore[misc]
    """A store that wants a password, tells ETags and keeps listings until told to look again."""

    protocol = "vault"
    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012
    cachable = False
    tags: dict[str, str] = {}  # noqa: RUF012

    def __init__(self, password: str = "", **options: Any) -> None:
        super().__init__(**options)
        if password != SECRET:
            raise PermissionError(f"{password} is wrong, {SECRET} would be right")

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + str(path).removeprefix("vault://").rpartition("@")[2].strip("/")

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        held = super().info(path, **options)
        held.pop("created", None)
        tag = self.tags.get(self._strip_protocol(path))
        return held if tag is None else {**held, "ETag": tag}


fsspec.register_implementation("vault", Store, clobber=True)


@pytest.fixture
def memory() -> Iterator[Any]:
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    Store.store.clear()
    Store.tags.clear()


def write(system: Any, path: str, rows: pa.Table, **options: Any) -> None:
    with system.open(path, "wb") as file:
        pq.write_table(rows, file, **options)


def people(seed: int, n: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table({"sex": rng.choice(["1", "2", "3"], n), "age": rng.integers(-1, 11, n)})


@pytest.fixture
def hive(tmp_path: Path, memory: Any) -> fp.Tables:
    """The same hive folders on disk and in memory; returns their counts."""
    for seed, state in enumerate(("01", "02", "03")):
        (tmp_path / f"p/state={state}").mkdir(parents=True)
        for part in "ab":
            rows = people(seed, 300)
            path = f"p/state={state}/{part}.parquet"
            pq.write_table(rows, tmp_path / path, row_group_size=100)
            write(memory, f"/{path}", rows, row_group_size=100)
    for passed_over in ("p/_tmp/c.parquet", "p/.d.parquet", "p/_SUCCESS", "p/notes.txt"):
        memory.pipe(f"/{passed_over}", b"not Parquet")
    return fpd.count(tmp_path / "p", WANTED)


def assert_same(one: fp.Tables, other: fp.Tables) -> None:
    for names in one:
        np.testing.assert_array_equal(one[names], other[names])


def fails(source: Any, **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        count_rows(source, WANTED, **options)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    return str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        *("p", "p/", "p/state=*", "p/state=*/", "p/**", "p/**/*.parquet"),
        *("p/state=0[123]/*", "p/state=*/?.parquet"),
    ],
)
def test_folders_and_globs_mean_what_they_mean_on_disk(
    tmp_path: Path, source: str, hive: fp.Tables
) -> None:
    assert hive["sex", "state", "age"].sum() > 500
    assert_same(fpd.count(f"memory://{source}", WANTED), hive)
    assert_same(fpd.count(f"file://{tmp_path}/{source}", WANTED), hive)
    assert_same(fpd.count(f"{tmp_path}/{source}", WANTED), hive)


def test_lists_files_and_local_urls(tmp_path: Path, hive: fp.Tables) -> None:
    parts = [f"memory://p/state={state}/{part}.parquet" for state in ("01", "03") for part in "ab"]
    assert_same(fpd.count([*parts, f"file://{tmp_path}/p/state=02"], WANTED), hive)
    assert "is the same file as" in fails(["memory://p", parts[0]])


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".arrow", ".arrows"])
def test_every_format_in_a_store(tmp_path: Path, memory: Any, suffix: str) -> None:
    from tests.helpers.counting import WRITERS

    rows = people(4, 1000)
    WRITERS[suffix](rows, tmp_path / f"a{suffix}", chunksize=300)
    memory.pipe(f"/q/state=01/a{suffix}", (tmp_path / f"a{suffix}").read_bytes())
    write(memory, "/r/state=01/a.parquet", rows)
    assert_same(fpd.count("memory://q", WANTED), fpd.count("memory://r", WANTED))


def test_urls_that_mean_no_file(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.pipe("/x/notes.txt", b"")
    assert fails("memory://none") == (
        "memory://none: the file or folder does not exist. Check the URL."
    )
    assert "holds no .parquet" in fails("memory://x")
    assert "matches no .parquet" in fails("memory://x/*")
    assert "cannot be opened: Install ossfs to access Alibaba Object Storage" in fails(
        f"oss://k:{SECRET}@bucket/p"
    )
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    assert 'pip install "fitplug[stores]"' in fails(f"gs://k:{SECRET}@bucket/p")
    assert "cannot be listed (ValueError)" in fails("nothing://at/all")
    assert "combines several file systems" in fails("simplecache::memory://x")
    write(memory, "/n/state=01/age=x/a.parquet", people(1, 3).drop(["age"]))
    spelled = fails("memory://n/")
    assert spelled.startswith("folder memory:///n/state=01/age=x: the domain expects integers")
    memory.pipe("/d/_delta_log/0.json", b"")
    memory.pipe("/d/a.parquet", b"")
    assert "Delta table" in fails("memory://d")


def test_a_damaged_file_in_a_store_is_named(memory: Any) -> None:
    for i in range(40):
        write(memory, f"/p/state=01/{i:02}.parquet", people(i, 10))
    whole = memory.cat("/p/state=01/27.parquet")
    memory.pipe("/p/state=01/27.parquet", whole[:-9])
    assert fails("memory://p").startswith("memory:///p/state=01/27.parquet is truncated")
    memory.pipe("/p/state=01/27.parquet", b"")
    assert "is empty (0 bytes)" in fails("memory://p")
    write(memory, "/p/state=01/27.parquet", people(1, 10).drop(["age"]))
    assert "27.parquet has no column 'age'" in fails("memory://p")


def test_a_file_replaced_in_the_store_meanwhile(memory: Any) -> None:
    write(memory, "/p/state=01/a.parquet", people(1, 100))
    content = memory.cat("/p/state=01/a.parquet")

    def replace(done: int, total: int) -> None:
        if not done:
            memory.pipe("/p/state=01/a.parquet", content)

    told = fails("memory://p", progress=replace)
    assert told.startswith("memory:///p/state=01/a.parquet changed during the count")
    gone = fails("memory://p", progress=lambda done, _: done or memory.rm("/p/state=01/a.parquet"))
    assert "disappeared during the count" in gone


def test_a_file_of_another_etag_is_another_file(memory: Any) -> None:
    options = {"password": SECRET}
    store = Store(**options)
    write(store, "/b/state=01/a.parquet", people(1, 100))
    Store.tags["/b/state=01/a.parquet"] = "one"
    assert fpd.count(fp.Source("vault://b", storage_options=options), WANTED)[
        "sex", "state", "age"
    ].any()

    def retag(done: int, total: int) -> None:
        Store.tags["/b/state=01/a.parquet"] = "two"

    told = fails("vault://b", storage_options=options, progress=retag)
    assert "changed during the count" in told


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with start_workers(1, 2, processes=False) as client:
        yield client


@pytest.mark.slow
def test_credentials_are_in_no_error_key_or_log(
    memory: Any, client: Client, capfd: pytest.CaptureFixture[str]
) -> None:
    options = {"password": SECRET}
    write(Store(**options), "/b/state=01/a.parquet", people(1, 1000), row_group_size=50)
    url = f"vault://me:{SECRET}@b/state=01/a.parquet"
    keys: list[str] = []

    def look(done: int, total: int) -> None:
        keys.extend(
            client.run_on_scheduler(lambda dask_scheduler: [*map(str, dask_scheduler.tasks)])
        )

    counted = fpd.count(
        fp.Source(url, storage_options=options), WANTED, client=client, progress=look
    )
    assert_same(counted, fpd.count(fp.Source(url, storage_options=options), WANTED))
    assert any("fitplug" in key for key in keys)
    told = [
        fails(url, storage_options={"password": "wrong" + SECRET}),
        fails(url.replace("a.parquet", "b.parquet"), storage_options=options),
        fails(url, storage_options=options, client=client, progress=lambda *_: Store.store.clear()),
    ]
    assert told[0] == (
        "vault://b/state=01/a.parquet cannot be accessed. Check the credentials in storage_options."
    )
    logs = f"{client.get_worker_logs()} {client.get_scheduler_logs()} {capfd.readouterr()}"
    assert SECRET not in f"{told} {keys} {logs} {Location(url, options)!r}"


def test_files_travel_without_showing_credentials(tmp_path: Path, memory: Any) -> None:
    options = {"password": SECRET}
    write(Store(**options), "/b/state=01/a.parquet", people(1, 100))
    (tmp_path / "a.csv").write_text("sex\n1\n")
    attributes = {"sex": DOMAIN["sex"]}
    for source in (f"vault://me:{SECRET}@b", tmp_path):
        (file,) = take_snapshot(find_files(fp.Source(source, storage_options=options)), attributes)
        assert pickle.loads(pickle.dumps(file)) == file
        assert SECRET not in repr(file)
        shown = repr(file).replace(file.stamp, "").replace(str(tmp_path), "")
        assert "100" not in shown


def test_what_is_shown_of_a_url() -> None:
    assert redact_url("https://host/a.csv?sig=secret#part") == "https://host/a.csv"
    assert (
        redact_url("s3://key:secret@bucket/state=01/a.parquet") == "s3://bucket/state=01/a.parquet"
    )
    assert redact_url("data/what?/a@b.parquet") == "data/what?/a@b.parquet"


# Surveys


def test_a_survey_reads_no_row(
    tmp_path: Path, hive: fp.Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = watch_reading(monkeypatch)
    told = fpd.preview("memory://p", WANTED)
    assert (told.files, told.format, told.rows, told.cells) == (6, "Parquet", 1800, 40)
    on_disk = fpd.preview(tmp_path / "p", WANTED)
    # In a store fewer first pages are looked at.
    assert told == dataclasses.replace(on_disk, without_checksums=told.without_checksums)
    assert 1 <= told.tasks <= 18
    assert told.threads >= 1
    assert told.memory > 2**20
    assert "1800" not in f"{told} {told!r}"
    with pytest.raises(DataError, match="does not exist"):
        fpd.preview("memory://none", WANTED)
    assert not read
    fpd.count("memory://p", WANTED)
    assert read


@pytest.mark.parametrize(("suffix", "rows"), [(".csv", None), (".arrow", 1000), (".arrows", None)])
def test_a_survey_tells_rows_where_files_do(tmp_path: Path, suffix: str, rows: int | None) -> None:
    from tests.helpers.counting import WRITERS

    WRITERS[suffix](people(1, 1000), tmp_path / f"a{suffix}", chunksize=300)
    assert fpd.preview(tmp_path, (DOMAIN, [("sex", "age")])).rows == rows


# Footers that lie


def varint(number: int) -> bytes:
    number *= 2
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


@pytest.mark.parametrize(
    ("told", "places"), [(1236, "first"), (1236, "last"), (1238, "totals"), (1238, "all")]
)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("use_dictionary", [True, False])
def test_a_footer_that_tells_other_rows_than_the_pages_hold(
    tmp_path: Path, told: int, places: str, version: str, use_dictionary: bool
) -> None:
    path = tmp_path / "a.parquet"
    rows = pa.table({"sex": ["1"] * 1237, "state": ["01"] * 1237, "age": list(range(1237))})
    pq.write_table(
        rows,
        path,
        use_dictionary=use_dictionary,
        data_page_version=version,
        write_statistics=False,
        store_schema=False,
    )
    assert fpd.count(path, (DOMAIN, [("sex",)]))["sex"].sum() == 1237
    content = path.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    parts = content[start:-8].split(varint(1237))
    # The rows of the file come first, then those of each column chunk, and of the row group.
    counts = [varint(1237)] * (len(parts) - 1)
    for at in {"first": [0], "last": [-1], "totals": [0, -1]}.get(places, range(len(counts))):
        counts[at] = varint(told)
    footer = b"".join(part + count for part, count in zip(parts, [*counts, b""], strict=True))
    path.write_bytes(content[:start] + footer + content[-8:])
    message = fails(path)
    assert message.startswith(str(path))
    assert "damaged" in message
