"""Records of every type, counted by DuckDB as a reference."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.feather as pf

import fitplug as fp
from fitplug.domain import get_shape

DOMAIN = fp.Domain(
    {
        "sex": ["1", "2"],
        "race": fp.Categories(["01", "02", "9", "é"], other="rest"),
        "age": fp.Integers(-3, 20),
        "code": fp.Categories([5, 1, 40]),
        "far": fp.Categories([-(10**12), 0, 10**12], other="elsewhere"),
        "citizen": [True, False],
        "income": fp.Bins([-10, 0, 0.5, 100, 2000]),
    }
)


TABLES = [("sex", "race"), ("age", "citizen"), ("code", "far", "income"), ("income",), ()]


def naive_cell(attribute: Any, value: Any) -> int:
    """The cell of one value, written apart from the library's own rules."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    other = -1
    if isinstance(attribute, fp.Categories):
        if attribute.other is not None:
            other = len(attribute.values)
        return attribute.values.index(value) if value in attribute.values else other
    if value is None or value != value:
        return -1
    if isinstance(attribute, fp.Integers):
        return value - attribute.low if attribute.low <= value <= attribute.high else -1
    for cell, (low, high) in enumerate(zip(attribute.edges, attribute.edges[1:], strict=False)):
        if low <= value < high:
            return cell
    return -1


def by_duckdb(relation: str, domain: fp.Domain, tables: Any) -> dict[tuple[str, ...], Any]:
    """DuckDB groups by the raw values; each group then goes to its naive cell."""
    used = [n for n in domain.names if any(n in t for t in tables)]
    counts = {t: np.zeros(get_shape(domain, t), dtype=np.int64) for t in tables}
    columns = ", ".join(f'"{n}"' for n in used)
    query = f"SELECT count(*), {columns} FROM {relation} GROUP BY ALL" if used else None
    with duckdb.connect() as connection:
        groups = connection.sql(query or f"SELECT count(*) FROM {relation}").fetchall()
    for number, *values in groups:
        cells = {n: naive_cell(domain[n], v) for n, v in zip(used, values, strict=True)}
        if -1 not in cells.values():
            for table in tables:
                counts[table][tuple(cells[n] for n in table)] += number
    return counts


def random_values(rng: np.random.Generator, n: int) -> dict[str, Any]:
    """Columns with nulls, values the domain does not know, and (for floats) NaN."""

    def drawn(values: list[Any], share_null: float = 0.03) -> list[Any]:
        at = rng.integers(0, len(values), n)
        null = rng.random(n) < share_null
        return [None if z else values[i] for i, z in zip(at, null, strict=True)]

    return {
        "sex": drawn(["1", "2"] * 10 + ["3", "", "1 "]),
        "race": drawn(["01", "02", "9", "é", "1", "longer than the others"]),
        "age": drawn([*range(-4, 22), 127, -128]),
        "code": drawn([5, 1, 40, 1, 5, 40, 2]),
        "far": drawn([10**12, 0, -(10**12), 7]),
        "citizen": drawn([True, False]),
        "income": drawn([-10.0, -10.5, 0.0, 0.49, 0.5, 99.9, 1999.0, 2000.0, float("nan"), 1e300]),
    }


BASE = {
    "sex": pa.string(),
    "race": pa.string(),
    "age": pa.int64(),
    "code": pa.int64(),
    "far": pa.int64(),
    "citizen": pa.bool_(),
    "income": pa.float64(),
}


def table_of(values: dict[str, Any], types: dict[str, Any]) -> pa.Table:
    return pa.table({n: make_array(v, types[n]) for n, v in values.items()})


def make_array(values: Any, kind: Any) -> pa.Array:
    if kind == LARGE_DICTIONARY:  # not every version of Arrow makes it in one step
        return pa.array(values, pa.large_string()).dictionary_encode()
    return pa.array(values, type=kind)


def assert_equal(tables: fp.Tables, expected: dict[tuple[str, ...], Any]) -> None:
    for names, counts in expected.items():
        assert tables[names].dtype == np.int64
        np.testing.assert_array_equal(tables[names], counts)


ARROW = int(pa.__version__.partition(".")[0])
LARGE_DICTIONARY = pa.dictionary(pa.int32(), pa.large_string())
STRINGS = {
    "string": pa.string(),
    "large_string": pa.large_string(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "dictionary": pa.dictionary(pa.int8(), pa.string()),
    "large dictionary": LARGE_DICTIONARY,
}
if ARROW >= 21:  # older versions cannot write it to Parquet
    STRINGS["string_view"] = pa.string_view()


def write_stream(table: pa.Table, path: Path, **options: Any) -> None:
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=options.get("chunksize"))


def write_csv_gz(table: pa.Table, path: Path) -> None:
    with gzip.open(path, "wb") as file:
        pc.write_csv(table, file)


WRITERS: dict[str, Callable[..., None]] = {
    ".csv": lambda table, path, **_: pc.write_csv(table, path),
    ".csv.gz": lambda table, path, **_: write_csv_gz(table, path),
    ".feather": pf.write_feather,
    ".arrow": lambda table, path, **o: pf.write_feather(table, path, "uncompressed", **o),
    ".ipc": lambda table, path, **o: pf.write_feather(table, path, "zstd", **o),
    ".arrows": write_stream,
}
