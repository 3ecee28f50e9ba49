"""A count that was killed goes on where it had come to, and nothing else is ever met again."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client

import fitplug as fp
import fitplug_dask as fpd
from fitplug.errors import DataError, FitplugError, InputError
from fitplug_dask import checkpoint, encryption, kernel
from fitplug_dask.files import take_snapshot
from fitplug_dask.kernel import partitions
from fitplug_dask.key_file import derive_key
from fitplug_dask.sources import find_files
from tests.helpers.checkpoints import DOMAIN, WANTED, interrupted, parts
from tests.helpers.command_line import fitplug, make
from tests.helpers.places import ROOT
from tests.helpers.row_reading import ReadRowGroup, fail_reading, watch_reading

FILES = 8


@pytest.fixture
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight files, which make a share each."""
    folder = tmp_path / "people"
    folder.mkdir()
    rng = np.random.default_rng(5)
    for i in range(FILES):
        table = {"sex": rng.choice(["1", "2", "3"], 1000), "age": rng.integers(-1, 11, 1000)}
        pq.write_table(pa.table(table), folder / f"{i}.parquet")
    monkeypatch.setattr(partitions, "_MOST_ROWS", 1000)
    return folder


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[ReadRowGroup]:
    """The row groups that were read: each file has one."""
    return watch_reading(monkeypatch)


def assert_counted(people: Path, folder: Path, wanted: Any = WANTED, **options: Any) -> None:
    expected = fpd.count(people, wanted)
    counted = fpd.count(people, wanted, checkpoint=folder, **options)
    for names in expected:
        np.testing.assert_array_equal(counted[names], expected[names])
    assert not folder.exists()


@pytest.mark.slow
def test_a_killed_process_resumes(people: Path, tmp_path: Path, read: list[ReadRowGroup]) -> None:
    folder = tmp_path / "kept"
    code = f"""
import os, signal
import fitplug as fp, fitplug_dask as fpd
from fitplug_dask.kernel import partitions
partitions._MOST_ROWS = 1000

def kill(done, total):
    if 2 * done >= total:
        os.kill(os.getpid(), signal.SIGKILL)

domain = fp.Domain({{"sex": ["1", "2"], "age": fp.Integers(0, 9)}})
wanted = (domain, [("sex", "age"), ()])
fpd.count({str(people)!r}, wanted, checkpoint={str(folder)!r}, progress=kill)
"""
    path = os.pathsep.join(str(Path(p.__file__).parents[1]) for p in (fp, fpd))
    environment = {**os.environ, "PYTHONPATH": path}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, check=False)
    assert ran.returncode == -signal.SIGKILL
    finished = len(parts(folder))
    assert FILES // 2 <= finished < FILES
    told: list[tuple[int, int]] = []
    counted = fpd.count(people, WANTED, checkpoint=folder, progress=lambda *rows: told.append(rows))
    assert len(read) == len(set(read)) == FILES - finished
    assert told[-1] == (1000 * FILES, 1000 * FILES)
    assert not folder.exists()
    expected = fpd.count(people, WANTED)
    for names in expected:
        np.testing.assert_array_equal(counted[names], expected[names])


def test_counts_are_encrypted_under_a_key_that_is_not_in_the_folder(
    people: Path, tmp_path: Path, keys: Path, read: list[ReadRowGroup]
) -> None:
    folder = tmp_path / "kept"
    interrupted(people, folder)
    (key_file,) = keys.iterdir()
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(keys.stat().st_mode) == 0o700
    secret = bytes.fromhex(json.loads(key_file.read_text())["secret"])
    key = derive_key(secret, "the counts of a checkpoint")
    kept = parts(folder)
    assert kept
    for path in kept:
        content = path.read_bytes()
        assert key not in content
        with pytest.raises(zlib.error):
            zlib.decompress(content)
        name = f"{path.parent.name}/{path.name}".encode()
        plain = zlib.decompress(encryption.decrypt_long(key, content, name))
        assert len(plain) == 8 * 2 * 10
        with pytest.raises(ValueError, match="was changed"):
            encryption.decrypt_long(bytes(32), content, name)
    # Without the key, its counts are worth nothing, which is told before they are counted again.
    elsewhere = tmp_path / "elsewhere.key"
    key_file.rename(elsewhere)
    read.clear()
    with pytest.raises(InputError, match=f"is not in {key_file}; put .* or remove the folder"):
        fpd.count(people, WANTED, checkpoint=folder)
    assert read == []
    elsewhere.rename(key_file)
    assert_counted(people, folder)
    assert list(keys.iterdir()) == []


