"""The example in examples/acs, as a new user runs it, against DuckDB's counts of the same files."""

from __future__ import annotations

import csv
import importlib.util
import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest

import fitplug as fp
import fitplug_dask
from fitplug.workload import build_rows
from fitplug_cli.spec import load_spec
from fitplug_cli.spec.errors import tomllib
from tests.helpers.pages import blocks
from tests.helpers.places import EXAMPLES

EXAMPLE = EXAMPLES / "acs"
ROWS = f"read_parquet('{EXAMPLE}/people/*/*.parquet', hive_partitioning = false)"


def counted(sql):
    return duckdb.sql(sql.format(rows=ROWS)).fetchall()


def truth():
    """The exact answers, counted by DuckDB with the conditions in words."""
    pyramid = {
        (s, a): n for s, a, n in counted("select SEX, AGEP, count(*) from {rows} group by 1, 2")
    }
    origin = {
        (r, h): n for r, h, n in counted("select RAC1P, HISP, count(*) from {rows} group by 1, 2")
    }
    return {
        "pyramid": np.array([[pyramid.get((s, a), 0) for a in range(96)] for s in "12"]).cumsum(1),
        "race by Hispanic origin": np.array(
            [[origin.get((r, h), 0) for h in "01234"] for r in "123456789"]
        ),
        "voting age": np.array(counted("select count(*) from {rows} where AGEP >= 18")[0]),
        "total": np.array(counted("select count(*) from {rows}")[0][0]),
    }


@pytest.fixture(scope="module")
def exact():
    return truth()


def test_the_domain_is_the_one_of_the_public_schema():
    spec = importlib.util.spec_from_file_location("prepare", EXAMPLE / "prepare.py")
    prepare = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(prepare)
    said = tomllib.loads("\n".join(f"{k} = {v}" for k, v in prepare.domain().items()))
    assert tomllib.loads((EXAMPLE / "release.toml").read_text())["domain"] == said


def test_counts_are_exact(exact):
    spec = load_spec(EXAMPLE / "release.toml")
    tables = fitplug_dask.count(EXAMPLE / "people", spec.workload)
    for group in spec.workload.groups:
        axes = spec.workload.domain.ordered(group.attributes)
        got = build_rows(spec.workload, group, axes) @ tables.marginal(axes).ravel()
        np.testing.assert_array_equal(got.reshape(group.shape), exact[group.name])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The README's command on a copy of the example, and another draw of its plan."""
    place = tmp_path_factory.mktemp("example") / "acs"
    shutil.copytree(EXAMPLE, place, ignore=shutil.ignore_patterns("release*", "*.db*"))
    shutil.copy(EXAMPLE / "release.toml", place)
    command = [sys.executable, "-m", "fitplug_cli.main", "run", str(place / "release.toml")]
    path = [str(EXAMPLE.parent.parent), str(EXAMPLE.parent.parent / "adapters")]
    environment = {"PYTHONPATH": ":".join(path), "PATH": "/usr/bin:/bin", "COLUMNS": "100"}
    done = [
        subprocess.run(
            [*command, *options], capture_output=True, text=True, check=True, env=environment
        )
        for options in ([], ["--again", "--replace"])
    ]
    return place, done


def test_what_it_prints(runs):
    _, (first, second) = runs
    for words in (
        "rho = 0.0409 (epsilon 1.61 at delta 1e-9); within ", "proven", "pyramid", "std 12",
        "moe 15 at 90%", "rho = 0.0409 charged, 0.959 of 1 left", "(239 answers)",
    ):  # fmt: skip
        assert words in first.stdout
    assert "the earlier release is now" in second.stdout
    assert first.stderr == second.stderr == "", "no progress bars outside a terminal"


def test_the_readme_shows_what_it_prints(runs):
    place, (first, _) = runs
    shown = next(
        b.text for b in blocks(EXAMPLE.parent.parent / "README.md") if b.language == "text"
    )
    printed = first.stdout.replace(str(place), "examples/acs")
    assert shown.split() == printed.split()


def test_what_it_charges(runs):
    place, _ = runs
    record = json.loads((place / "release" / "release.json").read_text())
    plan = fp.Plan.load(place / "release" / "plan.npz")
    plan.verify()
    ledger = fp.Ledger(place / "budget.db")
    assert [float(entry.rho) for entry in ledger.entries()] == [plan.rho] * 2
    assert record["rho"] == plan.rho
    assert record["plan_digest"] == plan.digest
    assert record["gap"] <= 2e-4
    assert {"fitplug", "opendp", "numpy"} <= set(record["versions"])


def test_what_it_writes(runs, exact):
    place, _ = runs
    plan = fp.Plan.load(place / "release" / "plan.npz")
    record = json.loads((place / "release" / "release.json").read_text())
    for described in record["groups"]:
        name, file = described["name"], place / "release" / described["file"]
        table = pq.read_table(f"{file}.parquet").to_pydict()
        with Path(f"{file}.csv").open(newline="") as text:
            rows = list(csv.DictReader(text))
        written = [float(r["estimate"]) for r in rows]  # to four digits of the std
        np.testing.assert_allclose(written, table["estimate"], atol=1e-3 * min(table["std"]))
        assert list(rows[0]) == list(table)
        error = np.array(table["estimate"]) - exact[name].ravel()
        std = np.array(table["std"])
        assert (std**2 <= plan.targets[name].ravel() * (1 + 1e-12)).all()
        assert (np.abs(error) <= 6.5 * std).all()
        assert (np.abs(error) > 0).any(), "noise was added"
        for bound, sign in (("lower", -1), ("upper", 1)):
            moved = np.array(table["estimate"]) + sign * np.array(table["moe"])
            np.testing.assert_array_equal(moved, table[bound])
    pyramid = pq.read_table(place / "release" / "pyramid.parquet").to_pydict()
    assert pyramid["SEX"][:2] == ["1", "1"]
    assert pyramid["AGEP"][:2] == ["0", "0..1"]


