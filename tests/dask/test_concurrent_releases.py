"""Whole releases and periods that other processes make while one run is in the middle of its own.

The other run is made inside a step of the first. So the order is the same each time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fitplug as fp
from fitplug.files import LocalPlace, make_folder, open_place
from fitplug.releases import folder_publication
from fitplug_dask.releases import release_source, releasing
from fitplug_dask.releases.counts import CountStore
from fitplug_dask.releases.executor import PartedExecutor
from fitplug_dask.series.period import PeriodPublication
from fitplug_opendp import folder_release, output
from fitplug_opendp.executor import ThisProcess, WholeTables
from fitplug_opendp.folder_release import FolderPublication
from fitplug_opendp.output import Output
from fitplug_opendp.release_request import ReleaseRequest
from fitplug_opendp.staging import Staging

DOMAIN = fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 4)})
PLAN = fp.design(fp.Workload(DOMAIN, [fp.marginal("sex", "age", std=5.0), fp.total(std=3.0)]))
TABLES = fp.Tables(DOMAIN, {("sex", "age"): np.arange(10).reshape(2, 5)})
MONTHS = fp.Domain({"month": fp.Integers(1, 3), "place": fp.Integers(1, 3)})
PAY = fp.design(
    fp.Workload(MONTHS, [fp.marginal("month", "place", std=9.0, name="pay")]), periods="month"
)
COUNTS = fp.Tables(MONTHS, {("month", "place"): np.full((3, 3), 7)})


class KilledError(BaseException):
    """As a signal would end it: nothing of the product catches this."""


@pytest.fixture
def ledger(tmp_path: Path) -> fp.Ledger:
    return fp.Ledger(tmp_path / "budget.db", rho=10.0)


@pytest.fixture
def meanwhile(monkeypatch):
    """Do something at the first call of a function, before it."""

    def do(owner: Any, name: str, act: Callable[..., object]) -> None:
        real, waits = getattr(owner, name), [act]

        def call(*arguments: Any, **keywords: Any) -> Any:
            if waits:
                waits.pop()(*arguments)
            return real(*arguments, **keywords)

        monkeypatch.setattr(owner, name, call)

    return do


def kill_at(owner: Any, name: str, act: Callable[[], object]) -> None:
    """Act, and be killed at a function."""

    def killed(*_: object, **__: object) -> None:
        raise KilledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, killed)
        with pytest.raises(KilledError):
            act()


def begin_only(*arguments: Any, **keywords: Any) -> None:
    """Release in parts, and be killed before the first is drawn."""

    kill_at(PartedExecutor, "draw", lambda: release_source(*arguments, **keywords))


def list_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("again", [False, True])
def test_without_a_key_a_run_returns_what_another_has_finished(tmp_path, ledger, meanwhile, again):
    """Its area is removed. To "run it again" would charge again, or find the plan released."""
    fp.release(PLAN, TABLES, tmp_path / "earlier", ledger=ledger, key="e")
    others = []

    def finish(*_: object) -> None:
        others.append(fp.release(PLAN, TABLES, tmp_path / "out", ledger=ledger, again=True))

    meanwhile(folder_release, "complete_folder", finish)
    made = fp.release(PLAN, TABLES, tmp_path / "out", ledger=ledger, again=True)
    np.testing.assert_array_equal(made.answers, others[0].answers)
    assert len(ledger.entries()) == 2
    assert list_names(tmp_path) == ["budget.db", "earlier", "out"]


def test_without_a_ledger_nobody_is_told_to_run_it_again(tmp_path, meanwhile):
    def finish(*_: object) -> None:
        fp.release(PLAN, TABLES, tmp_path / "out")

    meanwhile(folder_release, "complete_folder", finish)
    with pytest.raises(fp.FitplugError, match="already holds a release") as caught:
        fp.release(PLAN, TABLES, tmp_path / "out")
    assert "Run it again" not in str(caught.value)
    assert list_names(tmp_path) == ["out"]


@pytest.mark.parametrize("name", ["out.b", "out"])
def test_the_probes_of_other_releases_stay(tmp_path, ledger, monkeypatch, name):
    """The release beside has a name that begins alike, the one into the same folder replaces it."""
    real, others = LocalPlace.read, []

    def read(place: LocalPlace, file: str) -> bytes:
        if file.startswith("probe-") and not others:
            others.append(file)
            fp.release(PLAN, TABLES, tmp_path / "out", ledger=ledger, key="a")
        return real(place, file)

    monkeypatch.setattr(LocalPlace, "read", read)
    fp.release(PLAN, TABLES, tmp_path / name, ledger=ledger, key="b", replace=True)
    assert others
    assert not list(tmp_path.glob(".out*"))


def test_a_folder_that_was_just_taken_is_a_release(tmp_path, ledger, meanwhile):
    def finish(*_: object) -> None:
        fp.release(PLAN, TABLES, tmp_path / "out", ledger=ledger, key="a")

    meanwhile(output, "_check_is_free", finish)
    with pytest.raises(fp.InputError, match="already holds a release"):
        fp.release(PLAN, TABLES, tmp_path / "out", ledger=ledger, key="b")
    assert len(ledger.entries()) == 1


def test_two_that_replace_a_release_follow_one_another(tmp_path, ledger, monkeypatch):
    """Each moves one release aside, at the moment when the other one puts its own there."""
    fp.release(PLAN, TABLES, tmp_path / "out", ledger=ledger, key="old")
    lock, move = folder_publication.lock_folder, folder_publication.move_into_place
    is_waiting, threads, failures = threading.Event(), [], []

    def publish_other() -> None:
        try:
            fp.release(PLAN, TABLES, tmp_path / "out", ledger=ledger, key="b", replace=True)
        except BaseException as error:
            failures.append(error)

    def lock_and_tell(folder: Path) -> Any:
        if threads:
            is_waiting.set()
        return lock(folder)

    def move_after(*arguments: Path) -> None:
        if not threads:
            threads.append(threading.Thread(target=publish_other))
            threads[0].start()
            assert is_waiting.wait(60)
            threads[0].join(0.3)  # without the lock, it puts its release there
        move(*arguments)

    monkeypatch.setattr(folder_publication, "lock_folder", lock_and_tell)
    monkeypatch.setattr(folder_publication, "move_into_place", move_after)
    fp.release(PLAN, TABLES, tmp_path / "out", ledger=ledger, key="a", replace=True)
    threads[0].join()
    assert failures == []
    assert [stage.state for stage in ledger.stages().values()] == ["published"] * 3
    held = {Output.open(path).read_digest() for path in tmp_path.glob("out*")}
    assert held == {stage.answers for stage in ledger.stages().values()}


def test_complete_answers_that_came_meanwhile_are_not_damaged_ones(tmp_path, ledger, meanwhile):
    """Those that were listed lose, and are removed, when others are complete."""
    counts, request = WholeTables(PLAN, TABLES), ReleaseRequest(PLAN, ledger=ledger, key="k")
    place = Output.open(tmp_path / "out")
    begun = [FolderPublication.prepare(request, place, ThisProcess()) for _ in range(3)]
    lost, won, third = (one._charge(counts) for one in begun)
    lost = lost._draw(counts)

    def replace_them(*_: object) -> None:
        lost.staged.discard()
        won._draw(counts)

    meanwhile(Staging, "read", replace_them)
    assert third.find_staged().staged.digest != lost.staged.digest
    assert third.find_staged().finish().release.entry == ledger.entries()[0]


@pytest.mark.parametrize("error", [FileNotFoundError, FileExistsError])
def test_a_folder_is_made_though_those_above_are_removed(tmp_path, monkeypatch, error):
    real, removed = os.mkdir, []

    def mkdir(path: Any, *arguments: Any) -> None:
        made = Path(path)
        if removed or made.name != "b" or not made.parent.exists():
            real(path, *arguments)
            return
        removed.append(path)
        if error is FileNotFoundError:
            made.parent.rmdir()
        else:
            real(path)
        try:
            real(path)
        finally:
            if error is FileExistsError:
                made.rmdir()

    monkeypatch.setattr(os, "mkdir", mkdir)
    make_folder(tmp_path / "a" / "b", 0o700)
    assert removed
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        make_folder(tmp_path / "file" / "b")


@pytest.mark.parametrize("name", ["tables.json", "release.json"])
def test_no_release_is_published_of_the_files_of_two_runs(tmp_path, ledger, monkeypatch, name):
    """The other asks for other intervals, or for the same, and only its time is another one."""
    real = folder_publication._list_files

    def list_and_replace(staging: Path, *arguments: Any) -> Any:
        listed = real(staging, *arguments)
        content = (staging / name).read_bytes()
        LocalPlace(staging).replace(name, content + b" ")
        return listed

    with monkeypatch.context() as patch:
        patch.setattr(folder_publication, "_list_files", list_and_replace)
        if name == "tables.json":
            with pytest.raises(fp.FitplugError, match="changed before the release was finished"):
                fp.release(PLAN, TABLES, tmp_path / "out", ledger=ledger, key="k")
            assert not (tmp_path / "out").exists()
        else:
            fp.release(PLAN, TABLES, tmp_path / "out", ledger=ledger, key="k")
    fp.release(PLAN, TABLES, tmp_path / "out", ledger=ledger, key="k")
    fp.Release.load(tmp_path / "out").verify()


def test_the_plan_that_is_kept_for_another_folder_is_removed(tmp_path, ledger, meanwhile):
    def finish(*_: object) -> None:
        fp.release(PLAN, TABLES, tmp_path / "b", ledger=ledger, key="k")

    meanwhile(ThisProcess, "check", finish)
    fp.release(PLAN, TABLES, tmp_path / "a", ledger=ledger, key="k")
    assert list_names(tmp_path) == ["b", "budget.db"]


def test_the_key_of_a_release_that_was_just_published_is_not_missed(tmp_path, ledger, meanwhile):
    begin_only(PLAN, TABLES, tmp_path / "out", ledger=ledger, key="k")
    others = []

    def finish(*_: object) -> None:
        others.append(release_source(PLAN, TABLES, tmp_path / "out", ledger=ledger, key="k"))

    meanwhile(releasing.RunSecret, "keep", finish)
    made = release_source(PLAN, TABLES, tmp_path / "out", ledger=ledger, key="k")
    np.testing.assert_array_equal(np.asarray(made.answers), np.asarray(others[0].answers))
    assert list_names(tmp_path) == ["budget.db", "out"]


def test_a_release_in_parts_that_began_elsewhere_meanwhile_is_named(tmp_path, ledger, meanwhile):
    meanwhile(
        releasing.RowCounting,
        "find",
        lambda _: begin_only(PLAN, TABLES, tmp_path / "b", ledger=ledger, key="k"),
    )
    with pytest.raises(fp.KeyTaken, match=r"is for the release in .*b\. Name that folder"):
        release_source(PLAN, TABLES, tmp_path / "a", ledger=ledger, key="k")


@pytest.fixture
def store():
    url = f"memory://{os.getpid()}/concurrent"
    yield url
    open_place(url).remove_all()


def test_in_a_store_a_run_joins_one_that_began_while_it_checked(store, ledger, meanwhile):
    meanwhile(
        Output,
        "check_writable",
        lambda *_: begin_only(PLAN, TABLES, store, ledger=ledger, key="k"),
    )
    made = release_source(PLAN, TABLES, store, ledger=ledger, key="k")
    assert [made.entry] == list(ledger.entries())


def test_in_a_store_only_one_of_two_keys_is_charged(store, ledger, meanwhile):
    """A charged release cannot go to another folder, or move what is in a store aside."""

    def release(key: str) -> None:
        release_source(PLAN, TABLES, store, ledger=ledger, key=key)

    def open_only(*_: object) -> None:
        kill_at(Staging, "list_missing", lambda: release("a"))

    meanwhile(releasing.RowCounting, "find", open_only)
    with pytest.raises(fp.InputError, match=r"already holds files\. Name another folder"):
        release("b")
    assert [entry.key for entry in ledger.entries()] == ["a"]
    release("a")


def test_counts_are_stored_though_another_run_removes_its_own(tmp_path):
    place = LocalPlace(tmp_path / ".out.x.counts", 0o600)
    first, second = (CountStore(place, b"n" * 32, run) for run in ("a", "b"))
    first.open()
    second.open()
    assert place.path.stat().st_mode & 0o777 == 0o700
    first.remove_run()
    second.write_slab(0, np.arange(3))
    second.remove_run()
    assert list_names(tmp_path) == []


def begin(tmp_path: Path, ledger: fp.Ledger) -> Any:
    return fp.begin_series(PAY, tmp_path / "pay", ledger=ledger, key="pay")


def test_a_series_that_is_closed_while_a_period_is_drawn_keeps_nothing(tmp_path, ledger, meanwhile):
    series = begin(tmp_path, ledger)
    meanwhile(Staging, "open", lambda *_: series.close())
    assert series.release(1, COUNTS).drawn == 1
    assert list_names(tmp_path) == ["budget.db", "pay"]


def test_a_series_that_is_closed_before_the_counts_are_sealed_is_closed(
    tmp_path, ledger, meanwhile
):
    series = begin(tmp_path, ledger)
    meanwhile(PeriodPublication, "seal_counts", lambda *_: series.close())
    with pytest.raises(fp.InputError, match="is closed"):
        series.release(1, COUNTS)
    series.close()
    assert list_names(tmp_path) == ["budget.db", "pay"]


def test_periods_are_read_while_another_process_ends_the_series(tmp_path, ledger, meanwhile):
    series = begin(tmp_path, ledger)
    series.release(1, COUNTS)
    series.release(2, COUNTS)
    kill_at(PeriodPublication, "_write", lambda: series.release(3, COUNTS))
    meanwhile(PeriodPublication, "_write", lambda *_: series.release(3, COUNTS))
    assert series.read().drawn == 3
    assert list_names(tmp_path) == ["budget.db", "pay"]
