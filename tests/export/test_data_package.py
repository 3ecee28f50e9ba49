"""Data packages, as Frictionless reads and validates them."""

from __future__ import annotations

import json

import frictionless
import numpy as np
import pytest

import fitplug as fp
import fitplug_export as fpe
from fitplug.releases import name_files, write_folder
from fitplug_export.data_package import DESCRIPTOR
from tests.helpers import people
from tests.helpers.unusual_labels import release_public, release_sums, release_unusual

RELEASES = {
    "people": lambda: people.release(noise=1.0),
    "unusual": release_unusual,
    "public": release_public,
    "sums": release_sums,
}


@pytest.fixture(scope="module", params=RELEASES)
def written(request, tmp_path_factory):
    release = RELEASES[request.param]()
    folder = tmp_path_factory.mktemp("package") / "out"
    fpe.write_data_package(release, folder)
    return release, folder


def find_errors(folder):
    return frictionless.validate(folder / DESCRIPTOR).flatten(["type", "note"])


def test_frictionless_finds_no_error_and_reads_the_answers(written):
    release, folder = written
    assert find_errors(folder) == []
    package = frictionless.Package(folder / DESCRIPTOR)
    assert sorted(r.name for r in package.resources) == sorted(
        name_files(release.plan.workload).values()
    )
    for name, file in name_files(release.plan.workload).items():
        group = release.plan.workload[name]
        resource = package.get_resource(file)
        rows = resource.read_rows()
        std = np.sqrt(release.variances[name])
        low, high = release.interval(
            name, group.target.confidence or 0.95, simultaneous=group.target.simultaneous
        )
        expected = {
            "estimate": release.estimates[name], "std": std, "moe": (high - low) / 2,
            "lower": low, "upper": high,
        }  # fmt: skip
        for column, own in expected.items():
            found = [float(row[column]) for row in rows]
            np.testing.assert_allclose(found, own.ravel(), rtol=1e-12, atol=1e-12)
        assert resource.title == name
        names = [factor.attribute for factor in group.factors]
        table = release.to_arrow(name).select(names).to_pydict() if names else {}
        for attribute in names:
            assert [row[attribute] for row in rows] == table[attribute]
        for field in ("estimate", "std", "moe", "lower", "upper"):
            assert resource.schema.get_field(field).custom["unit"] == group.quantity
        assert resource.custom["fitplug.plan_digest"] == release.plan_digest
        assert float(resource.custom["fitplug.rho"]) == release.rho
    assert package.description == release.population
    assert package.licenses == []


def test_public_totals_are_marked(tmp_path):
    fpe.write_data_package(release_public(), tmp_path / "out")
    package = frictionless.Package(tmp_path / "out" / DESCRIPTOR)
    said = {one.name: {row["protected"] for row in one.read_rows()} for one in package.resources}
    assert said == {"states": {False}, "sexes": {True}, "all": {False}}


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
