"""Count the tables of one case with one engine, and measure the seconds and the peak memory.

    python benchmarks/counting_engines.py ENGINE CASE FILE...

The script prints a line of JSON: the seconds, the CPU seconds of this process, the peak resident
megabytes, and a digest of the tables, by which the benchmark checks that all engines counted the
same. Before the measurement it counts the first file once, so that imports and the start of threads
and workers are not measured.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import counting_data
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import fitplug_dask as fpd

THREADS = 2
DOMAIN = counting_data.domain()
Names = tuple[str, ...]

SMALL: Names = ("AGEP", "MSP", "RAC1P")
CASES: dict[str, list[Names]] = {
    "6k": [SMALL],
    "0.7M": [(*SMALL, "EDU", "HISP", "SEX")],
    "9M": [(*SMALL, "EDU", "HISP", "SEX", "NPF")],
    "two-way": list(itertools.combinations(DOMAIN.names, 2)),
}
Blocks = list[np.ndarray[Any, Any]]
Times = tuple[float, float]


def stopwatch() -> Callable[[], Times]:
    """Return a function that tells the seconds since now, by the clock and in CPU time."""
    start, used = time.perf_counter(), time.process_time()
    return lambda: (time.perf_counter() - start, time.process_time() - used)


def ours(files: list[str], tables: Sequence[Names], client: Any = None) -> tuple[Times, Blocks]:
    fpd.count(files[:1], (DOMAIN, tables), client=client)
    took = stopwatch()
    counted = fpd.count(files, (DOMAIN, tables), client=client)
    return took(), [counted[names] for names in tables]


def ours_on_a_cluster(files: list[str], tables: Sequence[Names]) -> tuple[Times, Blocks]:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(THREADS, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        return ours(files, tables, client)


def decode(files: list[str], tables: Sequence[Names]) -> tuple[Times, Blocks]:
    """Only read the columns, texts as dictionaries: the least time that our method can take."""
    from concurrent.futures import ThreadPoolExecutor

    used = sorted({name for names in tables for name in names})
    texts = [name for name in used if name != "AGEP"]

    def read(path: str) -> int:
        options: dict[str, Any] = {"read_dictionary": texts, "buffer_size": 2**20}
        with pq.ParquetFile(path, page_checksum_verification=True, **options) as parquet:
            batches = parquet.iter_batches(2**16, columns=used, use_threads=False)
            return sum(batch.num_rows for batch in batches)

    read(files[0])
    took = stopwatch()
    with ThreadPoolExecutor(THREADS) as pool:
        assert sum(pool.map(read, files))
    return took(), []


def duckdb(files: list[str], tables: Sequence[Names]) -> tuple[Times, Blocks]:
    """Count with GROUP BY, or with GROUPING SETS for several tables."""
    import duckdb

    used = sorted({name for names in tables for name in names})
    columns = ", ".join(used)
    if len(tables) == 1:
        query = f"SELECT {columns}, count(*) AS n FROM read_parquet(?) GROUP BY ALL"
    else:
        sets = ", ".join(f"({', '.join(names)})" for names in tables)
        query = f"SELECT {columns}, count(*) AS n, GROUPING({columns}) AS g "
        query += f"FROM read_parquet(?) GROUP BY GROUPING SETS ({sets})"
    with duckdb.connect(config={"threads": THREADS}) as connection:
        connection.sql(query, params=[files[:1]]).to_arrow_table()
        took = stopwatch()
        groups = connection.sql(query, params=[files]).to_arrow_table()
        times = took()
    if len(tables) == 1:
        return times, [_scattered(groups, tables[0])]
    # Bit k of g, from the right, is set when the k-th last column is summed out.
    masks = [sum((n not in names) << k for k, n in enumerate(reversed(used))) for names in tables]
    kinds = groups["g"].to_numpy()
    blocks = [
        _scattered(groups.filter(pa.array(kinds == mask)), names)
        for mask, names in zip(masks, tables, strict=True)
    ]
    return times, blocks


def polars(files: list[str], tables: Sequence[Names]) -> tuple[Times, Blocks]:
    """Count with the streaming engine, over columns cast to Enum."""
    import polars as pl

    used = sorted({name for names in tables for name in names})
    enums = {n: pl.Enum(list(DOMAIN[n].labels)) for n in used if n != "AGEP"}

    def grouped(paths: list[str]) -> list[Any]:
        rows = pl.scan_parquet(paths).select(used).cast(enums)  # type: ignore[arg-type]
        asked = [rows.group_by(names).agg(pl.len().alias("n")) for names in tables]
        return pl.collect_all(asked, engine="streaming")

    grouped(files[:1])
    took = stopwatch()
    groups = grouped(files)
    times = took()
    texts = [g.cast(dict.fromkeys(set(enums) & set(g.columns), pl.String)) for g in groups]
    return times, [
        _scattered(text.to_arrow(), names) for text, names in zip(texts, tables, strict=True)
    ]


def _scattered(groups: pa.Table, names: Names) -> np.ndarray[Any, Any]:
    """Scatter groups of raw values into a dense table; this is not timed."""
    counts = np.zeros(DOMAIN.shape_of(names), dtype=np.int64)
    at = []
    for name in names:
        column = groups[name].combine_chunks()
        if name == "AGEP":
            at.append(DOMAIN[name].codes(column.to_numpy()))
        else:
            entries = column.dictionary_encode()
            codes = DOMAIN[name].codes(np.array(entries.dictionary.to_pylist(), dtype=object))
            at.append(codes[entries.indices.to_numpy()])
    counts[tuple(at)] = groups["n"].to_numpy()
    return counts


ENGINES: dict[str, Callable[[list[str], Sequence[Names]], tuple[Times, Blocks]]] = {
    "decode only": decode,
    "fitplug, threads": ours,
    "fitplug, cluster of 2": ours_on_a_cluster,
    "DuckDB": duckdb,
    "Polars": polars,
}


def _peak() -> float:
    # getrusage is not used: after a fork it starts with the memory of the parent.
    status = Path("/proc/self/status").read_text()
    found = re.search(r"VmHWM:\s*(\d+) kB", status)
    return int(found.group(1)) / 1000 if found else float("nan")


def main(engine: str, case: str, *files: str) -> None:
    import dask

    tables = [DOMAIN.ordered(names) for names in CASES[case]]
    with dask.config.set(num_workers=THREADS):
        (seconds, cpu), blocks = ENGINES[engine](list(files), tables)
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(np.ascontiguousarray(block, dtype=np.int64))
    told = {"seconds": seconds, "cpu": cpu, "peak": _peak(), "digest": digest.hexdigest()}
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
