"""Ordinary workloads in every family and unit of privacy: what they cost, and how near the least.

python benchmarks/families.py [NAME ...] > benchmarks/families.md

Each workload is designed in a process of its own, on two threads.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
from markdown_table import compute_delta_gap, heading, line

import fitplug as fp

THREADS = 2

ABOUT = """# Families and units of privacy

Ordinary workloads, each in the unit of privacy that is named. The gap is of Delta: no
mechanism with Gaussian noise that meets the targets costs less than Delta / (1 + gap). The
cost of a person is an upper bound where it cannot be found exactly, and "above" says how far it may
be above the truth. Seconds and memory are those of the design on {threads} threads, verification
included.
"""


def make_tree(levels: list[str], sizes: list[tuple[int, int]], seed: int) -> fp.Hierarchy:
    """Make a hierarchy whose nodes have numbers of children drawn from ranges, by depth."""
    rng = np.random.default_rng(seed)
    paths: list[tuple[str, ...]] = [()]
    for least, most in sizes:
        paths = [
            (*path, ".".join([*path[-1:], f"{child:02}"]))
            for path in paths
            for child in range(int(rng.integers(least, most + 1)))
        ]
    return fp.Hierarchy(levels, paths)


def make_tables() -> fp.Workload:
    """Tables of the American Community Survey by area, as `examples/acs` makes them."""
    domain = fp.Domain(
        {
            "SEX": ["1", "2"],
            "AGE": fp.Integers(0, 95),
            "RACE": [str(i) for i in range(9)],
            "HISP": ["0", "1"],
            "PUMA": [str(i) for i in range(52)],
        }
    )
    ages = fp.ranges([(0, 17), (18, 44), (45, 64), (65, 95)])
    return fp.Workload(
        domain,
        [
            fp.queries({"SEX": "identity", "AGE": "prefix"}, std=12.0),
            fp.marginal("RACE", "HISP", "PUMA", std=10.0),
            fp.queries({"PUMA": "identity", "AGE": ages}, std=10.0),
            fp.total(std=5.0),
        ],
    )


COUNTIES = """
    67 30 15 75 58 64 8 3 1 67 159 5 44 102 92 99 105 120 64 16 24 14 83 87 82 115 56 93
    17 10 21 33 62 100 53 88 77 36 67 5 46 66 95 254 29 14 133 39 55 72 23
