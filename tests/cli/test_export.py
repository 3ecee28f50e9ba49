"""`fitplug export`: what it writes, and what it refuses."""

from __future__ import annotations

import filecmp
import re

import frictionless
import pytest
from pysdmx.io import read_sdmx

import fitplug as fp
import fitplug_export as fpe
from fitplug.releases import write_folder
from tests.helpers import people
from tests.helpers.command_line import fitplug, tree
from tests.helpers.third_party import install, write_lines


@pytest.fixture(scope="module", params=[2**20, 7], ids=["whole", "parts"])
def stored(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stored") / "out"
    write_folder(people.release(noise=1.0), folder, 0.95, most=request.param)
    return folder


def assert_equal_tables(folder, other):
    names = [path.name for path in other.glob("*.csv")]
    assert len(names) == 7
    assert filecmp.cmpfiles(folder, other, names, shallow=False) == (names, [], [])


def test_a_folder_on_disk_is_enough(stored, tmp_path):
    before = tree(stored)
    ran = fitplug("export", stored, "--format", "sdmx-csv", "--agency", "TEST",
                  "--structure-version", "2.0.0", "--output", tmp_path / "sdmx")  # fmt: skip
    assert (ran.code, ran.err) == (0, "")
    assert re.fullmatch(r"export +\S+sdmx \(7 tables\)\n", ran.out)
    flows = read_sdmx(tmp_path / "sdmx" / "structures.xml", validate=True).get_dataflows()
    assert {(one.agency, one.version) for one in flows} == {("TEST", "2.0.0")}
    assert len(flows) == 7
    fpe.write_sdmx(fp.Release.load(stored), tmp_path / "own", agency="TEST", version="2.0.0")
    assert_equal_tables(tmp_path / "own", tmp_path / "sdmx")

    ran = fitplug("export", stored, "--format", "frictionless", "--output", tmp_path / "package",
                  "--confidence", "0.8", "--quiet")  # fmt: skip
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert frictionless.validate(tmp_path / "package" / "datapackage.json").valid
    fpe.write_data_package(fp.Release.load(stored), tmp_path / "again", confidence=0.8)
    assert_equal_tables(tmp_path / "again", tmp_path / "package")
    assert tree(stored) == before


def test_dimensions_codes_and_dataflows_are_options(stored, tmp_path):
    group = next(g for g in people.release().plan.workload.groups if g.factors)
    name = group.factors[0].attribute
    (tmp_path / "codes.csv").write_text("value,code\n1,M\n2,F\n")
    options = ["--dimension", f"{name}=REF_AREA", "--codes", f"{name}={tmp_path / 'codes.csv'}"]
    options += ["--dataflow", f"{group.name}=ESTAT:DF(1.0)"]
    ran = fitplug("export", stored, "--format", "sdmx-csv", "--agency", "TEST", *options,
                  "--output", tmp_path / "sdmx")  # fmt: skip
    assert (ran.code, ran.err) == (0, "")
    fpe.write_sdmx(
        fp.Release.load(stored),
        tmp_path / "own",
        agency="TEST",
        dimensions={name: "REF_AREA"},
        codes={name: {"1": "M", "2": "F"}},
        dataflows={group.name: "ESTAT:DF(1.0)"},
    )
    assert_equal_tables(tmp_path / "own", tmp_path / "sdmx")


def test_formats_of_other_packages(stored, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(install(tmp_path / "packages"))
    output = ["--output", tmp_path / "lines"]
    ran = fitplug("export", stored, "--format", "lines", *output)
    assert (ran.code, ran.err) == (0, "")
    write_lines(fp.Release.load(stored), tmp_path / "own")
    assert_equal_tables(tmp_path / "own", tmp_path / "lines")
    ran = fitplug("export", stored, "--format", "line", *output)
    assert "Unknown --format 'line'. Use sdmx-csv, frictionless or lines." in ran.err
    ran = fitplug("export", stored, "--format", "lines", "--agency", "X", *output)
    assert "need --format sdmx-csv" in ran.err.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "xlsx"], "Unknown --format 'xlsx'. Use sdmx-csv or frictionless."),
        (["--format", "sdmx-csv"], "--format sdmx-csv needs --agency"),
        (["--format", "sdmx-csv", "--agency", "1 2"], "is not an SDMX identifier"),
        (["--format", "frictionless", "--agency", "X"], "need --format sdmx-csv"),
        (["--format", "frictionless", "--dimension", "A=B"], "need --format sdmx-csv"),
        (["--format", "sdmx-csv", "--agency", "X", "--dimension", "A"], "written as NAME=VALUE"),
        (["--format", "frictionless", "--confidence", "2"], "confidence"),
    ],
)
def test_wrong_options_are_refused(stored, tmp_path, arguments, message):
    ran = fitplug("export", stored, *arguments, "--output", tmp_path / "made")
    assert ran.code == 2
    assert message in ran.err
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_release_is_refused(tmp_path):
    ran = fitplug("export", tmp_path / "none", "--format", "frictionless", "--output", tmp_path)
    assert ran.code == 2
    assert "this release folder does not exist" in ran.err
