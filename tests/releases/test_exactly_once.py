"""A release into a folder happens exactly once: killed, on a full disk, by two processes."""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fitplug as fp
from fitplug.files.folders import make_partial_folder, move_into_place
from fitplug.ledger import ReleaseCharges
from fitplug_dask.releases import release_source
from fitplug_dask.series.counts import estimate_more_files
from fitplug_opendp import executor, folder_release, output, publication
from fitplug_opendp.release_files import ReleaseFiles
from fitplug_opendp.release_request import log_duration
from fitplug_opendp.staging import Staging
from tests.helpers.killed_processes import run_script

DOMAIN = fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 4)})
PYRAMID = fp.queries({"sex": "identity", "age": "prefix"}, std=5.0, name="pyramid")
PLAN = fp.design(fp.Workload(DOMAIN, [PYRAMID, fp.total(std=3.0)]))
X = np.arange(10, dtype=np.int64).reshape(2, 5) * 7
TABLES = fp.Tables(DOMAIN, {("sex", "age"): X})

# After FORKING. Each child is killed or not.
DRIVER = """
import json, os, resource, signal, sys, threading
import numpy as np
import fitplug as fp
from fitplug.releases import read_digest
from pathlib import Path

plan = fp.Plan.load(root / "plan.npz")
domain = plan.domain
x = np.arange(10, dtype=np.int64).reshape(2, 5) * 7
tables = fp.Tables(domain, {("sex", "age"): x})

def publish(folder, **options):
    ledger = fp.Ledger(folder / "budget.db", rho=100.0)
    return fp.release(plan, tables, folder / "out", ledger=ledger, key="2026", **options)

OURS = ("fitplug/", "fitplug_opendp/", "sqlite3", "zipfile", "shutil", "pathlib", "_npyio")

def killed_at(point, folder, **options):
    fp.Ledger(folder / "budget.db", rho=100.0)
    return kill_at(point, OURS, lambda: publish(folder, **options))

def state(folder):
    ledger = fp.Ledger(folder / "budget.db", rho=100.0)
    return {
        "charges": len(ledger.entries()),
        "stages": [[s.state, s.answers] for s in ledger.stages().values()],
        "held": read_digest(folder / "out"),
        "names": sorted(p.name for p in folder.iterdir()),
    }

warm = root / "warm"; warm.mkdir()
publish(warm)  # what is imported late is imported now, and not in each child
"""


def drive(script: str, root: Path, *arguments: str) -> list[Any]:
    """What the script says, run in a process of its own after the DRIVER."""
    PLAN.save(root / "plan.npz")
    return run_script(DRIVER + script, root, *arguments, timeout=3600)


@pytest.mark.slow
@pytest.mark.parametrize("points", [20, pytest.param(260, marks=pytest.mark.long)])
def test_killed_at_every_step_it_is_finished_by_the_same_call(tmp_path: Path, points: int) -> None:
    """One charge, one release, nothing left over; answers that were entered as made stay those."""
    said = drive(
        """
import shutil
whole = root / "whole"; whole.mkdir()
read, write = os.pipe()
def measure():
    os.write(write, str(killed_at(0, whole)).encode())
assert wait(fork(measure)) == 0
total = int(os.read(read, 100))
say(total)
most = int(sys.argv[2])
points = sorted({1 + i * (total - 1) // (most - 1) for i in range(most)})
for point in points:
    folder = root / str(point); folder.mkdir()
    ended = wait(fork(lambda: killed_at(point, folder) and 0))
    before = state(folder)
    again = wait(fork(lambda: publish(folder) and 0))
    say([ended, before, again, state(folder)])
    shutil.rmtree(folder)
""",
        tmp_path,
        str(points),
    )
    total, *outcomes = said
    assert total > 1000
    assert len(outcomes) == points
    states = set()
    for ended, before, again, after in outcomes:
        assert again == 0
        assert after["charges"] == 1
        ((state, answers),) = after["stages"]
        assert (state, after["held"]) == ("published", answers)
        assert after["names"] == ["budget.db", "out"]
        for was, made in before["stages"]:
            states.add(was)
            assert made in (None, answers), "noise is never drawn again"
        if not before["stages"]:
            states.add("new")
        if before["held"] is not None:
            assert before["held"] == answers
            states.add("in place")
        assert ended in (-9, 0)
    # Charged and not yet drawn lasts for a few calls only, which 20 points may miss.
    seldom = {"charged"} if points < 100 else set()
    assert states | seldom == {"new", "charged", "drawn", "in place", "published"}