def test_the_earlier_release_is_kept_whole(runs):
    place, _ = runs
    kept = [p for p in place.iterdir() if p.name.startswith("release-")]
    assert len(kept) == 1
    now = {p.name for p in (place / "release").iterdir()}
    assert {p.name for p in kept[0].iterdir()} == now
    old, new = (pq.read_table(d / "total.parquet") for d in (kept[0], place / "release"))
    assert old["estimate"] != new["estimate"], "fresh noise each time"
    assert not [p for p in place.iterdir() if "partial" in p.name]


CATEGORICAL = [
    *("PUMA", "AGEP", "SEX", "MSP", "HISP", "RAC1P", "NOC", "NPF", "HOUSING_TYPE"),
    *("OWN_RENT", "INDP_CAT", "EDU", "PINCP_DECILE", "DVET", "DREM", "DPHY", "DEYE", "DEAR"),
]


def every_marginal(seed):
    """A spec of all marginals of at most three of 18 attributes, each table with its own target."""
    schema = json.loads((EXAMPLE / "schema.json").read_text())["schema"]
    rng = np.random.default_rng(seed)
    lines = ["ledger = false", f"[data]\npath = '{EXAMPLE}/people/'"]
    lines += ["[privacy]\nunit = { records = 1 }", "[domain]"]
    for name in CATEGORICAL:
        if name == "AGEP":
            lines.append("AGEP = { integers = [0, 95] }")
            continue
        said = schema[name]
        values = said.get("values") or range(said["min"], said["max"] + 1)
        known = dict.fromkeys(map(str, values))
        if said.get("has_null"):
            known[str(said["null_value"])] = None
        lines.append(f"{name} = {json.dumps(list(known))}")
    for k in range(4):
        for chosen in itertools.combinations(CATEGORICAL, k):
            std = round(float(rng.uniform(100, 300)), 3)
            lines.append(f"[[query]]\nname = {json.dumps(' x '.join(chosen) or 'total')}")
            lines += [f'{name} = "identity"' for name in chosen]
            lines.append(f"std = {std}")
    return "\n".join([*lines, "[output]", 'path = "out"'])


@pytest.mark.long
def test_all_marginals_of_eighteen_attributes_from_files_to_tables(tmp_path):
    """10^15 cells, 988 tables: design, count, release and write, as a user would."""
    (tmp_path / "spec.toml").write_text(every_marginal(1))
    run = subprocess.run(
        [sys.executable, "-m", "fitplug_cli.main", "run", "spec.toml"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    said = json.loads((tmp_path / "out" / "release.json").read_text())
    assert len(said["groups"]) == 988
    assert said["gap"] <= 2e-4
    sexes = dict(counted("select SEX, count(*) from {rows} group by 1"))
    table = pq.read_table(tmp_path / "out" / "sex.parquet").to_pylist()
    for row in table:
        assert abs(row["estimate"] - sexes[row["SEX"]]) < 6 * row["std"] < 6 * 300


REDISTRICTING = EXAMPLE.parent / "redistricting"


def test_redistricting_targets_are_those_of_the_table():
    workload = load_spec(REDISTRICTING / "release.toml").workload
    assert [(g.name, g.size) for g in workload.groups] == [
        ("population", 20),
        ("voting age", 20),
        ("race", 180),
        ("race of voting age by Hispanic origin", 360),
        ("pyramid", 440),
    ]
    said = {g.name: g.target.describe() for g in workload.groups}
    assert said["race"] == "moe 12 to 20 at 90%"
    areas = list(workload.domain["PUMA"].labels)
    tight = np.unique(workload["pyramid"].target.value[areas.index("36-03710")])
    assert tight.tolist() == [15.0]


@pytest.mark.slow
def test_redistricting_runs_and_meets_its_targets(tmp_path):
    for folder in (EXAMPLE, REDISTRICTING):
        shutil.copytree(
            folder, tmp_path / folder.name, ignore=shutil.ignore_patterns("release*", "*.db*")
        )
    shutil.copy(REDISTRICTING / "release.toml", tmp_path / "redistricting")
    command = [sys.executable, "-m", "fitplug_cli.main", "run", "redistricting/release.toml"]
    path = [str(EXAMPLE.parent.parent), str(EXAMPLE.parent.parent / "adapters")]
    environment = {"PYTHONPATH": ":".join(path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    table = pq.read_table(tmp_path / "redistricting/release/voting_age.parquet").to_pydict()
    rows = f"read_parquet('{EXAMPLE}/people/*/*.parquet', hive_partitioning = true)"
    exact = dict(
        duckdb.sql(f"select PUMA, count(*) from {rows} where AGEP >= 18 group by 1").fetchall()
    )
    assert table["PUMA"] == sorted(exact)
    errors = np.array(table["estimate"]) - [exact[area] for area in table["PUMA"]]
    assert np.abs(errors).max() < 6 * 10 / 1.6448
    assert np.abs(errors).max() > 0.1 * 10 / 1.6448
    assert np.array(table["moe"]).max() <= 10
