"""The command line when all goes well, and when it refuses or cannot write."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import fitplug as fp
from fitplug.releases.tables import MEASURES
from fitplug_cli.render import read_counts
from fitplug_opendp.csv_tables import count_table_decimals
from tests.helpers.command_line import (
    COST,
    SPEC,
    WORD,
    fitplug,
    make,
    names,
    tree,
    truth,
    with_privacy,
)

OF_ALL = ["estimate", "std", "moe", "lower", "upper", "confidence"]


def record(root: Path) -> dict[str, object]:
    return json.loads((root / "release" / "release.json").read_text(encoding="utf-8"))


@contextlib.contextmanager
def file_size_limit(limit: int) -> Iterator[None]:
    """No file can grow beyond this: as a full disk, for this process only."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("run")
    ran = fitplug("run", make(root))
    assert (ran.code, ran.err) == (0, "")
    assert "rho = 0.085" in ran.out
    assert "charged" in ran.out
    assert "99.9 of 100 left" in ran.out
    return root


@pytest.fixture(scope="module")
def plan(root) -> fp.Plan:
    return fp.Plan.load(root / "release" / "plan.npz")


class TestRun:
    def test_writes_these_files_and_no_others(self, root):
        assert names(root) == {"people", "spec.toml", "budget.db", "release"}
        assert names(root / "release") == {
            "ages.csv", "ages.parquet", "income.csv", "income.parquet", "total.csv",
            "total.parquet", "plan.npz", "answers", "tables.json", "release.json", "review.md",
            "review.yaml",
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("name", "attributes", "confidence"),
        [("ages", ["SEX", "AGE"], 0.95), ("income", ["INC"], 0.9), ("total", [], 0.95)],
    )
    def test_tables_hold_what_the_plan_promises(self, root, plan, name, attributes, confidence):
        table = pq.read_table(root / "release" / f"{name}.parquet")
        assert table.column_names == attributes + OF_ALL
        assert table.num_rows == plan.variances[name].size
        estimate, std, moe, lower, upper, said = (table[c].to_numpy() for c in OF_ALL)
        assert set(said) == {confidence}
        assert std**2 == pytest.approx(plan.variances[name].ravel(), rel=1e-14)
        assert (plan.variances[name] <= plan.targets[name]).all()
        z = {0.9: 1.6448536269514722, 0.95: 1.959963984540054}[confidence]
        assert moe == pytest.approx(z * std)
        assert lower == pytest.approx(estimate - moe)
        assert upper == pytest.approx(estimate + moe)
        said = {k.decode(): v.decode() for k, v in table.schema.metadata.items()}
        assert (
            said
            | {
                "fitplug.group": name,
                "fitplug.confidence": repr(confidence),
                "fitplug.simultaneous": "false",
                "fitplug.plan_digest": plan.digest,
                "fitplug.rho": repr(plan.rho),
                "fitplug.unit": '{"records": 1}',
            }
            == said
        )
        assert "rows" in said["fitplug.units"]
        assert {"fitplug.version.fitplug", "fitplug.answers_digest"} <= set(said)

    @pytest.mark.parametrize("name", ["ages", "income", "total"])
    def test_csv_says_the_same_as_parquet(self, root, name):
        table = pq.read_table(root / "release" / f"{name}.parquet")
        types = dict(zip(table.column_names, table.schema.types, strict=True))
        csv = pa.csv.read_csv(
            root / "release" / f"{name}.csv",
            convert_options=pa.csv.ConvertOptions(column_types=types),
        )
        assert csv.column_names == table.column_names
        # Text and confidence as they are, the rest to four digits of the std.
        step = 10.0 ** -count_table_decimals(table["std"].to_numpy())
        for column in table.column_names:
            if column in MEASURES:
                off = np.abs(csv[column].to_numpy() - table[column].to_numpy())
                assert off.max() <= 0.5001 * step
                assert step < 2e-3 * table["std"].to_numpy().min()
            else:
                assert csv[column].to_pylist() == table[column].to_pylist()

    def test_rows_are_labelled(self, root):
        ages = pq.read_table(root / "release" / "ages.parquet").to_pydict()
        assert ages["SEX"] == ["1"] * 6 + ["2"] * 6
        assert ages["AGE"] == ["0", "0..1", "0..2", "0..3", "0..4", "0..5"] * 2
        income = pq.read_table(root / "release" / "income.parquet").to_pydict()
        assert income["INC"] == ["[0, 10)", "[10, 50)"]

    def test_estimates_are_near_the_exact_answers(self, root):
        exact = truth()
        answers = {
            "ages": exact[("SEX", "AGE")].cumsum(axis=1),
            "income": exact[("INC",)],
            "total": exact[("INC",)].sum(),
        }
        for name, answer in answers.items():
            table = pq.read_table(root / "release" / f"{name}.parquet")
            off = table["estimate"].to_numpy() - answer.ravel()
            assert (abs(off) < 8 * table["std"].to_numpy()).all()

    def test_the_plan_is_whole(self, plan):
        plan.verify()
        assert plan.gap <= 2e-4
        assert plan.scale == 1.0

    def test_the_record_says_what_ran(self, root, plan):
        said = record(root)
        assert said["rho"] == plan.rho == said["plan_rho"]
        assert said["plan_rho_exact"] == str(plan.rho_exact)
        assert said["plan_digest"] == plan.digest
        assert said["unit"] == {"records": 1}
        assert said["delta"] == 1e-9
        assert said["epsilon"] == plan.epsilon(1e-9)
        assert said["gap"] == plan.gap
        assert said["target_scale"] == 1.0
        assert set(said["versions"]) >= {"python", "fitplug", "numpy", "scipy", "opendp"}
        assert [g["name"] for g in said["groups"]] == ["ages", "income", "total"]
        assert [g["file"] for g in said["groups"]] == ["ages", "income", "total"]
        assert [g["confidence"] for g in said["groups"]] == [0.95, 0.9, 0.95]

    def test_the_ledger_was_charged_what_the_record_says(self, root):
        ledger = fp.Ledger(root / "budget.db")
        (entry,) = ledger.entries()
        assert float(entry.rho) == record(root)["rho"]
        assert ledger.total == 100.0
        assert "spec.toml" in entry.what

    def test_nothing_released_shows_a_row(self, root):
        for path in (root / "release").rglob("*.*"):
            assert path.is_dir() or WORD.encode() not in path.read_bytes()


