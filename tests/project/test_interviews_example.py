"""The example in examples/interviews: its tables of costs and of interviews kept, and its release.

The counts are DuckDB's, of the same file.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path
from types import ModuleType

import duckdb
import numpy as np
import pytest

import fitplug as fp
from fitplug_cli.spec import load_spec
from tests.helpers.command_line import fitplug
from tests.helpers.places import EXAMPLES
from tests.helpers.sources import count_rows

EXAMPLE = EXAMPLES / "interviews"
ROWS = EXAMPLE / "interviews.parquet"


def count(sql: str) -> list[tuple]:
    return duckdb.sql(sql.format(rows=f"read_parquet('{ROWS}')")).fetchall()


def load_script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLE / f"{name}.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


@pytest.fixture(scope="module")
def compare() -> ModuleType:
    return load_script("compare")


@pytest.fixture(scope="module")
def told() -> dict[str, list[str]]:
    """The cells of the README's table of units, by its first column."""
    readme = (EXAMPLE / "README.md").read_text(encoding="utf-8").replace("**", "")
    table = readme[readme.index("| rows per woman") :]
    lines = table[: table.index("\n\n")].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {name: cells for name, *cells in rows}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example with both of its releases."""
    made = shutil.ignore_patterns("release", "three", "*.db*", "__pycache__")
    place = shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("example") / "copy", ignore=made)
    for spec in ("release.toml", "three.toml"):
        ran = fitplug("run", place / spec)
        assert ran.code == 0, ran.err
    return place


def count_kept(limit: int) -> int:
    """Count the interviews of the domain of which each woman keeps at most so many."""
    by_woman = "select count(*) n from {rows} where INDUSTRY is not null group by PERSON"
    return int(count(f"select sum(least(n, {limit})) from ({by_woman})")[0][0])


def test_the_rows_are_those_that_the_readme_describes() -> None:
    sql = "select count(*), count(distinct PERSON), count(*) - count(INDUSTRY) from {rows}"
    assert count(sql) == [(18_716, 4_018, 142)]
    # The survey has one interview a year, so that the unit of the example leaves nothing out.
    assert not count("select 1 from {rows} group by PERSON, YEAR having count(*) > 1")


def test_the_domain_is_that_of_the_code_book() -> None:
    prepare = load_script("prepare")
    for name in ("release.toml", "three.toml"):
        workload = load_spec(EXAMPLE / name).workload
        assert tuple(workload.domain["INDUSTRY"].values) == prepare.INDUSTRIES
        assert tuple(workload.domain["RACE"].values) == tuple(prepare.RACES.values())
    assert prepare.read_year({"year": "88"}) == workload.domain["YEAR"].values[-1]
    assert prepare.read_industry({"ind_code": "4.0"}) == "manufacturing"
    assert prepare.read_industry({"ind_code": ""}) is None


def test_the_readme_lists_the_tables_and_their_targets() -> None:
    readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    for group in load_spec(EXAMPLE / "release.toml").workload.groups:
        assert f"| {group.name} | {group.size} | std {float(group.target.value):g} |" in readme


@pytest.mark.slow
def test_the_readme_tells_what_the_units_cost(
    compare: ModuleType, told: dict[str, list[str]], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another processor may find a plan that differs within the tolerance of the design."""
    assert list(told) == list(compare.UNITS)
    compare.main(str(place / "release" / "plan.npz"))
    heading, *lines = capsys.readouterr().out.splitlines()
    assert " ".join(heading.split()) == "rows per woman rho of one row epsilon gap"
    for name, line in zip(compare.UNITS, lines, strict=True):
        *costs, gap = line.removeprefix(name).split(maxsplit=3)
        assert float(gap.removesuffix("%")) <= 0.2
        for cost, said, unit in zip(costs, told[name][1:4], (1e-4, 0.1, 0.01), strict=True):
            assert float(cost.removesuffix("x")) == pytest.approx(float(said), rel=2e-3, abs=unit)


def test_the_readme_tells_how_many_interviews_are_kept(
    compare: ModuleType, told: dict[str, list[str]]
) -> None:
    workload = load_spec(EXAMPLE / "release.toml").workload
    by_year = ("YEAR", "INDUSTRY")
    for name, unit in compare.UNITS.items():
        limit = int(name.split()[0].strip(","))
        assert told[name][4] == f"{count_kept(limit):,}"
        words = str(told[name][0].strip("`"))
        assert words == describe_call(unit)
        options = {"unit": unit} if limit > 1 else {"unit": fp.AddRemove(1)}
        tables = count_rows(fp.Source(ROWS, person="PERSON"), workload, **options)
        assert int(tables.marginal(by_year).sum()) == count_kept(limit)


def describe_call(unit: object) -> str:
    """Describe the call that makes a unit, without what is left out."""
    call = re.sub(r", distinct=False|, once_per=None|records=1\b|within=\(\)", "", repr(unit))
    return "fp." + re.sub(r"\((?:, )+", "(", call).replace("'", '"')


@pytest.mark.slow
def test_the_release_is_near_the_counts(place: Path) -> None:
    release = fp.Release.load(place / "release")
    domain = release.plan.domain
    assert release.plan.unit == fp.AddRemove(records=9, once_per="YEAR")
    assert release.limited == "enforced"
    exact = np.zeros((9, 12))
    known = "where INDUSTRY is not null group by all"
    for year, industry, number in count(f"select YEAR, INDUSTRY, count(*) from {{rows}} {known}"):
        exact[domain["YEAR"].values.index(year), domain["INDUSTRY"].values.index(industry)] = number
    for name, answers in (("industry by year", exact), ("industry", exact.sum(axis=0))):
        off = release.estimates[name] - answers
        assert (np.abs(off) < 6.5 * np.sqrt(release.variances[name])).all()
        assert (release.variances[name] <= release.plan.targets[name]).all()


@pytest.mark.slow
def test_both_releases_are_charged_to_one_ledger(place: Path) -> None:
    ledger = fp.Ledger(place / "budget.db")
    assert ledger.unit == fp.AddRemove(records=9, once_per="YEAR")
    plans = [fp.Plan.load(place / name / "plan.npz") for name in ("release", "three")]
    for entry, plan in zip(ledger.entries(), plans, strict=True):
        assert plan.rho_exact <= entry.rho <= plan.rho


@pytest.mark.slow
def test_what_a_smaller_limit_loses_is_estimated(place: Path) -> None:
    ran = fitplug("truncation", place / "three", place / "release", "industry")
    assert ran.code == 0, ran.err
    assert "with at most 3 per person, at most one in each cell of YEAR" in ran.out
    few, many = (fp.Release.load(place / name) for name in ("three", "release"))
    lost = fp.estimate_truncation(few, many, "industry")
    exact = count_kept(9) - count_kept(3)
    assert abs(lost.rows.value - exact) < 6.5 * lost.rows.std
    assert lost.kept.std == pytest.approx(few.estimate("industry").std)
