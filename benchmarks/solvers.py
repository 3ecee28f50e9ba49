"""Compare fitplug's dual solver with SM-II, the paper's solver, and with the solvers of CVXPY.

    python benchmarks/solvers.py [--quick] > benchmarks/solvers.md

All solve the same reduced problem to the same gap, or as far as they get. The times do not include
the rounding to integers that follows. They are medians of repeated runs on one thread, and only
ratios within a run are meaningful.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import cvxpy as cp
import numpy as np
import numpy.typing as npt
from markdown_table import heading, line
from paper_cases import marginals, pl94
from scipy.linalg import solve_triangular
from threadpoolctl import threadpool_limits

from fitplug.solve import dual, sm2
from fitplug.solve.dual import Solution
from fitplug.solve.problem import Problem, reduce_matrix

Matrix = npt.NDArray[np.float64]
TOLERANCE = 1e-4

INTRODUCTION = f"""\
# Solvers side by side

The solvers stop at a relative gap of {TOLERANCE:g} on Delta. alpha is Delta^2 of the covariance
found. The dual solver and SM-II certify their own gap. The gap of CVXPY is relative to the lower
bound of the dual solver. For CVXPY, the table shows the faster of Clarabel and SCS to reach the
gap, where about a minute is enough, with the seconds of this solver alone.
"""


def prefix(d: int) -> tuple[Matrix, Matrix]:
    return np.tri(d), np.ones(d)


def all_ranges(d: int) -> tuple[Matrix, Matrix]:
    first, last = (i[:, None] for i in np.triu_indices(d))
    cell = np.arange(d)
    return ((first <= cell) & (cell <= last)).astype(float), np.ones(len(first))


def random_ranges(d: int) -> tuple[Matrix, Matrix]:
    """Draw 2d ranges with targets from U(1, 10), as in the paper's experiments, from a seed."""
    rng = np.random.default_rng(20261120)
    ends = np.sort(rng.integers(0, d, (2 * d, 2)), axis=1)
    cell = np.arange(d)
    W = ((ends[:, :1] <= cell) & (cell <= ends[:, 1:])).astype(float)
    return W, rng.uniform(1, 10, 2 * d)


Cases = list[tuple[str, Callable[[int], tuple[Matrix, Matrix]], list[int]]]
QUICK: Cases = [
    ("prefix", prefix, [16, 32, 64, 128]),
    ("all ranges", all_ranges, [16, 32]),
    ("random ranges, U(1,10)", random_ranges, [16, 32]),
    ("PL94", lambda _: pl94(), [252]),
]
FULL: Cases = [
    ("prefix", prefix, [16, 32, 64, 128, 256, 512, 1024, 2048]),
    ("all ranges", all_ranges, [16, 32, 64]),
    ("random ranges, U(1,10)", random_ranges, [16, 32, 64, 256, 1024]),
    ("PL94", lambda _: pl94(), [252]),
    ("marginals, r=3, t=16", lambda _: marginals(16), [4096]),
]
LARGEST_SM2 = 256
"""SM-II is not run on more cells: it would take from many minutes to hours."""

SCS, CLARABEL = {"eps": 1e-7, "max_iters": 10**6, "time_limit_secs": 150.0}, {"max_threads": 1}
CVXPY: list[tuple[str, int, dict[str, Any]]] = [("Clarabel", 32, CLARABEL), ("SCS", 128, SCS)]
"""Solvers, the largest rank each is run on, settings. On twice the rank neither ends in time:
prefix(64) takes Clarabel, an interior-point method, two minutes, and SCS, of first order, leaves a
gap of 3e-2 on prefix(256) after 160 s. Loosening Clarabel's precision of 1e-8 to 1e-4 would save a
third of its steps and leave gaps of 1e-3 in places; SCS at 1e-6 misses the gap on prefix(128)."""


@dataclass(frozen=True)
class Run:
    """upper: the cost of the covariance found, computed from it; gap: over a valid lower bound."""

    seconds: float
    steps: int
    upper: float
    gap: float


def ours(solve: Callable[..., Solution], problem: Problem) -> Run:
    start = time.perf_counter()
    found = solve(problem, tolerance=TOLERANCE, max_iterations=2000)
    return Run(time.perf_counter() - start, found.iterations, found.upper, found.gap)