def test_a_publishers_own_key_file_is_kept_where_it_is_named(
    people: Path, tmp_path: Path, keys: Path, read: list[ReadRowGroup]
) -> None:
    folder, key_file = tmp_path / "counts" / "kept", tmp_path / "count.key"
    folder.parent.mkdir()
    interrupted(people, folder, key_file=key_file)
    finished = len(parts(folder))
    assert finished
    assert not keys.exists()
    read.clear()
    fpd.count(people, WANTED, checkpoint=folder, key_file=key_file)
    assert len(read) == FILES - finished
    assert not key_file.exists()
    with pytest.raises(InputError, match="give the checkpoint"):
        fpd.count(people, WANTED, key_file=key_file)


def test_without_the_package_no_checkpoint_is_kept(
    people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lack(key: bytes) -> Any:
        raise encryption.EncryptionMissingError

    monkeypatch.setattr(encryption, "_load_cipher", lack)
    with pytest.raises(InputError, match=r"written encrypted only.*fitplug\[dask\]"):
        fpd.count(people, WANTED, checkpoint=tmp_path / "kept")
    assert parts(tmp_path / "kept") == []


def test_long_messages_are_encrypted_in_blocks_that_stay_in_their_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(encryption, "_LONG_BYTES", 10)
    key, width = bytes(32), 10 + encryption.NONCE_BYTES + encryption.TAG_BYTES
    for length in (0, 9, 10, 11, 35):
        message = bytes(range(length))
        encrypted = encryption.encrypt_long(key, message, b"a")
        assert encryption.decrypt_long(key, encrypted, b"a") == message
        swapped = encrypted[width : 2 * width] + encrypted[:width] + encrypted[2 * width :]
        for changed in (encrypted[:-1], encrypted + b"x", encrypted[width:], swapped):
            if changed != encrypted:
                with pytest.raises(ValueError, match="was c"):
                    encryption.decrypt_long(key, changed, b"a")


def test_the_folder_is_confidential_and_says_so(people: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    interrupted(people, folder)
    assert (folder / "README").read_text().startswith("CONFIDENTIAL")
    for path in (folder, *folder.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
    assert_counted(people, folder)


def test_other_workers_meet_the_same_shares(
    people: Path, tmp_path: Path, read: list[ReadRowGroup]
) -> None:
    folder = tmp_path / "kept"
    with dask.config.set(num_workers=1):
        interrupted(people, folder)
    finished = len(parts(folder))
    read.clear()
    with dask.config.set(num_workers=5):
        fpd.count(people, WANTED, checkpoint=folder)
    assert len(read) == FILES - finished


def spoil(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "flipped":
        content[-1] ^= 1
    path.write_bytes({"flipped": bytes(content), "cut": bytes(content[:40]), "empty": b""}[how])


@pytest.mark.parametrize("how", ["flipped", "cut", "empty"])
def test_damaged_files_are_counted_again(
    people: Path, tmp_path: Path, read: list[ReadRowGroup], how: str
) -> None:
    folder = tmp_path / "kept"
    interrupted(people, folder)
    kept = parts(folder)
    spoil(kept[0], how)
    spoil(kept[1].parent / "workers", "empty")
    shutil.copy(kept[2], kept[3])  # whole, but of another share
    read.clear()
    assert_counted(people, folder)
    assert len(read) == FILES + FILES - len(kept) + 2


def touched(people: Path) -> None:
    os.utime(people / "0.parquet", (1, 1))


def replaced(people: Path) -> None:
    shutil.copy(people / "1.parquet", people / "0.parquet")


def added(people: Path) -> None:
    shutil.copy(people / "1.parquet", people / "9.parquet")


def removed(people: Path) -> None:
    (people / "7.parquet").unlink()


@pytest.mark.parametrize("change", [touched, replaced, added, removed])
def test_counts_of_other_files_are_not_met_again(
    people: Path, tmp_path: Path, read: list[ReadRowGroup], change: Any
) -> None:
    folder = tmp_path / "kept"
    interrupted(people, folder)
    change(people)
    files = len(list(people.iterdir()))
    read.clear()
    assert_counted(people, folder)
    assert len(read) == 2 * files


OTHERS = {
    "cells": (fp.Domain({"sex": ["2", "1"], "age": fp.Integers(0, 9)}), WANTED[1]),
    "other": (
        fp.Domain({"sex": fp.Categories(["1", "2"], other="3"), "age": fp.Integers(0, 9)}),
        WANTED[1],
    ),
    "prefix": (fp.Domain({"sex": fp.Prefix(["1", "2"], 1), "age": fp.Integers(0, 9)}), WANTED[1]),
    "tables": (DOMAIN, [("age",)]),
}


@pytest.mark.parametrize("other", OTHERS)
def test_counts_of_another_domain_are_not_met_again(
    people: Path, tmp_path: Path, read: list[ReadRowGroup], other: str
) -> None:
    folder = tmp_path / "kept"
    interrupted(people, folder)
    read.clear()
    assert_counted(people, folder, OTHERS[other])
    assert len(read) == 2 * FILES


def test_counts_of_other_code_are_not_met_again(
    people: Path, tmp_path: Path, read: list[ReadRowGroup], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kept"
    interrupted(people, folder)
    monkeypatch.setattr(fp, "__version__", "0.0.0")
    read.clear()
    assert_counted(people, folder)
    assert len(read) == 2 * FILES


def test_what_another_count_left_is_removed(people: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    interrupted(people, folder)
    (first,) = {path.parent for path in parts(folder)}
    interrupted(people, folder, OTHERS["tables"])
    assert not first.exists()
    assert len({path.parent for path in parts(folder)}) == 1


def test_an_error_keeps_what_is_finished(
    people: Path, tmp_path: Path, read: list[ReadRowGroup], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kept"
    interrupted(people, folder)
    finished = parts(folder)
    with monkeypatch.context() as patched:
        fail_reading(patched, "it is gone")
        with pytest.raises(DataError, match="it is gone"):
            fpd.count(people, WANTED, checkpoint=folder)
    assert parts(folder) == finished
    read.clear()
    assert_counted(people, folder)
    assert len(read) == FILES + FILES - len(finished)


@pytest.mark.slow
def test_workers_of_a_cluster_write_to_the_same_folder(
    people: Path, tmp_path: Path, client: Client, read: list[ReadRowGroup]
) -> None:
    folder = tmp_path / "kept"
    interrupted(people, folder, client=client)
    finished = len(parts(folder))
    assert finished >= FILES // 2
    read.clear()
    assert_counted(people, folder, client=client)
    assert len(read) <= FILES + FILES - finished


# What is refused


def test_folders_that_hold_something_else(people: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "README").write_text("mine")
    for place, says in (
        (file, "is a file"),
        (foreign, "holds files that are no checkpoint"),
        (people, "holds files that are no checkpoint"),
        (tmp_path / "no" / "folder", "make the folder first"),
    ):
        with pytest.raises(InputError, match=says) as caught:
            fpd.count(people, WANTED, checkpoint=place)
        assert caught.value.__context__ is None
    assert (foreign / "README").read_text() == "mine"
    empty = tmp_path / "empty"
    empty.mkdir(mode=0o755)
    assert_counted(people, empty)


def test_two_counts_at_once_in_one_folder(people: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    interrupted(people, folder)
    with (folder / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="in use by another count"):
            fpd.count(people, WANTED, checkpoint=folder)
    assert_counted(people, folder)


@pytest.mark.slow
def test_a_system_without_locks(people: Path, tmp_path: Path) -> None:
    """Windows has no module fcntl: all counts but those with a checkpoint are made there."""
    program = (
        "import sys\n"
        "import distributed\n"  # on Windows it locks by msvcrt, which is not here
        "sys.modules['fcntl'] = None\n"
        "from tests.helpers.checkpoints import WANTED\n"
        "import fitplug_dask as fpd\n"
        "from fitplug.errors import InputError\n"
        "people, folder = sys.argv[1:]\n"
        "fpd.count(people, WANTED)\n"
        "try:\n"
        "    fpd.count(people, WANTED, checkpoint=folder)\n"
        "except InputError as error:\n"
        "    print(error)\n"
    )
    folder = tmp_path / "kept"
    path = os.pathsep.join(str(Path(p.__file__).parents[1]) for p in (fp, fpd))
    found = subprocess.run(
        [sys.executable, "-c", program, str(people), str(folder)],
        env={**os.environ, "PYTHONPATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.startswith(f"checkpoint {folder} cannot be kept: ")
    assert found.stdout.endswith("; count without a checkpoint\n")
    assert not folder.exists()


def test_no_room(people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "kept"
    write = checkpoint._write_file

    def full(path: Path, content: bytes) -> None:
        if path.suffix == ".part":
            raise OSError(28, "No space left on device")
        write(path, content)

    monkeypatch.setattr(checkpoint, "_write_file", full)
    with pytest.raises(FitplugError, match="cannot be written \\(No space left") as caught:
        fpd.count(people, WANTED, checkpoint=folder)
    assert not isinstance(caught.value, DataError)
    assert caught.value.__context__ is None


def test_not_with_persons(people: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="leave out the checkpoint or the person"):
        fpd.count(people, WANTED, person="id", contributions=1, checkpoint=tmp_path / "kept")


def test_the_command_line(tmp_path: Path) -> None:
    spec = make(tmp_path)
    kept = tmp_path / "kept"
    ran = fitplug("count", spec, "--checkpoint", kept)
    assert ran.code == 0, ran.err
    assert not kept.exists()
    assert fitplug("run", spec, "--checkpoint", kept).code == 0
    ran = fitplug("run", spec, "--checkpoint", tmp_path / "people")
    assert (ran.code, "no checkpoint" in ran.err) == (2, True)
    by_person = '[data]\nperson = "NOTE"'
    spec.write_text(spec.read_text().replace("[data]", by_person), encoding="utf-8")
    ran = fitplug("run", spec, "--checkpoint", kept)
    assert (ran.code, "cannot be kept of a count with [data] person" in ran.err) == (2, True)


def test_nothing_but_a_checkpoint_is_removed(people: Path, tmp_path: Path) -> None:
    """Not what is hidden, nor what somebody put beside it."""
    for hidden in (".git", ".ssh"):
        folder = tmp_path / hidden[1:]
        (folder / hidden).mkdir(parents=True)
        (folder / hidden / "id").write_text("mine")
        with pytest.raises(InputError, match="holds files that are no checkpoint"):
            fpd.count(people, WANTED, checkpoint=folder)
        assert (folder / hidden / "id").read_text() == "mine"
    folder = tmp_path / "kept"
    job = kernel.Job(dict(DOMAIN.attributes), (("sex", "age"),))
    with checkpoint.open_checkpoint(folder, job, take_snapshot(find_files(people), job.attributes)):
        (folder / "notes").mkdir()
        (folder / "notes" / "x").write_text("mine")
        (folder / ".bashrc").write_text("mine")
    assert (folder / "notes" / "x").read_text() == "mine"
    assert sorted(path.name for path in folder.iterdir()) == [".bashrc", "notes"]
