"""Random Parquet files of PyArrow, DuckDB and Polars, and the cells of the values in them."""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import fitplug as fp
from fitplug.domain import get_shape

FIRST, LAST = datetime.date(1969, 12, 27), datetime.date(2000, 3, 1)
EDGES = [-10, 0, 0.5, 100]


def find_integer(value: Any) -> int:
    if value is None or not math.isfinite(value) or value != int(value):
        return -1
    return int(value) + 3 if -3 <= value <= 20 else -1


def find_text(value: Any) -> int:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return ["a", "é"].index(text) if text in ("a", "é") else 2


def find_bin(value: Any) -> int:
    if value is None:
        return -1
    return next((i for i in range(3) if EDGES[i] <= value < EDGES[i + 1]), -1)


def find_day(value: Any) -> int:
    if value is None:
        return -1
    day = value.date() if isinstance(value, datetime.datetime) else value
    return (day - FIRST).days if FIRST <= day <= LAST else -1


class Kind(NamedTuple):
    """An attribute, the cell of a value by a rule of its own, values, and types that hold them."""

    attribute: Any
    find_cell: Callable[[Any], int]
    values: list[Any]
    types: list[Any]


_INTEGERS = [-4, -3, 0, 7, 20, 21, 100]
_DAYS = [datetime.datetime(*d, 23, 59) for d in ((1969, 12, 31), (2000, 2, 29), (1700, 1, 1))]
KINDS = {
    "number": Kind(
        fp.Integers(-3, 20),
        find_integer,
        _INTEGERS,
        [pa.int8(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(30, 2)],
    ),
    "text": Kind(
        fp.Categories(["a", "é"], other="rest"),
        find_text,
        ["a", "é", "", "b", "x" * 3000],
        [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())],
    ),
    "amount": Kind(
        fp.Bins(EDGES),
        find_bin,
        [-10.0, -0.0, 0.5, 99.0, 100.0, math.nan, math.inf, -math.inf],
        [pa.float64(), pa.float32()],
    ),
    "day": Kind(
        fp.Dates(FIRST, LAST),
        find_day,
        _DAYS,
        [pa.date32(), pa.date64(), *(pa.timestamp(unit) for unit in ("s", "ms", "us"))],
    ),
    "truth": Kind(
        fp.Categories([True, False]),
        lambda value: -1 if value is None else [True, False].index(value),
        [True, False],
        [pa.bool_()],
    ),
}
DOMAIN = fp.Domain({name: kind.attribute for name, kind in KINDS.items()})


def draw_values(rng: random.Random, name: str, rows: int, arrow_type: Any) -> list[Any]:
    """Draw values that a column of a type can hold."""
    values = list(KINDS[name].values)
    if name == "number" and pa.types.is_floating(arrow_type):
        values = [*map(float, values), 2.5, math.nan, math.inf, 1e30, -0.0]
    if name == "number" and pa.types.is_decimal(arrow_type):
        values = [*(Decimal(v).quantize(Decimal("0.01")) for v in values), Decimal("2.50")]
    if pa.types.is_binary(arrow_type):
        values = [*(text.encode() for text in values), b"\xff"]
    if pa.types.is_date(arrow_type):
        values = [day.date() for day in values]
    choices = rng.sample(values, rng.choice([1, 2, len(values)]))
    nulls = rng.choice([0, 0.1, 1])
    return [None if rng.random() < nulls else rng.choice(choices) for _ in range(rows)]


def draw_others(rng: random.Random, rows: int) -> dict[str, Any]:
    """Draw columns that are not counted; their names resemble those that are."""
    every = {
        "list": pa.array([[1, 2] if i % 3 else None for i in range(rows)], pa.list_(pa.int64())),
        "struct": pa.array([{"text": "a", "number": 1}] * rows, pa.struct({"text": pa.string()})),
        "text.b": pa.array(range(rows), pa.int64()),
        "Text": pa.array(["a"] * rows, pa.string()),
        "null": pa.nulls(rows),
    }
    return {name: every[name] for name in rng.sample(list(every), rng.randint(0, 3))}


def write(rng: random.Random, table: pa.Table, path: Path) -> None:
    """Write a file as one of three libraries does."""
    writer = rng.choice(["arrow", "arrow", "arrow", "duckdb", "polars"])
    plain = not {"list", "struct", "null"} & set(table.column_names)
    # DuckDB renames a column whose name differs from another's in case only.
    if writer == "duckdb" and plain and len(table) and "Text" not in table.column_names:
        codec, version = rng.choice(["snappy", "zstd", "lz4_raw"]), rng.choice(["V1", "V2"])
        with duckdb.connect() as connection:
            connection.register("held", table)
            options = f"FORMAT parquet, COMPRESSION {codec}, PARQUET_VERSION {version}"
            connection.execute(f"COPY held TO '{path}' ({options})")
    elif writer == "polars" and plain:
        frame: Any = pl.from_arrow(table)
        codec = rng.choice(["uncompressed", "snappy", "zstd", "lz4"])
        frame.write_parquet(path, compression=codec, row_group_size=rng.choice([7, 1000]))
    else:
        pq.write_table(
            table,
            path,
            compression=rng.choice(["none", "snappy", "zstd", "lz4", "gzip", "brotli"]),
            row_group_size=rng.choice([10, 37, 1000]),
            data_page_version=rng.choice(["1.0", "2.0"]),
            version=rng.choice(["1.0", "2.4", "2.6"]),
            data_page_size=rng.choice([64, 2**20]),
            dictionary_pagesize_limit=rng.choice([50, 2**20]),
            use_dictionary=rng.choice([True, False]),
            write_page_index=rng.choice([True, False]),
            write_page_checksum=rng.choice([True, False]),
            store_schema=rng.choice([True, False]),
            coerce_timestamps=rng.choice([None, "us"]),
            allow_truncated_timestamps=True,
        )


def write_files(rng: random.Random, folder: Path, names: Sequence[str]) -> Any:
    """Write files with some columns, whose types, order and neighbours change with the file.

    Returns:
        The counts of their rows, one axis for each name.
    """
    expected = np.zeros(get_shape(DOMAIN, tuple(names)), dtype=np.int64)
    for number in range(rng.choice([1, 3, 6])):
        rows = rng.choice([0, 1, 40, 150])
        columns: dict[str, Any] = draw_others(rng, rows)
        cells = []
        for name in names:
            arrow_type = rng.choice(KINDS[name].types)
            values = draw_values(rng, name, rows, arrow_type)
            columns[name] = pa.array(values, arrow_type)
            cells.append([KINDS[name].find_cell(value) for value in values])
        for cell in zip(*cells, strict=True):
            expected[cell] += -1 not in cell
        order = rng.sample(list(columns), len(columns))
        write(rng, pa.table({name: columns[name] for name in order}), folder / f"{number}.parquet")
    return expected
