"""Noisy answers per second through fitplug, beside OpenDP's sampler called bare.

python benchmarks/draws.py > benchmarks/draws.md
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

import numpy as np
import opendp.prelude as dp
from markdown_table import heading, line

import fitplug as fp
import fitplug_opendp as fpo
from fitplug_opendp.noise_source import compute_exact_answers

ROUNDS = 7

ABOUT = """# Draws

A plan has 100,651 integer answers: a table of 400 x 250 cells and one of its margins. Each way of
drawing runs {rounds} times, in turn, on {cores} cores. The last column is the median of its time
over the time of the bare sampler in the same round. The bare sampler is OpenDP's `make_gaussian`
on the answers as an int64 array. The times of fitplug include the exact answers from the tables,
OpenDP's maps and the noise. `release` draws on all cores.
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
        "release(plan, tables)": lambda: fpo.release(plan, tables),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, draw in ways.items():
            start = time.perf_counter()
            draw()
            times[name].append(time.perf_counter() - start)

    print(ABOUT.format(rounds=ROUNDS, cores=os.cpu_count()))
    print(heading(["", "draws per second", "time over bare"]))
    for name, taken in times.items():
        ratios = [t / b for t, b in zip(taken, times["bare sampler"], strict=True)]
        speed = plan.strategy.size / statistics.median(taken)
        print(line([name, f"{speed:,.0f}", f"{statistics.median(ratios):.2f}"]))


if __name__ == "__main__":
    main()
