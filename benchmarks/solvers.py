"""Seconds and optimum of fitplug's dual solver and of SM-II, the paper's, side by side in one run.

    python benchmarks/solvers.py [--quick] > benchmarks/solvers.md

Both solve the same reduced problem to the same certified gap, or as far as they get; neither is
given the integer rounding that follows. Times are medians of repeated runs on one BLAS thread;
only ratios within a run mean anything.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from fitplug.problem import Problem, reduce
from fitplug.solvers import dual, sm2
from fitplug.solvers.dual import Solution

Matrix = npt.NDArray[np.float64]
TOLERANCE = 1e-4


def prefix(d: int) -> tuple[Matrix, Matrix]:
    return np.tri(d), np.ones(d)


def all_ranges(d: int) -> tuple[Matrix, Matrix]:
    first, last = (i[:, None] for i in np.triu_indices(d))
    cell = np.arange(d)
    return ((first <= cell) & (cell <= last)).astype(float), np.ones(len(first))


def random_ranges(d: int) -> tuple[Matrix, Matrix]:
    """2d ranges with targets from U(1, 10), as in the paper's Section 6; by seed."""
    rng = np.random.default_rng(20261120)
    ends = np.sort(rng.integers(0, d, (2 * d, 2)), axis=1)
    cell = np.arange(d)
    W = ((ends[:, :1] <= cell) & (cell <= ends[:, 1:])).astype(float)
    return W, rng.uniform(1, 10, 2 * d)


QUICK: list[tuple[str, Callable[[int], tuple[Matrix, Matrix]], list[int]]] = [
    ("prefix", prefix, [16, 32, 64, 128]),
    ("all ranges", all_ranges, [16, 32]),
    ("random ranges, U(1,10)", random_ranges, [16, 32]),
]
FULL = [
    ("prefix", prefix, [16, 32, 64, 128, 256, 512, 1024]),
    ("all ranges", all_ranges, [16, 32, 64]),
    ("random ranges, U(1,10)", random_ranges, [16, 64, 256, 1024]),
]
LARGEST_SM2 = 256
"""SM-II is not run on more cells: it would take from many minutes to hours."""


def timed(solve: Callable[..., Solution], problem: Problem) -> tuple[float, Solution]:
    seconds: list[float] = []
    while True:
        start = time.perf_counter()
        found = solve(problem, tolerance=TOLERANCE, max_iterations=2000)
        seconds.append(time.perf_counter() - start)
        if sum(seconds) > 1 or len(seconds) == 5:
            return statistics.median(seconds), found


def figures(seconds: float, found: Solution) -> list[str]:
    alpha = f"{found.upper**2:.6f}"
    return [f"{seconds:.3g}", str(found.iterations), alpha, f"{found.gap:.0e}"]


def line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes only, under a minute")
    cases = QUICK if parser.parse_args().quick else FULL
    print("# Solvers side by side\n")
    print(f"Certified relative gap asked: {TOLERANCE:g} on Delta. alpha = Delta^2 reached.\n")
    columns = ["workload", "d", "dual s", "iterations", "alpha", "gap"]
    columns += ["SM-II s", "steps", "alpha", "gap", "SM-II / dual"]
    print(line(columns), line(["---"] * len(columns)), sep="\n")
    with threadpool_limits(1, user_api="blas"):
        for name, make, sizes in cases:
            for d in sizes:
                print(f"{name} {d}", file=sys.stderr)
                problem, _ = reduce(*make(d))
                ours, found = timed(dual.solve, problem)
                row = [name, str(d), *figures(ours, found)]
                if d <= LARGEST_SM2:
                    theirs, other = timed(sm2.solve, problem)
                    row += [*figures(theirs, other), f"{theirs / ours:.0f}"]
                print(line(row + [""] * (len(columns) - len(row))), flush=True)


if __name__ == "__main__":
    main()
