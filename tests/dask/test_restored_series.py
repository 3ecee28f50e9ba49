"""A series whose ledger is an older copy: what was released is entered again, or nothing is."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fitplug as fp
from fitplug.errors import FitplugError, LedgerError
from fitplug_dask.series import period
from tests.helpers.command_line import fitplug

T = 3
DOMAIN = fp.Domain({"MONTH": fp.Integers(1, T), "REGION": fp.Integers(1, 3)})
WORKLOAD = fp.Workload(
    DOMAIN,
    [
        fp.marginal("MONTH", "REGION", std=1.0, name="months"),
        fp.queries({"MONTH": "prefix", "REGION": "identity"}, std=2.0, name="so far"),
    ],
)
PLAN = fp.design(WORKLOAD, periods="MONTH")
TABLES = fp.Tables(DOMAIN, {("MONTH", "REGION"): np.full((T, 3), 1000)})
OTHERS = fp.Tables(DOMAIN, {("MONTH", "REGION"): np.full((T, 3), 9000)})


class Restored:
    """A series of which months were drawn, and whose ledger is put back to before them."""

    def __init__(self, root: Path, drawn: int, *, closed: bool = False) -> None:
        self.root, self.out, self.path = root, root / "pay", root / "budget.db"
        fp.Ledger(self.path, rho=10.0)
        shutil.copy(self.path, root / "0.db")
        self.series = fp.begin_series(PLAN, self.out, ledger=fp.Ledger(self.path), key="pay")
        shutil.copy(self.path, root / "1.db")
        for month in range(1, drawn + 1):
            self.series.release(month, TABLES)
        if closed:
            self.series.close()
        self.answers = self.series.read().answers
        self.put_back(1)
        (self.hidden,) = [*root.glob(".pay.*.series")] or [None]

    def put_back(self, number: int) -> None:
        shutil.copy(self.root / f"{number}.db", self.path)

    def open(self) -> fp.Series:
        return fp.open_series(self.out, ledger=fp.Ledger(self.path))


def stage_only(found: Restored) -> Path:
    """Leave the answers of month 1 as they are before they are published."""
    shutil.rmtree(found.out / "period-1")
    (path,) = found.hidden.glob(".answers-00001.*.parts/answers/part-*.npy")
    return path


def lose(found: Restored) -> None:
    """Leave of month 1 its sealed counts only."""
    shutil.rmtree(stage_only(found).parents[1])


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    drawn: list[None] = []
    real = period.draw_part

    def draw(*given: object) -> object:
        drawn.append(None)
        return real(*given)

    monkeypatch.setattr(period, "draw_part", draw)
    return drawn


@pytest.mark.parametrize("how", ["read", "release", "staged", "lost", "begin"])
def test_what_was_drawn_is_entered_again_and_not_drawn(
    tmp_path: Path, draws: list[None], how: str
) -> None:
    found = Restored(tmp_path, 1 if how == "staged" else 2)
    series, drawn = found.open(), 1 if how == "staged" else 2
    if how in ("staged", "lost"):  # of two months, the folder of the first is lost
        stage_only(found)
    draws.clear()
    if how == "read":
        assert series.read().drawn == 2
    elif how == "begin":
        ledger = fp.Ledger(found.path)
        series = fp.begin_series(PLAN, found.out, ledger=ledger, key="pay")
        assert series.read().drawn == 2
    else:
        for month in range(1, drawn + 1):
            series.release(month, OTHERS)
    assert draws == []
    assert np.array_equal(series.read().answers, found.answers)
    ledger = fp.Ledger(found.path)
    assert ledger.spent == pytest.approx(PLAN.rho)
    assert [entry.rho for entry in ledger.entries()][1:] == [0] * drawn
    assert [stage.state for stage in ledger.stages().values()] == ["drawn"] + ["published"] * drawn
    for month in range(1, T + 1):
        released = series.release(month, TABLES)
    assert len(draws) == T - drawn
    assert np.abs(released.estimates["so far"][-1] - 3000).max() < 30
    series.verify()
    assert {path.name for path in tmp_path.iterdir() if path.name[0] == "."} == set()


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def rewrite_seal(path: Path, found: Restored) -> None:
    manifest = path.with_name("manifest.json")
    content = manifest.read_text()
    manifest.write_text(content.replace(json.loads(content)["counts"], "0" * 64))


def move_key(found: Restored) -> None:
    assert found.series.key_file is not None
    found.series.key_file.rename(found.root / "moved.key")


def published(found: Restored, name: str = "part-00000.npy") -> Path:
    return found.out / "period-1" / "answers" / name


FAULTS: dict[str, tuple[Callable[[Restored], object], str]] = {
    "damaged": (lambda f: flip(published(f)), "is damaged or was edited"),
    "without answers": (lambda f: published(f).unlink(), "is missing. Restore the folder"),
    "of other counts": (
        lambda f: rewrite_seal(published(f), f),
        "Restore the newest copy.*do not match its encrypted counts",
    ),
    "counts gone": (
        lambda f: (f.hidden / "counts-00001").unlink(),
        "Restore the newest copy.*missing",
    ),
    "counts damaged": (
        lambda f: flip(f.hidden / "counts-00001"),
        "Restore the newest copy.*damaged",
    ),
    "all counts gone": (lambda f: shutil.rmtree(f.hidden), "Restore the newest copy.*missing"),
    "key gone": (move_key, "Restore the newest copy.*is missing from"),
    "staged, damaged": (
        lambda f: flip(stage_only(f)),
        "is damaged. Restore the folder from a backup",
    ),
    "staged, of other counts": (
        lambda f: rewrite_seal(stage_only(f), f),
        "period 1 do not match its encrypted counts",
    ),
    "staged, counts gone": (
        lambda f: (stage_only(f), (f.hidden / "counts-00001").unlink()),
        "period 1 are missing or damaged",
    ),
    "lost": (lose, "exists, but the folder of the earlier period 1 is missing"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_be_told_from_an_edit_is_refused_before_anything_is_entered(
    tmp_path: Path, draws: list[None], fault: str
) -> None:
    found = Restored(tmp_path, 2)
    spoil, says = FAULTS[fault]
    spoil(found)
    draws.clear()
    ledger = fp.Ledger(found.path)

    def see() -> object:
        files = [path for path in found.root.rglob("*") if not path.name.startswith(".pay.")]
        return ledger.entries(), dict(ledger.stages()), sorted(files)

    if fault == "all counts gone":
        (found.root / found.hidden.name).mkdir()
    before = see()
    with pytest.raises(FitplugError) as caught:
        found.open().release(1, OTHERS)
    # The cause, such as a missing key, is not shown.
    assert re.search(says, f"{caught.value} {caught.value.__context__}", re.DOTALL)
    assert see() == before
    assert draws == []


@pytest.mark.parametrize("closed", [True, False])
def test_a_series_that_is_over_is_read_and_not_drawn_again(
    tmp_path: Path, draws: list[None], closed: bool
) -> None:
    """Its sealed counts are gone, so that nothing tells which answers are those that were drawn."""
    found = Restored(tmp_path, 2 if closed else T, closed=closed)
    draws.clear()
    for act in (lambda s: s.read(), lambda s: s.release(1, OTHERS), lambda s: s.release(3, OTHERS)):
        with pytest.raises(FitplugError, match="Restore the newest copy"):
            act(found.open())
    assert draws == []
    assert len(fp.Ledger(found.path).entries()) == 1
    assert np.array_equal(fp.open_series(found.out).read().answers, found.answers)


def test_without_the_charge_nothing_is_opened_or_begun(tmp_path: Path, draws: list[None]) -> None:
    found = Restored(tmp_path, 1)
    found.put_back(0)
    draws.clear()
    ledger = fp.Ledger(found.path)
    with pytest.raises(LedgerError, match="was not charged to the ledger"):
        fp.open_series(found.out, ledger=ledger)
    for key in ("pay", "other"):
        with pytest.raises(
            LedgerError, match=r"whose charge 1 is not in the ledger .* Restore the newest"
        ):
            fp.begin_series(PLAN, found.out, ledger=ledger, key=key)
    ledger.charge(0.1, what="something else")  # which takes the number
    with pytest.raises(LedgerError, match="was not charged to the ledger"):
        fp.open_series(found.out, ledger=ledger)
    with pytest.raises(
        LedgerError, match=r"whose charge 1 is not in the ledger .* Restore the newest"
    ):
        fp.begin_series(PLAN, found.out, ledger=ledger, key="pay")
    assert (draws, len(ledger.entries())) == ([], 1)


def test_a_series_whose_ledger_is_missing_is_told(tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(
        """
[data]
path = "rows/"
[privacy]
unit = { records = 1 }
[domain]
MONTH = { integers = [1, 3] }
[[query]]
name = "months"
MONTH = "identity"
std = 2.0
[design]
periods = "MONTH"
[ledger]
path = "budget.db"
rho = 10.0
[output]
path = "out/"
"""
    )
    assert fitplug("series", "begin", spec, "--key", "k").code == 0
    (tmp_path / "budget.db").rename(tmp_path / "kept.db")
    for arguments in (("begin", spec, "--key", "k"), ("add", spec, 1), ("close", spec)):
        ran = fitplug("series", *arguments)
        assert ran.code != 0
        assert "budget.db does not exist, but" in ran.err, ran
    assert not (tmp_path / "budget.db").exists()
