"""A store that is slow, fails and changes: counts are exact, or the error says what happened.

The server is a process of its own; what it was asked, and how many bytes it sent, is its own word.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import dask
import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.feather as pf
import pyarrow.parquet as pq
import pytest

import fitplug as fp
import fitplug_dask as fpd
from fitplug.errors import DataError
from fitplug_dask.files import parquet
from fitplug_dask.sources import stores
from tests.helpers.sources import count_rows
from tests.helpers.store_server import StoreServer, serve

DOMAIN = fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 99)})
JOINT = ("sex", "age")
WANTED = (DOMAIN, [JOINT])
FILES, ROWS, GROUP_ROWS = 6, 40_000, 8_000
PASSWORD = "Bearer CANARY7351"


def people(seed: int, rows: int = ROWS) -> pa.Table:
    """Rows with columns between those that are counted, which nobody needs to read."""
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "between": rng.random(rows),
            "sex": rng.choice(["1", "2", "3"], rows),
            "beside": rng.integers(0, 2**60, rows),
            "age": rng.integers(-1, 101, rows),
            "behind": rng.random(rows),
        }
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    folder = tmp_path_factory.mktemp("store")
    (folder / "people").mkdir()
    for i in range(FILES):
        path = folder / f"people/{i}.parquet"
        pq.write_table(people(i), path, row_group_size=GROUP_ROWS, write_page_checksum=True)
    pq.write_table(people(99), folder / "people/3.parquet.new", row_group_size=GROUP_ROWS)
    pc.write_csv(people(0), folder / "a.csv")
    pf.write_feather(people(0), folder / "a.arrow", "zstd", chunksize=GROUP_ROWS)
    with serve(folder) as running:
        yield running


@pytest.fixture(autouse=True)
def _(short_waits: None) -> None: ...


@pytest.fixture
def urls(server: StoreServer) -> list[str]:
    server.behave()
    return [f"{server.url}people/{i}.parquet" for i in range(FILES)]


@pytest.fixture(scope="module")
def exact(server: StoreServer) -> Any:
    """The counts, by Arrow and NumPy."""
    counts = np.zeros((2, 100), dtype=np.int64)
    for i in range(FILES):
        held = people(i)
        ages, sexes = held["age"].to_numpy(), held["sex"].to_numpy(zero_copy_only=False)
        for row, sex in enumerate("12"):
            inside = (sexes == sex) & (ages >= 0) & (ages < 100)
            counts[row] += np.bincount(ages[inside], minlength=100)
    return counts


def fails(source: Any, **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        count_rows(source, WANTED, **options)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    return str(caught.value)


# Requests


def count_wanted_bytes(server: StoreServer) -> int:
    found = 0
    for i in range(FILES):
        told = pq.read_metadata(server.folder / f"people/{i}.parquet")
        for g in range(told.num_row_groups):
            columns = [told.row_group(g).column(c) for c in range(told.num_columns)]
            found += sum(c.total_compressed_size for c in columns if c.path_in_schema in JOINT)
    return found


@pytest.mark.parametrize("etag", ["strong", "weak", "none"])
def test_only_the_columns_are_read_at_once_and_each_byte_once(
    server: StoreServer, urls: list[str], exact: Any, etag: str
) -> None:
    server.behave(etag=etag, latency=0.02)
    np.testing.assert_array_equal(fpd.count(urls, WANTED)[JOINT], exact)
    told = server.tell()
    footers = sum(
        min(2**16, (server.folder / f"people/{i}.parquet").stat().st_size) for i in range(FILES)
    )
    assert told["bytes"] - footers <= 1.2 * count_wanted_bytes(server)
    # The state of each file is asked when it is found, and later only if requests cannot name it.
    # Then it is asked behind each portion, in which there are several files.
    assert told["HEAD"] == FILES if etag == "strong" else FILES < told["HEAD"] <= 4 * FILES
    groups = FILES * ROWS // GROUP_ROWS
    first_pages = 2  # looked at for checksums
    assert told["GET"] <= FILES + first_pages + len(JOINT) * groups
    assert told["most_in_flight"] > 8


@pytest.mark.parametrize("etag", ["strong", "none"])
@pytest.mark.parametrize("whole", [0, 2**30])
def test_little_is_held_at_once(
    server: StoreServer,
    urls: list[str],
    exact: Any,
    monkeypatch: pytest.MonkeyPatch,
    etag: str,
    whole: int,
) -> None:
    """Row groups one by one, of small files in one request, and larger ones by and by."""
    server.behave(etag=etag)
    monkeypatch.setattr(parquet, "_WHOLE_FILE", whole)
    for most in (2 * GROUP_ROWS, 1):
        monkeypatch.setattr(parquet, "_AHEAD_VALUES", most)
        np.testing.assert_array_equal(fpd.count(urls, WANTED)[JOINT], exact)
    monkeypatch.setattr(parquet, "_STORE_BUFFER", 3000)
    monkeypatch.setattr(parquet, "_LOCAL_BUFFER", 3000)
    np.testing.assert_array_equal(fpd.count(urls, WANTED)[JOINT], exact)
    assert server.tell()["bytes"] < 1.3 * 3 * count_wanted_bytes(server) + 2**24


# Faults that pass


@pytest.mark.parametrize("fault", ["500", "503", "429", "reset", "truncate", "short"])
@pytest.mark.parametrize("name", ["people/0.parquet", "a.csv", "a.arrow"])
def test_what_fails_in_passing_is_asked_again(server: StoreServer, fault: str, name: str) -> None:
    expected = fpd.count(server.folder / name, WANTED)[JOINT]
    server.behave(faults=[fault] * 3)
    np.testing.assert_array_equal(fpd.count(server.url + name, WANTED)[JOINT], expected)


def test_many_answers_fail_in_passing(server: StoreServer, urls: list[str], exact: Any) -> None:
    server.behave(share=0.3, drawn=["500", "503", "reset", "truncate", "short"])
    np.testing.assert_array_equal(fpd.count(urls, WANTED)[JOINT], exact)


def test_an_answer_that_does_not_come(server: StoreServer, urls: list[str], exact: Any) -> None:
    with dask.config.set({"fitplug.timeout": "1s"}):
        server.behave(faults=["hang", "hang"])
        np.testing.assert_array_equal(fpd.count(urls, WANTED)[JOINT], exact)
        server.behave(silent=3)
        np.testing.assert_array_equal(fpd.count(urls, WANTED)[JOINT], exact)


def test_a_server_that_takes_requests_and_never_answers(
    server: StoreServer, urls: list[str]
) -> None:
    """The setting is the limit of all attempts at a request together."""
    server.behave(silent=10**6)
    begun = time.monotonic()
    with dask.config.set({"fitplug.timeout": "2s"}):
        assert fails(urls[0]) == (
            f"{urls[0]}: the store did not answer or refused the request. "
            "Check the URL and storage_options."
        )
    assert time.monotonic() - begun < 7  # and not 8, as if it were the limit of each attempt
    assert server.tell()["HEAD"] == 4
    server.behave()


@pytest.mark.parametrize(
    "table", [fp.DeltaTable("s3://p/t"), fp.IcebergTable("s3://p/t/metadata/1.metadata.json")]
)
def test_a_table_in_a_store_that_never_answers(table: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        keys = {"key": "k", "secret": "s", "region": "us-east-1"}
        keys["endpoint_url"] = f"http://127.0.0.1:{silent.getsockname()[1]}"
        begun = time.monotonic()
        with dask.config.set({"fitplug.timeout": "1s"}):
            told = fails(fp.Source(table, storage_options=keys))
        assert time.monotonic() - begun < 30  # and not a minute, as without the setting
        assert "cannot be re" in told


@pytest.mark.parametrize("name", ["people/0.parquet", "a.csv", "a.arrow"])
@pytest.mark.parametrize("late", [False, True])
def test_a_server_that_answers_requests_for_headers_alone(
    server: StoreServer, name: str, late: bool
) -> None:
    silent = {"faults": ["hang"] * 1000}
    server.behave(**({} if late else silent))
    begun = 0.0

    def fall_silent(done: int, total: int) -> None:
        nonlocal begun
        if not done:
            begun = time.monotonic()
            server.behave(**silent)

    begun = time.monotonic()
    with dask.config.set({"fitplug.timeout": "1s"}):
        told = fails(server.url + name, progress=fall_silent)
    assert "cannot be read now: its store repeatedly failed to answer" in told
    assert time.monotonic() - begun < 30  # and not a minute, as without the setting
    server.behave()


@pytest.mark.parametrize("fault", ["503", "reset", "truncate"])
@pytest.mark.parametrize("name", ["people/0.parquet", "a.csv", "a.arrow"])
@pytest.mark.parametrize("late", [False, True])
def test_what_fails_forever_is_not_damage(
    server: StoreServer, fault: str, name: str, late: bool
) -> None:
    always = {"share": 1.0, "drawn": [fault]}
    server.behave(**({} if late else always))

    def break_off(done: int, total: int) -> None:
        if not done:
            server.behave(**always)

    told = fails(server.url + name, progress=break_off)
    assert told == (
        f"{server.url}{name} cannot be read now: its store repeatedly failed to answer. "
        "Count again later."
    )
    assert server.tell()["GET"] <= 100


@pytest.mark.parametrize("fault", ["503", "reset", "truncate", "short"])
@pytest.mark.parametrize("scheme", ["gs", "az"])
def test_google_and_azure_are_asked_as_s3_is(
    server: StoreServer, exact: Any, scheme: str, fault: str
) -> None:
    """The folder of the server is one of accounts, and "people" a bucket or container."""
    endpoint = server.url.rstrip("/")
    reached = {
        "gs": {"base_url": endpoint, "anon": True},
        "az": {"endpoint": endpoint, "account_name": "anyone", "anon": True},
    }[scheme]
    urls = [f"{scheme}://people/{i}.parquet" for i in range(FILES)]
    server.behave(faults=[fault] * 3)
    np.testing.assert_array_equal(
        fpd.count(fp.Source(urls, storage_options=reached), WANTED)[JOINT], exact
    )
    # A request on a connection that a fault has broken is repeated.
    assert FILES <= server.tell()["HEAD"] <= FILES + 3
    server.behave(swap=5, checks_etag=False)
    assert fails(urls, storage_options=reached) == (
        f"{urls[3]} changed during the count. Count again when nothing writes to it."
    )
    server.behave(password=PASSWORD)
    assert fails(urls, storage_options=reached) == (
        f"{urls[0]} cannot be accessed. Check the credentials in storage_options."
    )
    server.behave()


# Damage, and bytes of another version


@pytest.mark.parametrize("name", ["people/0.parquet", "a.arrow"])
def test_bytes_that_arrive_and_are_wrong_are_damage(server: StoreServer, name: str) -> None:
    server.behave()

    def flip(done: int, total: int) -> None:
        if not done:
            server.behave(faults=["flip"] * 100)

    told = fails(server.url + name, progress=flip)
    assert told.startswith(server.url + name)
    assert "so the file is damaged. Write it again" in told


@pytest.mark.parametrize("etag", ["strong", "weak"])
@pytest.mark.parametrize("checks_etag", [True, False])
@pytest.mark.parametrize("swap", [5, 10])
def test_a_file_that_changes_meanwhile(
    server: StoreServer, urls: list[str], etag: str, checks_etag: bool, swap: int
) -> None:
    server.behave(etag=etag, checks_etag=checks_etag, swap=swap)
    told = fails(urls)
    assert told == (f"{urls[3]} changed during the count. Count again when nothing writes to it.")


# Access


@pytest.mark.parametrize("denial", [401, 403])
def test_credentials_have_words_of_their_own(
    server: StoreServer, urls: list[str], exact: Any, denial: int, capfd: Any
) -> None:
    options = {"headers": {"Authorization": PASSWORD}}
    server.behave(password=PASSWORD, denial=denial)
    np.testing.assert_array_equal(
        fpd.count(fp.Source(urls, storage_options=options), WANTED)[JOINT], exact
    )
    words = "cannot be accessed. Check the credentials in storage_options."
    wrong = {"headers": {"Authorization": PASSWORD + "x"}}
    assert fails(urls, storage_options=wrong) == f"{urls[0]} {words}"
    assert fails(urls) == f"{urls[0]} {words}"

    def revoke(done: int, total: int) -> None:
        if not done:
            server.behave(password=PASSWORD + "y", denial=denial)

    told = fails(urls[:1], storage_options=options, progress=revoke)
    assert told == f"{urls[0]} {words}"
    assert PASSWORD not in f"{told} {capfd.readouterr()}"


def test_a_server_of_whole_files_only(server: StoreServer, urls: list[str]) -> None:
    server.behave(ranges=False)
    assert fails(urls).startswith(
        f"{urls[0]} cannot be read in parts, because its server sends whole files only"
    )


def test_folders_and_globs_are_not_listed_over_http(server: StoreServer) -> None:
    server.behave()
    for source in ("people/", "people/*.parquet"):
        assert fails(server.url + source) == (
            f"{server.url}{source} cannot be listed over HTTP. Name each file by its URL."
        )


def test_a_file_that_is_gone(server: StoreServer, urls: list[str]) -> None:
    missing = server.url + "people/none.parquet"
    assert fails(missing) == f"{missing}: the file or folder does not exist. Check the URL."
    path = server.folder / "gone.parquet"
    pq.write_table(people(1), path)
    url = server.url + path.name
    assert "disappeared during the count" in fails(
        url, progress=lambda done, _: None if done else path.unlink()
    )


def test_no_thread_is_left_waiting(server: StoreServer, urls: list[str]) -> None:
    server.behave(faults=["flip"] * 200)
    fails(urls)
    names = [thread.name for thread in threading.enumerate()]
    assert not any(name.startswith("fitplug-count") for name in names)
    assert sum(name.startswith("fitplug-store") for name in names) <= stores.REQUESTS


def test_a_signed_url_permits_only_to_get(server: StoreServer, urls: list[str]) -> None:
    """Its query holds the signature, and a HEAD is refused."""
    expected = fpd.count(urls[:1], WANTED)[JOINT]
    server.behave(head_denied=True)
    counted = fpd.count([f"{urls[0]}?sig={PASSWORD}"], WANTED)
    np.testing.assert_array_equal(counted[JOINT], expected)
    assert PASSWORD not in fails([f"{server.url}none.parquet?sig={PASSWORD}"])
