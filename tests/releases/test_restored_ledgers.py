"""A ledger that is an older copy of itself never draws again what lies in its place."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fitplug as fp
from fitplug.errors import FitplugError, InputError, LedgerError
from fitplug.ledger import ReleaseCharges
from fitplug_dask.releases import executor, release_source, releasing
from fitplug_dask.series import period
from fitplug_opendp import folder_release, publication
from fitplug_opendp.noise_source import NoiseSource
from tests.helpers.command_line import fitplug, make
from tests.helpers.restored_ledgers import LEDGER, Copies, read_ledger

DOMAIN = fp.Domain({"MONTH": fp.Integers(1, 2), "REGION": fp.Integers(1, 3)})
WORKLOAD = fp.Workload(
    DOMAIN,
    [
        fp.marginal("MONTH", "REGION", std=5.0, name="months"),
        fp.queries({"MONTH": "prefix"}, std=9.0, name="so far"),
    ],
)
PLAN = fp.design(WORKLOAD, periods="MONTH")
TABLES = fp.Tables(DOMAIN, {("MONTH", "REGION"): np.full((2, 3), 1000)})


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is drawn, from now on."""
    drawn: list[str] = []

    def watch(owner: Any, name: str, what: str) -> None:
        real = getattr(owner, name)

        def draw(*given: Any, **keywords: Any) -> Any:
            drawn.append(what)
            return real(*given, **keywords)

        monkeypatch.setattr(owner, name, draw)

    watch(period, "draw_part", "a period")
    watch(executor, "draw_part", "a part")
    watch(NoiseSource, "draw", "a release")
    return drawn


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "root"
    (root / "data").mkdir(parents=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(root / "state"))
    monkeypatch.setattr(releasing, "PART", 3)
    return root


def begin(root: Path) -> fp.Series:
    ledger = fp.Ledger(root / LEDGER)
    return fp.begin_series(PLAN, root / "data" / "out", ledger=ledger, key="a")


def release_month(root: Path, month: int) -> None:
    series = fp.open_series(root / "data" / "out", ledger=fp.Ledger(root / LEDGER))
    series.release(month, TABLES)


def release_in_parts(root: Path, **keywords: Any) -> None:
    ledger = fp.Ledger(root / LEDGER)
    release_source(PLAN, TABLES, root / "data" / "out", ledger=ledger, **keywords)


def publish(root: Path, **keywords: Any) -> None:
    ledger = fp.Ledger(root / LEDGER)
    fp.release(PLAN, TABLES, root / "data" / "out", ledger=ledger, **keywords)


def list_drawn(root: Path) -> dict[str, set[bytes]]:
    """The durable draws, published and staged, of each part of a release."""
    out = root / "data" / "out"
    hidden = ".out.*.parts/answers/part"
    places = {
        "part 0": ["out/answers/part-00000.npy", f"{hidden}-00000.npy"],
        "part 1": ["out/answers/part-00001.npy", f"{hidden}-00001.npy"],
        "period 1": [
            "out/period-1/answers/part*",
            ".out.*.series/.answers-00001.*.parts/answers/part*",
        ],
        "period 2": [
            "out/period-2/answers/part*",
            ".out.*.series/.answers-00002.*.parts/answers/part*",
        ],
    }
    return {
        name: {path.read_bytes() for glob in globs for path in out.parent.glob(glob)}
        for name, globs in places.items()
    }


CALLS: dict[str, list[Callable[[Path], Any]]] = {
    "folder with a key": [partial(publish, key="a")],
    "folder": [publish],
    "folder that replaces": [partial(publish, key="a", replace=True)],
    "parts": [release_in_parts],
    "parts with a key": [partial(release_in_parts, key="a")],
    "parts that replace": [partial(release_in_parts, key="a", replace=True)],
    "series": [begin, *(partial(release_month, month=month) for month in (1, 2))],
}
MARKS = {"folder with a key": [], "series": [pytest.mark.long]}
CASES = [pytest.param(name, marks=MARKS.get(name, [pytest.mark.slow])) for name in CALLS]


@pytest.mark.parametrize("case", CASES)
def test_each_older_ledger_beside_each_later_state(
    root: Path, tmp_path: Path, draws: list[str], case: str
) -> None:
    """The same calls find what was drawn, or are refused; and a refusal enters nothing."""
    (tmp_path / "copies").mkdir()
    copies = Copies(root, tmp_path / "copies")
    copies.watch(lambda: [act(root) for act in CALLS[case]])
    newest, outcomes = read_ledger(root), []
    for _ in copies.restore():
        drawn = list_drawn(root)
        outcomes.append(call_again(root, CALLS[case], draws, newest))
        # Nothing that was durable is followed by something else.
        after = list_drawn(root)
        assert all(not own or after[name] == own for name, own in drawn.items())
    assert set(outcomes) == {"found", "refused", "drawn"}


def call_again(
    root: Path, calls: list[Callable[[Path], Any]], draws: list[str], newest: Any
) -> str:
    """Make the same calls, up to the first that is refused; returns what came of them."""
    draws.clear()
    for act in calls:
        before = list_drawn(root), read_ledger(root), list(draws)
        try:
            act(root)
        except fp.AlreadyReleased:  # the newest ledger, and no key
            return "found"
        except FitplugError:
            drawn, said, made = before
            assert (list_drawn(root), draws) == (drawn, made)
            if read_ledger(root) != said:  # earlier periods may be entered, as they were
                answers = {number: stage.answers for number, stage in newest[1].items()}
                for number, stage in read_ledger(root)[1].items():
                    assert stage == said[1].get(number) or stage.answers == answers[number]
                assert len(calls) > 1
            return "refused"
        assert all(len(found) <= 1 for found in list_drawn(root).values())
    _, stages = read_ledger(root)
    assert {stage.state for stage in stages.values()} == {"published"}
    return "drawn" if draws else "found"