def semidefinite(problem: Problem, lower: float, solver: str, settings: dict[str, Any]) -> Run:
    """min t: profile <= t, variances over targets <= t, [[Sigma^-1, I], [I, Sigma]] >= 0.

    Several formulations were tried: one cone per cell, the gamma_2 norm, its dual, and this one.
    This one is the fastest, or close to it, on all workloads, because its cone does not grow with
    the queries. The basis was chosen in the same way: with the singular vectors as the basis, SCS
    takes a quarter to a fortieth of the steps that it takes with the cells. The seconds are those
    of the solver; the time in which CVXPY brings the problem into its form is not counted.
    """
    V = problem.blocks[0].representation @ problem.blocks[0].basis
    B = np.linalg.svd(V, full_matrices=False)[2][: len(problem.blocks[0].basis)]
    L = V @ B.T
    identity, t = np.eye(len(B)), cp.Variable()
    precision, covariance = (cp.Variable(identity.shape, symmetric=True) for _ in range(2))
    asked = cp.Problem(
        cp.Minimize(t),
        [
            cp.bmat([[precision, identity], [identity, covariance]]) >> 0,
            cp.sum(cp.multiply(B, precision @ B), axis=0) <= t,
            cp.sum(cp.multiply(L, L @ covariance), axis=1) <= t,
        ],
    )
    asked.solve(solver=solver.upper(), **settings)
    factor = np.linalg.cholesky(precision.value)
    g = ((factor.T @ B) ** 2).sum(axis=0).max()
    h = (solve_triangular(factor, L.T, lower=True) ** 2).sum(axis=0).max()
    upper, stats = math.sqrt(g * h), asked.solver_stats
    seconds = stats.solve_time + (stats.setup_time or 0.0)
    return Run(seconds, stats.num_iters, upper, upper / lower - 1)


def timed(run: Callable[[], Run]) -> Run:
    """Return the median of up to five runs."""
    runs: list[Run] = []
    while len(runs) < 5 and sum(done.seconds for done in runs) <= 1:
        runs.append(run())
    return sorted(runs, key=lambda done: done.seconds)[len(runs) // 2]


def fastest_of_cvxpy(problem: Problem) -> tuple[str, Run] | None:
    """Find the solver that reaches the tolerance first, or comes closest to it."""
    lower, runs = 0.0, []
    for solver, largest, settings in CVXPY:
        if len(problem.blocks[0].basis) <= largest:
            lower = lower or dual.solve_dual(problem, tolerance=1e-6, max_iterations=2000).lower
            runs.append((solver, timed(partial(semidefinite, problem, lower, solver, settings))))
    return min(runs, key=lambda r: (max(r[1].gap, TOLERANCE), r[1].seconds), default=None)


def figures(run: Run) -> list[str]:
    return [f"{run.seconds:.3g}", str(run.steps), f"{run.upper**2:.6f}", f"{run.gap:.0e}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes only, about a minute")
    cases = QUICK if parser.parse_args().quick else FULL
    print(INTRODUCTION)
    columns = ["workload", "d", "dual s", "iterations", "alpha", "gap"]
    columns += ["SM-II s", "steps", "alpha", "gap", "SM-II / dual"]
    columns += ["CVXPY s", "steps", "alpha", "gap", "by", "CVXPY / dual"]
    print(heading(columns))
    with threadpool_limits(1, user_api="blas"):
        for name, make, sizes in cases:
            for d in sizes:
                print(f"{name} {d}", file=sys.stderr)
                problem, _ = reduce_matrix(*make(d))
                best = timed(partial(ours, dual.solve_dual, problem))
                row = [name, str(d), *figures(best)]
                theirs = [""] * 5
                if d <= LARGEST_SM2:
                    run = timed(partial(ours, sm2.solve_sm2, problem))
                    theirs = [*figures(run), f"{run.seconds / best.seconds:.0f}"]
                row += theirs
                reference = fastest_of_cvxpy(problem)
                if reference:
                    by, run = reference
                    row += [*figures(run), by, f"{run.seconds / best.seconds:.0f}"]
                print(line(row + [""] * (len(columns) - len(row))), flush=True)


if __name__ == "__main__":
    main()
