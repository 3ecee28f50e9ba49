"""A period is drawn exactly once: killed at any step, on a full disk, by two processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fitplug as fp
from tests.helpers.killed_processes import run_script

pytestmark = pytest.mark.slow

T = 2
DOMAIN = fp.Domain({"MONTH": fp.Integers(1, T), "REGION": fp.Integers(1, 3)})
WORKLOAD = fp.Workload(
    DOMAIN,
    [
        fp.marginal("MONTH", "REGION", variance=1.0, name="months"),
        fp.queries({"MONTH": "prefix", "REGION": "identity"}, variance=2.0, name="so far"),
    ],
)
PLAN = fp.design(WORKLOAD, periods="MONTH")

# After FORKING. Each child is killed or not.
DRIVER = """
import json, os, resource, shutil, signal, sys
import numpy as np
import fitplug as fp
from fitplug.errors import FitplugError
from pathlib import Path

plan = fp.Plan.load(root / "plan.npz")
BASE = np.full((2, 3), 1000)

def tables(more):
    return fp.Tables(plan.domain, {("MONTH", "REGION"): BASE + more})

def run(folder, more=0, periods=(1, 2)):
    ledger = fp.Ledger(folder / "budget.db", rho=100.0)
    series = fp.begin_series(plan, folder / "pay", ledger=ledger, key="pay", display=True)
    for period in periods:
        series.release(period, tables(more))

OURS = ("fitplug/", "fitplug_opendp/", "fitplug_dask/", "sqlite3", "zipfile", "shutil", "pathlib")

def killed_at(point, folder):
    fp.Ledger(folder / "budget.db", rho=100.0)
    return kill_at(point, OURS, lambda: run(folder))

def state(folder):
    ledger = fp.Ledger(folder / "budget.db", rho=100.0)
    stages = ledger.stages()
    found = {
        "spent": ledger.spent,
        "stages": [[e.key, stages[e.id].state, stages[e.id].answers] for e in ledger.entries()],
        "names": sorted(p.name for p in folder.iterdir() if not p.name.startswith("budget.db")),
    }
    if (folder / "pay" / "series.json").exists():
        series = fp.open_series(folder / "pay")
        released = series.read()
        found["answers"] = released.answers.tolist()
        found["drawn"] = released.drawn
        found["months"] = np.nan_to_num(released.estimates["months"]).tolist()
        found["so far"] = np.nan_to_num(released.estimates["so far"]).tolist()
        series.verify()  # also that all display tables follow from the answers
        found["files"] = sorted(str(p.relative_to(folder)) for p in (folder / "pay").rglob("*"))
    return found

warm = root / "warm"; warm.mkdir()
run(warm)  # what is imported late is imported now, and not in each child
"""

ANSWERS = ("answers", "answers/manifest.json", "answers/part-00000.npy")
TABLES = [f"{name}{kind}.parquet" for name in ("months", "so_far") for kind in ("", ".display")]
FILES = sorted(
    [f"pay/{name}" for name in ("plan.npz", "series.json", "period-1", "period-2")]
    + [f"pay/period-{t}/{name}" for t in (1, 2) for name in (*ANSWERS, *TABLES)]
)


def drive(script: str, root: Path, *arguments: str) -> list[Any]:
    """What the script says, run in a process of its own after the DRIVER."""
    PLAN.save(root / "plan.npz")
    return run_script(DRIVER + script, root, *arguments, timeout=3600)


def check_is_finished(after):
    """One charge, each period drawn and published once, and nothing confidential left."""
    assert [state for _, state, _ in after["stages"]] == ["published"] * (1 + T)
    assert after["spent"] == pytest.approx(PLAN.rho)
    assert after["drawn"] == T
    assert after["names"] == ["pay"]
    assert after["files"] == FILES


@pytest.mark.parametrize("points", [12, pytest.param(120, marks=pytest.mark.long)])
def test_killed_at_every_step_it_is_finished_by_the_same_call(tmp_path: Path, points: int) -> None:
    """The same call finishes the series, with the counts that were sealed by the first try."""
    said = drive(
        """
state(warm)  # so that each child finds the same caches
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
    # The second try has other counts, which are used for periods that were not sealed.
    again = wait(fork(lambda: run(folder, 1_000_000) and 0))
    say([ended, before, again, state(folder)])
    shutil.rmtree(folder)
""",
        tmp_path,
        str(points),
    )
    total, *outcomes = said
    assert total > 1000
    assert len(outcomes) == points
    states, sources = set(), set()
    for _, before, again, after in outcomes:
        assert again == 0
        check_is_finished(after)
        # What was made stays: the digest in the ledger, and the answers in the folder.
        for was, now in zip(before["stages"], after["stages"], strict=False):
            assert was[2] in (None, now[2])
            states.add((was[0], was[1]))
        if before.get("drawn"):
            assert np.array_equal(before["months"][0], after["months"][0])
        # Each period is of one try, and the sums are those of the counts that were sealed.
        months, so_far = np.array(after["months"]), np.array(after["so far"])
        tries = np.rint((months - 1000) / 1e6).astype(int)
        assert (tries == tries[:, :1]).all()
        assert np.abs(months - 1000 - 1e6 * tries).max() < 15
        assert np.abs(so_far - np.cumsum(1000 + 1e6 * tries, axis=0)).max() < 30
        sources.add(tuple(tries[:, 0].tolist()))
    if points > 100:
        assert sources == {(0, 0), (0, 1), (1, 1)}
        keys = {key for key, _ in states}
        assert states >= {(key, "drawn") for key in keys} | {("pay", "published")}


@pytest.mark.long
def test_two_processes_draw_a_period_once(tmp_path: Path) -> None:
    said = drive(
        """
for number in range(20):
    folder = root / str(number); folder.mkdir()
    children = [fork(lambda: run(folder, more)) for more in (0, 1_000_000)]
    ended = [wait(child) for child in children]
    say([ended, state(folder)])
""",
        tmp_path,
    )
    for ended, after in said:
        assert ended == [0, 0]
        check_is_finished(after)


def test_a_full_disk_stops_a_series_that_is_continued_later(tmp_path: Path) -> None:
    said = drive(
        """
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
def refused(folder, size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        run(folder)
    except FitplugError:
        return 3
for size in (0, 100, 500, 1000, 2000, 3000, 6000):
    folder = root / str(size); folder.mkdir()
    fp.Ledger(folder / "budget.db", rho=100.0)
    ended = wait(fork(lambda: refused(folder, size)))
    assert wait(fork(lambda: run(folder))) == 0
    say([ended, state(folder)])
""",
        tmp_path,
    )
    assert [ended for ended, _ in said][:4] == [3] * 4
    for ended, after in said:
        assert ended in (0, 3)
        check_is_finished(after)
