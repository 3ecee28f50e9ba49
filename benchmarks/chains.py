"""Compare plans for the prefixes of one long attribute with their bounds and with published peers.

python benchmarks/chains.py > benchmarks/chains.md
"""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path

import numpy as np
from markdown_table import compute_delta_gap, heading, line

import fitplug as fp

SIZES = (10_000, 100_000, 1_000_000)

CHAINS = """# Chains

The workload has all prefixes of one attribute of n cells, with targets of 1: the problem of
continual counting. Delta is the privacy cost of the plan, with the loss by rounding to integers
included. No mechanism with Gaussian noise costs less than the bound. The peers are exact
evaluations of published formulas, for real numbers: the square root of the prefix matrix as a
Toeplitz matrix (Fichtenberger, Henzinger, Upadhyay 2023), and the factorization through the group
algebra (Mathias 1993; Henzinger, Upadhyay 2025). More rho says how much more of the privacy budget
the square root needs than the plan for the same accuracy. Verification reads the plan file and
proves everything anew.
"""

OTHERS = """
# Chains with other queries

All targets of prefixes are 1, and n is 10,000.
"""


def evaluate_square_root(n: int) -> float:
    """Evaluate Delta of (1 - z)^-1/2 as a Toeplitz matrix: the sum of its squared entries."""
    k = np.arange(1, n)
    return float(1 + np.sum(np.cumprod((2 * k - 1) / (2 * k)) ** 2))


def evaluate_group_algebra(n: int) -> float:
    """Evaluate Delta of the factorization through the group algebra."""
    angles = (2 * np.arange(1, n + 1) - 1) * math.pi / (2 * n)
    return float(0.5 + np.mean(1 / np.abs(np.sin(angles))) / 2)


def ask(n: int, *groups: object, **attributes: list[str]) -> fp.Workload:
    domain = fp.Domain({**attributes, "x": fp.Integers(0, n - 1)})
    return fp.Workload(domain, [fp.queries({"x": "prefix"}, variance=1e6), *groups])


def design(workload: fp.Workload) -> tuple[fp.Plan, float]:
    start = time.perf_counter()
    plan = fp.design(workload)
    return plan, time.perf_counter() - start


def time_verification(plan: fp.Plan) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.npz"
        plan.save(path)
        start = time.perf_counter()
        fp.Plan.load(path).verify()
        return time.perf_counter() - start


def main() -> None:
    print(CHAINS)
    columns = ["n", "Delta", "bound", "gap of Delta", "square root", "more rho", "group algebra"]
    print(heading([*columns, "draws", "design s", "verification s"]))
    for n in SIZES:
        plan, seconds = design(ask(n))
        cost, root = plan.privacy_cost * 1e3, evaluate_square_root(n)
        numbers = [f"{cost:.4f}", f"{plan.lower_bound * 1e3:.4f}", f"{compute_delta_gap(plan):.2%}"]
        peers = [f"{root:.4f}", f"{(root / cost) ** 2 - 1:.1%}", f"{evaluate_group_algebra(n):.4f}"]
        times = [f"{seconds:.2g}", f"{time_verification(plan):.2g}"]
        draws = f"{plan.strategy.size:,}"
        print(line([f"{n:,}", *numbers, *peers, draws, *times]), flush=True)
    print(OTHERS)
    print(heading(["besides", "Delta", "bound", "gap of Delta", "design s"]))
    n = SIZES[0]
    by_sex = fp.queries({"s": "identity", "x": "prefix"}, variance=1e6)
    rough = np.where(np.arange(n) % 10 == 9, 1e6, 1e8)
    cases = {
        "cells, target 0.2": ask(n, fp.marginal("x", variance=2e5)),
        "total, target 0.1": ask(n, fp.total(variance=1e5)),
        "prefixes by sex": ask(n, by_sex, s=["a", "b"]),
        "targets of 9 in 10 prefixes 100": fp.Workload(
            fp.Domain({"x": fp.Integers(0, n - 1)}), [fp.queries({"x": "prefix"}, variance=rough)]
        ),
    }
    for name, workload in cases.items():
        plan, seconds = design(workload)
        numbers = [f"{plan.privacy_cost * 1e3:.4f}", f"{plan.lower_bound * 1e3:.4f}"]
        numbers.append(f"{compute_delta_gap(plan):.2%}")
        print(line([name, *numbers, f"{seconds:.2g}"]), flush=True)


if __name__ == "__main__":
    main()
