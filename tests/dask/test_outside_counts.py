"""Records outside the domain: counted from files as in memory, by attribute."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client
from pyarrow import csv, feather

import fitplug as fp
from fitplug.counts import OutsideCounts
from fitplug.errors import BudgetError, TablesError
from fitplug_dask.kernel import counters
from fitplug_dask.request import Request

DOMAIN = fp.Domain(
    {
        "sex": ["1", "2"],
        "age": fp.Integers(0, 9),
        "born": fp.Dates(datetime.date(2020, 1, 1), datetime.date(2020, 1, 31)),
        "race": fp.Categories(["a", "b"], other="rest"),
        "pay": fp.Measure(0, 100, unit=1),
    }
)
GROUPS = {
    "one joint table": [fp.marginal("sex", "age", std=3.0)],
    "several tables": [
        fp.marginal("sex", "race", std=3.0),
        fp.marginal("age", std=2.0),
        fp.marginal("born", std=5.0),
    ],
    "measures": [fp.queries({"pay": "sum", "age": "identity"}, std=50.0)],
}


def design(name: str) -> fp.Plan:
    return fp.design(fp.Workload(DOMAIN, GROUPS[name]), coverage=True, tolerance=1e-2)


def people(rows: int = 500) -> pa.Table:
    rng = np.random.default_rng(rows)

    def draw(values: list[Any], kind: pa.DataType) -> pa.Array:
        return pa.array([values[i] for i in rng.integers(0, len(values), rows)], kind)

    days = [datetime.date(2019, 12, 30) + datetime.timedelta(days=n) for n in range(40)]
    return pa.table(
        {
            "sex": draw(["1", "2", "2", "m", None], pa.string()),
            "age": draw([*range(-1, 12), None], pa.int16()),
            "born": draw([*days, None], pa.date32()),
            "race": draw(["a", "b", "c", None], pa.string()),
            "pay": draw([0.0, 5.5, 300.0, -2.0, float("nan"), None], pa.float64()),
            "level": draw(["x", "y", "z", None], pa.string()),
            "weight": draw([0, 1, 7, 2**20, None], pa.int64()),
        }
    )


def expect(plan: fp.Plan, table: pa.Table, **more: Any) -> OutsideCounts:
    outside = fp.Tables.from_records(plan.domain, table, plan.tables, **more).outside
    assert outside is not None
    assert 0 < outside.in_no_table < sum(outside.by_attribute) or len(outside.names) == 1
    return outside


def write(folder: Path, table: pa.Table, kind: str) -> Path:
    folder.mkdir()
    for number, start in enumerate(range(0, len(table), 200)):
        part, path = table.slice(start, 200), str(folder / f"{number}.{kind}")
        if kind == "parquet":
            pq.write_table(part, path, row_group_size=70)
        elif kind == "arrow":
            feather.write_feather(part, path, "uncompressed")
        else:
            csv.write_csv(part, path)
    return folder


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv"])
@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize(
    ("source", "memory"),
    [
        ({}, {}),
        ({"where": {"level": ["x", "z"]}}, {"where": {"level": ["x", "z"]}}),
        ({"weight": "weight"}, {"weights": "weight"}),
        (
            {"weight": "weight", "where": {"level": "y", "sex": ["1", "m"]}},
            {"weights": "weight", "where": {"level": "y", "sex": ["1", "m"]}},
        ),
    ],
    ids=["all rows", "filtered", "weighted", "both"],
)
def test_files_are_counted_as_in_memory(
    tmp_path: Path, name: str, kind: str, source: Any, memory: Any
) -> None:
    plan, table = design(name), people()
    counted = fp.count(fp.Source(write(tmp_path / "rows", table, kind), **source), plan)
    assert counted.outside == expect(plan, table, **memory)
    plain = fp.count(fp.Source(tmp_path / "rows", **source), (plan.domain, plan.tables))
    assert plain.outside is None
    for names in plan.tables:
        assert np.array_equal(plain[names], counted[names])


@pytest.mark.parametrize("table", [people(), people(0).slice(0, 0)], ids=["rows", "no rows"])
def test_frames_are_counted_as_in_memory(table: pa.Table) -> None:
    plan = design("several tables")
    outside = fp.Tables.from_records(plan.domain, table, plan.tables).outside
    assert fp.count(table, plan).outside == outside
    assert fp.count(pl.DataFrame(table), plan).outside == outside


def test_folders_outside_the_domain_are_counted(tmp_path: Path) -> None:
    """Their files are not read where only tables are counted; filters still leave files out."""
    plan, parts = design("several tables"), []
    for sex in ("1", "2", "m", "__HIVE_DEFAULT_PARTITION__"):
        for level in ("x", "y"):
            part = people(60 + len(parts)).drop_columns(["sex", "level"])
            folder = tmp_path / f"sex={sex}" / f"level={level}"
            folder.mkdir(parents=True)
            pq.write_table(part, folder / "a.parquet")
            value = None if sex.startswith("_") else sex
            if level == "x":
                parts.append(part.append_column("sex", pa.array([value] * len(part), pa.string())))
    source = fp.Source(tmp_path, where={"level": "x"})
    assert fp.count(source, plan).outside == expect(plan, pa.concat_tables(parts))


def test_files_without_a_column_are_outside(tmp_path: Path) -> None:
    plan = design("one joint table")
    with_age, without = people(50), people(70).drop_columns(["age"])
    write(tmp_path / "a", with_age, "parquet")
    write(tmp_path / "b", without, "parquet")
    missing = without.append_column("age", pa.nulls(70, pa.int16()))
    whole = pa.concat_tables([with_age, missing.select(with_age.column_names)])
    source = fp.Source(tmp_path / "*" / "*.parquet", missing={"age": None})
    assert fp.count(source, plan).outside == expect(plan, whole)


def test_files_of_no_column_but_a_folder(tmp_path: Path) -> None:
    plan = fp.design(fp.Workload(DOMAIN, [fp.marginal("sex", std=3.0)]), coverage=True)
    for sex, rows in (("1", 5), ("m", 7)):
        (tmp_path / f"sex={sex}").mkdir()
        pq.write_table(people(rows).drop_columns(["sex"]), tmp_path / f"sex={sex}" / "a.parquet")
    counted = fp.count(tmp_path, plan)
    assert counted.outside == OutsideCounts(("sex",), (7,), 7)
    assert counted["sex"].tolist() == [5, 0]


def test_large_files_are_counted_block_by_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters, "BLOCK_ROWS", 64)
    plan, table = design("measures"), people(2000)
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=900)
    assert fp.count(tmp_path, plan).outside == expect(plan, table)


def test_numbers_are_exact_whatever_the_weights_and_no_error_tells(tmp_path: Path) -> None:
    plan = design("one joint table")
    table = pa.table({"sex": ["m"] * 2**14, "age": [1] * 2**14, "weight": [2**40] * 2**14})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2**12)
    counted = fp.count(fp.Source(tmp_path, weight="weight"), plan)
    assert counted.outside == OutsideCounts(("sex", "age"), (2**54, 0), 2**54)


@pytest.mark.slow
def test_on_a_cluster(tmp_path: Path, client: Client) -> None:
    plan, table = design("several tables"), people(1500)
    source = write(tmp_path / "rows", table, "parquet")
    assert fp.count(source, plan, client=client).outside == expect(plan, table)


def test_counts_limited_by_person_are_refused(tmp_path: Path) -> None:
    plan = design("one joint table")
    source = fp.Source(write(tmp_path / "rows", people(), "parquet"), person="level")
    with pytest.raises(BudgetError, match="coverage"):
        fp.count(source, plan)
    limited = fp.count(source, (plan.domain, plan.tables), unit=fp.AddRemove())
    with pytest.raises(TablesError, match="person= and coverage cannot be combined"):
        fp.release(plan, limited)


def test_tables_in_shards_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Request, "estimate_memory", lambda *a, **k: 2**60)
    source = write(tmp_path / "rows", people(), "parquet")
    with pytest.raises(TablesError, match=r"counting .* cells needs about"):
        fp.count(source, design("one joint table"))


def test_a_release_of_files_has_coverage(tmp_path: Path) -> None:
    plan, table = design("several tables"), people(3000)
    source = write(tmp_path / "rows", table, "parquet")
    outside = expect(plan, table)
    released = [
        fp.release(plan, source),
        fp.release(plan, source, tmp_path / "in parts"),
        fp.Release.load(tmp_path / "in parts"),
    ]
    for release in released:
        rows = release.coverage()
        assert [row.attribute for row in rows] == ["sex", "age", "born", None]
        exact = (*outside.by_attribute, outside.in_no_table)
        for row, number in zip(rows, exact, strict=True):
            assert abs(row.rows.value - number) < 6 * row.rows.std
            assert row.share is not None
            low, high = row.share.interval(0.999999)
            assert low < number / len(table) < high
    assert released[1].coverage() == released[2].coverage() != released[0].coverage()


def test_slabs_are_refused_before_the_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fitplug_dask.releases.releasing._MOST_CELLS", 3)
    ledger = fp.Ledger(tmp_path / "budget.db", rho=10)
    source = write(tmp_path / "rows", people(), "parquet")
    with pytest.raises(fp.InputError, match="2\\^24 cells"):
        fp.release(design("one joint table"), source, tmp_path / "out", ledger=ledger)
    assert not ledger.entries()
