"""What rows hold is in no error, traceback or log, whichever way a file fails."""

from __future__ import annotations

import contextlib
import gzip
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from distributed import Client, LocalCluster

import fitplug as fp
import fitplug_dask as fpd
from fitplug.errors import DataError
from tests.helpers.local_workers import start_workers
from tests.helpers.secrets import NUMBER, ROWS, TEXT, secrets_in, told_by

DOMAIN = fp.Domain(
    {"name": ["a", "b"], "code": fp.Integers(0, 9), "size": fp.Bins([0, 1]), "flag": [True, False]}
)
WANTED = (DOMAIN, [("name", "code"), ("size", "flag")])
COLUMNS: dict[str, Any] = {
    "name": [TEXT] * ROWS,
    "code": [NUMBER] * ROWS,
    "size": [float(NUMBER)] * ROWS,
    "flag": [True] * ROWS,
}


def write(path: Path, columns: dict[str, Any] = COLUMNS, **options: Any) -> None:
    pq.write_table(pa.table(columns), path, compression="none", **options)


def overwrite(path: Path, at: int, new: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + len(new)] = new
    path.write_bytes(bytes(content))


def break_value(path: Path) -> None:
    write(path, write_page_checksum=True)
    overwrite(path, path.read_bytes().index(TEXT.encode()) + len(TEXT) - 1, b"2")


def break_page_header(path: Path) -> None:
    write(path)
    overwrite(path, 4, b"\xff" * 8)


def break_dictionary_length(path: Path) -> None:
    write(path)
    overwrite(path, path.read_bytes().index(TEXT.encode()) - 4, b"\x7f\xff\xff\x7f")


def break_plain_lengths(path: Path) -> None:
    write(path, use_dictionary=False)
    overwrite(path, path.read_bytes().index(TEXT.encode()) + len(TEXT), b"\xff" * 4)


def break_number_page(path: Path) -> None:
    write(path, use_dictionary=False)
    overwrite(path, path.read_bytes().index(NUMBER.to_bytes(8, "little")) - 40, b"\xee" * 40)


def cut_in_the_middle(path: Path) -> None:
    write(path)
    path.write_bytes(path.read_bytes()[:-300])


def break_footer(path: Path) -> None:
    write(path)
    at = path.read_bytes().rindex(TEXT.encode())
    overwrite(path, at - 30, b"\xff" * 25)


def strings_for_integers(path: Path) -> None:
    write(path, {**COLUMNS, "code": [TEXT] * ROWS})


def numbers_for_strings(path: Path) -> None:
    write(path, {**COLUMNS, "name": [NUMBER] * ROWS})


def times_for_integers(path: Path) -> None:
    write(path, {**COLUMNS, "code": pa.array([NUMBER] * ROWS, pa.timestamp("s"))})


def no_column(path: Path) -> None:
    write(path, {n: v for n, v in COLUMNS.items() if n != "flag"})


def not_parquet(path: Path) -> None:
    path.write_text(f"{TEXT},{NUMBER}\n" * ROWS)


def csv_with_a_long_record(path: Path) -> None:
    lines = "name,code,size,flag\n" + f"{TEXT},{NUMBER},{NUMBER}.0,true\n" * ROWS
    path.with_suffix(".csv").write_text(f"{lines}{TEXT},{NUMBER},1,true,{TEXT}\n")


def csv_with_an_open_quote(path: Path) -> None:
    lines = "name,code,size,flag\n" + f"{TEXT},{NUMBER},{NUMBER}.0,true\n" * ROWS
    path.with_suffix(".csv").write_text(f'{lines}"{TEXT},{NUMBER}\n')


def csv_without_names(path: Path) -> None:
    path.with_suffix(".csv").write_text(f"{TEXT},{NUMBER},{NUMBER}.0,true\n" * ROWS)


def csv_twice_named(path: Path) -> None:
    path.with_suffix(".csv").write_text("name,name\n" + f"{TEXT},{NUMBER}\n" * ROWS)


def gzip_altered(path: Path) -> None:
    lines = "name,code,size,flag\n" + f"{TEXT},{NUMBER},1,true\n" * ROWS
    zipped = path.with_suffix(".csv.gz")
    zipped.write_bytes(gzip.compress(lines.encode(), 0))
    overwrite(zipped, zipped.read_bytes().index(TEXT.encode()), b"D")


def arrow_offsets(path: Path) -> None:
    arrow = path.with_suffix(".arrow")
    feather.write_feather(pa.table(COLUMNS), arrow, "uncompressed")
    overwrite(arrow, arrow.read_bytes().index(TEXT.encode()) - 400, b"\xff" * 8)


def arrow_strings_for_integers(path: Path) -> None:
    table = pa.table({**COLUMNS, "code": [TEXT] * ROWS})
    feather.write_feather(table, path.with_suffix(".feather"))


def footer_adds_rows(path: Path) -> None:
    write(path)
    content = path.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    path.write_bytes(content[:start] + content[start:].replace(b"\xaa\x13", b"\xac\x13"))


