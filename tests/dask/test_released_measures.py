"""Sums of measures released in parts and period by period, against those of the rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fitplug as fp
import fitplug_dask as fpd
from fitplug.errors import InputError
from fitplug_dask.releases import release_source, releasing
from tests.helpers.audited_releases import use_small_parts
from tests.helpers.local_workers import start_workers

DOMAIN = fp.Domain(
    {
        "month": fp.Integers(1, 3),
        "place": fp.Integers(0, 39),
        "pay": fp.Measure(0, 100, unit=5, other="none"),
    }
)
BY_PLACE = {"month": "identity", "place": "identity"}
PLAN = fp.design(
    fp.Workload(
        DOMAIN,
        [
            fp.queries(
                {"month": "identity", "place": "identity", "pay": "sum"}, std=60, name="pay"
            ),
            fp.queries({"month": "prefix", "pay": "sum"}, std=90, name="so far"),
            fp.marginal("month", "place", std=2.0, name="people"),
        ],
    ),
    periods="month",
)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(4)
    pay = rng.integers(-3, 25, 3000) * 5.0
    pay[::7] = np.nan
    return {
        "month": rng.integers(1, 4, 3000),
        "place": rng.integers(0, 40, 3000),
        "pay": pay,
        "id": np.arange(3000),
    }


@pytest.fixture(scope="module")
def source(rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    pq.write_table(pa.table(rows), folder / "rows.parquet", row_group_size=600)
    return folder


def find_truth(rows):
    """The sums of clamped values, and the numbers of rows."""
    pay, people = np.zeros((3, 40)), np.zeros((3, 40))
    cell = rows["month"] - 1, rows["place"]
    np.add.at(pay, cell, np.nan_to_num(np.clip(rows["pay"], 0, 100)))
    np.add.at(people, cell, 1)
    return {"pay": pay, "so far": pay.sum(axis=1).cumsum(), "people": people}


def check_values(released, truth, known=None):
    for name, values in truth.items():
        low, high = released.interval(name, confidence=1 - 1e-9)
        shape = low.shape
        inside = (low <= values.reshape(shape)) & (values.reshape(shape) <= high)
        assert inside[slice(None) if known is None else known[name]].all()
        width = np.nanmax(high - low)  # periods that are not drawn have none
        assert np.ptp(values) > width / 10  # the check has power


@pytest.mark.parametrize("how", ["tables", "process", "slabs", "persons in slabs"])
def test_parts(how, rows, source, tmp_path, monkeypatch):
    use_small_parts(monkeypatch, 30)
    if "slabs" in how:
        monkeypatch.setattr(releasing, "_MOST_CELLS", 0)
    people = fp.Source(source, person="id" if "persons" in how else None)
    given = fpd.count(source, PLAN) if how == "tables" else people
    released = release_source(PLAN, given, tmp_path / "out")
    assert len(released.answers.parts) > 1
    check_values(released, find_truth(rows))
    released.verify()
    exact = PLAN.strategy.answer_exactly(fpd.count(source, PLAN).marginal)
    errors = (np.asarray(released.answers) - exact) / PLAN.noise_std
    assert 0.5 < np.sqrt((errors**2).mean()) < 1.5
    read = fp.Release.load(tmp_path / "out")
    np.testing.assert_array_equal(read.estimates["pay"], released.estimates["pay"])


@pytest.mark.long
def test_on_a_cluster_of_processes(rows, source, tmp_path):
    with start_workers(2, 1, processes=True) as client:
        counted = fpd.count(source, PLAN, client=client)
        of_persons = fpd.count(
            fp.Source(source, person="id"), PLAN, client=client, unit=fp.AddRemove(1)
        )
        released = release_source(PLAN, source, tmp_path / "out", client=client)
    alone = fpd.count(source, PLAN)
    for names in alone:
        np.testing.assert_array_equal(counted[names], alone[names])
        np.testing.assert_array_equal(of_persons[names], alone[names])
    check_values(released, find_truth(rows))


def test_periods(rows, source, tmp_path):
    ledger = fp.Ledger(tmp_path / "budget.db", rho=10.0)
    series = fp.begin_series(PLAN, tmp_path / "series", ledger=ledger, key="pay")
    for month in (1, 2, 3):
        released = series.release(month, source)
        known = {name: released.known[name] for name in ("pay", "so far", "people")}
        assert all(own.any() for own in known.values())
        check_values(released, find_truth(rows), known)
    series.verify()
    check_values(series.to_release(), find_truth(rows))


def test_measures_are_no_periods():
    workload = fp.Workload(
        fp.Domain({"month": fp.Integers(1, 2), "pay": fp.Measure(0, 10)}),
        [fp.queries({"month": "identity", "pay": "sum"}, std=9.0), fp.marginal("month", std=2.0)],
    )
    with pytest.raises(InputError, match="is a measure"):
        fp.design(workload, periods="pay")
    assert "pay" not in fp.design(workload).causal_attributes