def test_a_second_draw_is_asked_for_and_the_first_is_kept(tmp_path):
    spec = make(tmp_path)
    fitplug("run", spec)
    first = tree(tmp_path / "release")
    ran = fitplug("run", spec)
    assert ran.code == 3
    assert re.search(r"A second draw costs rho = 0\.085\d+", ran.err)
    assert "--again" in ran.err
    assert "--replace" in ran.err
    ran = fitplug("run", spec, "--again")
    assert ran.code == 2
    assert "already holds a release" in ran.err
    assert "--replace" in ran.err
    assert tree(tmp_path / "release") == first
    assert len(fp.Ledger(tmp_path / "budget.db").entries()) == 1
    ran = fitplug("run", spec, "--again", "--replace")
    assert ran.code == 0
    assert "99.8 of 100 left" in ran.out
    assert len(fp.Ledger(tmp_path / "budget.db").entries()) == 2
    (kept,) = tmp_path.glob("release-*")
    assert kept.name in ran.out
    assert tree(kept) == first
    second = tree(tmp_path / "release")
    assert second.keys() == first.keys()
    assert second["plan.npz"] == first["plan.npz"]
    assert second["ages.csv"] != first["ages.csv"]
    assert fitplug("run", spec, "--key", "another", "--replace").code == 0
    assert len(list(tmp_path.glob("release-*"))) == 2


def test_steps_one_by_one(tmp_path):
    spec = make(tmp_path)
    plan, counts = tmp_path / "spec.plan.npz", tmp_path / "spec.counts.npz"
    assert fitplug("design", spec).code == 0
    assert names(tmp_path) == {"people", "spec.toml", plan.name}
    fp.Plan.load(plan).verify()
    ran = fitplug("count", spec, "--plan", plan)
    assert ran.code == 0
    assert "CONFIDENTIAL" in ran.out
    assert names(tmp_path) == {"people", "spec.toml", plan.name, counts.name}
    assert stat.S_IMODE(counts.stat().st_mode) == 0o600
    read, exact = read_counts(counts), truth()
    assert all((read[key] == exact[key]).all() for key in exact)
    ran = fitplug("release", spec, "--plan", plan, "--counts", counts)
    assert ran.code == 0
    assert record(tmp_path)["plan_digest"] == fp.Plan.load(plan).digest
    assert fp.Ledger(tmp_path / "budget.db").spent == record(tmp_path)["rho"]
    assert fitplug("release", spec, "--counts", counts, "--again", "--replace").code == 0


