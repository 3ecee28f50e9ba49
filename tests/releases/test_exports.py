"""Tables for Arrow, pandas and Polars: what they hold, and that nothing is imported before."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import fitplug as fp
from fitplug.releases.tables import RESULT_COLUMNS
from fitplug.workload.targets import find_quantile
from tests.helpers import people

LIBRARIES = ("pyarrow", "pandas", "polars")


@pytest.fixture(scope="module")
def release():
    return people.release(noise=1.0)


def columns(release, library, name, **asked):
    """Column names, and columns as lists."""
    if library == "pyarrow":
        return release.to_arrow(name, **asked).to_pydict()
    pytest.importorskip(library)
    if library == "pandas":
        return release.to_pandas(name, **asked).to_dict("list")
    return release.to_polars(name, **asked).to_dict(as_series=False)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("pyramid", {"sex": ["1"] * 6 + ["2"] * 6,
                     "age": ["0", "0..1", "0..2", "0..3", "0..4", "0..5"] * 2}),
        ("voting age", {"age": ["2..5", "4..5"]}),
        ("regions", {"place": ["north", "south"], "sex": ["all", "all"]}),
        ("cities", {"place": ["ulm", "ulm", "kiel", "kiel", "rom", "rom"],
                    "income": ["[0, 10)", "[10, 50)"] * 3}),
        ("weighted", {"sex": [0, 1]}),
        ("total", {}),
    ],
)  # fmt: skip
def test_a_row_per_answer(release, library, name, labels):
    held = columns(release, library, name)
    assert list(held) == [*labels, *RESULT_COLUMNS]
    for attribute, own in labels.items():
        assert held[attribute] == own
    target = release.plan.workload[name].target
    confidence = target.confidence or 0.95
    z = find_quantile(confidence, 6 if target.simultaneous else 1)
    std = np.sqrt(release.variances[name].ravel())
    estimate = release.estimates[name].ravel()
    expected = (estimate, std, z * std, estimate - z * std, estimate + z * std, confidence)
    for column, own in zip(RESULT_COLUMNS, expected, strict=True):
        np.testing.assert_allclose(held[column], own, rtol=1e-14)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("simultaneous", [False, True])
def test_the_confidence_asked_for(release, library, simultaneous):
    asked = {"confidence": 0.8, "simultaneous": simultaneous}
    held = columns(release, library, "cities", **asked)
    low, high = release.interval("cities", 0.8, simultaneous=simultaneous)
    np.testing.assert_allclose(held["lower"], low.ravel(), rtol=1e-14)
    np.testing.assert_allclose(held["upper"], high.ravel(), rtol=1e-14)


def test_tables_say_what_they_are(release):
    said = release.to_arrow("cities").schema.metadata
    assert said[b"fitplug.plan_digest"].decode() == release.plan.digest
    assert said[b"fitplug.confidence"] == b"0.9"
    assert said[b"fitplug.simultaneous"] == b"true"
    assert float(said[b"fitplug.rho"]) == release.rho
    assert b"rows" in said[b"fitplug.units"]
    pytest.importorskip("pandas")
    assert release.to_pandas("cities").attrs["fitplug.plan_digest"] == release.plan.digest


def test_bad_requests(release):
    with pytest.raises(KeyError, match="Did you mean 'total'"):
        release.to_arrow("totel")
    with pytest.raises(fp.WorkloadError, match="confidence"):
        release.to_arrow("total", confidence=1.0)
    domain = fp.Domain({"std": ["a", "b"]})
    plan = fp.design(fp.Workload(domain, [fp.marginal("std", std=2.0)]))
    own = fp.Release(plan=plan, answers=np.zeros(plan.strategy.size, np.int64), rho=plan.rho)
    with pytest.raises(fp.WorkloadError, match="'std' has the same name as a column"):
        own.to_arrow("std")


@pytest.mark.parametrize(
    ("library", "method", "extra"),
    [("pyarrow", "to_arrow", "arrow"), ("pandas", "to_pandas", "pandas"),
     ("polars", "to_polars", "polars")],
)  # fmt: skip
def test_a_missing_library_names_its_extra(release, monkeypatch, library, method, extra):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=rf'{library}.*pip install "fitplug\[{extra}\]"'):
        getattr(release, method)("total")


def test_the_core_imports_none_of_them():
    code = f"import sys, fitplug; sys.exit(str({set(LIBRARIES)!r} & set(sys.modules) or ''))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stderr.strip() == ""
