"""What was spent is not forgotten: a ledger that is gone, or that is begun, is told."""

from __future__ import annotations

import shutil

import pytest

import fitplug as fp
from tests.helpers.command_line import COST, SPEC, fitplug, make, tree


def test_a_ledger_that_is_begun_is_told_once(tmp_path):
    spec = make(tmp_path)
    began = f"{tmp_path / 'budget.db'} (new): rho = "
    first = fitplug("run", spec)
    assert (first.code, first.err) == (0, "")
    assert began in first.out
    assert began not in fitplug("run", spec, "--again", "--replace").out
    assert len(fp.Ledger(tmp_path / "budget.db").entries()) == 2


@pytest.mark.parametrize("options", [[], ["--replace"], ["--again"]])
def test_a_release_whose_ledger_is_gone_is_not_followed_by_another(tmp_path, options):
    spec = make(tmp_path)
    assert fitplug("run", spec).code == 0
    kept = tmp_path / "kept.db"
    (tmp_path / "budget.db").rename(kept)
    before = tree(tmp_path)
    ran = fitplug("run", spec, *options)
    assert ran.code == 2
    assert (
        f"budget.db does not exist, but {tmp_path / 'release'} holds a release that was" in ran.err
    )
    assert "charged to a ledger as charge 1. Restore the ledger" in ran.err
    assert tree(tmp_path) == before
    kept.rename(tmp_path / "budget.db")
    assert fitplug("run", spec, "--again", "--replace").code == 0
    assert len(fp.Ledger(tmp_path / "budget.db").entries()) == 2


def test_a_release_that_was_charged_to_no_ledger_may_be_followed_by_one(tmp_path):
    free = "ledger = false\n" + SPEC[: SPEC.index("[ledger]")] + SPEC[SPEC.index("[output]") :]
    spec = make(tmp_path, free)
    assert fitplug("run", spec).code == 0
    spec.write_text(SPEC)
    ran = fitplug("run", spec, "--replace")
    assert ran.code == 0
    assert "The earlier release cost rho = 0.0853" in ran.err
    assert "which no ledger records. Enter this cost with Ledger.charge in Python." in ran.err


@pytest.mark.parametrize("parts", ["", "parts = true\n"])
def test_without_a_ledger_no_plan_is_drawn_twice_into_a_place(tmp_path, parts):
    """Nothing would count the draws: three of one plan could be averaged, and cost three rho."""
    free = (
        "ledger = false\n" + SPEC[: SPEC.index("[ledger]")] + SPEC[SPEC.index("[output]") :] + parts
    )
    spec = make(tmp_path, free)
    ran = fitplug("run", spec)
    assert ran.code == 0
    assert "none (ledger = false): rho = 0.0853" in ran.out
    counts = tmp_path / "counts.npz"
    assert fitplug("count", spec, "--output", counts).code == 0
    before = tree(tmp_path)
    for command in (["run", spec], ["release", spec, "--counts", counts]):
        for option, says in {
            "": "already holds a release",
            "--replace": "--replace needs a ledger. Add [ledger]",
            "--again": "--again needs a ledger",
        }.items():
            ran = fitplug(*command, *option.split())
            assert ran.code == 2
            assert says in ran.err
            assert tree(tmp_path) == before


def test_publish_replaces_nothing_without_a_ledger(tmp_path):
    domain = fp.Domain({"a": ["x", "y"]})
    plan = fp.design(fp.Workload(domain, [fp.marginal("a", std=1.0)]))
    tables = fp.Tables(domain, {("a",): [3, 4]})
    fp.release(plan, tables, tmp_path / "out")
    before = tree(tmp_path)
    for again, says in (({}, "already holds a release"), ({"replace": True}, "Add ledger=")):
        with pytest.raises(fp.errors.InputError, match=says):
            fp.release(plan, tables, tmp_path / "out", **again)
        assert tree(tmp_path) == before


def test_a_release_folder_that_is_gone_is_told(tmp_path):
    spec = make(tmp_path)
    assert fitplug("run", spec).code == 0
    there = fitplug("run", spec)
    assert there.code == 3
    assert "is gone" not in there.err
    shutil.rmtree(tmp_path / "release")
    gone = fitplug("run", spec)
    assert gone.code == 3
    assert f"in {tmp_path / 'release'} (the folder is gone; restore it from a copy" in gone.err
    assert len(fp.Ledger(tmp_path / "budget.db").entries()) == 1


def test_a_report_tells_that_the_ledger_has_too_little(tmp_path):
    spec = make(tmp_path, SPEC.replace("rho = 100.0", "rho = 0.1"))
    assert fitplug("report", spec).err == ""
    ledger = fp.Ledger(tmp_path / "budget.db", rho=0.1)
    ledger.charge(0.05, what="earlier")
    told = fitplug("report", spec)
    assert told.code == 0
    assert f"the ledger {tmp_path / 'budget.db'} has 0.05 left." in told.err
    assert "--max-rho 0.05` shows how" in told.err
    assert str(COST)[:5] in told.err
    relaxed = fitplug("report", spec, "--max-rho", "0.05")
    assert relaxed.code == 3
    assert "multiply every std and moe by" in relaxed.out
    assert "warning" not in relaxed.err
    assert ledger.spent == 0.05


def test_a_report_compares_with_the_whole_budget_before_there_is_a_ledger(tmp_path):
    spec = make(tmp_path, SPEC.replace("rho = 100.0", "rho = 0.01"))
    told = fitplug("report", spec)
    assert told.code == 0
    assert "has 0.01 left." in told.err
    assert not (tmp_path / "budget.db").exists()
