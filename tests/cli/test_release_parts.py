"""Releases in parts by the command line: [output] parts, a store, and a cluster."""

from __future__ import annotations

import json

import numpy as np
import pytest
from distributed import LocalCluster

import fitplug as fp
from fitplug_cli.spec import load_spec
from tests.helpers.command_line import SPEC, fitplug, make, names, truth

PARTS = SPEC.replace('path = "release/"', 'path = "release/"\nparts = true')


def test_run_and_run_again(tmp_path):
    root = make(tmp_path, PARTS).parent
    first = fitplug("run", root / "spec.toml", "--key", "2026")
    assert first.code == 0, first.err
    folder = root / "release"
    release = fp.Release.load(folder)
    release.verify()
    record = json.loads((folder / "release.json").read_text(encoding="utf-8"))
    assert record["rho"] == release.rho
    assert {"plan.npz", "review.yaml", "review.md", "answers", "tables.json"} <= names(folder)
    again = fitplug("run", root / "spec.toml", "--key", "2026")
    assert again.code == 0, again.err
    assert "already done" in again.out
    assert len(fp.Ledger(root / "budget.db").entries()) == 1
    total = truth().marginal(("SEX",)).sum()
    assert abs(release.estimate("total").value - total) < 6 * 3.0


def test_another_draw_moves_the_earlier_release_aside(tmp_path):
    spec = make(tmp_path, PARTS)
    assert fitplug("run", spec).code == 0
    first = fp.Release.load(tmp_path / "release").answers[:]
    refused = fitplug("run", spec, "--again")
    assert refused.code == 2
    assert "name another folder or use --replace (replace=True)" in refused.err
    ran = fitplug("run", spec, "--again", "--replace")
    assert ran.code == 0, ran.err
    (earlier,) = tmp_path.glob("release-*")
    assert str(earlier) in ran.out
    assert np.array_equal(fp.Release.load(earlier).answers[:], first)
    fp.Release.load(tmp_path / "release").verify()
    assert len(fp.Ledger(tmp_path / "budget.db").entries()) == 2


def test_an_error_before_the_charge_creates_no_ledger(tmp_path):
    spec = make(tmp_path, PARTS.replace("[data]", '[data]\nweight = "NOSUCH"'))
    ran = fitplug("run", spec, "--key", "a")
    assert ran.code == 2, ran.err
    assert not list(tmp_path.glob("budget.db*"))


@pytest.mark.slow
def test_on_a_cluster(tmp_path):
    with LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0"
    ) as cluster:
        address = f'cluster = "{cluster.scheduler_address}"'
        root = make(tmp_path, PARTS.replace("[data]", f"[data]\n{address}")).parent
        ran = fitplug("run", root / "spec.toml")
        assert ran.code == 0, ran.err
        fp.Release.load(root / "release").verify()


@pytest.mark.parametrize(
    ("spec", "options", "says"),
    [
        (
            PARTS.replace('"release/"\nparts = true', '"s3://b/x"\nparts = false'),
            [],
            "parts = false",
        ),
        (
            PARTS.replace('"release/"', '"memory://x"'),
            ["--replace"],
            "--replace does not work when [output] path is a URL",
        ),
        (
            PARTS.replace('path = "release/"', 'path = "ftp://host/x"'),
            [],
            "fitplug cannot write to ftp://",
        ),
    ],
)
def test_what_is_refused(tmp_path, spec, options, says):
    root = make(tmp_path, spec).parent
    ran = fitplug("run", root / "spec.toml", *options)
    assert ran.code == 2
    assert says in ran.err


@pytest.mark.parametrize(
    ("output", "most", "expected"),
    [
        ('path = "release/"', None, False),
        ('path = "release/"', 1, True),
        ('path = "release/"\nparts = false', 1, False),
        ('path = "s3://bucket/x"', None, True),
    ],
)
def test_large_releases_and_those_into_stores_are_made_in_parts(
    monkeypatch, tmp_path, output, most, expected
):
    if most is not None:
        monkeypatch.setattr("fitplug_opendp.release_files._MOST_VALUES", most)
    spec = load_spec(make(tmp_path, SPEC.replace('path = "release/"', output)))
    plan = fp.design(spec.workload, rho=1.0, unit=fp.AddRemove())
    assert spec.output.is_in_parts(plan) is expected
