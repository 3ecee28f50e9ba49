"""Compare counting in databases with counting the same rows from Parquet.

    python benchmarks/databases.py [--rows 10000000] [--rounds 5] > benchmarks/databases.md
    python benchmarks/databases.py --rows 200000 --rounds 1  # for a quick look

The script makes the rows in each database by the same statement, in a temporary folder. In each
round the databases count one after the other, so that a ratio compares runs that are close in time.
The script checks that all tables are equal. PostgreSQL (`apt install postgresql`, `pip install
psycopg`) and Spark (Java, `pip install pyspark`) are left out if they are not installed. Progress
goes to stderr.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

import dask
import ibis
import numpy as np
import psutil
from markdown_table import heading, line

import fitplug as fp
from fitplug.domain import get_shape
from tests.helpers.databases import find_postgres, start_postgres

HEAD = """# Databases

{rows:,} rows of four columns, one of them text, are counted in three tables of {cells:,} cells
together. Some values are outside the domain. "CPU s" are the processor seconds of fitplug and of
the database. The ratios compare counts of one round, and are above 1 where Parquet is faster. All
columns are medians of {rounds} rounds. The tables of all databases are equal to those of Parquet.
fitplug, DuckDB and Spark use {threads} threads, SQLite one, and PostgreSQL the processes that it
chooses. Spark reads the Parquet file.

    python benchmarks/databases.py --rows {rows} --rounds {rounds} > benchmarks/databases.md
"""
THREADS = 2
DOMAIN = fp.Domain(
    {
        "age": fp.Integers(0, 95),
        "group": [str(k) for k in range(9)],
        "income": fp.Bins(list(range(0, 1000, 100))),
        "region": fp.Integers(0, 4),
    }
)
TABLES = [("age", "group"), ("income", "region"), ("age", "region", "income")]
_COLUMNS = """
    (i * 7919) % 101 - 1 as age, cast((i * 31 + i {over} 7) % 11 as text) as "group",
    (i * i) % 1009 as income, (i * 17 + i {over} 13) % 5 as region
"""
_SQLITE = """
    create table people as
    with recursive numbers(i) as (select 0 union all select i + 1 from numbers limit {rows})
    select {columns} from numbers
"""


class Table(NamedTuple):
    """Where the rows are.

    Attributes:
        name: The name of the database.
        source: What is counted.
        process: The process of its server, or None if it runs in this process or its children.
    """

    name: str
    source: Any
    process: psutil.Process | None = None


def write_duckdb(folder: Path, rows: int) -> Table:
    """Make the rows in DuckDB, and in a Parquet file."""
    database = ibis.duckdb.connect(folder / "rows.duckdb", threads=THREADS)
    numbers = f"(select range::bigint as i from range({rows}))"
    columns = _COLUMNS.format(over="//")
    database.con.execute(f"create table people as select {columns} from {numbers}").fetchall()
    database.con.execute(f"copy people to '{folder / 'rows.parquet'}'").fetchall()
    return Table("DuckDB", database.table("people"))


def write_sqlite(folder: Path, rows: int) -> Table:
    database = ibis.sqlite.connect(folder / "rows.sqlite")
    database.con.execute(_SQLITE.format(rows=rows, columns=_COLUMNS.format(over="/")))
    database.con.commit()
    return Table("SQLite", database.table("people"))


@contextmanager
def serve_postgres(rows: int) -> Iterator[Table]:
    import psycopg

    with start_postgres() as url:
        with psycopg.connect(url) as connection:
            numbers = f"generate_series(0::bigint, {rows - 1}) as numbers(i)"
            columns = _COLUMNS.format(over="/")
            connection.execute(f"create unlogged table people as select {columns} from {numbers}")
            server = psutil.Process(connection.info.backend_pid).parent()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("vacuum analyze people")
        database = ibis.connect(url)
        yield Table("PostgreSQL", database.table("people"), server)
        database.disconnect()


@contextmanager
def serve_spark(folder: Path) -> Iterator[Table]:
    from pyspark.sql import SparkSession

    options = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    session = SparkSession.builder.master(f"local[{THREADS}]").config(map=options).getOrCreate()
    session.read.parquet(str(folder / "rows.parquet")).createOrReplaceTempView("people")
    yield Table("Spark", ibis.pyspark.connect(session).table("people"))
    session.stop()


def measure_cpu(process: psutil.Process) -> float:
    """Return the processor seconds of a process and of its children, ended ones included."""
    return sum(sum(p.cpu_times()[:4]) for p in (process, *process.children(recursive=True)))


def measure(table: Table) -> tuple[float, float, fp.Tables]:
    """Count the tables; returns the seconds, the processor seconds and the tables."""
    print(table.name, file=sys.stderr, flush=True)
    processes = [psutil.Process(os.getpid()), *([table.process] if table.process else [])]
    cpu, start = sum(map(measure_cpu, processes)), time.perf_counter()
    counted = fp.count(table.source, (DOMAIN, TABLES))
    seconds = time.perf_counter() - start
    return seconds, sum(map(measure_cpu, processes)) - cpu, counted


def report(tables: list[Table], rounds: int) -> None:
    """Print a line for each place of the rows, of which the first is what others compare with."""
    for table in tables:
        measure(table)  # the first count starts threads, and compiles what Spark runs
    taken: dict[str, list[tuple[float, float]]] = {table.name: [] for table in tables}
    expected: fp.Tables | None = None
    for _ in range(rounds):
        for table in tables:
            seconds, cpu, counted = measure(table)
            expected = expected or counted
            for names in TABLES:
                np.testing.assert_array_equal(counted[names], expected[names], table.name)
            taken[table.name].append((seconds, cpu))
    first = taken[tables[0].name]
    for name, rows in taken.items():
        medians = [statistics.median(column) for column in zip(*rows, strict=True)]
        rounds_of_both = list(zip(rows, first, strict=True))
        ratios = [statistics.median(a[at] / b[at] for a, b in rounds_of_both) for at in (0, 1)]
        print(line([name, *(f"{number:.2f}" for number in (*medians, *ratios))]), flush=True)


def compare(folder: Path, rows: int, rounds: int) -> None:
    with ExitStack() as stack:
        tables = [write_duckdb(folder, rows), write_sqlite(folder, rows)]
        if importlib.util.find_spec("psycopg") and find_postgres():
            tables.append(stack.enter_context(serve_postgres(rows)))
        if importlib.util.find_spec("pyspark") and shutil.which("java"):
            tables.append(stack.enter_context(serve_spark(folder)))
        report([Table("Parquet", folder / "rows.parquet"), *tables], rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    cells = sum(math.prod(get_shape(DOMAIN, names)) for names in TABLES)
    columns = ["rows in", "seconds", "CPU s", "time / Parquet's", "CPU / Parquet's"]
    print(HEAD.format(rows=asked.rows, rounds=asked.rounds, cells=cells, threads=THREADS))
    print(heading(columns), flush=True)
    with dask.config.set(num_workers=THREADS), tempfile.TemporaryDirectory() as folder:
        compare(Path(folder), asked.rows, asked.rounds)


if __name__ == "__main__":
    main()
