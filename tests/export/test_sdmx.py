"""SDMX-CSV and its structures, as pysdmx and sdmx1 read them, and by the schemas of SDMX."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from pysdmx.io import get_datasets, read_sdmx

import fitplug as fp
import fitplug_export as fpe
from fitplug.errors import InputError, WorkloadError
from fitplug.releases import name_files
from fitplug.testing import check_export, list_export_cases
from fitplug.testing.exports import make_release
from fitplug_export.sdmx_identifiers import name_codes, name_components
from tests.helpers import people

STRUCTURES = "structures.xml"


CASES = [case for case in list_export_cases() if "parts" not in case]


@pytest.fixture(scope="module", params=CASES)
def written(request, tmp_path_factory) -> tuple[fp.Release, Path]:
    release = make_release(request.param)
    folder = tmp_path_factory.mktemp("sdmx") / "out"
    fpe.write_sdmx(release, folder, agency="TEST.UNIT", version="1.2.0")
    return release, folder


@pytest.fixture(scope="module")
def structures(written):
    """The structures by pysdmx, which holds the message against the schemas of SDMX-ML 3.0."""
    return read_sdmx(written[1] / STRUCTURES, validate=True)


def read_rows(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


COLUMNS = {
    "OBS_VALUE": "estimate", "STD": "std", "MOE": "moe", "LOWER": "lower", "UPPER": "upper",
    "PROTECTED": "protected",
}  # fmt: skip


def read_messages(release, folder):
    """What pysdmx reads: codes are in the order of the rows for which they stand."""
    fpe.write_sdmx(release, folder, agency="TEST")
    message, rows = read_sdmx(folder / STRUCTURES, validate=True), {}
    components = {
        one.id: one.components.dimensions for one in message.get_data_structure_definitions()
    }
    for name, file in name_files(release.plan.workload).items():
        (data,) = get_datasets(folder / f"{file}.csv", folder / STRUCTURES, validate=False)
        group, dimensions = release.plan.workload[name], components[f"DSD_{file.upper()}"][1:]
        rows[name] = []
        for read in data.data.to_dict("records"):
            row = {column: read[key] for key, column in COLUMNS.items()}
            row["protected"] = {"true": True, "false": False}[str(row["protected"]).lower()]
            for factor, dimension in zip(group.factors, dimensions, strict=True):
                codes = [code.id for code in dimension.local_codes]
                labels = factor.labels(release.plan.domain[factor.attribute])
                row[factor.attribute] = labels[codes.index(str(read[dimension.id]))]
            rows[name].append(row)
    return rows


@pytest.mark.parametrize("case", list_export_cases())
def test_pysdmx_reads_the_answers(case):
    check_export(read_messages, case)


def test_codes_have_the_labels_of_the_tables(written, structures):
    release, folder = written
    for name, file in name_files(release.plan.workload).items():
        group = release.plan.workload[name]
        (data,) = get_datasets(folder / f"{file}.csv", folder / STRUCTURES, validate=False)
        assert data.short_urn == f"Dataflow=TEST.UNIT:DF_{file.upper()}(1.2.0)"
        assert data.attributes["UNIT_MEASURE"] == group.quantity
        assert float(data.attributes["CONFIDENCE"]) == (group.target.confidence or 0.95)
        simultaneous = str(data.attributes["SIMULTANEOUS"]).lower()
        assert simultaneous == str(group.target.simultaneous).lower()
        # What each key stands for, by the lists of codes.
        structure = next(
            one
            for one in structures.get_data_structure_definitions()
            if one.id == f"DSD_{file.upper()}"
        )
        rows = read_rows(folder / f"{file}.csv")
        dimensions = structure.components.dimensions
        keys = [tuple(row[one.id] for one in dimensions) for row in rows]
        assert len(set(keys)) == len(keys)
        labels = [{code.id: code.name for code in one.local_codes} for one in dimensions]
        told = [tuple(one[k] for one, k in zip(labels, key, strict=True)) for key in keys]
        assert {key[0] for key in told} == {name}
        table = release.to_arrow(name).to_pydict()
        names = [
            label if (label := f"{factor.attribute}_label") in table else factor.attribute
            for factor in group.factors
        ]
        # XML has no control characters, and a code without a label has its own name.
        columns = [
            [str(label).replace("\x01", "\ufffd") or "ITEM" for label in table[own]]
            for own in names
        ]
        expected = list(zip(*columns, strict=True)) if names else [()]
        assert [key[1:] for key in told] == expected


def test_another_reader_reads_the_same(written):
    sdmx = pytest.importorskip("sdmx", reason="sdmx1 needs Python 3.11")
    csv_reader = pytest.importorskip("sdmx.reader.csv")
    release, folder = written
    # sdmx1 prints what it does not know of SDMX 3.0: that attributes are of a dataflow.
    with redirect_stdout(io.StringIO()), (folder / STRUCTURES).open("rb") as file:
        message = sdmx.read_sdmx(file)
    for name, file in name_files(release.plan.workload).items():
        flow = message.dataflow[f"DF_{file.upper()}"]
        content = io.BytesIO((folder / f"{file}.csv").read_bytes())
        data = csv_reader.Reader().convert(content, structure=flow)
        (found,) = data.data
        values = [float(one.value) for one in found.obs]
        np.testing.assert_array_equal(values, release.estimates[name].ravel() + 0.0)
        stds = [float(one.attached_attribute["STD"].value) for one in found.obs]
        np.testing.assert_array_equal(stds, np.sqrt(release.variances[name]).ravel())


def test_the_structures_say_what_the_release_is(written, structures):
    release, _ = written
    for flow in structures.get_dataflows():
        said = {note.id: note.text for note in flow.annotations}
        assert said["fitplug.plan_digest"] == release.plan.digest
        assert float(said["fitplug.rho"]) == release.rho
        assert json.loads(said["fitplug.unit"]) == release.plan.unit.to_spec()
        assert flow.description == release.population
        assert flow.name in release.plan.workload.names


def test_public_totals_are_marked(tmp_path):
    fpe.write_sdmx(make_release("public totals"), tmp_path / "out", agency="TEST")
    said = {
        name: {row["PROTECTED"] for row in read_rows(tmp_path / "out" / f"{name}.csv")}
        for name in ("states", "sexes", "all")
    }
    assert said == {"states": {"false"}, "sexes": {"true"}, "all": {"false"}}


QUARTERS = fp.Domain(
    {
        "QUARTER": fp.Dates("2020-Q1", "2020-Q4", by="quarter"),
        "STATE": ["01", "US01", "03"],
        "SEX": fp.Categories(["1", "2"]),
    }
)


def release_quarters() -> fp.Release:
    groups = [
        fp.queries({"QUARTER": "identity", "STATE": "identity"}, std=2.0, name="births"),
        fp.queries({"SEX": "identity", "STATE": "total"}, std=2.0, name="sexes"),
    ]
    plan = fp.design(fp.Workload(QUARTERS, groups))
    return fp.Release(plan, np.arange(plan.strategy.size), plan.rho)


def test_dimensions_codes_and_structures_of_others(tmp_path):
    release = release_quarters()
    fpe.write_sdmx(
        release,
        tmp_path / "out",
        agency="TEST",
        dimensions={"QUARTER": "TIME_PERIOD", "STATE": "REF_AREA"},
        codes={"STATE": {"01": "US01"}},
        dataflows={"sexes": "ESTAT:DF_SEX(2.0)"},
    )
    message = read_sdmx(tmp_path / "out" / STRUCTURES, validate=True)
    assert [flow.id for flow in message.get_dataflows()] == ["DF_BIRTHS"]
    (structure,) = message.get_data_structure_definitions()
    assert [one.id for one in structure.components.dimensions] == [
        "QUERY_GROUP", "REF_AREA", "TIME_PERIOD"]  # fmt: skip
    rows = read_rows(tmp_path / "out" / "births.csv")
    areas = dict(zip(QUARTERS["STATE"].labels, ["US01", "US01_2", "03"], strict=True))
    keys = [(time, areas[state]) for time in QUARTERS["QUARTER"].labels for state in areas]
    assert [(row["TIME_PERIOD"], row["REF_AREA"]) for row in rows] == keys
    values = [float(row["OBS_VALUE"]) for row in rows]
    np.testing.assert_array_equal(values, release.estimates["births"].ravel())
    (data,) = get_datasets(
        tmp_path / "out" / "births.csv", tmp_path / "out" / STRUCTURES, validate=False
    )
    assert data.short_urn == "Dataflow=TEST:DF_BIRTHS(1.0.0)"
    rows = read_rows(tmp_path / "out" / "sexes.csv")
    assert {row["STRUCTURE_ID"] for row in rows} == {"ESTAT:DF_SEX(2.0)"}
    assert [(row["SEX"], row["REF_AREA"]) for row in rows] == [("1", "_T"), ("2", "_T")]
    assert "QUERY_GROUP" not in rows[0]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"dimensions": {"MONTH": "TIME_PERIOD"}}, "dimensions: unknown 'MONTH'"),
        ({"dimensions": {"STATE": "REF AREA"}}, "'REF AREA' is not an SDMX dimension"),
        ({"dimensions": {"STATE": "A", "SEX": "A"}}, "two attributes have the same dimension"),
        ({"dimensions": {"STATE": "TIME_PERIOD"}}, "TIME_PERIOD needs dates without 'other'"),
        ({"codes": {"STATE": {"01": "a b"}}}, "'a b' is not an SDMX code"),
        ({"codes": {"STATE": {"01": "A", "03": "A"}}}, "two labels have the same code"),
        ({"dataflows": {"sexes": "DF_SEX"}}, "'DF_SEX' is not an SDMX dataflow"),
        ({"dataflows": {"sex": "A:B(1.0)"}}, "dataflows: unknown 'sex'. Did you mean 'sexes'"),
    ],
)
def test_wrong_names_write_nothing(tmp_path, asked, message):
    with pytest.raises(InputError, match=message):
        fpe.write_sdmx(release_quarters(), tmp_path / "out", agency="TEST", **asked)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"agency": "1X"}, "agency = '1X' is not an SDMX identifier"),
        ({"agency": "A B"}, "is not an SDMX identifier"),
        ({"agency": ""}, "is not an SDMX identifier"),
        ({"agency": "A", "version": "1"}, "version = '1' is not an SDMX version"),
        ({"agency": "A", "version": "01.0.0"}, "is not an SDMX version"),
        ({"agency": "A", "confidence": 1.5}, "confidence"),
    ],
)
def test_wrong_arguments_write_nothing(tmp_path, asked, message):
    with pytest.raises(InputError, match=message):
        fpe.write_sdmx(people.release(), tmp_path / "out", **asked)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("mine")
    for write in (fpe.write_data_package, partial(fpe.write_sdmx, agency="A")):
        with pytest.raises(InputError, match="already exists"):
            write(people.release(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("name", ["protected", "std"])
def test_names_of_result_columns_are_refused(tmp_path, name):
    plan = fp.design(fp.Workload(fp.Domain({name: ["1", "2"]}), [fp.marginal(name, std=2.0)]))
    release = fp.Release(plan, np.zeros(plan.strategy.size, dtype=np.int64), plan.rho)
    for write in (fpe.write_data_package, partial(fpe.write_sdmx, agency="A")):
        with pytest.raises(WorkloadError, match="same name as a column of the results"):
            write(release, tmp_path / "out")


def test_identifiers_stay_where_they_are_some():
    labels = ["a b", "a_b", "a_b", "-5..-1", "", "Zürich", "北京", "[0, 10)"]
    assert name_codes(labels) == [
        "a_b_2", "a_b", "a_b_3", "-5_-1", "ITEM", "Zurich", "ITEM_2", "0_10"]  # fmt: skip
    assert name_components(["std", "9", "AGE", "age", "é", "性"], ["STD"]) == [
        "std_2", "A_9", "AGE", "age_2", "e", "ITEM"]  # fmt: skip


@given(
    st.lists(st.text(max_size=4), max_size=8), st.lists(st.sampled_from(["A", "a", "A_2", "ITEM"]))
)
def test_identifiers_are_distinct_and_of_their_form(names, taken):
    """The forms are those of the schemas: IDType and NCNameIDType of SDMXCommonReferences.xsd."""
    codes = name_codes(names)
    assert len(set(codes)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_@$\-]+", code) for code in codes)
    components = name_components(names, taken)
    folded = [own.casefold() for own in components]
    assert len(set(folded)) == len(names)
    assert not set(folded) & {own.casefold() for own in taken}
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_\-]*", own) for own in components)


def test_without_pysdmx_the_message_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pysdmx.io.pd", None)
    with pytest.raises(ImportError, match=r'pysdmx is not.*pip install "fitplug\[sdmx\]"'):
        fpe.write_sdmx(people.release(), tmp_path / "out", agency="A")
    assert list(tmp_path.iterdir()) == []
