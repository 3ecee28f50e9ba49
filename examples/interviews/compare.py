"""Print what the tables of a plan cost in other units of privacy. No row is read.

    python compare.py release/plan.npz

The plan says which counts are asked for, and how accurate each must be.
"""

import sys

import fitplug as fp

UNITS = {
    "1 row": fp.AddRemove(),
    "1 row replaced": fp.ReplaceOne(),
    "3, one a year": fp.AddRemove(records=3, once_per="YEAR"),
    "3 anywhere": fp.AddRemove(records=3),
    "9, one a year": fp.AddRemove(records=9, once_per="YEAR"),
    "9 anywhere": fp.AddRemove(records=9),
    "9, each in a different cell": fp.AddRemove(records=9, distinct=True),
}


def main(plan_path: str) -> None:
    workload = fp.Plan.load(plan_path).workload
    one = fp.design(workload, tolerance=2e-3).rho
    print(f"{'rows per woman':24} {'rho':>7} {'of one row':>13} {'epsilon':>7} {'gap':>8}")
    for name, unit in UNITS.items():
        plan = fp.design(workload, unit=unit, tolerance=2e-3)
        epsilon = plan.epsilon(1e-9)
        row = f"{name:24} {plan.rho:7.4f} {plan.rho / one:12.1f}x {epsilon:7.2f} {plan.gap:8.2%}"
        print(row + (" (its rho is a bound)" if plan.overstatement > 1e-3 else ""), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
