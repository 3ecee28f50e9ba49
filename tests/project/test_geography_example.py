"""The example in examples/geography, with few states: its codes, its people and its release."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys

import duckdb
import numpy as np
import pytest

import fitplug as fp
from fitplug_cli.spec import load_spec
from tests.helpers.command_line import fitplug
from tests.helpers.places import EXAMPLES

EXAMPLE = EXAMPLES / "geography"
STATES = ("01", "10", "11")  # Alabama, Delaware and the District of Columbia


def read_counties():
    with (EXAMPLE / "counties.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A copy of the example with the counties and people of a few states."""
    examples = tmp_path_factory.mktemp("examples")
    shutil.copytree(EXAMPLES / "acs" / "people", examples / "acs" / "people")
    made = shutil.ignore_patterns("people", "release", "release-*", "*.db*")
    copy = shutil.copytree(EXAMPLE, examples / "geography", ignore=made)
    with (copy / "counties.csv").open("w", newline="", encoding="utf-8") as file:
        rows = [row for row in read_counties() if row["FIPS"][:2] in STATES]
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    subprocess.run([sys.executable, copy / "make_people.py", copy / "people"], check=True)
    return copy


def count(folder, columns, condition="true"):
    people = f"read_parquet('{folder}/people/*.parquet')"
    sql = f"select {columns}, sum(PEOPLE) from {people} where {condition} group by all order by all"
    return duckdb.sql(sql).fetchall()


def test_counties_are_those_of_the_census_bureau():
    counties = read_counties()
    codes = [row["FIPS"] for row in counties]
    assert codes == sorted(set(codes))
    assert all(len(code) == 5 and code.isdigit() for code in codes)
    # 3,142 counties and equivalents in 2019, and the published estimate of the resident population.
    assert len(codes) == 3142
    assert len({code[:2] for code in codes}) == len({row["state"] for row in counties}) == 51
    assert sum(int(row["population"]) for row in counties) == 328_239_523


def test_the_readme_lists_the_tables_and_their_targets():
    readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    for group in load_spec(EXAMPLE / "release.toml").workload.groups:
        assert f"| {group.name} | {group.size:,} | {float(group.target.value):g} |" in readme


def test_every_county_has_its_people(folder):
    with (folder / "counties.csv").open(newline="", encoding="utf-8") as file:
        published = [(row["FIPS"], int(row["population"])) for row in csv.DictReader(file)]
    assert count(folder, "COUNTY") == published


def test_every_row_is_in_the_domain(folder):
    domain = load_spec(folder / "release.toml").workload.domain
    for name in ("SEX", "RACE", "HISPANIC", "COUNTY"):
        values = [value for value, _ in count(folder, name)]
        assert set(values) <= set(domain[name].values)
    assert {age for age, _ in count(folder, "AGE")} <= set(range(86))


BROAD = (0, 18, 30, 65, 86)
SINGLE = tuple(range(87))


@pytest.mark.parametrize("ages", [BROAD, pytest.param(SINGLE, marks=pytest.mark.long)], ids=len)
def test_the_release_is_near_the_counts_at_every_level(folder, ages):
    spec = (folder / "release.toml").read_text()
    if ages == BROAD:  # single years take ten seconds
        spec = spec.replace("integers = [0, 85]", f"bins = {list(BROAD)}")
        spec = spec.replace("[[18, 85]]", "[[18, 86]]")
    (folder / "chosen.toml").write_text(spec.replace("release/", f"release-{len(ages)}/"))
    said = fitplug("run", str(folder / "chosen.toml"))
    assert said.code == 0, said
    release = fp.Release.load(folder / f"release-{len(ages)}")
    plan = fp.Plan.load(folder / f"release-{len(ages)}" / "plan.npz")
    assert plan.gap < 0.02
    pyramid = np.zeros((2, 86))
    for sex, age, number in count(folder, "SEX, AGE"):
        pyramid["12".index(sex), age] = number
    exact = {
        "state population": [number for _, number in count(folder, "COUNTY[:2]")],
        "county population": [number for _, number in count(folder, "COUNTY")],
        "county adults": [number for _, number in count(folder, "COUNTY", "AGE >= 18")],
        "national pyramid": pyramid.cumsum(axis=1)[:, np.array(ages[1:]) - 1].ravel(),
    }
    for name, answers in exact.items():
        off = release.estimates[name].ravel() - np.array(answers, dtype=float)
        assert (np.abs(off) < 6 * np.sqrt(release.variances[name].ravel())).all()
