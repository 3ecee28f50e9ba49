"""Compare exact counting with decoding alone, DuckDB and Polars, on two cores.

    python benchmarks/counting.py [--rows 20000000] [--rounds 5] > benchmarks/counting.md
    python benchmarks/counting.py --rows 1000000 --rounds 1 --only skewed  # for a quick look

The script makes its data, about 20 bytes a row, in a temporary folder. Every engine runs in its own
process. In each round the engines run one after the other, so that a ratio compares runs that are
close in time. The script checks that the tables of all engines are equal. Progress goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import counting_data
from counting_engines import CASES, DOMAIN, ENGINES, SKEWED_CASES, SKEWED_ENGINES
from markdown_table import heading, line

HEAD = """# Counting

The data are {rows:,} rows of 20 columns in Parquet files with snappy compression and row groups of
{group:,}. They are counted on two cores, and each engine runs in its own process. The column "M
rows/s" shows the best of {rounds} rounds, with the CPU seconds and the peak memory of the same
process. The last column is the median over the rounds of the ratio of times within one round; it is
above 1 where fitplug on threads is faster. The engine "decode only" reads the columns as
dictionaries and counts nothing, so it is the least time that fitplug's method can take. The tables
of all engines are equal.

"As drawn" means that each row joins a real person of [examples/acs](../examples/acs) to the
household of another person, so that few cells are in use. "Uniform" means that all cells are
equally likely. The two-way tables are counted over a quarter of the rows. "Skewed" rows are made
up of columns that are stored in several ways: plain and dictionary-encoded, text and integers, with
up to 30% nulls, which are outside the domain. "Small files" have 500 skewed rows each. For a
cluster, CPU and memory are those of the client. "By hand" is what one would write with Dask in 60
lines: tasks that read files by Arrow and count them by NumPy, and a tree of sums.

    python benchmarks/counting.py --rows {rows} --rounds {rounds} > benchmarks/counting.md
"""
DECODE, OURS, CLUSTER = "decode only", "fitplug, threads", "fitplug, cluster of 2"


def measure(engine: str, case: str, files: Sequence[str]) -> dict[str, Any]:
    print(f"{case}: {engine}", file=sys.stderr, flush=True)
    script = Path(__file__).with_name("counting_engines.py")
    done = subprocess.run(
        [sys.executable, str(script), engine, case, *files],
        env={**os.environ, "POLARS_MAX_THREADS": "2", "OPENBLAS_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        check=True,
    )
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def report(name: str, case: str, files: Sequence[str], rows: int, rounds: int) -> None:
    engines = list(SKEWED_ENGINES if case in SKEWED_CASES else ENGINES)
    taken = [{e: measure(e, case, files) for e in engines} for _ in range(rounds)]
    digests = {took[e]["digest"] for took in taken for e in engines if e != DECODE}
    if len(digests) > 1:
        raise SystemExit(f"{name}: the engines' tables differ")
    for engine in engines:
        best = min((took[engine] for took in taken), key=lambda told: told["seconds"])
        ratio = statistics.median(t[engine]["seconds"] / t[OURS]["seconds"] for t in taken)
        speed, cpu = rows / best["seconds"] / 1e6, best["cpu"]
        cells = [name, engine, f"{speed:.3g}", f"{cpu:.2g}", f"{best['peak']:.0f}", f"{ratio:.2f}"]
        print(line(cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["people", "skewed"], help="some of the rows")
    asked = parser.parse_args()
    rows, group = asked.rows, min(500_000, asked.rows)
    print(HEAD.format(rows=rows, group=group, rounds=asked.rounds))
    print(heading(["tables", "engine", "M rows/s", "CPU s", "peak MB", "time / fitplug's"]))
    with tempfile.TemporaryDirectory() as place:
        if asked.only != "skewed":
            compare_people(Path(place), rows, group, asked.rounds)
        if asked.only != "people":
            compare_skewed(Path(place), rows, group, asked.rounds)


def compare_people(folder: Path, rows: int, group: int, rounds: int) -> None:
    def make(name: str, **options: Any) -> list[str]:
        print(f"making the data: {name}", file=sys.stderr, flush=True)
        return counting_data.write(folder / name, rows, **options)

    drawn = make("drawn", files=20, group_rows=group)
    large = DOMAIN.ordered(CASES["9M"][0])
    uniform = make("uniform", files=20, group_rows=group, names=large, uniform=True)
    one = make("one", files=1, group_rows=rows, names=large)
    runs = [
        ("6k cells", "6k", drawn),
        ("6k cells, one row group of all rows", "6k", one),
        ("0.7M cells, as drawn", "0.7M", drawn),
        ("0.7M cells, uniform", "0.7M", uniform),
        ("9M cells, as drawn", "9M", drawn),
        ("9M cells, uniform", "9M", uniform),
    ]
    for name, case, files in runs:
        report(name, case, files, rows, rounds)
    report("all 190 two-way", "two-way", drawn[::4], rows // 4, rounds)


def compare_skewed(folder: Path, rows: int, group: int, rounds: int) -> None:
    print("making the data: skewed", file=sys.stderr, flush=True)
    files = counting_data.write_skewed(folder / "skewed", rows, files=17, group_rows=group)
    for case in SKEWED_CASES:
        cells = f"{case} cells" if case.startswith("10^") else f"one {case} column"
        report(f"skewed, {cells}", case, files, rows, rounds)
    for number in (1_000, 5_000):
        # Fewer files in a quick run, in which fewer rows are asked for.
        number = min(number, max(1, rows // 2_000))
        small = folder / f"small-{number}"
        files = counting_data.write_skewed(small, 500 * number, files=number, group_rows=group)
        report(f"{number:,} small files", "10^3", files, 500 * number, rounds)


if __name__ == "__main__":
    main()
