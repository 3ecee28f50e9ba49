"""Files of aggregates on the command line: weights, filters, and what is said of both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fitplug as fp
from fitplug.counts import describe_source_rows
from fitplug.errors import LedgerError
from fitplug_cli.render import read_counts
from fitplug_cli.spec import load_spec
from tests.helpers.command_line import fitplug

SECRET = 735173517

SPEC = """
[data]
path = "people.csv"
weight = "POP"
where = { SUMLEV = "040" }

[privacy]
unit = { records = 1 }

[domain]
STATE = ["01", "02", "72"]
SEX = ["1", "2"]

[[query]]
name = "by state"
STATE = "identity"
SEX = "identity"
std = 5.0

[[query]]
name = "total"
std = 3.0

[ledger]
path = "budget.db"
rho = 100.0
"""
PLAIN = SPEC.replace('weight = "POP"\nwhere = { SUMLEV = "040" }\n', "")


def make(folder: Path, spec: str = SPEC) -> Path:
    """As the Census Bureau publishes it: the same people at every level, and levels in one file."""
    rng = np.random.default_rng(0)
    counties = pd.DataFrame(
        [
            {"SUMLEV": "050", "STATE": state, "SEX": sex, "POP": int(rng.integers(0, 9000))}
            for state in ("01", "02", "72")
            for _ in range(20)
            for sex in "12"
        ]
    )
    states = counties.groupby(["STATE", "SEX"], as_index=False)["POP"].sum().assign(SUMLEV="040")
    places = pd.DataFrame({"SUMLEV": "160", "STATE": "01", "SEX": "1", "POP": [SECRET]})
    lines = pd.concat([places, states, counties, places])
    lines.assign(STUSAB="xx").to_csv(folder / "people.csv", index=False)
    (folder / "spec.toml").write_text(spec, encoding="utf-8")
    return folder / "spec.toml"


def exact(folder: Path, level: str = "040") -> Any:
    rows = pd.read_csv(folder / "people.csv", dtype={"SUMLEV": str, "STATE": str, "SEX": str})
    held = rows[rows["SUMLEV"] == level]
    return held.pivot_table(index="STATE", columns="SEX", values="POP", aggfunc="sum").to_numpy()


def test_from_a_file_of_aggregates_to_a_release(tmp_path: Path) -> None:
    spec = make(tmp_path)
    ran = fitplug("run", spec)
    assert ran.code == 0, ran.err
    said = 'each row counts POP times; only rows where SUMLEV is "040" are counted'
    assert f"rows counted  {said}" in ran.out
    assert str(SECRET) not in ran.out + ran.err
    release = fp.Release.load(tmp_path / "release")
    assert release.rows == said
    counts = exact(tmp_path)
    assert counts.sum() > 100_000
    assert np.abs(release.estimates["by state"] - counts).max() < 6 * 5
    assert abs(release.estimates["total"] - counts.sum()) < 6 * 3
    record = json.loads((tmp_path / "release" / "release.json").read_text())
    assert record["rows"] == said
    review = (tmp_path / "release" / "review.md").read_text()
    assert f"How rows were read: {said}." in review


def test_exact_counts_equal_those_of_pandas(tmp_path: Path) -> None:
    spec = make(tmp_path)
    ran = fitplug("count", spec)
    assert ran.code == 0, ran.err
    assert "rows counted  each row counts POP times" in ran.out
    tables = read_counts(tmp_path / "spec.counts.npz")
    np.testing.assert_array_equal(tables["STATE", "SEX"], exact(tmp_path))
    assert tables.rows == describe_source_rows(load_spec(spec).source)
    np.testing.assert_array_equal(exact(tmp_path), exact(tmp_path, "050"))
    ran = fitplug("release", spec, "--counts", tmp_path / "spec.counts.npz")
    assert ran.code == 0, ran.err


@pytest.mark.parametrize(
    "other",
    [
        PLAIN,
        SPEC.replace('"040"', '"050"'),
        SPEC.replace('where = { SUMLEV = "040" }\n', ""),
        SPEC.replace('weight = "POP"\n', ""),
    ],
)
def test_counts_of_other_rows_are_not_released(tmp_path: Path, other: str) -> None:
    assert fitplug("count", make(tmp_path)).code == 0
    (tmp_path / "other.toml").write_text(other)
    ran = fitplug("release", tmp_path / "other.toml", "--counts", tmp_path / "spec.counts.npz")
    assert ran.code == 2
    assert "differ in [data] weight or where. Count again" in ran.err
    assert not (tmp_path / "release").exists()
    assert not (tmp_path / "budget.db").exists()


def test_a_dry_run_says_how_rows_are_understood(tmp_path: Path) -> None:
    ran = fitplug("count", make(tmp_path), "--dry-run")
    assert ran.code == 0, ran.err
    assert "rows counted  each row counts POP times; only rows where SUMLEV is" in ran.out
    assert "aggregates" not in ran.out
    (tmp_path / "spec.toml").write_text(PLAIN)
    ran = fitplug("count", tmp_path / "spec.toml", "--dry-run")
    assert "rows counted  each row counts once\n" in ran.out
    hint = 'If each row stands for several people, set [data] weight = "POP". A survey'
    assert hint in ran.out
    many = SPEC.replace('"040"', str([f"{n:03}" for n in range(50)]))
    (tmp_path / "spec.toml").write_text(many)
    ran = fitplug("count", tmp_path / "spec.toml", "--dry-run")
    assert 'SUMLEV is "000", "001", "002" or one of 47 more are counted' in ran.out


def test_folders_that_are_not_read(tmp_path: Path) -> None:
    make(tmp_path, SPEC.replace("people.csv", "people/").replace('SUMLEV = "040"', 'year = "2020"'))
    for year in (2010, 2020):
        (tmp_path / "people" / f"year={year}").mkdir(parents=True)
        text = f"STATE,SEX,POP\n01,1,{year}\n72,2,7\n"
        (tmp_path / "people" / f"year={year}" / "a.csv").write_text(text)
    ran = fitplug("count", tmp_path / "spec.toml", "--dry-run")
    assert "1 CSV; 1 more in folders that the filter 'where' excludes" in ran.out
    assert fitplug("count", tmp_path / "spec.toml").code == 0
    tables = read_counts(tmp_path / "spec.counts.npz")
    assert tables["STATE", "SEX"].tolist() == [[2020, 0], [0, 0], [0, 7]]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"POP"', '"SEX"', "[data] column 'SEX' cannot be both the weight and an attribute"),
        ('"POP"', '""', r"\[data\] weight = '' String should have at least 1 character"),
        ('"POP"', '"POPP"', "has no column 'POPP' in its first line"),
        ("SUMLEV =", "SUMLEVEL =", "has no column 'SUMLEVEL' in its first line"),
        (
            '{ SUMLEV = "040" }',
            '{ POP = "040" }',
            r"\[data\] the filter 'where' cannot use the weight column 'POP'",
        ),
        (
            '{ SUMLEV = "040" }',
            "{ SUMLEV = [] }",
            r"\[data\] the filter 'where' lists no value of 'SUMLEV'",
        ),
        ('{ SUMLEV = "040" }', "{ SUMLEV = 4.0 }", "must be all strings"),
        (
            '{ SUMLEV = "040" }',
            '["040"]',
            r"\[data\] the filter 'where' must map column names to values",
        ),
        (
            "[data]",
            '[data]\nperson = "STUSAB"',
            r"\[data\] weight= and person= cannot be combined",
        ),
        ("weight =", "weights =", r"unknown key \[data\] weights. Did you mean 'weight'"),
    ],
)
def test_specs_that_are_wrong(tmp_path: Path, old: str, new: str, says: str) -> None:
    spec = make(tmp_path, SPEC.replace(old, new, 1))
    ran = fitplug("run", spec)
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1
    if not ran.err.startswith("fitplug: "):
        pytest.fail(ran.err)
    pattern = says if says.startswith("\\") else says.replace("[data]", r"\[data\]")
    assert pd.Series([ran.err]).str.contains(pattern, regex=True).all(), ran.err
    assert str(SECRET) not in ran.err
    assert not (tmp_path / "budget.db").exists()


def test_a_release_keeps_how_rows_were_understood(tmp_path: Path) -> None:
    domain = fp.Domain({"SEX": ["1", "2"]})
    plan = fp.design(fp.Workload(domain, [fp.marginal("SEX", std=3.0)]))
    columns = {"SEX": ["1", "2"], "POP": [10, 20]}
    weighted = fp.Tables.from_records(domain, columns, plan.tables, weights="POP")
    plain = fp.Tables.from_records(domain, columns, plan.tables)
    for tables in (weighted, plain):
        released = fp.release(plan, tables)
        assert released.rows == tables.rows
        folder = tmp_path / str(tables.rows is None)
        released.save(folder)
        assert fp.Release.load(folder).rows == tables.rows
        told = fp.review(released)["deployment"]["implementation"]
        text = told["preprocessing_and_hyperparameter_tuning"]
        assert ("counts POP times" in text) == (tables is weighted)


def test_free_releases_are_of_the_very_counts_that_were_charged(tmp_path: Path) -> None:
    """In the rows of another year, a person may be in another cell, and pay there too."""
    ran = fitplug("run", make(tmp_path), "--covered-by", "1")
    assert (
        ran.code,
        "with [data] weight or where, --covered-by needs the counts file" in ran.err,
    ) == (2, True)
    assert not (tmp_path / "release").exists()
    domain = fp.Domain({"SEX": ["1", "2"]})
    plan, less = (
        fp.design(fp.Workload(domain, [fp.queries({"SEX": row}, std=3.0)]))
        for row in ([[1, 0]], [[0, 1]])
    )
    ledger = fp.Ledger(tmp_path / "ledger.db", rho=1.0)
    columns = {"SEX": ["1", "2"], "YEAR": [2020, 2021]}
    first, again, other = (
        fp.Tables.from_records(domain, columns, plan.tables, where={"YEAR": year})
        for year in (2020, 2020, 2021)
    )
    fp.release(plan, first, ledger=ledger, key="first")
    for tables in (again, other):
        with pytest.raises(LedgerError, match="has another file of counts"):
            fp.release(less, tables, ledger=ledger, covered_by="first")
    assert len(ledger.entries()) == 1
    fp.release(less, first, ledger=ledger, covered_by="first")
    assert len(ledger.entries()) == 2


def test_a_new_spec_mentions_both(tmp_path: Path) -> None:
    make(tmp_path)
    assert fitplug("init", tmp_path / "people.csv", "--output", tmp_path / "new.toml").code == 0
    text = (tmp_path / "new.toml").read_text()
    assert '# weight = "..."' in text
    assert "# where = {" in text