FAILURES: list[Callable[[Path], None]] = [
    break_value,
    break_page_header,
    break_dictionary_length,
    break_plain_lengths,
    break_number_page,
    cut_in_the_middle,
    break_footer,
    strings_for_integers,
    numbers_for_strings,
    times_for_integers,
    no_column,
    not_parquet,
    csv_with_a_long_record,
    csv_with_an_open_quote,
    csv_without_names,
    csv_twice_named,
    gzip_altered,
    arrow_offsets,
    arrow_strings_for_integers,
    footer_adds_rows,
]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with start_workers(1, 1, processes=False) as client:
        yield client


def logged(client: Client | None) -> str:
    if client is None:
        return ""
    return f"{client.get_worker_logs()} {client.get_scheduler_logs()}"


@pytest.mark.slow
@pytest.mark.parametrize("on", ["threads", "cluster"])
@pytest.mark.parametrize("fail", FAILURES, ids=lambda fail: fail.__name__)
def test_no_failure_tells_what_rows_hold(
    tmp_path: Path,
    fail: Callable[[Path], None],
    on: str,
    client: Client,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    fail(tmp_path / "bad.parquet")
    used = client if on == "cluster" else None
    with caplog.at_level(logging.DEBUG), pytest.raises(DataError, match=r"bad\.") as caught:
        fpd.count(tmp_path, WANTED, client=used)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    captured = "".join(capfd.readouterr())
    assert not secrets_in(told_by(caught.value))
    assert not secrets_in(caplog.text + captured + logged(used))


@pytest.mark.parametrize("on", ["threads", pytest.param("cluster", marks=pytest.mark.slow)])
def test_a_success_tells_nothing_either(
    tmp_path: Path,
    on: str,
    client: Client,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    write(tmp_path / "a.parquet")
    used = client if on == "cluster" else None
    with caplog.at_level(logging.DEBUG):
        counted = fpd.count(tmp_path, (DOMAIN, [("flag",)]), client=used, progress=True)
    assert counted["flag"].sum() == ROWS
    captured = "".join(capfd.readouterr())
    assert not secrets_in(repr(counted) + caplog.text + captured + logged(used))
    write(tmp_path / "b.parquet")
    assert fpd.count(tmp_path, WANTED, client=used)["name", "code"].sum() == 0


def test_even_the_locals_of_the_traceback_hold_no_value(tmp_path: Path) -> None:
    break_value(tmp_path / "bad.parquet")
    with pytest.raises(DataError) as caught:
        fpd.count(tmp_path, WANTED)
    below = caught.value.__traceback__.tb_next if caught.value.__traceback__ else None
    told = told_by(caught.value.with_traceback(below), locals_too=True)
    assert "files = " in told
    assert TEXT not in told
    assert str(NUMBER) not in told


def test_a_failing_sum_logs_no_counts() -> None:
    import numpy as np

    from fitplug_dask.kernel import Fault, PartialCounts, add_partial_counts

    class Full(np.ndarray[Any, Any]):
        def astype(self, *args: Any, **options: Any) -> Any:
            raise MemoryError(str(NUMBER))

    part = PartialCounts((np.array([NUMBER]).view(Full),))
    fault = add_partial_counts(part, part)
    assert isinstance(fault, Fault)
    assert not secrets_in(f"{fault} {part}")


def test_what_workers_write_to_their_disks_is_encrypted(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for i in range(6):
        write(tmp_path / f"{i}.parquet", {**COLUMNS, "code": rng.integers(0, 10, ROWS)})
    spilled: dict[str, bytes] = {}
    with (
        # All results are written to the disk, and the memory of other tests pauses no worker.
        dask.config.set({"distributed.worker.memory.target": 1e-9}),
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            memory_limit="64 GiB",
            local_directory=str(tmp_path / "scratch"),
            dashboard_address=":0",
        ) as cluster,
        Client(cluster) as client,
    ):
        folder = Path(client.cluster.workers[0].local_directory) / "storage"
        counted = threading.Event()

        def look() -> None:
            while not counted.is_set():
                for path in folder.iterdir():
                    with contextlib.suppress(OSError):  # it is gone already
                        spilled[path.name] = max(spilled.get(path.name, b""), path.read_bytes())

        looking = threading.Thread(target=look)
        looking.start()
        fpd.count(str(tmp_path / "*.parquet"), WANTED, client=client)
        counted.set()
        looking.join()
        # The test sees what a worker writes: a result that nobody encrypts.
        plain = client.submit(lambda: TEXT.encode() * 10)
        plain.result()
        spilled_plain = b"".join(path.read_bytes() for path in folder.iterdir())
    assert TEXT.encode() in spilled_plain
    content = b"".join(spilled.values())
    assert content.count(b"BytesIO") >= 2  # results, and what many tasks take
    for word in (b"_unpack_counts", b"PartialCounts", b"Integers", b"Job"):
        assert word not in content
