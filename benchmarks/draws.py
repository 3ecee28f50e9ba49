"""Noisy answers per second through fitplug, beside OpenDP's sampler called bare.

python benchmarks/draws.py > benchmarks/draws.md
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import opendp.prelude as dp
from markdown_table import heading, line

import fitplug as fp
import fitplug_opendp as fpo
from fitplug_opendp.noise_source import compute_exact_answers
from fitplug_opendp.sampler_check import check_sampler

ROUNDS = 7

ABOUT = """# Draws

A plan has 100,651 integer answers: a table of 400 x 250 cells and one of its margins. Each way of
drawing runs {rounds} times, in turn, on {cores} cores. The last column is the median of its time
over the time of the bare sampler in the same round. The bare sampler is OpenDP's `make_gaussian`
on the answers as an int64 array. The times of fitplug include the exact answers from the tables,
OpenDP's maps and the noise. `release` draws on all cores.
"""

BATCH = 2**14

BATCHES = """
## What OpenDP's own interface can do in batches

A measurement of OpenDP draws a vector at a time, and has no other batches. Each way draws the same
number of answers {rounds} times, in turn. From about 256 answers on, a call costs little more than
its draws. Threads draw as fast as processes, because the sampler releases Python's lock.
"""

TEST = """
## The test of the sampler

Every release first makes this test, of 6,144 draws on all cores and their comparison with the exact
distribution.
"""


def main() -> None:
    domain = fp.Domain({"a": fp.Integers(1, 400), "b": fp.Integers(1, 250)})
    plan = fp.design(fp.Workload(domain, [fp.marginal("a", "b", std=10), fp.marginal("a", std=20)]))
    cells = np.random.default_rng(0).integers(0, 100, domain.shape)
    tables = fp.Tables(domain, {("a", "b"): cells})
    dp.enable_features("contrib", "honest-but-curious")
    vectors = dp.vector_domain(dp.atom_domain(T="i64"), size=plan.strategy.size)
    bare = dp.m.make_gaussian(vectors, dp.l2_distance(T="f64"), scale=plan.noise_std)
    answers = compute_exact_answers(plan, tables)
    space = fpo.tables_domain(plan), dp.symmetric_distance()
    measurement = fpo.make_fitness_for_use(*space, plan)

    ways: dict[str, Callable[[], object]] = {
        "bare sampler": lambda: bare(answers),
        "measurement(tables)": lambda: measurement(tables),
        "release(plan, tables)": lambda: fp.release(plan, tables),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, draw in ways.items():
            start = time.perf_counter()
            draw()
            times[name].append(time.perf_counter() - start)

    print(ABOUT.format(rounds=ROUNDS, cores=os.cpu_count()))
    print(heading(["", "draws per second", "time over bare"]))
    print_speeds(times, plan.strategy.size)
    print(BATCHES.format(rounds=ROUNDS))
    measure_batches(plan.noise_std)
    print(TEST)
    measure_test()


def print_speeds(times: dict[str, list[float]], draws: int) -> None:
    """Print a row for each way of drawing, with its time over that of the first one."""
    first = next(iter(times.values()))
    for name, taken in times.items():
        ratios = [t / b for t, b in zip(taken, first, strict=True)]
        speed = draws / statistics.median(taken)
        print(line([name, f"{speed:,.0f}", f"{statistics.median(ratios):.2f}"]))


def draw_vectors(size: int, total: int, std: float, element: str = "i64") -> None:
    """Draw so much noise by OpenDP's calls on vectors of a size; of size 0, on single numbers."""
    dp.enable_features("contrib")
    if size:
        vectors = dp.vector_domain(dp.atom_domain(T=element), size=size)
        bare = dp.m.make_gaussian(vectors, dp.l2_distance(T="f64"), scale=std)
        zeros = np.zeros(size, dtype=np.int64)
    else:
        single = dp.atom_domain(T=element), dp.absolute_distance(T="f64")
        bare, zeros = dp.m.make_gaussian(*single, scale=std), 0
    for _ in range(total // max(size, 1)):
        bare(zeros)


def measure_batches(std: float) -> None:
    """Measure vector sizes, and threads and processes that draw at the same time."""
    cores = os.cpu_count() or 1
    with (
        ThreadPoolExecutor(cores) as threads,
        ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as processes,
    ):
        ways: dict[str, Callable[[], object]] = {
            f"vectors of {size:,}": lambda size=size: draw_vectors(size, BATCH, std)
            for size in (16_384, 1, 16, 256, 4_096)
        }
        ways["single numbers"] = lambda: draw_vectors(0, BATCH, std)
        share = BATCH // cores
        for name, pool in (("threads", threads), ("processes", processes)):
            ways[f"vectors of 4,096 on {cores} {name}"] = lambda pool=pool: list(
                pool.map(draw_vectors, [4096] * cores, [share] * cores, [std] * cores)
            )
        for draw in ways.values():
            draw()
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, draw in ways.items():
                start = time.perf_counter()
                draw()
                times[name].append(time.perf_counter() - start)
    print(heading(["", "draws per second", "time over vectors of 16,384"]))
    print_speeds(times, BATCH)


def measure_test() -> None:
    """Measure the test of the sampler that every release makes."""
    print(heading(["standard deviation of the noise", "milliseconds"]))
    for std in (1.0, 1e3, 1e9, 2.0**55):
        taken = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            check_sampler(std)
            taken.append(time.perf_counter() - start)
        print(line([f"{std:.3g}", f"{1e3 * statistics.median(taken):.0f}"]))


if __name__ == "__main__":
    main()
