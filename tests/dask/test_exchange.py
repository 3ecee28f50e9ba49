"""Exchanges: every piece reaches its output once, whatever spills, fails or is killed."""

from __future__ import annotations

import gc
import itertools
import os
import random
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client

from fitplug.errors import DataError, FitplugError
from fitplug_dask import encryption
from fitplug_dask.exchange import Exchange, add_exchange, run_exchange, worker_depots
from fitplug_dask.exchange.depot import Depot, SpillFile
from fitplug_dask.kernel import Fault
from tests.helpers.forked_processes import forked, run_worker, start_scheduler
from tests.helpers.local_workers import start_workers

SECRET = b"a secret that no file may hold"


def make_piece(given: int, output: int) -> bytes:
    return SECRET + f" {given} {output} ".encode() * (given % 3)


def split(shared: int, given: int) -> Mapping[int, Any] | Fault:
    """Bytes for even outputs and objects for odd ones; none where the sum is a multiple of 5."""
    if given == -1:
        return Fault("input -1 is damaged")
    if given == -2:
        raise RuntimeError(SECRET.decode())
    return {
        output: make_piece(given, output) if output % 2 == 0 else (given, output, shared)
        for output in range(shared)
        if (given + output) % 5
    }


def gather(shared: int, output: int, pieces: Mapping[int, Any]) -> Any:
    return output, [(i, bytes(p) if output % 2 == 0 else p) for i, p in pieces.items()]


def slow_gather(shared: int, output: int, pieces: Mapping[int, Any]) -> Any:
    time.sleep(0.05)
    return gather(shared, output, pieces)


def expect(inputs: int, outputs: int) -> list[Any]:
    """What is gathered, written down without any exchange."""
    return [
        (
            o,
            [
                (i, make_piece(i, o) if o % 2 == 0 else (i, o, outputs))
                for i in range(inputs)
                if (i + o) % 5
            ],
        )
        for o in range(outputs)
    ]


def count_pieces(shared: int, gathered: Iterator[tuple[int, Mapping[int, Any]]]) -> int:
    return sum((i + 1) * (output + 1) for output, pieces in gathered for i in pieces)


def slow_count(shared: int, gathered: Iterator[tuple[int, Mapping[int, Any]]]) -> int:
    time.sleep(0.3)
    return count_pieces(shared, gathered)


def add(*terms: int) -> int:
    return sum(terms)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with start_workers(2, 2, processes=True) as client:
        yield client


@pytest.fixture(scope="module")
def one_process() -> Iterator[Client]:
    with start_workers(2, 1, processes=False) as client:
        yield client


@pytest.mark.parametrize(
    "on",
    ["threads", *(pytest.param(on, marks=pytest.mark.slow) for on in ("one_process", "client"))],
)
@pytest.mark.parametrize("memory", [2**30, 300])
@pytest.mark.parametrize("confidential", [True, False])
def test_each_piece_reaches_its_output_once(
    on: str, memory: int, confidential: bool, request: pytest.FixtureRequest
) -> None:
    client = None if on == "threads" else request.getfixturevalue(on)
    told: list[tuple[int, int]] = []
    exchange = Exchange(split, 13, 13, confidential, memory)
    sizes = [1 + i for i in range(20)]
    found = run_exchange(
        exchange,
        gather,
        range(20),
        client=client,
        sizes=sizes,
        report=lambda *weights: told.append(weights),
    )
    assert found == expect(20, 13)
    assert told[0] == (0, 2 * sum(sizes))
    assert told[-1] == (2 * sum(sizes), 2 * sum(sizes))
    total = add_exchange(Exchange(split, 13, 13), count_pieces, add, range(20), client=client)
    assert total == sum((i + 1) * (o + 1) for i in range(20) for o in range(13) if (i + o) % 5)


