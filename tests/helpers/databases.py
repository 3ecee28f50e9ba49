"""Rows of every type that a database has, in Parquet and in tables of databases."""

from __future__ import annotations

import datetime
import decimal
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import fitplug as fp

REGIONS = [f"{n:05}" for n in range(0, 900, 3)]

DOMAIN = fp.Domain(
    {
        "sex": ["1", "2"],
        "race": fp.Categories(["01", "é", "a\\b", "o'x", "rest"], other="other"),
        "region": fp.Categories(REGIONS, other="elsewhere"),
        "state": fp.CodePrefix(["00", "01", "02", "07"], 2),
        "county": fp.Hierarchy({"state": 2, "county": 5}, REGIONS[:40], other="elsewhere"),
        "age": fp.Integers(-3, 20),
        "whole": fp.Integers(0, 9, other="unknown"),
        "digits": fp.Categories([5, -1, 40], other="none"),
        "code": fp.Categories([5, 1, 40]),
        "far": fp.Categories([-(10**12), 0, 10**12], other="elsewhere"),
        "sparse": fp.Categories(list(range(0, 6000, 5)), other="none"),
        "citizen": [True, False],
        "income": fp.Bins([-10, 0, 0.1, 0.7, 100, 2000]),
        "price": fp.Bins([0, 0.1, 2.5, 1e9], other="none"),
        "rooms": fp.Bins([0, 3, 7]),
        "born": fp.Dates("2000-01-01", "2001-12-31", by="month"),
        "moved": fp.Dates("2000-01-01", "2000-12-31", other="never"),
        "seen": fp.Dates("1999-01-01", "2001-12-31", by="year"),
        "wage": fp.Measure(-5, 100, unit=0.25),
        "hours": fp.Measure(0, 60, unit=4, other="none"),
        "cents": fp.Measure(0, 50, unit=1),
    }
)

TYPES = {
    "sex": pa.string(),
    "race": pa.string(),
    "region": pa.string(),
    "state": pa.string(),
    "county": pa.string(),
    "age": pa.int32(),
    "whole": pa.float64(),
    "digits": pa.decimal128(10, 2),
    "code": pa.int16(),
    "far": pa.int64(),
    "sparse": pa.int64(),
    "citizen": pa.bool_(),
    "income": pa.float64(),
    "price": pa.decimal128(12, 3),
    "rooms": pa.int64(),
    "born": pa.date32(),
    "moved": pa.date32(),
    "seen": pa.timestamp("us"),
    "wage": pa.float64(),
    "hours": pa.int64(),
    "cents": pa.decimal128(8, 3),
    "weight": pa.int64(),
    "person": pa.int64(),
    "name": pa.string(),
}

SQL = {
    pa.string(): "text",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.bool_(): "boolean",
    pa.float64(): "double precision",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp",
}

TABLES = [
    ("sex", "race"),
    ("age", "citizen", "income"),
    ("region",),
    ("born", "seen"),
    ("moved", "whole"),
    ("wage", "sex"),
    ("hours", "cents", "code"),
    (),
]


