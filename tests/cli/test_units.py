"""The command line with [privacy] unit: what plans, counts, releases and ledgers are for."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fitplug as fp
from fitplug.domain import get_codec
from fitplug.workload import describe_apart
from fitplug_cli.render import read_counts
from fitplug_cli.spec import SpecError, load_spec
from tests.helpers.command_line import fitplug

SPEC = """
[data]
path = "people.parquet"
person = "PERSONID"

[domain]
SEX = ["1", "2"]
MONTH = { integers = [1, 12] }
STATE = ["A", "B"]

[[query]]
name = "monthly"
SEX = "identity"
MONTH = "identity"
std = 5.0

[privacy]
unit = { records = 3 }

[ledger]
path = "budget.db"
rho = 10

[output]
path = "release/"
"""
UNIT = "unit = { records = 3 }"
PERSON = 'person = "PERSONID"\n'


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    people = {
        "PERSONID": np.arange(500) // 5,
        "SEX": rng.choice(["1", "2"], 500),
        "MONTH": rng.integers(1, 13, 500),
        "STATE": rng.choice(["A", "B"], 500),
    }
    pq.write_table(pa.table(people), tmp_path / "people.parquet")
    path = tmp_path / "spec.toml"
    path.write_text(SPEC, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("written", "unit"),
    [
        ("unit = { records = 1 }", fp.AddRemove()),
        (UNIT, fp.AddRemove(3)),
        ("unit = { records = 3, distinct = true }", fp.AddRemove(3, distinct=True)),
        ('unit = { records = 12, once_per = "MONTH" }', fp.AddRemove(12, once_per="MONTH")),
        ("unit = { replace_one = [] }", fp.ReplaceOne()),
        ('unit = { replace_one = ["STATE"] }', fp.ReplaceOne(("STATE",))),
    ],
)
def test_units_are_read(spec: Path, written: str, unit: object) -> None:
    text = SPEC.replace(PERSON, "") if "STATE" in written else SPEC
    spec.write_text(text.replace(UNIT, written), encoding="utf-8")
    assert load_spec(spec).unit == unit


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("unit = {}", "[privacy] unit: the unit of privacy lacks the key 'records'"),
        ("unit = { records = 0 }", "must be an integer from 1 to 1000000, not 0"),
        (
            "unit = { record = 3 }",
            "the unit of privacy has the unknown key 'record'. Write, for example, { records = 3 }",
        ),
        ("unit = { records = 3, once_per = 1 }", "once_per must be the name of an attribute"),
        ('unit = { records = 3, once_per = "YEAR" }', "'YEAR'"),
        ('unit = { records = 3, once_per = "STATE" }', "must be an attribute that a query uses"),
        ('unit = { replace_one = "STATE" }', "replace_one must be a list of attribute names"),
        ('unit = { replace_one = ["YEAR"] }', "'YEAR'"),
        (
            'unit = { replace_one = ["STATE"] }',
            "replace_one = ['STATE'] and [data] person cannot be combined",
        ),
        ("unit = { records = 3, distinct = 1 }", "distinct must be True or False"),
    ],
)
def test_what_is_wrong_is_named(spec: Path, written: str, says: str) -> None:
    spec.write_text(SPEC.replace(UNIT, written), encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_spec(spec)
    message = str(caught.value)
    assert says in message
    assert message.startswith(f"{spec}: [privacy] unit")
    assert "\n" not in message


def test_a_run_enforces_the_unit_and_charges_for_it(spec: Path) -> None:
    ran = fitplug("run", spec)
    assert ran.code == 0, ran.err
    record = json.loads((spec.parent / "release/release.json").read_text())
    assert record["unit"] == {"records": 3}
    assert record["limited"] == "enforced"
    ledger = fp.Ledger(spec.parent / "budget.db")
    assert ledger.unit == fp.AddRemove(3)
    (entry,) = ledger.entries()
    # Each of the cells of sex and month may hold all three records.
    assert float(entry.rho) == pytest.approx(9 / (2 * 5.0**2), rel=1e-3)
    said = json.loads(fitplug("ledger", "show", spec.parent / "budget.db", "--json").out)
    assert said["unit"] == said["entries"][0]["unit"] == {"records": 3}


@pytest.mark.parametrize(
    ("unit", "kept"),
    [
        ("{ records = 3, distinct = true }", fp.AddRemove(3, distinct=True)),
        ('{ records = 4, once_per = "MONTH" }', fp.AddRemove(4, once_per="MONTH")),
    ],
)
def test_reviews_say_how_many_rows_a_person_has(spec: Path, unit: str, kept: fp.AddRemove) -> None:
    text = SPEC.replace(UNIT, f"unit = {unit}").replace('STATE = ["A", "B"]\n', "")
    spec.write_text(text, encoding="utf-8")
    assert fitplug("run", spec).code == 0
    review = (spec.parent / "release/review.md").read_text(encoding="utf-8")
    plan = fp.Plan.load(spec.parent / "release/plan.npz")
    apart = plan.bound_unit.apart
    assert apart.startswith(describe_apart(kept))
    most = f"at most {kept.records} rows per person{apart}"
    assert f"Counting kept {most}; further rows were left out" in review
    assert f"At most {kept.records} row(s) per person{apart}, are kept" in review
    record = json.loads((spec.parent / "release/release.json").read_text())
    assert record["population"].startswith(f"Counting kept {most}.")
    names = ["MONTH", "SEX"] if "distinct" in unit else ["MONTH"]
    assert str(plan.bound_unit) in record["neighbours"]
    cells = {name: get_codec(plan.domain[name]).digest for name in names}
    assert record["unit"]["cells"] == cells
    ledger = spec.parent / "budget.db"
    assert json.loads(fitplug("ledger", "show", ledger, "--json").out)["unit"] == record["unit"]
    exported = list(csv.DictReader(fitplug("ledger", "show", ledger, "--csv").out.splitlines()))
    assert json.loads(exported[0]["unit"]) == record["unit"]
    for text in (fitplug("ledger", "show", ledger).out, review):
        assert str(plan.bound_unit) in " ".join(text.split())
    assert fp.Release.load(spec.parent / "release").entry == fp.Ledger(ledger).entries()[0]


def test_rho_is_for_the_unit(spec: Path) -> None:
    text = SPEC.replace(UNIT, f"{UNIT}\nrho = 0.125")
    spec.write_text(text, encoding="utf-8")
    ran = fitplug("run", spec)
    assert ran.code == 0, ran.err
    assert 0.125 * (1 - 1e-9) < fp.Ledger(spec.parent / "budget.db").spent <= 0.125


def test_plans_and_counts_of_another_unit_are_refused(spec: Path) -> None:
    plan, counts = spec.parent / "plan.npz", spec.parent / "counts.npz"
    assert fitplug("design", spec, "--output", plan).code == 0
    assert fitplug("count", spec, "--plan", plan, "--output", counts).code == 0
    assert read_counts(counts).unit == fp.AddRemove(3)
    spec.write_text(SPEC.replace("records = 3", "records = 2"), encoding="utf-8")
    ran = fitplug("release", spec, "--plan", plan, "--counts", counts)
    assert ran.code == 2
    assert "unit of privacy" in ran.err
    ran = fitplug("release", spec, "--counts", counts)
    assert ran.code == 2
    assert "were counted for the unit of privacy" in ran.err


def test_a_ledger_shows_units_that_differ(spec: Path) -> None:
    path = spec.parent / "budget.db"
    ledger = fp.Ledger(path, rho=10, unit=fp.AddRemove(3))
    ledger.charge(1, what="preview")
    assert "each in a different cell" not in fitplug("ledger", "show", path).out
    domain = fp.Domain({"A": ["1", "2"], "B": ["1"]})
    ledger.charge(1, what="census", unit=fp.AddRemove(3, distinct=True), domain=domain)
    shown = fitplug("ledger", "show", path).out
    assert "at most 3, anywhere" in shown
    assert "unit: one person's rows" in " ".join(shown.split())


def test_a_run_where_records_are_replaced(spec: Path) -> None:
    text = SPEC.replace(UNIT, 'unit = { replace_one = ["SEX"] }').replace(PERSON, "")
    spec.write_text(text, encoding="utf-8")
    public = "This unit publishes the exact number of counted rows per SEX, without noise or protec"
    ran = fitplug("run", spec)
    assert ran.code == 0, ran.err
    before, after = ran.out.split("\nledger ")
    assert public in before  # while it can still be called off
    assert f"{public}tion. See public_totals in release.json." in after
    for command in (["design"], ["report"], ["count", "--dry-run"]):
        assert public in fitplug(*command, spec).out
    release = fp.Release.load(spec.parent / "release")
    assert public in release.plan.summary()
    assert public in release.plan._repr_html_()
    assert f"{public}tion. They are in release.public_totals." in release._repr_html_()
    assert release.plan.unit == fp.ReplaceOne(("SEX",))
    assert release.public_totals.sum() == 500
    ledger = fp.Ledger(spec.parent / "budget.db")
    assert ledger.unit == release.plan.unit
    assert release.entry == ledger.entries()[0]
    spec.write_text(SPEC.replace('path = "release/"', 'path = "other/"'), encoding="utf-8")
    ran = fitplug("run", spec)
    assert ran.code == 1
    assert "one row replaced by another of the same SEX" in ran.err
    assert "at most 3, anywhere" in ran.err


@pytest.mark.slow
def test_a_run_where_records_are_replaced_in_a_large_hierarchy(tmp_path: Path) -> None:
    codes = [f"{county:02}{tract:03}" for county in range(40) for tract in range(50 + county)]
    (tmp_path / "codes.csv").write_text("TRACT\n" + "\n".join(codes), encoding="utf-8")
    rng = np.random.default_rng(6)
    people = {
        "TRACT": rng.choice(codes, 5000).tolist(),
        "SEX": rng.choice(["1", "2"], 5000).tolist(),
    }
    pq.write_table(pa.table(people), tmp_path / "people.parquet")
    spec = tmp_path / "spec.toml"
    spec.write_text(
        """
ledger = false

[data]
path = "people.parquet"

[domain]
TRACT = { levels = { county = 2, tract = 5 }, codebook = "codes.csv", column = "TRACT" }
SEX = ["1", "2"]

[[query]]
name = "counties"
TRACT = "county"
SEX = "identity"
std = 3.0

[[query]]
name = "tracts"
TRACT = "tract"
std = 6.0

[privacy]
unit = { replace_one = [] }

[output]
path = "release/"
""",
        encoding="utf-8",
    )
    ran = fitplug("run", spec)
    assert ran.code == 0, ran.err
    release = fp.Release.load(tmp_path / "release")
    assert "siblings are alike in TRACT" in str(release.plan.strategy.structure)
    assert release.public_totals == 5000
    for name in ("counties", "tracts"):
        assert release.estimates[name].sum() == pytest.approx(5000, abs=1e-6)