class TestAReleaseIntoAFolder:
    """The ledger is put back to when it had the charge as begun, or did not have it."""

    @pytest.fixture
    def older(self, root: Path, tmp_path: Path) -> list[Path]:
        (tmp_path / "copies").mkdir()
        copies = Copies(root, tmp_path / "copies")
        copies.watch(partial(publish, root, key="a"))
        return copies.ledgers

    def test_that_is_begun_elsewhere_is_found_there(
        self, root: Path, older: list[Path], draws: list[str]
    ) -> None:
        shutil.copy(older[1], root / LEDGER)
        other, ledger = root / "data" / "other", fp.Ledger(root / LEDGER)
        answers = root / "data" / "out" / "answers" / "manifest.json"
        content = answers.read_bytes()
        answers.write_bytes(content[:-1])
        with pytest.raises(InputError, match="may hold a damaged copy of that release"):
            fp.release(PLAN, TABLES, other, ledger=ledger, key="a")
        answers.write_bytes(content)
        found = fp.release(PLAN, TABLES, other, ledger=ledger, key="a")
        assert np.array_equal(found.answers, fp.Release.load(root / "data" / "out").answers)
        assert not other.exists()
        assert draws == []

    def test_whose_folder_was_moved_is_found_there(
        self, root: Path, older: list[Path], draws: list[str]
    ) -> None:
        shutil.copy(older[1], root / LEDGER)
        moved = (root / "data" / "out").rename(root / "data" / "moved")
        before = read_ledger(root)
        fp.release(PLAN, TABLES, moved, ledger=fp.Ledger(root / LEDGER), key="a")
        assert (draws, len(read_ledger(root)[0]), len(before[0])) == ([], 1, 1)

    @pytest.mark.parametrize("others", [0, 1])
    def test_is_not_that_of_another_charge_of_the_same_number(
        self, root: Path, older: list[Path], draws: list[str], others: int
    ) -> None:
        """Neither by the place of the ledger's next charge, nor if that number is taken."""
        shutil.copy(older[0], root / LEDGER)
        ledger = fp.Ledger(root / LEDGER)
        for number in range(others):
            ledger.charge(0.01, what=f"other {number}")
        before = read_ledger(root)
        for keywords in ({}, {"replace": True}, {"key": "a"}, {"key": "b", "replace": True}):
            with pytest.raises(LedgerError, match=r"holds a release that was charged as number 1,"):
                publish(root, **keywords)
        with pytest.raises(LedgerError, match=r"holds a release that was charged as number 1,"):
            release_in_parts(root, key="b")
        assert (read_ledger(root), draws) == (before, [])
        # Elsewhere it is a release as any other.
        fp.release(PLAN, TABLES, ledger=ledger)

    def test_whose_staged_answers_are_damaged_is_not_drawn_again(
        self, root: Path, draws: list[str]
    ) -> None:
        fp.Ledger(root / LEDGER, rho=100.0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ReleaseCharges, "record_draw", lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                publish(root, key="a")
        (staged,) = (root / "data").glob(".out.*.parts/answers/part-00000.npy")
        content = staged.read_bytes()
        staged.write_bytes(content[:-1])
        before = read_ledger(root)
        draws.clear()
        with pytest.raises(InputError, match=r"is damaged\. Restore the folder from a backup"):
            publish(root, key="a")
        assert (read_ledger(root), draws) == (before, [])
        staged.write_bytes(content)
        publish(root, key="a")
        assert draws == []
        assert (root / "data" / "out" / "answers" / staged.name).read_bytes() == content


@pytest.mark.parametrize("is_published", [True, False])
def test_a_release_in_a_store(tmp_path: Path, draws: list[str], is_published: bool) -> None:
    """Parts in a store, marked or complete, of a charge that the ledger does not have."""
    output = f"memory://restored-{is_published}"
    ledger = fp.Ledger(tmp_path / "a.db", rho=1.0)
    with pytest.MonkeyPatch.context() as patch:
        if not is_published:
            patch.setattr(publication, "write_manifest", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError) if not is_published else nullcontext():
            release_source(PLAN, TABLES, output, ledger=ledger, key="a")
    other = fp.Ledger(tmp_path / "b.db", rho=1.0)
    draws.clear()
    with pytest.raises(LedgerError, match=r"number 1, but the ledger .*b.db does not have"):
        release_source(PLAN, TABLES, output, ledger=other, key="a")
    assert (draws, other.entries()) == ([], ())


def test_staged_answers_whose_ledger_is_missing_are_not_followed_by_others(tmp_path: Path) -> None:
    spec = make(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folder_release, "complete_folder", lambda *_, **__: 1 / 0)
        assert fitplug("run", spec).code == 1
    assert list(tmp_path.glob(".release.*.parts"))
    (tmp_path / "budget.db").rename(tmp_path / "kept.db")
    ran = fitplug("run", spec)
    assert ran.code == 2
    assert "budget.db does not exist, but " in ran.err
    assert not (tmp_path / "budget.db").exists()
    (tmp_path / "kept.db").rename(tmp_path / "budget.db")
    assert fitplug("run", spec).code == 0
