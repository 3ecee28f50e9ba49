"""Commands that read what was made: show, compare and verify."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import fitplug as fp
from fitplug.plan import price_groups
from tests.helpers.command_line import SPEC, fitplug, make


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("show")
    assert fitplug("run", make(root)).code == 0
    assert fitplug("design", root / "spec.toml", "-o", root / "spec.plan.npz").code == 0
    return root


@pytest.fixture(scope="module")
def other(root) -> Path:
    other = root / "other.toml"
    other.write_text(SPEC.replace("std = 5.0", "std = 10.0").replace('"total"', '"all"'))
    return other


class TestShow:
    def test_the_first_rows_of_every_table(self, root):
        ran = fitplug("show", root / "release")
        assert (ran.code, ran.err) == (0, "")
        for words in (
            "rho = 0.0853",
            "one row added or removed",
            "ages: rows, intervals at 95",
        ):
            assert words in ran.out
        assert "0..4" in ran.out
        assert "0..5" not in ran.out
        assert "... and 7 more" in ran.out

    def test_what_is_in_no_table(self, root):
        said = fitplug("show", root / "release").out
        assert re.search("not counted +rows with a value of SEX.* that is missing or", said)

    def test_a_table_in_full(self, root):
        ran = fitplug("show", root / "release", "ages")
        assert len(ran.out.splitlines()) == 3 + 2 + 12
        assert " more\n" not in ran.out

    def test_csv_is_that_of_the_folder(self, root):
        ran = fitplug("show", root / "release", "ages", "--csv")
        assert ran.out == (root / "release" / "ages.csv").read_text()

    def test_json_has_all_digits(self, root):
        said = json.loads(fitplug("show", root / "release", "--json").out)
        release = fp.Release.load(root / "release")
        assert said["rho"] == release.rho
        assert said["unit"] == {"records": 1}
        assert [table["name"] for table in said["tables"]] == ["ages", "income", "total"]
        for table in said["tables"]:
            assert table["rows"] == release.to_arrow(table["name"]).to_pylist()
        assert said["tables"][1]["confidence"] == 0.9

    def test_refusals(self, root):
        for arguments, says in (
            (["agess"], "no table 'agess'. Did you mean 'ages'?"),
            (["--csv"], "--csv needs the name of a TABLE"),
            (["ages", "--csv", "--json"], "cannot be combined with --json"),
        ):
            ran = fitplug("show", root / "release", *arguments)
            assert ran.code == 2
            assert says in ran.err


class TestCompare:
    def test_a_table(self, root, other):
        ran = fitplug("compare", root / "spec.plan.npz", other)
        assert (ran.code, ran.err) == (0, "")
        assert max(map(len, ran.out.splitlines())) < 120
        for words in ("epsilon at delta 1e-9", "std 10", "moe 9 at 90%", "one row added"):
            assert words in ran.out

    def test_json(self, root, other):
        said = json.loads(fitplug("compare", root / "spec.toml", other, "--json").out)
        plan = fp.Plan.load(root / "spec.plan.npz")
        assert said["a"]["plan_digest"] == plan.digest
        assert said["a"]["prices"] == price_groups(plan)
        assert said["rho_ratio"] == said["b"]["rho"] / said["a"]["rho"] < 1
        assert list(said["b"]["prices"]) == ["ages", "income", "all"]

    def test_a_release_has_its_plan(self, root, other):
        plan = root / "spec.plan.npz"
        shown = [fitplug("compare", path, other) for path in (root / "release", plan)]
        assert [ran.code for ran in shown] == [0, 0]
        assert shown[0].out.splitlines()[1:] == shown[1].out.splitlines()[1:]
        assert fitplug("report", root / "release").out == fitplug("report", plan).out
        ran = fitplug("compare", root / "people", other)
        assert ran.code == 2
        assert "contains no plan. Give a spec, a plan file or a release." in ran.err

    def test_units_that_differ(self, root):
        other = root / "three.toml"
        other.write_text(SPEC.replace("records = 1", "records = 3"))
        ran = fitplug("compare", root / "spec.toml", other)
        assert ran.code == 0
        assert ran.err.startswith("warning: The plans protect different units of privacy")


class TestVerify:
    @pytest.mark.parametrize("name", ["release", "budget.db", "spec.plan.npz"])
    def test_what_holds(self, root, name):
        ran = fitplug("verify", root / name)
        assert (ran.code, ran.err) == (0, "")
        assert "FAILED" not in ran.out

    def test_a_release_and_its_charge(self, root):
        ran = fitplug("verify", root / "release", "--ledger", root / "budget.db")
        assert ran.code == 0
        assert "charge 1 is for this release" in ran.out
        said = json.loads(fitplug("verify", root / "release", "--json").out)
        assert said["holds"] is True
        assert [check["what"] for check in said["checks"]] == ["release", "files", "plan"]

    def test_an_edited_table(self, root, tmp_path):
        copy = shutil.copytree(root / "release", tmp_path / "copy")
        (path,) = (copy / "total.parquet").iterdir()
        table = pq.read_table(path)
        pq.write_table(table.set_column(0, "estimate", [[1.0]]), path)
        self.check_fails(copy)

    @pytest.mark.parametrize("name", ["ages.csv", "release.json"])
    def test_an_edited_file_of_the_command_line(self, root, tmp_path, name):
        copy = shutil.copytree(root / "release", tmp_path / "copy")
        text = (copy / name).read_text()
        (copy / name).write_text(text.replace("1", "2"))
        assert fitplug("verify", root / "release").code == 0
        self.check_fails(copy)

    def test_a_missing_table(self, root, tmp_path):
        copy = shutil.copytree(root / "release", tmp_path / "copy")
        (copy / "ages.csv").unlink()
        self.check_fails(copy)

    def test_an_edited_ledger(self, root, tmp_path):
        copy = tmp_path / "copy.db"
        copy.write_bytes((root / "budget.db").read_bytes().replace(b"spec.toml:", b"speck.toml"))
        self.check_fails(copy)

    def test_another_ledger(self, root, tmp_path):
        fp.Ledger(tmp_path / "other.db", rho=1.0)
        ran = fitplug("verify", root / "release", "--ledger", tmp_path / "other.db")
        assert ran.code == 1
        assert "other.db is not for this release" in ran.out

    def test_what_cannot_be_verified(self, root, tmp_path):
        for path in (tmp_path / "none", root / "spec.toml"):
            assert fitplug("verify", path).code == 2

    def check_fails(self, path):
        ran = fitplug("verify", path, "--json")
        assert ran.code == 1
        assert json.loads(ran.out)["holds"] is False
        ran = fitplug("verify", path)
        assert ran.code == 1
        assert "FAILED" in ran.out


def test_a_ledger_as_a_page(root):
    ran = fitplug("ledger", "show", root / "budget.db", "--html")
    assert ran.code == 0
    assert ran.out.startswith("<!doctype html>")
    assert "spec.toml: ages, income, total" in ran.out
    ledger = fp.Ledger(root / "budget.db")
    assert ledger._repr_html_() in ran.out
    assert repr(ledger).endswith(" of 100 spent)")
    rows = list(csv.DictReader(io.StringIO(fitplug("ledger", "show", ledger.path, "--csv").out)))
    assert len(rows) == 1


@pytest.mark.parametrize("command", [["count"], ["count", "--dry-run"], ["ledger", "init"]])
def test_every_command_has_json(tmp_path, command):
    spec = make(tmp_path)
    arguments = [tmp_path / "new.db", "--rho", "1"] if command[0] == "ledger" else [spec]
    ran = fitplug(*command, *arguments, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert isinstance(json.loads(ran.out), dict)
