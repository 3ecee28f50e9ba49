"""Labels of values, from a codebook to every form in which people read the numbers."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from pysdmx.io import read_sdmx

import fitplug as fp
import fitplug_export as fpe
from fitplug.domain import label_values
from fitplug_cli.inputs import read_domain
from tests.helpers.command_line import SPEC, fitplug, make

BOOK = 'attribute,value,label\nSEX,1,Male\nSEX,2,"Female, or ""f"""\nAREA,01,North\nAREA,02,\n'
SEXES = ["Male", 'Female, or "f"']
PLACES = """code,name,state_name,note
0101,Ulm,North,a
0102,Kiel,North,b
0201,Rom,South,c
"""
TREE = {"levels": {"state": 2, "town": 4}, "codebook": "places.csv", "column": "code"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("labels")
    (folder / "book.csv").write_text(BOOK)
    (folder / "places.csv").write_text(PLACES)
    spec = SPEC.replace('SEX = ["1", "2"]', 'SEX = { codebook = "book.csv" }')
    assert fitplug("run", make(folder, spec)).code == 0
    return folder


@pytest.fixture(scope="module")
def release(folder) -> fp.Release:
    return fp.Release.load(folder / "release")


def test_tables_have_a_column_of_labels(folder, release):
    expected = [label for label in SEXES for _ in range(6)]
    for table in (
        pq.read_table(folder / "release" / "ages.parquet"),
        pyarrow.csv.read_csv(folder / "release" / "ages.csv"),
        release.to_arrow("ages"),
    ):
        assert table.column_names[:3] == ["SEX", "SEX_label", "AGE"]
        assert table["SEX_label"].to_pylist() == expected
    assert list(release.to_pandas("ages")["SEX_label"]) == expected
    assert release.to_polars("ages")["SEX_label"].to_list() == expected
    assert "SEX_label" not in release.to_arrow("total").column_names
    display = release.nonnegative().to_arrow("ages")
    assert display["SEX_label"].to_pylist() == expected
    release.verify()
    assert "Female" in fitplug("show", folder / "release", "ages").out


def test_plots_show_labels(release):
    axes = release.plot("ages").axes[0]
    shown = [text.get_text() for text in axes.get_legend().get_texts()]
    assert shown == SEXES


def test_other_tools_get_labels(folder, release):
    fpe.write_data_package(release, folder / "package")
    described = json.loads((folder / "package" / "datapackage.json").read_text())
    (ages,) = [r for r in described["resources"] if r["name"] == "ages"]
    assert ages["schema"]["fields"][0]["categories"] == [
        {"value": value, "label": label} for value, label in zip("12", SEXES, strict=True)
    ]
    fpe.write_sdmx(release, folder / "sdmx", agency="TEST", version="1.0.0")
    message = read_sdmx(folder / "sdmx" / "structures.xml", validate=True)
    (sexes,) = [codes for codes in message.get_codelists() if codes.id == "CL_SEX"]
    assert [(code.id, code.name) for code in sexes] == list(zip("12", SEXES, strict=True))


def test_labels_change_neither_noise_nor_cost(folder, tmp_path):
    plan = fp.Plan.load(folder / "release" / "plan.npz")
    assert fitplug("design", make(tmp_path), "-o", tmp_path / "plain.npz").code == 0
    plain = fp.Plan.load(tmp_path / "plain.npz")
    assert (plan.rho_exact, plan.domain) == (plain.rho_exact, plain.domain)
    assert plan.domain.value_labels == {"SEX": dict(zip("12", SEXES, strict=True))}
    assert not plain.domain.value_labels


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet"])
def test_every_format_of_codebooks_has_labels(tmp_path, suffix):
    path = tmp_path / f"book.{suffix}"
    rows = list(csv.DictReader(BOOK.splitlines()))
    if suffix == "csv":
        path.write_text(BOOK)
    elif suffix == "json":
        names = {row["attribute"]: {} for row in rows}
        for row in rows:
            names[row["attribute"]][row["value"]] = row["label"]
        path.write_text(json.dumps(names))
    else:
        columns = {name: [row[name] or None for row in rows] for name in rows[0]}
        pq.write_table(pyarrow.table(columns), path)
    entries = {name: {"codebook": path.name} for name in ("SEX", "AREA")}
    domain = read_domain(entries, tmp_path)
    assert domain == fp.Domain({"SEX": ["1", "2"], "AREA": ["01", "02"]})
    assert label_values(domain, "SEX", "identity", ["1", "2"]) == SEXES
    assert label_values(domain, "AREA", "identity", ["01", "02"]) == ["North", "02"]


def test_a_spec_may_list_labels(tmp_path):
    entry = {"categories": {"1": "Male", "2": "Female"}, "other": "9"}
    domain = read_domain({"SEX": entry}, tmp_path)
    assert domain["SEX"] == fp.Categories(["1", "2"], other="9")
    assert label_values(domain, "SEX", "identity", ["2", "9"]) == ["Female", "9"]


@pytest.mark.parametrize(
    ("label", "states"),
    [("name", None), ({"state": "state_name"}, ["North", "South"])],
)
def test_nodes_of_a_tree_have_labels(folder, label, states):
    domain = read_domain({"PLACE": TREE | {"label": label}}, folder)
    towns = None if states else ["Ulm", "Rom"]
    assert label_values(domain, "PLACE", "state", ["01", "02"]) == states
    assert label_values(domain, "PLACE", "identity", ["0101", "0201"]) == towns
    assert label_values(domain, "PLACE", "town", ["0101", "0201"]) == towns


def test_a_column_has_labels(folder):
    entry = {"codebook": "places.csv", "column": "code", "label": "name"}
    domain = read_domain({"PLACE": entry}, folder)
    assert domain.value_labels == {"PLACE": {"0101": "Ulm", "0102": "Kiel", "0201": "Rom"}}


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (
            TREE | {"label": {"state": "note"}},
            "line 3: the code has a different label on an earlier line",
        ),
        (TREE | {"label": "names"}, "no column 'names'"),
        (TREE | {"label": {"county": "name"}}, "unknown level 'county'"),
        (TREE | {"label": 3}, "'label' must be the name of a column"),
        (
            {"levels": {"s": 2}, "leaves": "codes.txt", "label": "name"},
            "'label' and 'leaves' cannot",
        ),
    ],
)
def test_wrong_labels_of_files_are_refused(folder, entry, says):
    (folder / "codes.txt").write_text("01\n02\n")
    with pytest.raises(fp.DomainError, match=says):
        read_domain({"PLACE": entry}, folder)


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ({"sex": {"3": "x"}}, "the labels name an unknown value '3'"),
        ({"sex": {"1": ""}}, "each label must be a string"),
        ({"sex": {"1": 1}}, "must be a string"),
        ({"age": {"1": "x"}}, "no attribute 'age'"),
        (
            {"sex": {"1": "x"}, "race": {"a": "y"}},
            "'race_label' has the same name as the column for the labels",
        ),
    ],
)
def test_wrong_labels_are_refused(labels, says):
    attributes = {"sex": ["1", "2"], "race": ["a"], "race_label": ["b"]}
    with pytest.raises(fp.DomainError, match=says):
        fp.Domain(attributes, value_labels=labels)
