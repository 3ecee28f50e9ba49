"""Compare plans for several ordered attributes, and for trees, with their certified bounds.

python benchmarks/ordered.py > benchmarks/ordered.md
"""

from __future__ import annotations

import itertools
import multiprocessing
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from markdown_table import compute_delta_gap, heading, line
from tree_workloads import CASES as TREES, count_free

import fitplug as fp
from fitplug.families.tree.shape.blocks import TreeStructure

CASES = [(2, 2), (3, 3), (3, 2), (4, 3), (4, 2), (10, 2), (10, 3)]

PREFIXES = """# Several ordered attributes

The workload has all prefix tables of at most k of d attributes, and the total. Each attribute has
ten values, and all targets are 1. alpha is Delta^2 of the plan, with the loss by rounding to
integers included. No mechanism with Gaussian noise has an alpha below the bound. Where few queries
are asked of a domain, the optimum over all its cells is found. Else the plan is the best of the
product family. For comparison, ResidualPlanner+ costs 11.651 for d = k = 2, 39.768 for d = k = 3
and 19.837 for d = 3, k = 2; it has no bound. `benchmarks/peers.md` compares more of them.
All seconds in this file are of the processor, on one thread, and include the proof.
"""

PLACES = """
# Trees

The trees have synthetic states, counties, tracts, groups and blocks, with unequal numbers of
children; `benchmarks/tree_workloads.py` makes them. "Tracts" has a table for each level, and all
nodes of a level have the same target. "Tracts x sex x 100 ages" adds prefixes of age by county and
sex, and tracts by sex, once for 60 counties and once for 308. "Blocks" and "a nation's blocks" have
tables like those for redistricting at every level: the total, race, voting age, and race by voting
age. "Counties x sex x 86 ages" has the pyramids of the nation, the states and the counties. The
draws are the noisy answers that the plan measures, for each dimension of what is asked; any
strategy measures at least one.
"""

REPLACED = """
# One record replaced

The tables are about 27,253 people, as in `examples/acs`: prefixes of 96 ages by sex at a std of 12,
race by Hispanic origin by 52 areas at 10, four age groups by area at 10, and the total at 5. All of
the domain has 179,712 cells. Pairs of cells are told apart by their ages, and by the symmetric
attributes that differ. rho is that of the plan.
"""
UNITS: list[fp.AddRemove | fp.ReplaceOne] = [
    fp.AddRemove(),
    fp.ReplaceOne(),
    fp.ReplaceOne(within=("PUMA",)),
]


def build_people() -> fp.Workload:
    sizes = {"SEX": 2, "RAC": 9, "HISP": 2, "PUMA": 52}
    symmetric = {name: [str(i) for i in range(n)] for name, n in sizes.items()}
    ages = fp.ranges([(0, 17), (18, 39), (40, 64), (65, 95)])
    return fp.Workload(
        fp.Domain({"AGE": fp.Integers(0, 95), **symmetric}),
        [
            fp.queries({"SEX": "identity", "AGE": "prefix"}, std=12.0),
            fp.marginal("RAC", "HISP", "PUMA", std=10.0),
            fp.queries({"PUMA": "identity", "AGE": ages}, std=10.0),
            fp.total(std=5.0),
        ],
    )


def report_replaced(unit: fp.AddRemove | fp.ReplaceOne) -> str:
    plan, seconds = design(build_people(), unit)
    _, _, gap, taken = tell(plan, seconds)
    return line([str(unit), f"{plan.rho:.4f}", gap, taken])


def build_prefixes(d: int, k: int) -> fp.Workload:
    names = [f"a{i}" for i in range(d)]
    domain = fp.Domain({name: fp.Integers(0, 9) for name in names})
    chosen = [c for j in range(1, k + 1) for c in itertools.combinations(names, j)]
    groups = [fp.queries(dict.fromkeys(c, "prefix"), variance=1.0) for c in chosen]
    return fp.Workload(domain, [*groups, fp.total(variance=1.0)])


def report_prefixes(d: int, k: int) -> str:
    workload = build_prefixes(d, k)
    plan, seconds = design(workload)
    way = "all cells" if plan.strategy.structure.holds_optimum else "product family"
    return line([str(d), str(k), str(workload.query_count), way, *tell(plan, seconds)])


def report_tree(name: str) -> str:
    workload = TREES[name]()
    plan, seconds = design(workload)
    place = next(a for _, a in workload.domain.attributes if isinstance(a, fp.Hierarchy))
    draws = "-"
    if isinstance(plan.strategy.structure, TreeStructure):
        draws = f"{plan.strategy.size / count_free(plan.strategy.structure):.3f}"
    gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    sizes = [f"{place.size:,}", f"{workload.query_count:,}"]
    return line([name, *sizes, *tell(plan, seconds), draws, f"{gigabytes:.2f}"])


def design(
    workload: fp.Workload, unit: fp.AddRemove | fp.ReplaceOne = UNITS[0]
) -> tuple[fp.Plan, float]:
    start = time.process_time()
    plan = fp.design(workload, unit=unit)
    return plan, time.process_time() - start


def tell(plan: fp.Plan, seconds: float) -> Iterator[str]:
    yield f"{plan.privacy_cost**2:.6g}"
    yield f"{plan.lower_bound**2:.6g}"
    yield f"{compute_delta_gap(plan):.3%}"
    yield f"{seconds:.2g}" if seconds < 10 else f"{seconds:.0f}"


def main() -> None:
    # Each case has a process of its own, so that the memory is that of the case.
    fresh = multiprocessing.get_context("spawn")
    columns = ["alpha", "bound", "gap of Delta", "design s"]
    with ProcessPoolExecutor(1, mp_context=fresh, max_tasks_per_child=1) as processes:
        print(PREFIXES)
        print(heading(["d", "k", "queries", "through", *columns]))
        for d, k in CASES:
            print(processes.submit(report_prefixes, d, k).result(), flush=True)
        print(PLACES)
        print(heading(["workload", "leaves", "queries", *columns, "draws", "GB"]))
        for name in TREES:
            print(processes.submit(report_tree, name).result(), flush=True)
        print(REPLACED)
        print(heading(["unit", "rho", "gap of Delta", "design s"]))
        for unit in UNITS:
            print(processes.submit(report_replaced, unit).result(), flush=True)


if __name__ == "__main__":
    main()
