"""Build, keep and use trees of up to eight million leaves.

python benchmarks/hierarchies.py > benchmarks/hierarchies.md
"""

from __future__ import annotations

import pickle
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from markdown_table import heading, line

import fitplug as fp
import fitplug_dask as fpd
from fitplug.domain import get_codec
from fitplug_cli.inputs import read_domain

LENGTHS = {"state": 2, "county": 5, "tract": 11, "group": 12, "block": 15}
SIZES = (109_831, 1_000_000, 8_000_000)
MOST_PATHS = 1_000_000
RECORDS = 2_000_000

ABOUT = """# Trees

The trees have synthetic states, counties, tracts, block groups and blocks, whose codes are prefixes
of codes of 15 characters. Times are seconds of processor time. Building checks all codes, finds the
nodes of every level, and refuses codes that are listed twice.

"From codes" begins with a list of texts, and "from paths" with a list of five labels for each leaf.
"pandas" makes a MultiIndex of five such columns, which finds the labels of each level and does not
check that the leaves differ. The codebook is a Parquet file with a column of codes, as a spec names
it. "Intervals" are those of all levels. The plan asks for one level, so that its file holds little
but the tree.
"""

COUNTING = """
Counting {records:,} records in a Parquet file by block, on one thread. "pandas" finds the same
blocks in an index that was made before, and does not count.
"""


def make_codes(leaves: int) -> list[str]:
    """Make codes in which a block group has 40 blocks, a tract 3 groups and a county 25 tracts."""
    i = np.arange(leaves)
    county = i // 3000
    parts = (i * 51 // leaves, county % 1000, i // 120, i // 40 % 3, i % 1000)
    lists = zip(*(part.tolist() for part in parts), strict=True)
    return [f"{a:02}{b:03}{c:06}{d}{e:03}" for a, b, c, d, e in lists]


def measure(act: Callable[[], Any]) -> tuple[Any, float]:
    """Return what a function returns, and the seconds of processor time that it takes."""
    start = time.process_time()
    made = act()
    return made, time.process_time() - start


def report_tree(codes: list[str], folder: Path) -> None:
    tree, from_codes = measure(lambda: fp.Hierarchy(LENGTHS, codes))
    from_paths = from_pandas = float("nan")
    if len(codes) <= MOST_PATHS:
        paths = [[code[:length] for length in LENGTHS.values()] for code in codes]
        _, from_paths = measure(lambda: fp.Hierarchy(list(LENGTHS), paths))
        columns = [list(column) for column in zip(*paths, strict=True)]
        _, from_pandas = measure(lambda: pd.MultiIndex.from_arrays(columns))
    pq.write_table(pa.table({"block": codes}), folder / "blocks.parquet")
    entry = {"levels": LENGTHS, "codebook": "blocks.parquet"}
    _, from_codebook = measure(lambda: read_domain({"block": entry}, folder))
    intervals = measure(lambda: [get_codec(tree).intervals(level) for level in tree.levels])[1]
    workload = fp.Workload(fp.Domain({"block": tree}), [fp.queries({"block": "state"}, std=1.0)])
    plan = fp.design(workload)
    path = folder / "plan.npz"
    save = measure(lambda: plan.save(path))[1]
    load = measure(lambda: fp.Plan.load(path))[1]
    times = (from_codes, from_paths, from_pandas, from_codebook, intervals, save, load)
    shown = ["" if np.isnan(t) else f"{t:.2g}" for t in times]
    sizes = [len(pickle.dumps(tree)) / len(codes), path.stat().st_size / len(codes)]
    print(line([f"{len(codes):,}", *shown, *(f"{size:.1f}" for size in sizes)]), flush=True)


def report_count(codes: list[str], folder: Path) -> None:
    rows = np.random.default_rng(1).integers(0, len(codes), RECORDS)
    values = np.array(codes, dtype=object)[rows]
    path = folder / "people.parquet"
    pq.write_table(pa.table({"block": values}), path, row_group_size=500_000)
    tree = fp.Hierarchy(LENGTHS, codes)
    wanted = (fp.Domain({"block": tree}), [("block",)])
    with dask.config.set(num_workers=1):
        counted, seconds = measure(lambda: fpd.count(path, wanted))
    index = pd.Index(codes)
    index.get_indexer(values[:1])
    found, by_pandas = measure(lambda: index.get_indexer(values))
    np.testing.assert_array_equal(counted["block"], np.bincount(found, minlength=len(codes)))
    ratio = f"{seconds / by_pandas:.2f}"
    print(line([f"{len(codes):,}", f"{seconds:.2g}", f"{by_pandas:.2g}", ratio]), flush=True)


def main() -> None:
    print(ABOUT)
    columns = ["leaves", "from codes", "from paths", "pandas", "codebook", "intervals"]
    files = ["save plan", "load plan", "pickled bytes a leaf", "file bytes a leaf"]
    print(heading([*columns, *files]))
    with tempfile.TemporaryDirectory() as folder:
        for leaves in SIZES:
            report_tree(make_codes(leaves), Path(folder))
        print(COUNTING.format(records=RECORDS))
        print(heading(["leaves", "count s", "pandas s", "count over pandas"]))
        for leaves in SIZES[:2]:
            report_count(make_codes(leaves), Path(folder))


if __name__ == "__main__":
    main()
