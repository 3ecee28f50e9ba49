"""A release of many answers, from exact counts to tables, beside OpenDP's sampler called bare.

python benchmarks/large_release.py 216 > benchmarks/large_release.md
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import opendp.prelude as dp
from markdown_table import heading, line

import fitplug as fp
from fitplug_dask.releases import release_source

ROUNDS = 3
BATCH = 2**14
CORES = os.cpu_count() or 1

ABOUT = """# A release of many answers

A cube of {n} x {n} x {n} cells, with its margins, has {answers:,} answers. The bare sampler is
OpenDP's `make_gaussian` on as many zeros, with batches on all of {cores} cores. `fp.release` makes
the whole release in one process: exact answers from the counts, the noise, durable parts,
estimates, and tables in a folder; its ledger is charged. Each runs in a process of its own, in
turn, {rounds} times.
"""


def main(n: int, rounds: int = ROUNDS) -> None:
    plan = make_plan(n)
    answers = plan.strategy.size
    print(ABOUT.format(n=n, answers=answers, cores=CORES, rounds=rounds))
    columns = ["what", "seconds", "processor seconds", "peak MB"]
    print(heading([*columns, "seconds / bare", "processor seconds / bare"]))
    for _ in range(rounds):
        bare, release = (measure(what, n) for what in ("bare", "release"))
        print(line(["the bare sampler", *show(bare), "", ""]))
        ratios = [f"{release[k] / bare[k]:.2f}" for k in ("seconds", "processor")]
        print(line(["`fp.release`", *show(release), *ratios]), flush=True)


def show(found: dict[str, float]) -> list[str]:
    return [f"{found['seconds']:.1f}", f"{found['processor']:.1f}", f"{found['megabytes']:.0f}"]


def measure(what: str, n: int) -> dict[str, float]:
    """Run one of the two in a process of its own, and return what it took."""
    command = [sys.executable, __file__, what, str(n)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def make_plan(n: int) -> fp.Plan:
    domain = fp.Domain({name: fp.Integers(0, n - 1) for name in "abc"})
    groups = [
        fp.marginal("a", "b", "c", std=10.0, name="all"),
        fp.marginal("a", "b", std=20.0, name="ab"),
        fp.marginal("a", std=20.0, name="a"),
        fp.total(std=5.0, name="total"),
    ]
    return fp.design(fp.Workload(domain, groups), tolerance=1e-2)


def run(what: str, n: int) -> None:
    plan = make_plan(n)
    if what == "bare":
        act = draw_bare(plan)
    else:
        cells = np.random.default_rng(0).integers(0, 100, (n, n, n))
        act = release(plan, fp.Tables(plan.domain, {("a", "b", "c"): cells}, copy=False))
    begun, used = time.perf_counter(), time.process_time()
    act()
    found = {
        "seconds": time.perf_counter() - begun,
        "processor": time.process_time() - used,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(found))


def draw_bare(plan: fp.Plan) -> Callable[[], None]:
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"), size=BATCH)
    zeros = np.zeros(BATCH, dtype=np.int64)
    samplers = [
        dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=plan.noise_std)
        for _ in range(CORES)
    ]
    batches = -(-plan.strategy.size // (BATCH * CORES))

    def draw(sampler: dp.Measurement) -> None:
        for _ in range(batches):
            sampler(zeros)

    def draw_all() -> None:
        with ThreadPoolExecutor(CORES) as pool:
            list(pool.map(draw, samplers))

    return draw_all


def release(plan: fp.Plan, tables: fp.Tables) -> Callable[[], None]:
    def make() -> None:
        with tempfile.TemporaryDirectory() as directory:
            ledger = fp.Ledger(Path(directory) / "budget.db", rho=1e3)
            made = release_source(plan, tables, Path(directory) / "release", ledger=ledger, key="a")
            assert made.plan.digest == plan.digest

    return make


if __name__ == "__main__":
    if sys.argv[1] in ("bare", "release"):
        run(sys.argv[1], int(sys.argv[2]))
    else:
        main(int(sys.argv[1]), *map(int, sys.argv[2:3]))