"""
"""The number of counties of each state of the United States, and of the District of Columbia."""


def make_flows() -> fp.Workload:
    """Homes by workplaces."""
    sizes = [(10, 10), (20, 40)]
    return ask_flows(*(make_tree(["state", "county"], sizes, seed) for seed in range(2)))


def make_county_flows() -> fp.Workload:
    """Homes by workplaces in the counties of the United States."""
    paths = [(f"{i}", f"{i}.{k}") for i, n in enumerate(COUNTIES.split()) for k in range(int(n))]
    places = fp.Hierarchy(["state", "county"], paths)
    return ask_flows(places, places)


def ask_flows(home: fp.Hierarchy, work: fp.Hierarchy) -> fp.Workload:
    """Ask for homes by workplaces."""
    return fp.Workload(
        fp.Domain({"home": home, "work": work}),
        [
            fp.queries({"home": "county", "work": "county"}, std=20.0),
            fp.queries({"home": "state", "work": "state"}, std=8.0),
            fp.queries({"home": "county"}, std=6.0),
            fp.queries({"work": "county"}, std=6.0),
            fp.total(std=3.0),
        ],
    )


def grow_sizes(rng: np.random.Generator, parents: int, children: int) -> list[int]:
    """Grow the numbers of children of some nodes, which differ widely."""
    weights = rng.pareto(1.2, parents) + 0.3
    drawn = rng.choice(parents, children - parents, p=weights / weights.sum())
    return (1 + np.bincount(drawn, minlength=parents)).tolist()


def make_diagnoses_by_county() -> fp.Workload:
    """Diagnoses in groups and chapters by counties in states, all of unequal size."""
    rng = np.random.default_rng(0)
    chapters, groups, states = (grow_sizes(rng, *n) for n in ((21, 269), (269, 1602), (16, 388)))
    owners = np.repeat(np.arange(21), chapters).tolist()
    codes = [
        (f"{owners[g]}", f"{owners[g]}.{g}", f"{owners[g]}.{g}.{i}")
        for g, size in enumerate(groups)
        for i in range(size)
    ]
    counties = [(f"{s}", f"{s}.{i}") for s, size in enumerate(states) for i in range(size)]
    domain = fp.Domain(
        {
            "diagnosis": fp.Hierarchy(["chapter", "group", "code"], codes),
            "place": fp.Hierarchy(["state", "county"], counties),
        }
    )
    return fp.Workload(
        domain,
        [
            fp.queries({"diagnosis": "code", "place": "state"}, std=20.0),
            fp.queries({"diagnosis": "group", "place": "county"}, std=20.0),
            fp.queries({"diagnosis": "chapter", "place": "county"}, std=10.0),
            fp.queries({"diagnosis": "chapter", "place": "state"}, std=8.0),
            fp.queries({"diagnosis": "code"}, std=8.0),
            fp.queries({"place": "county"}, std=6.0),
            fp.total(std=3.0),
        ],
    )


def make_industries() -> fp.Workload:
    """Counties by industries."""
    places = make_tree(["state", "county"], [(51, 51), (40, 80)], 0)
    industries = make_tree(["sector", "group", "industry"], [(20, 20), (3, 6), (3, 6)], 1)

    def ask(place: str, industry: str, std: float) -> fp.UnboundQueryGroup:
        return fp.queries({"place": place, "work": industry}, std=std)

    return fp.Workload(
        fp.Domain({"place": places, "work": industries}),
        [
            ask("state", "sector", 5.0),
            ask("county", "sector", 10.0),
            ask("state", "industry", 10.0),
            ask("county", "industry", 20.0),
            fp.queries({"place": "state"}, std=3.0),
            fp.queries({"work": "sector"}, std=3.0),
            fp.total(std=2.0),
        ],
    )


def make_incomes() -> fp.Workload:
    """Ages by states, incomes by states, and incomes by groups of ages."""
    domain = fp.Domain(
        {
            "age": fp.Integers(0, 99),
            "income": fp.Integers(0, 199),
            "sex": ["1", "2"],
            "state": [str(i) for i in range(51)],
        }
    )
    groups = fp.ranges([(0, 17), (18, 64), (65, 99)])
    return fp.Workload(
        domain,
        [
            fp.queries({"age": "prefix", "sex": "identity", "state": "identity"}, std=20.0),
            fp.queries({"income": "prefix", "state": "identity"}, std=20.0),
            fp.queries({"age": groups, "income": "prefix"}, std=20.0),
            fp.total(std=5.0),
        ],
    )


def make_prefixes_by_state() -> fp.Workload:
    """Prefixes of a long attribute by state and in the nation, with tighter totals of states."""
    states = [str(i) for i in range(51)]
    return fp.Workload(
        fp.Domain({"state": states, "value": fp.Integers(0, 9999)}),
        [
            fp.queries({"state": "identity", "value": "prefix"}, variance=400.0),
            fp.queries({"value": "prefix"}, variance=400.0),
            fp.queries({"state": "identity"}, variance=100.0),
        ],
    )


def make_tight_prefixes() -> fp.Workload:
    """Prefixes of a long attribute, of which every tenth is ten times tighter."""
    variances = np.where(np.arange(10_000) % 10 == 9, 100.0, 1000.0)
    return fp.Workload(
        fp.Domain({"value": fp.Integers(0, 9999)}),
        [fp.queries({"value": "prefix"}, variance=variances), fp.total(variance=20.0)],
    )


def make_diagnoses() -> fp.Workload:
    """A tree of diagnoses by age and sex."""
    tree = make_tree(["chapter", "block", "code"], [(20, 20), (10, 15), (5, 10)], 1)
    domain = fp.Domain({"diagnosis": tree, "age": fp.Integers(0, 11), "sex": ["1", "2"]})
    return fp.Workload(
        domain,
        [
            fp.queries({"diagnosis": "code", "sex": "identity"}, std=20.0),
            fp.queries({"diagnosis": "block", "age": "prefix"}, std=10.0),
            fp.queries({"diagnosis": "chapter", "age": "prefix", "sex": "identity"}, std=10.0),
            fp.queries({"age": "prefix", "sex": "identity"}, std=5.0),
            fp.total(std=5.0),
        ],
    )


def make_panel() -> fp.Workload:
    """A panel of five years, with sums of two measures."""
    domain = fp.Domain(
        {
            "year": fp.Integers(2019, 2023),
            "sex": ["1", "2"],
            "age": fp.Integers(0, 7),
            "region": [f"{i:02}" for i in range(12)],
            "income": fp.Measure(0, 100_000, unit=100),
            "hours": fp.Measure(0, 60, unit=1),
        }
    )
    year: dict[str, str] = {"year": "identity"}
    return fp.Workload(
        domain,
        [
            fp.queries({**year, "sex": "identity", "age": "identity"}, std=40.0),
            fp.queries({**year, "region": "identity"}, std=20.0),
            fp.queries({"region": "identity", "age": "identity"}, std=20.0),
            fp.queries(year, std=10.0),
            fp.queries({**year, "sex": "identity", "income": "sum"}, std=2e6),
            fp.queries({**year, "income": "sum"}, std=1e6),
            fp.queries({**year, "region": "identity", "hours": "sum"}, std=1500.0),
            fp.queries({**year, "hours": "sum"}, std=600.0),
        ],
    )


def make_months() -> fp.Workload:
    """Counties by months."""
    tree = make_tree(["state", "county"], [(50, 50), (20, 80)], 1)
    domain = fp.Domain({"place": tree, "month": fp.Integers(1, 12)})
    groups = [fp.total(std=5.0), fp.queries({"month": "identity"}, std=5.0)]
    for level, std in (("county", 20.0), ("state", 10.0)):
        groups.append(fp.queries({"place": level, "month": "identity"}, std=std))
        groups.append(fp.queries({"place": level}, std=std, name=f"year by {level}"))
    return fp.Workload(domain, groups)


def make_hours() -> fp.Workload:
    """Days, hours and zones."""
    zones = [str(i) for i in range(100)]
    domain = fp.Domain({"day": fp.Integers(0, 364), "hour": fp.Integers(0, 23), "zone": zones})
    return fp.Workload(
        domain,
        [
            fp.queries({"day": "prefix", "zone": "identity"}, std=20.0),
            fp.queries({"hour": "all_ranges", "zone": "identity"}, std=20.0),
            fp.queries({"day": "identity", "hour": "identity"}, std=20.0),
            fp.total(std=5.0),
        ],
    )


CASES: dict[str, tuple[Callable[[], fp.Workload], fp.AddRemove | fp.ReplaceOne]] = {
    "survey tables by area": (make_tables, fp.ReplaceOne()),
    "the same, areas kept": (make_tables, fp.ReplaceOne(within=("PUMA",))),
    "homes by workplaces": (make_flows, fp.AddRemove()),
    "homes, workplaces, replaced": (make_flows, fp.ReplaceOne()),
    "U.S. counties": (make_county_flows, fp.AddRemove()),
    "U.S. counties, replaced": (make_county_flows, fp.ReplaceOne()),
    "diagnoses by counties": (make_diagnoses_by_county, fp.AddRemove()),
    "diagnoses by counties, replaced": (make_diagnoses_by_county, fp.ReplaceOne()),
    "counties by industries": (make_industries, fp.AddRemove()),
    "ages, incomes, states": (make_incomes, fp.AddRemove()),
    "the same, replaced": (make_incomes, fp.ReplaceOne()),
    "prefixes by state": (make_prefixes_by_state, fp.AddRemove()),
    "tight prefixes": (make_tight_prefixes, fp.AddRemove()),
    "diagnoses": (make_diagnoses, fp.ReplaceOne()),
    "panel of five years": (make_panel, fp.AddRemove(records=5, once_per="year")),
    "counties by months": (make_months, fp.AddRemove(records=12, once_per="month")),
    "days, hours, zones": (make_hours, fp.AddRemove()),
}


def measure(name: str) -> list[str]:
    """Design and verify a workload, and write its row of the table."""
    make, unit = CASES[name]
    workload = make()
    start = time.perf_counter()
    plan = fp.design(workload, unit=unit)
    plan.verify()
    seconds = time.perf_counter() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    above = f"{plan.overstatement:.2%}" if plan.overstatement else "0"
    numbers = [f"{plan.rho:.5f}", f"{compute_delta_gap(plan):.3%}", above]
    numbers += [f"{seconds:.1f}", f"{memory:,.0f}"]
    return [name, str(unit), *numbers]


def main() -> None:
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(THREADS)
    print(ABOUT.format(threads=THREADS))
    print(heading(["workload", "unit", "rho", "gap of Delta", "above", "seconds", "MB"]))
    for name in sys.argv[1:] or CASES:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            print(line(pool.submit(measure, name).result()), flush=True)


if __name__ == "__main__":
    main()
