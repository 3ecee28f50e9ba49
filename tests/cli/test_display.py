"""`[output] display`: display tables beside the unbiased ones, for show, verify, report, review."""

from __future__ import annotations

import json

import pytest

import fitplug as fp
from tests.helpers.command_line import fitplug

ROWS = "sex,age\n" + "".join(f"{'fm'[k % 2]},{k % 5}\n" for k in range(40))

SPEC = """
[data]
path = "rows.csv"
[privacy]
unit = {{ records = 1 }}
[domain]
sex = ["f", "m"]
age = {{ integers = [0, 9] }}
[[query]]
name = "people"
sex = "identity"
age = "identity"
std = 3
[[query]]
name = "total"
std = 2
[ledger]
path = "budget.db"
rho = 10
[output]
path = "out"
display = {display}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "rows.csv").write_text(ROWS)
    return tmp_path


def write(folder, display):
    (folder / "spec.toml").write_text(SPEC.format(display=display))
    return folder / "spec.toml"


def test_they_are_written_shown_and_verified(folder):
    spec = write(folder, '{ totals = { total = 40, "people[age >= 5]" = 0 } }')
    assert "integers, biased; totals kept: 2" in fitplug("report", spec).out
    assert "totals kept: 2" in json.loads(fitplug("report", spec, "--json").out)["display"]
    fitplug("report", spec, "-o", folder / "report.html")
    assert "integers, biased; totals kept: 2" in (folder / "report.html").read_text()
    assert fitplug("run", spec).code == 0
    out = folder / "out"
    names = {path.name for path in out.iterdir()}
    assert {"people.parquet", "people.display.parquet", "people.display.csv"} <= names
    assert {"total.parquet", "total.display.parquet", "total.csv", "display.json"} <= names
    manifest = json.loads((out / "display.json").read_text())
    assert manifest["biased"] is True
    assert manifest["totals"] == {"total": 40, "people[age >= 5]": 0}
    assert "display.json" in json.loads((out / "release.json").read_text())["files"]
    assert "They are biased" in (out / "review.md").read_text()
    plain = fitplug("show", out)
    assert "--display shows them" in plain.out
    rows = json.loads(fitplug("show", out, "people", "--display", "--json").out)["tables"][0][
        "rows"
    ]
    assert sum(row["display"] for row in rows) == 40
    assert not any(row["display"] or row["upper"] for row in rows if row["age"] >= 5)
    assert "display" in fitplug("show", out, "people", "--display").out
    assert fitplug("show", out, "people", "--display", "--csv").out.startswith('"sex","age","displ')
    assert "follow from the answers" in fitplug("verify", out).out
    edited = out / "people.display.csv"
    edited.write_text(edited.read_text().replace("0", "1"))
    failed = fitplug("verify", out)
    assert failed.code == 1
    assert "differs from the display table" in failed.out


def test_parts(folder):
    spec = write(folder, "true\nparts = true")
    assert fitplug("run", spec).code == 0
    assert (folder / "out" / "people.display.csv").exists()
    assert "follow from the answers" in fitplug("verify", folder / "out").out


@pytest.mark.parametrize(
    ("display", "says"),
    [
        ("{ totals = { totl = 40 } }", "[output] display: expression 'totl'"),
        ("{ totals = { total = -1 } }", "add up to the given totals"),
        ('{ totals = { total = 3, "people[sex = f]" = 4 } }', "add up to the given totals"),
        ("{ total = 40 }", "display"),
    ],
)
def test_totals_are_refused_before_the_charge(folder, display, says):
    spec = write(folder, display)
    failed = fitplug("run", spec)
    assert failed.code == 2
    assert says in failed.err
    assert not (folder / "out").exists()


def test_releases_without_them(folder):
    assert fitplug("run", write(folder, "false")).code == 0
    assert "display" not in fitplug("show", folder / "out").out
    failed = fitplug("show", folder / "out", "--display")
    assert failed.code == 2
    assert "no display tables. Set [output] display = true" in failed.err


@pytest.mark.parametrize("counted", [False, True])
def test_python_writes_the_folder_of_the_command_line(folder, counted):
    spec = write(folder, "{ totals = { total = 40 } }")
    assert fitplug("run", spec).code == 0
    out, again = folder / "out", folder / "again"
    plan = fp.Plan.load(out / "plan.npz")
    data = fp.count(folder / "rows.csv", plan) if counted else folder / "rows.csv"
    ledger = fp.Ledger(folder / "epsilon.db", epsilon=9, delta=1e-6)
    about = fp.About(name="Forty people")
    fp.release(plan, data, again, ledger=ledger, display={"total": 40}, about=about)
    assert list_files(again) == list_files(out)
    first, second = (json.loads((one / "release.json").read_text()) for one in (out, again))
    assert second.keys() == first.keys()
    assert second["delta"] == 1e-6
    assert "Forty people" in (again / "review.md").read_text()
    assert fitplug("verify", again, "--ledger", folder / "epsilon.db").code == 0
    edited = again / "people.csv"
    edited.write_text(edited.read_text().replace("3", "4"))
    assert fitplug("verify", again).code == 1


def list_files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_saved_release_verifies_without_csv_tables(folder):
    domain = fp.Domain({"sex": ["f", "m"], "age": fp.Integers(0, 9)})
    plan = fp.design(fp.Workload(domain, [fp.total(std=2)]), unit=fp.AddRemove())
    release = fp.release(plan, folder / "rows.csv")
    release.save(folder / "saved")
    assert "release.json agrees" in fitplug("verify", folder / "saved").out


def test_python_refuses_display_tables_before_the_charge(folder):
    domain = fp.Domain({"sex": ["f", "m"], "age": fp.Integers(0, 9)})
    plan = fp.design(fp.Workload(domain, [fp.total(std=2)]), unit=fp.AddRemove())
    ledger = fp.Ledger(folder / "budget.db", rho=1)
    for data in (folder / "rows.csv", fp.count(folder / "rows.csv", plan)):
        with pytest.raises(fp.WorkloadError, match="add up to the given totals"):
            fp.release(plan, data, folder / "out", ledger=ledger, display={"total": -1})
        with pytest.raises(fp.InputError, match="display= needs folder="):
            fp.release(plan, data, ledger=ledger, display=True)
    assert ledger.spent == 0
    assert not (folder / "out").exists()
