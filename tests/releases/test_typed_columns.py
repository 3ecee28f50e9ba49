"""Tables have integers and booleans where the domain has, so that they merge with the data's."""

from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fitplug as fp
from tests.helpers.forged_folders import forge_table

DOMAIN = fp.Domain(
    {
        "SEX": fp.Categories([1, 2]),
        "FLAG": fp.Categories([True, False]),
        "RACE": fp.Categories([1, 2], other="rest"),
        "AREA": fp.Hierarchy(["region", "area"], [(1, 10), (1, 11), (2, 20)]),
        "SITE": fp.Hierarchy(["region", "part", "site"], [(1, 1, 10), (2, 1, 20)]),
        "CODE": ["01", "02"],
    }
)
GROUPS = [
    fp.marginal("SEX", "FLAG", std=2.0, name="typed"),
    fp.marginal("RACE", "CODE", std=2.0, name="texts"),
    fp.queries({"AREA": "region"}, std=2.0, name="regions"),
    fp.queries({"AREA": "area"}, std=2.0, name="areas"),
    fp.queries({"SITE": "part"}, std=2.0, name="parts"),
]


@pytest.fixture(scope="module")
def release():
    plan = fp.design(fp.Workload(DOMAIN, GROUPS), tolerance=1e-1)
    return fp.Release(plan=plan, answers=np.zeros(plan.strategy.size, np.int64), rho=plan.rho)


def test_pandas_merges_with_the_data(release):
    data = pd.DataFrame({"SEX": [1, 2, 2, 1], "FLAG": [True, True, False, False]})
    counted = data.value_counts().rename("n").reset_index()
    merged = release.to_pandas("typed").merge(counted, on=["SEX", "FLAG"], validate="1:1")
    assert merged["n"].sum() == len(data)
    areas = pd.DataFrame({"AREA": [1, 2], "name": ["north", "south"]})
    merged = release.to_pandas("regions").merge(areas, on="AREA", validate="1:1")
    assert merged["name"].tolist() == ["north", "south"]


def test_the_types_of_columns(release):
    types = {
        ("typed", "SEX"): pa.int64(),
        ("typed", "FLAG"): pa.bool_(),
        ("texts", "RACE"): pa.string(),  # a label of all other values is text
        ("texts", "CODE"): pa.string(),
        ("regions", "AREA"): pa.int64(),
        ("areas", "AREA"): pa.int64(),
        ("parts", "SITE"): pa.string(),  # two parts 1, which are told apart by their paths
    }
    for (group, name), kind in types.items():
        assert release.to_arrow(group).schema.field(name).type == kind, name
    assert release.to_polars("typed")["FLAG"].dtype == pl.Boolean
    assert release.to_polars("areas")["AREA"].to_list() == [10, 11, 20]
    assert release.to_arrow("parts")["SITE"].to_pylist() == ["1/1", "2/1"]


def test_a_folder_joins_in_sql(release, tmp_path):
    release.save(tmp_path / "out")
    pq.write_table(pa.table({"SEX": [1, 2]}), tmp_path / "data.parquet")
    found = duckdb.sql(
        f"SELECT count(*) FROM '{tmp_path}/out/typed.parquet' JOIN '{tmp_path}/data.parquet' "
        "USING (SEX)"
    ).fetchall()
    assert found == [(4,)]
    assert fp.Release.load(tmp_path / "out").plan.digest == release.plan.digest


def test_an_edited_column_of_labels_is_noticed(release, tmp_path):
    release.save(tmp_path / "out")
    table = pq.read_table(tmp_path / "out" / "regions.parquet")
    edited = table.set_column(0, "AREA", pa.array(["2", "1"]))
    forge_table(tmp_path / "out", "regions", edited)
    with pytest.raises(fp.InputError, match="does not match the answers"):
        fp.Release.load(tmp_path / "out")


def test_booleans_are_named_as_csv_writes_them(release):
    for text in ("True", "true"):
        one = release.estimate(f"typed[SEX=1, FLAG={text}]")
        assert one.std == pytest.approx(2.0, rel=0.2)
    asked = fp.queries({"FLAG": fp.subsets({"yes": ["true"], "no": [False]})}, std=1.0)
    (factor,) = fp.Workload(DOMAIN, [asked]).groups[0].factors
    assert factor.matrix().tolist() == [[1, 0], [0, 1]]
