"""Rows of a person that a database chooses: as many as allowed, at random, and no more."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pytest

import fitplug as fp
import fitplug_dask as fpd
from fitplug.errors import DataError
from fitplug_ibis import count
from tests.helpers.databases import DOMAIN, load_duckdb, make_rows
from tests.ibis.conftest import ROWS

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # of PySpark, about pandas 3
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.timeout(900),
]

UNITS = [
    fp.AddRemove(records=2),
    fp.AddRemove(records=3, distinct=True),
    fp.AddRemove(records=2, once_per="age"),
    fp.ReplaceOne(),
]
TABLES = [("age", "sex"), ("citizen",)]


@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_as_many_rows_of_each_person_as_a_count_of_files(
    people: Any, parquet: Path, unit: Any
) -> None:
    """Which rows are chosen differs; how many rows of each person are does not."""
    counted = count(fp.Source(people, person="person"), (DOMAIN, TABLES), unit=unit)
    expected = fpd.count(fp.Source(parquet, person="person"), (DOMAIN, TABLES), unit=unit)
    assert counted.marginal(()) == expected.marginal(()) < len(ROWS) * 0.9
    assert counted.unit == expected.unit
    assert counted.person == "person"


@pytest.mark.parametrize("records", [1, 2])
def test_no_person_has_more_rows_whatever_is_counted(people: Any, records: int) -> None:
    """Each person is counted as an attribute, too, under another name."""
    domain = fp.Domain({"who": fp.Integers(0, 599), "sex": ["1", "2"], "region": DOMAIN["region"]})
    source = fp.Source(people.mutate(who=people.person), person="person")
    tables = count(
        source, (domain, [("who",), ("sex", "region")]), unit=fp.AddRemove(records=records)
    )
    rows = Counter(
        row["person"]
        for row in ROWS.select(["person", "sex"]).to_pylist()
        if row["person"] is not None and row["sex"] in ("1", "2")
    )
    expected = [min(records, rows[who]) for who in range(600)]
    assert tables[("who",)].tolist() == expected
    assert tables[("sex", "region")].sum() == sum(expected)  # one choice for all tables


def test_each_row_of_a_person_is_as_likely(people: Any) -> None:
    """Five hundred persons have rows 0, 1 and 2, of which one is counted."""
    places = [ibis.literal(n, "int64").name("place").as_table() for n in range(3)]
    persons = people.filter(people.person < 500).select("person").distinct()
    table = persons.cross_join(ibis.union(*places))
    source = fp.Source(table, person="person")
    wanted = (fp.Domain({"place": fp.Integers(0, 2)}), [("place",)])
    counts = [count(source, wanted, unit=fp.AddRemove())[("place",)] for _ in range(3)]
    n = counts[0].sum()
    assert n > 450
    for chosen in counts:
        assert chosen.sum() == n
        assert np.abs(chosen - n / 3).max() < 6 * np.sqrt(n * 2 / 9)
    assert len({tuple(chosen.tolist()) for chosen in counts}) > 1


def test_who_is_nobody_and_who_is_one_person(tmp_path: Path) -> None:
    connection = ibis.duckdb.connect(tmp_path / "a.duckdb")
    names = "('a'), ('a '), (' a'), ('A'), (''), ('  '), (null), ('7'), ('7'), ('NA'), (' nan')"
    connection.con.execute(f"create table t as select * from (values {names}) v(id)").fetchall()
    table = connection.table("t")
    domain = fp.Domain({"one": fp.Integers(1, 1)})
    source = fp.Source(table.mutate(one=1), person="id")
    assert count(source, (domain, [("one",)]), unit=fp.AddRemove())[("one",)].tolist() == [3]
    assert count(source, (domain, [()]), unit=fp.AddRemove())[()] == 3
    pairs = fp.Source(table.mutate(one=1, line=1), person=["id", "line"])
    assert count(pairs, (domain, [("one",)]), unit=fp.AddRemove())[("one",)].tolist() == [3]


@pytest.mark.parametrize("name", ["income", "born", "digits", "citizen"])
def test_what_cannot_identify_persons_is_refused(tmp_path: Path, name: str) -> None:
    table = load_duckdb(make_rows(20), tmp_path)
    with pytest.raises(DataError, match="person identifiers must be strings or integers"):
        count(fp.Source(table, person=name), (DOMAIN, [("sex",)]), unit=fp.AddRemove())
