"""Compare counting of files in a slow store, and of many small files, with their usual readers.

    python benchmarks/stores.py [--rows 10000000] [--files 20000] [--rounds 5]
    python benchmarks/stores.py --rows 200000 --files 400 --rounds 1  # for a quick look

The script makes its data in a temporary folder. The store is the HTTP server of the tests, a
process of its own that waits before each answer, and that also answers requests for objects as S3
does. In each round the engines run one after the other, so that a ratio compares runs that are
close in time. Progress goes to stderr. fsspec needs `aiohttp`, which no extra of fitplug brings.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import counting_data
import dask
import fsspec
import numpy as np
import pyarrow.dataset as ds
import pyarrow.fs as pf
import pyarrow.parquet as pq
from counting_engines import DOMAIN, SKEWED, SMALL, THREADS
from markdown_table import heading, line

import fitplug as fp
import fitplug_dask as fpd
from tests.helpers.store_server import StoreServer, serve

HEAD = """# Stores and small files

The data are {rows:,} rows of 20 columns, of which three are counted, on {threads} threads of one
process. The store holds them in {few} files. It is an HTTP server on the same machine that waits
{ms:.0f} ms before each answer. "pyarrow.dataset" only reads the columns, by the file system that is
named. The small files are {files:,} on the local disk, with {each} rows each. As many lie in
{folders:,} folders `area=...`, with plain text and 30% nulls, and are counted by the area, too.

"Seconds" are the median of {rounds} rounds. The ratio is the median over the rounds of our time by
that of the other engine in the same round. "Bytes" are all bytes that the server sent, footers
included, by those of the column chunks that are counted. "Requests" are those of one round.

    python benchmarks/stores.py --rows {rows} --files {files} --rounds {rounds}
"""
FEW, LATENCY, FOLDERS = 20, 0.05, 1_000
TABLES = [DOMAIN.ordered(SMALL)]
HIVE = ("area", "nullable", "plain_texts")
Run = Callable[[], Any]


def ours(source: Any, options: Any = None) -> Run:
    return lambda: fpd.count(fp.Source(source, storage_options=options), (DOMAIN, TABLES))[
        TABLES[0]
    ]


def ours_by_area(folder: Path) -> Run:
    areas = fp.Categories([f"{i:04}" for i in range(FOLDERS)])
    domain = fp.Domain({"area": areas, **{name: SKEWED[name] for name in HIVE[1:]}})
    return lambda: fpd.count(str(folder), (domain, [HIVE]))[HIVE]


def arrow(paths: Sequence[str], system: Any) -> Run:
    def read() -> int:
        dataset = ds.dataset(list(paths), filesystem=system, format="parquet")
        return sum(batch.num_rows for batch in dataset.to_batches(columns=list(SMALL)))

    return read


def duckdb(files: str, columns: Sequence[str], options: str = "") -> Run:
    import duckdb

    inside = " AND ".join(f"{name} IS NOT NULL" for name in columns)
    query = f"SELECT {', '.join(columns)}, count(*) FROM read_parquet('{files}'{options}) "
    query += f"WHERE {inside} GROUP BY ALL"

    def count() -> int:
        with duckdb.connect(config={"threads": THREADS}) as connection:
            return int(connection.sql(query).to_arrow_table().num_rows)

    return count


def report(
    what: str, engines: dict[str, Run], rounds: int, store: StoreServer | None, wanted: int
) -> None:
    """Print a line for each engine, of which the first is ours."""
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    told: dict[str, dict[str, int]] = {}
    for _ in range(rounds):
        for name, run in engines.items():
            print(f"{what}: {name}", file=sys.stderr, flush=True)
            if store:
                store.behave(latency=LATENCY)
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
            if store:
                told[name] = store.tell()
    first = seconds[next(iter(engines))]
    for name, taken in seconds.items():
        ratio = statistics.median(a / b for a, b in zip(first, taken, strict=True))
        sent = f"{told[name]['bytes'] / wanted:.2f}" if store else ""
        asked = f"{told[name]['GET'] + told[name]['HEAD']}" if store else ""
        cells = [what, name, f"{statistics.median(taken):.2f}", f"{ratio:.2f}", sent, asked]
        print(line(cells), flush=True)


def count_wanted_bytes(paths: Sequence[str]) -> int:
    found = 0
    for path in paths:
        told = pq.read_metadata(path)
        for g in range(told.num_row_groups):
            columns = [told.row_group(g).column(c) for c in range(told.num_columns)]
            found += sum(c.total_compressed_size for c in columns if c.path_in_schema in SMALL)
    return found


def compare(folder: Path, rows: int, files: int, rounds: int) -> None:
    print("making the data", file=sys.stderr, flush=True)
    large = counting_data.write(folder / "people", rows, files=FEW, group_rows=100_000)
    counting_data.write(folder / "small", rows, files=files, group_rows=100_000)
    wanted = count_wanted_bytes(large)
    names = [f"people/{Path(path).name}" for path in large]
    with serve(folder) as store:
        endpoint = store.url.rstrip("/")
        keys = {"key": "key", "secret": "secret", "endpoint_url": endpoint}
        s3 = pf.S3FileSystem(
            access_key="key",
            secret_key="secret",
            endpoint_override=endpoint.removeprefix("http://"),
            scheme="http",
            region="us-east-1",
        )
        urls = [store.url + name for name in names]
        over_http, over_s3 = ours(urls), ours([f"s3://{name}" for name in names], keys)
        np.testing.assert_array_equal(over_http(), ours(large)())
        np.testing.assert_array_equal(over_s3(), ours(large)())
        http = {
            "fitplug": over_http,
            "pyarrow.dataset, fsspec": arrow(urls, fsspec.filesystem("http")),
        }
        objects = {"fitplug": over_s3, "pyarrow.dataset, Arrow's S3": arrow(names, s3)}
        report("HTTP", http, rounds, store, wanted)
        report("S3", objects, rounds, store, wanted)
    counting_data.write_skewed(
        folder / "hive", rows, files=files, group_rows=100_000, folders=min(FOLDERS, files)
    )
    typed = ", hive_partitioning = true, hive_types = {'area': VARCHAR}"
    small = {
        "fitplug": ours(str(folder / "small")),
        "DuckDB": duckdb(f"{folder}/small/*.parquet", SMALL),
    }
    hive = {
        "fitplug": ours_by_area(folder / "hive"),
        "DuckDB": duckdb(f"{folder}/hive/*/*.parquet", HIVE, typed),
    }
    for name, engines in (("small files", small), ("small files in folders", hive)):
        for run in engines.values():
            run()  # the first reading of a new file takes longer
        report(f"{files:,} {name}", engines, rounds, None, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    told = {"each": asked.rows // asked.files, "few": FEW, "ms": LATENCY * 1000}
    told["folders"] = min(FOLDERS, asked.files)
    print(HEAD.format(**vars(asked), **told, threads=THREADS))
    print(heading(["files", "engine", "seconds", "ours / its", "bytes", "requests"]), flush=True)
    with dask.config.set(num_workers=THREADS), tempfile.TemporaryDirectory() as folder:
        compare(Path(folder), asked.rows, asked.files, asked.rounds)


if __name__ == "__main__":
    main()
