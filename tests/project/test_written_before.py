"""Files that earlier versions wrote are still read, and say what they said then.

`written_by_0.1` is of version 0.1, before ledgers kept stages. `written_before_the_house` is of the
last version whose core was one flat package: a plan of every structure and format, a ledger with
charges at every stage, a release folder, and a spec with its counts. `written_with_trees` is of the
first version with format 6. The nodes that a tree's plan has matrices for follow from its workload
and the constants of `fitplug.structure.node_tree`, so another rule for them would lose old plans.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import fitplug as fp
import fitplug_opendp as fpo
from fitplug.ledger import Entry
from fitplug.ledger.cell_costs import CellCosts
from fitplug.structure import ResidualStructure
from fitplug_cli.output import read_counts
from tests.helpers.command_line import fitplug
from tests.helpers.places import DATA

BEFORE = DATA / "written_by_0.1"
EXPECTED = json.loads((BEFORE / "expected.json").read_text())
PLANS = sorted(
    path
    for name in ("written_by_0.1", "written_with_trees")
    for path in (DATA / name).glob("*.npz")
)
FLAT = DATA / "written_before_the_house"
SAID = json.loads((FLAT / "expected.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", PLANS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_plans(path: Path, tmp_path: Path) -> None:
    plan = fp.Plan.load(path)
    plan.verify()
    expected = json.loads((path.parent / "expected.json").read_text())[path.name]
    assert plan.digest == expected["digest"]
    assert plan.rho_exact == Fraction(expected["rho"])
    assert plan.lower_bound == expected["lower_bound"]
    plan.save(tmp_path / path.name)
    assert fp.Plan.load(tmp_path / path.name).digest == plan.digest


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
    assert ledger.unit == fp.AddRemove()
    plan = fp.Plan.load(BEFORE / "dense.npz")
    tables = fp.Tables(plan.domain, zeros(plan))
    with pytest.raises(fp.KeyTaken, match="does not know whether its noise was drawn"):
        fpo.release(plan, tables, ledger=ledger, key="first")
    with pytest.raises(fp.AlreadyReleased, match="a second draw of the same plan"):
        fpo.publish(plan, tables, tmp_path / "out", ledger=ledger)
    release = fpo.publish(plan, tables, tmp_path / "out", ledger=ledger, again=True)
    assert ledger.entries()[-1] == release.entry
    assert fp.Ledger(path, rho=10.0).stages()[5].state == "published"


@pytest.mark.parametrize("name", SAID["plans"])
class TestPlansOfTheFlatPackage:
    def test_content(self, name: str, tmp_path: Path) -> None:
        plan = fp.Plan.load(FLAT / f"{name}.npz")
        plan.verify()
        said = SAID["plans"][name]
        assert plan.digest == said["digest"]
        assert str(plan.rho_exact) == said["rho_exact"]
        for number in ("rho", "lower_bound", "gap", "scale", "noise_std"):
            assert float(getattr(plan, number)).hex() == said[number], number
        assert [list(names) for names in plan.tables] == said["tables"]
        plan.save(tmp_path / "again.npz")
        assert fp.Plan.load(tmp_path / "again.npz").digest == said["digest"]

    def test_tiers(self, name: str) -> None:
        plan = fp.Plan.load(FLAT / f"{name}.npz")
        if isinstance(plan.structure, ResidualStructure):
            assert SAID["plans"][name]["tiers"] == []
            return
        for tier, (cells, level, bound) in zip(
            plan.tiers, SAID["plans"][name]["tiers"], strict=True
        ):
            assert tier.cells == cells
            assert tier.level == pytest.approx(float.fromhex(level), rel=1e-12)
            assert tier.lower_bound == pytest.approx(float.fromhex(bound), rel=1e-9)

    def test_variances_and_estimates(self, name: str) -> None:
        plan = fp.Plan.load(FLAT / f"{name}.npz")
        said = SAID["plans"][name]
        largest = {group: float(v.max()) for group, v in plan.variances.items()}
        expected = {group: float.fromhex(v) for group, v in said["largest_variances"].items()}
        assert largest == pytest.approx(expected, rel=1e-12)
        answers = np.arange(plan.strategy.size, dtype=np.int64) * 7 % 11
        estimates = fp.Release(plan=plan, answers=answers, rho=plan.rho).estimates
        assert set(estimates) == set(said["estimates"])
        for group, values in said["estimates"].items():
            found = estimates[group].ravel()[: len(values)].tolist()
            assert found == pytest.approx(values, rel=1e-6, abs=1e-6)


def test_every_plan_format_is_here() -> None:
    assert {said["format"] for said in SAID["plans"].values()} == {3, 4, 5}


@pytest.fixture
def ledger(tmp_path: Path) -> fp.Ledger:
    shutil.copy(FLAT / "ledger.db", tmp_path)
    return fp.Ledger(tmp_path / "ledger.db")


def describe(entry: Entry) -> dict[str, object]:
    """Describe a charge as it was before ledgers kept units of privacy."""
    said = asdict(entry) | {"rho": str(entry.rho)}
    assert said.pop("unit") is None
    return said


def test_the_entries_and_stages_of_a_ledger(ledger: fp.Ledger) -> None:
    said = SAID["ledger"]
    for number in ("total", "spent", "remaining"):
        assert getattr(ledger, number).hex() == said[number]
    assert ledger.privacy == tuple(said["privacy"])
    assert [describe(entry) for entry in ledger.entries()] == said["entries"]
    assert ledger.unit == fp.AddRemove()
    assert {str(n): asdict(stage) for n, stage in ledger.stages().items()} == said["stages"]
    assert {stage.state for stage in ledger.stages().values()} == {"begun", "made", "published"}


def test_costs_per_cell_of_a_ledger(ledger: fp.Ledger) -> None:
    """What is left at each cell is the same: too little for the same plan once more."""
    plan = fp.Plan.load(FLAT / "free_within.npz")
    earlier = ledger.entries()[3]
    assert earlier.plan_digest == plan.digest
    assert earlier.profile == CellCosts.from_plan(plan).digest
    slack = ledger.slack("cells", plan.domain)
    assert [value.hex() for value in slack.ravel().tolist()] == SAID["ledger"]["slack"]
    with pytest.raises(fp.OverBudget, match="block='1', age='0'"):
        ledger.charge_free(plan, within="cells", what="too much")
    smaller = fp.design(plan.workload, cell_budgets=slack)
    free = ledger.charge_free(smaller, within="cells", what="the rest")
    assert (free.rho, free.within) == (0, 3)


def test_retries_of_the_releases_of_a_ledger(ledger: fp.Ledger) -> None:
    plan = fp.Plan.load(FLAT / "symmetric.npz")
    tables = fp.Tables(plan.domain, zeros(plan))
    with pytest.raises(fp.KeyTaken, match="as drawn already"):
        fpo.release(plan, tables, ledger=ledger, key="made")
    release = fpo.release(plan, tables, ledger=ledger, key="begun", what="begun only")
    assert release.entry == ledger.entries()[4]
    assert ledger.spent.hex() == SAID["ledger"]["spent"]
    assert ledger.stages()[5].state == "made"
    with pytest.raises(fp.KeyTaken, match="under the key 'survey' already"):
        fpo.release(plan, tables, ledger=ledger, key="survey")


def test_a_release_of_limited_records() -> None:
    release = fp.Release.read(FLAT / "release")
    said = SAID["release"]
    assert release.plan.digest == release.plan_digest == said["plan_digest"]
    for name in ("contributions", "limited", "rows", "seal", "noise_scale", "rho"):
        assert getattr(release, name) == said[name], name
    assert list(release.outside) == said["outside"]
    assert release.entry is not None
    assert release.entry.id == said["entry"]
    entry = next(e for e in SAID["ledger"]["entries"] if e["id"] == said["entry"])
    assert describe(release.entry) == entry
    for name, estimates in said["estimates"].items():
        assert release.estimates[name].ravel().tolist() == pytest.approx(estimates, abs=1e-6)


def test_a_counts_file_of_the_command_line(tmp_path: Path) -> None:
    said = SAID["counts"]
    tables = read_counts(FLAT / "counts.npz")
    for name in ("seal", "contributions", "person", "rows"):
        assert getattr(tables, name) == said[name]
    assert {"+".join(names): x.ravel().tolist() for names, x in tables.items()} == said["totals"]
    for name in ("spec.toml", "counts.npz"):
        shutil.copy(FLAT / name, tmp_path)
    ran = fitplug("release", tmp_path / "spec.toml", "--counts", tmp_path / "counts.npz")
    assert (ran.code, ran.err) == (0, "")
    released = fp.Release.read(tmp_path / "release")
    assert (released.seal, released.limited) == (said["seal"], "enforced")
