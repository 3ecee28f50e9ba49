"""Compare plans with published mechanisms at their own aim, the root mean squared error.

    python benchmarks/published.py --querysmasher FOLDER --hdmm FOLDER --jax-privacy FOLDERS \\
        --python PYTHON > benchmarks/published.md

Each folder is a clone of the authors' code, and a peer without one is left out; several folders are
separated by commas. PYTHON is an interpreter with the packages of the peers: cvxpy, torch, pandas,
autograd, JAX, optax and dp-accounting. Each case runs in a process of its own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from cases import Figures, answer_case, format_figures, run_case
from markdown_table import heading, line
from published_peers import KINDS, PEERS, Queries, build_queries

ERROR_WEIGHT = 1e4
"""The weight of the total squared error relative to the largest variance: with so much, a design
minimises the total."""

INTRODUCTION = """# Published mechanisms at their own aim

Made by `{command}`.

The peers of the first four sections minimise the root mean squared error (RMSE) of all answers.
fitplug minimises the largest standard deviation relative to its target; all targets are equal here.
With `total_error_weight` it minimises the RMSE too, where it computes the optimum. All errors are
at Delta^2 = 1 (rho = 1/2) for one row per person. "Bound" is the certified lower bound of the
column before, for any mechanism with Gaussian noise. Seconds are of the processor, in one thread.

