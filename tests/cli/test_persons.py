"""The command line with [data] person: rows limited, and counts made without refused."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fitplug as fp
from fitplug_cli.render import read_counts
from tests.helpers.command_line import fitplug

SPEC = """
ledger = false

[data]
path = "people.parquet"
person = "PERSONID"

[privacy]
unit = { records = 2 }

[domain]
SEX = ["1", "2"]

[[query]]
name = "sex"
SEX = "identity"
std = 5.0

[output]
path = "release/"
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    people = {"PERSONID": np.arange(500) // 5, "SEX": rng.choice(["1", "2"], 500)}
    pq.write_table(pa.table(people), tmp_path / "people.parquet")
    path = tmp_path / "spec.toml"
    path.write_text(SPEC, encoding="utf-8")
    return path


def test_run_charges_for_the_rows_it_keeps(spec: Path) -> None:
    ran = fitplug("run", spec)
    assert ran.code == 0, ran.err
    assert json.loads((spec.parent / "release/release.json").read_text())["unit"] == {"records": 2}


def test_counts_files_say_what_was_enforced(spec: Path) -> None:
    counts = spec.parent / "counts.npz"
    assert fitplug("count", spec, "--output", counts).code == 0
    tables = read_counts(counts)
    assert tables.unit == fp.AddRemove(2)
    assert tables["SEX",].sum() == 2 * 100
    assert fitplug("release", spec, "--counts", counts).code == 0
    spec.write_text(SPEC.replace("records = 2", "records = 1"), encoding="utf-8")
    shutil.rmtree(spec.parent / "release")
    ran = fitplug("release", spec, "--counts", counts)
    assert ran.code == 2
    assert "were counted for the unit of privacy" in ran.err


def test_a_key_of_two_columns(spec: Path) -> None:
    counts, person = spec.parent / "counts.npz", np.arange(500) // 5
    table = pq.read_table(spec.parent / "people.parquet")
    for name, part in {"HOUSE": person // 3, "LINE": person % 3}.items():
        table = table.append_column(name, pa.array(part))
    pq.write_table(table, spec.parent / "people.parquet")
    spec.write_text(SPEC.replace('"PERSONID"', '["HOUSE", "LINE"]'), encoding="utf-8")
    assert fitplug("count", spec, "--output", counts).code == 0
    tables = read_counts(counts)
    assert tables.person == ("HOUSE", "LINE")
    assert tables["SEX",].sum() == 2 * 100
    assert fitplug("release", spec, "--counts", counts).code == 0
    spec.write_text(SPEC.replace('"PERSONID"', '["LINE", "HOUSE"]'), encoding="utf-8")
    shutil.rmtree(spec.parent / "release")
    ran = fitplug("release", spec, "--counts", counts)
    assert ran.code == 2
    assert "differ in [data] person. Count again" in ran.err
    spec.write_text(SPEC.replace('"PERSONID"', '["HOUSE", "SEX"]'), encoding="utf-8")
    assert "person = 'SEX' must not be an attribute of a query" in fitplug("run", spec).err


def test_counts_made_without_persons_are_refused(spec: Path) -> None:
    counts = spec.parent / "counts.npz"
    spec.write_text(SPEC.replace('person = "PERSONID"', ""), encoding="utf-8")
    assert fitplug("count", spec, "--output", counts).code == 0
    spec.write_text(SPEC, encoding="utf-8")
    ran = fitplug("release", spec, "--counts", counts)
    assert ran.code == 2
    assert "differ in [data] person. Count again" in ran.err


def test_a_column_of_persons_that_is_not_there(spec: Path) -> None:
    spec.write_text(SPEC.replace("PERSONID", "PERSON"), encoding="utf-8")
    ran = fitplug("run", spec)
    assert ran.code == 2
    assert "has no column 'PERSON'. Did you mean 'PERSONID'?" in ran.err


def test_a_column_of_persons_that_a_csv_has_by_another_name(tmp_path: Path) -> None:
    """The name is quoted only if other columns of the count show that the line is a header."""
    spec, data = tmp_path / "spec.toml", tmp_path / "a.csv"
    spec.write_text(SPEC.replace("PERSONID", "PERSN").replace("people.parquet", "a.csv"))
    for header, says in {
        "SEX,AGE,PERSON": "Did you mean 'PERSON'?",
        "SEX,AGE,NUMBER": "Check the spelling, the separator (comma) and the encoding (UTF-8).",
    }.items():
        data.write_text(f"{header}\n1,2,3\n")
        ran = fitplug("count", spec)
        assert ran.code == 2
        assert f"a.csv has no column 'PERSN' in its first line. {says}\n" in ran.err
        assert "NUMBER" not in ran.err


def test_persons_are_not_queried(spec: Path) -> None:
    spec.write_text(SPEC.replace("PERSONID", "SEX"), encoding="utf-8")
    ran = fitplug("run", spec)
    assert ran.code == 2
    assert "[data] person = 'SEX' must not be an attribute of a query" in ran.err


def test_an_empty_name(spec: Path) -> None:
    spec.write_text(SPEC.replace("PERSONID", ""), encoding="utf-8")
    ran = fitplug("run", spec)
    assert ran.code == 2
    assert "[data] person must be a column name" in ran.err


def test_one_counts_file_carries_several_releases(spec: Path) -> None:
    """Women are covered by the charge for men, from the very file that was charged alone."""
    ledger = '\n[ledger]\npath = "budget.db"\nrho = 1.0\n'
    charged = SPEC.replace("ledger = false", "") + ledger
    men = charged.replace('SEX = "identity"', "SEX = [[1, 0]]")
    women = charged.replace('SEX = "identity"', "SEX = [[0, 1]]")
    spec.write_text(men, encoding="utf-8")
    other = spec.with_name("women.toml")
    other.write_text(women.replace('"release/"', '"women/"'), encoding="utf-8")
    counts, recount = spec.parent / "counts.npz", spec.parent / "again.npz"
    for path in (counts, recount):
        assert fitplug("count", spec, "--output", path).code == 0
    assert fitplug("release", spec, "--counts", counts, "--key", "men").code == 0
    before = fp.Ledger(spec.parent / "budget.db").spent
    for command in (["run", other], ["release", other, "--counts", recount]):
        ran = fitplug(*command, "--covered-by", "men")
        assert ran.code != 0
        assert re.search("the counts file of (that|the earlier) release", ran.err)
    assert not (spec.parent / "women").exists()
    ran = fitplug("release", other, "--counts", counts, "--covered-by", "men")
    assert (ran.code, ran.err) == (0, "")
    assert "covered by charge 1," in ran.out
    assert fp.Ledger(spec.parent / "budget.db").spent == before
