"""Compare counts and sums of a measure, in one pass, with DuckDB's GROUP BY, on two cores.

    python benchmarks/measures.py [--rows 10000000] [--rounds 4] > benchmarks/measures.md

The script makes its data in a temporary folder. Each engine runs in its own process, and in each
round the engines run one after the other, so that a ratio compares runs that are close in time.
The script checks that the engines' numbers of people and sums of incomes are equal. Progress goes
to stderr.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import counting_data
import dask
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from counting_engines import CASES, DOMAIN
from markdown_table import heading, line

import fitplug as fp
import fitplug_dask as fpd
from fitplug.domain import get_codec, get_shape

HEAD = """# Measures

Per cell of other attributes the number of people, of those with an income, and the sum of the
incomes, clamped to 0 to 200,000, are counted in one pass: by fitplug as the table of a measure of
200,000 units, by DuckDB as `count(*)`, `count(PINCP)` and `sum(least(greatest(PINCP, 0), 200000))`
with GROUP BY. The data are {rows:,} rows in Parquet files with snappy compression. They are counted
on two cores, and each engine runs in its own process. The column "M rows/s" shows the best of
{rounds} rounds, and the last column the median over the rounds of the ratio of times within one
round; it is above 1 where fitplug is faster. The numbers of all engines are equal.

"As drawn" means that each row joins a real person of [examples/acs](../examples/acs), with the
person's income, to the household of another person. "Uniform" means that all cells and all whole
incomes from -50,000 to 250,000 are equally likely. One income of five is null there.

    python benchmarks/measures.py --rows {rows} --rounds {rounds} > benchmarks/measures.md
"""
INCOME = fp.Measure(0, 200_000, other="none")
TYPES = {"int32": pa.int32(), "double": pa.float64()}
OURS, PEER = "fitplug, threads", "DuckDB"
FILES = 10


def write(folder: Path, rows: int, uniform: bool, kind: str) -> list[str]:
    """Write files of the attributes that the cases use, and of incomes."""
    used = DOMAIN.ordered(CASES["0.7M"][0])
    types = [(name, pa.int16() if name == "AGEP" else pa.string()) for name in used]
    people = counting_data.read_people([*used, "PINCP"])
    rng = np.random.default_rng(18)
    folder.mkdir()
    paths = []
    for i in range(FILES):
        n = rows // FILES
        if uniform:
            table = counting_data.draw_uniform(rng, n, types)
            income = pa.array(rng.integers(-50_000, 250_000, n), mask=rng.random(n) < 0.2)
        else:
            own = [*types, (counting_data.INCOME, pa.string())]
            table = counting_data.draw_people(rng, people, n, own)
            text = table[counting_data.INCOME]  # "N" where there is none
            income = pc.replace_substring(text, "N", "nan").cast(pa.float64())
            income = pc.if_else(pc.is_nan(income), None, income)
        table = table.select(used).append_column("PINCP", income.cast(TYPES[kind]))
        paths.append(str(folder / f"part-{i:03}.parquet"))
        pq.write_table(table, paths[-1], row_group_size=500_000)
    return paths


def count_with_fitplug(files: Sequence[str], names: Sequence[str]) -> tuple[float, Any]:
    domain = fp.Domain({**{name: DOMAIN[name] for name in names}, "PINCP": INCOME})
    wanted = (domain, [(*names, "PINCP")])
    fpd.count(files[:1], wanted)
    start = time.perf_counter()
    table = fpd.count(list(files), wanted)[wanted[1][0]]
    seconds = time.perf_counter() - start
    people, valued = table.sum(axis=-1), table[..., :2].sum(axis=-1)
    return seconds, (
        people // get_codec(INCOME).shares,
        valued // get_codec(INCOME).shares,
        table[..., 1],
    )


def count_with_duckdb(files: Sequence[str], names: Sequence[str]) -> tuple[float, Any]:
    import duckdb

    query = f"""SELECT {", ".join(names)}, count(*) AS people, count(PINCP) AS valued,
        coalesce(sum(least(greatest(PINCP, 0), 200000)), 0)::BIGINT AS income
        FROM read_parquet(?) GROUP BY ALL"""
    with duckdb.connect(config={"threads": 2}) as connection:
        connection.sql(query, params=[list(files[:1])]).to_arrow_table()
        start = time.perf_counter()
        groups = connection.sql(query, params=[list(files)]).to_arrow_table()
        seconds = time.perf_counter() - start
    at = tuple(
        get_codec(DOMAIN[name]).codes(np.array(groups[name].to_pylist(), object)) for name in names
    )
    found = []
    for column in ("people", "valued", "income"):
        found.append(np.zeros(get_shape(DOMAIN, names), dtype=np.int64))
        found[-1][at] = groups[column].to_numpy()
    return seconds, found


ENGINES = {OURS: count_with_fitplug, PEER: count_with_duckdb}


def run(engine: str, case: str, *files: str) -> None:
    names = DOMAIN.ordered(CASES[case][0])
    with dask.config.set(num_workers=2):
        seconds, found = ENGINES[engine](files, names)
    digest = hashlib.sha256()
    for table in found:
        digest.update(np.ascontiguousarray(table, dtype=np.int64))
    print(json.dumps({"seconds": seconds, "digest": digest.hexdigest()}))


def measure(engine: str, case: str, files: Sequence[str]) -> dict[str, Any]:
    print(f"{case}: {engine}", file=sys.stderr, flush=True)
    done = subprocess.run(
        [sys.executable, __file__, "--run", engine, case, *files],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        check=True,
    )
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=4)
    asked = parser.parse_args()
    print(HEAD.format(rows=asked.rows, rounds=asked.rounds))
    print(heading(["cells", "incomes", "engine", "M rows/s", "time / fitplug's"]))
    for data, uniform in (("as drawn", False), ("uniform", True)):
        for kind in TYPES:
            with tempfile.TemporaryDirectory() as place:
                files = write(Path(place) / "people", asked.rows, uniform, kind)
                for case in ("6k", "0.7M"):
                    report([f"{case} cells, {data}", kind], case, files, asked)


def report(labels: list[str], case: str, files: Sequence[str], asked: argparse.Namespace) -> None:
    taken = [{e: measure(e, case, files) for e in ENGINES} for _ in range(asked.rounds)]
    if len({took[engine]["digest"] for took in taken for engine in ENGINES}) > 1:
        raise SystemExit(f"{case}: the engines' numbers differ")
    for engine in ENGINES:
        speed = asked.rows / min(took[engine]["seconds"] for took in taken) / 1e6
        ratio = statistics.median(took[engine]["seconds"] / took[OURS]["seconds"] for took in taken)
        print(line([*labels, engine, f"{speed:.3g}", f"{ratio:.2f}"]), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(*sys.argv[2:])
    else:
        main()
