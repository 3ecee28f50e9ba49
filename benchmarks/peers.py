"""Compare plans with published mechanisms on workloads of prefixes.

python benchmarks/peers.py PYTHON QUERYSMASHER RESIDUALPLANNER > benchmarks/peers.md

PYTHON is an interpreter that has the packages of the peers: cvxpy, torch and jax-privacy. The other
two arguments are folders with the authors' public code. Each case runs in a process of its own, so
that the memory is that of the case.
"""

from __future__ import annotations

import itertools
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cases import Figures, answer_case, format_figures, run_case
from markdown_table import compute_delta_gap, heading, line

GRID = [(10, 10), (10, 50), (20, 20), (20, 50), (40, 10), (40, 20), (40, 40), (40, 50)]
SMALL = [(10, 2, 2), (10, 3, 2), (10, 3, 3), (10, 10, 2), (10, 10, 3)]
LENGTHS = [1_000, 10_000, 100_000]

INTRODUCTION = """# Published mechanisms on the same workloads

Every mechanism runs at its best published setting, with the authors' code, in one thread of the
same machine. Seconds are of the processor. The errors are at Delta^2 = 1 (rho = 1/2). "Bound" is
the certified lower bound of fitplug for any mechanism with Gaussian noise.
"""

GRID_TEXT = """
## Prefixes of up to two of many attributes

The workload has all prefix tables of one and of two of d attributes with n values each. This is the
workload of table 5 of QuerySmasher (He et al., https://arxiv.org/abs/2604.00868; code:
cmla-psu/QuerySmasherMatrixMechanism at 2210155), with the solver that its script for this table
uses. QuerySmasher minimises the root mean squared error (RMSE). fitplug minimises the largest
standard deviation, and proves how far from the least it is. The authors warn of up to 230 GB and
hours for their largest configurations. For prefixes their code needs far less, as the table shows,
and 570 MB of its memory are those of the libraries. Its errors are at the privacy cost 1 that the
code itself computes.
"""

SMALL_TEXT = """
## The largest variance of prefixes

The workload has all prefix tables of at most k of d attributes with n values each, and the total.
ResidualPlanner+ (code: cmla-psu/ResidualPlannerPlus at 82a9a89) runs with its objective for the
largest variance, ResPlanMax.
"""

LENGTH_TEXT = """
## Prefixes of one attribute

The workload has all n prefixes of one attribute. The peers are the factorizations for sums over
time of jax-privacy 2.3.0.dev0 (google-deepmind/jax_privacy at 8967688; 2.0.0 from PyPI gives
the same to four digits): the square root of the prefix matrix, which is optimal among Toeplitz
matrices (https://arxiv.org/abs/2202.11205); buffered linear Toeplitz matrices with seven buffers
(BLT, https://arxiv.org/abs/2404.16706), which need little memory for each step; and banded Toeplitz
matrices with 512 bands (BandMF, https://arxiv.org/abs/2306.08153), which are meant for people who
contribute several times. With more bands these come nearer to the square root. The peers answer
step by step while data arrive; a plan of fitplug is for data that are complete.
"""


def main(python: str, querysmasher: str, residualplanner: str) -> None:
    folders = {"querysmasher": querysmasher, "residualplanner": residualplanner}

    def run(system: str, *sizes: int) -> Figures:
        interpreter = sys.executable if system.startswith("fitplug") else python
        return run_case(
            Path(__file__).resolve(), interpreter, [folders.get(system, "")], system, *sizes
        )

    print(INTRODUCTION + GRID_TEXT)
    columns = ["RMSE", "largest std", "bound", "gap of Delta", "s", "MB"]
    print(heading(["n", "d", "queries", "mechanism", *columns]))
    for n, d in GRID:
        queries = d * n + d * (d - 1) // 2 * n * n
        for system in ("querysmasher", "fitplug_grid"):
            print(
                line([str(n), str(d), str(queries), *format_figures(run(system, n, d))]), flush=True
            )
    print(SMALL_TEXT)
    columns = ["mechanism", "largest variance", "bound", "gap of Delta", "s", "MB"]
    print(heading(["n", "d", "k", *columns]))
    for sizes in SMALL:
        for system in ("residualplanner", "fitplug_small"):
            print(line([*map(str, sizes), *format_figures(run(system, *sizes))]), flush=True)
    print(LENGTH_TEXT)
    print(heading(["n", *columns]))
    for n in LENGTHS:
        banded = ["banded"] if n == LENGTHS[0] else []
        for system in (*banded, "buffered", "toeplitz", "fitplug_length"):
            print(line([str(n), *format_figures(run(system, n))]), flush=True)


def run_fitplug_grid(n: int, d: int) -> Figures:
    plan, seconds = design_prefixes(n, d, 2, with_total=False)
    variances = plan.variances
    total = sum(float(variances[name].sum()) for name in variances)
    mean = total / sum(variances[name].size for name in variances)
    return {
        "mechanism": "fitplug",
        "RMSE": plan.privacy_cost * mean**0.5,
        "largest std": plan.privacy_cost,
        "bound": plan.lower_bound,
        "gap of Delta": f"{compute_delta_gap(plan):.2%}",
        "s": seconds,
    }


def run_fitplug_small(n: int, d: int, k: int) -> Figures:
    return tell_plan(*design_prefixes(n, d, k, with_total=True))