def test_design_reads_no_data(tmp_path):
    spec = make(tmp_path)
    for path in (tmp_path / "people").iterdir():
        path.unlink()
    assert fitplug("design", spec, "--output", tmp_path / "other.npz").code == 0
    assert names(tmp_path) == {"people", "spec.toml", "other.npz"}


def test_counts_are_private_even_in_the_place_of_a_public_file(tmp_path):
    spec, counts = make(tmp_path), tmp_path / "c.npz"
    assert fitplug("count", spec, "--output", counts).code == 0
    counts.chmod(0o644)
    assert fitplug("count", spec, "--output", counts).code == 0
    assert stat.S_IMODE(counts.stat().st_mode) == 0o600


@pytest.mark.parametrize("spent", [0.0, 99.99])
def test_over_budget_is_refused_and_changes_nothing(tmp_path, spent):
    total = 100.0 if spent else 0.08
    spec = make(tmp_path, SPEC.replace("rho = 100.0", f"rho = {total}"))
    if spent:
        fp.Ledger(tmp_path / "budget.db", rho=total).charge(spent, what="an earlier one")
    assert fitplug("count", spec).code == 0
    before = tree(tmp_path)
    for command in (["run", spec], ["release", spec, "--counts", tmp_path / "spec.counts.npz"]):
        ran = fitplug(*command)
        assert ran.code == 3
        assert re.fullmatch(r"fitplug: .*0\.085.*\n", ran.err)
        assert tree(tmp_path) == before


def test_a_budget_that_is_just_enough_is_enough(tmp_path):
    spec = make(tmp_path, SPEC.replace("rho = 100.0", f"rho = {2 * COST}"))
    again = ["--again", "--replace"]
    assert [fitplug("run", spec, *more).code for more in ([], again, again)] == [0, 0, 3]


@pytest.mark.parametrize("share", [0.999, 0.9, 0.82, 0.56, 0.5, 0.26, 0.2, 0.003])
def test_over_max_rho_says_by_what_to_relax_the_targets(tmp_path, share):
    most = COST * share
    spec = make(tmp_path, with_privacy(f"max_rho = {most!r}"))
    before = tree(tmp_path)
    for command in ("run", "design", "count"):
        ran = fitplug(command, spec)
        assert ran.code == 3
        assert "max_rho" in ran.err
        assert "spec.toml" in ran.err
        assert tree(tmp_path) == before
    factor = float(re.search(r"Multiply every std and moe by ([0-9.e+]+)", ran.err)[1])
    assert factor == pytest.approx(1 / math.sqrt(share), rel=2e-3)
    relaxed = re.sub(
        r"(std|moe) = ([0-9.]+)", lambda m: f"{m[1]} = {float(m[2]) * factor!r}", spec.read_text()
    )
    spec.write_text(relaxed)
    ran = fitplug("design", spec)
    assert ran.code == 0, ran.err


def test_under_max_rho_spends_only_what_the_targets_need(tmp_path):
    assert fitplug("run", make(tmp_path, with_privacy("max_rho = 50.0"))).code == 0
    assert record(tmp_path)["rho"] == pytest.approx(COST, rel=1e-3)


def test_three_rows_per_person_cost_nine_times(tmp_path):
    spec = SPEC.replace("records = 1", "records = 3")
    ran = fitplug("run", make(tmp_path, spec), "--full")
    assert ran.code == 0
    assert "9 x" in ran.out
    said = record(tmp_path)
    assert said["unit"] == {"records": 3}
    assert said["rho"] == said["plan_rho"] == pytest.approx(9 * COST, rel=1e-3)
    assert Fraction(said["rho"]) >= Fraction(said["plan_rho_exact"])
    assert fp.Ledger(tmp_path / "budget.db").spent == said["rho_charged"] >= said["rho"]


def test_max_rho_is_for_all_rows_of_a_person(tmp_path):
    spec = SPEC.replace("records = 1", "records = 3")
    assert fitplug("design", make(tmp_path, with_privacy(f"max_rho = {8 * COST}", spec))).code == 3
    assert fitplug("design", make(tmp_path / "2", with_privacy("max_rho = 0.77", spec))).code == 0


