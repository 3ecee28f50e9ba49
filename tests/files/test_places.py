"""Places: the first writer of a file wins, whoever else writes it, also when writers are killed."""

from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
import resource
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

import fitplug as fp
from fitplug.files import LocalPlace, MemoryPlace, open_place

_NAMES = count()
_SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture(params=["local", "memory", "process"])
def place(request, tmp_path):
    if request.param == "local":
        (tmp_path / "folder").mkdir()
        return open_place(tmp_path / "folder")
    if request.param == "process":
        return MemoryPlace()
    return open_place(f"memory://places/{next(_NAMES)}")


def test_a_second_writer_is_refused(place):
    place.check_exclusive()
    assert place.create("part", b"first")
    assert not place.create("part", b"second")
    assert place.read("part") == b"first"
    place.replace("part", b"third")
    assert place.read("part") == b"third"
    assert dict(place.list_sizes()) == {"part": 5}
    place.remove("part")
    place.remove("part")
    assert not place.list_sizes()
    with pytest.raises(FileNotFoundError):
        place.read("part")


def test_folders_inside(place):
    inner = place.join("a").join("b")
    assert not inner.list_sizes()
    assert inner.create("part", b"1")
    assert pickle.loads(pickle.dumps(place)).join("a").join("b").read("part") == b"1"
    assert not place.list_sizes()
    assert str(inner).endswith("/a/b")


def test_one_of_many_threads_is_first(place):
    def write(number):
        return place.create("part", b"%d" % number * 1000)

    for _ in range(20):
        with ThreadPoolExecutor(8) as pool:
            won = [number for number, first in enumerate(pool.map(write, range(8))) if first]
        assert [place.read("part")] == [b"%d" % number * 1000 for number in won]
        place.remove("part")


def race(path, number, rounds):
    place = LocalPlace(path)
    for k in range(rounds):
        place.create(f"part-{k}", bytes([number]) * 10_000)


@pytest.mark.slow
def test_two_processes_write_many_parts(tmp_path):
    rounds = 100
    writers = [_SPAWN.Process(target=race, args=(tmp_path, k, rounds)) for k in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    place = LocalPlace(tmp_path)
    contents = [place.read(f"part-{k}") for k in range(rounds)]
    assert set(contents) <= {b"\0" * 10_000, b"\1" * 10_000}
    assert len(os.listdir(tmp_path)) == rounds  # no partial file is left  # noqa: PTH208


@pytest.mark.slow
@pytest.mark.parametrize("kills", [2, pytest.param(30, marks=pytest.mark.long)])
def test_killed_writers_leave_nothing_that_counts(tmp_path, kills):
    place = LocalPlace(tmp_path)
    seen: dict[str, bytes] = {}
    for kill in range(kills):
        writer = _SPAWN.Process(target=race, args=(tmp_path, kill, 100_000))
        writer.start()
        while len(place.list_sizes()) <= len(seen):
            time.sleep(0.001)
        time.sleep(0.003 * (kill % 10))
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        found = {name: place.read(name) for name in place.list_sizes()}
        assert all(len(content) == 10_000 for content in found.values())
        assert {name: found[name] for name in seen} == seen
        seen = found


def write_too_much(path, answer):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    try:
        LocalPlace(path).create("part", b"x" * 10_000)
    except OSError as error:
        answer.put((error.errno, error.filename))


def test_a_full_disk_names_the_file_and_leaves_nothing(tmp_path):
    answer = _SPAWN.SimpleQueue()
    writer = _SPAWN.Process(target=write_too_much, args=(tmp_path, answer))
    writer.start()
    assert answer.get() == (errno.EFBIG, str(tmp_path / "part"))
    writer.join()
    assert not list(tmp_path.iterdir())


def test_a_repeated_request_for_a_link_had_succeeded(tmp_path, monkeypatch):
    # Network file systems repeat a request whose answer was lost.
    link = os.link

    def link_twice(*paths):
        link(*paths)
        link(*paths)

    monkeypatch.setattr(os, "link", link_twice)
    assert LocalPlace(tmp_path).create("part", b"1")
    assert not LocalPlace(tmp_path).create("part", b"2")


def test_places_that_would_replace_files_are_refused(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EPERM, "no links")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(fp.InputError, match="hard links"):
        LocalPlace(tmp_path).check_exclusive()
    assert not list(tmp_path.iterdir())
    with pytest.raises(fp.InputError, match="cannot write to http://"):
        open_place("http://example.org/folder")
    monkeypatch.setattr(os, "link", os.replace)
    with pytest.raises(fp.InputError, match="allows existing files to be overwritten"):
        LocalPlace(tmp_path).check_exclusive()


def test_a_late_writer_does_not_make_a_removed_folder_again(tmp_path):
    staging = tmp_path / "staging"
    staging.mkdir()
    inner = LocalPlace(staging).join("answers")
    assert inner.create("part", b"1")
    shutil.rmtree(staging)
    for write in (inner.create, inner.replace):
        with pytest.raises(FileNotFoundError):
            write("part", b"2")
    assert not list(tmp_path.iterdir())
    assert LocalPlace(staging / "new" / "folder").create("part", b"3")


def test_urls_of_files_are_paths(tmp_path):
    assert open_place(f"file://{tmp_path}") == LocalPlace(tmp_path)


def test_credentials_are_not_shown():
    place = open_place("memory://bucket", {"secret": "hidden"})
    assert "hidden" not in repr(place)