def run_fitplug_length(n: int) -> Figures:
    return tell_plan(*design_prefixes(n, 1, 1, with_total=False))


def design_prefixes(n: int, d: int, k: int, with_total: bool) -> tuple[Any, float]:
    import fitplug as fp

    names = [f"a{i}" for i in range(d)]
    chosen = [c for j in range(1, k + 1) for c in itertools.combinations(names, j)]
    groups = [fp.queries(dict.fromkeys(c, "prefix"), variance=1.0) for c in chosen]
    if with_total:
        groups.append(fp.total(variance=1.0))
    domain = fp.Domain({name: fp.Integers(0, n - 1) for name in names})
    start = time.process_time()
    plan = fp.design(fp.Workload(domain, groups))
    return plan, time.process_time() - start


def tell_plan(plan: Any, seconds: float) -> Figures:
    return {
        "mechanism": "fitplug",
        "largest variance": plan.privacy_cost**2,
        "bound": plan.lower_bound**2,
        "gap of Delta": f"{compute_delta_gap(plan):.2%}",
        "s": seconds,
    }


def run_querysmasher(n: int, d: int) -> Figures:
    import numpy as np
    from query import KronQuery, MatrixQuery
    from smasher import Smasher, powerset

    start = time.process_time()
    domains, prefixes = [n] * d, np.tril(np.ones((n, n)))
    smasher = Smasher(domains, privacy_cost=1.0, default_solver="convex", verbose=False)
    pairs = list(itertools.combinations(range(d), 2))
    for i in range(d):
        smasher.add_queries_to_workload([MatrixQuery(domains, (i,), prefixes)])
    for pair in pairs:
        smasher.add_queries_to_workload([KronQuery(domains, pair, [prefixes, prefixes])])
    smasher.optimize()
    mean = smasher.workload_variance() / (d * n + len(pairs) * n * n)
    seconds = time.process_time() - start
    worst = 0.0
    for row in np.kron(prefixes, prefixes):  # all pairs have the same variances
        query = MatrixQuery(domains, pairs[0], row[None])
        own = 0.0
        for part in map(tuple, map(sorted, powerset(pairs[0]))):
            if part in smasher.solvers:
                piece = query.decompose(part, for_convex=True)
                own += float(smasher.solvers[part].query_variance(piece))
        worst = max(worst, own)
    return {
        "mechanism": "QuerySmasher",
        "RMSE": mean**0.5,
        "largest std": worst**0.5,
        "bound": None,
        "gap of Delta": None,
        "s": seconds,
    }


def run_residualplanner(n: int, d: int, k: int) -> Figures:
    import cvxpy

    cvxpy.installed_solvers()
    # The code imports Gurobi, which needs a licence, and does not use it for this.
    sys.modules["gurobipy"] = types.ModuleType("gurobipy")
    sys.modules["gurobipy"].GRB = None
    sys.argv = sys.argv[:1]  # the code reads the arguments of the process
    from resplan.ResPlan import ResPlanMax

    del sys.modules["gurobipy"]
    start = time.process_time()
    planner = ResPlanMax([n] * d, ["P"] * d)
    for size in range(k + 1):
        for chosen in itertools.combinations(range(d), size):
            planner.input_mech(chosen)
    return tell_peer("ResidualPlanner+", float(planner.get_noise_level()), start)


def run_toeplitz(n: int) -> Figures:
    import numpy as np
    from jax_privacy.matrix_factorization import toeplitz

    start = use_64_bits()
    squares = np.asarray(toeplitz.optimal_max_error_strategy_coefs(n), np.float64) ** 2
    return tell_peer("Toeplitz square root", float(squares.sum()) ** 2, start)


def run_banded(n: int) -> Figures:
    import jax.numpy as jnp
    from jax_privacy.matrix_factorization import toeplitz

    start = use_64_bits()
    found = toeplitz.optimize_banded_toeplitz(n, 512, reduction_fn=jnp.max)
    return tell_peer("BandMF, 512 bands", float(toeplitz.loss(found, n, jnp.max)), start)


def run_buffered(n: int) -> Figures:
    from jax_privacy.matrix_factorization import buffered_toeplitz

    start = use_64_bits()
    found = buffered_toeplitz.optimize(n=n, error="max", min_buffers=7, max_buffers=7)
    return tell_peer("BLT, 7 buffers", float(buffered_toeplitz.max_loss(found, n)), start)


def use_64_bits() -> float:
    """Let JAX compute with 64 bits; return the processor time of now."""
    import jax

    jax.config.update("jax_enable_x64", True)
    return time.process_time()


def tell_peer(name: str, variance: float, start: float) -> Figures:
    seconds = time.process_time() - start
    told = {"mechanism": name, "largest variance": variance, "bound": None, "gap of Delta": None}
    return {**told, "s": seconds}


CASES: dict[str, Callable[..., Figures]] = {
    "fitplug_grid": run_fitplug_grid,
    "fitplug_small": run_fitplug_small,
    "fitplug_length": run_fitplug_length,
    "querysmasher": run_querysmasher,
    "residualplanner": run_residualplanner,
    "toeplitz": run_toeplitz,
    "banded": run_banded,
    "buffered": run_buffered,
}


if __name__ == "__main__":
    if sys.argv[1] == "case":
        answer_case(CASES, *sys.argv[2:])
    else:
        main(*sys.argv[1:])
