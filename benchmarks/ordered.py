"""Prefixes of several ordered attributes: the residual family beside its certified lower bound.

    python benchmarks/ordered.py > benchmarks/ordered.md

Attributes of ten values, targets 1, all prefix tables of at most k of d attributes and the total.
"""

from __future__ import annotations

import itertools
import time

from markdown_table import heading, line

import fitplug as fp
from fitplug.solvers import ascent, residual
from fitplug.symmetry import structure

CASES = [(2, 2), (3, 3), (3, 2), (4, 3), (4, 2), (10, 2), (10, 3)]

HEAD = """# Prefixes of several ordered attributes

Attributes of ten values, targets 1: all prefix tables of at most k of d attributes, and the total.
alpha = Delta^2 of the best covariance of the residual family; the bound is below that of every
mechanism with Gaussian noise. The optimum of d = 3, k = 2 is 11.7069 (through the dense product).
`fitplug.design` does not use the family yet: it takes such workloads through the dense product.
"""


def main() -> None:
    print(HEAD)
    columns = ["d", "k", "queries", "alpha", "bound", "gap in Delta", "design s", "bound s"]
    print(heading(columns))
    for d, k in CASES:
        names = [f"a{i}" for i in range(d)]
        domain = fp.Domain({name: fp.Integers(0, 9) for name in names})
        chosen = [c for j in range(1, k + 1) for c in itertools.combinations(names, j)]
        groups = [fp.queries(dict.fromkeys(c, "prefix"), variance=1.0) for c in chosen]
        workload = fp.Workload(domain, [*groups, fp.total(variance=1.0)])
        start = time.perf_counter()
        found = residual.solve(structure(workload, family=True))
        solved = time.perf_counter()
        bound = ascent.best(found.layout, found.weights)[1]
        done = time.perf_counter()
        cells = [str(d), str(k), str(workload.query_count), f"{found.upper**2:.6g}"]
        cells += [f"{bound**2:.6g}", f"{found.upper / bound - 1:.2%}"]
        print(line([*cells, f"{solved - start:.2g}", f"{done - solved:.2g}"]), flush=True)


if __name__ == "__main__":
    main()
