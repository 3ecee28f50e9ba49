"""Counting at most k rows of each person: rows a second and memory, on threads.

    python benchmarks/persons.py [--rows N] [--persons N] [--partitions N] [--share X] [--unit U]

It makes the data once, in the folder for temporary files. `--partitions` cuts the files finer;
`--share` is the fraction of memory that rows may take before they are written to the disk. DuckDB
counts the same number of rows in the same run, without choosing which rows of a person are kept.
`--unit` says which rows of a person are kept: any, in distinct cells, or one for each state.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import fitplug as fp
import fitplug_dask as fpd
from fitplug_dask.exchange import run
from fitplug_dask.persons import shuffle

FILES = 50
LIMIT = 3
DOMAIN = fp.Domain(
    {"sex": ["1", "2"], "age": fp.Integers(0, 99), "state": [f"{s:02}" for s in range(52)]}
)
WANTED = (DOMAIN, [("sex", "age"), ("age", "state"), ()])
UNITS = {
    "anywhere": (fp.AddRemove(LIMIT), "*"),
    "distinct": (fp.AddRemove(LIMIT, distinct=True), "DISTINCT (sex, age, state)"),
    "once": (fp.AddRemove(LIMIT, once_per="state"), "DISTINCT state"),
}


def make_people(folder: Path, rows: int, persons: int) -> None:
    """Write rows whose persons, and all else, are random."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1)
    states = np.array(DOMAIN["state"].values)
    n = rows // FILES
    for i in range(FILES):
        table = pa.table(
            {
                "id": rng.integers(0, persons, n),
                "sex": pa.array(np.array(["1", "2"])[rng.integers(0, 2, n)]).dictionary_encode(),
                "age": rng.integers(0, 100, n).astype(np.int8),
                "state": pa.array(states[rng.integers(0, 52, n)]).dictionary_encode(),
            }
        )
        path = folder / f"{i:02}.parquet"
        pq.write_table(table, path, row_group_size=50_000, use_dictionary=["sex", "age", "state"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--persons", type=int, default=10_000_000)
    parser.add_argument("--partitions", type=int)
    parser.add_argument("--share", type=float)
    parser.add_argument("--unit", choices=UNITS, default="anywhere")
    given = parser.parse_args()
    unit, each = UNITS[given.unit]
    folder = Path(tempfile.gettempdir(), f"fitplug-persons-{given.rows}-{given.persons}")
    if not folder.exists():
        make_people(folder, given.rows, given.persons)
    if given.partitions:
        shuffle._PARTITION_ROWS = given.rows // given.partitions
    if given.share:
        run.MEMORY_SHARE = given.share
    tasks: list[int] = []
    start, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    counted = fpd.count(
        fp.Source(folder, person="id"),
        WANTED,
        unit=unit,
        progress=lambda done, total: tasks.append(done),
    )
    seconds, now = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    busy = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    print(f"{given.rows / seconds / 1e6:.1f} million rows a second")
    print(f"{given.rows / busy / 1e6:.1f} million rows a second of one busy core")
    print(f"{now.ru_maxrss / 2**20:.2f} GiB at most, {len(tasks) - 1} tasks")
    start = time.perf_counter()
    with duckdb.connect() as connection:
        query = f"""SELECT sum(least(n, {LIMIT})) FROM
            (SELECT count({each}) AS n FROM '{folder}/*.parquet' GROUP BY id)"""
        ((kept,),) = connection.sql(query).fetchall()
    print(f"{given.rows / (time.perf_counter() - start) / 1e6:.1f} million rows a second of DuckDB")
    assert int(counted[()]) == kept


if __name__ == "__main__":
    main()