@pytest.mark.slow
@pytest.mark.parametrize("on", ["threads", "one_process"])
@pytest.mark.parametrize("inputs", [0, 1])
def test_few_inputs_and_one_output(on: str, inputs: int, request: pytest.FixtureRequest) -> None:
    client = None if on == "threads" else request.getfixturevalue(on)
    assert run_exchange(Exchange(split, 1, 1), gather, range(inputs), client=client) == expect(
        inputs, 1
    )


@pytest.mark.slow
@pytest.mark.parametrize("on", ["threads", "client"])
def test_faults_end_an_exchange_and_quote_nothing(on: str, request: pytest.FixtureRequest) -> None:
    client = None if on == "threads" else request.getfixturevalue(on)
    for given, error, says in [
        (-1, DataError, "^input -1 is damaged$"),
        (-2, FitplugError, r"^the exchange of rows failed \(RuntimeError\). Count again.$"),
    ]:
        with pytest.raises(error, match=says) as caught:
            run_exchange(Exchange(split, 3, 3), gather, [0, given, 2], client=client)
        assert caught.value.__context__ is None


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.2, 0.7])
def test_a_killed_worker_loses_no_piece(share: float) -> None:
    expected = sum((i + 1) * (o + 1) for i in range(30) for o in range(24) if (i + o) % 5)
    with forked() as start:
        address, _ = start_scheduler(start)
        workers = [start(run_worker, address) for _ in range(3)]
        with Client(address) as client:
            client.wait_for_workers(3, timeout=60)

            def kill(done: int, total: int) -> None:
                if len(workers) > left and done >= share * total:
                    workers.pop().kill()

            left = 2
            exchange = Exchange(split, 24, 24, memory=1000)
            found = run_exchange(exchange, slow_gather, range(30), client=client, report=kill)
            assert found == expect(30, 24)
            left = 1
            found = add_exchange(exchange, count_pieces, add, range(30), client=client, report=kill)
            assert found == expected
            assert len(workers) == 1


@pytest.mark.long
def test_workers_killed_and_added_at_random_moments_lose_no_piece() -> None:
    rng = random.Random(16)
    expected = sum((i + 1) * (o + 1) for i in range(30) for o in range(24) if (i + o) % 5)
    with forked() as start:
        address, _ = start_scheduler(start)
        workers = [start(run_worker, address) for _ in range(2)]
        with Client(address) as client:
            for i in range(30):
                client.wait_for_workers(2, timeout=60)
                victim = workers.pop(rng.randrange(2))
                kill = threading.Timer(rng.uniform(0, 2), victim.kill)
                add_one = threading.Timer(
                    rng.uniform(0, 2), lambda: workers.append(start(run_worker, address))
                )
                kill.start()
                add_one.start()
                exchange = Exchange(split, 24, 24, memory=rng.choice([500, 10**6]))
                if i % 2:
                    found = run_exchange(exchange, slow_gather, range(30), client=client)
                    assert found == expect(30, 24)
                else:
                    total = add_exchange(exchange, slow_count, add, range(30), client=client)
                    assert total == expected
                kill.join()
                add_one.join()


@pytest.mark.slow
def test_pieces_that_never_come_are_made_again(one_process: Client) -> None:
    """As if a disk hung: the worker lives, and one of its depots gives no pieces any more."""
    held: list[Depot] = []

    def hold(done: int, total: int) -> None:
        if 2 * done >= total and not held:  # all pieces are there
            depots = [depot for own in worker_depots._depots.values() for depot in own.values()]
            held.append(depots[0])
            held[0]._lock.acquire()

    try:
        with dask.config.set({"fitplug.timeout": "3s"}):
            exchange = Exchange(split, 5, 5)
            found = run_exchange(exchange, gather, range(9), client=one_process, report=hold)
    finally:
        held[0]._lock.release()  # threads that wait for it would not end
    assert found == expect(9, 5)
    assert held[0].name in worker_depots._lost