@pytest.mark.slow
def test_killed_again_and_again(tmp_path: Path) -> None:
    (after,) = drive(
        """
folder = root / "f"; folder.mkdir()
rng = np.random.default_rng(3)
for point in rng.integers(200, 6000, 20):
    wait(fork(lambda: killed_at(int(point), folder) and 0))
assert wait(fork(lambda: publish(folder) and 0)) == 0
say(state(folder))
""",
        tmp_path,
    )
    assert after["charges"] == 1
    assert after["stages"] == [["published", after["held"]]]
    assert [name for name in after["names"] if name.startswith(".")] == []


@pytest.mark.slow
@pytest.mark.parametrize("kill", [False, True])
def test_two_processes_at_one_key(tmp_path: Path, kill: bool) -> None:
    """Whoever is first, both end with the same release, or with a sentence that says why not."""
    said = drive(
        """
kill = sys.argv[2] == "True"
rng = np.random.default_rng(5)
read, write = os.pipe()
for turn in range(8):
    folder = root / str(turn); folder.mkdir()
    fp.Ledger(folder / "budget.db", rho=100.0)
    def work():
        try:
            digest = publish(folder).answers.sum()
            os.write(write, f"{digest}\\n".encode())
        except fp.FitplugError as error:
            os.write(write, f"{error}\\n".encode())
            return 7
    point = int(rng.integers(1, 6000))
    children = [fork(work), fork(work)]
    if kill:
        children.append(fork(lambda: killed_at(point, folder) and 0))
    ends = [wait(child) for child in children]
    sums = os.read(read, 10**5).decode().splitlines()
    say([ends, sums, state(folder)])
""",
        tmp_path,
        str(kill),
    )
    for ends, sums, after in said:
        assert set(ends[:2]) == {0}, sums
        assert len(set(sums)) == 1
        assert after["charges"] == 1
        assert after["stages"] == [["published", after["held"]]]
        assert [n for n in after["names"] if n.startswith(".")] == [] or kill


@pytest.mark.slow
def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    said = drive(
        """
for limit in (100, 600, 1200, 2500, 4000, 5500, 9000, 20000, 40000):
    folder = root / str(limit); folder.mkdir()
    fp.Ledger(folder / "budget.db", rho=100.0)
    def small():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        try:
            publish(folder)
        except fp.FitplugError as error:
            return 7
    first, before = wait(fork(small)), state(folder)
    again, after = wait(fork(lambda: publish(folder) and 0)), state(folder)
    say([first, before, again, after])
""",
        tmp_path,
    )
    assert {first for first, *_ in said} == {0, 7}
    for _, before, again, after in said:
        assert again == 0
        assert after["charges"] == 1
        assert after["stages"] == [["published", after["held"]]]
        for _, made in before["stages"]:
            assert made in (None, after["held"])


