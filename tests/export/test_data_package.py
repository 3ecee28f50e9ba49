"""Data packages, as Frictionless reads and validates them."""

from __future__ import annotations

import json

import frictionless
import pytest

import fitplug as fp
import fitplug_export as fpe
from fitplug.releases import name_files, write_folder
from fitplug.testing import check_export, list_export_cases
from fitplug.testing.exports import make_release
from fitplug_export.data_package import DESCRIPTOR
from tests.helpers import people


def find_errors(folder):
    return frictionless.validate(folder / DESCRIPTOR).flatten(["type", "note"])


def read_package(release, folder):
    """What Frictionless reads, after it has found no error."""
    fpe.write_data_package(release, folder)
    assert find_errors(folder) == []
    package = frictionless.Package(folder / DESCRIPTOR)
    assert package.description == release.population
    assert package.licenses == []
    return {one.title: [row.to_dict() for row in one.read_rows()] for one in package.resources}


@pytest.mark.parametrize("case", list_export_cases())
def test_frictionless_finds_no_error_and_reads_the_answers(case):
    check_export(read_package, case)


@pytest.mark.parametrize("case", list_export_cases())
def test_what_the_tables_are_is_described(case, tmp_path):
    release = make_release(case) if case != "a release in parts" else people.release(noise=1.0)
    fpe.write_data_package(release, tmp_path / "out")
    package = frictionless.Package(tmp_path / "out" / DESCRIPTOR)
    for name, file in name_files(release.plan.workload).items():
        group, resource = release.plan.workload[name], package.get_resource(file)
        rows = resource.read_rows()
        names = [factor.attribute for factor in group.factors]
        table = release.to_arrow(name).select(names).to_pydict() if names else {}
        for attribute in names:
            assert [row[attribute] for row in rows] == table[attribute]
        for field in ("estimate", "std", "moe", "lower", "upper"):
            assert resource.schema.get_field(field).custom["unit"] == group.quantity
        assert resource.custom["fitplug.plan_digest"] == release.plan.digest
        assert float(resource.custom["fitplug.rho"]) == release.rho


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (",true", ",perhaps", "type-error"),
        ("kiel,", "bonn,", "constraint-error"),
        ("ulm,", ",", "constraint-error"),
        ("kiel,", "ulm,", "primary-key"),
    ],
)
def test_edits_are_found(tmp_path, old, new, kind):
    """The description is not so weak that any table fits it."""
    fpe.write_data_package(people.release(noise=1.0), tmp_path / "out")
    path = tmp_path / "out" / "cities.csv"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8", newline="")
    found = {one for one, _ in find_errors(tmp_path / "out")}
    assert {kind, "hash-count"} <= found


def test_a_release_in_parts_is_written_alike(tmp_path):
    release = people.release(noise=1.0)
    write_folder(release, tmp_path / "parts", 0.95, most=7)
    fpe.write_data_package(release, tmp_path / "a")
    fpe.write_data_package(fp.Release.load(tmp_path / "parts"), tmp_path / "b")
    described = [json.loads((tmp_path / one / DESCRIPTOR).read_text()) for one in "ab"]
    assert described[0] == described[1]


def test_the_confidence_asked_for(tmp_path):
    release = people.release(noise=1.0)
    fpe.write_data_package(release, tmp_path / "out", confidence=0.8)
    (row,) = frictionless.Package(tmp_path / "out" / DESCRIPTOR).get_resource("total").read_rows()
    low, high = release.interval("total", 0.8)
    assert (float(row["lower"]), float(row["upper"])) == (float(low), float(high))
    said = (tmp_path / "out" / DESCRIPTOR).read_text()
    assert "intervals at 80%" in said
