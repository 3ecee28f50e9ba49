"""The example in examples/incomes, as its README runs it, against DuckDB's sums of its rows."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import duckdb
import numpy as np
import opendp.prelude as dp
import pytest

import fitplug as fp
import fitplug_dask as fpd
from fitplug.domain import get_shape
from fitplug_cli.spec import load_spec
from tests.helpers.pages import blocks, check_printed, run_line
from tests.helpers.places import EXAMPLES

EXAMPLE = EXAMPLES / "incomes"
ROWS = EXAMPLE / "incomes.parquet"
CLAMPED = "floor((least(greatest(PINCP, -10000), 400000) + 10000) / 100 + 0.5) * 100 - 10000"
WEIGHT = "floor(least(PWGTP, 500) / 5 + 0.5) * 5"
THOUSANDS = "floor((least(greatest(PINCP, -10000), 400000) + 10000) / 1000 + 0.5) * 1000 - 10000"


def count(names: tuple[str, ...], value: str) -> dict[tuple[str, ...], float]:
    """Sum a value over the people who have an income, by DuckDB."""
    by = ", ".join(names)
    sql = f"select {by}, sum({value}) from read_parquet('{ROWS}') where PINCP is not null group by"
    return {tuple(row[:-1]): row[-1] for row in duckdb.sql(f"{sql} {by}").fetchall()}


def sum_exactly(domain: fp.Domain, names: tuple[str, ...], value: str) -> np.ndarray:
    sums = count(names, value)
    cells = np.ndindex(get_shape(domain, names))
    labels = [domain[name].values for name in names]
    found = [sums.get(tuple(v[i] for v, i in zip(labels, c, strict=True)), 0) for c in cells]
    return np.array(found, dtype=float).reshape(get_shape(domain, names))


def load_script(place: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, place / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder in which the README's commands run, on a copy of the example."""
    made = shutil.ignore_patterns("release", "weighted", "*.db*", "__pycache__")
    place = tmp_path_factory.mktemp("example")
    shutil.copytree(EXAMPLE, place / "examples" / "incomes", ignore=made)
    yield place
    dp.disable_features("contrib")


@pytest.fixture(scope="module")
def example(place: Path) -> Path:
    """The copy of the example, after everything that its README says was run and compared."""
    example = place / "examples" / "incomes"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("COLUMNS", "100")
        printed = ""
        for block in blocks(EXAMPLE / "README.md"):
            if block.language == "sh":
                printed = "".join(map(run_any_line, block.text.splitlines()))
            elif block.language == "text":
                check_printed(block.text, printed, numbers=False)  # the bounds are random
    return example


def run_any_line(line: str) -> str:
    """Run a command or a script of the example; gives what it prints."""
    if not line.startswith("python "):
        return run_line(line)
    path = Path(line.split()[1])
    said: list[str] = []
    script = load_script(path.parent, path.stem)
    script.print = said.append  # type: ignore[attr-defined]
    script.main()
    return "\n".join(said) + "\n"


def test_the_file_is_made_of_the_people_of_the_first_example(example: Path) -> None:
    shutil.copytree(EXAMPLES / "acs" / "people", example.parent / "acs" / "people")
    load_script(example, "prepare").main()
    files = f"read_parquet('{ROWS}')", f"read_parquet('{example / 'incomes.parquet'}')"
    for a, b in (files, files[::-1]):
        assert not duckdb.sql(f"from {a} except all from {b}").fetchall()
    assert duckdb.sql(f"select count(*) - count(PINCP) from {files[0]}").fetchall() == [(4_247,)]


def test_sums_are_exact() -> None:
    workload = load_spec(EXAMPLE / "release.toml").workload
    tables = fpd.count(ROWS, workload)
    for names in (("SEX", "RAC1P"), ("SEX", "PUMA")):
        shares = tables[(*names, "PINCP")]
        people = sum_exactly(workload.domain, names, "1")
        np.testing.assert_array_equal(shares.sum(axis=-1), 4_100 * people)
        income = -10_000 * people + 100 * shares[..., 1]
        np.testing.assert_array_equal(income, sum_exactly(workload.domain, names, CLAMPED))


