"""Distances and durations of real taxi trips by zone and hour, against DuckDB's sums.

The trips are those of the green taxis of New York in January 2022, which the Taxi and Limousine
Commission publishes as green_tripdata_2022-01.parquet. They are not shipped: the environment
variable FITPLUG_TAXI_TRIPS names the file, and without it these tests are skipped. The file has
distances of up to 224,481 miles and trips that end before they begin, which the bounds clamp.
"""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import numpy as np
import pytest

import fitplug as fp
import fitplug_dask as fpd
from fitplug.domain import get_codec

FILE = os.environ.get("FITPLUG_TAXI_TRIPS", "")
pytestmark = pytest.mark.skipif(not FILE, reason="FITPLUG_TAXI_TRIPS names no file of trips")

BY = ("ZONE", "HOUR")
MEASURES = {
    "MILES": fp.Measure(0, 20, unit=0.01),
    "MINUTES": fp.Measure(0, 90, unit=0.5),
}
CLAMPED = {
    "MILES": "floor(least(greatest(MILES, 0), 20) / 0.01 + 0.5) * 0.01",
    "MINUTES": "floor(least(greatest(MINUTES, 0), 90) / 0.5 + 0.5) * 0.5",
}


@pytest.fixture(scope="module")
def trips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trips with zone, hour, miles and minutes as columns."""
    path = tmp_path_factory.mktemp("taxi") / "trips.parquet"
    duckdb.sql(
        "copy (select PULocationID as ZONE, hour(lpep_pickup_datetime) as HOUR, trip_distance as "
        "MILES, date_diff('second', lpep_pickup_datetime, lpep_dropoff_datetime) / 60.0 as MINUTES "
        f"from read_parquet('{FILE}')) to '{path}' (format parquet)"
    )
    return path


def sum_exactly(trips: Path, value: str) -> np.ndarray:
    sql = f"select ZONE, HOUR, sum({value}) from read_parquet('{trips}') where ZONE <= 263"
    exact = np.zeros((263, 24))
    for zone, hour, number in duckdb.sql(f"{sql} group by all").fetchall():
        exact[zone - 1, hour] = number
    return exact


def make_workload(name: str) -> fp.Workload:
    cells = dict.fromkeys(BY, "identity")
    groups = [
        fp.queries(cells, std=5.0, name="trips"),
        fp.queries(cells | {name: "sum"}, std=40.0, name="sums"),
        fp.queries({"HOUR": "identity", name: "sum"}, std=200.0, name="sums by hour"),
        fp.marginal("HOUR", std=20.0),
    ]
    attributes = {"ZONE": fp.Integers(1, 263), "HOUR": fp.Integers(0, 23), name: MEASURES[name]}
    return fp.Workload(fp.Domain(attributes), groups)


@pytest.mark.parametrize("name", MEASURES)
def test_sums_by_zone_and_hour(trips: Path, name: str) -> None:
    plan = fp.design(make_workload(name))
    assert plan.gap < 0.002
    tables = fpd.count(trips, plan)
    measure = MEASURES[name]
    shares = tables[(*BY, name)]
    exact, people = sum_exactly(trips, CLAMPED[name]), sum_exactly(trips, "1")
    np.testing.assert_array_equal(shares.sum(axis=-1), get_codec(measure).shares * people)
    np.testing.assert_allclose(shares[..., 1] * measure.unit, exact, rtol=1e-12, atol=1e-9)

    release = fp.release(plan, tables)
    for group, answers in (("sums", exact), ("sums by hour", exact.sum(axis=0))):
        off = release.estimates[group].reshape(answers.shape) - answers
        errors = off / np.sqrt(release.variances[group].reshape(answers.shape))
        assert np.abs(errors).max() < 6.5
        total = release.estimate(f"'{group}'")  # with errors of one sign, this would be far off
        assert abs(total.value - exact.sum()) < 6.5 * total.std
    covered = 0
    for hour in range(24):
        mean = release.estimate(f"'sums by hour'[HOUR={hour}] / HOUR[HOUR={hour}]")
        low, high = mean.interval(0.95)
        covered += low <= exact[:, hour].sum() / people[:, hour].sum() <= high
    assert covered >= 17, "fewer of 24 independent intervals have a probability of 10^-5"
