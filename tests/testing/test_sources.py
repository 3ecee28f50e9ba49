"""Every kind of source counts as a plain count does, and each fault in one is found."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import ibis
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.dataset as ds
import pyarrow.feather as pf
import pyarrow.parquet as pq
import pytest

import fitplug as fp
from fitplug.testing import check_source, list_source_cases
from tests.helpers.counting import write_stream
from tests.helpers.databases import load_duckdb, load_sqlite

Columns = Mapping[str, list[Any]]
Types = Mapping[str, type]
ARROW = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    datetime.date: pa.date32(),
}


def to_arrow(columns: Columns, types: Types) -> pa.Table:
    return pa.table({name: pa.array(columns[name], ARROW[types[name]]) for name in columns})


@dataclass
class Exported:
    """Rows of a library that nobody knows, by the interface of Arrow."""

    table: pa.Table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


def write(suffix: str, writer: Callable[..., Any]) -> Callable[[pa.Table, Path], Path]:
    def make(table: pa.Table, folder: Path) -> Path:
        writer(table, folder / f"rows{suffix}")
        return folder / f"rows{suffix}"

    return make


def write_delta(table: pa.Table, folder: Path) -> fp.DeltaTable:
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(str(folder / "lake"), table)
    return fp.DeltaTable(folder / "lake")


def write_pieces(table: pa.Table, folder: Path) -> Path:
    for start in range(0, max(1, len(table)), 100):
        pq.write_table(table.slice(start, 100), folder / f"{start}.parquet", row_group_size=30)
    return folder


SOURCES: dict[str, Callable[[pa.Table, Path], Any]] = {
    "Parquet": write(".parquet", pq.write_table),
    "many Parquet files": write_pieces,
    "CSV": write(".csv", pc.write_csv),
    "Feather": write(".feather", pf.write_feather),
    "a stream of Arrow": write(".arrows", write_stream),
    "a Table": lambda table, _: table,
    "a data set": lambda table, _: ds.dataset(table),
    "pandas": lambda table, _: table.to_pandas(types_mapper=pd_types),
    "Polars": lambda table, _: pl.from_arrow(table),
    "a relation of DuckDB": lambda table, _: duckdb.from_arrow(table),
    "an object with Arrow's interface": lambda table, _: Exported(table),
    "a Delta table": write_delta,
    "DuckDB by Ibis": load_duckdb,
    "SQLite by Ibis": load_sqlite,
}


def pd_types(kind: Any) -> Any:
    import pandas as pd

    return {pa.bool_(): pd.BooleanDtype(), pa.int64(): pd.Int64Dtype()}.get(kind)


@pytest.fixture
def closing() -> Iterator[list[Any]]:
    """Connections of databases, which are closed at the end."""
    opened: list[Any] = []
    yield opened
    for table in opened:
        table.get_backend().disconnect()


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("source", "case"),
    [
        pytest.param(source, case, marks=[pytest.mark.slow] * ((i + j) % 2))
        for i, source in enumerate(SOURCES)
        for j, case in enumerate(list_source_cases())
    ],
)
def test_each_source_conforms(source: str, case: str, tmp_path: Path, closing: list[Any]) -> None:
    folders = (tmp_path / str(number) for number in range(100))

    def make(columns: Columns, types: Types) -> Any:
        folder = next(folders)
        folder.mkdir()
        made = SOURCES[source](to_arrow(columns, types), folder)
        if isinstance(made, ibis.expr.types.Table):
            closing.append(made)
        return made

    check_source(make, case)


def count_in_memory(source: fp.Source, wanted: Any, *, unit: Any = None) -> fp.Tables:
    domain, tables = wanted
    return fp.Tables.from_records(domain, source.path.to_pydict(), tables)


def test_a_count_of_a_third_party_conforms() -> None:
    for case in ("each kind of attribute", "tables together", "measures"):
        check_source(to_arrow, case, count=count_in_memory)


def lose_the_last_row(columns: Columns, types: Types) -> Any:
    return to_arrow(columns, types).slice(0, max(0, len(next(iter(columns.values()))) - 1))


def drop_nulls(columns: Columns, types: Types) -> Any:
    return to_arrow(columns, types).drop_null()


def forget_persons(source: fp.Source, wanted: Any, *, unit: Any = None) -> fp.Tables:
    tables = fp.count(fp.Source(source.path), wanted)
    return fp.Tables(tables.domain, dict(tables), unit=unit, person=source.person)


def keep_fewer(source: fp.Source, wanted: Any, *, unit: Any = None) -> fp.Tables:
    tables = fp.count(source, wanted, unit=fp.AddRemove())
    return fp.Tables(tables.domain, dict(tables), unit=unit, person=source.person)


def quote_a_row(source: fp.Source, wanted: Any, *, unit: Any = None) -> fp.Tables:
    try:
        np.array(source.path["age"].to_pylist(), dtype=np.int64)
    except ValueError as error:
        raise fp.DataError("'age' cannot be read") from error
    return fp.count(source, wanted)


FAULTS: dict[str, tuple[str, Any, Any, str]] = {
    "a row lost": ("no, one and many rows", lose_the_last_row, fp.count, "differs from a plain"),
    "nulls dropped": ("each kind of attribute", drop_nulls, fp.count, r"\('race',\) differs from"),
    "weights ignored": ("weights", to_arrow, forget_persons, "differs from a plain count"),
    "filters ignored": ("filters", to_arrow, forget_persons, "differs from a plain count"),
    "persons ignored": ("persons", to_arrow, forget_persons, "rows of a person"),
    "fewer rows": ("persons", to_arrow, keep_fewer, "1 rows of a person, not"),
    "a row quoted": ("errors", to_arrow, quote_a_row, "an error quotes a value of a row"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str) -> None:
    case, make, count, says = FAULTS[fault]
    with pytest.raises(AssertionError, match=f"{case}: .*{says}"):
        check_source(make, case, count=count)