def test_estimates_are_near_the_sums(example: Path) -> None:
    release = fp.Release.load(example / "release")
    domain = release.plan.domain
    for suffix, names in (("", ("SEX", "RAC1P")), (" by area", ("SEX", "PUMA"))):
        for group, value in (("people", "1"), ("income", CLAMPED)):
            name = group + suffix
            exact = sum_exactly(domain, names, value)
            off = release.estimates[name].reshape(exact.shape) - exact
            std = np.sqrt(release.variances[name].reshape(exact.shape))
            assert (np.abs(off) < 6.5 * std).all()
            assert (release.variances[name] <= release.plan.targets[name]).all()
    means = [release.estimate(f"income[SEX={s}] / people[SEX={s}]") for s in (1, 2)]
    gap = release.estimate("income[SEX=2] / people[SEX=2] - income[SEX=1] / people[SEX=1]")
    sums, people = (count(("SEX",), value) for value in (CLAMPED, "1"))
    exact_means = [sums[s,] / people[s,] for s in ("1", "2")]
    for found, exact_mean in zip(means, exact_means, strict=True):
        assert abs(found.value - exact_mean) < 6.5 * found.std
    assert abs(gap.value - (exact_means[1] - exact_means[0])) < 6.5 * gap.std
    assert gap.std == pytest.approx(507, abs=10)


def test_weighted_estimates_are_near_the_sums(example: Path) -> None:
    release = fp.Release.load(example / "weighted")
    for name, value in (("population", WEIGHT), ("income", f"({WEIGHT}) * ({THOUSANDS})")):
        exact = sum_exactly(release.plan.domain, ("SEX",), value)
        off = release.estimates[name].ravel() - exact
        assert (np.abs(off) < 6.5 * np.sqrt(release.variances[name].ravel())).all()


def test_bounds_and_releases_are_charged_to_one_ledger(example: Path) -> None:
    ledger = fp.Ledger(example / "budget.db")
    plans = [fp.Plan.load(example / name / "plan.npz") for name in ("release", "weighted")]
    *bounds, first, second = (float(entry.rho) for entry in ledger.entries())
    assert [first, second] == [plan.rho for plan in plans]
    # OpenDP's quantile costs the square of its quantile over its scale, over two, at most.
    assert bounds == pytest.approx([(0.98 / 20) ** 2 / 2, (0.99 / 20) ** 2 / 2], rel=1e-9)
    again = load_script(example, "bounds")
    said: list[str] = []
    again.print = said.append  # type: ignore[attr-defined]
    again.main()
    assert len(ledger.entries()) == 4
    assert all("nothing was charged or drawn" in line for line in said)


def test_the_bounds_are_near_those_that_the_specs_have() -> None:
    script = load_script(EXAMPLE, "bounds")
    dp.enable_features("contrib")
    for name, (quantile, candidates) in script.CANDIDATES.items():
        sql = f"select {name} from read_parquet('{ROWS}') where {name} is not null"
        chosen = script.make_choice(quantile, candidates)(
            [v for (v,) in duckdb.sql(sql).fetchall()]
        )
        domain = load_spec(EXAMPLE / "weighted.toml").workload.domain
        assert 0.8 < chosen / domain[name].high < 1.2


def test_the_readme_tells_the_exact_numbers() -> None:
    readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    low, weight = "least(PINCP, 400000)", "least(PWGTP, 500)"
    women = "PINCP is not null and SEX = '2'"
    for value, where in (
        (f"avg({low})", "PINCP is not null and SEX = '1'"),
        (f"avg({low})", women),
        (f"avg({low})", "PINCP is not null and SEX = '1' and RAC1P = '6'"),
        (f"avg({low})", "PINCP is not null and PUMA = '24-01004'"),
        ("avg(PINCP)", "SEX = '1'"),
        ("avg(PINCP)", "SEX = '2'"),
        (f"sum({weight})", "PINCP is not null"),
        ("sum(PWGTP)", "PINCP is not null"),
        (f"sum({weight} * {low}) / sum({weight})", "PINCP is not null"),
        (f"sum({weight} * {low}) / sum({weight})", women),
        ("sum(PWGTP * PINCP) / sum(PWGTP)", "PINCP is not null"),
    ):
        sql = f"select {value} from read_parquet('{ROWS}') where {where}"
        assert f"{duckdb.sql(sql).fetchall()[0][0]:,.0f}" in readme, (value, where)
    for words, part, where in (
        ("two in a hundred", 0.02, "(PINCP > 400000)"),
        ("seven in a thousand", 0.007, "(PWGTP > 500)"),
    ):
        sql = f"select avg({where}::int) from read_parquet('{ROWS}')"  # without those that are null
        assert words in readme.lower()
        assert duckdb.sql(sql).fetchall()[0][0] == pytest.approx(part, rel=0.05)