@pytest.mark.long
def test_a_worker_that_is_stopped_is_a_lost_worker() -> None:
    with forked() as start:
        address, _ = start_scheduler(start, {"distributed.scheduler.worker-ttl": "5s"})
        workers = [start(run_worker, address) for _ in range(3)]
        with dask.config.set({"fitplug.timeout": "5s"}), Client(address) as client:
            client.wait_for_workers(3, timeout=60)

            def stop(done: int, total: int) -> None:
                if done >= 0.6 * total and not stopped:
                    stopped.append(workers[0].pid)
                    os.kill(workers[0].pid, signal.SIGSTOP)

            stopped: list[int] = []
            exchange = Exchange(split, 24, 24, memory=1000)
            found = run_exchange(exchange, slow_gather, range(30), client=client, report=stop)
            assert stopped
    assert found == expect(30, 24)


def list_exchanges(dask_worker: Any) -> int:
    return len(worker_depots._depots.get(dask_worker, {}))


def count_unnamed_files() -> int:
    """The files that this process holds open and that have no name any more."""
    links = (str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink())
    return sum("(deleted)" in link and "/tmp" in link for link in links)


@pytest.mark.slow
def test_nothing_stays_on_the_workers(client: Client) -> None:
    run_exchange(Exchange(split, 5, 5, memory=10), gather, range(9), client=client)
    assert set(client.run(list_exchanges).values()) == {0}


class LateLock:
    """A lock that the first task to ask for it gets only when the exchange has ended."""

    def __init__(self) -> None:
        self.ended, self.passed = threading.Event(), threading.Event()
        self._lock, self._asked = threading.Lock(), itertools.count()
        self._late: int | None = None

    def __enter__(self) -> None:
        if next(self._asked) == 0:
            self._late = threading.get_ident()
            assert self.ended.wait(60)
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()
        if self._late == threading.get_ident():
            self.passed.set()


def test_a_task_that_outlives_its_exchange_keeps_no_pieces(
    one_process: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = LateLock()
    monkeypatch.setattr(worker_depots, "_lock", lock)
    with pytest.raises(DataError, match=r"^input -1 is damaged$"):
        run_exchange(Exchange(split, 5, 5), gather, [-1] * 4, client=one_process)
    lock.ended.set()
    assert lock.passed.wait(60)
    assert set(one_process.run(list_exchanges).values()) == {0}


def test_workers_forget_an_exchange_whose_client_is_gone(
    one_process: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_depots, "_LEASE_SECONDS", 0)
    started = threading.Event()

    class GoneError(Exception):
        pass

    def leave(done: int, total: int) -> None:
        if done > 0:
            started.set()
            other.close()

    with Client(one_process.cluster.scheduler_address) as other, pytest.raises(FitplugError):
        run_exchange(Exchange(split, 5, 5), gather, range(9), client=other, report=leave)
    assert started.is_set()
    end = time.monotonic() + 100
    while any(one_process.run(list_exchanges).values()):
        assert time.monotonic() < end
        time.sleep(0.1)


# The files


def read_all(depot: Depot, outputs: int) -> list[list[tuple[int, bytes]]]:
    return [[(n, bytes(packed)) for n, packed in depot.collect(o)] for o in range(outputs)]


@pytest.mark.parametrize("confidential", [True, False])
def test_a_depot_returns_what_it_was_given_and_its_file_is_encrypted(
    confidential: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encryption, "_BLOCK_BYTES", 64)
    opened: list[SpillFile] = []

    class Watched(SpillFile):
        def __init__(self, folder: str | None, confidential: bool) -> None:
            super().__init__(folder, confidential)
            opened.append(self)

    monkeypatch.setattr("fitplug_dask.exchange.depot.SpillFile", Watched)
    small = Depot(4, 500, str(tmp_path), confidential)
    large = Depot(4, 2**30, str(tmp_path), confidential)
    for i in range(20):
        pieces = {o: make_piece(i, o) for o in range(4) if (i + o) % 5}
        assert small.deposit(pieces) == large.deposit(pieces) == i
    assert read_all(small, 4) == read_all(large, 4)
    assert small.spilled_bytes > 1000
    assert large.spilled_bytes == 0
    assert list(tmp_path.iterdir()) == []
    (file,) = opened
    assert file._descriptor is not None
    assert os.fstat(file._descriptor).st_mode & 0o777 == 0o600
    content = file._read_at(0, 10**6)
    assert len(content) == small.spilled_bytes
    assert (SECRET in content) is not confidential
    if confidential:
        file._write_at(5, memoryview(bytes([content[5] ^ 1])))
        with pytest.raises(ValueError, match="were changed"):
            read_all(small, 4)


def test_messages_are_read_in_no_other_place() -> None:
    file = SpillFile(None, True)
    one, other = file.append(b"x" * 100, b"one"), file.append(b"y" * 100, b"other")
    assert bytes(file.read(one, b"one")) == b"x" * 100
    for place, context in [(one, b"other"), (other._replace(position=one.position), b"other")]:
        with pytest.raises(ValueError, match="were changed"):
            file.read(place, context)


def test_threads_read_a_file_while_another_one_appends_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "pread", raising=False)  # as on Windows
    monkeypatch.delattr(os, "pwrite", raising=False)
    file = SpillFile(None, True)
    messages = [bytes([i]) * (1000 + i) for i in range(200)]
    places = [file.append(message, b"") for message in messages]

    def read(_: int) -> bool:
        return all(
            bytes(file.read(place, b"")) == message
            for place, message in zip(places, messages, strict=True)
        )

    with ThreadPoolExecutor(4) as pool:
        reading = pool.map(read, range(20))
        later = [file.append(message, b"") for message in messages]
        assert all(reading)
    places = later
    assert read(0)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="lists open files")