BIG = """
import sys
import numpy as np
import fitplug as fp
folder, ledger = sys.argv[1:]
domain = fp.Domain({"age": fp.Integers(1, 60_000)})
plan = fp.design(fp.Workload(domain, [fp.marginal("age", std=9.0), fp.total(std=5.0)]))
tables = fp.Tables(domain, {("age",): np.zeros(60_000, dtype=np.int64)})
try:
    fp.release(plan, tables, folder + "/out", ledger=fp.Ledger(ledger, rho=9.0))
except fp.FitplugError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("megabytes", [1, 12])
def test_a_disk_that_is_too_small_is_found_before_the_charge(tmp_path: Path, megabytes) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f'mount -t tmpfs -o size={megabytes}m none "$0" && '
    inside = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*inside, mount + "true", disk], check=False).returncode:
        pytest.skip("no small file system can be mounted here")
    (tmp_path / "big.py").write_text(BIG)
    command = f'{mount}{sys.executable} {tmp_path}/big.py "$0" "$1" && ls -A "$0"'
    said = subprocess.check_output([*inside, command, disk, tmp_path / "budget.db"], text=True)
    charges = len(fp.Ledger(tmp_path / "budget.db", rho=9.0).entries())
    assert ("MB free. Free some space" in said) == (megabytes < 12)
    assert said.splitlines()[1:] == [] if megabytes < 12 else said == "out\n"
    assert charges == (megabytes == 12)


class TestPublish:
    @pytest.fixture
    def ledger(self, tmp_path: Path) -> fp.Ledger:
        return fp.Ledger(tmp_path / "budget.db", rho=1.0)

    def test_room_is_looked_at_twice_before_the_charge(self, tmp_path, ledger, monkeypatch):
        needed = output.estimate_size(PLAN) + ReleaseFiles().estimate_size(PLAN)
        assert needed > 8 * PLAN.strategy.size + 24 * PLAN.workload.query_count
        free: list[int] = []
        monkeypatch.setattr(shutil, "disk_usage", lambda _: (10**9, 0, free.pop(0)))
        for amounts in ([needed - 1], [needed, needed - 1]):
            free[:] = amounts
            with pytest.raises(fp.FitplugError, match=r"out needs about .* MB free"):
                fp.release(PLAN, TABLES, tmp_path / "new" / "out", ledger=ledger, key="k")
            assert free == []
            assert [path.name for path in tmp_path.iterdir()] == ["budget.db"]
        assert ledger.entries() == ()
        free[:] = [needed, needed]
        fp.release(PLAN, TABLES, tmp_path / "out", ledger=ledger, key="k")
        assert free == []

    def test_a_series_needs_room_for_its_counts_and_staged_answers(
        self, tmp_path, ledger, monkeypatch
    ):
        domain = fp.Domain({"month": fp.Integers(1, 2), "place": fp.Integers(1, 500)})
        workload = fp.Workload(domain, [fp.marginal("month", "place", std=9.0, name="months")])
        plan = fp.design(workload, periods="month")
        needed = output.estimate_size(plan) + estimate_more_files(plan, "month", display=False)
        free = needed - 1
        monkeypatch.setattr(shutil, "disk_usage", lambda _: (10**9, 0, free))
        with pytest.raises(fp.FitplugError, match=r"pay needs about .* MB free"):
            fp.begin_series(plan, tmp_path / "pay", ledger=ledger, key="k")
        assert [path.name for path in tmp_path.iterdir()] == ["budget.db"]
        assert ledger.entries() == ()
        free = needed
        series = fp.begin_series(plan, tmp_path / "pay", ledger=ledger, key="k")
        tables = fp.Tables(domain, {("month", "place"): np.full((2, 500), 7)})
        series.release(1, tables)
        files = [path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()]
        assert sum(files) < needed
        series.release(2, tables)

    def test_a_charged_release_is_finished_whatever_room_there_is(
        self, tmp_path, ledger, monkeypatch
    ):
        with monkeypatch.context() as patch:
            patch.setattr(publication, "write_manifest", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                fp.release(PLAN, TABLES, tmp_path / "out", ledger=ledger, key="k")
        monkeypatch.setattr(shutil, "disk_usage", lambda _: (10**9, 10**9, 0))
        made = fp.release(PLAN, TABLES, tmp_path / "out", ledger=ledger, key="k")
        assert ledger.spent == made.rho

    @pytest.mark.parametrize("cells", [X, 0 * X])
    def test_the_log_has_the_duration_of_each_phase_and_nothing_of_the_rows(
        self, tmp_path, ledger, caplog, cells
    ):
        def list_phases() -> list[str]:
            lines = [one.message for one in caplog.records if one.name == log_duration.__module__]
            caplog.clear()
            return [re.fullmatch(r"the phase '(\w+)' took \d+\.\d s", line)[1] for line in lines]

        tables = fp.Tables(DOMAIN, {("sex", "age"): cells})
        with caplog.at_level(logging.INFO):
            fp.release(PLAN, tables, tmp_path / "out", ledger=ledger, key="whole")
            assert list_phases() == ["check", "count", "draw", "store", "publish"]
            release_source(PLAN, tables, tmp_path / "parts", ledger=ledger, key="parts")
            assert list_phases() == ["check", "count", "draw", "store", "publish"]
            fp.release(PLAN, tables, ledger=ledger, key="memory")
            assert list_phases() == ["check", "count", "draw"]

    def test_the_same_call_again_is_the_same_release(self, tmp_path, ledger):
        first = fp.release(PLAN, TABLES, tmp_path / "out", ledger=ledger, key="k")
        again = fp.release(PLAN, TABLES, tmp_path / "out", ledger=ledger, key="k")
        np.testing.assert_array_equal(first.answers, again.answers)
        assert ledger.spent == first.rho
        assert first.entry == again.entry == ledger.entries()[0]
        (stage,) = ledger.stages().values()
        assert (stage.state, stage.folder) == ("published", str(tmp_path / "out"))

    def test_answers_that_were_begun_and_not_made_are_drawn_by_a_retry(
        self, tmp_path, ledger, monkeypatch
    ):
        def fail(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(executor, "write_parts", fail)
            with pytest.raises(fp.FitplugError, match="no space left on device"):
                fp.release(PLAN, TABLES, tmp_path / "out", ledger=ledger)
        assert [s.state for s in ledger.stages().values()] == ["charged"]
        made = fp.release(PLAN, TABLES, tmp_path / "out", ledger=ledger)
        assert ledger.spent == made.rho

    def test_made_answers_that_are_gone_are_not_drawn_again(self, tmp_path, ledger, monkeypatch):
        def fail(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(folder_release, "complete_folder", fail)
            with pytest.raises(fp.FitplugError, match="nothing more will be charged"):
                fp.release(PLAN, TABLES, tmp_path / "out", ledger=ledger, key="k")
        (staged,) = tmp_path.glob(".out.*.parts")
        aside = staged.rename(tmp_path / "aside")
        with pytest.raises(fp.FitplugError, match="are missing or damaged"):
            fp.release(PLAN, TABLES, tmp_path / "out", ledger=ledger, key="k")
        aside.rename(staged)
        fp.release(PLAN, TABLES, tmp_path / "out", ledger=ledger, key="k")
        assert len(ledger.entries()) == 1

    def test_staged_answers_of_another_release_are_not_taken(self, tmp_path, ledger, monkeypatch):
        """Not those that nothing was charged for, nor those that were edited."""

        def fail(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(folder_release, "complete_folder", fail)
            patch.setattr(Staging, "discard", lambda _: None)  # as if a process were killed
            with pytest.raises(fp.FitplugError):
                fp.release(PLAN, TABLES, tmp_path / "out")
        (unpaid,) = tmp_path.glob(".out.*.parts")
        paid = fp.release(PLAN, TABLES, tmp_path / "out", ledger=ledger)
        assert ledger.spent == paid.rho
        assert unpaid.exists()
        with pytest.raises(fp.InputError, match="already holds a release"):
            fp.release(PLAN, TABLES, tmp_path / "out")

    def test_the_folder_gone_is_told(self, tmp_path, ledger):
        fp.release(PLAN, TABLES, tmp_path / "out", ledger=ledger, key="k")
        (tmp_path / "out").rename(tmp_path / "elsewhere")
        with pytest.raises(fp.FitplugError, match="is no longer in"):
            fp.release(PLAN, TABLES, tmp_path / "out", ledger=ledger, key="k")
        assert len(ledger.entries()) == 1

    def test_a_key_of_another_plan_or_cost(self, tmp_path, ledger):
        fp.release(PLAN, TABLES, tmp_path / "out", ledger=ledger, key="k")
        other = fp.design(fp.Workload(DOMAIN, [fp.total(std=9.0)]))
        with pytest.raises(fp.KeyTaken, match="it is for another plan"):
            fp.release(other, TABLES, tmp_path / "b", ledger=ledger, key="k")
        two = fp.design(PLAN.workload, unit=fp.AddRemove(2))
        with pytest.raises(fp.KeyTaken, match="it is for another plan"):
            fp.release(two, TABLES, tmp_path / "b", ledger=ledger, key="k")
        rho = ledger.entries()[0].rho
        ledger.charge(rho, what="by hand", key="hand", plan_digest=PLAN.digest)
        with pytest.raises(fp.KeyTaken, match="not known whether its noise was drawn"):
            fp.release(PLAN, TABLES, tmp_path / "b", ledger=ledger, key="hand")
        assert not (tmp_path / "b").exists()

    def test_in_memory_a_key_is_drawn_once(self, tmp_path, ledger, monkeypatch):
        real = ReleaseCharges.record_draw

        def killed(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(ReleaseCharges, "record_draw", killed)
        with pytest.raises(KeyboardInterrupt):
            fp.release(PLAN, TABLES, ledger=ledger, key="k")
        monkeypatch.setattr(ReleaseCharges, "record_draw", real)
        made = fp.release(PLAN, TABLES, ledger=ledger, key="k")
        assert ledger.spent == made.rho
        with pytest.raises(fp.KeyTaken, match=r"was drawn at .* already"):
            fp.release(PLAN, TABLES, ledger=ledger, key="k")
        with pytest.raises(fp.KeyTaken, match="begun in memory, but this release is"):
            fp.release(PLAN, TABLES, tmp_path / "out", ledger=ledger, key="k")
        assert len(ledger.entries()) == 1

    @pytest.mark.parametrize("error", [OSError(5, "Input/output error"), MemoryError()])
    @pytest.mark.parametrize(
        ("folder", "key", "is_resumed"),
        [(None, None, False), (None, "k", True), ("out", None, True), ("out", "k", True)],
    )
    def test_errors_after_the_charge_say_whether_it_is_paid_again(
        self, tmp_path, ledger, monkeypatch, folder, key, is_resumed, error
    ):
        real = ReleaseCharges.record_draw
        place = folder and tmp_path / folder
        for raised in (error, KeyboardInterrupt(), None):
            if raised is None:
                monkeypatch.setattr(ReleaseCharges, "record_draw", real)
                fp.release(PLAN, TABLES, place, ledger=ledger, key=key)
                continue

            def fail(*_: object, raised=raised, **__: object) -> None:
                raise raised

            monkeypatch.setattr(ReleaseCharges, "record_draw", fail)
            interrupted = isinstance(raised, KeyboardInterrupt)
            kind = KeyboardInterrupt if interrupted else fp.FitplugError
            with pytest.raises(kind) as caught:
                fp.release(PLAN, TABLES, place, ledger=ledger, key=key)
            said = str(caught.value)
            assert said.endswith("nothing more will be charged.") == is_resumed
            if not is_resumed and not interrupted:
                assert "its entries show whether this run was charged" in said
        assert len(ledger.entries()) == (1 if is_resumed else 3)

    def test_threads_at_one_key_draw_one_release(self, ledger):
        made: list[object] = []

        def work() -> None:
            try:
                made.append(fp.release(PLAN, TABLES, ledger=ledger, key="k"))
            except fp.KeyTaken as error:
                made.append(error)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(isinstance(one, fp.Release) for one in made) == 1
        assert len(ledger.entries()) == 1

    def test_refusals_come_before_any_look_at_the_counts(self, tmp_path, ledger):
        class Untouchable(fp.Tables):
            def marginal(self, names: object) -> np.ndarray:  # type: ignore[override]
                raise AssertionError("counts were looked at")

        unseen = Untouchable(DOMAIN, {("sex", "age"): X}, unit=fp.AddRemove(2))
        whole = Untouchable(DOMAIN, {("sex", "age"): X})
        ledger.charge(0.999, what="nearly all")
        for refusal, keywords, tables in (
            (fp.OverBudget, {}, whole),
            (fp.LedgerError, {"covered_by": "none"}, whole),
            (fp.TablesError, {}, unseen),
        ):
            with pytest.raises(refusal):
                fp.release(PLAN, tables, ledger=ledger, **keywords)
            if refusal is not fp.TablesError:
                with pytest.raises(refusal):
                    fp.release(PLAN, tables, tmp_path / "out", ledger=ledger, **keywords)

    def test_one_count_by_person_carries_several_releases(self, tmp_path, ledger):
        """Within the charge that was made from it, and no other count of the same people."""
        some = fp.Workload(DOMAIN, [fp.queries({"sex": [[1, 0]], "age": "prefix"}, std=5.0)])
        others = fp.Workload(DOMAIN, [fp.queries({"sex": [[0, 1]], "age": "prefix"}, std=5.0)])
        first, second = fp.design(some), fp.design(others)
        count = fp.Tables(DOMAIN, {("sex", "age"): X}, unit=fp.AddRemove(1), person="ID")
        anew = fp.Tables(DOMAIN, {("sex", "age"): X}, unit=fp.AddRemove(1), person="ID")
        paid = fp.release(first, count, tmp_path / "a", ledger=ledger, key="first")
        with pytest.raises(fp.LedgerError, match="Use the counts file of that release"):
            fp.release(second, anew, tmp_path / "b", ledger=ledger, covered_by="first")
        fp.release(second, count, tmp_path / "b", ledger=ledger, covered_by="first")
        with pytest.raises(fp.OverBudget):
            fp.release(second, count, ledger=ledger, covered_by="first")
        assert ledger.spent == paid.rho
        assert [s.counts for s in ledger.stages().values()] == [count.seal] * 2


def test_a_folder_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        with make_partial_folder(folder, "1") as partial:
            (partial / "a").write_text("x")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "out").mkdir()
    with make_partial_folder(tmp_path / "out") as partial:
        (partial / "a").write_text("x")
        move_into_place(partial, tmp_path / "out")
    assert (tmp_path / "out" / "a").read_text() == "x"
    assert len(list(tmp_path.iterdir())) == 1
