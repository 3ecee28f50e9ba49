"""Rows in memory: frames and Arrow tables count as dicts of arrays do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import fitplug as fp
from fitplug.errors import DataError
from tests.helpers.counting import BASE, DOMAIN, TABLES, random_values, table_of

COLUMNS = random_values(np.random.default_rng(3), 800)
ARROW = table_of(COLUMNS, BASE)
RACES = ["01", "02", "9", "é", "1", "longer than the others"]


def in_arrow(**types: Any) -> pa.Table:
    columns = {n: ARROW[n].cast(types.get(n, ARROW[n].type)) for n in ARROW.column_names}
    return pa.table(columns)


def in_polars(**types: Any) -> pl.DataFrame:
    return pl.from_arrow(ARROW).with_columns(pl.col(n).cast(t) for n, t in types.items())


def in_pandas(**types: Any) -> Any:
    pandas = pytest.importorskip("pandas")
    plain = {n: pandas.Series(v, dtype=object) for n, v in COLUMNS.items()}
    kinds = {"income": "float64", **types}
    return pandas.DataFrame({n: s.astype(kinds.get(n, object)) for n, s in plain.items()})


FRAMES: dict[str, Callable[[], Any]] = {
    "arrow": in_arrow,
    "arrow dictionaries": lambda: in_arrow(
        race=pa.dictionary(pa.int8(), pa.string()), age=pa.int16(), sex=pa.large_string()
    ),
    "arrow batch": lambda: in_arrow().combine_chunks().to_batches()[0],
    "polars": in_polars,
    "polars categories": lambda: in_polars(race=pl.Categorical, age=pl.Int8, sex=pl.Categorical),
    "polars enums": lambda: in_polars(race=pl.Enum(RACES), code=pl.UInt8),
    "an arrow slice": lambda: pa.concat_tables([ARROW[-9:], ARROW]).combine_chunks().slice(9),
    "slices in chunks": lambda: pa.concat_tables([ARROW[:7], ARROW[7:95], ARROW[95:]]),
    "a polars slice": lambda: pl.concat([in_polars()[-9:], in_polars()])[9:],
    "a pandas slice": lambda: in_pandas().iloc[::-1].iloc[::-1],
    "pandas": in_pandas,
    "pandas categories": lambda: in_pandas(race="category", age="Int16", citizen="boolean"),
    "pandas strings": lambda: in_pandas(race="string", far="Int64", income="Float64"),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_a_frame_counts_as_a_dict_of_arrays(kind: str) -> None:
    plain = {n: np.array(v, dtype=object) for n, v in COLUMNS.items()}
    expected = fp.Tables.from_records(DOMAIN, plain, TABLES)
    assert expected[()] > 100
    counted = fp.Tables.from_records(DOMAIN, FRAMES[kind](), TABLES)
    for names in expected:
        np.testing.assert_array_equal(counted[names], expected[names])


@pytest.mark.parametrize("kind", ["arrow", "polars", "pandas"])
def test_a_missing_column_or_another_type_is_named(kind: str) -> None:
    frame = FRAMES[kind]()
    domain = fp.Domain({"sexes": ["1"], "income": ["low", "high"]})
    with pytest.raises(DataError, match=r"unknown column 'sexes'\. Check the spelling"):
        fp.Tables.from_records(domain, frame, [("sexes",)])
    with pytest.raises(DataError, match="column 'income': the domain expects strings"):
        fp.Tables.from_records(domain, frame, [("income",)])
    assert fp.Tables.from_records(domain, frame, [()])[()] == 800
