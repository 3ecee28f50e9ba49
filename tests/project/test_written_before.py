"""Plan files that earlier versions wrote are still read, and say what they said then.

`written_by_0.1` is of version 0.1. `written_before_the_house` is of the last version whose core was
one flat package, with a plan of every structure and format. `written_with_trees` is of the first
version with format 6. The nodes that a tree's plan has matrices for follow from its workload and
the constants of `fitplug.structure.node_tree`, so another rule for them would lose old plans.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import fitplug as fp
from fitplug.structure import ResidualStructure
from tests.helpers.places import DATA

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