@pytest.mark.parametrize("records", [1, 3])
@pytest.mark.parametrize("rho", [0.001, 0.3, 1.7])
def test_rho_given_is_spent_and_never_exceeded(tmp_path, rho, records):
    spec = SPEC.replace("records = 1", f"records = {records}")
    assert fitplug("run", make(tmp_path, with_privacy(f"rho = {rho}", spec))).code == 0
    said = record(tmp_path)
    assert rho * (1 - 1e-12) <= said["rho"] <= rho
    assert fp.Ledger(tmp_path / "budget.db").spent <= rho
    plan = fp.Plan.load(tmp_path / "release" / "plan.npz")
    assert said["target_scale"] == plan.scale != 1.0
    for name, target in plan.targets.items():
        assert (plan.variances[name] <= plan.scale * target).all()


def test_a_budget_of_exactly_rho_pays_for_rho(tmp_path):
    spec = SPEC.replace("rho = 100.0", "rho = 0.3")
    assert fitplug("run", make(tmp_path, with_privacy("rho = 0.3", spec))).code == 0


def test_ledger_false_charges_nothing(tmp_path):
    spec = "ledger = false" + SPEC.replace('[ledger]\npath = "budget.db"\nrho = 100.0\n', "")
    ran = fitplug("run", make(tmp_path, spec))
    assert ran.code == 0
    assert not ran.err
    assert "none (ledger = false): rho = " in ran.out
    assert "was not charged" in ran.out
    assert names(tmp_path) == {"people", "spec.toml", "release"}


def test_paths_are_relative_to_the_spec(tmp_path, monkeypatch):
    make(tmp_path / "deep" / "down")
    monkeypatch.chdir(tmp_path)
    assert fitplug("run", "deep/down/spec.toml").code == 0
    assert names(tmp_path) == {"deep"}
    assert (tmp_path / "deep" / "down" / "release" / "release.json").is_file()


def test_output_path_may_be_deep_or_an_empty_folder(tmp_path):
    spec = make(tmp_path, SPEC.replace('"release/"', '"a/b/c"'))
    assert fitplug("run", spec).code == 0
    assert (tmp_path / "a" / "b" / "c" / "total.csv").is_file()
    (tmp_path / "release").mkdir()
    spec.write_text(SPEC)
    assert fitplug("run", spec, "--again").code == 0
    assert names(tmp_path) == {"people", "spec.toml", "budget.db", "release", "a"}


@pytest.mark.parametrize("folder", ["plain", "[a]", "year [20]", "[/b]"])
def test_the_folder_of_a_spec_with_a_glob_may_have_any_name(tmp_path, folder):
    spec = make(tmp_path / folder, SPEC.replace('"people/"', '"people/*.parquet"'))
    ran = fitplug("run", spec)
    assert (ran.code, ran.err) == (0, "")
    assert str(spec.parent / "release") in ran.out
    assert str(spec.parent / "budget.db") in ran.out


def test_hive_folders_and_an_attribute_no_query_uses(tmp_path):
    spec = SPEC.replace(
        "[domain]", '[domain]\nAREA = ["01", "02"]\nID = { integers = [0, 99999999999999] }'
    )
    spec = make(tmp_path, spec.replace("std = 3.0", 'AREA = "identity"\nstd = 3.0'))
    for part, area in enumerate(["01", "02"]):
        folder = tmp_path / "people" / f"AREA={area}"
        folder.mkdir()
        (tmp_path / "people" / f"{'ab'[part]}.parquet").rename(folder / "0.parquet")
    assert fitplug("run", spec).code == 0
    table = pq.read_table(tmp_path / "release" / "total.parquet")
    assert table["AREA"].to_pylist() == ["01", "02"]


ODD = ["a b", "a_b", "A B", "plan", "release", "größe", "日本", "../up", ".hidden", "[b]", "x [/y]",
       "a,\"b\"", "CON", "a\nb", "n" * 200]  # fmt: skip


