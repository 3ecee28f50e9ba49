"""Files written by version 0.1 before ledgers kept stages: all of them are still read."""

from __future__ import annotations

import json
import shutil
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import fitplug as fp
import fitplug_opendp as fpo
from tests.helpers.places import DATA

BEFORE = DATA / "written_by_0.1"
EXPECTED = json.loads((BEFORE / "expected.json").read_text())
PLANS = sorted(path.name for path in BEFORE.glob("*.npz"))


@pytest.mark.parametrize("name", PLANS)
def test_plans(name: str, tmp_path: Path) -> None:
    plan = fp.Plan.load(BEFORE / name)
    plan.verify()
    expected = EXPECTED[name]
    assert plan.digest == expected["digest"]
    assert plan.rho_exact == Fraction(expected["rho"])
    assert plan.lower_bound == expected["lower_bound"]
    plan.save(tmp_path / name)
    assert fp.Plan.load(tmp_path / name).digest == plan.digest


def test_a_release() -> None:
    release = fp.Release.read(BEFORE / "release")
    assert release.rho == EXPECTED["release_rho"]
    for name, estimates in EXPECTED["estimates"].items():
        assert release.estimates[name].ravel().tolist() == pytest.approx(estimates, abs=1e-6)


def zeros(plan: fp.Plan) -> dict[tuple[str, ...], object]:
    return {names: np.zeros(plan.domain.shape_of(names), dtype=int) for names in plan.tables}


def test_a_ledger(tmp_path: Path) -> None:
    """It is brought to the present version as a whole, and what it charged is never drawn anew."""
    path = tmp_path / "ledger.db"
    shutil.copy(BEFORE / "ledger.db", path)
    ledger = fp.Ledger(path)
    said = [{"rho": str(e.rho), "what": e.what, "key": e.key, "within": e.within}
            for e in ledger.entries()]  # fmt: skip
    assert said == EXPECTED["entries"]
    assert ledger.stages() == {}
    plan = fp.Plan.load(BEFORE / "dense.npz")
    tables = fp.Tables(plan.domain, zeros(plan))
    with pytest.raises(fp.KeyTaken, match="does not know whether its noise was drawn"):
        fpo.release(plan, tables, ledger=ledger, key="first")
    with pytest.raises(fp.AlreadyReleased, match="a second draw of the same plan"):
        fpo.publish(plan, tables, tmp_path / "out", ledger=ledger)
    release = fpo.publish(plan, tables, tmp_path / "out", ledger=ledger, again=True)
    assert ledger.entries()[-1] == release.entry
    assert fp.Ledger(path, rho=10.0).stages()[5].state == "published"
