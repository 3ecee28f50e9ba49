"""With `other`, every row is counted: null, and each value without a cell, in the last cell.

Files of several programs are counted by a rule in plain Python, whatever they write for null.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

import fitplug as fp
from fitplug.domain import Attribute, get_codec, get_shape
from tests.helpers.sources import count_rows

ROWS = 500


class Case(NamedTuple):
    """An attribute, the cell of a value by a rule of its own, and values with and without one."""

    attribute: Attribute
    find_cell: Callable[[Any], int | None]
    values: list[Any]


def find_in(listed: list[Any]) -> Callable[[Any], int | None]:
    return lambda value: listed.index(value) if value in listed else None


def find_bin(value: float) -> int | None:
    return 0 if 0 <= value < 10 else 1 if 10 <= value < 20.5 else None


def find_period(first: datetime.date, per_year: int) -> Callable[[Any], int | None]:
    """By year or month: the periods from `first` to the end of 2021."""
    return lambda day: (
        (day.year - first.year) * per_year + (day.month - 1 if per_year > 1 else 0)
        if first.year <= day.year <= 2021
        else None
    )


START = datetime.date(2020, 1, 1)
DAYS = [datetime.date(*d) for d in ((2020, 1, 1), (2021, 12, 31), (2019, 12, 31), (2022, 1, 1))]
CASES = {
    "integers": Case(fp.Integers(-2, 5, "missing"), find_in([*range(-2, 6)]), [-3, -2, 0, 5, 6]),
    "bins": Case(fp.Bins([0, 10, 20.5], "missing"), find_bin, [-0.5, 0.0, 10.0, 20.25, 20.5, 1e9]),
    "years": Case(fp.Dates("2020", "2021", "year", "missing"), find_period(START, 1), DAYS),
    "months": Case(fp.Dates("2020-01", "2021-12", "month", "none"), find_period(START, 12), DAYS),
    "days": Case(
        fp.Dates("2020-01-01", "2021-12-31", other="missing"),
        lambda day: (day - START).days if START <= day <= DAYS[1] else None,
        DAYS,
    ),
    "tree": Case(
        fp.Hierarchy({"state": 1, "county": 2}, ["a1", "a2", "b1"], "missing"),
        find_in(["a1", "a2", "b1"]),
        ["a1", "b1", "a3", "c1", "a", "missing"],
    ),
    "tree of integers": Case(
        fp.Hierarchy(["state", "county"], [[1, 11], [2, 21]], "missing"),
        find_in([11, 21]),
        [11, 21, 31, 1],
    ),
    "prefixes": Case(
        fp.CodePrefix(["a1", "b1"], 1, "missing"),
        lambda text: find_in(["a", "b"])(text[:1]),
        ["a1", "a2", "b", "c1", "missing"],
    ),
    "texts": Case(fp.Categories(["x", "y"], "missing"), find_in(["x", "y"]), ["x", "y", "z", "X"]),
    "codes": Case(fp.Categories([7, 3], "missing"), find_in([7, 3]), [7, 3, 5]),
    "truths": Case(fp.Categories([True], "missing"), find_in([True]), [True, False]),
}
DOMAIN = fp.Domain({name: case.attribute for name, case in CASES.items()})
GROUPS = [fp.marginal(name, std=5.0) for name in CASES]
GROUPS += [fp.marginal("integers", "months", "tree", std=5.0), fp.total(std=5.0)]
PLAN = fp.design(fp.Workload(DOMAIN, GROUPS), tolerance=0.5)
TABLES = [*((name,) for name in CASES), ("integers", "months", "tree"), ()]


def make_columns(seed: int) -> dict[str, list[Any]]:
    rng = np.random.default_rng(seed)
    columns = {}
    for name, case in CASES.items():
        choices = [*case.values, None]
        columns[name] = [choices[i] for i in rng.integers(0, len(choices), ROWS)]
    return columns


def find_cells(columns: dict[str, list[Any]]) -> dict[str, list[int]]:
    cells = {}
    for name, values in columns.items():
        case = CASES[name]
        found = [None if value is None else case.find_cell(value) for value in values]
        last = case.attribute.size - 1
        cells[name] = [last if cell is None else cell for cell in found]
    return cells


def write_csv_by_pandas(columns: dict[str, list[Any]], path: Path) -> None:
    pd.DataFrame(columns).to_csv(path, index=False)  # integers with a null become 5.0


def write_csv_as_r_does(columns: dict[str, list[Any]], path: Path) -> None:
    frame = pd.DataFrame(
        {name: pd.Series(values, dtype=object) for name, values in columns.items()}
    )
    frame.to_csv(path, index=False, na_rep="NA", quoting=2)


def write_csv_as_excel_does(columns: dict[str, list[Any]], path: Path) -> None:
    shown = {
        name: [
            value.strftime("%d.%m.%Y") if isinstance(value, datetime.date) else value
            for value in values
        ]
        for name, values in columns.items()
    }
    frame = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in shown.items()})
    frame.to_csv(path, index=False, encoding="utf-8-sig", lineterminator="\r\n")


def write_by_polars(columns: dict[str, list[Any]], path: Path) -> None:
    frame = pl.DataFrame(columns)
    frame.write_csv(path) if path.suffix == ".csv" else frame.write_parquet(path)


def write_by_duckdb(columns: dict[str, list[Any]], path: Path) -> None:
    table = pa.table(columns)
    with duckdb.connect() as connection:
        connection.register("held", table)
        connection.execute(f"COPY held TO '{path}'")


def write_by_pandas(columns: dict[str, list[Any]], path: Path) -> None:
    pd.DataFrame(columns).to_parquet(path, index=False)  # NaN in the place of null integers


def write_decimals(columns: dict[str, list[Any]], path: Path) -> None:
    table = pa.table(columns)
    for name in ("integers", "codes", "tree of integers"):
        values = [None if value is None else Decimal(value) for value in columns[name]]
        at = table.column_names.index(name)
        table = table.set_column(at, name, pa.array(values, pa.decimal128(12, 2)))
    pq.write_table(table, path, row_group_size=70)


def write_dictionaries(columns: dict[str, list[Any]], path: Path) -> None:
    table = pa.table(
        {name: pa.array(values).dictionary_encode() for name, values in columns.items()}
    )
    pq.write_table(table, path)


WRITERS = {
    "pandas, CSV": (write_csv_by_pandas, "rows.csv"),
    "R, CSV": (write_csv_as_r_does, "rows.csv"),
    "Excel, CSV": (write_csv_as_excel_does, "rows.csv"),
    "Polars, CSV": (write_by_polars, "rows.csv"),
    "DuckDB, CSV": (write_by_duckdb, "rows.csv"),
    "pandas": (write_by_pandas, "rows.parquet"),
    "Polars": (write_by_polars, "rows.parquet"),
    "DuckDB": (write_by_duckdb, "rows.parquet"),
    "decimals": (write_decimals, "rows.parquet"),
    "dictionaries": (write_dictionaries, "rows.parquet"),
}


def assert_counts(tables: fp.Tables, cells: dict[str, list[int]], names: Any = TABLES) -> None:
    for table in names:
        expected = np.zeros(get_shape(DOMAIN, table), dtype=np.int64)
        np.add.at(expected, tuple(np.array(cells[name]) for name in table), 1)
        if not table:
            expected[()] = ROWS
        np.testing.assert_array_equal(tables.marginal(table), expected, err_msg=str(table))
        assert int(tables.marginal(table).sum()) == ROWS


@pytest.mark.usefixtures("either_loops")
@pytest.mark.parametrize("writer", WRITERS)
def test_every_row_of_a_file_is_counted(tmp_path: Path, writer: str) -> None:
    write, name = WRITERS[writer]
    columns = make_columns(seed=len(writer))
    write(columns, tmp_path / name)
    assert_counts(count_rows(tmp_path / name, PLAN), find_cells(columns))


@given(st.integers(0, 2**32))
def test_rows_in_memory_are_encoded_by_the_rule(seed: int) -> None:
    columns = make_columns(seed)
    assert_counts(fp.Tables.from_records(DOMAIN, columns, TABLES), find_cells(columns))


TYPED = {
    int: st.integers(-(2**80), 2**80) | st.integers(-10, 40),
    float: st.floats() | st.integers(-(2**80), 2**80),
    bool: st.booleans(),
    str: st.text(max_size=3) | st.sampled_from(["a1", "b1", "x", "missing", "\udc80"]),
    datetime.date: st.dates() | st.sampled_from(["2020-02-03", "no date", ""]),
}


@pytest.mark.parametrize("name", CASES)
@given(data=st.data())
def test_any_value_has_a_cell(name: str, data: Any) -> None:
    attribute, find_cell, _ = CASES[name]
    values = data.draw(st.lists(st.none() | TYPED[get_codec(attribute).value_type], max_size=8))
    codes = get_codec(attribute).codes(np.array([*values, None], dtype=object))
    assert codes.shape == (len(values) + 1,)
    assert codes[-1] == get_codec(attribute).null_code == attribute.size - 1
    for code, value in zip(codes.tolist(), values, strict=False):
        if get_codec(attribute).value_type is datetime.date and isinstance(value, str):
            value = datetime.date(2020, 2, 3) if value == "2020-02-03" else None
        cell = None if value is None else find_cell(value)
        assert code == (attribute.size - 1 if cell is None else cell)


def test_names_of_folders_may_spell_no_value(tmp_path: Path) -> None:
    """A folder's value counts as the same text in a CSV file does; also labels of periods."""
    domain = fp.Domain(
        {
            "age": fp.Integers(0, 9, other="missing"),
            "month": fp.Dates("2020-06", "2020-07", by="month", other="missing"),
            "week": fp.Dates("2020-W01", "2020-W02", by="week"),
        }
    )
    folders = [("5", "2020-06", "2020-W01"), ("x", "2020-07-31", "2020-01-06"), ("99", "no", None)]
    for age, month, week in folders:
        folder = tmp_path / f"age={age}" / f"month={month}" / f"week={week or '2020-W02'}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"n": [1, 2, 3]}), folder / "a.parquet")
    tables = fp.count(tmp_path, (domain, [("age",), ("month",), ("week",)]))
    assert tables["age",][[5, 10]].tolist() == [3, 6]
    assert tables["month",].tolist() == [3, 3, 3]
    assert tables["week",].tolist() == [3, 6]
    strict = fp.Domain({"age": fp.Integers(0, 9)})
    with pytest.raises(fp.DataError, match="expects integers for 'age'"):
        fp.count(tmp_path, (strict, [("age",)]))
