"""Monthly tables of a large hierarchy, for persons with at most one record a month.

    python benchmarks/person_trees.py [--counties N]

It prints what a year of tables costs against k^2 times the rho of one record, the gap of Delta,
how far the cost may be above the truth, and the seconds that the design and its verification take.
"""

from __future__ import annotations

import argparse
import time

from markdown_table import compute_delta_gap
from tree_workloads import build_months

import fitplug as fp

CASES = ((12, 1.0), (12, 4.0), (12, 12.0), (6, 4.0), (3, 4.0))
"""The most records of a person, and the variance of a year's sum over that of a month."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counties", type=int, default=62)
    given = parser.parse_args()
    print("| k | year | rho | of k^2 | gap of Delta | overstatement | design | verification |")
    print("|---|---|---|---|---|---|---|---|")
    for k, year in CASES:
        workload = build_months(given.counties, year)
        once = fp.design(workload)
        start = time.perf_counter()
        plan = fp.design(workload, unit=fp.AddRemove(records=k, once_per="month"))
        designed = time.perf_counter()
        plan.verify()
        verified = time.perf_counter()
        print(
            f"| {k} | {year:g} | {plan.rho:.2f} | {plan.rho / (k * k * once.rho):.1%} | "
            f"{compute_delta_gap(plan):.2%} | {plan.overstatement:.1e} | "
            f"{designed - start:.0f} s | {verified - designed:.1f} s |",
            flush=True,
        )


if __name__ == "__main__":
    main()