"Run" is the authors' code, in this run: {versions}.
WFF are the Weighted Fourier Factorizations (https://arxiv.org/abs/2512.21499) as the authors of
QuerySmasher implement them. RP+ is ResidualPlanner+ (https://arxiv.org/abs/2305.08175) in
QuerySmasher's clone: by its closed form for the data sets; for pairs with the costs and variances
that QuerySmasher's experiments compute, and the better of its bases for prefixes and for ranges.
"Published" are RP+ and HDMM in the tables of the paper of RP+, as `exp/paper_section8_2.py` of
QuerySmasher quotes them; HDMM's code gives the published figures, RP+'s gives larger ones for
prefixes. The figures that QuerySmasher's paper (https://arxiv.org/abs/2604.00868) has for itself
were not available here.
"""

MARGINALS = """
## Marginals

QuerySmasher's first experiment: all tables of so many attributes of three data sets' domains, by
cells. On these RP+ and WFF are optimal by theorem. fitplug designs for the RMSE.
"""

PREFIXES = """
## Prefixes and cells

QuerySmasher's table 1: the same tables, but the numerical attributes by prefixes. The domains are
too large for the optimum, except CPS with one attribute: fitplug designs for the largest standard
deviation, and the RMSE of that plan stands next to the RMSE of peers that minimise it.
"""

SMALL = """
## All kinds of queries

QuerySmasher's tables 2, 3, 4 and 6 have 5 to 50 attributes. Affine queries (i + j <= c), those of a
distance (|i - j| <= c) and random ones are no products, and fitplug asks such queries only of
domains of up to 4,096 distinguished cells. So the kinds of tables 2 and 3 are compared on two
attributes, all tables of one and of two; and the mixed queries of tables 4 and 6 on three: ranges
of one, affine queries of two, prefixes of three. The best template of HDMM is shown; one of them
optimises over all cells.
"""

MANY = """
## Forty attributes

QuerySmasher's table 3 with n = 10: all tables of one and of two of 40 attributes of 10 cells.
"""

PARTICIPATIONS = """
## Persons in series

Sums since the beginning of n periods, in at most k of which a person takes part, in any of them.
The peers are factorizations of jax-privacy with a minimal separation of 1: banded inverse square
roots (BISR, https://arxiv.org/abs/2505.12128) with the best of several bandwidths, the same with
optimised coefficients (BandInvMF), and buffered linear Toeplitz matrices (BLT). They are made for
training: thousands of steps, vectors of any direction, and persons who take part only every so many
steps, which fitplug has no unit for. fitplug's plan is for counts, and drawn period by period too.
"""

PUBLISHED: dict[str, dict[str, dict[str, tuple[float, ...]]]] = {
    "marginal": {
        "CPS": {"RP+": (1.744, 2.035, 2.048, 2.276)},
        "Adult": {"RP+": (3.047, 6.359, 10.515, 10.665)},
        "Loans": {"RP+": (2.875, 5.634, 8.702, 8.876)},
    },
    "prefix": {
        "CPS": {"RP+": (3.081, 5.823, 7.302, 7.570), "HDMM": (3.347, 6.625, 8.634, 8.623)},
        "Adult": {"RP+": (5.081, 17.274), "HDMM": (5.648, 21.111)},
        "Loans": {"RP+": (4.681, 14.502), "HDMM": (5.127, 17.149)},
    },
}
"""RMSE at tables of 1, of 2, of 3, and of 1 to 3 attributes, from the tables accrmse and
accrmse-prefix of the paper of RP+."""

WAYS = ((1, 1), (2, 2), (3, 3), (1, 3))
MOST_RUN = 150_000  # queries with which the peers still run in seconds
PERIODS = ((12, 4), (52, 2), (52, 4))


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    folders = {"querysmasher": "", "hdmm": "", "jax-privacy": ""}
    for name in folders:
        parser.add_argument(f"--{name}", default="", metavar="FOLDERS")
    parser.add_argument("--python", default=sys.executable)
    given = vars(parser.parse_args(words))
    folders = {name: given[name.replace("-", "_")] for name in folders}
    present = {name: value.split(",") for name, value in folders.items() if value}

    def run(system: str, *case: Any) -> Figures:
        name = "querysmasher" if system == "residualplanner" else system
        is_peer = system in PEERS
        if is_peer and name not in present:
            return {}
        python = given["python"] if is_peer else sys.executable
        script = Path(__file__).resolve()
        return run_case(script, python, list_paths(name, present.get(name, [])), system, *case)

    versions = ", ".join(f"{name} at {find_commit(f[0])}" for name, f in present.items())
    options = " ".join(f"--{name} ..." for name in present)
    command = f"python benchmarks/published.py {options} --python ..."
    print(INTRODUCTION.format(command=command, versions=versions or "none"), end="")
    print_data(run, MARGINALS, "marginal")
    print_data(run, PREFIXES, "prefix")
    print(SMALL)
    print(heading(["kind", "cells", "queries", *COLUMNS]))
    cases: list[tuple[Any, ...]] = [("pairs", kind, 10, 2) for kind in KINDS]
    for case in [*cases, ("mixed", 10, 3)]:
        queries = build_queries(*case)
        has_bases = case[1] in ("prefix", "range", "affine", "distance")
        peers = [WFF, QUERYSMASHER, *([RESIDUALPLANNER] if has_bases else []), HDMM]
        if case[0] == "mixed":
            peers = peers[:2]
        first = [str(case[0] if case[0] == "mixed" else case[1]), "x".join(map(str, queries.sizes))]
        print_case(run, [*first, str(queries.size)], case, [*peers, LEAST_RMSE, LEAST_LARGEST])
    print(MANY)
    print(heading(["kind", "queries", *COLUMNS]))
    for kind in KINDS[:4]:
        case = ("pairs", kind, 10, 40)
        first = [kind, str(build_queries(*case).size)]
        least = LEAST_RMSE if kind == "marginal" else LEAST_LARGEST
        print_case(run, first, case, [WFF, QUERYSMASHER, least])
    print(PARTICIPATIONS)
    print(heading(["n", "k", "mechanism", "largest variance", "bound", "s", "MB"]))
    for sizes in PERIODS:
        for method in ("BISR", "BandInvMF", "BLT"):
            print_row([*map(str, sizes), method], run("jax-privacy", method, *sizes))
        print_row([*map(str, sizes), "fitplug"], run("fitplug-series", *sizes))


COLUMNS = ["mechanism", "RMSE", "bound", "largest std", "bound", "s", "MB"]
NOT_PUBLISHED = dict.fromkeys(["bound", "largest std", "bound of the largest", "s", "MB"])
WFF = ("WFF, run", "querysmasher", "fourier")
QUERYSMASHER = ("QuerySmasher, run", "querysmasher", "convex")
RESIDUALPLANNER = ("RP+, run", "residualplanner")
HDMM = ("HDMM, run", "hdmm")
LEAST_RMSE = ("fitplug, for the RMSE", "fitplug-rmse")
LEAST_LARGEST = ("fitplug, for the largest std", "fitplug-largest")


def print_data(run: Callable[..., Figures], text: str, kind: str) -> None:
    """Print a section about the tables of one, two, three and up to three attributes of data."""
    print(text)
    print(heading(["data", "attributes", "queries", *COLUMNS]))
    for data, published in PUBLISHED[kind].items():
        for i in range(len(next(iter(published.values())))):
            least, most = WAYS[i]
            case = ("data", kind, data, least, most)
            label = str(most) if least == most else f"{least} to {most}"
            first = [data, label, str(build_queries(*case).size)]
            for name, values in published.items():
                print_row([*first, f"{name}, published"], {"RMSE": values[i], **NOT_PUBLISHED})
            plans = [LEAST_RMSE] if kind == "marginal" else [LEAST_LARGEST]
            if kind == "prefix" and data == "CPS" and most == 1:
                plans.insert(0, LEAST_RMSE)
            peers = [WFF, QUERYSMASHER]
            if kind == "prefix":
                peers += [RESIDUALPLANNER, *([HDMM] if data == "CPS" else [])]
            if int(first[2]) > MOST_RUN:
                peers = []
            print_case(run, first, case, [*peers, *plans])


def print_case(
    run: Callable[..., Figures], first: list[str], case: Iterable[Any], systems: list[Any]
) -> None:
    for name, *system in systems:
        print_row([*first, name], run(*system, *case))


def print_row(first: list[str], figures: Figures) -> None:
    """Print a row of a table, unless its peer was left out."""
    if figures:
        print(line([*first, *format_figures(figures)]), flush=True)


def list_paths(name: str, folders: list[str]) -> list[str]:
    """List where a peer's modules are in its clones."""
    inside = {"querysmasher": ("", "exp"), "hdmm": ("src",)}.get(name, ("",))
    return [str(Path(folder) / part) for folder in folders for part in inside]


def find_commit(folder: str) -> str:
    command = ["git", "-C", folder, "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def ask(queries: Queries) -> Any:
    """Build fitplug's workload of these queries, with targets of 1."""
    import fitplug as fp

    names = [f"a{i}" for i in range(len(queries.sizes))]
    domain = fp.Domain(
        {n: fp.Integers(0, size - 1) for n, size in zip(names, queries.sizes, strict=True)}
    )
    if not queries.is_product:
        import numpy as np
        from published_peers import expand_over_all

        matrix = np.concatenate([expand_over_all(queries, block) for block in queries.blocks])
        return fp.Workload.from_matrix(matrix, variance=1.0)
    groups = [
        fp.queries(
            {
                names[a]: name_factor(f)
                for a, f in zip(block.attributes, block.factors, strict=True)
            },
            variance=1.0,
        )
        for block in queries.blocks
    ]
    return fp.Workload(domain, groups)


def name_factor(factor: Any) -> Any:
    """Return how a publisher asks for these queries: by a word, if there is one."""
    import numpy as np

    n = factor.shape[1]
    if factor.shape == (n, n):
        for word, matrix in (("identity", np.eye(n)), ("prefix", np.tril(np.ones((n, n))))):
            if np.array_equal(factor, matrix):
                return word
    return factor


def run_for_rmse(*words: Any) -> Figures:
    figures, plan, size = design(words, ERROR_WEIGHT)
    bound = plan.lower_bound / ((1 + ERROR_WEIGHT) * size) ** 0.5  # the largest is below the total
    return {**figures, "bound": bound}


def run_for_largest(*words: Any) -> Figures:
    figures, plan, _ = design(words, 0.0)
    return {**figures, "bound of the largest": plan.lower_bound}


def design(words: Iterable[Any], weight: float) -> tuple[Figures, Any, int]:
    import fitplug as fp

    queries = build_queries(*words)
    start = time.process_time()
    plan = fp.design(ask(queries), total_error_weight=weight)
    seconds = time.process_time() - start
    scale = 2 * plan.rho
    total = sum(float(v.sum()) for v in plan.variances.values())
    largest = max(float(v.max()) for v in plan.variances.values())
    figures: Figures = {
        "RMSE": (scale * total / queries.size) ** 0.5,
        "bound": None,
        "largest std": (scale * largest) ** 0.5,
        "bound of the largest": None,
        "s": seconds,
    }
    return figures, plan, queries.size


def run_series(n: int, k: int) -> Figures:
    import fitplug as fp

    domain = fp.Domain({"PERIOD": fp.Integers(0, n - 1)})
    workload = fp.Workload(domain, [fp.queries({"PERIOD": "prefix"}, variance=1.0)])
    start = time.process_time()
    unit = fp.AddRemove(records=k, once_per="PERIOD")
    plan = fp.design(workload, unit=unit, periods="PERIOD")
    seconds = time.process_time() - start
    return {"largest variance": 2 * plan.rho, "bound": 2 * plan.rho_lower_bound, "s": seconds}


CASES: dict[str, Callable[..., Figures]] = {
    **PEERS,
    "fitplug-rmse": run_for_rmse,
    "fitplug-largest": run_for_largest,
    "fitplug-series": run_series,
}


if __name__ == "__main__":
    if sys.argv[1:2] == ["case"]:
        answer_case(CASES, *sys.argv[2:])
    else:
        main()
