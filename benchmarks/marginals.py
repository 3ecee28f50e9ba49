"""Measure the seconds from query groups to a certified plan, for marginals of very large domains.

    python benchmarks/marginals.py [--quick] > benchmarks/marginals.md

The workloads are all marginals of at most three of d attributes of n values, and the total. BLAS
uses one thread.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from markdown_table import compute_delta_gap, heading, line
from numpy.typing import NDArray

import fitplug as fp

HEAD = """The workload has all marginals of at most three of d attributes of n values, and the
total. It is designed to a gap of Delta of 1e-4. Targets are 1 for every table, or random for each
table: uniform on (1, 10), or 10^U(-6, 6), spread over twelve orders of magnitude. "Set-up" is the
time to build the Workload with `fp.marginals`, and "loop" the time with an `fp.marginal` for each
table. "Design" is the time for everything else: the structure, the optimum, the integer strategy
and the certificate. alpha is Delta^2. For comparison, ResidualPlanner+ (arXiv:2305.08175) minimises
the same largest variance without a certificate, and its paper reports a couple of minutes at 100
attributes.
"""

QUICK = [(10, 10), (10, 20), (1024, 5)]
FULL = [*QUICK, (10, 50), (10, 100), (10, 200)]


Targets: TypeAlias = float | NDArray[np.float64]

TARGETS: dict[str, Callable[[np.random.Generator, int], Targets]] = {
    "1": lambda rng, tables: 1.0,
    "U(1, 10)": lambda rng, tables: rng.uniform(1, 10, tables),
    "10^U(-6, 6)": lambda rng, tables: 10 ** rng.uniform(-6, 6, tables),
}


def ask_at_once(domain: fp.Domain, targets: Targets) -> fp.Workload:
    """Ask for the marginals with `fp.marginals`."""
    tables = fp.marginals(domain, ways=3, variance=targets)
    return fp.Workload(domain, [tables, fp.total(variance=1.0)])


def ask_one_by_one(domain: fp.Domain, targets: Targets) -> fp.Workload:
    """Ask for the same with an `fp.marginal` for each table."""
    chosen = [c for k in range(1, 4) for c in itertools.combinations(domain.names, k)]
    each = np.broadcast_to(targets, (len(chosen),)).tolist()
    asked = [fp.marginal(*c, variance=t) for c, t in zip(chosen, each, strict=True)]
    return fp.Workload(domain, [*asked, fp.total(variance=1.0)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="up to 20 attributes, a few seconds")
    cases = QUICK if parser.parse_args().quick else FULL
    columns = ["n", "d", "targets", "tables", "cells", "set-up s", "loop s", "design s"]
    columns += ["iterations", "alpha", "gap of Delta"]
    print("# Marginals of domains too large to enumerate\n")
    print(HEAD)
    print(heading(columns))
    for n, d in cases:
        domain = fp.Domain({f"a{i}": fp.Integers(0, n - 1) for i in range(d)})
        tables = sum(math.comb(d, k) for k in range(1, 4))
        for name, draw in TARGETS.items():
            print(f"{n}^{d} {name}", file=sys.stderr)
            targets = draw(np.random.default_rng(20261120), tables)
            start = time.perf_counter()
            ask_one_by_one(domain, targets)
            begin = time.perf_counter()
            workload = ask_at_once(domain, targets)
            ready = time.perf_counter()
            plan = fp.design(workload)
            done = time.perf_counter()
            cells = [str(n), str(d), name, str(len(workload.groups)), f"{n}^{d}"]
            seconds = (ready - begin, begin - start, done - ready)
            cells += [*(f"{one:.3g}" for one in seconds), str(plan.proof.iterations)]
            cells += [f"{plan.privacy_cost**2:.6g}", f"{compute_delta_gap(plan):.0e}"]
            print(line(cells), flush=True)


if __name__ == "__main__":
    main()