def test_odd_group_names_get_files_of_their_own(tmp_path):
    head, _, _ = f"ledger = false\n{SPEC}".partition("[[query]]")
    groups = "".join(
        f'[[query]]\nname = {json.dumps(name)}\nSEX = "identity"\nstd = 9.0\n' for name in ODD
    )
    ran = fitplug("run", make(tmp_path, head + groups))
    assert ran.code == 0
    assert names(tmp_path) == {"people", "spec.toml", "release"}
    files = {g["name"]: g["file"] for g in record(tmp_path)["groups"]}
    assert list(files) == ODD
    assert len({file.lower() for file in files.values()}) == len(ODD)
    for name, file in files.items():
        assert re.fullmatch(r"\w[\w-]{0,100}", file, re.ASCII)
        table = pq.read_table(tmp_path / "release" / f"{file}.parquet")
        assert table.schema.metadata[b"fitplug.group"].decode() == name
        assert table["SEX"].to_pylist() == ["1", "2"]
    assert len(names(tmp_path / "release")) == 2 * len(ODD) + 6
    fp.Plan.load(tmp_path / "release" / "plan.npz").verify()


@pytest.mark.parametrize(
    "name", ["größe", "日本", "[b]", "ages [18, 65)", "x [/y]", "a \\[b]", "a :cat: b"]
)
def test_group_names_are_shown_as_they_are(tmp_path, name):
    spec = make(tmp_path, SPEC.replace('"total"', json.dumps(name)))
    ran = fitplug("design", spec)
    assert ran.code == 0
    assert name in ran.out


def test_help_is_light():
    code = (
        "import sys; from fitplug_cli.main import main; sys.argv = ['fitplug', '--help']\n"
        "try: main()\n"
        "except SystemExit as left: assert not left.code\n"
        "heavy = {'numpy', 'scipy', 'opendp', 'pyarrow', 'dask', 'pydantic'} & set(sys.modules)\n"
        "sys.exit(f'help imports {heavy}' if heavy else 0)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    for command in ("run", "design", "count", "release"):
        assert re.search(rf"^ +{command} ", ran.stdout, re.MULTILINE)


@pytest.mark.parametrize("limit", [100, 2500, 4000, 8000])
def test_a_full_disk_before_the_charge_leaves_nothing(tmp_path, limit):
    spec = make(tmp_path)
    before = tree(tmp_path)
    with file_size_limit(limit):
        ran = fitplug("run", spec)
    assert ran.code == 1
    assert re.fullmatch(rf"fitplug: .*{re.escape(str(tmp_path))}.*\n", ran.err)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("command", ["design", "count"])
def test_a_full_disk_leaves_no_part_of_a_file(tmp_path, command):
    spec = make(tmp_path)
    before = tree(tmp_path)
    with file_size_limit(100):
        ran = fitplug(command, spec)
    assert ran.code == 1
    assert re.fullmatch(rf"fitplug: .*{re.escape(str(tmp_path))}.*\n", ran.err)
    assert tree(tmp_path) == before


def test_a_full_disk_keeps_the_counts_that_were_there(tmp_path):
    spec = make(tmp_path)
    assert fitplug("count", spec).code == 0
    before = tree(tmp_path)
    with file_size_limit(100):
        assert fitplug("count", spec).code == 1
    assert tree(tmp_path) == before


def test_an_unwritable_folder_is_refused_before_the_charge(tmp_path, monkeypatch):
    spec = make(tmp_path)
    before = tree(tmp_path)
    # Asked for, as permissions do not bind root.
    monkeypatch.setattr(os, "access", lambda path, mode, **_: mode != os.W_OK)
    ran = fitplug("run", spec)
    assert ran.code == 2
    assert re.fullmatch(r"fitplug: .*release.*\n", ran.err)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_failure_after_the_charge_is_finished_by_the_same_command(tmp_path, monkeypatch, error):
    def fail(*_, **__):
        raise OSError(error, os.strerror(error))

    spec = make(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(pa.parquet, "ParquetWriter", fail)
        ran = fitplug("run", spec)
    assert ran.code == 1
    assert ran.err.count("\n") == 1
    assert "Run it again; nothing more will be charged" in ran.err
    (staged,) = tmp_path.glob(".release.*.parts")
    assert stat.S_IMODE(staged.stat().st_mode) == 0o700
    answers = (staged / "answers" / "manifest.json").read_bytes()
    ran = fitplug("run", spec)
    assert ran.code == 0
    assert "charged earlier (charge 1), nothing more now" in ran.out
    assert len(fp.Ledger(tmp_path / "budget.db").entries()) == 1
    assert (tmp_path / "release" / "answers" / "manifest.json").read_bytes() == answers
    assert names(tmp_path) == {"people", "spec.toml", "budget.db", "release"}