def test_files_are_closed_at_the_end_and_after_a_fault() -> None:
    gc.collect()
    before = count_unnamed_files()
    exchange = Exchange(split, 3, 3, memory=10)
    run_exchange(exchange, gather, range(9), client=None)
    with pytest.raises(DataError):
        run_exchange(exchange, gather, [*range(9), -1], client=None)
    gc.collect()
    assert count_unnamed_files() == before


def test_a_full_disk_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SpillFile, "_write_at", fail)
    exchange = Exchange(split, 3, 3, memory=10)
    with pytest.raises(FitplugError, match="disk for temporary files is too small"):
        run_exchange(exchange, gather, range(9), client=None)


def test_without_the_package_nothing_confidential_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lack(key: bytes) -> Any:
        raise encryption.EncryptionMissingError

    monkeypatch.setattr(encryption, "_load_cipher", lack)
    with pytest.raises(
        FitplugError, match=r"the package cryptography is not installed.*fitplug\[dask\]"
    ):
        run_exchange(Exchange(split, 3, 3, memory=10), gather, range(9), client=None)
    exchange = Exchange(split, 3, 3, memory=10, confidential=False)
    assert run_exchange(exchange, gather, range(9), client=None) == expect(9, 3)
    assert run_exchange(Exchange(split, 3, 3), gather, range(9), client=None) == expect(9, 3)


def test_a_cipher_is_aes_gcm() -> None:
    # Test case 14 of McGrew and Viega, "The Galois/Counter Mode of Operation" (2004).
    published = "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"
    shared = encryption.Cipher(bytes(32))
    assert shared.decrypt(bytes(12) + bytes.fromhex(published), b"") == bytes(16)
    first, second = shared.encrypt(SECRET, b"a"), shared.encrypt(SECRET, b"a")
    assert first != second
    assert encryption.Cipher(bytes(32)).decrypt(first, b"a") == SECRET
    for other, context in [(bytes(32), b"b"), (b"k" * 32, b"a")]:
        with pytest.raises(ValueError, match="were changed"):
            encryption.Cipher(other).decrypt(first, context)
