"""Grids of xarray: what they hold, by label and by number."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import xarray

import fitplug as fp
import fitplug_export as fpe
from fitplug.errors import WorkloadError
from fitplug.releases import write_folder
from fitplug.testing import check_export, list_export_cases
from fitplug.testing.exports import make_release
from tests.helpers import people

NUMBERS = ("estimate", "std", "moe", "lower", "upper")


@pytest.fixture(scope="module")
def release():
    return people.release(noise=1.0)


def read_grids(release, folder):
    """Made long by xarray itself, the grids have the rows of the release."""
    rows = {}
    for name in release.plan.workload.names:
        grid = fpe.to_xarray(release, name)
        assert isinstance(grid, xarray.Dataset)
        names = [factor.attribute for factor in release.plan.workload[name].factors]
        assert list(grid["estimate"].dims) == names
        np.testing.assert_array_equal(grid["variance"], release.variances[name])
        assert float(grid.attrs["fitplug.rho"]) == release.rho
        if names:
            rows[name] = grid.to_dataframe(dim_order=names).reset_index().to_dict("records")
        else:
            rows[name] = [{key: grid[key].item() for key in grid}]
    return rows


@pytest.mark.parametrize("case", list_export_cases())
def test_grids_have_the_rows_of_the_release(case):
    check_export(read_grids, case)


def test_the_attributes_of_a_grid_are_those_of_pandas(release):
    assert fpe.to_xarray(release, "cities").attrs == release.to_pandas("cities").attrs


def test_cells_are_found_by_their_labels(release):
    grid = fpe.to_xarray(release, "pyramid")
    found = grid["estimate"].sel(sex="2", age="0..3")
    assert float(found) == release.estimates["pyramid"][1, 3]
    cell = fpe.to_xarray(release, "cities").sel(place="rom", income="[10, 50)")
    low, high = release.interval("cities", 0.9, simultaneous=True)
    assert (float(cell["lower"]), float(cell["upper"])) == (low[2, 1], high[2, 1])


def test_the_confidence_asked_for(release):
    grid = fpe.to_xarray(release, "cities", confidence=0.8, simultaneous=False)
    low, high = release.interval("cities", 0.8)
    np.testing.assert_array_equal(grid["lower"], low)
    np.testing.assert_array_equal(grid["upper"], high)
    assert grid.attrs["fitplug.confidence"] == "0.8"


def test_units_are_those_of_a_sum():
    release = make_release("sums")
    grid = fpe.to_xarray(release, "incomes")
    assert {grid[one].attrs["units"] for one in NUMBERS} == {"sum of income"}
    assert grid["variance"].attrs["units"] == "(sum of income)^2"
    assert fpe.to_xarray(release, "people")["std"].attrs["units"] == "rows"
    assert '"records": 3' in grid.attrs["fitplug.unit"]


def test_public_totals_are_exact():
    release = make_release("public totals")
    grid = fpe.to_xarray(release, "states")
    np.testing.assert_array_equal(grid["estimate"], release.public_totals)


def test_a_release_in_parts_has_the_same_grids(release, tmp_path):
    write_folder(release, tmp_path / "parts", 0.95, most=7)
    again = fp.Release.load(tmp_path / "parts")
    xarray.testing.assert_identical(
        fpe.to_xarray(again, "cities"), fpe.to_xarray(release, "cities")
    )


def test_names_of_variables_are_refused():
    for name in ("variance", "estimate", "protected"):
        plan = fp.design(fp.Workload(fp.Domain({name: ["1", "2"]}), [fp.marginal(name, std=2.0)]))
        release = fp.Release(plan, np.zeros(plan.strategy.size, dtype=np.int64), plan.rho)
        with pytest.raises(WorkloadError, match=f"attribute '{name}' has the same name as a"):
            fpe.to_xarray(release, name)


def test_xarray_is_imported_when_it_is_asked_for():
    code = "import sys, fitplug; assert 'xarray' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_xarray_the_message_says_how_to_get_it(release, monkeypatch):
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(ImportError, match=r'pip install "fitplug\[xarray\]"'):
        fpe.to_xarray(release, "total")
