"""Measure the seconds from query groups to a certified plan, for marginals of very large domains.

    python benchmarks/marginals.py [--quick] > benchmarks/marginals.md

The workloads are all marginals of at most three of d attributes of n values, and the total. BLAS
uses one thread.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time

import numpy as np
from markdown_table import heading, line

import fitplug as fp

HEAD = """The workload has all marginals of at most three of d attributes of n values, and the
total. It is designed to a gap of 1e-4. "Set-up" is the time to build the Workload from the names.
"Design" is the time for everything else: the structure, the optimum, the integer strategy and the
certificate. alpha is Delta^2. For comparison, ResidualPlanner+ (arXiv:2305.08175) minimises the
same largest variance without a certificate, and its paper reports a couple of minutes at 100
attributes.
"""

QUICK = [(10, 10), (10, 20), (1024, 5)]
FULL = [*QUICK, (10, 50), (10, 100), (10, 200)]


def groups(d: int, rng: np.random.Generator | None) -> list[fp.workload.QueryGroup]:
    """Build the marginals with targets 1, or with targets from U(1, 10) for each table."""
    names = [f"a{i}" for i in range(d)]
    chosen = [c for k in range(1, 4) for c in itertools.combinations(names, k)]
    targets = np.ones(len(chosen)) if rng is None else rng.uniform(1, 10, len(chosen))
    asked = [fp.marginal(*c, variance=t) for c, t in zip(chosen, targets.tolist(), strict=True)]
    return [*asked, fp.total(variance=1.0)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="up to 20 attributes, a few seconds")
    cases = QUICK if parser.parse_args().quick else FULL
    columns = ["n", "d", "targets", "tables", "cells", "set-up s", "design s", "iterations"]
    columns += ["alpha", "gap"]
    print("# Marginals of domains too large to enumerate\n")
    print(HEAD)
    print(heading(columns))
    for n, d in cases:
        domain = fp.Domain({f"a{i}": fp.Integers(0, n - 1) for i in range(d)})
        for name, rng in (("1", None), ("U(1, 10)", np.random.default_rng(20261120))):
            print(f"{n}^{d} {name}", file=sys.stderr)
            start = time.perf_counter()
            workload = fp.Workload(domain, groups(d, rng))
            ready = time.perf_counter()
            plan = fp.design(workload)
            done = time.perf_counter()
            cells = [str(n), str(d), name, str(len(workload.groups)), f"{n}^{d}"]
            cells += [f"{ready - start:.3g}", f"{done - ready:.3g}", str(plan.iterations)]
            print(line([*cells, f"{plan.privacy_cost**2:.6g}", f"{plan.gap:.0e}"]), flush=True)


if __name__ == "__main__":
    main()
