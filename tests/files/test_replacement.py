"""Files that are written completely or not at all."""

from __future__ import annotations

import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fitplug.files import folders
from fitplug.files.folders import replace_file


def test_a_file_is_replaced_when_the_block_succeeds(tmp_path):
    path = tmp_path / "plan"
    path.write_text("former")
    with replace_file(path) as partial:
        assert partial.parent == tmp_path
        assert partial.name == f".plan.{threading.get_native_id()}.partial"
        partial.write_text("new")
        assert path.read_text() == "former"
    assert path.read_text() == "new"
    assert [one.name for one in tmp_path.iterdir()] == ["plan"]


def test_nothing_changes_when_the_block_fails(tmp_path):
    path = tmp_path / "plan"
    path.write_text("former")

    def write_half():
        with replace_file(path) as partial:
            partial.write_text("half of it")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert path.read_text() == "former"
    assert [one.name for one in tmp_path.iterdir()] == ["plan"]


def test_the_content_is_on_the_disk_before_the_file_is_moved(tmp_path, monkeypatch):
    path, seen = tmp_path / "plan", []
    monkeypatch.setattr(folders, "sync", lambda one: seen.append((one.read_text(), path.exists())))
    with replace_file(path) as partial:
        partial.write_text("new")
    assert seen == [("new", False)]


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_the_permissions_are_those_asked_for_from_the_beginning(tmp_path, mode):
    path = tmp_path / "plan"
    stale = tmp_path / f".plan.{threading.get_native_id()}.partial"
    stale.write_text("left by a process that was killed")
    stale.chmod(0o666)
    with replace_file(path, mode=mode) as partial:
        assert stat.S_IMODE(partial.stat().st_mode) == mode
        assert partial.read_bytes() == b""
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_link_in_the_place_of_the_partial_file_is_not_followed(tmp_path):
    other = tmp_path / "other"
    other.write_text("untouched")
    (tmp_path / ".partial").symlink_to(other)
    with replace_file(tmp_path / "plan", partial_name=".partial") as partial:
        assert partial.name == ".partial"
        partial.write_text("new")
    assert other.read_text() == "untouched"
    assert (tmp_path / "plan").read_text() == "new"


def test_a_folder_that_is_missing_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError), replace_file(tmp_path / "missing" / "plan"):
        pass


def test_threads_replace_one_file_at_once(tmp_path):
    """Two clients in one process keep the plan of one release."""
    path, together = tmp_path / "plan", threading.Barrier(4)

    def write(text):
        together.wait()
        for _ in range(50):
            with replace_file(path) as partial:
                partial.write_text(text)

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(write, text) for text in "abcd"]:
            done.result()
    assert path.read_text() in set("abcd")
    assert [one.name for one in tmp_path.iterdir()] == ["plan"]
