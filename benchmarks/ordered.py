"""Compare plans for several ordered attributes, and for hierarchies, with their certified bounds.

python benchmarks/ordered.py > benchmarks/ordered.md
"""

from __future__ import annotations

import itertools
import time

import numpy as np
from markdown_table import heading, line

import fitplug as fp

CASES = [(2, 2), (3, 3), (3, 2), (4, 3), (4, 2), (10, 2), (10, 3)]

PREFIXES = """# Several ordered attributes

The workload has all prefix tables of at most k of d attributes, and the total. Each attribute has
ten values, and all targets are 1. alpha is Delta^2 of the plan, with the loss by rounding to
integers included. No mechanism with Gaussian noise has an alpha below the bound. Up to 4,096 cells
the optimum is found through the dense product. For more cells the plan is the best of the residual
family. For comparison, the published residual method costs 11.651 for d = k = 2, 39.768 for
d = k = 3 and 19.837 for d = 3, k = 2; it has no bound.
"""

PLACES = """
# Hierarchies

The hierarchies have synthetic states, counties and tracts, with unequal numbers of children. The
workload has a table for each level, and all nodes of a level have the same target. With one level
below the top level, the plan is optimal. With more levels it is the best of those plans that spread
the amount of every node evenly over its children; see `docs/theory/residual-family.md`. "With ages"
adds prefixes of age by county and sex, and tracts by sex.
"""


def prefixes(d: int, k: int) -> fp.Workload:
    names = [f"a{i}" for i in range(d)]
    domain = fp.Domain({name: fp.Integers(0, 9) for name in names})
    chosen = [c for j in range(1, k + 1) for c in itertools.combinations(names, j)]
    groups = [fp.queries(dict.fromkeys(c, "prefix"), variance=1.0) for c in chosen]
    return fp.Workload(domain, [*groups, fp.total(variance=1.0)])


def places(states: int, counties: int, tracts: int, ages: bool) -> fp.Workload:
    """Build a tree whose nodes have at least 5, and fewer than the given number of, children."""
    rng = np.random.default_rng(20261121)
    leaves = [
        (f"s{s}", f"s{s}c{c}", f"s{s}c{c}t{t}")
        for s in range(states)
        for c in range(rng.integers(5, counties))
        for t in range(rng.integers(5, tracts))
    ]
    place = fp.Hierarchy(["state", "county", "tract"], leaves)
    groups = [
        fp.queries({"place": "tract"}, variance=4.0),
        fp.queries({"place": "county"}, variance=2.0, name="counties"),
        fp.queries({"place": "state"}, variance=1.0, name="states"),
        fp.total(variance=1.0),
    ]
    if not ages:
        return fp.Workload(fp.Domain({"place": place}), groups)
    domain = fp.Domain({"place": place, "sex": ["1", "2"], "age": fp.Integers(0, 99)})
    by_age = {"place": "county", "sex": "identity", "age": "prefix"}
    groups += [
        fp.queries(by_age, variance=3.0),
        fp.queries({"age": "prefix"}, variance=1.0),
        fp.queries({"place": "tract", "sex": "identity"}, variance=5.0, name="tracts by sex"),
    ]
    return fp.Workload(domain, groups)


def report(name: list[str], workload: fp.Workload) -> None:
    start = time.perf_counter()
    plan = fp.design(workload)
    seconds = time.perf_counter() - start
    way = "family" if plan.structure.ordered else "product"
    alpha, bound = plan.privacy_cost**2, plan.lower_bound**2
    cells = [*name, str(workload.query_count), way, f"{alpha:.6g}", f"{bound:.6g}"]
    print(line([*cells, f"{plan.gap:.2%}", f"{seconds:.2g}"]), flush=True)


def main() -> None:
    columns = ["queries", "through", "alpha", "bound", "gap in Delta", "design s"]
    print(PREFIXES)
    print(heading(["d", "k", *columns]))
    for d, k in CASES:
        report([str(d), str(k)], prefixes(d, k))
    print(PLACES)
    print(heading(["leaves", *columns]))
    for shape in [(20, 30, 50, False), (51, 100, 80, False), (20, 30, 50, True)]:
        workload = places(*shape)
        size = workload.domain["place"].size
        report([f"{size}, with ages" if shape[3] else str(size)], workload)


if __name__ == "__main__":
    main()