def make_rows(n: int, seed: int = 0) -> pa.Table:
    """Rows with nulls, values the domain does not have, NaN and values at every edge."""
    rng = np.random.default_rng(seed)
    first = datetime.date(1999, 12, 25)

    def choose(values: list[Any], null: float = 0.02) -> list[Any]:
        at, none = rng.integers(0, len(values), n), rng.random(n) < null
        return [None if z else values[i] for i, z in zip(at, none, strict=True)]

    dates = [first + datetime.timedelta(days=d) for d in range(0, 750, 5)]
    strange = [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]
    floats = [-10.0, 0.0, 0.1, 0.7, np.nextafter(0.7, 0), 99.99, 1999.0, 2000.0, 1e300]
    decimals = [decimal.Decimal(x) for x in ("0", "0.1", "0.099", "2.5", "99.125", "-1", "12.340")]
    names = ["a", "a ", " b", "A", "", "7", "07", "c\\"]
    drawn = {
        "sex": choose(["1", "2"] * 10 + ["3", "", "1 ", " 2"]),
        "race": choose(["01", "é", "a\\b", "o'x", "01 ", "É", "rest", "other", "O'X"]),
        "region": choose([*REGIONS, "00001", "", "elsewhere"]),
        "state": choose([*REGIONS, "0", "02", "é1", "é", " 00"]),
        "county": choose([*REGIONS, "zz"]),
        "age": choose([*range(-4, 22), 2**31 - 1, -(2**31)]),
        "whole": choose([0.0, 1.0, 2.5, 9.0, 10.0, -1e300, 1e300, float("inf"), float("nan")]),
        "digits": choose([decimal.Decimal(x) for x in ("5", "5.00", "-1", "40", "40.01", "1e7")]),
        "code": choose([5, 1, 40, 1, 5, 40, 2, -32768]),
        "far": choose([10**12, 0, -(10**12), 7, 2**63 - 1, -(2**63)]),
        "sparse": choose([*range(0, 6100, 7)]),
        "citizen": choose([True, False]),
        "income": choose([*floats * 3, float("nan"), float("-inf")]),
        "price": choose(decimals),
        "rooms": choose([*range(0, 8), -1, 2**53 + 1]),
        "born": choose([*dates, *strange]),
        "moved": choose([*dates, *strange]),
        "seen": choose(
            [datetime.datetime(d.year, d.month, d.day, 23, 59, 59, 999999) for d in dates]
        ),
        "wage": choose([-5.0, -7.5, 0.1, 0.125, 0.37, 0.375, 99.9, 100.0, 1e300, float("nan")]),
        "hours": choose([0, 1, 2, 3, 5, 6, 59, 60, 61, -9, 2**62]),
        "cents": choose([decimal.Decimal(x) for x in ("0", "0.5", "1.499", "49.5", "70", "-3")]),
        "weight": choose([0, 1, 2, 3, 40, -5]),
        "person": choose(list(range(max(1, n // 5)))),
        "name": choose(names),
    }
    return pa.table({name: pa.array(drawn[name], kind) for name, kind in TYPES.items()})


def describe_columns(rows: pa.Table) -> str:
    """The columns of a table as SQL creates them."""
    kinds = (
        f"decimal({kind.precision},{kind.scale})" if pa.types.is_decimal(kind) else SQL[kind]
        for kind in rows.schema.types
    )
    quoted = (name.replace('"', '""') for name in rows.column_names)
    return ", ".join(f'"{name}" {kind}' for name, kind in zip(quoted, kinds, strict=True))


def load_duckdb(rows: pa.Table, folder: Path) -> Any:
    import ibis

    pq.write_table(rows, folder / "duckdb.parquet")
    connection = ibis.duckdb.connect(folder / "rows.duckdb")
    connection.con.execute(f"create table people ({describe_columns(rows)})").fetchall()
    path = folder / "duckdb.parquet"
    connection.con.execute(f"insert into people select * from '{path}'").fetchall()
    return connection.table("people")


def load_sqlite(rows: pa.Table, folder: Path) -> Any:
    """SQLite holds decimals as floats, dates as text, and NaN as null."""
    import ibis

    connection = ibis.sqlite.connect(folder / "rows.sqlite")
    connection.con.execute(f"create table people ({describe_columns(rows)})")
    marks = ", ".join("?" for _ in rows.column_names)
    values = [[_write(v) for v in row.values()] for row in rows.to_pylist()]
    connection.con.executemany(f"insert into people values ({marks})", values)
    connection.con.commit()
    return connection.table("people")


def _write(value: Any) -> Any:
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ")
    return value.isoformat() if isinstance(value, datetime.date) else value


LOADERS: dict[str, Callable[[pa.Table, Path], Any]] = {
    "duckdb": load_duckdb,
    "sqlite": load_sqlite,
}


def load_postgres(rows: pa.Table, folder: Path, url: str) -> Any:
    import ibis
    import psycopg

    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("drop table if exists people")
        cursor.execute(f"create table people ({describe_columns(rows)})")
        with cursor.copy("copy people from stdin") as copy:
            for row in rows.to_pylist():
                copy.write_row(list(row.values()))
    return ibis.connect(url).table("people")


def load_spark(rows: pa.Table, folder: Path, session: Any) -> Any:
    import ibis

    pq.write_table(rows, folder / "spark.parquet")
    connection = ibis.pyspark.connect(session)
    session.read.parquet(str(folder / "spark.parquet")).createOrReplaceTempView("people")
    return connection.table("people")


@contextmanager
def start_postgres() -> Iterator[str]:
    """Start a PostgreSQL server in a temporary folder.

    Root cannot run it, so the folder is the user's that PostgreSQL's packages make.

    Yields:
        The URL of its database.
    """
    programs = find_postgres()
    assert programs is not None
    user = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}

    def run(program: str, *arguments: str) -> None:
        subprocess.run(
            [programs / program, *arguments], check=True, capture_output=True, cwd=folder, **user
        )

    with tempfile.TemporaryDirectory(prefix="fitplug-postgres-") as folder:
        if user:
            shutil.chown(folder, *user.values())
        data = f"{folder}/data"
        encoding = ("-E", "UTF8", "--locale=C.UTF-8")
        run("initdb", "-D", data, "-A", "trust", "-U", "fitplug", *encoding)
        options = f"-k {folder} -c listen_addresses= -c fsync=off"
        run("pg_ctl", "-D", data, "-w", "-l", f"{folder}/log", "-o", options, "start")
        try:
            yield f"postgresql://fitplug@/postgres?host={folder}"
        finally:
            run("pg_ctl", "-D", data, "-m", "immediate", "stop")


def find_postgres() -> Path | None:
    """Find the programs of PostgreSQL, which Debian does not put into PATH."""
    found = shutil.which("initdb")
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return Path(found).parent if found else folders[-1] if folders else None
