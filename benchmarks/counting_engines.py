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
import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import counting_data
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import fitplug as fp
import fitplug_dask as fpd
from fitplug.domain import get_codec, get_shape

THREADS = 2
DOMAIN, SKEWED = counting_data.domain(), counting_data.skewed_domain()
Names = tuple[str, ...]

SMALL: Names = ("AGEP", "MSP", "RAC1P")
CASES: dict[str, list[Names]] = {
    "6k": [SMALL],
    "0.7M": [(*SMALL, "EDU", "HISP", "SEX")],
    "9M": [(*SMALL, "EDU", "HISP", "SEX", "NPF")],
    "two-way": list(itertools.combinations(DOMAIN.names, 2)),
}

SKEWED_CASES: dict[str, list[Names]] = {
    "10^3": [("plain", "nullable", "texts")],
    "10^4": [("plain", "nullable", "texts", "dictionary")],
    "10^5": [("plain", "texts", "dictionary", "encoded", "short")],
    "10^6": [("plain", "nullable", "texts", "dictionary", "encoded", "short")],
    "10^7": [tuple(SKEWED.names)],
    "nullable": [("nullable",)],
    "dictionary": [("dictionary",)],
}
CASES |= SKEWED_CASES
Blocks = list[np.ndarray[Any, Any]]
Times = tuple[float, float]


def domain_of(names: Sequence[str]) -> fp.Domain:
    """Return the domain that has these columns."""
    return SKEWED if set(names) <= set(SKEWED.names) else DOMAIN


def list_texts(names: Sequence[str]) -> list[str]:
    """List the columns of text, which engines read as dictionaries."""
    domain = domain_of(names)
    return [name for name in names if isinstance(domain[name], fp.Categories)]


def stopwatch() -> Callable[[], Times]:
    """Return a function that tells the seconds since now, by the clock and in CPU time."""
    start, used = time.perf_counter(), time.process_time()
    return lambda: (time.perf_counter() - start, time.process_time() - used)


def ours(files: list[str], tables: Sequence[Names], client: Any = None) -> tuple[Times, Blocks]:
    domain = domain_of(tables[0])
    fpd.count(files[:1], (domain, tables), client=client)
    took = stopwatch()
    counted = fpd.count(files, (domain, tables), client=client)
    return took(), [counted[names] for names in tables]


@contextmanager
def open_cluster() -> Iterator[Any]:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(THREADS, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def ours_on_a_cluster(files: list[str], tables: Sequence[Names]) -> tuple[Times, Blocks]:
    with open_cluster() as client:
        return ours(files, tables, client)


def by_hand(files: list[str], tables: Sequence[Names]) -> tuple[Times, Blocks]:
    """Count as one would by hand with Dask: a task reads a file, and sums are added in a tree."""
    from counting_engines import bincount_files  # by its module, as workers import it

    names = tables[0]

    def count(client: Any, paths: list[str]) -> np.ndarray[Any, Any]:
        # The tasks of one file are few enough; a thousand small files go several to a task.
        step = -(-len(paths) // 100)
        runs = [paths[i : i + step] for i in range(0, len(paths), step)]
        level = [client.submit(bincount_files, run, names, pure=False) for run in runs]
        while len(level) > 1:
            groups = [level[i : i + 8] for i in range(0, len(level), 8)]
            level = [client.submit(sum, group, pure=False) for group in groups]
        counts: np.ndarray[Any, Any] = level[0].result()
        return counts

    with open_cluster() as client:
        count(client, files[:1])
        took = stopwatch()
        counts = count(client, files)
        times = took()
    return times, [counts.reshape(get_shape(domain_of(names), names))]


def bincount_files(paths: list[str], names: Names) -> np.ndarray[Any, Any]:
    """Count the cells of some files, read by Arrow at once; nulls are outside the domain."""
    domain = domain_of(names)
    texts = list_texts(names)
    size = math.prod(get_shape(domain, names))
    counts = np.zeros(size, dtype=np.int64)
    for path in paths:
        table = pq.read_table(path, columns=list(names), read_dictionary=texts, use_threads=False)
        cells, inside = np.zeros(len(table), np.int64), np.ones(len(table), bool)
        for name in names:
            column = table[name].combine_chunks()
            if name in texts:
                entries = np.array(column.dictionary.to_pylist(), dtype=object)
                codes = get_codec(domain[name]).codes(entries)[
                    column.indices.fill_null(0).to_numpy()
                ]
            else:
                codes = get_codec(domain[name]).codes(column.fill_null(0).to_numpy())
            inside &= (codes >= 0) & column.is_valid().to_numpy(zero_copy_only=False)
            cells = cells * domain[name].size + codes
        counts += np.bincount(cells[inside], minlength=size)
    return counts


def decode(files: list[str], tables: Sequence[Names]) -> tuple[Times, Blocks]:
    """Only read the columns, texts as dictionaries: the least time that our method can take."""
    from concurrent.futures import ThreadPoolExecutor

    used = sorted({name for names in tables for name in names})
    texts = list_texts(used)

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
        inside = " AND ".join(f"{name} IS NOT NULL" for name in used)
        query = f"SELECT {columns}, count(*) AS n FROM read_parquet(?) WHERE {inside} GROUP BY ALL"
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
    enums = {n: pl.Enum(list(domain_of(used)[n].labels)) for n in list_texts(used)}

    def grouped(paths: list[str]) -> list[Any]:
        rows = pl.scan_parquet(paths).select(used).drop_nulls().cast(enums)  # type: ignore[arg-type]
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
    domain = domain_of(names)
    counts = np.zeros(get_shape(domain, names), dtype=np.int64)
    at = []
    for name in names:
        column = groups[name].combine_chunks()
        if name not in list_texts(names):
            at.append(get_codec(domain[name]).codes(column.to_numpy()))
        else:
            entries = column.cast(pa.large_string()).dictionary_encode()
            codes = get_codec(domain[name]).codes(
                np.array(entries.dictionary.to_pylist(), dtype=object)
            )
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
SKEWED_ENGINES = {"by hand, cluster of 2": by_hand, **ENGINES}


def _peak() -> float:
    # getrusage is not used: after a fork it starts with the memory of the parent.
    status = Path("/proc/self/status").read_text()
    found = re.search(r"VmHWM:\s*(\d+) kB", status)
    return int(found.group(1)) / 1000 if found else float("nan")


def main(engine: str, case: str, *files: str) -> None:
    import dask

    tables = [domain_of(names).ordered(names) for names in CASES[case]]
    with dask.config.set(num_workers=THREADS):
        (seconds, cpu), blocks = SKEWED_ENGINES[engine](list(files), tables)
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(np.ascontiguousarray(block, dtype=np.int64))
    told = {"seconds": seconds, "cpu": cpu, "peak": _peak(), "digest": digest.hexdigest()}
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
